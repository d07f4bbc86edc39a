"""Every example, and every Python block of the README, runs in two fresh processes; the second compiles nothing."""

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = {path.name: path.read_text() for path in sorted((ROOT / "examples").glob("*.py"))}
BLOCKS = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.DOTALL | re.MULTILINE)
CODES = SCRIPTS | {f"README.md {n}": block for n, block in enumerate(BLOCKS)}
ASK = "\nimport json, prejit; print(json.dumps(prejit.counters()))"


@pytest.mark.parametrize("code", CODES.values(), ids=CODES)
def test_the_second_process_compiles_nothing(run_python, code):
    first, second = (json.loads(run_python(code + ASK).stdout.splitlines()[-1]) for _ in range(2))
    assert first["compiles"] > 0
    assert (second["compiles"], second["misses"], second["eager_misses"]) == (0, 0, 0)
    assert second["loads"] > 0
