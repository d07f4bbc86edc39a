"""When a component inside a program is kept apart for XLA, if the user leaves it to us."""

from typing import Any, cast

import jax

__all__ = ["is_outlined"]

MIN_EQUATIONS = 24


def is_outlined(closed_jaxpr: Any) -> bool:
    """Say whether `link="auto"` keeps a call apart.

    On CPU, XLA's compile time grows faster than the module, and a call costs it little, so a body of some size is
    compiled once and called (`benchmarks/bench_layers.py` has the figures). On other platforms the module stays whole
    until that is measured there.
    """
    if jax.default_backend() != "cpu":
        return False
    return nr_equations(closed_jaxpr, MIN_EQUATIONS) >= MIN_EQUATIONS


def nr_equations(jaxpr: Any, enough: int) -> int:
    """Count the equations of a jaxpr, nested ones included, up to `enough`."""
    total = 0
    for eqn in getattr(jaxpr, "jaxpr", jaxpr).eqns:
        total += 1
        for value in eqn.params.values():
            several = cast("tuple[Any, ...]", value) if type(value) is tuple else (value,)
            for inner in several:
                if total < enough and hasattr(getattr(inner, "jaxpr", inner), "eqns"):
                    total += nr_equations(inner, enough - total)
        if total >= enough:
            break
    return total
