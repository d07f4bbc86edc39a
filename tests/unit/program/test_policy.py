"""What becomes a unit: by what was asked for, by size and repetition, and by the marks of components."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import prejit
from prejit import config
from prejit.program.plan import Call, Layout, Unit
from prejit.program.policy import judge

W = np.linspace(-0.3, 0.3, 64, dtype="float32").reshape(8, 8)
X = np.linspace(0, 1, 32, dtype="float32").reshape(4, 8)


def body(w, x):
    return jnp.tanh(x @ w) + x


def units(taken):
    return [s.name for s in taken.segments if s.kind == "unit"]


def repeated(layer, times=3):
    def program(w, x):
        for _ in range(times):
            x = layer(w, x)
        return x

    return program


# What is asked for


def test_what_occurs_twice_is_a_unit_and_what_occurs_once_is_not(take_apart):
    assert units(take_apart(repeated(jax.jit(body), 2), W, X)) == ["body"] * 2
    assert units(take_apart(repeated(jax.jit(body), 1), W, X)) == []


def test_a_small_body_is_not_worth_a_call(take_apart):
    small = jax.jit(lambda w, x: x * 2)
    assert units(take_apart(repeated(small), W, X)) == []


def test_equal_bodies_of_different_functions_are_one(take_apart):
    def make():
        return jax.jit(lambda w, x: jnp.tanh(x @ w) + x)

    one, two = make(), make()
    taken = take_apart(lambda w, x: one(w, two(w, x)), W, X)
    assert len(units(taken)) == 2


def test_a_large_body_is_a_unit_though_it_occurs_once(take_apart):
    @jax.jit
    def large(w, x):
        for _ in range(150):
            x = jnp.tanh(x @ w) + x
        return x

    assert units(take_apart(lambda w, x: large(w, x) * 2, W, X)) == ["large"]


def test_functions_of_jax_itself_are_no_units(take_apart):
    def program(w, x):
        for _ in range(4):
            x = jnp.linalg.norm(jax.nn.silu(x)) + jnp.clip(x, 0, 1) + jnp.cumsum(x, 0)
        return x

    assert units(take_apart(program, W, X)) == []


def test_loops_and_branches_that_repeat_are_units(take_apart):
    def program(w, x):
        for _ in range(3):
            x, _ = lax.scan(lambda c, _: (body(w, c), None), x, None, length=4)
        return x

    assert len(units(take_apart(program, W, X))) == 3


@pytest.mark.parametrize("link", ["auto", "separate"])
def test_auto_asks_for_more_than_separate(take_apart, link):
    taken = take_apart(repeated(jax.jit(body)), W, X, link=link)
    assert units(taken) == (["body"] * 3 if link == "separate" else [])


def test_auto_takes_what_is_heavy_and_repeats(take_apart):
    @jax.jit
    def heavy(w, x):
        for _ in range(12):
            x = jnp.tanh(x @ w) + jnp.sin(x)
        return x

    w = np.zeros((512, 512), "float32")
    x = np.zeros((256, 512), "float32")
    taken = take_apart(repeated(heavy), w, x, link="auto", check=False)
    assert units(taken) == ["heavy"] * 3


# Marks


@pytest.mark.parametrize("link", ["separate", "auto"])
def test_a_component_marked_separate_is_a_unit_wherever_it_is(take_apart, link):
    single = prejit.component(lambda w, x: x + w[0], link="separate", name="single")
    taken = take_apart(lambda w, x: single(w, x) * 2, W, X, link=link)
    assert len(units(taken)) == 1


def test_a_mark_reaches_through_functions_and_derivatives(take_apart):
    marked = prejit.component(body, link="separate")

    @jax.jit
    def block(w, x):
        return marked(w, x) * 0.5

    taken = take_apart(lambda w, x: block(w, x) + jax.vmap(lambda v: marked(w, v[None])[0])(x), W, X, link="auto")
    assert units(taken) == ["body"] * 2
    grad = take_apart(jax.grad(lambda w, x: block(w, x).sum()), W, X, link="auto")
    assert len(units(grad)) == 2, "forward and backward"


def test_a_component_marked_inline_is_taken_apart_however_often_it_occurs(take_apart):
    inline = prejit.component(body, link="inline")
    taken = take_apart(repeated(inline), W, X)
    assert units(taken) == []
    assert not any(eqn.primitive.name in ("jit", "pjit") for s in taken.segments for eqn in s.eqns)


def test_a_component_marked_outline_stays_a_call_in_the_module(take_apart):
    outline = prejit.component(body, link="outline")
    taken = take_apart(repeated(outline), W, X)
    assert units(taken) == []
    calls = [eqn for s in taken.segments for eqn in s.eqns if eqn.primitive.name in ("jit", "pjit")]
    assert len(calls) == 3


def test_a_marked_call_among_unmarked_ones(take_apart):
    plain, inline = jax.jit(body), prejit.component(body, link="inline")
    separate = prejit.component(lambda w, x: x @ w, link="separate", name="separate")

    def program(w, x):
        return plain(w, inline(w, separate(w, plain(w, x))))

    assert len(units(take_apart(program, W, X))) == 3


# Whole programs


def reason(step, *args):
    plan = step.plan(*args)
    assert not plan.is_linked
    return plan.reason


def test_programs_that_stay_one_module_say_why(linked):
    program = repeated(jax.jit(body))
    assert linked(program).plan(W, X).is_linked
    assert "inline" in reason(prejit.jit(program, link="inline"), W, X)
    assert "outline" in reason(prejit.jit(program, link="outline"), W, X)
    assert "cut" in reason(prejit.jit(program), W, X), "for auto these parts are too small"
    assert "cut" in reason(linked(lambda x: x * 2), X)
    sharding = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    assert "out_shardings" in reason(linked(program, out_shardings=sharding), W, X)
    assert "in_shardings" in reason(linked(program, in_shardings=sharding), W, X)
    assert "mutable" in reason(linked(lambda r, w, x: (r[...], program(w, x))[1]), jax.new_ref(X), W, X)


def test_several_devices_keep_a_program_whole(linked):
    mesh = jax.make_mesh((4,), ("a",), devices=jax.devices()[:4])
    spread = jax.device_put(X, jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("a")))
    step = linked(repeated(jax.jit(body)))
    assert reason(step, W, spread)
    assert step.plan(W, X).is_linked
    const = jax.device_put(W, jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("a")))
    assert reason(linked(lambda x: repeated(jax.jit(body))(const, x)), X)


def test_the_setting_and_the_argument(linked):
    program = repeated(jax.jit(body))
    with config.override(link="separate"):
        assert prejit.jit(program).plan(W, X).is_linked
        assert not prejit.jit(program, link="inline").plan(W, X).is_linked
    assert not prejit.jit(program).plan(W, X).is_linked
    step = prejit.jit(program)  # one object, asked under both
    for _ in range(2):
        with config.override(link="separate"):
            assert step.plan(W, X).is_linked
            step(W, X)
        assert not step.plan(W, X).is_linked
        step(W, X)


def unit(**changes):
    fields = {"name": "u", "kind": "unit", "digest": "d", "reason": "", "donated": (False,), "nr_equations": 100,
              "flops": 1e9, "seconds": 1e-2}  # fmt: skip
    return Unit(**(fields | changes))


def layout(one, times):
    calls = tuple([Call(0, (n,), n + 1, 1, (n,)) for n in range(times)])
    return Layout(0, 1, times + 1, (one,), calls, (times,))


def test_what_pays():
    assert judge(layout(unit(), 4))[0]
    assert "300 equations" in judge(layout(unit(), 4))[1]
    assert not judge(layout(unit(nr_equations=10), 4))[0], "little to compile again"
    assert not judge(layout(unit(seconds=1e-6), 4))[0], "calling would take long"
    assert not judge(layout(unit(), 1))[0]
    assert judge(layout(unit(nr_equations=1000), 1))[0], "large enough to be kept apart"
    assert not judge(layout(unit(nr_equations=1000, digest=""), 1))[0], "it can't be kept"
