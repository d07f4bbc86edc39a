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
TABLE = (HERE / "README.md").read_text()
ROW = re.compile(
    r"^\| (\d+) \| ([^|]*) \|.*\| (now|partly|waits) \| (program|linked|as `jax.jit`|-|waits) \|$", re.MULTILINE
)
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


def number(path):
    return int(path.stem.split("_")[1])


def of_kind(*words):
    """Return the programs with these words in the last column, which says how they run with `prejit.jit`."""
    numbers = {int(row[0]) for row in ROW.findall(TABLE) if row[3] in words}
    return [path for path in PROGRAMS if number(path) in numbers]


def runs():
    """Return the ways in which programs run with `prejit.jit`; one JAX version is enough for what is about keys."""
    for path in of_kind("program", "linked"):
        marks = [] if path in of_kind("linked") else [pytest.mark.slow]
        yield pytest.param("program", path, id=f"program-{path.stem}", marks=marks)
    for path in of_kind("linked"):
        yield pytest.param("linked", path, id=f"linked-{path.stem}")


def run(path, tmp_path, part="components", way="component"):
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, [str(HERE), os.environ.get("PYTHONPATH")])),
        "PYTHONDONTWRITEBYTECODE": "1",
        "CASES_SCRATCH": str(tmp_path),
        "CASES_CACHE": str(tmp_path / "cache"),
        "CASES_PART": part,
        "CASES_WAY": way,
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
    code, report = run(path, tmp_path)
    assert code == (0 if kind(path) == "now" else WAITS), report


@pytest.mark.parametrize(("way", "path"), list(runs()))
def test_case_with_programs(way, path, tmp_path):
    code, report = run(path, tmp_path, way=way)
    assert code == (0 if kind(path) == "now" else WAITS), report


@pytest.mark.slow
@pytest.mark.parametrize("path", of_kind("as `jax.jit`"), ids=lambda path: path.stem)
def test_what_two_programs_of_one_function_share_is_as_in_jax(path, tmp_path):
    found = []
    for way in ("program", "jax"):
        scratch = tmp_path / way
        scratch.mkdir()
        code, report = run(path, scratch, way=way)
        assert code == 1
        found.append(re.search(r"line \d+, in <module>\n.*\n[^E]*AssertionError", report)[0])
    assert found[0] == found[1]


LINKED = """
import jax, jax.numpy as jnp
from shim import component
f = component(lambda x: (x * x).sum())
for function in (f, jax.grad(f), jax.jit(jax.vmap(f))):
    assert function.plan(jnp.ones((2, 3))).is_linked
assert jax.grad(f)(jnp.arange(3.0)).tolist() == [0.0, 2.0, 4.0]
"""


def test_what_links_is_linked(tmp_path):
    path = tmp_path / "case_000_linked.py"
    path.write_text(LINKED)
    code, report = run(path, tmp_path, way="linked")
    assert code == 0, report


def test_a_program_that_fails_is_seen(tmp_path):
    path = tmp_path / "case_000_fails.py"
    path.write_text("from shim import component\n\nassert float(component(lambda x: x * 2)(1.0)) == 3.0\n")
    code, report = run(path, tmp_path)
    assert code == 1
    assert "AssertionError" in report


def test_the_table_says_what_runs():
    rows = ROW.findall(TABLE)
    assert [(int(row[0]), row[2]) for row in rows] == [(number(path), kind(path)) for path in PROGRAMS]
    assert len(PROGRAMS) == 65
    assert all((row[2] == "waits") == (row[3] == "waits") for row in rows)
    assert {row[3] for row in rows if row[1] in ("Transformations", "Devices and sharding")} <= {
        "program",
        "linked",
        "waits",
    }
