"""From a traced program to a linked one: decide, partition, plan, get the executables, and put them together."""

import contextlib
import gc
import weakref
from collections.abc import Collection, Generator, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from prejit import events
from prejit._jax import pieces, running, tracing
from prejit.config import Link, settings
from prejit.errors import KeyingError, warn_user
from prejit.key.program import ProgramDigester
from prejit.program.partition import Segment, partition
from prejit.program.plan import Layout, Unit, lay_out
from prejit.program.policy import Chooser, judge, limits_for
from prejit.program.run import Linked, Results
from prejit.program.stored import keep_plan
from prejit.program.work import Estimator
from prejit.stage.ladder import Bypass, Prepared
from prejit.stage.segment import SegmentJob
from prejit.stage.together import prepare_together
from prejit.store import get_store

__all__ = ["Drawn", "Ready", "Whole", "draw", "link"]


@dataclass(frozen=True, slots=True)
class Whole:
    """Say why a program stays one module."""

    reason: str


@dataclass(frozen=True, slots=True, eq=False)
class Drawn:
    """A program with its plan, before anything is compiled.

    Attributes:
        name: For people.
        reason: Why the program is linked.
        layout: The plan.
        consts: Values of the constants that are handed to segments.
        segments: For each unit one of its segments.
        used: Which inputs of the program are used.
        given_up: Positions of the inputs whose buffers the caller gives up.
        unusable: Types of the donated inputs that no result can take.
    """

    name: str
    reason: str
    layout: Layout
    consts: tuple[Any, ...]
    segments: tuple[Segment, ...]
    used: tuple[bool, ...]
    given_up: tuple[int, ...]
    unusable: list[Any]


@dataclass(frozen=True, slots=True, eq=False)
class Ready:
    """A linked program with what it holds.

    Attributes:
        linked: What runs.
        executables: The executable of each unit.
        used: Those of them that are in the bounded cache of loaded executables.
        device: Where it runs.
    """

    linked: Linked
    executables: tuple[Any, ...]
    used: tuple[Prepared, ...]
    device: Any


def draw(program: tracing.TracedProgram, flat: Sequence[Any], link: Link, given: Collection[str] = ()) -> Drawn | Whole:
    """Decide whether a traced program is linked, and how.

    Args:
        program: The program.
        flat: Its flat arguments, or their specs.
        link: What the user asked for.
        given: Which arguments of `jax.jit` the user gave, for the reason.
    """
    reason = why_whole(program, link, given)
    if reason:
        return Whole(reason)
    # A trace is asked about again by the call that follows `compile`, and by every other `prejit.jit` of the function.
    known = _known.setdefault(program.closed_jaxpr, {})
    if "alive" not in known:
        known["alive"] = pieces.without_dead_code(program.closed_jaxpr)
    jaxpr, consts, used = known["alive"]
    used = [True] * len(used) if "keep_unused" in program.options else used
    reason = why_whole_where([value for value, is_used in zip(flat, used, strict=True) if is_used], jaxpr, link)
    if reason:
        return Whole(reason)
    if not all(map(pieces.is_plain_boundary, (*program.in_avals, *program.out_avals))):
        return Whole("an argument or a result is not one plain array")
    question = (link, settings().hoist_bytes, program.donated, tuple(program.options), program.name)
    if question not in known:
        with _without_collection():
            known[question] = _draw(program, jaxpr, consts, used, link)
    return known[question]


@contextlib.contextmanager
def _without_collection() -> Generator[None]:
    """Let no garbage collection start: after a large trace each goes through all its objects, and frees nothing."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


_known: "weakref.WeakKeyDictionary[Any, dict[Any, Any]]" = weakref.WeakKeyDictionary()


def _draw(
    program: tracing.TracedProgram, jaxpr: Any, consts: Sequence[Any], used: Sequence[bool], link: Link
) -> Drawn | Whole:
    estimator, digester = Estimator(), ProgramDigester()
    chooser = Chooser(jaxpr, limits_for(link), estimator, digester)
    parts = partition(jaxpr, consts, chooser, settings().hoist_bytes)
    # Calls of one unit share the very params of their equations, so most are known by comparing identities.
    known: dict[Hashable, tuple[Hashable, Unit]] = {}
    groups: list[tuple[Hashable, Unit]] = []
    for segment in parts.segments:
        shape = segment.shape()
        if shape not in known:
            if not all(pieces.is_plain_boundary(var.aval) for var in (*segment.invars, *segment.outvars)):
                return Whole("a value between two parts is not one plain array")
            known[shape] = _group(segment, estimator, digester)
        groups.append(known[shape])
    given_up, unused = tracing.donations(program, used)
    layout, segments = lay_out(parts, groups, given_up)
    pays, reason = judge(layout)
    if len(layout.calls) < 2:
        return Whole("there is nothing in it to cut at")
    if link == "separate":
        reason = "asked for"
    elif not pays:
        return Whole(reason)
    return Drawn(program.name, reason, layout, parts.consts, tuple(segments), tuple(used), tuple(given_up), unused)


def why_whole(program: tracing.TracedProgram, link: Link, given: Collection[str] = ()) -> str:
    """Say what keeps a program in one module whatever its parts are; an empty string if nothing does."""
    if link in ("inline", "outline"):
        return f"link={link!r}"
    if program.is_high or program.is_capturing or any(isinstance(const, tracing.Tracer) for const in program.consts):
        return "it closes over a value that is being traced, or holds values that only a trace has"
    if not all(isinstance(value, str | int | float) for _, value in program.compiler_options):
        return "its compiler options are not plain values"  # to which JAX objects
    placed = [name for name in program.options if name not in ("keep_unused", "mesh")]
    if placed:  # `device` and `backend` become shardings
        return f"it was given {' and '.join([name for name in ('device', 'backend') if name in given] or placed)}"
    if "mesh" in program.options:
        return "a mesh is set around it"
    if any(tracing.is_ref_effect(effect) for effect in program.effects) or pieces.makes_refs(program.closed_jaxpr):
        return "it writes to a mutable array"
    if any(tracing.is_spread(const) for const in program.consts):
        return "a constant is on several devices"
    return ""


def why_whole_where(used: Sequence[Any], jaxpr: Any, link: Link) -> str:
    """Say what about devices keeps a program in one module; `used` are the arguments that it reads."""
    devices = tracing.devices_of(used) or [tracing.default_device()]
    if len(devices) > 1 or tracing.has_mixed_devices(used):
        return "it runs on several devices, where a cut would stop the propagation of shardings"
    if not all(map(tracing.is_plainly_placed, used)):
        return "an argument has a placement of its own"
    if pieces.is_placed_inside(jaxpr):
        return "equations in it ask for devices"
    if link == "auto" and devices[0].platform != "cpu":
        return f"on {devices[0].platform} linking has not been measured; link='separate' asks for it"
    return ""


def _group(segment: Segment, estimator: Estimator, digester: ProgramDigester) -> tuple[Hashable, Unit]:
    work = estimator.of_equations(segment.eqns)
    digest = reason = ""
    try:
        digest = digester.digest(segment.closed_jaxpr())
    except KeyingError as error:
        reason = error.reason or str(error)
    group: Hashable = digest or _likeness(segment)
    return group, Unit(segment.name, segment.kind, digest, reason, (), work.nr_equations, work.flops, work.seconds)


def _likeness(segment: Segment) -> Hashable:
    """Return what equal calls have in common where their body has no content to compare: it is one object then."""
    alike = pieces.call_identity(segment.eqns[0]) if len(segment.eqns) == 1 else None
    if alike is None:
        return id(segment)
    (eqn,) = segment.eqns
    places = {var: n for n, var in enumerate(segment.invars)}
    reads = [
        literal or (places[atom] if atom in places else ("const", id(segment.consts[atom])))
        for atom, literal in zip(eqn.invars, pieces.literals_of(eqn), strict=True)
    ]
    writes = [eqn.outvars.index(var) for var in segment.outvars]
    return (alike, tuple(reads), tuple(writes))


def link(drawn: Drawn, program: tracing.TracedProgram, flat: Sequence[Any]) -> "Ready":
    """Get the executables of a plan, from memory, from the store or by compiling, and link them.

    Returns:
        The linked program with its executables.

    Raises:
        Exception: What JAX raises when it lowers or compiles a segment.
    """
    used_flat = [value for value, is_used in zip(flat, drawn.used, strict=True) if is_used]
    committed = tracing.devices_of(used_flat)
    device = (committed or [tracing.default_device()])[0]
    jobs = [
        _job(unit, segment, device, program) for unit, segment in zip(drawn.layout.units, drawn.segments, strict=True)
    ]
    jobs.append(SegmentJob.guard(device))
    executables: list[Any] = []
    used: list[Prepared] = []
    for job, outcome in zip(jobs, prepare_together(jobs, name=program.name), strict=True):
        if isinstance(outcome, Exception):
            raise outcome
        if isinstance(outcome, Bypass):
            with events.own_compile():
                executables.append(job.lower().compile()._executable)
        else:
            used.append(outcome)
            executables.append(outcome.loaded.executable)
    if drawn.unusable:
        warn_user(tracing.unusable_text(drawn.unusable))
    results = Results(
        program.traced.out_tree,
        program.out_avals,
        [running.single_device(device)] * len(program.out_avals),
        is_committed=bool(committed),
    )
    linked = Linked(
        drawn.layout,
        executables[:-1],
        running.place_constants(drawn.consts, device),
        [job.out_avals for job in jobs[:-1]],
        results,
        device,
        flat,
        [n for n, is_used in enumerate(drawn.used) if is_used],
        drawn.given_up,
        executables[-1],
    )
    keep_plan(get_store(), program.name, drawn.layout, jobs[:-1], program, drawn.used, drawn.given_up)
    return Ready(linked, tuple(executables[:-1]), tuple(used), device)


def _job(unit: Unit, segment: Segment, device: Any, program: tracing.TracedProgram) -> SegmentJob:
    return SegmentJob(
        name=segment.name,
        digest=unit.digest,
        in_avals=[var.aval for var in segment.invars],
        out_avals=[atom.aval for atom in segment.results],
        donated=unit.donated,
        device=device,
        closed_jaxpr=segment.closed_jaxpr,
        compiler_options=program.compiler_options,
        reason=unit.reason or None,
    )
