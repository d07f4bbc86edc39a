"""Which calls become units, and whether cutting pays."""

from collections import Counter
from dataclasses import dataclass
from typing import Any

from prejit._jax import outline, pieces
from prejit._jax.jaxprs import open_jaxpr
from prejit.config import Link
from prejit.errors import KeyingError
from prejit.key.program import ProgramDigester
from prejit.program.plan import Layout
from prejit.program.residuals import Choice
from prejit.program.work import Estimator, call_seconds

__all__ = ["Chooser", "Limits", "judge", "limits_for"]


@dataclass(frozen=True, slots=True)
class Limits:
    """What a call must be to become a unit.

    Attributes:
        min_equations: Smaller bodies are not worth a call.
        large_equations: A body of this size becomes a unit though it occurs once: an edit elsewhere leaves it alone.
        max_overhead: Greatest share of a unit's run that calling it may take.
    """

    min_equations: int
    large_equations: int
    max_overhead: float


_AUTO = Limits(min_equations=16, large_equations=400, max_overhead=0.04)
_ASKED = Limits(min_equations=2, large_equations=400, max_overhead=float("inf"))


MIN_SAVED_EQUATIONS = 150  # XLA compiles some 500 to 2,000 equations a second on one core


def judge(layout: Layout) -> tuple[bool, str]:
    """Say whether linking a program pays, by what it saves in compiling and costs in running, and why."""
    nr_calls = Counter(call.unit for call in layout.calls)
    repeated = sum((nr_calls[n] - 1) * unit.nr_equations for n, unit in enumerate(layout.units))
    apart = sum(unit.nr_equations for unit in layout.units if unit.kind == "unit" and unit.digest)
    is_hosting = any(unit.kind == "effect" for unit in layout.units)
    kept = sum(unit.nr_equations for unit in layout.units if unit.digest) if is_hosting else 0
    gains = {
        "need not be compiled again": repeated,
        "are stored, which a program that runs Python is not as a whole": kept,
        "are stored apart from the rest": apart if apart >= _AUTO.large_equations else 0,
    }
    gain = max(gains, key=lambda name: gains[name])
    if gains[gain] < MIN_SAVED_EQUATIONS:
        return False, f"too little in it repeats: {repeated} equations"
    run_s = sum(layout.units[call.unit].seconds for call in layout.calls)
    call_s = sum(call_seconds(len(call.reads) + call.nr_results) for call in layout.calls)
    share = call_s / max(run_s, 1e-9)
    if share > _AUTO.max_overhead:
        return False, f"calling {len(layout.calls)} executables would take {share:.0%} of a run"
    return True, f"{gains[gain]} equations {gain}, calling takes {share:.1%} of a run"


def limits_for(link: Link) -> Limits:
    """Return the limits for what the user asked for."""
    return _ASKED if link == "separate" else _AUTO


class Chooser:
    """Choose units among the calls of one program.

    A call becomes a unit if its body occurs more than once, or is large, and running it takes much longer than calling
    it. Of nested candidates the outermost does, unless its body itself repeats a candidate: then the body is taken
    apart. Functions of JAX's own library are not candidates.
    """

    def __init__(self, jaxpr: Any, limits: Limits, estimator: Estimator, digester: ProgramDigester) -> None:
        self._limits = limits
        self._estimator = estimator
        self._digester = digester
        self._groups: dict[Any, tuple[Any, Any]] = {}  # with the equation, whose bodies must stay alive
        self._is_candidate: dict[Any, bool] = {}
        self._asked: set[Any] = set()
        self._counted: dict[int, tuple[Any, Counter[Any]]] = {}
        self._choices: dict[Any, Choice] = {}
        self._origins: dict[Any, str] = {}
        self._large: set[Any] = set()
        self._counts = self._count(jaxpr)
        self._repeated = {
            self._origins[group] for group, times in self._counts.items() if times > 1 and self._is_candidate[group]
        }

    def __call__(self, eqn: Any) -> Choice:
        """Choose for one equation."""
        if not pieces.bodies_of(eqn):
            return "glue"
        group = self._group(eqn)
        choice = self._choices.get(group)
        if choice is None:
            choice = self._choices[group] = self._chosen(eqn, group)
        return choice

    def _chosen(self, eqn: Any, group: Any) -> Choice:
        mark = outline.mark_of(eqn)
        if mark == "separate":
            return "unit"
        body = pieces.inlinable_body(eqn)
        if mark == "inline" and body is not None:
            return "inline"
        inside = Counter[Any]() if body is None else self._count(body)
        repeats = max([times for one, times in inside.items() if self._is_candidate[one]], default=0)
        if self._becomes_unit(group) and repeats < 2:
            return "unit"
        if body is not None and any(self._becomes_unit(one) for one in inside):
            return "inline"
        return "glue"

    def _becomes_unit(self, group: Any) -> bool:
        if not self._is_candidate[group]:
            return group in self._asked
        # The first and the last of many calls differ from the others in a derivative: they have one origin.
        origin = self._origins[group]
        return self._counts[group] > 1 or origin in self._repeated or group in self._large

    def _count(self, jaxpr: Any) -> Counter[Any]:
        """Count the calls that one run of a jaxpr makes, by group, in bodies that can be taken apart too."""
        body = open_jaxpr(jaxpr)[0]
        known = self._counted.get(id(body))
        if known is None:
            counts: Counter[Any] = Counter()
            for eqn in body.eqns:
                if pieces.bodies_of(eqn):
                    counts[self._group(eqn)] += 1
                    inner = pieces.inlinable_body(eqn)
                    if inner is not None:
                        counts.update(self._count(inner))
            known = self._counted[id(body)] = (body, counts)
        return known[1]

    def _group(self, eqn: Any) -> Any:
        """Return what equal calls have in common, after noting what is to be known of them."""
        mark = outline.mark_of(eqn)
        key = (eqn.primitive, mark, tuple(map(id, pieces.bodies_of(eqn))), pieces.literals_of(eqn))
        found = self._groups.get(key)
        if found is None:
            found = self._groups[key] = (self._digest(eqn) or key, eqn)
            group = found[0]
            if mark == "separate":
                self._asked.add(group)
            self._is_candidate[group] = mark != "outline" and self._pays(eqn)
            self._origins[group] = pieces.origin_of(pieces.bodies_of(eqn)[0])
            if self._estimator.of_equation(eqn).nr_equations >= self._limits.large_equations:
                self._large.add(group)
        return found[0]

    def _digest(self, eqn: Any) -> str | None:
        try:
            return self._digester.digest(pieces.alone(eqn))
        except KeyingError:
            return None

    def _pays(self, eqn: Any) -> bool:
        work = self._estimator.of_equation(eqn)
        if work.nr_equations - 1 < self._limits.min_equations or pieces.is_library_code(
            pieces.origin_of(pieces.bodies_of(eqn)[0])
        ):
            return False
        nr_arrays = len(eqn.invars) + len(eqn.outvars)
        return call_seconds(nr_arrays) <= work.seconds * self._limits.max_overhead
