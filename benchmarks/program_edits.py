"""What a new process compiles after one line of the program was edited.

The model's source is copied, and one line of the copy is replaced where it lies. Every process starts with what a
process of the unedited source left in the caches.
"""

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

MODEL = Path(__file__).with_name("transformer.py")
PROGRAM = "adamw"
EDITS = {
    "nothing": ("", ""),
    "a comment": ("    x = x + attend(", "    # The first of two residual steps.\n    x = x + attend("),
    "layer": ("jax.nn.gelu(", "jax.nn.silu("),
    "optimizer": ("weight_decay=0.01", "weight_decay=0.02"),
}


class Runner(Protocol):
    """Run a job in a fresh process; None if it failed."""

    def run(self, **job: Any) -> dict[str, Any] | None: ...

    @property
    def link(self) -> str: ...


def edit(source: str, name: str) -> str:
    """Return the model's source after one edit.

    Raises:
        ValueError: The line to edit is not there, or not once.
    """
    before, after = EDITS[name]
    if before and source.count(before) != 1:
        raise ValueError(f"edit {name!r}: expected {before!r} once in the model, got it {source.count(before)} times")
    return source.replace(before, after) if before else source


def measure(runner: Runner, ways: Sequence[str], nr_layers: int) -> list[dict[str, Any]]:
    """Start each way after each edit; returns what was compiled."""
    rows: list[dict[str, Any]] = []
    for way in ways:
        with tempfile.TemporaryDirectory() as folder:
            source, caches, filled = (Path(folder) / name for name in ("transformer.py", "caches", "filled"))
            job = {"do": "start", "way": way, "program": PROGRAM, "nr_layers": nr_layers, "link": runner.link}
            job |= {"model_file": str(source), "only_start": True, "cache_dir": str(caches)}
            source.write_text(edit(MODEL.read_text(), "nothing"))
            first = runner.run(**job)
            if first is None:
                continue
            caches.rename(filled)
            rows.append(_row(way, nr_layers, "empty caches", first, None))
            for name in EDITS:
                source.write_text(edit(MODEL.read_text(), name))
                shutil.rmtree(caches, ignore_errors=True)
                shutil.copytree(filled, caches)  # to the same place: it is part of the keys of JAX's own cache
                result = runner.run(**job)
                if result is not None:
                    rows.append(_row(way, nr_layers, name, result, first))
    return rows


def _row(
    way: str, nr_layers: int, edited: str, result: Mapping[str, Any], first: Mapping[str, Any] | None
) -> dict[str, Any]:
    row = {
        "way": way,
        "layers": nr_layers,
        "edited": edited,
        "first result, s": f"{result['first_s']:.2f}",
        "compile, s": f"{result['compile_s']:.2f}",
        "compiled": result["nr_compiles"],
        "loaded": result["counters"].get("loads", result["nr_loads"]),
    }
    if "plan" in result:
        row["auto"] = "linked" if result["plan"]["linked"] else "one module"
        row["executables"] = len(result["plan"]["executables"])
        if first is not None and result["plan"]["linked"]:
            row |= judge(edited, first["plan"], result["plan"], result["nr_compiles"])
    return row | {"raw": result}


def judge(edited: str, before: Mapping[str, Any], after: Mapping[str, Any], nr_compiles: int) -> dict[str, Any]:
    """Say which executables an edit changed, and whether these and no others were compiled.

    After an edit of the optimizer, none of them may be a unit, for the units are the layers.
    """
    known = {part["digest"] for part in before["executables"] if part["digest"]}
    changed = [part for part in after["executables"] if part["digest"] not in known]
    holds = nr_compiles == len(changed) and (
        edited == "layer" or (edited == "optimizer" and all(part["kind"] != "unit" for part in changed)) or not changed
    )
    return {
        "changed": len(changed),
        "which": ", ".join(sorted(f"{part['name']} ({part['kind']})" for part in changed)),
        "only these compiled": "yes" if holds else "NO",
    }
