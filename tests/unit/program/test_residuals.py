"""What one unit does not hand to another because it can be computed again, and what it must hand on."""

import importlib

import jax
import jax.extend
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from prejit.program import primitives

W = np.linspace(-0.3, 0.3, 1024, dtype="float32").reshape(32, 32)
X = np.linspace(0, 1, 512, dtype="float32").reshape(16, 32)


def handed(taken):
    """Bytes that each unit hands on, in order."""
    return [
        sum(int(np.prod(v.aval.shape)) * v.aval.dtype.itemsize for v in segment.outvars)
        for segment in taken.segments
        if segment.kind == "unit"
    ]


def loss_of(layer, depth=4):
    def loss(w, x):
        for _ in range(depth):
            x = layer(w, x)
        return (x * x).mean()

    return jax.value_and_grad(loss)


def test_elementwise_residuals_of_a_product_are_computed_again(take_apart):
    """A GELU saves five functions of its argument; the argument is enough."""
    layer = jax.jit(lambda w, x: jax.nn.gelu(x @ w) + x)
    taken = take_apart(loss_of(layer), W, X)
    forward = handed(taken)[:4]
    assert forward[1] <= 2 * X.nbytes, "the result and the product"
    bodies = [[eqn.primitive.name for eqn in s.eqns] for s in taken.segments if s.kind == "unit"]
    assert any("tanh" in names for names in bodies[4:]), "the backward pass computes them"


def test_units_stay_equal(take_apart):
    layer = jax.jit(lambda w, x: jax.nn.gelu(x @ w) + x)
    from prejit.key.program import ProgramDigester

    digester = ProgramDigester()
    counts = []
    for depth in (4, 8):
        taken = take_apart(loss_of(layer, depth), W, X)
        counts.append(len({digester.digest(s.closed_jaxpr()) for s in taken.segments}))
    assert counts[0] == counts[1]


def test_constants_are_not_handed_on(take_apart):
    @jax.jit
    def layer(w, x):
        mask = jnp.tril(jnp.ones((16, 16), bool))
        scores = jnp.where(mask, x @ x.T, -1e9)
        return jax.nn.softmax(scores) @ x @ w

    taken = take_apart(loss_of(layer), W, X)
    for segment in taken.segments:
        assert all(v.aval.dtype != bool for v in segment.outvars), "the mask is made where it is read"


@pytest.mark.parametrize("name", ["dot", "reduce", "sort", "cumsum", "gather", "scan", "random"])
def test_what_is_not_elementwise_is_handed_on(take_apart, name):
    costly = {
        "dot": lambda w, x: x @ w,
        "reduce": lambda w, x: x - x.sum(0),
        "sort": lambda w, x: jnp.sort(x @ w, axis=0),
        "cumsum": lambda w, x: jnp.cumsum(x @ w, axis=0),
        "gather": lambda w, x: (x @ w)[::-1][jnp.array([3, 1, 2] * 5 + [0])],
        "scan": lambda w, x: lax.scan(lambda c, r: (jnp.sin(c) + r, c), x[0], x @ w)[1],
        "random": lambda w, x: x @ w * jax.random.normal(jax.random.key(0), (16, 32)),
    }[name]
    layer = jax.jit(lambda w, x: jnp.tanh(costly(w, x)) * 0.3 + x)
    taken = take_apart(loss_of(layer), W, X)
    expensive = {"dot_general", "sort", "cumsum", "scan", "while", "random_bits", "threefry2x32"}

    def count(eqns):
        total = 0
        for eqn in eqns:
            if eqn.primitive.name in ("jit", "pjit"):
                total += count(eqn.params["jaxpr"].jaxpr.eqns)
            else:
                total += eqn.primitive.name in expensive
        return total

    whole = count(jax.make_jaxpr(loss_of(layer))(W, X).jaxpr.eqns)
    assert sum(count(s.eqns) for s in taken.segments) <= whole, "nothing that costs is computed twice"


def test_results_of_the_program_are_handed_on_as_they_are(take_apart):
    @jax.jit
    def layer(w, x):
        y = x @ w
        return jnp.tanh(y), jnp.sin(y), y

    def program(w, x):
        a, b, c = layer(w, x)
        d, e, f = layer(w, b)
        return a, b, c, d, e, f

    taken = take_apart(program, W, X)
    assert [len(s.outvars) for s in taken.segments if s.kind == "unit"] == [3, 3]


def test_a_long_chain_is_handed_on(take_apart):
    @jax.jit
    def layer(w, x):
        y = x @ w
        z = y
        for _ in range(100):
            z = jnp.sin(z) * 0.9
        return z, y

    def program(w, x):
        for _ in range(3):
            z, y = layer(w, x)
            x = z @ w + y
        return x

    taken = take_apart(program, W, X)
    for segment in taken.segments:
        if segment.kind == "glue":
            assert [eqn.primitive.name for eqn in segment.eqns].count("sin") <= 1


def test_what_is_computed_again_does_not_grow_from_unit_to_unit(take_apart):
    """A value that is cheap to compute from the unit before, which got it so itself, and so on to the beginning."""

    @jax.jit
    def layer(x):
        return jnp.sin(x) * 0.5 + 0.1, jnp.cos(x)

    def program(x):
        kept = []
        for _ in range(20):
            x, y = layer(x)
            kept.append(y.sum())
        return x, jnp.stack(kept)

    taken = take_apart(program, X)
    assert max(len(s.eqns) for s in taken.segments) < 80


@pytest.mark.parametrize("returns", ["literal", "input", "twice", "nothing", "constant"])
def test_bodies_with_odd_results(take_apart, returns):
    const = jnp.asarray(W) * 2

    @jax.jit
    def layer(w, x):
        y = jnp.tanh(x @ w) + x
        return {
            "literal": (y, 2.0),
            "input": (y, w),
            "twice": (y, y),
            "nothing": (y,),
            "constant": (y, const),
        }[returns]

    def program(w, x):
        for _ in range(3):
            x, *rest = layer(w, x)
            for value in rest:
                x = x + jnp.sum(value)
        return x

    take_apart(program, W, X)
    take_apart(jax.grad(lambda w, x: program(w, x).sum()), W, X)


def test_groups_of_primitives_name_what_jax_has():
    """A misspelt name would be expensive for ever, and nobody would see it."""
    modules = ["jax._src.lax.lax", "jax._src.lax.slicing", "jax._src.lax.special", "jax._src.ad_util"]
    known = {
        value.name
        for module in modules
        for value in vars(importlib.import_module(module)).values()
        if isinstance(value, jax.extend.core.Primitive)
    }
    ours = primitives.CHEAP | primitives.SOFT | primitives.MOVES | primitives.ROUNDED
    newer = {"log2", "one_minus_square", "polynomial", "stack", "tile"}  # than JAX 0.10
    assert ours - known <= {"expand_dims", "stop_gradient", *newer}, "functions that are no primitives in this version"
