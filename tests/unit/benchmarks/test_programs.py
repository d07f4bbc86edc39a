"""The program benchmark's arithmetic, and that its parts still fit the model and each other."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

import compile_events  # noqa: E402  # after the path is set
import harness  # noqa: E402
import program_edits  # noqa: E402
import program_rows  # noqa: E402


def test_intervals_that_overlap_count_once():
    assert compile_events.length([(0, 2), (1, 3), (1, 1.5), (5, 6)]) == 4
    assert compile_events.length([]) == 0
    assert compile_events.outside([(0, 4), (2, 6)], [(1, 2), (5, 9)]) == 4


def test_bounds_of_pairs_cover_the_spread_between_processes():
    steady = harness.compare_nested([[1.0] * 9, [1.2] * 9], [[1.0] * 9, [1.0] * 9])
    assert (steady.low, steady.high) == (1.0, pytest.approx(1.2))
    assert harness.compare([1.0] * 9 + [1.2] * 9, [1.0] * 18).high <= steady.high


@pytest.mark.parametrize("name", program_edits.EDITS)
def test_every_edit_applies_to_the_model(name):
    source = program_edits.MODEL.read_text()
    edited = program_edits.edit(source, name)
    compile(edited, "transformer.py", "exec")
    assert (edited == source) == (name == "nothing")


def test_an_edit_that_no_longer_fits_is_an_error():
    with pytest.raises(ValueError, match=r"expected 'weight_decay=0\.01' once"):
        program_edits.edit("nothing to edit", "optimizer")


def run_of(first_s, step_s=0.1, *, executables=(), trace_s=0.5):
    plan = {"linked": True, "calls": 9, "executables": [{"digest": name, "name": name} for name in executables]}
    return {
        "first_s": first_s,
        "trace_s": trace_s,
        "lower_s": 0.1,
        "compile_s": 0.2,
        "without_tracing_s": first_s - trace_s,
        "start_peak_mib": 100.0,
        "nr_compiles": 1,
        "step_s": step_s,
        "steps_peak_mib": 50.0,
        "plan": plan,
    }


def rows_of(cold_24, cold_96, executables_96=("a", "b"), step=0.1, difference=0.0):
    way = "prejit+component"
    seen = {
        "jax.jit": {"cold": [run_of(30.0)] * 3, "warm": []},
        way: {"cold": [run_of(cold_24, executables=("a", "b"))] * 3, "warm": []},
    }
    steps = {"jax.jit": [0.1] * 5, way: [step] * 5}
    pair = {
        "steps_s": steps,
        "steps_cpu_s": steps,
        "differences": {"jax.jit": {"params": 0.0}, way: {"params": difference}},
    }
    large = {way: {"cold": [run_of(cold_96, executables=executables_96)], "warm": []}}
    return [
        program_rows.make_row("value_and_grad", 24, "jax.jit", seen, [pair]),
        program_rows.make_row("value_and_grad", 24, way, seen, [pair]),
        program_rows.make_row("value_and_grad", 96, way, large, []),
    ]


def failed_checks(rows):
    return [check["what"] for check in program_rows.check(rows) if check["holds"] == "NO"]


def test_what_holds_is_said_to_hold():
    checks = program_rows.check(rows_of(2.4, 3.0))
    assert {check["holds"] for check in checks if ", 96 layers" not in check["what"]} == {"yes"}
    assert not failed_checks(rows_of(2.4, 3.0))


@pytest.mark.parametrize(
    ("measured", "what"),
    [
        ({"cold_24": 2.6, "cold_96": 3.0}, "cold start to jax.jit"),
        ({"cold_24": 2.4, "cold_96": 4.0}, "cold without tracing, 96 to 24"),
        ({"cold_24": 2.4, "cold_96": 3.0, "executables_96": ("a", "b", "c")}, "distinct executables"),
        ({"cold_24": 2.4, "cold_96": 3.0, "step": 0.106}, "steady step"),
        ({"cold_24": 2.4, "cold_96": 3.0, "difference": 2e-6}, "norm-wise difference (greatest: params)"),
    ],
)
def test_what_does_not_hold_is_told(measured, what):
    assert any(text.startswith(what) for text in failed_checks(rows_of(**measured)))


def test_what_was_not_measured_is_not_said_to_hold():
    rows = [{"program": "adamw", "layers": 6, "way": "prejit+inner"}]
    assert {check["holds"] for check in program_rows.check(rows)} == {"not measured"}


def plan_of(**kinds):
    return {"executables": [{"digest": name, "name": name, "kind": kind} for name, kind in kinds.items()]}


@pytest.mark.parametrize(
    ("edited", "after", "nr_compiles", "verdict"),
    [
        ("nothing", {"layer": "unit", "head": "glue"}, 0, "yes"),
        ("nothing", {"layer": "unit", "head": "glue"}, 1, "NO"),
        ("a comment", {"layer_2": "unit", "head": "glue"}, 1, "NO"),
        ("layer", {"layer_2": "unit", "head": "glue"}, 1, "yes"),
        ("layer", {"layer_2": "unit", "head": "glue"}, 2, "NO"),
        ("optimizer", {"layer": "unit", "head_2": "glue"}, 1, "yes"),
        ("optimizer", {"layer_2": "unit", "head": "glue"}, 1, "NO"),
    ],
)
def test_an_edit_compiles_what_it_changed(edited, after, nr_compiles, verdict):
    before = plan_of(layer="unit", head="glue")
    judged = program_edits.judge(edited, before, plan_of(**after), nr_compiles)
    assert judged["only these compiled"] == verdict


@pytest.mark.slow
def test_a_fresh_process_measures_a_start(tmp_path):
    job = {"do": "start", "way": "lax.scan", "program": "adamw", "nr_layers": 2, "cache_dir": str(tmp_path)}
    command = [sys.executable, str(BENCHMARKS / "program_worker.py"), "--job", json.dumps({**job, "nr_steps": 2})]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=True)
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["nr_compiles"] == 1
    assert 0 < result["trace_s"] + result["lower_s"] + result["compile_s"] < result["first_s"]


def test_a_wrong_word_is_told_before_anything_is_measured():
    command = [sys.executable, str(BENCHMARKS / "bench_programs.py"), "--link", "fast"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 2
    assert "separate" in done.stderr
