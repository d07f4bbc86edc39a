"""Taking a program apart: which equations go where, and that the parts compute what the whole does."""

import functools
import hashlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import io_callback

from prejit.key.program import ProgramDigester

W = np.linspace(-1, 1, 64, dtype="float32").reshape(8, 8)
X = np.linspace(0, 1, 32, dtype="float32").reshape(4, 8)


@jax.jit
def layer(w, x):
    return jnp.tanh(x @ w) + x


def digests(taken, kind=None):
    digester = ProgramDigester()
    return [digester.digest(s.closed_jaxpr()) for s in taken.segments if kind is None or s.kind == kind]


# Units and glue


def test_calls_become_units_in_the_programs_order(take_apart):
    other = jax.jit(lambda w, x: jnp.sin(x @ w) * 2 + 1)

    def program(w, x):
        return layer(w, other(w, layer(w, other(w, x))))

    taken = take_apart(program, W, X)
    assert taken.kinds() == ["unit"] * 4
    assert [s.name == "layer" for s in taken.segments] == [False, True, False, True]
    assert len(set(digests(taken))) == 2


def test_glue_is_the_same_for_equal_units(take_apart):
    def program(w, x):
        for _ in range(5):
            x = layer(w, x)
            x = x / (1 + jnp.abs(x).sum())
        return x

    taken = take_apart(program, W, X)
    assert taken.kinds() == ["unit", "glue"] * 5
    assert len(set(digests(taken, "unit"))) == 1
    assert len(set(digests(taken, "glue"))) == 1


def test_glue_goes_as_early_as_its_inputs_allow(take_apart):
    """What only later parts read but needs nothing of the units stands before the first of them."""

    def program(w, x, y):
        a = layer(w, x)
        b = layer(w, a)
        early = lax.cumsum(y)  # reads an argument alone
        after_first = a.max()
        return b + early[0] + after_first

    taken = take_apart(program, W, X, np.arange(3.0, dtype="float32"))
    assert taken.kinds() == ["glue", "unit", "glue", "unit", "glue"]
    primitives = taken.primitives("glue")
    assert "cumsum" in primitives[0]
    assert primitives[1] == ["reduce_max"]


def test_the_glue_of_an_update_is_the_same_for_every_layer(take_apart):
    """An optimizer's steps depend on gradients that come in reverse order; each stands where its gradient is."""

    def program(ws, x):
        def loss(ws):
            y = x
            for w in ws:
                y = layer(w, y)
            return (y * y).sum()

        return [w - 0.1 * g / (jnp.sqrt((g * g).sum()) + 1) for w, g in zip(ws, jax.grad(loss)(ws), strict=True)]

    counts = {}
    for depth in (4, 8):
        taken = take_apart(program, [W * n for n in range(1, depth + 1)], X)
        counts[depth] = len(set(digests(taken)))
    assert counts[4] == counts[8], "no segment grows with the number of layers"


def test_a_body_called_through_two_levels_is_one_unit(take_apart):
    @jax.jit
    def block(w, x):
        return layer(w, layer(w, x)) * 0.5

    def program(w, x):
        return block(w, block(w, layer(w, x)))

    taken = take_apart(program, W, X)
    units = [s for s in taken.segments if s.kind == "unit"]
    assert [s.name for s in units] == ["layer"] * 5, "the block repeats a candidate, so it is taken apart"
    assert len(set(digests(taken, "unit"))) == 1


def test_nested_calls_that_do_not_repeat_inside_stay_one_unit(take_apart):
    @jax.jit
    def block(w, x):
        return layer(w, x) * 0.5 + jnp.cos(x)

    def program(w, x):
        return block(w, block(w, block(w, x)))

    taken = take_apart(program, W, X)
    assert [s.name for s in taken.segments if s.kind == "unit"] == ["block"] * 3


def test_derivatives_repeat_few_distinct_bodies(take_apart):
    def program(w, x):
        for _ in range(6):
            x = layer(w, x)
        return (x * x).sum()

    taken = take_apart(jax.value_and_grad(program), W, X)
    units = digests(taken, "unit")
    assert len(units) == 12, "forward and backward"
    assert len(set(units)) <= 4


def test_units_that_nothing_needs_are_gone(take_apart):
    def program(w, x):
        layer(w, x * 2)
        unused = layer(w, layer(w, x))
        del unused
        return layer(w, x), layer(w, x + 1)

    assert take_apart(program, W, X).kinds().count("unit") == 2


def test_results_of_a_unit_that_nothing_needs_are_not_handed_on(take_apart):
    @jax.jit
    def wide(w, x):
        y = jnp.tanh(x @ w)
        return y, y.sum(), jnp.sort(y, axis=0)

    def program(w, x):
        for _ in range(3):
            x = wide(w, x)[0]
        return wide(w, x)[:2]

    taken = take_apart(program, W, X)
    assert [len(s.outvars) for s in taken.segments if s.kind == "unit"] == [1, 1, 1, 2]


# Soft values


def test_a_product_is_not_cut_from_the_addition_that_follows(take_apart):
    """XLA would contract them; a rounded product handed on would change the last bit of the sum."""

    def program(w, x, y):
        product = x * y  # stands early
        for _ in range(2):
            x = layer(w, x)
        return product + x, product.T

    taken = take_apart(program, W, X, X * 3)
    last = taken.segments[-1]
    assert "mul" in [eqn.primitive.name for eqn in last.eqns], "it is computed again where it is added"
    read = {var.aval.shape for var in last.invars}
    assert read == {(4, 8)}


@pytest.mark.parametrize("depth", [1, 3, 10])
def test_chains_of_soft_values_are_repeated_from_their_beginning(take_apart, depth):
    def program(w, x, y):
        chain = y
        for _ in range(depth):
            chain = jnp.sin(chain * 0.9)
        a = layer(w, x)
        b = layer(w, a)
        return chain + b, chain + a, chain

    taken = take_apart(program, W, X, X * 3)
    for segment in taken.segments:
        names = [eqn.primitive.name for eqn in segment.eqns]
        if "add" in names and segment.kind == "glue":
            assert names.count("sin") == depth


def test_sums_and_products_of_matrices_are_handed_on(take_apart):
    def program(w, x, y):
        hard = (y @ w).sum(0)
        a = layer(w, x)
        b = layer(w, a)
        return hard + b, hard * a

    taken = take_apart(program, W, X, X * 3)
    assert sum(names.count("dot_general") for names in taken.primitives("glue")) == 1


def test_in_half_precision_sums_are_soft_too(take_apart):
    def program(dtype):
        def run(w, x, y):
            early = y.astype(dtype) + jnp.ones((), dtype)
            x = layer(w, layer(w, x))
            return early + x.astype(dtype)

        return run

    def additions(dtype):
        taken = take_apart(program(dtype), W, X, X * 3, check=False)
        return [eqn.primitive.name for eqn in taken.segments[-1].eqns].count("add")

    assert additions("bfloat16") == 2
    assert additions("float32") == 1


def test_integers_are_never_soft(take_apart):
    def program(w, x, n):
        early = n * 3
        x = layer(w, layer(w, x))
        return early + x.astype("int32")

    taken = take_apart(program, W, X, np.arange(8, dtype="int32"))
    assert "mul" not in [eqn.primitive.name for eqn in taken.segments[-1].eqns]


def test_what_is_repeated_is_bounded(take_apart):
    def program(w, x, y):
        chain = y
        for _ in range(200):
            chain = jnp.sin(chain * 0.9)
        for _ in range(4):
            x = layer(w, x) + chain
        return x

    taken = take_apart(program, W, X, X * 3)
    assert max(len(s.eqns) for s in taken.segments[1:]) < 120


# Effects


def test_effects_keep_their_order_and_are_segments_of_their_own(take_apart):
    def note(*_):
        return None

    def program(w, x):
        io_callback(note, None, x.sum(), ordered=True)
        a = layer(w, x)
        io_callback(note, None, ordered=True)
        b = layer(w, a)
        jax.debug.callback(note, b.sum(), ordered=True)
        return jax.pure_callback(lambda v: v, jax.ShapeDtypeStruct((4, 8), "float32"), b)

    taken = take_apart(program, W, X, check=False)
    row = [(s.kind, s.name) for s in taken.segments if s.kind != "glue"]
    names = [name for kind, name in row if kind == "effect"]
    assert [kind for kind, _ in row] == ["effect", "unit", "effect", "unit", "effect", "effect"]
    assert names[0] == names[1] == "io_callback"
    assert names[2].startswith("debug")
    assert names[3] == "pure_callback"
    assert all(len(s.eqns) == 1 for s in taken.segments if s.kind == "effect")


def test_a_unit_with_an_effect_is_a_unit(take_apart):
    loud = jax.jit(lambda w, x: (jax.debug.print("{}", x[0, 0]), jnp.tanh(x @ w))[1])
    taken = take_apart(lambda w, x: loud(w, loud(w, x)), W, X, check=False)
    assert taken.kinds() == ["unit", "unit"]


def test_an_effect_without_results_is_kept(take_apart):
    def program(w, x):
        jax.debug.callback(lambda v: None, layer(w, layer(w, x)).sum())
        return x + 1

    assert "effect" in take_apart(program, W, X, check=False).kinds()


# Constants and literals


def test_small_constants_are_part_of_what_reads_them_and_large_ones_are_inputs(take_apart):
    small, large = jnp.asarray(W) * 2, jnp.ones((8, 8)) * 3

    def program(x):
        return layer(small, x) @ large, layer(small * 2, x) @ small

    for limit, handed in [(65536, 0), (256, 0), (255, 2), (0, 2)]:
        taken = take_apart(program, X, hoist_bytes=limit)
        assert len(taken.parts.consts) == len(taken.parts.constvars) == handed
        embedded = {id(const) for s in taken.segments for const in s.consts.values()}
        assert len(embedded) == 2 - handed


def test_a_constant_is_handed_over_once_however_many_read_it(take_apart):
    large = jnp.asarray(W) * 3
    inner = jax.jit(lambda x: jnp.tanh(x @ large) + x)

    def program(x):
        for _ in range(3):
            x = inner(x) @ large
        return x, large

    taken = take_apart(program, X, hoist_bytes=0)
    assert [const.shape for const in taken.parts.consts].count((8, 8)) == 1
    assert len(set(digests(taken, "unit"))) == 1


def test_constants_of_inner_functions(take_apart):
    """A body that is taken apart brings its constants along, as does one that stays a unit."""
    one, two = np.asarray(W) * 2, np.asarray(W) * 3

    @jax.jit
    def inner(x):
        return jnp.tanh(x @ one) + x

    @jax.jit
    def outer(x):
        return inner(inner(x)) @ two

    def program(x):
        return outer(outer(x)) @ one

    for limit in (65536, 0):
        take_apart(program, X, hoist_bytes=limit)


def test_literals_stay_literals(take_apart):
    def program(w, x):
        return layer(w, x) * 0.1 + layer(w, x * 2.5) * 3.7

    taken = take_apart(program, W, X)
    assert len(taken.parts.consts) == 0
    text = "".join(str(s.closed_jaxpr()) for s in taken.segments)
    for literal in ("0.1", "2.5", "3.7"):
        assert literal in text


def test_a_literal_argument_becomes_part_of_the_unit(take_apart):
    scaled = jax.jit(lambda w, x, s: jnp.tanh(x @ w) * s + x)

    def program(w, x):
        return scaled(w, scaled(w, scaled(w, x, 0.5), 0.5), 0.25)

    taken = take_apart(program, W, X)
    units = digests(taken, "unit")
    assert len(units) == 3
    assert units[0] == units[1] != units[2]
    assert all(len(s.invars) == 2 for s in taken.segments)


def test_one_value_for_two_arguments_is_read_once(take_apart):
    both = jax.jit(lambda a, b: jnp.tanh(a @ b) + a)
    taken = take_apart(lambda w, v: (both(w, w), both(w, v), both(v, v)), W, W * 2)
    assert [len(s.invars) for s in taken.segments if s.kind == "unit"] == [1, 2, 1]
    units = digests(taken, "unit")
    assert units[0] == units[2] != units[1]


# Results


def test_results_that_are_inputs_literals_constants_or_given_twice(take_apart):
    const = jnp.asarray(W)

    def program(w, x):
        y = layer(w, layer(w, x))
        return w, y, x, 1, 2.5, y, const, True, y, w, x.sum()

    for limit in (65536, 0):
        taken = take_apart(program, W, X, hoist_bytes=limit)
        assert len(set(taken.parts.outvars)) == len(taken.parts.outvars) == 11
        made = [var for s in taken.segments for var in s.outvars]
        assert set(taken.parts.outvars) <= set(made), "each result is the output of one segment"
        assert taken.segments[-1].name == "outputs"


def test_a_program_that_only_returns_what_it_gets(take_apart):
    taken = take_apart(lambda w, x: (x, w, x), W, X)
    assert taken.names() == ["outputs"]
    assert take_apart(lambda w, x: (), W, X).segments == ()


def test_unused_inputs_stay_in_place(take_apart):
    taken = take_apart(lambda a, w, b, x, c: layer(w, layer(w, x)), W, W, X, X, 1.0)
    assert len(taken.parts.invars) == 5


# Everything JAX writes


def _policy(eqn, every):
    """Choose by what the equation's own text hashes to: no policy, but each choice is allowed."""
    from prejit._jax import pieces

    if not pieces.bodies_of(eqn):
        return "glue"
    number = hashlib.sha256(str(eqn.primitive).encode() + str(len(eqn.invars)).encode() + every.encode()).digest()[0]
    return ("unit", "inline", "glue")[number % 3]


def zoo(w, x):
    @jax.checkpoint
    def kept(x):
        return jnp.sin(layer(w, x)).sum()

    @jax.custom_vjp
    def with_rule(x):
        return layer(w, x)

    with_rule.defvjp(lambda x: (layer(w, x), x), lambda x, g: (g * jnp.cos(x),))
    y = lax.scan(lambda c, _: (layer(w, c), c.sum()), x, None, length=3)
    z = lax.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, layer(w, s[1])), (0, x))
    c = lax.cond(x[0, 0] > 0, lambda v: layer(w, v), lambda v: v * 2, x)
    g = jax.grad(lambda v: kept(v) + with_rule(v).sum() + jax.nn.relu(v).sum())(x)
    k, s = jax.random.split(jax.random.key(3))
    noise = jax.random.normal(s, x.shape)
    m = jax.vmap(lambda row: layer(w, row[None])[0])(x)
    return y, z, c, g, noise + m, jax.random.key_data(k), jnp.linalg.norm(w), jnp.fft.fft(x[0]), jax.nn.gelu(x)


@pytest.mark.parametrize("every", ["separate", "a", "b", "c", "d", "e", "f"])
def test_any_choice_gives_the_same_values(take_apart, every):
    choose = None if every == "separate" else functools.partial(_policy, every=every)
    take_apart(zoo, W, X, choose=choose)


def test_all_calls_in_the_programs_place(take_apart):
    taken = take_apart(zoo, W, X, choose=lambda eqn: "inline")
    assert len(taken.segments) <= 2
    assert not [eqn for s in taken.segments for eqn in s.eqns if eqn.primitive.name in ("jit", "pjit")]
