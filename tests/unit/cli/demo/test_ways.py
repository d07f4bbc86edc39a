import dataclasses
import re
import subprocess

import pytest

from prejit.cli.demo import ways
from prejit.cli.demo.worker import Run

COUNTS = {"trace": 1, "lower": 1, "compile": 1, "load": 0}


def run_with(losses):
    times = {field.name: 1.0 for field in dataclasses.fields(Run) if field.name.endswith("_s")}
    return Run(**times, losses=losses, setup_counts=COUNTS, step_counts=COUNTS)


def runs_with(*losses):
    return dict(zip(ways.WAYS, map(run_with, losses), strict=False))


def test_equal_losses_pass():
    ways.check_losses(runs_with([4.0, 3.0], [4.0, 3.0]))
    assert ways.largest_loss_difference(runs_with([4.0, 3.0], [4.0, 3.0])) == 0.0


@pytest.mark.parametrize("wrong", [[4.0, 3.1], [4.0, float("nan")]])
def test_different_losses_fail_and_name_the_ways(wrong):
    with pytest.raises(ways.DemoFailed, match=r"comparing losses: expected .* got .*jax\.jit, no cache: 3\.0000"):
        ways.check_losses(runs_with([4.0, 3.0], [4.0, 3.0], wrong))


def test_no_way_sees_anothers_cache_or_the_users_settings():
    parent = {"HOME": "/h", "PREJIT_STRICT": "1", "JAX_COMPILATION_CACHE_DIR": "/c", "JAX_PLATFORMS": "cpu"}
    assert ways.child_environment(parent) == {"HOME": "/h", "JAX_PLATFORMS": "cpu"}


def test_plain_ways_run_without_importing_prejit():
    # The job is no job, so the worker fails on it; what it had imported by then shows in -X importtime's lines.
    done = {}
    for mark in ("jax", "prejit"):
        command = ways.start_command(mark, "{}")
        done[mark] = subprocess.run([command[0], "-X", "importtime", *command[1:]], capture_output=True, text=True)
        assert "Job.__init__" in done[mark].stderr
    assert not re.search(r"\| +prejit$", done["jax"].stderr, re.MULTILINE)
    assert re.search(r"\| +prejit$", done["prejit"].stderr, re.MULTILINE)


def test_counts_of_set_up_and_step_add_up():
    assert run_with([1.0]).setup_and_step_counts == {"trace": 2, "lower": 2, "compile": 2, "load": 0}
