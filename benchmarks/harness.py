"""What the benchmarks share: interleaved pairs, medians with bootstrap bounds, fresh processes, one form of output.

Ratios within one run are the result; times from two runs are never compared.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

RESAMPLES = 2000


@dataclass(frozen=True)
class Ratio:
    """A median of paired ratios; `low` and `high` bound it with 95 % confidence."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.median:.2f} [{self.low:.2f}, {self.high:.2f}]"


def compare(numerators: Sequence[float], denominators: Sequence[float]) -> Ratio:
    """Return the median ratio of pairs that were measured next to each other, with bootstrap bounds."""
    ratios = np.asarray(numerators) / np.asarray(denominators)
    picks = np.random.default_rng(0).integers(0, len(ratios), size=(RESAMPLES, len(ratios)))
    low, high = np.quantile(np.median(ratios[picks], axis=1), (0.025, 0.975))
    return Ratio(float(np.median(ratios)), float(low), float(high))


def compare_nested(numerators: Sequence[Sequence[float]], denominators: Sequence[Sequence[float]]) -> Ratio:
    """Return the median ratio of pairs from several processes.

    Pairs of one process share its memory layout and its moment, so the bounds draw processes first and pairs of the
    drawn processes then.
    """
    processes = [np.asarray(above) / np.asarray(below) for above, below in zip(numerators, denominators, strict=True)]
    rng = np.random.default_rng(0)
    medians: list[float] = []
    for _ in range(RESAMPLES):
        drawn = [processes[place] for place in rng.integers(0, len(processes), len(processes))]
        medians.append(float(np.median(np.concatenate([rng.choice(ratios, len(ratios)) for ratios in drawn]))))
    low, high = np.quantile(medians, (0.025, 0.975))
    return Ratio(float(np.median(np.concatenate(processes))), float(low), float(high))


def time_interleaved(ways: Mapping[str, Callable[[], Any]], *, rounds: int, calls: int) -> dict[str, list[float]]:
    """Time every way in each round, in an order that turns, so that a slow moment hits all of them.

    Returns:
        Seconds per call, one number for each round, by way.
    """
    names = list(ways)
    for way in ways.values():
        for _ in range(calls):
            way()
    times: dict[str, list[float]] = {name: [] for name in names}
    for round_ in range(rounds):
        turn = round_ % len(names)
        for name in names[turn:] + names[:turn]:
            way = ways[name]
            begin = time.perf_counter()
            for _ in range(calls):
                way()
            times[name].append((time.perf_counter() - begin) / calls)
    return times


class JobFailedError(SystemExit):
    """End the benchmark with the end of what a fresh process said, unless the caller goes on without it."""


def run_fresh(
    script: Path, job: Mapping[str, Any], *, timeout_s: float = 900, without: tuple[str, ...] = ()
) -> dict[str, Any]:
    """Run `script --job JSON` in a new interpreter and return what it prints as JSON on its last line.

    Args:
        script: What to run.
        job: Its work.
        timeout_s: Longest time that it may take.
        without: Environment variables that begin so are not handed on.

    Raises:
        JobFailedError: It failed or took too long; the message has its last lines.
    """
    command = [sys.executable, str(script), "--job", json.dumps(job)]
    env = {name: value for name, value in os.environ.items() if not name.startswith(without)}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False, env=env)
    except subprocess.TimeoutExpired:
        raise JobFailedError(f"{script.name} took more than {timeout_s:.0f} s on {job}") from None
    if done.returncode != 0:
        raise JobFailedError(f"{script.name} failed on {job}:\n{done.stderr[-3000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def parse_arguments(
    description: str | None, add_options: Callable[[argparse.ArgumentParser], None] | None = None
) -> argparse.Namespace:
    """Read the options that all benchmarks have, and those that one adds."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all numbers there too")
    parser.add_argument("--quick", action="store_true", help="few rounds, to see that it runs")
    parser.add_argument("--job", type=json.loads, help=argparse.SUPPRESS)
    if add_options is not None:
        add_options(parser)
    return parser.parse_args()


def write_report(
    name: str, rows: Sequence[Mapping[str, Any]], columns: Sequence[str], *, to: Path | None, raw: Any = None
) -> None:
    """Print rows as a table and write them, with the machine's and the packages' versions, as JSON."""
    print_table(name, rows, columns)
    write_json(name, rows, to=to, raw=raw)


def print_table(title: str, rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> None:
    """Print rows as a table; what a row does not have stays empty."""
    table = [list(columns), *([str(row.get(column, "")) for column in columns] for row in rows)]
    widths = [max(len(line[place]) for line in table) for place in range(len(columns))]
    print(f"\n{title}")
    for line in table:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def write_json(name: str, rows: Sequence[Mapping[str, Any]], *, to: Path | None, raw: Any = None) -> None:
    """Write rows, with the machine's and the packages' versions, as JSON, if a file was asked for."""
    if to is None:
        return
    report = {
        "benchmark": name,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "packages": {package: version(package) for package in ("jax", "jaxlib", "numpy")},
        "rows": [dict(row) for row in rows],
        "raw": raw,
    }
    to.parent.mkdir(parents=True, exist_ok=True)
    to.write_text(json.dumps(report, indent=2, default=vars))


def milliseconds(times: Sequence[float]) -> str:
    return f"{statistics.median(times) * 1e3:.1f}"


def microseconds(times: Sequence[float]) -> str:
    return f"{statistics.median(times) * 1e6:.1f}"
