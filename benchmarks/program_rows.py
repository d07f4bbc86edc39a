"""From what the processes of `bench_programs` measured to rows, and from rows to whether it is good enough."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import harness

PLAIN, CACHED = "jax.jit", "jax.jit+cache"

Row = dict[str, Any]


def make_row(
    program: str, nr_layers: int, way: str, seen: Mapping[str, Mapping[str, Sequence[Any]]], pairs: Sequence[Any]
) -> Row:
    """Put together what was measured of one way.

    Args:
        program: Which program.
        nr_layers: How many layers.
        way: Which way.
        seen: By way, and by `cold` and `warm`, one result for each round.
        pairs: The side-by-side results, one for each round.

    Returns:
        Numbers in seconds and MiB; ratios are `harness.Ratio`, paired by round. What was not measured is not there.
    """
    cold, warm = seen[way]["cold"], seen[way]["warm"]
    plain = seen.get(PLAIN, {}).get("cold", [])
    row: Row = {"program": program, "layers": nr_layers, "way": way}
    for state, runs in (("cold", cold), ("warm", warm)):
        for name in ("first_s", "trace_s", "lower_s", "compile_s", "without_tracing_s", "start_peak_mib"):
            _put(row, f"{state}_{name}", [run[name] for run in runs])
        _put(row, f"{state}_nr_compiles", [run["nr_compiles"] for run in runs])
        for name in ("step_s", "steps_peak_mib"):
            _put(row, f"{state}_{name}", [run[name] for run in runs if run.get(name) is not None])
    _compare(row, "cold_to_jit", cold, plain, "first_s")
    _compare(row, "warm_to_cache", warm, seen.get(CACHED, {}).get("warm", []), "first_s")
    _compare(row, "step_to_jit_by_process", cold, plain, "step_s")
    _compare(row, "start_peak_to_jit", cold, plain, "start_peak_mib")
    _compare(row, "steps_peak_to_jit", cold, plain, "steps_peak_mib")
    found = [pair for pair in pairs if way in pair["steps_s"] and PLAIN in pair["steps_s"]]
    if found:
        steps = [pair["steps_s"] for pair in found]
        row["step_to_jit"] = harness.compare_nested([by[way] for by in steps], [by[PLAIN] for by in steps])
        cpu = [pair["steps_cpu_s"] for pair in found]
        row["step_cpu_to_jit"] = harness.compare_nested([by[way] for by in cpu], [by[PLAIN] for by in cpu])
        names = found[0]["differences"][way]
        row["differences"] = {name: max(pair["differences"][way][name] for pair in found) for name in names}
    if cold and "plan" in cold[0]:
        row |= summarize_plan(cold[0]["plan"])
    return row


def summarize_plan(plan: Mapping[str, Any]) -> Row:
    """Return what the benchmark says about a plan: is it linked, how many distinct executables, how many calls."""
    return {
        "linked": plan["linked"],
        "executables": len(plan["executables"]),
        "calls": plan["calls"],
    }


def _put(row: Row, name: str, values: Sequence[float]) -> None:
    if values:
        row[name] = statistics.median(values)


def _compare(row: Row, name: str, runs: Sequence[Any], others: Sequence[Any], field: str) -> None:
    pairs = [
        (run[field], other[field])
        for run, other in zip(runs, others, strict=False)
        if run.get(field) is not None and other.get(field) is not None
    ]
    if pairs:
        row[name] = harness.compare([run for run, _ in pairs], [other for _, other in pairs])


# -- what must hold ---------------------------------------------------------------------------------------------------


def check(rows: Sequence[Row]) -> list[Row]:
    """Say what must hold, what was measured and whether it does, for each way of prejit's."""
    found = {(row["program"], row["layers"], row["way"]): row for row in rows}
    checks: list[Row] = []
    for way in dict.fromkeys(row["way"] for row in rows if row["way"].startswith("prejit")):
        small, large = found.get(("value_and_grad", 24, way), {}), found.get(("value_and_grad", 96, way), {})
        checks += [
            _bounded(way, "cold start to jax.jit, 24 layers, value_and_grad", small.get("cold_to_jit"), 1 / 12),
            _equal(way, "distinct executables at 24 and 96 layers", small.get("executables"), large.get("executables")),
            _bounded(way, "cold without tracing, 96 to 24 layers", _quotient(large, small, _without_tracing), 1.5),
            _bounded(way, "the same without the step itself", _quotient(large, small, _building), 1.5),
        ]
        for (program, nr_layers, row_way), row in found.items():
            if row_way != way or not row.get("linked"):
                continue
            what = f"{program}, {nr_layers} layers"
            steady = row.get("step_to_jit")
            checks.append(_bounded(way, f"steady step to jax.jit, upper bound, {what}", steady, 1.05, "high"))
            for name, text in (("start_peak_to_jit", "start"), ("steps_peak_to_jit", "steps")):
                checks.append(_bounded(way, f"peak memory of the {text} to jax.jit, {what}", row.get(name), 1.1))
            differences = row.get("differences")
            # Of the change itself, some thousandth of the parameters, rounding is a larger part: shown, not bounded.
            named = [name for name in differences or () if name != "change"]
            worst = max(named, key=differences.__getitem__) if differences else None
            measured = differences[worst] if worst else None
            checks.append(_bounded(way, f"norm-wise difference (greatest: {worst}), {what}", measured, 1e-6))
    return checks


def _without_tracing(row: Row) -> float:
    return row["cold_without_tracing_s"]


def _building(row: Row) -> float:
    return row["cold_without_tracing_s"] - row["cold_step_s"]


def _quotient(large: Row, small: Row, of: Callable[[Row], float]) -> float | None:
    return of(large) / of(small) if "cold_step_s" in large and "cold_step_s" in small else None


def _bounded(way: str, what: str, measured: Any, bound: float, side: str = "median") -> Row:
    value = getattr(measured, side) if isinstance(measured, harness.Ratio) else measured
    holds = "not measured" if value is None else "yes" if value <= bound else "NO"
    return {"way": way, "what": what, "measured": measured, "at most": f"{bound:.3g}", "holds": holds}


def _equal(way: str, what: str, one: int | None, other: int | None) -> Row:
    holds = "not measured" if one is None or other is None else "yes" if one == other else "NO"
    return {"way": way, "what": what, "measured": f"{one}, {other}", "at most": "equal", "holds": holds}
