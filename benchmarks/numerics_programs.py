"""The programs of `bench_numerics`: small models in the ways in which people cut them, and some cut in bad places.

A program is made twice, with its parts marked by an inner `jax.jit` and with plain Python functions in their place.
Arguments are drawn with NumPy.
"""

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import transformer

Mark = Callable[[Callable[..., Any]], Callable[..., Any]]

WIDTH, ROWS = 128, 32
NR_LAYERS = 6
NR_STEPS = 10


@dataclass(frozen=True)
class Program:
    """A program and arguments for it.

    Attributes:
        name: For people.
        make: Makes the function, given what marks its parts.
        args: Arrays in float32.
        nr_steps: How often the function is called; its results are the first arguments of the next call.
    """

    name: str
    make: Callable[[Mark], Callable[..., Any]]
    args: tuple[Any, ...]
    nr_steps: int = 1


def in_type(args: Any, dtype: Any) -> Any:
    """Return arguments with every floating-point array in another type."""

    def convert(leaf: Any) -> Any:
        return jnp.asarray(leaf, dtype) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf

    return jax.tree.map(convert, args)


def all_programs() -> Iterator[Program]:
    """Yield all programs, those that are cut well first."""
    yield from _transformers()
    yield from _perceptrons()
    yield from _lstm()
    yield from _convolutions()
    yield from _badly_cut()


def _with_gradient(name: str, make: Callable[[Mark], Callable[..., Any]], args: tuple[Any, ...]) -> Iterator[Program]:
    """Yield a program, and the gradient of a number made of its results for the first argument."""
    yield Program(f"{name}, forward", make, args)
    shape = jax.eval_shape(make(lambda function: function), *args).shape
    weights = np.random.default_rng(9).standard_normal(shape).astype(np.float32)

    def make_gradient(mark: Mark) -> Callable[..., Any]:
        function = make(mark)
        return jax.value_and_grad(lambda *args: (function(*args) * weights.astype(args[-1].dtype)).sum())

    yield Program(f"{name}, gradient", make_gradient, args)


# -- models -----------------------------------------------------------------------------------------------------------


def _transformers() -> Iterator[Program]:
    tokens = transformer.make_tokens()
    for norm in ("layer", "rms"):
        params = transformer.init_params(NR_LAYERS, "centred" if norm == "layer" else norm)

        def layers(mark: Mark) -> Any:
            return transformer.loop(mark(transformer.layer))

        name = f"transformer, {norm} norm"
        yield Program(f"{name}, forward", lambda mark: transformer.make_forward(layers(mark)), (params, tokens))
        yield Program(
            f"{name}, gradient", lambda mark: jax.value_and_grad(transformer.make_loss(layers(mark))), (params, tokens)
        )
        state = transformer.make_optimizer().init(params)
        yield Program(
            f"{name}, {NR_STEPS} AdamW steps",
            lambda mark: transformer.make_train_step(layers(mark)),
            (params, state, tokens),
            NR_STEPS,
        )


def _perceptrons() -> Iterator[Program]:
    draw = _Draw(2)
    weights = [{"up": draw(WIDTH, WIDTH), "down": draw(WIDTH, WIDTH)} for _ in range(NR_LAYERS)]
    x = draw(ROWS, WIDTH, scale=1.0)
    for name, function in (("tanh", jnp.tanh), ("gelu", jax.nn.gelu), ("silu", jax.nn.silu)):

        def make(mark: Mark, function: Callable[..., Any] = function) -> Callable[..., Any]:
            layer = mark(lambda w, x: function(x @ w["up"]) @ w["down"])

            def apply(weights: Any, x: Any) -> Any:
                for w in weights:
                    x = x * 0.7 + layer(w, x) * 0.3  # both products meet the addition outside the unit
                return x

            return apply

        yield from _with_gradient(f"scaled residuals, {name}", make, (weights, x))


def _lstm() -> Iterator[Program]:
    draw = _Draw(3)
    weights = {"x": draw(WIDTH, 4 * WIDTH), "h": draw(WIDTH, 4 * WIDTH), "b": draw(4 * WIDTH, scale=0.1)}

    def make(mark: Mark) -> Callable[..., Any]:
        @mark
        def cell(w: Any, h: Any, c: Any, x: Any) -> Any:
            i, f, g, o = jnp.split(x @ w["x"] + h @ w["h"] + w["b"], 4, axis=-1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            return jax.nn.sigmoid(o) * jnp.tanh(c), c

        def apply(w: Any, xs: Any) -> Any:
            h = c = jnp.zeros(xs.shape[1:], xs.dtype)
            for x in xs:
                h, c = cell(w, h, c, x)
            return h + c

        return apply

    yield from _with_gradient("LSTM, 8 steps", make, (weights, draw(8, 8, WIDTH, scale=1.0)))


def _convolutions() -> Iterator[Program]:
    draw = _Draw(4)
    channels = 16
    weights = [
        {
            "kernel": draw(3, 3, channels, channels, scale=(9 * channels) ** -0.5),
            "scale": draw(channels, scale=0.1) + 1,
            "shift": draw(channels, scale=0.1),
        }
        for _ in range(4)
    ]
    x = draw(4, 16, 16, channels, scale=1.0)

    def convolve(w: Any, x: Any) -> Any:
        return jax.lax.conv_general_dilated(x, w["kernel"], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))

    def normalize(w: Any, x: Any) -> Any:
        mean = x.mean((0, 1, 2))
        variance = jnp.square(x - mean).mean((0, 1, 2))
        return (x - mean) * jax.lax.rsqrt(variance + 1e-5) * w["scale"] + w["shift"]

    def make_whole(mark: Mark) -> Callable[..., Any]:
        block = mark(lambda w, x: jax.nn.relu(normalize(w, convolve(w, x))))
        return lambda weights, x: functools.reduce(lambda x, w: x + block(w, x), weights, x)

    def make_apart(mark: Mark) -> Callable[..., Any]:
        norm = mark(normalize)
        return lambda weights, x: functools.reduce(lambda x, w: x + jax.nn.relu(norm(w, convolve(w, x))), weights, x)

    yield from _with_gradient("conv net, block a unit", make_whole, (weights, x))
    yield from _with_gradient("conv net, batch norm a unit", make_apart, (weights, x))


# -- cut in bad places ------------------------------------------------------------------------------------------------


def _badly_cut() -> Iterator[Program]:
    draw = _Draw(5)
    weights = [draw(WIDTH, WIDTH) for _ in range(4)]
    x = draw(ROWS, WIDTH, scale=1.0)

    def gate(w: Any, x: Any) -> Any:
        return jnp.tanh(x @ w) * x

    def make_gated(mark: Mark) -> Callable[..., Any]:
        unit = mark(gate)
        return lambda weights, x: functools.reduce(lambda x, w: x + unit(w, x), weights, x)

    def make_handed(mark: Mark) -> Callable[..., Any]:
        unit = mark(lambda w, scaled, x: scaled + jnp.tanh(x @ w))
        return lambda weights, x: functools.reduce(lambda x, w: unit(w, x * 0.7, x), weights, x)

    def make_cancelling(mark: Mark) -> Callable[..., Any]:
        unit = mark(gate)
        return lambda weights, rounded, x: jnp.stack(
            [unit(w, x) - product for w, product in zip(weights, rounded, strict=True)]
        )

    rounded = [jax.jit(gate)(w, x) for w in weights]
    yield from _with_gradient("unit ends in a product, glue adds", make_gated, (weights, x))
    yield from _with_gradient("glue ends in a product, unit adds", make_handed, (weights, x))
    yield Program("unit ends in a product, glue subtracts it", make_cancelling, (weights, rounded, x))


class _Draw:
    """Draw normally distributed arrays, for products unless a scale is given."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)

    def __call__(self, *shape: int, scale: float | None = None) -> Any:
        values = self._rng.standard_normal(shape).astype(np.float32)
        return jnp.asarray(values * np.float32(shape[0] ** -0.5 if scale is None else scale))
