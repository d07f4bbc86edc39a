"""The transformer that `bench_programs` starts: layers in a Python loop, parameters as a list of dictionaries.

Only what decides about compiling is here, as a user would write it; how the layer and the step are marked is the
benchmark's. It copies this file and edits one line of it to see what an edit compiles: `EDITS` of `program_edits.py`
names these lines.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

WIDTH, BATCH, CONTEXT, HEADS, VOCABULARY = 256, 2, 64, 4, 512

Params = dict[str, Any]
Layer = Callable[[Params, jax.Array], jax.Array]


def init_params(nr_layers: int, norm: str) -> Params:
    """Draw parameters with NumPy, so that nothing is compiled before the clock starts.

    Args:
        nr_layers: How many layers.
        norm: `layer`, `centred` for another spelling of the same, or `rms`; see `normalize`.
    """
    rng = np.random.default_rng(0)

    def draw(*shape: int, scale: float | None = None) -> jax.Array:
        values = rng.standard_normal(shape, np.float32) * np.float32(shape[0] ** -0.5 if scale is None else scale)
        return jax.device_put(values)

    def make_norm() -> Params:
        scale = {"scale": jax.device_put(np.ones(WIDTH, np.float32))}
        shift = {"layer": "shift", "centred": "centred_shift"}.get(norm)
        return scale if shift is None else {**scale, shift: jax.device_put(np.zeros(WIDTH, np.float32))}

    def make_layer() -> Params:
        return {
            "norm_1": make_norm(),
            "qkv": draw(WIDTH, 3 * WIDTH),
            "out": draw(WIDTH, WIDTH),
            "norm_2": make_norm(),
            "up": draw(WIDTH, 4 * WIDTH),
            "down": draw(4 * WIDTH, WIDTH),
        }

    return {
        "embed": draw(VOCABULARY, WIDTH, scale=0.02),
        "place": draw(CONTEXT, WIDTH, scale=0.02),
        "layers": [make_layer() for _ in range(nr_layers)],
        "norm": make_norm(),
    }


def stack_layers(params: Params) -> Params:
    """Return parameters as `lax.scan` wants them: one dictionary of stacked arrays in place of the list."""
    stacked = jax.tree.map(lambda *leaves: jax.device_put(np.stack(leaves)), *params["layers"])
    return {**params, "layers": stacked}


def make_tokens() -> jax.Array:
    """Draw one batch: int32[batch, context + 1]."""
    rng = np.random.default_rng(1)
    return jax.device_put(rng.integers(0, VOCABULARY, (BATCH, CONTEXT + 1), np.int32))


def normalize(params: Params, x: jax.Array) -> jax.Array:
    """Normalize as the parameters say: RMS norm has no shift; a shift called `centred_shift` asks for another spelling.

    How layer norm is spelled decides how long XLA takes for a whole module of many layers. The usual spelling, the mean
    and `var` (flax's mean of squares is no better), takes four times as long as one in which the difference from the
    mean is written once and used for both.
    """
    if "shift" in params:
        mean, variance = x.mean(axis=-1, keepdims=True), x.var(axis=-1, keepdims=True)
        return (x - mean) * jax.lax.rsqrt(variance + 1e-6) * params["scale"] + params["shift"]
    if "centred_shift" in params:
        centred = x - x.mean(axis=-1, keepdims=True)
        variance = (centred * centred).mean(axis=-1, keepdims=True)
        return centred * jax.lax.rsqrt(variance + 1e-6) * params["scale"] + params["centred_shift"]
    return x * jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 1e-6) * params["scale"]


def attend(params: Params, x: jax.Array) -> jax.Array:
    heads = (BATCH, CONTEXT, HEADS, WIDTH // HEADS)
    q, k, v = (piece.reshape(heads) for piece in jnp.split(x @ params["qkv"], 3, axis=-1))
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / jnp.sqrt(heads[-1])
    seen = jnp.tril(jnp.ones((CONTEXT, CONTEXT), dtype=bool))
    weights = jax.nn.softmax(jnp.where(seen, scores, -1e9), axis=-1)
    return jnp.einsum("bhqk,bkhd->bqhd", weights, v).reshape(x.shape) @ params["out"]


def layer(params: Params, x: jax.Array) -> jax.Array:
    x = x + attend(params, normalize(params["norm_1"], x))
    return x + jax.nn.gelu(normalize(params["norm_2"], x) @ params["up"]) @ params["down"]


def loop(layer: Layer) -> Layer:
    """Apply a list of layers, one after another."""

    def layers(params: Any, x: jax.Array) -> jax.Array:
        for layer_params in params:
            x = layer(layer_params, x)
        return x

    return layers


def scan(layer: Layer) -> Layer:
    """Apply stacked layers in a compiled loop."""

    def layers(params: Params, x: jax.Array) -> jax.Array:
        return jax.lax.scan(lambda x, layer_params: (layer(layer_params, x), None), x, params)[0]

    return layers


def make_forward(layers: Layer) -> Callable[[Params, jax.Array], jax.Array]:
    """Return the logits of the next token as a function of the parameters and the tokens."""

    def forward(params: Params, tokens: jax.Array) -> jax.Array:
        x = layers(params["layers"], params["embed"][tokens[:, :-1]] + params["place"])
        return normalize(params["norm"], x) @ params["embed"].T

    return forward


def make_loss(layers: Layer) -> Callable[[Params, jax.Array], jax.Array]:
    """Return the mean cross entropy of the next token, in nats."""
    forward = make_forward(layers)

    def loss(params: Params, tokens: jax.Array) -> jax.Array:
        logits = forward(params, tokens)
        return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()

    return loss


def make_optimizer() -> optax.GradientTransformation:
    return optax.adamw(1e-3, weight_decay=0.01)


def make_train_step(layers: Layer) -> Callable[..., Any]:
    """Return one AdamW step: (parameters, state, tokens) to (parameters, state, loss before the update)."""
    loss_and_gradient = jax.value_and_grad(make_loss(layers))
    optimizer = make_optimizer()

    def train_step(params: Params, state: Any, tokens: jax.Array) -> tuple[Params, Any, jax.Array]:
        loss, gradient = loss_and_gradient(params, tokens)
        updates, state = optimizer.update(gradient, state, params)
        return optax.apply_updates(params, updates), state, loss

    return train_step
