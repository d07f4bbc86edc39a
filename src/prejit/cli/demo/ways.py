"""The ways to start a program that the demo compares, each run in a process of its own."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from prejit.cli.demo.sizes import Size
from prejit.cli.demo.worker import Job, Mark, Run

RUN_TIMEOUT_S = 600.0
LOSS_TOLERANCE = 1e-2
"""Relative, on any step. Ways may differ in the last bits, and training carries a difference on."""


# Runs the worker without running prejit's own __init__, which the ways of plain JAX are not to pay for, nor to be
# changed by.
_START_WITHOUT_PREJIT = """
import runpy, sys, types
package = types.ModuleType("prejit")
package.__path__ = [sys.argv.pop(1)]
sys.modules["prejit"] = package
runpy.run_module("prejit.cli.demo.worker", run_name="__main__", alter_sys=True)
"""


class DemoFailed(RuntimeError):
    """A way's process ended without a result, or the ways disagree."""


@dataclass(frozen=True, slots=True)
class Way:
    """One way to start the program.

    Attributes:
        name: For people and for JSON.
        mark: How the functions are marked.
        cache: Name of the cache that it uses; ways of one cache run in order and share it. None: no cache.
        keeps_all: Whether JAX's cache keeps every module, and not only what took a second to compile.
        is_shown: Whether it is a row of the table; a run that only fills a cache is not.
    """

    name: str
    mark: Mark
    cache: str | None
    keeps_all: bool = False
    is_shown: bool = True


WAYS = (
    Way("jax.jit, no cache", "jax", None),
    Way("jax.jit, filling JAX's cache", "jax", "jax", is_shown=False),
    Way("jax.jit, JAX's cache filled", "jax", "jax"),
    Way("jax.jit, filling it, no threshold", "jax", "jax all", keeps_all=True, is_shown=False),
    Way("jax.jit, JAX's cache, no threshold", "jax", "jax all", keeps_all=True),
    Way("prejit, empty store", "prejit", "prejit"),
    Way("prejit, filled store", "prejit", "prejit"),
)


def run_ways(size: Size, folder: Path, on_start: Callable[[Way], None]) -> dict[Way, Run]:
    """Run every way, one after another.

    Args:
        size: What to train.
        folder: An empty directory for the caches.
        on_start: Told of each way before it runs.

    Returns:
        The runs in the order of `WAYS`.

    Raises:
        DemoFailed: A process failed; the message holds the end of what it wrote.
    """
    runs: dict[Way, Run] = {}
    for way in WAYS:
        on_start(way)
        runs[way] = _run_way(way, size, folder)
    return runs


def start_command(mark: Mark, job: str) -> list[str]:
    """Return the command of a worker's process; the ways of plain JAX start it without importing prejit itself."""
    if mark == "jax":
        return [sys.executable, "-c", _START_WITHOUT_PREJIT, str(Path(__file__).parents[2]), job]
    return [sys.executable, "-m", "prejit.cli.demo.worker", job]


def child_environment(parent: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a worker: the user's, without what would give one way the cache of another."""
    foreign = ("PREJIT_", "JAX_COMPILATION_CACHE", "JAX_PERSISTENT_CACHE")
    return {name: value for name, value in parent.items() if not name.startswith(foreign)}


def largest_loss_difference(runs: Mapping[Way, Run]) -> float:
    """Return the largest relative difference of any step's loss between the first way and another."""
    losses = np.asarray([run.losses for run in runs.values()])
    # numpy's maximum, unlike Python's, lets a NaN through.
    return float(np.max(np.abs(losses - losses[0]) / np.abs(losses[0])))


def check_losses(runs: Mapping[Way, Run]) -> None:
    """Compare what the ways computed.

    Raises:
        DemoFailed: A loss is not a number, or differs between two ways by more than `LOSS_TOLERANCE`.
    """
    difference = largest_loss_difference(runs)
    if not difference <= LOSS_TOLERANCE:
        finals = ", ".join(f"{way.name}: {run.losses[-1]:.4f}" for way, run in runs.items())
        raise DemoFailed(
            f"comparing losses: expected a relative difference of at most {LOSS_TOLERANCE:.0e}, got {difference:.1e} "
            f"(last losses {finals})"
        )


def _run_way(way: Way, size: Size, folder: Path) -> Run:
    cache_dir = None
    if way.cache is not None:
        cache_dir = folder / way.cache
        cache_dir.mkdir(mode=0o700, exist_ok=True)
    job = Job(
        mark=way.mark,
        cache_dir=None if cache_dir is None else str(cache_dir),
        keeps_all=way.keeps_all,
        size=size.to_dict(),
        started_s=time.monotonic(),
    )
    command = start_command(way.mark, json.dumps(asdict(job)))
    try:
        done = subprocess.run(
            command,
            env=child_environment(os.environ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=RUN_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise DemoFailed(f"running {way.name!r}: expected a result within {RUN_TIMEOUT_S:.0f} s, got none") from error
    if done.returncode != 0:
        raise DemoFailed(
            f"running {way.name!r}: expected exit code 0, got {done.returncode}\n{done.stderr[-3000:].rstrip()}"
        )
    return Run(**json.loads(done.stdout.splitlines()[-1]))
