"""Run every case program in its own process with its own scratch directory and store."""

import contextlib
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import prejit

HERE = Path(__file__).parent
PROGRAMS = sorted((HERE / "programs").glob("case_*.py"))
WAITS = 77
IS_EXPORTED = hasattr(prejit, "export")


def kind(path):
    """Say how much of a program runs now: `now` (all of it), `partly` or `waits`, from where needs_export() stands."""
    code = path.read_text().split('"""', 2)[2]
    before, found, _ = code.partition("\nneeds_export()")
    if not found:
        return "now"
    statements = [
        line for line in before.splitlines() if line.strip() and not line.startswith(("import ", "from ", "#"))
    ]
    return "partly" if statements else "waits"


def run(path, tmp_path, part):
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, [str(HERE), os.environ.get("PYTHONPATH")])),
        "PYTHONDONTWRITEBYTECODE": "1",
        "CASES_SCRATCH": str(tmp_path),
        "CASES_CACHE": str(tmp_path / "cache"),
        "CASES_PART": part,
    }
    process = subprocess.Popen(
        [sys.executable, str(path)],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        start_new_session=True,
    )
    try:
        out, err = process.communicate(timeout=280)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return process.returncode, f"exit code {process.returncode}\n{out}\n{err}"


@pytest.mark.parametrize("path", [path for path in PROGRAMS if kind(path) != "waits"], ids=lambda path: path.stem)
def test_case(path, tmp_path):
    code, report = run(path, tmp_path, "components")
    assert code == (0 if kind(path) == "now" else WAITS), report


@pytest.mark.skipif(not IS_EXPORTED, reason="waits for prejit.export")
@pytest.mark.parametrize("path", [path for path in PROGRAMS if kind(path) != "now"], ids=lambda path: path.stem)
def test_case_about_artifacts(path, tmp_path):
    code, report = run(path, tmp_path, "all")
    assert code == 0, report


def test_a_program_that_fails_is_seen(tmp_path):
    path = tmp_path / "case_000_fails.py"
    path.write_text("from shim import component\n\nassert float(component(lambda x: x * 2)(1.0)) == 3.0\n")
    code, report = run(path, tmp_path, "components")
    assert code == 1
    assert "AssertionError" in report


def test_the_table_says_what_runs():
    table = re.findall(r"^\| (\d+) \|.*\| (now|partly|waits) \|$", (HERE / "README.md").read_text(), re.MULTILINE)
    assert [(int(number), word) for number, word in table] == [
        (int(path.stem.split("_")[1]), kind(path)) for path in PROGRAMS
    ]
    assert len(PROGRAMS) == 65
