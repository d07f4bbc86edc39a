"""The functions that every transformation is tried on, and how two results are compared."""

import dataclasses
from collections import namedtuple
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax


@dataclasses.dataclass(frozen=True)
class Case:
    """One function with arguments for it; gradients are taken with respect to `argnums`."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    argnums: tuple[int, ...] = (0,)
    is_twice: bool = True  # It has a second derivative and a forward mode.
    is_reverse: bool = True


Pair = namedtuple("Pair", ["left", "right"])


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Weights:
    kernel: Any
    bias: Any
    extra: Any = None


def elementwise(x, y):
    return jnp.sin(x) * 2 + jnp.exp(y) / 3


def layer(x, w):
    hidden = jax.nn.relu(x @ w["in"])
    scores = jax.nn.softmax(hidden @ hidden.T, axis=-1)
    mean = jnp.mean(hidden, axis=-1, keepdims=True)
    spread = jnp.var(hidden, axis=-1, keepdims=True)
    normal = (hidden - mean) * lax.rsqrt(spread + 1e-5)
    return x + jnp.tanh(scores @ normal @ w["out"])


@jax.custom_jvp
def _softplus(x):
    return jnp.log1p(jnp.exp(x))


@_softplus.defjvp
def _softplus_jvp(primals, tangents):
    (x,), (t,) = primals, tangents
    return _softplus(x), t * jax.nn.sigmoid(x)


def with_custom_jvp(x):
    return _softplus(x) * x


@jax.custom_vjp
def _clipped(x, limit):
    return x * limit


def _clipped_fwd(x, limit):
    return x * limit, (x, limit)


def _clipped_bwd(saved, g):
    x, limit = saved
    return jnp.clip(g, -0.5, 0.5) * limit, jnp.sum(g * x)


_clipped.defvjp(_clipped_fwd, _clipped_bwd)


def with_custom_vjp(x, limit):
    return jnp.cos(_clipped(x, limit))


def scanned(x, ws):
    return lax.scan(lambda c, w: (jnp.tanh(c * w), c.sum()), x, ws)


def looped(x):
    return lax.while_loop(lambda s: s[0] < 4, lambda s: (s[0] + 1, jnp.sin(s[1]) + 0.1), (0, x))[1]


def branched(x, p):
    return lax.cond(p > 0, lambda v: jnp.sin(v), lambda v: v * v, x)


def indexed(x, i):
    return jnp.take(x, i, axis=0) * i[:, None], i + 1


def drawn(key, x):
    carry, use = jax.random.split(key)
    return carry, x + jax.random.normal(use, x.shape)


def reduced(x):
    return {"max": x.max(), "sum": x.sum(0), "log": jax.nn.logsumexp(x), "arg": x.argmax(), "sorted": jnp.sort(x, 0)}


def with_trees(tree, other):
    w, pair = tree["w"], tree["pair"]
    out = Weights(kernel=w.kernel @ pair.left, bias=w.bias * other[0])
    return {"out": out, "none": None, "pair": Pair(pair.right, (pair.left * 2, [])), "untouched": other[1]}


def complexes(z, x):
    return jnp.exp(1j * z) * x, jnp.abs(z) + x


def constants(x):
    return x * jnp.arange(3, dtype=x.dtype), 2.0, jnp.ones((2,), "int8")


def nested(x):
    inner = jax.jit(lambda v: jnp.sin(v) * v)
    return inner(x) + inner(x * 2)


_random = np.random.default_rng(0)


def floats(*shape):
    return jnp.asarray(_random.normal(size=shape), "float32")


CASES: dict[str, Case] = {
    "elementwise": Case(elementwise, (floats(2, 3), floats(3)), (0, 1)),
    "layer": Case(layer, (floats(3, 4), {"in": floats(4, 5), "out": floats(5, 4)}), (0, 1)),
    "custom_jvp": Case(with_custom_jvp, (floats(3),)),
    "custom_vjp": Case(with_custom_vjp, (floats(3), jnp.float32(0.7)), (0, 1), is_twice=False),
    "scan": Case(scanned, (floats(2), floats(3, 2)), (0, 1)),
    "while": Case(looped, (floats(3),), is_reverse=False),
    "cond": Case(branched, (floats(3), jnp.float32(1)), (0,)),
    "integers": Case(indexed, (floats(4, 2), jnp.array([0, 2, 1])), (0,)),
    "keys": Case(drawn, (jax.random.key(3), floats(2)), (1,)),
    "reductions": Case(reduced, (floats(3, 2),)),
    "trees": Case(
        with_trees,
        (
            {"w": Weights(floats(2, 2), floats(2)), "pair": Pair(floats(2, 2), floats(1))},
            [floats(2), floats(2)],
        ),
        (0, 1),
    ),
    "complex": Case(complexes, (floats(2) + 1j * floats(2), floats(2)), (1,)),
    "constants": Case(constants, (floats(3),)),
    "inner_jit": Case(nested, (floats(3),)),
}


def summary(tree):
    """Sum every inexact leaf of a result into one real scalar."""
    total = jnp.float32(0)
    for leaf in jax.tree.leaves(tree):
        leaf = jnp.asarray(leaf)
        if jnp.issubdtype(leaf.dtype, jnp.inexact):
            total += jnp.sum(jnp.real(leaf * jnp.conj(leaf))).astype("float32")
    return total


def stacked(args, count=2):
    """Give every leaf a new leading dimension, with different values along it."""

    def grow(leaf):
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            return jax.random.split(leaf, count)
        scale = np.arange(1, count + 1).reshape(count, *[1] * leaf.ndim)
        return (
            jnp.stack([leaf] * count) * scale if jnp.issubdtype(leaf.dtype, jnp.inexact) else jnp.stack([leaf] * count)
        ).astype(leaf.dtype)

    return jax.tree.map(grow, args)


def raw(leaf):
    """Return a leaf's numbers, those of keys too."""
    if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    return np.asarray(leaf)


def assert_same(got, want, *, is_exact=True):
    """Compare two results: trees, types of leaves, dtypes, weak types and bits."""
    assert jax.tree.structure(got) == jax.tree.structure(want)
    for g, w in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert isinstance(g, jax.Array) == isinstance(w, jax.Array)
        assert np.shape(g) == np.shape(w)
        assert g.dtype == w.dtype
        assert getattr(g, "weak_type", None) == getattr(w, "weak_type", None)
        if isinstance(w, jax.Array):
            assert g.sharding == w.sharding
            assert g.committed == w.committed
        if is_exact or not np.issubdtype(raw(w).dtype, np.inexact):
            assert raw(g).tobytes() == raw(w).tobytes(), (g, w)
        else:
            np.testing.assert_allclose(raw(g), raw(w), rtol=2e-5, atol=2e-6)
