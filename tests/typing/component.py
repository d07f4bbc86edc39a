"""What type checkers see of a component. Checked by `test_typing.py`, never run."""

from typing import assert_type, reveal_type

import jax

import prejit


@prejit.component
def plain(w: jax.Array, x: jax.Array, *, scale: float = 0.5) -> jax.Array:
    return x @ w * scale


@prejit.component(static_argnums=0, name="named")
def with_options(count: int, tree: dict[str, jax.Array]) -> tuple[jax.Array, int]:
    return tree["w"], count


def undecorated(x: jax.Array) -> list[jax.Array]:
    return [x]


applied = prejit.component(undecorated, donate_argnums=0)


def calls(w: jax.Array) -> None:
    assert_type(plain(w, w), jax.Array)
    assert_type(plain(w, x=w, scale=2.0), jax.Array)
    assert_type(with_options(1, {"w": w}), tuple[jax.Array, int])
    assert_type(applied(w), list[jax.Array])


def specs_stand_for_arrays(spec: jax.ShapeDtypeStruct) -> None:
    assert_type(plain.trace(spec, spec), jax.stages.Traced)
    assert_type(plain.lower(spec, x=spec), jax.stages.Lowered)
    assert_type(plain.compile(spec, spec), jax.stages.Compiled)
    plain.eval_shape(spec, x=spec)
    plain.key_for(spec, spec)


def wrong_calls(w: jax.Array) -> None:
    plain(w)  # type: ignore[call-arg]
    plain(w, w, scale="2")  # type: ignore[arg-type]
    with_options("1", {"w": w})  # type: ignore[arg-type]
    applied(w, w)  # type: ignore[call-arg]


reveal_type(plain)
reveal_type(with_options)
reveal_type(applied)
