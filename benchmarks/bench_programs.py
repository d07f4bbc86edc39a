"""What starting a whole program costs: a transformer of many layers, each way in a fresh process.

Programs are the forward pass, value and gradient, and an AdamW step, of layers called in a Python loop. The ways:

- `jax.jit`: the layer is a plain Python function, the program one module.
- `jax.jit+marked`: the layer is an inner `jax.jit`.
- `jax.jit+cache`: the first, with JAX's persistent cache and no threshold.
- `prejit+component`, `prejit+inner`: `prejit.jit`, the layer marked by `prejit.component` or an inner `jax.jit`.
- `lax.scan`: the layers are stacked, which the user must write; the program is `jax.jit`'s.

Cold is from the call, with everything imported and parameters made, to the first result, with empty caches; warm is the
same in a new process with the caches that the cold start left. Steady steps are compared with `jax.jit`'s in pairs:
several ways in one process, taken in turns. Peak memory is of the whole start and of the steps alone.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import harness
import program_edits
import program_rows
from program_rows import CACHED, PLAIN, Row

WORKER = Path(__file__).with_name("program_worker.py")
MARKED, COMPONENT, INNER, SCAN = "jax.jit+marked", "prejit+component", "prejit+inner", "lax.scan"
WAYS = (PLAIN, MARKED, CACHED, COMPONENT, INNER, SCAN)
WITH_CACHE = (CACHED, COMPONENT, INNER)
SIDE_BY_SIDE = (PLAIN, COMPONENT, INNER)
PROGRAMS = (
    "forward", "value_and_grad", "adamw", "value_and_grad-rms", "adamw-rms", "forward-rms", "value_and_grad-centred",
)  # fmt: skip
LAYERS = (6, 12, 24, 48, 96)
LINKS = ("auto", "inline", "outline", "separate")

# One module of 48 unrolled layers takes XLA many minutes, and one of 96 up to 19 GB.
WHOLE_MODULE, MAX_WHOLE_LAYERS = (PLAIN, MARKED, CACHED), 24
RULE = f"not run: {', '.join(WHOLE_MODULE)} above {MAX_WHOLE_LAYERS} layers, which take XLA many minutes each"
BUSY = 1.5  # load per core that is more than one process of ours
# Nothing of the user's own settings gets into a measurement.
NEUTRAL = ("PREJIT_", "JAX_COMPILATION_CACHE", "JAX_PERSISTENT_CACHE", "JAX_ENABLE_COMPILATION_CACHE")


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _add_options(parser: argparse.ArgumentParser) -> None:
    def several(*known: str) -> Any:
        def read(text: str) -> list[str]:
            words = _words(text)
            unknown = [word for word in words if word not in known]
            if unknown:
                raise argparse.ArgumentTypeError(f"expected some of {', '.join(known)}, got {', '.join(unknown)}")
            return words

        return read

    parser.add_argument("--layers", type=lambda text: [int(word) for word in _words(text)], metavar="6,12,24")
    parser.add_argument("--programs", type=several(*PROGRAMS), metavar="forward,adamw", help=", ".join(PROGRAMS))
    parser.add_argument("--ways", type=several(*WAYS), metavar="jax.jit,lax.scan", help=", ".join(WAYS))
    parser.add_argument("--rounds", type=int, help="fresh processes for each way (3)")
    parser.add_argument("--link", default="auto", choices=LINKS, help="link= of prejit.jit (auto)")
    parser.add_argument("--timeout", type=float, default=1800, metavar="S", help="longest time for one process (1800)")
    parser.add_argument("--edits", action="store_true", help="what a one-line edit compiles, and nothing else")


class Bench:
    """Run the processes of one benchmark."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.ways: Sequence[str] = options.ways or WAYS
        self.programs: Sequence[str] = options.programs or (PROGRAMS[1:3] if options.quick else PROGRAMS[:4])
        self.layers: Sequence[int] = options.layers or ((3,) if options.quick else LAYERS)
        self.rounds: int = options.rounds or (1 if options.quick else 3)
        self.pair_rounds = 5 if options.quick else 30
        self.nr_steps = 5 if options.quick else None
        self.link: str = options.link
        self.timeout_s: float = options.timeout
        self.failures: list[str] = []
        self.load = 0.0

    def run(self, **job: Any) -> dict[str, Any] | None:
        """Run one process; what fails is told and left out."""
        begin = time.perf_counter()
        try:
            result = harness.run_fresh(WORKER, job, timeout_s=self.timeout_s, without=NEUTRAL)
        except harness.JobFailedError as error:
            print(error, file=sys.stderr)
            self.failures.append(str(error).splitlines()[-1])
            return None
        told = {name: value for name, value in job.items() if name in ("do", "way", "program", "nr_layers")}
        self.load = max(self.load, os.getloadavg()[0])
        print(*told.values(), f"{time.perf_counter() - begin:.0f} s", sep="  ", file=sys.stderr, flush=True)
        return result

    def tell(self) -> None:
        """Print what failed, and whether the machine did other work too."""
        for failure in self.failures:
            print(f"failed: {failure}")
        if self.load > BUSY * (os.cpu_count() or 1):
            print(f"load average up to {self.load:.1f}: other work ran beside this, so only ratios of CPU time count")

    def measure(self, program: str, nr_layers: int) -> tuple[list[Row], dict[str, Any]]:
        """Measure every way of one program, interleaved; returns rows and all numbers."""
        ways = [way for way in self.ways if nr_layers <= MAX_WHOLE_LAYERS or way not in WHOLE_MODULE]
        seen: dict[str, dict[str, list[Any]]] = {way: {"cold": [], "warm": []} for way in ways}
        pairs: list[Any] = []
        failed: set[str] = set()
        for round_ in range(self.rounds):
            turn = round_ % len(ways)
            for way in ways[turn:] + ways[:turn]:
                if way not in failed and not self._start(way, program, nr_layers, seen[way]):
                    failed.add(way)  # the rounds pair what ran in all of them
            together = [way for way in SIDE_BY_SIDE if way in ways and way not in failed]
            if PLAIN in together and len(together) > 1:
                pair = self._side_by_side(together, program, nr_layers)
                pairs += [pair] if pair else []
        rows = [program_rows.make_row(program, nr_layers, way, seen, pairs) for way in ways]
        for row in rows:
            if row["way"] in failed:
                row["note"] = "failed"
        rows += [
            {"program": program, "layers": nr_layers, "way": way, "note": "not run"}
            for way in self.ways
            if way not in ways
        ]
        return rows, {"starts": seen, "side_by_side": pairs}

    def _start(self, way: str, program: str, nr_layers: int, into: dict[str, list[Any]]) -> bool:
        with tempfile.TemporaryDirectory() as folder:
            for state in ("cold", "warm") if way in WITH_CACHE else ("cold",):
                result = self.run(
                    do="start", way=way, program=program, nr_layers=nr_layers, cache_dir=folder, link=self.link,
                    nr_steps=self.nr_steps,
                )  # fmt: skip
                if result is None:
                    return False
                into[state].append(result)
        return True

    def _side_by_side(self, ways: Sequence[str], program: str, nr_layers: int) -> dict[str, Any] | None:
        with tempfile.TemporaryDirectory() as folder:
            return self.run(
                do="side_by_side", ways=list(ways), program=program, nr_layers=nr_layers, cache_dir=folder,
                link=self.link, rounds=self.pair_rounds,
            )  # fmt: skip


# -- what is printed --------------------------------------------------------------------------------------------------


def _number(name: str, factor: float = 1, digits: int = 2) -> Any:
    def show(row: Row) -> str:
        value = row.get(name)
        return "" if value is None else f"{value * factor:.{digits}f}"

    return show


def _text(name: str) -> Any:
    return lambda row: str(row.get(name, ""))


def _worst(row: Row) -> str:
    differences = row.get("differences")
    return f"{max(differences.values()):.1e}" if differences else ""


def _linked(row: Row) -> str:
    return "" if "linked" not in row else "linked" if row["linked"] else "one module"


_WHICH = {"program": _text("program"), "layers": _text("layers"), "way": _text("way"), "": _text("note")}
STARTS = _WHICH | {
    "cold, s": _number("cold_first_s"),
    "to jax.jit": _text("cold_to_jit"),
    "trace": _number("cold_trace_s"),
    "lower": _number("cold_lower_s"),
    "compile": _number("cold_compile_s"),
    "warm, s": _number("warm_first_s"),
    "to cache": _text("warm_to_cache"),
    "trace, warm": _number("warm_trace_s"),
    "rest, warm": _number("warm_without_tracing_s"),
    "auto": _linked,
    "executables": _text("executables"),
    "calls": _text("calls"),
}
STEPS = _WHICH | {
    "step, ms": _number("cold_step_s", 1e3, 1),
    "to jax.jit, in pairs": _text("step_to_jit"),
    "CPU, in pairs": _text("step_cpu_to_jit"),
    "by process": _text("step_to_jit_by_process"),
    "peak, MiB": _number("cold_start_peak_mib", digits=0),
    "to jax.jit": _text("start_peak_to_jit"),
    "peak of steps": _number("cold_steps_peak_mib", digits=0),
    "steps to jax.jit": _text("steps_peak_to_jit"),
    "differs by": _worst,
}


def _print(title: str, rows: Sequence[Row], columns: dict[str, Any]) -> None:
    shown = [{name: show(row) for name, show in columns.items()} for row in rows]
    harness.print_table(title, shown, list(columns))


def main() -> None:
    options = harness.parse_arguments(__doc__, _add_options)
    bench = Bench(options)
    if options.edits:
        edited = program_edits.measure(bench, [way for way in bench.ways if way in WITH_CACHE], bench.layers[-1])
        columns = list(dict.fromkeys(name for row in edited for name in row if name != "raw"))
        harness.print_table("AdamW step, new process after a one-line edit", edited, columns)
        bench.tell()
        harness.write_json("program edits", edited, to=options.json)
        return
    rows: list[Row] = []
    raw: dict[str, Any] = {}
    for nr_layers in bench.layers:
        for program in bench.programs:
            found, raw[f"{program}, {nr_layers} layers"] = bench.measure(program, nr_layers)
            rows += found
    checks = program_rows.check(rows)
    _print(f"Starts (seconds, medians of {bench.rounds}; [95 % bounds] of ratios)", rows, STARTS)
    _print("Steady steps, peak resident memory, largest relative difference to jax.jit in norm", rows, STEPS)
    print(f"\n{RULE}")
    harness.print_table("Must hold", checks, ["way", "what", "measured", "at most", "holds"])
    bench.tell()
    harness.write_json("programs", rows, to=options.json, raw={"checks": checks, "load": bench.load, "runs": raw})


if __name__ == "__main__":
    main()
