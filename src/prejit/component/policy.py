"""When a component inside a program is kept apart for XLA, if the user leaves it to us.

Measured on CPU, two cores, jax 0.10.2 and 0.12.0 (`benchmarks/bench_layers.py`): a transformer layer that adds to its
input and normalizes it by mean and variance compiles in a time that grows much faster than the number of layers, and
runs slower with every layer, because XLA fuses the chain of additions into each of the normalization's two reductions
again and again. Kept apart, 24 such layers, forward and backward, compile some ten times sooner and run faster. With
one reduction (RMS normalization) XLA does well, and keeping the layers apart makes the backward pass a third slower.
So `auto` keeps a body apart when it has that shape.
"""

import weakref
from typing import Any, cast

import jax

__all__ = ["is_outlined"]

MIN_EQUATIONS = 24  # A smaller body is not worth a call.
_MIN_DEPTH = 2

# What XLA on CPU computes into memory of its own, so nothing before it is fused into what follows.
_MATERIALIZED = (
    "dot_general", "ragged_dot", "conv_general", "gather", "scatter", "sort", "top_k", "approx_top_k", "while", "scan",
    "cond", "fft", "cum", "reduce_window", "select_and", "custom_call", "ffi_call", "pure_callback", "rng", "random",
    "threefry", "cholesky", "lu", "eig", "svd", "qr", "triangular_solve", "householder", "shard_map", "psum", "all_",
    "ppermute",
)  # fmt: skip


_known: "weakref.WeakKeyDictionary[Any, bool]" = weakref.WeakKeyDictionary()


def is_outlined(closed_jaxpr: Any) -> bool:
    """Say whether `link="auto"` keeps a call apart.

    On platforms other than CPU, and where there are several devices, the module stays whole: that is not measured, and
    a cut would stop the propagation of shardings.
    """
    if jax.default_backend() != "cpu" or jax.device_count() > 1:
        return False
    found = _known.get(closed_jaxpr)
    if found is None:
        found = _known[closed_jaxpr] = _is_fused_again_and_again(_open(closed_jaxpr))
    return found


def _is_fused_again_and_again(jaxpr: Any) -> bool:
    if nr_equations(jaxpr, MIN_EQUATIONS) < MIN_EQUATIONS:
        return False
    depths = _Depths()
    outputs = depths.of(jaxpr, [0] * len(jaxpr.invars))
    passes_through = any(
        depth == 0 and var not in jaxpr.invars for depth, var in zip(outputs, jaxpr.outvars, strict=True)
    )
    return passes_through and depths.deepest >= _MIN_DEPTH


def nr_equations(jaxpr: Any, enough: int) -> int:
    """Count the equations of a jaxpr, nested ones included, up to `enough`."""
    total = 0
    for eqn in _open(jaxpr).eqns:
        total += 1
        for value in eqn.params.values():
            several = cast("tuple[Any, ...]", value) if type(value) is tuple else (value,)
            for inner in several:
                if total < enough and hasattr(_open(inner), "eqns"):
                    total += nr_equations(inner, enough - total)
        if total >= enough:
            break
    return total


class _Depths:
    """Count, for each value, the reductions between it and the body's inputs where nothing in between is materialized.

    A value that was materialized on its way, or does not come from an input, has no depth (None).
    """

    def __init__(self) -> None:
        self.deepest = 0

    def of(self, jaxpr: Any, inputs: list[int | None]) -> list[int | None]:
        """Return the depths of a jaxpr's outputs, given those of its inputs."""
        depths: dict[Any, int | None] = dict(zip(jaxpr.invars, inputs, strict=True))
        for eqn in jaxpr.eqns:
            reads = [None if _is_literal(atom) else depths.get(atom) for atom in eqn.invars]
            name = eqn.primitive.name
            called = _called(eqn)
            known = [depth for depth in reads if depth is not None]
            if called is not None and len(called.invars) == len(reads):
                results = self.of(called, reads)
            elif not known or name.startswith(_MATERIALIZED):
                results: list[int | None] = [None] * len(eqn.outvars)
            else:
                depth = max(known) + name.startswith(("reduce_", "argm"))
                self.deepest = max(self.deepest, depth)
                results = [depth] * len(eqn.outvars)
            depths.update(zip(eqn.outvars, results, strict=True))
        return [None if _is_literal(atom) else depths.get(atom) for atom in jaxpr.outvars]


def _open(jaxpr: Any) -> Any:
    return getattr(jaxpr, "jaxpr", jaxpr)


def _is_literal(atom: Any) -> bool:
    return hasattr(atom, "val")


def _called(eqn: Any) -> Any:
    """Return the body of a plain call (an inner jit, a custom derivative, a checkpoint), or None."""
    if eqn.primitive.name.startswith(_MATERIALIZED):
        return None
    for name in ("jaxpr", "call_jaxpr", "fun_jaxpr"):
        body = _open(eqn.params.get(name))
        if hasattr(body, "eqns"):
            return body
    return None
