"""A component keeps its function's signature for pyright and for mypy.

`component.py` holds right calls with `assert_type` and wrong calls with an ignore each; both checkers report an ignore
that ignores nothing, so a wrong call that passes is an error too.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

CHECKED = Path(__file__).with_name("component.py")
ROOT = Path(__file__).parents[2]
SIGNATURES = {
    "plain": "(w: Array, x: Array, *, scale: float = 0.5)",
    "with_options": "(count: int, tree: dict[str, Array])",
    "applied": "(x: Array)",
}


def run(*command):
    return subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, cwd=ROOT, timeout=280, check=False
    )


@pytest.mark.slow
def test_pyright_sees_the_signature(tmp_path):
    pytest.importorskip("pyright")
    # pyright takes only files below its configuration.
    (tmp_path / CHECKED.name).write_text(CHECKED.read_text())
    settings = {
        "include": [CHECKED.name],
        "extraPaths": [str(ROOT / "src")],
        "pythonVersion": "3.11",
        "reportUnnecessaryTypeIgnoreComment": "error",
    }
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    done = run("-m", "pyright", "--outputjson", "--pythonpath", sys.executable, "-p", str(tmp_path))
    found = json.loads(done.stdout)["generalDiagnostics"]
    assert [one["message"] for one in found if one["severity"] == "error"] == []
    revealed = dict(re.findall(r'Type of "(\w+)" is "(.*)"', "\n".join(one["message"] for one in found)))
    assert revealed.keys() == SIGNATURES.keys()
    for name, signature in SIGNATURES.items():
        assert signature in revealed[name]


@pytest.mark.slow
def test_mypy_sees_the_signature(tmp_path):
    pytest.importorskip("mypy")
    options = ("--warn-unused-ignores", "--python-executable", sys.executable, f"--cache-dir={tmp_path}")
    done = run("-m", "mypy", *options, str(CHECKED))
    notes = [line for line in done.stdout.splitlines() if "Revealed type" in line]
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(notes) == len(SIGNATURES)
    for note, words in zip(notes, (("w:", "scale:"), ("count:", "tree:"), ("x:",)), strict=True):
        assert all(word in note for word in words)
