"""What was decided about a program, for people and as plain data."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from prejit._jax import pieces, running, tracing
from prejit._jax.linked import LinkedExecutable
from prejit._jax.linked import as_compiled as stage_of
from prejit.errors import KeyingError
from prejit.key import program_digest
from prejit.program.link import Drawn, Ready, Whole
from prejit.program.partition import Kind, Segment
from prejit.program.plan import Layout
from prejit.program.work import Estimator
from prejit.signature.describe import aval_text
from prejit.stage.job import TracedJob

__all__ = ["MemoryAnalysis", "Part", "Plan", "as_compiled", "make_plan", "peak_bytes"]


@dataclass(frozen=True, slots=True)
class Part:
    """Describe one distinct executable of a program.

    Attributes:
        name: For people: the function's, or `glue`.
        kind: `unit` for a call that is compiled on its own, `glue` for what lies between, `effect` for an equation
            that runs Python or has an effect.
        digest: Of its equations, which are part of the key that it is stored under (`identity: program` in
            `prejit cache show`); empty where it can't be stored.
        reason: Why it can't be stored; empty where it can.
        nr_calls: How often one run of the program calls it.
        nr_equations: Equations in it, nested ones included.
        flops: Estimated floating-point operations of one call.
        seconds: Estimated seconds of one call.
        in_avals: Types of its inputs.
        out_avals: Types of its results.
        nr_donated: Inputs whose buffers it reuses.
    """

    name: str
    kind: Kind
    digest: str
    reason: str
    nr_calls: int
    nr_equations: int
    flops: float
    seconds: float
    in_avals: tuple[str, ...]
    out_avals: tuple[str, ...]
    nr_donated: int


@dataclass(frozen=True, slots=True)
class MemoryAnalysis:
    """Say what one run of a program takes, in the words of `jax.stages.Compiled.memory_analysis`.

    Attributes:
        argument_size_in_bytes: Arguments.
        output_size_in_bytes: Results.
        temp_size_in_bytes: Values between parts at their most, and what the largest executable needs for itself.
        generated_code_size_in_bytes: Code of all executables, where the backend tells.
    """

    argument_size_in_bytes: int
    output_size_in_bytes: int
    temp_size_in_bytes: int
    generated_code_size_in_bytes: int


class Plan:
    """What `prejit.jit` does with one kind of call; `str()` is a table.

    Attributes:
        name: The program.
        link: What was asked for: `auto`, `inline`, `outline` or `separate`.
        is_linked: Whether it is compiled in parts; else it is one module.
        reason: Why.
        parts: The distinct executables, in the order in which they run first.
        calls: How many executables one run calls.
        peak_bytes: Most bytes that arguments and values between parts take at once, without what an executable needs
            for itself.
        argument_bytes: Bytes of the arguments.
        result_bytes: Bytes of the results.
    """

    __slots__ = (
        "_executables", "argument_bytes", "calls", "is_linked", "link", "name", "parts", "peak_bytes", "reason",
        "result_bytes",
    )  # fmt: skip

    def __init__(
        self, name: str, link: str, reason: str, parts: Sequence[Part], calls: int, program: tracing.TracedProgram,
        peak: int | None, executables: Callable[[], list[Any]],
    ) -> None:  # fmt: skip
        self.name = name
        self.link = link
        self.reason = reason
        self.is_linked = peak is not None
        self.parts = tuple(parts)
        self.calls = calls
        self.argument_bytes = sum(map(pieces.aval_bytes, program.in_avals))
        self.result_bytes = sum(map(pieces.aval_bytes, program.out_avals))
        self.peak_bytes = self.argument_bytes + self.result_bytes if peak is None else peak
        self._executables = executables

    @property
    def units(self) -> tuple[Part, ...]:
        """The distinct units."""
        return tuple([part for part in self.parts if part.kind == "unit"])

    @property
    def glue(self) -> tuple[Part, ...]:
        """The distinct executables between units."""
        return tuple([part for part in self.parts if part.kind != "unit"])

    def cost_analysis(self) -> dict[str, float]:
        """Return XLA's estimate of one run, summed over all calls: `flops`, `bytes accessed` and whatever it gives.

        **Blocks**: gets the executables, from memory, from the store or by compiling.
        """
        total: Counter[str] = Counter()
        for part, executable in zip(self.parts, self._executables(), strict=True):
            for name, value in running.costs(executable).items():
                total[name] += part.nr_calls * value  # pyright: ignore[reportArgumentType]
        return dict(total)

    def memory_analysis(self) -> "MemoryAnalysis":
        """Return what one run takes.

        **Blocks**: gets the executables, from memory, from the store or by compiling.
        """
        stats = list(map(running.memory_stats, self._executables()))
        between = self.peak_bytes - self.argument_bytes if self.is_linked else 0
        return MemoryAnalysis(
            argument_size_in_bytes=self.argument_bytes,
            output_size_in_bytes=self.result_bytes,
            temp_size_in_bytes=between + max([temporary for temporary, _ in stats], default=0),
            generated_code_size_in_bytes=sum(code for _, code in stats),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {
            "name": self.name,
            "link": self.link,
            "linked": self.is_linked,
            "reason": self.reason,
            "calls": self.calls,
            "peak_bytes": self.peak_bytes,
            "executables": [asdict(part) for part in self.parts],
        }

    def _size(self) -> str:
        counts = (len(self.parts), "executable"), (self.calls, "call")
        return ", ".join(f"{n} {noun}{'s' * (n != 1)}" for n, noun in counts)

    def __repr__(self) -> str:
        return f"<Plan of {self.name}: {self._size()}>"

    def __str__(self) -> str:
        how = f"linked: {self._size()}" if self.is_linked else "one module"
        lines = [f"{self.name}: {how} (link={self.link!r}: {self.reason})"]
        titles = ("part", "kind", "calls", "equations", "GFLOP", "est. ms", "inputs", "results", "donated", "stored")
        rows = [titles, *map(_row, self.parts)]
        widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
        for row in rows:
            cells = [
                cell.ljust(width) if place in (0, 1, 9) else cell.rjust(width)
                for place, (cell, width) in enumerate(zip(row, widths, strict=True))
            ]
            lines.append("  " + "  ".join(cells).rstrip())
        total_flops = sum(part.flops * part.nr_calls for part in self.parts)
        total_s = sum(part.seconds * part.nr_calls for part in self.parts)
        lines.append(
            f"  one run: {total_flops / 1e9:.3f} GFLOP, some {total_s * 1e3:.1f} ms, "
            f"{self.peak_bytes / 1e6:.1f} MB of arguments and values between parts at most"
        )
        return "\n".join(lines)


def _row(part: Part) -> tuple[str, ...]:
    return (
        part.name, part.kind, str(part.nr_calls), str(part.nr_equations), f"{part.flops / 1e9:.3f}",
        f"{part.seconds * 1e3:.2f}", str(len(part.in_avals)), str(len(part.out_avals)), str(part.nr_donated),
        part.digest[:8] or (f"no: {part.reason}" if part.reason else ""),
    )  # fmt: skip


def make_plan(name: str, link: str, drawn: Drawn | Whole, job: TracedJob, executables: Callable[[], list[Any]]) -> Plan:
    """Return the plan of a traced call.

    Args:
        name: The program.
        link: What was asked for.
        drawn: What was decided.
        job: The traced call.
        executables: Gets the executables, in the order of the parts.
    """
    program = job.program
    if isinstance(drawn, Whole):
        digest, reason = _whole_identity(job)
        work = Estimator().of_jaxpr(program.closed_jaxpr)
        part = Part(
            name=name,
            kind="unit",
            digest=digest,
            reason=reason,
            nr_calls=1,
            nr_equations=work.nr_equations,
            flops=work.flops,
            seconds=work.seconds,
            in_avals=tuple(map(aval_text, program.in_avals)),
            out_avals=tuple(map(aval_text, program.out_avals)),
            nr_donated=sum(program.donated),
        )
        return Plan(name, link, drawn.reason, [part], 1, program, None, executables)
    layout = drawn.layout
    nr_calls = Counter(call.unit for call in layout.calls)
    parts = [
        Part(
            name=unit.name,
            kind=unit.kind,
            digest=unit.digest,
            reason=unit.reason,
            nr_calls=nr_calls[n],
            nr_equations=unit.nr_equations,
            flops=unit.flops,
            seconds=unit.seconds,
            in_avals=tuple([aval_text(var.aval) for var in segment.invars]),
            out_avals=tuple([aval_text(atom.aval) for atom in segment.results]),
            nr_donated=sum(unit.donated),
        )
        for n, (unit, segment) in enumerate(zip(layout.units, drawn.segments, strict=True))
    ]
    peak = peak_bytes(layout, drawn.segments, drawn.consts, program.in_avals)
    return Plan(name, link, drawn.reason, parts, len(layout.calls), program, peak, executables)


def _whole_identity(job: TracedJob) -> tuple[str, str]:
    """Return what one module is stored under, or why it can't be."""
    reason = job.why_not()
    if reason is None:
        try:
            return program_digest(job.program.closed_jaxpr, hoisted_consts=job.hoisted).digest, ""
        except KeyingError as error:
            reason = error.reason or str(error)
    return "", reason


def as_compiled(ready: Ready, traced: Any, plan: Plan) -> Any:
    """Return a linked program as JAX's own compiled stage."""
    program = tracing.open_traced(traced)
    executable = LinkedExecutable(
        ready.linked.run, ready.executables, program.in_avals, program.out_avals, program.debug_info, ready.device,
        plan.memory_analysis, plan.cost_analysis,
    )  # fmt: skip
    return stage_of(executable, traced)


def peak_bytes(layout: Layout, segments: Sequence[Segment], consts: Sequence[Any], in_avals: Sequence[Any]) -> int:
    """Return the most bytes that registers hold at once."""
    sizes: dict[int, int] = {n: pieces.aval_bytes(tracing.aval_of(const)) for n, const in enumerate(consts)}
    sizes.update({len(consts) + n: pieces.aval_bytes(aval) for n, aval in enumerate(in_avals)})
    alive = peak = sum(sizes.values())
    for call in layout.calls:
        for n, atom in enumerate(segments[call.unit].results):
            sizes[call.first + n] = pieces.aval_bytes(atom.aval)
            alive += sizes[call.first + n]
        reused = sum(
            sizes[register]
            for register, is_donated in zip(call.reads, layout.units[call.unit].donated, strict=True)
            if is_donated
        )
        peak = max(peak, alive - reused)
        alive -= sum(sizes[register] for register in call.frees)
    return peak
