"""Children: fresh interpreters that run a program over `inside.py` and report."""

import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from textwrap import dedent
from types import SimpleNamespace

import pytest

HERE = Path(__file__).parent


class Report(SimpleNamespace):
    """What a child reported: its own values, `counters`, `seen` (the independent counts), `compiled`, `said`.

    Besides, `rc`, `stdout` and `stderr` of the process.
    """

    def agrees(self):
        """Say whether prejit's counters are what the independent listener counted."""
        return {name: self.counters[name] for name in self.seen} == self.seen


@pytest.fixture
def child(run_python):
    """Run a program in a fresh interpreter: `child(code, *args, env={...}, check=True)` -> Report.

    All children of one test share the store `tmp_path / "store"`.
    """

    def run(code, *args, env=None, check=True, timeout_s=200):
        path = os.pathsep.join(filter(None, [str(HERE), os.environ.get("PYTHONPATH")]))
        environment = {"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"} | (env or {})
        done = run_python(
            "from inside import *\n" + dedent(code), *args, env=environment, check=check, timeout_s=timeout_s
        )
        lines = [line for line in done.stdout.splitlines() if line.startswith("REPORT ")]
        values = json.loads(lines[-1].removeprefix("REPORT ")) if lines else {}
        assert lines or not check, f"the child reported nothing\n{done.stdout}\n{done.stderr}"
        return Report(rc=done.returncode, stdout=done.stdout, stderr=done.stderr, **values)

    return run


@pytest.fixture
def children(child):
    """Run one program in several fresh interpreters at once."""

    def run(code, *args, n, env=None):
        with ThreadPoolExecutor(n) as pool:
            return list(pool.map(lambda i: child(code, i, *args, env=env), range(n)))

    return run


@pytest.fixture
def store_files(tmp_path):
    """List the files of the test's store by what they are: `entry`, or the side directory that they lie in."""

    def listing():
        found = {}
        for path in (tmp_path / "store").rglob("*"):
            if path.is_file():
                found.setdefault("entry" if path.suffix == ".entry" else path.parent.name, []).append(path)
        return found

    return listing
