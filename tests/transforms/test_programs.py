"""`prejit.jit` in place of the outermost `jax.jit`: of transformed functions, under transformations, in JAX's modes."""

import functools
import gc
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from tests.transforms import test_same_as_jit as stacks
from tests.transforms.table import CASES, assert_same, floats, raw, summary

import prejit

linked = functools.partial(prejit.jit, link="separate")


def twice(function):
    """Make a program that calls a layer three times and has something to do in between."""
    layer = jax.jit(function)

    def program(*args):
        halved = jax.tree.map(lambda v: v * 0.5 if jnp.issubdtype(v.dtype, jnp.inexact) else v, args)
        first, second = layer(*args), layer(*halved)
        return {"first": first, "second": second, "third": layer(*args[:-1], halved[-1]), "sum": summary(first)}

    return program


def assert_near(got, want):
    """Compare structure and types, and values norm by norm: derivatives may be large where they cancel."""
    assert jax.tree.structure(got) == jax.tree.structure(want)
    for g, w in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert (g.shape, g.dtype, g.weak_type, g.committed, g.sharding) == (
            w.shape, w.dtype, w.weak_type, w.committed, w.sharding,
        )  # fmt: skip
        g, w = np.asarray(raw(g), "complex128"), np.asarray(raw(w), "complex128")
        assert np.linalg.norm(g - w) <= 2e-6 * max(np.linalg.norm(w), 1e-3), (g, w)


OUTSIDE = [stacks.under_jit, stacks.vmap, stacks.vmap_in_axes_none, stacks.vmap_of_vmap, stacks.scan_body,
           stacks.while_body, stacks.cond_branch, stacks.jvp, stacks.linearize, stacks.jacfwd, stacks.grad,
           stacks.value_and_grad_has_aux, stacks.vmap_of_grad, stacks.grad_through_scan, stacks.checkpoint,
           stacks.checkpoint_dots, stacks.make_jaxpr, stacks.eval_shape]  # fmt: skip
FORWARD_ONLY = [stacks.under_jit, stacks.vmap, stacks.make_jaxpr, stacks.eval_shape]


def _pairs():
    for name, case in CASES.items():
        some = OUTSIDE if name == "layer" else [*FORWARD_ONLY, *([stacks.grad] if case.is_reverse else [])]
        for stack in [*some, *([stacks.hessian] if name == "elementwise" else [])]:
            if name == "keys" and stack is stacks.make_jaxpr:
                continue  # it stands keys by numbers, which are no arrays
            yield pytest.param(name, stack, id=f"{name}-{stack.__name__}")


@pytest.mark.parametrize(("name", "stack"), list(_pairs()))
def test_under_a_transformation_a_program_is_jit(name, stack):
    case = CASES[name]
    program = twice(case.function)
    case = type(case)(program, case.args, case.argnums, case.is_twice, case.is_reverse)
    want = stack(jax.jit(program), case)
    assert_same(stack(linked(program), case), want)


@pytest.mark.parametrize("name", CASES)
def test_each_function_repeated_in_a_program(name, store):
    case = CASES[name]
    program = twice(case.function)
    want = jax.jit(program)(*case.args)
    step = linked(program)
    assert step.plan(*case.args).is_linked or name == "inner_jit", "which is too small, and JAX's own functions inside"
    for _ in range(2):
        assert_same(step(*case.args), want, is_exact=False)
    store.clear(tier="memory")
    again = linked(twice(case.function))
    assert_same(again(*case.args), want, is_exact=False)
    info = again.cache_info()
    assert (info.misses, info.compiles, info.lowerings) == (0, 0, 0)


# Programs of transformed functions


def _loss(function):
    return lambda *args: summary(twice(function)(*args))


INSIDE = {
    "grad": lambda f, n: jax.grad(_loss(f), n),
    "value_and_grad": lambda f, n: jax.value_and_grad(_loss(f), n),
    "jacfwd": lambda f, n: jax.jacfwd(_loss(f), n[0]),
    "jacrev": lambda f, n: jax.jacrev(twice(f), n[0]),
    "hessian": lambda f, n: jax.hessian(_loss(f), n[0]),
    "checkpoint": lambda f, n: jax.grad(jax.checkpoint(_loss(f)), n),
    "dots_saveable": lambda f, n: jax.grad(
        jax.checkpoint(_loss(f), policy=jax.checkpoint_policies.dots_saveable), n),
    "vmap_of_grad": lambda f, n: lambda *args: jax.vmap(jax.grad(_loss(f), n))(*stacks.stacked(args)),
    "grad_of_vmap": lambda f, n: lambda *args: jax.grad(
        lambda *a: summary(jax.vmap(twice(f))(*stacks.stacked(a))), n)(*args),
    "vjp": lambda f, n: lambda *args: jax.vjp(_loss(f), *args)[1](jnp.float32(2)),
    "linearize": lambda f, n: lambda *args: jax.linearize(_loss(f), *args)[1](*stacks._tangents(args)),
}  # fmt: skip


def _inside():
    for name, transforms in {
        "layer": INSIDE.keys() - {"jacfwd"},
        "elementwise": ["jacfwd", "hessian", "linearize"],
        "trees": ["value_and_grad", "vmap_of_grad"],
        "scan": ["grad", "checkpoint", "linearize"],
        "custom_vjp": ["grad", "dots_saveable", "vmap_of_grad"],
        "custom_jvp": ["grad", "jacfwd", "hessian"],
        "cond": ["grad", "vmap_of_grad"],
    }.items():
        for transform in sorted(transforms):
            yield name, transform


@pytest.mark.parametrize(("name", "transform"), list(_inside()))
def test_a_program_of_a_transformed_function(name, transform):
    case = CASES[name]
    function = INSIDE[transform](case.function, case.argnums)
    want = jax.jit(function)(*case.args)
    step = linked(function)
    for _ in range(2):
        assert_near(step(*case.args), want)


def test_make_jaxpr_and_eval_shape_show_what_jit_shows():
    program = twice(CASES["layer"].function)
    args = CASES["layer"].args
    assert str(jax.make_jaxpr(linked(program))(*args)) == str(jax.make_jaxpr(jax.jit(program))(*args))
    got, want = jax.eval_shape(linked(program), *args), jax.eval_shape(jax.jit(program), *args)
    assert got == want
    assert linked(program).eval_shape(*args) == jax.jit(program).eval_shape(*args)
    shape = jax.ShapeDtypeStruct((3,), "float32")
    with pytest.raises(TypeError) as theirs:
        jax.jit(jnp.sin)(shape)
    with pytest.raises(TypeError) as ours:
        linked(jnp.sin)(shape)
    assert str(ours.value) == str(theirs.value)


def test_programs_in_programs():
    layer = jax.jit(CASES["layer"].function)
    x, w = CASES["layer"].args

    def nest(jit):
        @jit
        def inner(x, w):
            return layer(layer(x, w), w)

        @jit
        def outer(x, w):
            return jit(lambda y: inner(y, w) * 2)(inner(x, w)), jax.grad(lambda y: inner(y, w).sum())(x)

        return outer(x, w), jax.vmap(outer, in_axes=(0, None))(jnp.stack([x, x]), w)

    assert_same(nest(linked), nest(jax.jit), is_exact=False)


def test_a_program_that_calls_itself():
    def build(jit):
        @jit
        def down(x, n):
            return x if n == 0 else down(jnp.sin(x) @ x, n - 1)

        return down

    make = lambda jit: build(functools.partial(jit, static_argnums=1))  # noqa: E731
    x = floats(3, 3)
    assert_same(make(linked)(x, 4), make(jax.jit)(x, 4), is_exact=False)


# What is decorated


class Model:
    """Methods of all kinds are programs."""

    def __init__(self, scale):
        self.scale = scale

    @functools.partial(linked, static_argnums=0)
    def method(self, x):
        return layer(x) * self.scale + layer(x)

    @staticmethod
    @linked
    def static(x):
        return layer(layer(x))

    @classmethod
    @functools.partial(linked, static_argnums=0)
    def of_class(cls, x):
        return layer(layer(x)) * len(cls.__name__)

    def __call__(self, x):
        return layer(layer(x)) * self.scale


@jax.jit
def layer(x):
    return jnp.tanh(x @ x.T) @ x + jnp.cos(x)


def test_methods_partials_and_callables():
    x = floats(3, 4)
    two, three = Model(2.0), Model(3.0)
    plain = jax.jit(lambda x, scale: layer(x) * scale + layer(x))
    for _ in range(2):
        for model in (two, three):
            assert_same(model.method(x), plain(x, model.scale), is_exact=False)
        assert_same(Model.static(x), jax.jit(Model.static.__wrapped__)(x), is_exact=False)
        assert_same(two.static(x), jax.jit(Model.static.__wrapped__)(x), is_exact=False)
        assert_same(Model.of_class(x), jax.jit(lambda x: layer(layer(x)) * 5)(x), is_exact=False)
        assert_same(linked(two)(x), jax.jit(two)(x), is_exact=False)
    part = functools.partial(lambda a, x, b=1.0: layer(layer(x)) * a + b, 3.0, b=x)
    assert_same(linked(part)(x), jax.jit(part)(x), is_exact=False)
    wrapped = functools.partial(linked(lambda a, x: layer(layer(x)) * a), 3.0)
    assert_same(wrapped(x), jax.jit(lambda x: layer(layer(x)) * 3.0)(x), is_exact=False)


def test_keywords_and_defaults_are_calls_of_their_own_as_in_jit():
    x, y = floats(3, 4), floats(3, 4)

    def program(x, y=2.0, *, z=None, **rest):
        out = layer(layer(x)) * y
        return {"out": out if z is None else out + layer(z), "rest": rest}

    ours, theirs = linked(program), jax.jit(program)
    for _ in range(2):
        for args, named in [
            ((x,), {}), ((x, y), {}), ((x,), {"y": y}), ((), {"x": x, "y": y}), ((), {"y": y, "x": x}),
            ((x,), {"z": y}), ((x, y), {"z": x, "more": y, "another": 3}),
        ]:  # fmt: skip
            assert_same(ours(*args, **named), theirs(*args, **named), is_exact=False)
    with pytest.raises(TypeError) as want:
        theirs(x, y, x)
    with pytest.raises(TypeError) as got:
        ours(x, y, x)
    assert str(got.value) == str(want.value)


def test_static_arguments_are_compared_by_type_and_bits():
    traced = []

    def program(x, s):
        traced.append(s)
        return layer(layer(x)) * jnp.asarray(s).astype("float32"), jnp.float32(1) / jnp.float32(s)

    step = linked(program, static_argnums=1)
    x = floats(3, 4)
    values = [0.0, -0.0, 1, 1.0, True, np.float32(1), 2]
    for value in values * 2:
        want = layer(layer(x)) * np.float32(value), np.float32(1) / jnp.float32(value)
        assert_same(jax.tree.leaves(step(x, value)), [jnp.asarray(w) for w in want], is_exact=False)
    assert [type(t) for t in traced] == [type(v) for v in values], "each once, none for another"
    by_name = linked(lambda x, *, mode: layer(layer(x)) * (2 if mode == "a" else 3), static_argnames="mode")
    assert_same(by_name(x, mode="a"), jax.jit(lambda x: layer(layer(x)) * 2)(x), is_exact=False)
    assert_same(by_name(x, mode="b"), jax.jit(lambda x: layer(layer(x)) * 3)(x), is_exact=False)
    with pytest.raises(ValueError, match="Non-hashable static arguments"):
        step(x, [1])


def test_wrong_arguments_are_jax_own_errors():
    def program(x, y):
        return layer(layer(x)) + y

    x = floats(3, 4)
    for args in [(x, "text"), (x, object()), (x,), (x, x, x), (x, jnp.ones((5, 5))), (x, np.array(["a"]))]:
        with pytest.raises((TypeError, ValueError)) as want:
            jax.jit(program)(*args)
        with pytest.raises((TypeError, ValueError)) as got:
            linked(program)(*args)
        assert (type(got.value), str(got.value)) == (type(want.value), str(want.value))


def test_what_the_body_raises_is_the_users_with_their_line_on_top():
    def program(x):
        y = layer(layer(x))
        raise KeyError("mine")
        return y

    with pytest.raises(KeyError, match="mine") as caught:
        linked(program)(floats(3, 4))
    assert caught.traceback[-1].name == "program"
    assert not any("prejit/program" in str(entry.path) for entry in caught.traceback)


def test_concretization_errors_are_jax_own():
    def program(x):
        return layer(x) if layer(x)[0, 0] > 0 else x

    with pytest.raises(jax.errors.TracerBoolConversionError) as got:
        linked(program)(floats(3, 4))
    with pytest.raises(jax.errors.TracerBoolConversionError) as want:
        jax.jit(program)(floats(3, 4))
    assert str(got.value).splitlines()[0] == str(want.value).splitlines()[0]


# JAX's modes


def test_disable_jit_runs_python():
    ran = []

    def program(x):
        ran.append(type(x))
        return layer(layer(x))

    step = linked(program)
    x = floats(3, 4)
    step(x)
    with jax.disable_jit():
        out = step(x)
    assert issubclass(ran[-1], jax.Array)
    assert not isinstance(ran[-1], jax.core.Tracer)
    assert len(ran) == 2
    np.testing.assert_allclose(out, step(x), rtol=1e-5)


def test_debug_nans_finds_them_in_every_part():
    @jax.jit
    def root(x):
        return jnp.sqrt(x) @ x

    def program(x):
        return root(root(x) - 10) * 2

    step, x = linked(program), jnp.eye(3)
    assert np.isnan(np.asarray(step(x))).any()
    with jax.debug_nans(True), pytest.raises(FloatingPointError, match="nan"):
        step(x)
    with jax.debug_infs(True), pytest.raises(FloatingPointError):
        linked(lambda x: root(x) / jnp.zeros_like(x) + root(x))(x)
    assert np.isnan(np.asarray(step(x))).any(), "after the mode it is as before"


def test_leaks_are_found_and_none_are_made():
    leaked = []

    def leaking(x):
        leaked.append(layer(x))
        return layer(layer(x))

    def clean(x):
        return layer(layer(x))

    x = floats(3, 4)
    with jax.checking_leaks():
        assert_same(linked(clean)(x), jax.jit(clean)(x), is_exact=False)
        with pytest.raises(Exception, match="Leaked"):
            linked(leaking)(x)


def test_transfer_guard():
    x = floats(3, 4)
    big = np.linspace(0, 1, 40000, dtype="float32").reshape(4, 10000)

    def program(x):
        return layer(layer(x)) @ big, np.float32(2)

    step = linked(program)
    with jax.transfer_guard("disallow"):
        want = jax.jit(program)(x)
        for _ in range(2):
            assert_same(step(x), want, is_exact=False)
        for call in (jax.jit(program), step):
            with pytest.raises(Exception, match="Disallowed host-to-device transfer"):
                call(np.asarray(x))


def test_a_setting_that_changes_the_trace_is_another_program():
    def program(x):
        return layer(layer(x)) @ x.T

    step, x = linked(program), floats(3, 4)
    seen = {}
    for precision in (None, "highest", "bfloat16", None):
        with jax.default_matmul_precision(precision):
            seen[precision] = str(step.trace(x).jaxpr)
            assert_same(step(x), jax.jit(program)(x), is_exact=False)
    assert len(set(seen.values())) == 3


def test_a_captured_tracer_is_what_it_is_for_jit():
    x = floats(3, 4)

    def outer(jit, v):
        inner = jit(lambda y: layer(layer(y)) * v)
        return inner(x)

    assert_same(jax.jit(lambda v: outer(linked, v))(2.0), jax.jit(lambda v: outer(jax.jit, v))(2.0), is_exact=False)
    assert_same(
        jax.vmap(lambda v: outer(linked, v))(jnp.arange(3.0)), jax.vmap(lambda v: outer(jax.jit, v))(jnp.arange(3.0))
    )
    with jax.ensure_compile_time_eval():
        assert_same(linked(layer)(x), jax.jit(layer)(x), is_exact=False)


def test_a_pure_callback_may_call_a_program():
    step = linked(lambda x: layer(layer(x)))
    x = floats(3, 4)
    want = np.asarray(step(x))

    def program(x):
        y = jax.pure_callback(lambda v: np.asarray(step(jnp.asarray(v))), jax.ShapeDtypeStruct((3, 4), "float32"), x)
        return layer(layer(y))

    np.testing.assert_allclose(linked(program)(x), jax.jit(lambda x: layer(layer(x)))(want), rtol=1e-5)


def test_arguments_and_results_are_not_held():
    step = linked(lambda x: layer(layer(x)))
    for _ in range(3):
        x = floats(3, 4) + 0
        out = step(x)
        dead = weakref.ref(x), weakref.ref(out)
        del x, out
        gc.collect()
        assert [ref() for ref in dead] == [None, None]


def test_a_program_goes_when_its_last_reference_goes():
    def make():
        big = jnp.ones((300, 300))
        ref = weakref.ref(big)
        step = linked(lambda x: layer(layer(x)) @ big[:4])
        step(floats(3, 4))
        return step, ref

    step, ref = make()
    assert ref() is not None
    step.clear_cache()
    del step
    jax.clear_caches()
    prejit.get_store().clear(tier="memory")
    gc.collect()
    assert ref() is None


def test_clear_cache_sees_what_the_function_reads_anew():
    scale = [2.0]

    def program(x):
        return layer(layer(x)) * scale[0]

    step, x = linked(program), floats(3, 4)
    first = step(x)
    scale[0] = 4.0
    assert_same(step(x), first)
    step.clear_cache()
    np.testing.assert_allclose(step(x), first * 2, rtol=1e-6)
    assert step._cache_size() == 1


def test_a_loop_over_many_calls_gives_what_the_loop_in_one_program_gives():
    step = linked(lambda c, x: (layer(layer(c)) * 0.1 + x, c.sum()))
    xs = floats(5, 3, 4)
    carry = floats(3, 4)
    want, sums = lax.scan(step, carry, xs)
    got = []
    for x in xs:
        carry, total = step(carry, x)
        got.append(total)
    np.testing.assert_allclose(carry, want, rtol=1e-5)
    np.testing.assert_allclose(jnp.stack(got), sums, rtol=1e-5)
