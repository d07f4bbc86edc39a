"""Components and programs keep their function's signature for pyright and for mypy.

The files next to this one hold right calls with `assert_type` and wrong calls with an ignore each; both checkers report
an ignore that ignores nothing, so a wrong call that passes is an error too.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
# What pyright reveals, and the words of it that mypy has too.
SIGNATURES = {
    "component.py": {
        "plain": ("(w: Array, x: Array, *, scale: float = 0.5)", ("w:", "scale:")),
        "with_options": ("(count: int, tree: dict[str, Array])", ("count:", "tree:")),
        "applied": ("(x: Array)", ("x:",)),
    },
    "program.py": {
        "plain": ("(w: Array, x: Array, *, scale: float = 0.5)", ("w:", "scale:")),
        "with_parentheses": ("(x: Array)", ("x:",)),
        "with_options": ("(count: int, tree: dict[str, Array])", ("count:", "tree:")),
        "with_partial": ("(x: Array, count: int)", ()),
        "applied": ("(factor: float, x: Array)", ("factor:", "x:")),
        "of_partial": ("(x: Array)", ("list[",)),
        "of_component": ("(factor: float, x: Array)", ("factor:", "x:")),
        "method": ("(x: Array) -> Array", ("(x:",)),
    },
}


def run(*command):
    return subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, cwd=ROOT, timeout=280, check=False
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", SIGNATURES)
def test_pyright_sees_the_signature(tmp_path, name):
    pytest.importorskip("pyright")
    # pyright takes only files below its configuration.
    (tmp_path / name).write_text((HERE / name).read_text())
    settings = {
        "include": [name],
        "extraPaths": [str(ROOT / "src")],
        "pythonVersion": "3.11",
        "reportUnnecessaryTypeIgnoreComment": "error",
    }
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    done = run("-m", "pyright", "--outputjson", "--pythonpath", sys.executable, "-p", str(tmp_path))
    found = json.loads(done.stdout)["generalDiagnostics"]
    assert [one["message"] for one in found if one["severity"] == "error"] == []
    revealed = dict(re.findall(r'Type of "(\w+)" is "(.*)"', "\n".join(one["message"] for one in found)))
    assert revealed.keys() == SIGNATURES[name].keys()
    for what, (signature, _) in SIGNATURES[name].items():
        assert signature in revealed[what]


@pytest.mark.slow
@pytest.mark.parametrize("name", SIGNATURES)
def test_mypy_sees_the_signature(tmp_path, name):
    pytest.importorskip("mypy")
    options = ("--warn-unused-ignores", "--python-executable", sys.executable, f"--cache-dir={tmp_path}")
    done = run("-m", "mypy", *options, str(HERE / name))
    notes = [line for line in done.stdout.splitlines() if "Revealed type" in line]
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(notes) == len(SIGNATURES[name])
    for note, (_, words) in zip(notes, SIGNATURES[name].values(), strict=True):
        assert all(word in note for word in words), note
