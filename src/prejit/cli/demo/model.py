"""The program that the demo starts: a character-level transformer and its AdamW step, as a user would write them.

Layers are called in a Python loop, parameters and optimizer state are made by eager operations. What differs between
the ways is only how `layer` and the step are marked, which `worker` does.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax

from prejit.cli.demo.sizes import Size
from prejit.cli.demo.text import VOCABULARY

Layer = Callable[[dict[str, jax.Array], jax.Array], jax.Array]


def init_params(size: Size, key: jax.Array) -> dict[str, Any]:
    """Draw the parameters, one eager operation after another.

    Args:
        size: The model's shape.
        key: PRNG key.

    Returns:
        Embeddings, a list with the parameters of each layer, and the final norm's scale; all float32.
    """

    def draw(key: jax.Array, *shape: int) -> jax.Array:
        return jax.random.normal(key, shape) / jnp.sqrt(shape[0])

    key_embed, key_place, *keys = jax.random.split(key, 2 + size.nr_layers)
    layers: list[dict[str, jax.Array]] = []
    for key_layer in keys:
        qkv, out, up, down = jax.random.split(key_layer, 4)
        layers.append(
            {
                "norm_1": jnp.ones(size.width),
                "norm_2": jnp.ones(size.width),
                "qkv": draw(qkv, size.width, 3 * size.width),
                "out": draw(out, size.width, size.width),
                "up": draw(up, size.width, 4 * size.width),
                "down": draw(down, 4 * size.width, size.width),
            }
        )
    return {
        "embed": 0.02 * jax.random.normal(key_embed, (VOCABULARY, size.width)),
        "place": 0.02 * jax.random.normal(key_place, (size.context, size.width)),
        "layers": layers,
        "norm": jnp.ones(size.width),
    }


def _normalize(x: jax.Array, scale: jax.Array) -> jax.Array:
    return x * jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 1e-6) * scale


def normalize_layer(x: jax.Array, scale: jax.Array) -> jax.Array:
    """Normalize by mean and variance, as most transformers do."""
    centred = x - jnp.mean(x, axis=-1, keepdims=True)
    return centred * jax.lax.rsqrt(jnp.mean(centred * centred, axis=-1, keepdims=True) + 1e-6) * scale


def make_layer(nr_heads: int, normalize: Callable[[jax.Array, jax.Array], jax.Array] = _normalize) -> Layer:
    """Return one transformer layer as a function of its parameters and its input."""

    def layer(params: dict[str, jax.Array], x: jax.Array) -> jax.Array:
        batch, context, width = x.shape
        heads = (batch, context, nr_heads, width // nr_heads)
        q, k, v = jnp.split(normalize(x, params["norm_1"]) @ params["qkv"], 3, axis=-1)
        q, k, v = q.reshape(heads), k.reshape(heads), v.reshape(heads)
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / jnp.sqrt(heads[-1])
        seen = jnp.tril(jnp.ones((context, context), dtype=bool))
        weights = jax.nn.softmax(jnp.where(seen, scores, -1e9), axis=-1)
        x = x + jnp.einsum("bhqk,bkhd->bqhd", weights, v).reshape(batch, context, width) @ params["out"]
        return x + jax.nn.gelu(normalize(x, params["norm_2"]) @ params["up"]) @ params["down"]

    return layer


def make_loss(layer: Layer) -> Callable[[dict[str, Any], jax.Array], jax.Array]:
    """Return the mean cross entropy of the next character, in nats, over a Python loop of layers."""

    def loss(params: dict[str, Any], characters: jax.Array) -> jax.Array:
        x = params["embed"][characters[:, :-1]] + params["place"]
        for params_layer in params["layers"]:
            x = layer(params_layer, x)
        logits = _normalize(x, params["norm"]) @ params["embed"].T
        return optax.softmax_cross_entropy_with_integer_labels(logits, characters[:, 1:]).mean()

    return loss


def make_optimizer() -> optax.GradientTransformation:
    """Return AdamW as most training scripts set it up."""
    return optax.adamw(2e-3, weight_decay=0.01)


def make_train_step(layer: Layer, optimizer: optax.GradientTransformation) -> Callable[..., Any]:
    """Return one training step: loss and gradient, AdamW update.

    The step maps parameters, optimizer state and a batch (int32[batch, context + 1]) to new parameters, new state and
    the loss before the update.
    """
    loss_and_gradient = jax.value_and_grad(make_loss(layer))

    def train_step(params: Any, state: Any, characters: jax.Array) -> tuple[Any, Any, jax.Array]:
        loss, gradient = loss_and_gradient(params, characters)
        updates, state = optimizer.update(gradient, state, params)
        return optax.apply_updates(params, updates), state, loss

    return train_step
