"""Plan: which executable runs when, on which registers, and which buffers it may reuse.

A plan is plain data: it can be stored, read by another process, and printed.
"""

from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, get_args

import msgspec

from prejit._jax import pieces
from prejit.program.partition import Kind, Parts, Segment

__all__ = ["Call", "Layout", "Unit", "lay_out"]


@dataclass(frozen=True, slots=True)
class Unit:
    """Describe one distinct executable.

    Attributes:
        name: For people.
        kind: `unit`, `glue` or `effect`.
        digest: What identifies it; empty where it can't be stored.
        reason: Why it can't be stored; empty where it can.
        donated: Which inputs it may reuse.
        nr_equations: Equations in it, nested ones included.
        flops: Estimated floating-point operations of one call.
        seconds: Estimated time of one call.
    """

    name: str
    kind: Kind
    digest: str
    reason: str
    donated: tuple[bool, ...]
    nr_equations: int
    flops: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Call:
    """Describe one step.

    Attributes:
        unit: Position of the executable.
        reads: Registers that it reads.
        first: Register of its first result; the others follow.
        nr_results: How many there are.
        frees: Registers whose value nobody reads afterwards.
    """

    unit: int
    reads: tuple[int, ...]
    first: int
    nr_results: int
    frees: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Layout:
    """Describe a linked program: registers are constants, then inputs, then results in order.

    Attributes:
        nr_consts: Constants that are inputs of executables.
        nr_inputs: Inputs of the program.
        nr_registers: All registers.
        units: The distinct executables.
        calls: The steps.
        returns: Registers of the program's results.
    """

    nr_consts: int
    nr_inputs: int
    nr_registers: int
    units: tuple[Unit, ...]
    calls: tuple[Call, ...]
    returns: tuple[int, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return plain data that `from_dict` reads."""
        return msgspec.to_builtins(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "Layout":
        """Read back what `to_dict` gave.

        Raises:
            KeyError, TypeError, ValueError: The data is not a plan.
        """
        units: list[dict[str, Any]] = [{**unit, "donated": tuple(unit["donated"])} for unit in data["units"]]
        calls: list[dict[str, Any]] = [
            {**call, "reads": tuple(call["reads"]), "frees": tuple(call["frees"])} for call in data["calls"]
        ]
        parts: dict[str, Any] = {
            **data,
            "units": tuple([Unit(**unit) for unit in units]),
            "calls": tuple([Call(**call) for call in calls]),
            "returns": tuple(data["returns"]),
        }
        layout = cls(**parts)
        layout.check()
        return layout

    def check(self) -> None:
        """Raise ValueError unless the plan holds together.

        Each call writes the next registers; what is read holds a value; what is reused or freed is dead afterwards.
        """
        numbers = [self.nr_consts, self.nr_inputs, self.nr_registers, *self.returns]
        for call in self.calls:
            numbers += [call.unit, call.first, call.nr_results, *call.reads, *call.frees]
        _require(all(type(n) is int and n >= 0 for n in numbers), "whole numbers")
        size = self.nr_consts + self.nr_inputs
        alive = set(range(size))
        constants = set(range(self.nr_consts))
        for unit in self.units:
            _require(unit.kind in get_args(Kind) and all(type(flag) is bool for flag in unit.donated), "units")
        for call in self.calls:
            _require(call.unit < len(self.units) and alive.issuperset(call.reads), "calls that read what was written")
            donated = self.units[call.unit].donated
            _require(len(donated) == len(call.reads) and call.first == size, "calls that write the next registers")
            size += call.nr_results
            alive.update(range(call.first, size))
            frees = set(call.frees)
            _require(len(frees) == len(call.frees) and alive.issuperset(frees - constants), "registers freed once")
            reused = [register for register, is_reused in zip(call.reads, donated, strict=True) if is_reused]
            _require(
                frees.issuperset(reused) and not constants.intersection(frees)
                and all(call.reads.count(register) == 1 for register in reused),
                "only dead registers reused",
            )  # fmt: skip
            alive -= frees
        _require(alive.issuperset(self.returns) and size == self.nr_registers, "results that hold a value")


def _require(holds: bool, expected: str) -> None:
    if not holds:
        raise ValueError(f"reading a plan: expected {expected}, got others")


@dataclass(slots=True)
class Group:
    """Gather the segments that are one executable."""

    unit: Unit
    segment: Segment
    calls: list[int]


def lay_out(
    parts: Parts, groups: Sequence[tuple[Hashable, Unit]], given_up: Collection[int]
) -> tuple[Layout, list[Segment]]:
    """Number registers, find last uses, and decide what each executable may reuse.

    Args:
        parts: The program in segments.
        groups: For each segment what equal ones have in common, and the unit without donation.
        given_up: Positions of the inputs whose buffers the caller gives up.

    Returns:
        The plan, and for each unit one of its segments.
    """
    registers: dict[Any, int] = {}
    for var in (*parts.constvars, *parts.invars):
        registers[var] = len(registers)
    nr_inputs = len(registers)
    distinct: dict[Hashable, Group] = {}
    places: dict[Hashable, int] = {}
    rows: list[tuple[Hashable, tuple[int, ...], int, int]] = []
    size = nr_inputs
    for number, (segment, (group, unit)) in enumerate(zip(parts.segments, groups, strict=True)):
        reads = tuple([registers[var] for var in segment.invars])
        first = size
        for var in segment.outvars:
            registers[var] = size
            size += 1
        rows.append((group, reads, first, size - first))
        places.setdefault(group, len(places))
        distinct.setdefault(group, Group(unit, segment, [])).calls.append(number)
    returns = tuple([registers[var] for var in parts.outvars])
    frees = _last_uses(rows, set(returns), len(parts.constvars), size)
    reusable = {len(parts.constvars) + n for n in given_up}
    reusable.update(range(nr_inputs, size))
    units = [_with_donation(group, rows, frees, reusable) for group in distinct.values()]
    calls = [
        Call(places[group], reads, first, nr_results, tuple(sorted(frees[number])))
        for number, (group, reads, first, nr_results) in enumerate(rows)
    ]
    layout = Layout(
        nr_consts=len(parts.constvars),
        nr_inputs=len(parts.invars),
        nr_registers=size,
        units=tuple(units),
        calls=tuple(calls),
        returns=returns,
    )
    return layout, [group.segment for group in distinct.values()]


def _last_uses(
    rows: Sequence[tuple[Hashable, tuple[int, ...], int, int]], returns: set[int], nr_consts: int, size: int
) -> list[set[int]]:
    """Return for each call the registers that nobody reads after it."""
    seen = set(returns) | set(range(nr_consts))
    frees: list[set[int]] = []
    for _, reads, first, nr_results in reversed(rows):
        mine = {*reads, *range(first, first + nr_results)} - seen
        seen |= mine
        frees.append(mine)
    return frees[::-1]


def _with_donation(
    group: Group,
    rows: Sequence[tuple[Hashable, tuple[int, ...], int, int]],
    frees: Sequence[set[int]],
    reusable: set[int],
) -> Unit:
    """Let a unit reuse the inputs that are dead after every one of its calls, as far as its results can take them."""
    in_avals = [var.aval for var in group.segment.invars]
    free = [True] * len(in_avals)
    for number in group.calls:
        reads = rows[number][1]
        for n, register in enumerate(reads):
            free[n] = free[n] and register in frees[number] and register in reusable and reads.count(register) == 1
    remaining = [atom.aval for atom in group.segment.results]
    donated: list[bool] = []
    for aval, is_free in zip(in_avals, free, strict=True):
        match = next((n for n, out in enumerate(remaining) if is_free and pieces.same_type(aval, out)), None)
        if match is not None:
            del remaining[match]
        donated.append(match is not None)
    unit = group.unit
    return Unit(
        unit.name, unit.kind, unit.digest, unit.reason, tuple(donated), unit.nr_equations, unit.flops, unit.seconds
    )
