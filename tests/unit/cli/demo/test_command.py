import json

import pytest
from typer.testing import CliRunner

from prejit.cli.app import app


@pytest.mark.slow
def test_the_demo_proves_its_claims_by_counts():
    done = CliRunner().invoke(app, ["demo", "--quick", "--json"])
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    assert report["largest_relative_loss_difference"] <= 1e-4
    plain, filling, jax_filled, filling_all, jax_all, prejit_empty, prejit_filled = report["runs"]

    for run in report["runs"]:
        parts = ("import_s", "setup_s", "trace_s", "lower_s", "compile_s", "load_s", "first_run_s")
        assert sum(run[part] for part in parts) == pytest.approx(run["time_to_first_step_s"])
        assert all(run[part] >= 0 for part in parts)
        assert run["losses"][-1] < run["losses"][0]

    for run in (plain, filling, filling_all):
        assert run["step_counts"] == {"trace": 1, "lower": 1, "compile": 1, "load": 0}
    # With its cache full JAX lowers all the same; what it keeps depends on how long compiling took, so is not asserted.
    assert jax_filled["step_counts"]["lower"] == 1
    assert jax_filled["setup_counts"]["lower"] == plain["setup_counts"]["lower"] > 10

    # Without its threshold it keeps all, and what it can't keep is to trace and lower.
    assert jax_all["step_counts"] == {"trace": 1, "lower": 1, "compile": 0, "load": 1}
    assert jax_all["setup_counts"]["compile"] == 0
    assert jax_all["setup_counts"]["lower"] == jax_all["setup_counts"]["load"] == plain["setup_counts"]["compile"]

    assert prejit_empty["step_counts"]["compile"] == 1
    assert prejit_filled["step_counts"] == {"trace": 1, "lower": 0, "compile": 0, "load": 1}
    assert prejit_filled["setup_counts"]["compile"] == 0
    assert prejit_filled["setup_counts"]["load"] == prejit_empty["setup_counts"]["compile"]

    counters = prejit_filled["counters"]
    assert (counters["compiles"], counters["misses"], counters["hits"]) == (0, 0, 1)
    assert not any(run["counters"] for run in report["runs"][:-2])


def test_a_way_that_fails_is_told_by_its_last_words(monkeypatch):
    monkeypatch.setattr(
        "prejit.cli.demo.ways.start_command", lambda mark, job: ["/bin/sh", "-c", "echo broken >&2; exit 3"]
    )
    done = CliRunner().invoke(app, ["demo", "--quick"])
    assert done.exit_code == 1
    assert "running 'jax.jit, no cache': expected exit code 0, got 3\nbroken" in done.stderr
