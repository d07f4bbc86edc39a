"""Partition: a jaxpr in, segments out, each of which is compiled on its own.

Calls that were chosen as units become segments of their own, in the order of the program. What lies between, the glue,
is gathered into one segment after each unit: an equation goes as early as its inputs allow, so that the glue that
belongs to one of many equal units is the same for all of them. Values that XLA would compute inside a fused loop are
not handed from one glue segment to another; their equations are repeated where they are needed.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Literal

from prejit._jax import outline, pieces
from prejit._jax.jaxprs import is_literal, open_jaxpr
from prejit._jax.tracing import hoistable_bytes
from prejit.program.primitives import MOVES, ROUNDED, SOFT
from prejit.program.residuals import Choice, slim

__all__ = ["Kind", "Parts", "Segment", "partition"]

Kind = Literal["unit", "glue", "effect"]

_MAX_REPEATED = 48  # Equations that one segment repeats of earlier ones before it takes the value itself.
_MAX_REPEATS = 3  # Segments that repeat one equation, unless what it computes is small.
_SMALL = 1024  # elements


@dataclass(frozen=True, slots=True, eq=False)
class Segment:
    """A run of equations that becomes one executable.

    Attributes:
        kind: `unit` for a chosen call, `effect` for an equation that runs Python or has an effect, else `glue`.
        name: For people.
        eqns: Its equations, in order.
        consts: Small constants that are part of it, by variable.
        invars: What it reads, in order of first use.
        outvars: What it hands on, as the program's variables.
        results: The same as atoms of its own; they differ only where the program returns what it was given.
    """

    kind: Kind
    name: str
    eqns: tuple[Any, ...]
    consts: dict[Any, Any]
    invars: tuple[Any, ...]
    outvars: tuple[Any, ...]
    results: tuple[Any, ...]

    def closed_jaxpr(self) -> Any:
        """Return the segment as a closed jaxpr."""
        return pieces.close(self.invars, self.results, self.eqns, self.name, self.consts)

    def shape(self) -> tuple[Any, ...]:
        """Return what is equal for two segments only if they are one program, told by the identity of their parts."""
        numbers: dict[Any, int] = {}
        for var in (*self.consts, *self.invars):
            numbers[var] = len(numbers)
        rows: list[Any] = [tuple([var.aval for var in self.invars]), tuple(map(id, self.consts.values()))]
        for eqn in self.eqns:
            reads = tuple([(id(atom),) if is_literal(atom) else numbers[atom] for atom in eqn.invars])
            writes = tuple([var.aval for var in eqn.outvars])
            rows.append((eqn.primitive, pieces.params_identity(eqn), id(eqn.ctx), reads, writes))
            for var in eqn.outvars:
                numbers[var] = len(numbers)
        results = tuple([(id(atom),) if is_literal(atom) else numbers[atom] for atom in self.results])
        return (self.kind, self.name, *rows, results)


@dataclass(frozen=True, slots=True, eq=False)
class Parts:
    """A program in segments.

    Attributes:
        consts: Values of the constants that are inputs of segments.
        constvars: Their variables.
        invars: The program's inputs.
        outvars: What it returns: variables, each the output of one segment.
        segments: The segments in the order in which they run.
    """

    consts: tuple[Any, ...]
    constvars: tuple[Any, ...]
    invars: tuple[Any, ...]
    outvars: tuple[Any, ...]
    segments: tuple[Segment, ...]


def partition(jaxpr: Any, consts: Sequence[Any], choose: Callable[[Any], Choice], hoist_bytes: int) -> Parts:
    """Partition a program.

    Args:
        jaxpr: The program, without dead code; its first inputs are the constants.
        consts: Their values.
        choose: Says for an equation whether it becomes a unit, whether the body it calls takes its place, or whether
            it stays as it is between units.
        hoist_bytes: Larger constants are handed to the segments that read them; smaller ones are part of them.

    Returns:
        The segments. Equations that nothing needs are gone.
    """
    flat = _Flat(jaxpr, consts, hoist_bytes)
    items, results = flat.expand(choose)
    items, sunk = slim(items, results)
    values = dict(zip(flat.constvars, flat.consts, strict=True))
    embedded = {var: const for var, const in values.items() if hoistable_bytes(const) <= hoist_bytes}
    segments, returned = _Arrangement(items, results, sunk, embedded).segments()
    constvars = [var for var in values if var not in embedded]
    return Parts(
        consts=tuple([values[var] for var in constvars]),
        constvars=tuple(constvars),
        invars=tuple(jaxpr.invars[len(consts) :]),
        outvars=tuple(returned),
        segments=tuple(segments),
    )


class _Flat:
    """The program's equations after the chosen calls were replaced by the equations of their bodies."""

    def __init__(self, jaxpr: Any, consts: Sequence[Any], hoist_bytes: int) -> None:
        self._jaxpr = jaxpr
        self._hoist_bytes = hoist_bytes
        self._hoisted: dict[int, tuple[Any, Any]] = {}
        self.constvars: list[Any] = list(jaxpr.invars[: len(consts)])
        self.consts: list[Any] = list(consts)
        self._places = {id(const): var for const, var in zip(self.consts, self.constvars, strict=True)}
        self._items: list[tuple[Any, Choice]] = []

    def expand(self, choose: Callable[[Any], Choice]) -> tuple[list[tuple[Any, Choice]], list[Any]]:
        """Return the equations with their choices, and the program's results as atoms."""
        env: dict[Any, Any] = {}
        self._walk(self._jaxpr, env, choose, is_outermost=True)
        return self._items, [_read(env, atom) for atom in self._jaxpr.outvars]

    def _walk(self, jaxpr: Any, env: dict[Any, Any], choose: Callable[[Any], Choice], *, is_outermost: bool) -> None:
        for eqn in jaxpr.eqns:
            choice = choose(eqn)
            if is_outermost and not env and choice == "glue":
                self._items.append((eqn, choice))
                continue
            reads = [_read(env, atom) for atom in eqn.invars]
            body = pieces.inlinable_body(eqn) if choice == "inline" else None
            if body is not None:
                inner, consts = open_jaxpr(body)
                inside = dict(zip(inner.constvars, map(self._constvar, consts, inner.constvars), strict=True))
                inside.update(zip(inner.invars, reads, strict=True))
                self._walk(inner, inside, choose, is_outermost=False)
                env.update(zip(eqn.outvars, [_read(inside, atom) for atom in inner.outvars], strict=True))
                continue
            writes = eqn.outvars
            if not is_outermost:  # the same body may be here a second time
                writes = [var if pieces.is_dropped(var) else pieces.new_var(var) for var in eqn.outvars]
                env.update(zip(eqn.outvars, writes, strict=True))
            eqn = eqn.replace(invars=reads, outvars=writes)
            if choice == "unit":
                eqn = self._with_large_consts_read(outline.unmarked(eqn))
            self._items.append((eqn, "glue" if choice == "inline" else choice))

    def _with_large_consts_read(self, eqn: Any) -> Any:
        """Return a unit that reads its constants, if there is a large one among them: it then is there once."""
        body = pieces.jit_body(eqn)
        inner, consts = (None, []) if body is None else open_jaxpr(body)
        if inner is None or all(hoistable_bytes(const) <= self._hoist_bytes for const in consts):
            return eqn
        if id(body) not in self._hoisted:
            self._hoisted[id(body)] = (body, pieces.without_consts(body))
        constvars = list(map(self._constvar, consts, inner.constvars))
        return pieces.reading_consts(eqn, self._hoisted[id(body)][1], constvars)

    def _constvar(self, const: Any, var: Any) -> Any:
        found = self._places.get(id(const))
        if found is None:
            found = self._places[id(const)] = pieces.new_var(var)
            self.constvars.append(found)
            self.consts.append(const)
        return found


def _read(env: dict[Any, Any], atom: Any) -> Any:
    return atom if is_literal(atom) else env.get(atom, atom)


class _Arrangement:
    """Units and effects in a row, with glue after each."""

    def __init__(
        self,
        items: Sequence[tuple[Any, Choice]],
        results: Sequence[Any],
        sunk: dict[Any, Any],
        embedded: dict[Any, Any],
    ) -> None:
        self._results = results
        self._sunk = sunk
        self._embedded = embedded
        self._row: list[tuple[Kind, Any]] = []  # units and effects, in the program's order
        self._glue: list[list[Any]] = [[]]  # after how many of them it stands
        self._place: dict[Any, int] = {}  # of a variable: the glue it is computed in, or -n for the n-th of the row
        self._maker: dict[Any, Any] = {}
        self._soft: dict[Any, bool] = {}
        self._hosted: dict[int, tuple[Any, bool]] = {}
        for eqn, choice in items:
            self._add(eqn, choice)
        self._repeat_soft()

    def _add(self, eqn: Any, choice: Choice) -> None:
        has_host_code = pieces.has_host_code(eqn, self._hosted)
        if choice == "unit" or has_host_code:
            self._row.append(("effect" if has_host_code and choice != "unit" else "unit", eqn))
            self._glue.append([])
            place, is_soft = -len(self._row), False
        else:
            place = max([abs(self._place.get(atom, 0)) for atom in self._reads(eqn)], default=0)
            self._glue[place].append(eqn)
            is_soft = self._is_soft(eqn)
        for var in eqn.outvars:
            self._place[var] = place
            self._maker[var] = eqn
            self._soft[var] = is_soft

    def _reads(self, eqn: Any) -> list[Any]:
        """Return the variables that an equation reads, through the equations that are sunk into its segment."""
        found: list[Any] = []
        remaining = list(eqn.invars)
        while remaining:
            atom = remaining.pop()
            if is_literal(atom):
                continue
            if atom in self._sunk:
                remaining += self._sunk[atom].invars
            else:
                found.append(atom)
        return found

    def _with_sunk(self, eqns: Sequence[Any]) -> list[Any]:
        """Return equations with those that are sunk to them, each before it is needed."""
        if not self._sunk:
            return list(eqns)
        placed: dict[int, Any] = {}

        def place(eqn: Any) -> None:
            if id(eqn) in placed:
                return
            for atom in eqn.invars:
                if not is_literal(atom) and atom in self._sunk:
                    place(self._sunk[atom])
            placed[id(eqn)] = eqn

        for eqn in eqns:
            place(eqn)
        return list(placed.values())

    def _is_soft(self, eqn: Any) -> bool:
        name = eqn.primitive.name
        if name in MOVES:
            return all(is_literal(atom) or self._soft.get(atom, False) for atom in eqn.invars)
        dtype: Any = getattr(eqn.outvars[0].aval, "dtype", None) if eqn.outvars else None
        return pieces.is_inexact(dtype) and (name in SOFT or (name in ROUNDED and dtype.itemsize < 4))

    def _repeat_soft(self) -> None:
        """Repeat in each glue what XLA would have fused into it, as far as that is not much."""
        order = {id(eqn): n for n, eqn in enumerate(self._maker.values())}
        readers: dict[Any, set[int]] = {}
        for place, eqns in enumerate(self._glue):
            for eqn in eqns:
                for atom in eqn.invars:
                    if not is_literal(atom) and self._soft.get(atom, False) and self._place[atom] != place:
                        readers.setdefault(atom, set()).add(place)
        for place, eqns in enumerate(self._glue):
            here = set(map(id, eqns))
            extra: dict[int, Any] = {}
            remaining = [atom for eqn in eqns for atom in eqn.invars]
            while remaining and len(extra) < _MAX_REPEATED:
                atom = remaining.pop()
                if is_literal(atom) or not self._soft.get(atom, False):
                    continue
                maker = self._maker[atom]
                if id(maker) in here or id(maker) in extra:
                    continue
                if len(readers.get(atom, ())) <= _MAX_REPEATS or prod(atom.aval.shape) <= _SMALL:
                    extra[id(maker)] = maker
                    remaining += maker.invars
            if extra:
                self._glue[place] = sorted([*extra.values(), *eqns], key=lambda eqn: order[id(eqn)])

    def segments(self) -> tuple[list[Segment], list[Any]]:
        """Return the segments in order, and the variables that hold the program's results."""
        returned: list[Any] = []
        seen: set[Any] = set()
        copied: list[Any] = []  # atoms that are returned as they are: inputs, literals, results given twice
        copies: list[Any] = []
        for atom in self._results:
            if is_literal(atom) or atom not in self._place or atom in seen:
                copied.append(atom)
                copies.append(pieces.new_var(atom))
                returned.append(copies[-1])
            else:
                seen.add(atom)
                returned.append(atom)
        backwards: list[Segment] = []
        needed = {var for var in returned if var in self._place}
        if copied:
            reads = list(dict.fromkeys(atom for atom in copied if not is_literal(atom)))
            consts, invars = self._split(reads)
            backwards.append(Segment("glue", "outputs", (), consts, invars, tuple(copies), tuple(copied)))
            needed.update(invars)
        for place in range(len(self._row), -1, -1):
            backwards += self._segment("glue", "glue", self._glue[place], place, needed)
            if place > 0:
                kind, eqn = self._row[place - 1]
                backwards += self._segment(kind, _name_of(eqn), [eqn], -place, needed)
        return backwards[::-1], returned

    def _segment(self, kind: Kind, name: str, eqns: Sequence[Any], place: int, needed: set[Any]) -> list[Segment]:
        """Make a segment of the equations that are needed, if any; what it reads is needed from then on."""
        alive: list[Any] = []
        inside: set[Any] = set()
        for eqn in reversed(self._with_sunk(eqns)):
            # Else it is repeated here, or was sunk here.
            is_own = self._place.get(eqn.outvars[0], None) == place if eqn.outvars else True
            if eqn.effects or any(var in inside or (is_own and var in needed) for var in eqn.outvars):
                alive.append(eqn)
                inside.update(atom for atom in eqn.invars if not is_literal(atom))
        if not alive:
            return []
        alive.reverse()
        made = {var: None for eqn in alive for var in eqn.outvars}
        reads = dict.fromkeys(atom for eqn in alive for atom in eqn.invars if not is_literal(atom) and atom not in made)
        outvars = tuple([var for var in made if var in needed and self._place.get(var, None) == place])
        consts, invars = self._split(reads)
        needed.difference_update(outvars)
        needed.update(invars)
        return [Segment(kind, name, tuple(alive), consts, invars, outvars, outvars)]

    def _split(self, reads: Iterable[Any]) -> tuple[dict[Any, Any], tuple[Any, ...]]:
        """Return the constants among what a segment reads that become part of it, and the others."""
        consts = {var: self._embedded[var] for var in reads if var in self._embedded}
        return consts, tuple([var for var in reads if var not in self._embedded])


def _name_of(eqn: Any) -> str:
    name = eqn.params.get("name")
    return name if isinstance(name, str) else eqn.primitive.name
