"""Components whose equations ask for a device: a stored executable must not go where JAX would refuse to go."""

import jax
import numpy as np
import pytest
from jax import lax
from jax.sharding import SingleDeviceSharding
from tests.transforms.placements import DEVICES

import prejit

THERE = SingleDeviceSharding(DEVICES[3])
X = np.ones((4, 4), "float32")

FUNCTIONS = {
    "constraint": lambda x: lax.with_sharding_constraint(x * 2, THERE),
    "inner": lambda x: jax.jit(lambda x: x * 2, out_shardings=THERE)(x),
    "put": lambda x: jax.device_put(x * 2, THERE),
}


@pytest.mark.parametrize("is_named", [False, True], ids=["traced", "named"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_where_a_component_runs(name, is_named):
    def outcome(f, x):
        try:
            (device,) = f(x).devices()
        except Exception as error:  # noqa: BLE001  # whatever JAX raises
            return type(error), str(error).partition(".")[0]
        return device

    options = {"key": f"placed by {name}"} if is_named else {}
    plain = jax.jit(FUNCTIONS[name])
    for _ in range(2):
        component = prejit.component(FUNCTIONS[name], **options)
        for x in (jax.device_put(X, DEVICES[3]), X, jax.device_put(X, DEVICES[0]), jax.device_put(X, DEVICES[3])):
            assert outcome(component, x) == outcome(plain, x)
        prejit.get_store().clear(tier="memory")
        jax.clear_caches()
