"""Pytest plugin of `jax_tests.py`: replaces `jax.jit` in the workers, and writes down what happens to each test.

Pytest loads it by name (`-p`), in the controller of pytest-xdist and in each of its workers, before any test module or
conftest of the checkout is imported. It is told what to do by three variables:

- `JAX_TESTS_LOG`: directory of the records; the controller appends one JSON object a line to `events.jsonl`, each
  worker leaves the Python stack of its crash in a file of its own.
- `JAX_TESTS_REPLACEMENT`: `module:name` of what stands in for `jax.jit`; empty leaves JAX as it is.
- `JAX_TESTS_EVERYWHERE`: set if JAX itself and the replacement's own package get the replacement too.
- `JAX_TESTS_TIMEOUT_S`: after this long, and some grace, a worker that does not come back from a test is ended.
"""

import contextlib
import faulthandler
import functools
import importlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import pytest

# pytest-timeout gets a chance first: it can only interrupt Python, but then the worker lives on.
_GRACE_FACTOR = 1.25
_LONGEST_TEXT = 20_000


def replace_jit(spec: str, *, everywhere: bool = False) -> None:
    """Put what `module:name` names in the place of `jax.jit`.

    Tests reach it as `jax.jit`, `from jax import jit` and `jax._src.api.jit`. So do JAX's own modules, some of them
    only when they are called or imported late: these get the original, as they do for a user who writes `prejit.jit`
    in the place of `jax.jit`. So does the replacement's own package. JAX's `test_util` belongs to the tests.

    Args:
        spec: What is put there.
        everywhere: Spare nobody: what a plain assignment to `jax.jit` does.
    """
    import jax
    import jax._src.api

    module, _, name = spec.partition(":")
    replacement: Callable[..., Any] = getattr(importlib.import_module(module), name)
    original = jax.jit
    spared = ("jax", module.partition(".")[0])

    @functools.wraps(replacement)
    def jit(*args: Any, **kwargs: Any) -> Any:
        caller: str = sys._getframe(1).f_globals.get("__name__", "")
        is_spared = caller.partition(".")[0] in spared and caller != "jax._src.test_util"
        return original(*args, **kwargs) if is_spared else replacement(*args, **kwargs)

    jax.jit = jax._src.api.jit = replacement if everywhere else jit


class Worker:
    """What happens in a process that runs tests: the replacement, and a trace of the process' end."""

    def __init__(self, config: pytest.Config, directory: Path) -> None:
        name: str = config.workerinput["workerid"]  # type: ignore[attr-defined]  # pytest-xdist sets it
        # Open as long as the process lives: it is written from a signal handler.
        self._stacks: IO[str] = (directory / f"stacks-{name}.txt").open("w", encoding="utf-8")
        faulthandler.enable(self._stacks)
        self._limit_s = float(os.environ["JAX_TESTS_TIMEOUT_S"]) * _GRACE_FACTOR
        if spec := os.environ.get("JAX_TESTS_REPLACEMENT"):
            replace_jit(spec, everywhere=bool(os.environ.get("JAX_TESTS_EVERYWHERE")))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self) -> Iterator[None]:
        # A thread of C: it also ends a worker that hangs in native code with the interpreter's lock held.
        faulthandler.dump_traceback_later(self._limit_s, exit=True, file=self._stacks)
        try:
            return (yield)
        finally:
            faulthandler.cancel_dump_traceback_later()


class Recorder:
    """What the controller writes down."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._events: IO[str] = (directory / "events.jsonl").open("a", encoding="utf-8")
        self._has_collected = False

    def _write(self, event: str, **fields: Any) -> None:
        # Flushed line by line: the last line has to be there when this process does not end by itself.
        self._events.write(json.dumps({"event": event, "time_s": time.time(), **fields}) + "\n")
        self._events.flush()

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        # pytest-xdist itself refuses to run when its workers disagree.
        if not self._has_collected:
            self._has_collected = True
            self._write("collected", ids=list(ids))

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._write("uncollected", id=report.nodeid, text=str(report.longrepr)[-_LONGEST_TEXT:])

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._write("started", id=nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "???":  # pytest-xdist's report of a crash: written below, with the stack
            return
        self._write(
            "report",
            id=report.nodeid,
            when=report.when,
            # An expected failure says nothing about the replacement, as little as a skip does.
            outcome="skipped" if hasattr(report, "wasxfail") and report.skipped else report.outcome,
            message=_message(report) if report.failed else "",
            text=report.longreprtext[-_LONGEST_TEXT:] if report.failed else "",
        )

    @pytest.hookimpl(optionalhook=True)
    def pytest_handlecrashitem(self, crashitem: str, report: pytest.TestReport) -> None:
        worker: str = report.node.gateway.id  # type: ignore[attr-defined]  # pytest-xdist sets it
        stacks = ""
        with contextlib.suppress(OSError):
            stacks = (self._directory / f"stacks-{worker}.txt").read_text(encoding="utf-8", errors="replace")
        self._write("crashed", id=crashitem, text=stacks[:_LONGEST_TEXT])

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        self._write("finished", status=int(exitstatus))


def _message(report: pytest.TestReport) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    return str(crash.message) if crash is not None else report.longreprtext.strip().rpartition("\n")[2]


def pytest_configure(config: pytest.Config) -> None:
    directory = Path(os.environ["JAX_TESTS_LOG"])
    plugin = Worker(config, directory) if hasattr(config, "workerinput") else Recorder(directory)
    config.pluginmanager.register(plugin, "jax_tests")
