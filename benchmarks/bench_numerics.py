"""How far the results of linked programs are from those of `jax.jit`: values, not times.

Every program runs in three ways: `jax.jit` with the parts as plain Python functions, `jax.jit` with the parts marked as
inner `jax.jit` calls, and `prejit.jit(link="separate")` with the same marks. The linked program is compared with the
second, which is the same program in one module: what differs there comes from cutting it. `marking` is how far the
second is from the first, which has nothing to do with prejit. The last two columns say how far both are from the same
program in float64.

- `equal`: elements that are the same to the last bit.
- `norm`: norm of the difference, all results as one vector, relative to that of the result.
- `of largest`: largest difference of an element, relative to the largest element of its array.
- `of element`: the same relative to the element itself; elements near zero decide.
"""

import argparse
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import harness
import numerics_programs
import prejit
from numerics_programs import Program

TYPES = {"float32": jnp.float32, "bfloat16": jnp.bfloat16}
COLUMNS = (
    "program", "type", "executables", "calls", "equal", "norm", "of largest", "of element", "marking",
    "jax.jit to float64", "linked to float64",
)  # fmt: skip

Arrays = list[np.ndarray]


def main() -> None:
    options = harness.parse_arguments(__doc__, _add_options)
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        # Importing prejit backs every jax.jit by its store: here the others compile by themselves.
        prejit.configure(cache_dir=folder, eager_cache=False, progress="off")
        for program in numerics_programs.all_programs():
            if options.only not in program.name or (options.quick and "transformer" in program.name):
                continue
            rows += [measure(program, name, dtype) for name, dtype in TYPES.items()]
    shown = [{name: _text(name, row) for name in COLUMNS} for row in rows]
    harness.print_table("linked programs compared with jax.jit", shown, COLUMNS)
    for name in TYPES:
        _print_worst([row for row in rows if row["type"] == name])
    harness.write_json("numerics", rows, to=options.json)


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", default="", metavar="TEXT", help="programs whose name has this in it")


def measure(program: Program, type_name: str, dtype: Any) -> dict[str, Any]:
    """Run a program in all ways and compare."""
    args = numerics_programs.in_type(program.args, dtype)
    marked = program.make(jax.jit)
    linked = prejit.jit(marked, link="separate")
    plan = linked.plan(*args)
    found = _run(linked, args, program.nr_steps)
    expected = _run(jax.jit(marked), args, program.nr_steps)
    unmarked = _run(jax.jit(program.make(_unmarked)), args, program.nr_steps)
    with jax.enable_x64(True):
        exact_args = numerics_programs.in_type(args, jnp.float64)
        exact = _run(jax.jit(program.make(_unmarked)), exact_args, program.nr_steps)
    return {
        "program": program.name,
        "type": type_name,
        "executables": len(plan.parts) if plan.is_linked else "one module",
        "calls": plan.calls,
        "unequal": _unequal(found, expected),
        "norm": _norm_wise(found, expected),
        "of largest": max(map(_of_largest, found, expected)),
        "of element": max(map(_of_element, found, expected)),
        "marking": _norm_wise(expected, unmarked),
        "jax.jit to float64": _norm_wise(expected, exact),
        "linked to float64": _norm_wise(found, exact),
    }


def _unmarked(function: Callable[..., Any]) -> Callable[..., Any]:
    return function


def _run(function: Callable[..., Any], args: tuple[Any, ...], nr_steps: int) -> Arrays:
    out = function(*args)
    for _ in range(nr_steps - 1):
        args = (*out[:2], *args[2:])
        out = function(*args)
    return [np.asarray(leaf).astype(np.float64) for leaf in jax.tree.leaves(out)]


# -- measures ---------------------------------------------------------------------------------------------------------


def _unequal(found: Arrays, expected: Arrays) -> float:
    nr_unequal = sum(int(np.count_nonzero(a != b)) for a, b in zip(found, expected, strict=True))
    return nr_unequal / sum(a.size for a in expected)


def _norm_wise(found: Arrays, expected: Arrays) -> float:
    one, other = (np.concatenate([np.ravel(leaf) for leaf in leaves]) for leaves in (found, expected))
    return _quotient(float(np.linalg.norm(one - other)), float(np.linalg.norm(other)))


def _of_largest(found: np.ndarray, expected: np.ndarray) -> float:
    return _quotient(float(np.max(np.abs(found - expected))), float(np.max(np.abs(expected))))


def _of_element(found: np.ndarray, expected: np.ndarray) -> float:
    differs = found != expected
    if not differs.any():
        return 0.0
    with np.errstate(divide="ignore"):
        return float(np.max(np.abs(found - expected)[differs] / np.abs(expected[differs])))


def _quotient(above: float, below: float) -> float:
    return 0.0 if above == 0 else above / below if below else float("inf")


# -- what is printed --------------------------------------------------------------------------------------------------


def _text(name: str, row: dict[str, Any]) -> str:
    if name == "equal":
        share = f"{1 - row['unequal']:.1%}"
        return "all" if row["unequal"] == 0 else "> 99.9%" if share == "100.0%" else share
    value = row[name]
    return ("0" if value == 0 else f"{value:.1e}") if isinstance(value, float) else str(value)


def _print_worst(rows: Sequence[dict[str, Any]]) -> None:
    if not rows:
        return
    nr_equal = sum(row["unequal"] == 0 for row in rows)
    print(f"\n{rows[0]['type']}: {nr_equal} of {len(rows)} programs are equal to the last bit")
    for name in ("norm", "of largest", "of element"):
        worst = max(rows, key=lambda row: row[name])
        print(f"  worst by {name}: {worst[name]:.1e}, {worst['program']}")


if __name__ == "__main__":
    main()
