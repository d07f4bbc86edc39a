"""Where `prejit.jit` runs a program and where its results are: as with `jax.jit`, here and from a filled store."""

import functools
import json
from pathlib import Path

import jax
import numpy as np
import pytest
from jax.sharding import SingleDeviceSharding
from tests.transforms.outcomes import assert_same_outcomes, outcomes
from tests.transforms.placements import DEVICES, SCENARIOS, data, layers, named

import prejit
from prejit.testing import count_compiles


@pytest.mark.parametrize("link", ["auto", "separate"])
@pytest.mark.parametrize("name", list(SCENARIOS))
def test_as_in_jax(name, link):
    want = outcomes(SCENARIOS[name].calls(jax.jit))
    jit = functools.partial(prejit.jit, link=link)  # which has no frame, for warnings that point at the caller's
    for _ in range(2):
        got = outcomes(SCENARIOS[name].calls(jit))
        assert_same_outcomes(got, want, is_exact=link == "auto")
        prejit.get_store().clear(tier="memory")  # then it comes from disk
        jax.clear_caches()


CHILD = """
import functools, json, sys
import jax
import prejit
jax.config.update("jax_num_cpu_devices", 8)
from tests.transforms.outcomes import outcomes
from tests.transforms.placements import SCENARIOS

link = sys.argv[1]
jit = jax.jit if link == "jax" else functools.partial(prejit.jit, link=link)
def compiles():
    return prejit.counters()["compiles"]

print("REPORT", json.dumps({name: outcomes(scenario.calls(jit), compiles) for name, scenario in SCENARIOS.items()}))
"""


@pytest.mark.slow
@pytest.mark.parametrize("link", ["auto", "separate"])
def test_a_second_process_compiles_nothing(run_python, link):
    root = str(Path(__file__).parents[2])
    path = {"PYTHONPATH": root, "PYTHONDONTWRITEBYTECODE": "1"}
    cold, warm, plain = [
        json.loads(run_python(CHILD, way, env=path).stdout.partition("REPORT")[2]) for way in (link, link, "jax")
    ]
    for name, scenario in SCENARIOS.items():
        assert not scenario.is_stored or not any(nr_compiles for _, nr_compiles in warm[name]), name
        assert [outcome for outcome, _ in warm[name]] == [outcome for outcome, _ in cold[name]], name
        assert_same_outcomes(warm[name], plain[name], is_exact=link == "auto")


LINKED = """
import json, sys
import jax
import numpy as np
import prejit
jax.config.update("jax_num_cpu_devices", int(sys.argv[1]))
from tests.transforms.placements import data, layers

x = jax.device_put(data(8, 8), jax.devices()[int(sys.argv[2])])
step = prejit.jit(layers(), link="separate")
assert step.plan(x, x).is_linked
before = prejit.counters()["compiles"]
out = step(x, x)
(device,) = out.devices()
report = [np.asarray(out).tolist(), device.id, out.committed, prejit.counters()["compiles"] - before]
print("REPORT", json.dumps(report))
"""


@pytest.mark.slow
def test_a_linked_program_that_was_stored_for_one_device_runs_on_another(run_python):
    root = str(Path(__file__).parents[2])
    runs = [
        json.loads(run_python(LINKED, *places, env={"PYTHONPATH": root}).stdout.partition("REPORT")[2])
        for places in ((8, 0), (8, 3), (8, 7))
    ]
    assert [run[1] for run in runs] == [0, 3, 7]
    assert runs[0][0] == runs[1][0] == runs[2][0]
    assert runs[0][3] > 0
    assert runs[1][3] == runs[2][3] == 0


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"in_shardings": named("a")}, "it was given in_shardings"),
        ({"out_shardings": SingleDeviceSharding(DEVICES[3])}, "it was given out_shardings"),
    ],
)
def test_a_program_whose_placement_is_given_is_one_module(options, reason):
    plan = prejit.jit(layers(), link="separate", **options).plan(data(8, 8), data(8, 8))
    assert not plan.is_linked
    assert plan.reason == reason


def test_a_program_over_several_devices_is_one_module():
    step = prejit.jit(layers(), link="separate")
    for place, is_linked in ((DEVICES[3], True), (named("a"), False), (named(), False)):
        plan = step.plan(data(8, 8), jax.device_put(data(8, 8), place))
        assert plan.is_linked is is_linked
        assert is_linked or plan.reason.startswith("it runs on several devices")


def test_what_was_warmed_for_a_placement_is_not_compiled_again():
    spec = jax.ShapeDtypeStruct((8, 8), np.float32, sharding=named("a"))
    there = jax.ShapeDtypeStruct((8, 8), np.float32, sharding=SingleDeviceSharding(DEVICES[3]))
    for link, specs, place in (("auto", (spec, spec), named("a")), ("separate", (there, there), DEVICES[3])):
        step = prejit.jit(layers(), link=link)
        step.warm(*specs, progress=False)
        args = [jax.device_put(data(8, 8), place)] * 2
        with count_compiles() as seen:
            out = step(*args)
        assert seen.compiles == 0
        assert out.committed
