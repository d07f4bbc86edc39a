"""What type checkers see of a program. Checked by `test_typing.py`, never run."""

import functools
from concurrent.futures import Future
from typing import assert_type, reveal_type

import jax

import prejit
from prejit.program.report import Plan


@prejit.jit
def plain(w: jax.Array, x: jax.Array, *, scale: float = 0.5) -> jax.Array:
    return x @ w * scale


@prejit.jit()
def with_parentheses(x: jax.Array) -> jax.Array:
    return x


@prejit.jit(static_argnums=0, donate_argnames="tree", link="separate")
def with_options(count: int, tree: dict[str, jax.Array]) -> tuple[jax.Array, int]:
    return tree["w"], count


@functools.partial(prejit.jit, static_argnames="count")
def with_partial(x: jax.Array, count: int) -> jax.Array:  # mypy gives up on a partial of an overloaded function
    return x * count


def undecorated(factor: float, x: jax.Array) -> list[jax.Array]:
    return [x * factor]


applied = prejit.jit(undecorated, donate_argnums=1)
of_partial = prejit.jit(functools.partial(undecorated, 2.0))  # for mypy any arguments will do
of_component = prejit.jit(prejit.component(undecorated))


class Model:
    @prejit.jit
    def apply(self, x: jax.Array) -> jax.Array:
        return x

    @prejit.jit(static_argnums=(0, 2))
    def repeat(self, x: jax.Array, times: int = 1) -> list[jax.Array]:
        return [x] * times


method = Model().apply


def calls(w: jax.Array, model: Model) -> None:
    assert_type(plain(w, w), jax.Array)
    assert_type(plain(w, x=w, scale=2.0), jax.Array)
    assert_type(with_parentheses(w), jax.Array)
    assert_type(with_options(1, {"w": w}), tuple[jax.Array, int])
    assert_type(applied(1.0, w), list[jax.Array])
    assert_type(of_partial(w), list[jax.Array])
    assert_type(of_component(1.0, x=w), list[jax.Array])
    assert_type(model.apply(w), jax.Array)
    assert_type(model.repeat(w, times=2), list[jax.Array])
    assert_type(Model.apply(model, w), jax.Array)


def stages(w: jax.Array) -> None:
    plan = plain.plan(w, w, scale=0.1)
    assert_type(plan, Plan)
    assert_type(plan.is_linked, bool)
    assert_type(plan.units[0].nr_calls, int)
    assert_type(plan.cost_analysis(), dict[str, float])
    assert_type(plain.warm(w, w, progress=False, background=True), Future[None])
    assert_type(Model.apply.warm(w), Future[None])
    plain.lower(w, w, scale=0.1).compile()(w, w)
    plain.compile(w, w)(w, w)
    assert_type(plain.clear_cache(), None)


def specs_stand_for_arrays(spec: jax.ShapeDtypeStruct) -> None:
    plain.plan(spec, spec, scale=0.1)
    plain.warm(spec, x=spec)
    assert_type(plain.trace(spec, spec), jax.stages.Traced)
    assert_type(plain.lower(spec, x=spec), jax.stages.Lowered)
    assert_type(plain.compile(spec, spec), jax.stages.Compiled)
    plain.eval_shape(spec, x=spec)
    plain.key_for(spec, spec)


def wrong_calls(w: jax.Array, model: Model) -> None:
    plain(w)  # type: ignore[call-arg]
    plain(w, w, scale="2")  # type: ignore[arg-type]
    with_options("1", {"w": w})  # type: ignore[arg-type]
    applied(1.0, w, w)  # type: ignore[call-arg]
    model.apply(w, w)  # type: ignore[call-arg]
    model.repeat(w, times="2")  # type: ignore[arg-type]
    plain.warm(w, w, progress="off")  # type: ignore[arg-type]
    prejit.jit(undecorated, link="apart")  # type: ignore[call-overload]
    prejit.jit(undecorated, donate_argnums="x")  # type: ignore[arg-type]


reveal_type(plain)
reveal_type(with_parentheses)
reveal_type(with_options)
reveal_type(with_partial)
reveal_type(applied)
reveal_type(of_partial)
reveal_type(of_component)
reveal_type(method)
