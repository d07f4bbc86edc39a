"""Estimate from a jaxpr what a piece costs to run and to compile: a guess that decides about cutting, nothing else.

The rates are those of two cores of a server CPU, rounded (measured 2026-12 with matrix products and elementwise chains
of a transformer layer). They only have to be right within a factor of a few: a cut is made where a piece takes many
times what a call costs.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from prejit._jax import pieces
from prejit._jax.jaxprs import open_jaxpr

__all__ = ["Estimator", "Work", "call_seconds"]

FLOPS_PER_S = 6e10  # dot products and convolutions
ELEMENTS_PER_S = 1.5e9  # elementwise operations, reductions and copies, before fusion
_CALL_S = 5e-6  # of one executable, from Python
_PER_ARRAY_S = 0.7e-6  # for each of its inputs and outputs
_UNKNOWN_TRIPS = 10  # of a while loop

_FREE = frozenset({"reshape", "squeeze", "expand_dims", "broadcast_in_dim", "iota", "copy", "stop_gradient", "pvary"})
_COSTLY = {
    "exp": 8, "log": 8, "tanh": 12, "erf": 12, "logistic": 10, "sin": 12, "cos": 12, "pow": 15, "sqrt": 2, "rsqrt": 3,
    "erf_inv": 15, "atan2": 15, "sort": 30, "threefry2x32": 40, "random_bits": 20, "cumsum": 4, "top_k": 30,
    "gather": 3, "scatter": 10, "scatter-add": 10, "scatter_add": 10,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Work:
    """What a piece does in one run.

    Attributes:
        flops: Floating-point operations in products and convolutions.
        elements: Elements that other operations compute, weighted by what they cost.
        nr_equations: Equations, nested ones included: what there is to compile.
    """

    flops: float = 0.0
    elements: float = 0.0
    nr_equations: int = 0

    def __add__(self, other: "Work") -> "Work":
        return Work(self.flops + other.flops, self.elements + other.elements, self.nr_equations + other.nr_equations)

    def repeated(self, times: float) -> "Work":
        """Return the work of running the same code several times."""
        return Work(self.flops * times, self.elements * times, self.nr_equations)

    @property
    def seconds(self) -> float:
        """Seconds that one run may take."""
        return self.flops / FLOPS_PER_S + self.elements / ELEMENTS_PER_S


def call_seconds(nr_arrays: int) -> float:
    """Return what it costs to call one executable, in seconds, for its number of inputs and outputs."""
    return _CALL_S + _PER_ARRAY_S * nr_arrays


class Estimator:
    """Estimate equations and jaxprs; a jaxpr that is called many times is gone through once."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[int, tuple[Any, Work]] = {}

    def of_jaxpr(self, jaxpr: Any) -> Work:
        """Return the work of one run of a jaxpr, open or closed."""
        body = open_jaxpr(jaxpr)[0]
        known = self._known.get(id(body))
        if known is None:
            known = self._known[id(body)] = (body, self.of_equations(body.eqns))
        return known[1]

    def of_equations(self, eqns: Sequence[Any]) -> Work:
        """Return the work of running some equations once."""
        total = Work()
        for eqn in eqns:
            total = total + self.of_equation(eqn)
        return total

    def of_equation(self, eqn: Any) -> Work:
        """Return the work of running one equation once."""
        name = eqn.primitive.name
        bodies = pieces.bodies_of(eqn)
        if bodies:
            works = [self.of_jaxpr(body) for body in bodies]
            total = Work(
                sum(work.flops for work in works),
                sum(work.elements for work in works),
                1 + sum(work.nr_equations for work in works),
            )
            if name == "scan":
                return total.repeated(eqn.params.get("length", 1))
            return total.repeated(_UNKNOWN_TRIPS) if name == "while" else total
        nr_elements = sum(prod(var.aval.shape) for var in eqn.outvars if hasattr(var.aval, "shape"))
        if name in ("dot_general", "ragged_dot", "ragged_dot_general"):
            return Work(_dot_flops(eqn, nr_elements), nr_elements, 1)
        if name == "conv_general_dilated":
            return Work(_conv_flops(eqn, nr_elements), nr_elements, 1)
        if name in _FREE:
            return Work(nr_equations=1)
        read = sum(prod(atom.aval.shape) for atom in eqn.invars if hasattr(atom.aval, "shape"))
        if name.startswith(("reduce", "arg", "cum")):
            return Work(0.0, max(read, nr_elements), 1)
        return Work(0.0, nr_elements * _COSTLY.get(name, 1), 1)


def _dot_flops(eqn: Any, nr_elements: int) -> float:
    numbers: Any = eqn.params.get("dimension_numbers")
    shape = eqn.invars[0].aval.shape
    if eqn.primitive.name != "dot_general":
        return 2.0 * nr_elements * shape[-1]
    contracting: tuple[int, ...] = numbers[0][0]
    return 2.0 * nr_elements * prod([shape[axis] for axis in contracting])


def _conv_flops(eqn: Any, nr_elements: int) -> float:
    kernel = eqn.invars[1].aval.shape
    numbers = eqn.params.get("dimension_numbers")
    out_features = kernel[numbers.rhs_spec[0]] if numbers is not None else 1
    return 2.0 * nr_elements * prod(kernel) / max(out_features, 1)
