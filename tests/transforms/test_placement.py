"""Where a component runs and where its results are: the devices of the call, of the body and of constants."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding

import prejit


def named(device):
    return NamedSharding(Mesh(np.array([device]), ("a",)), PartitionSpec("a"))


def check(function, *args):
    """Compare with `jax.jit`, twice: what compiles and what loads, in a component that knows nothing."""
    want = jax.jit(function)(*args)
    for _ in range(2):
        got = prejit.component(lambda *a: function(*a))(*args)
        np.testing.assert_array_equal(got, want)
        assert got.sharding == want.sharding
        assert got.committed == want.committed
        prejit.get_store().clear(tier="memory")


@pytest.mark.parametrize("place", [SingleDeviceSharding, named])
def test_one_device_of_several(place):
    component = prejit.component(lambda x: x * 3)
    for device in jax.devices()[:3]:
        x = jax.device_put(jnp.arange(4.0), place(device))
        out = component(x)
        assert out.devices() == {device}
        assert out.sharding == jax.jit(lambda x: x * 3)(x).sharding
        check(lambda x: x * 3, x)


def test_kinds_of_sharding_over_one_device_do_not_mix():
    x = jnp.arange(4.0)
    for place in (named, SingleDeviceSharding, named):
        check(lambda x: x + 2, jax.device_put(x, place(jax.devices()[0])))
    check(lambda x: x + 2, x)


def test_a_device_that_the_body_chooses():
    there = SingleDeviceSharding(jax.devices()[1])
    check(lambda x: jax.lax.with_sharding_constraint(x * 3, there), jnp.arange(4.0))


@pytest.mark.parametrize("where", ["uncommitted", "committed", "sharded"])
def test_a_large_constant_has_no_say(where):
    mesh = Mesh(np.array(jax.devices()[:4]), ("a",))
    place = {"committed": SingleDeviceSharding(jax.devices()[1]), "sharded": NamedSharding(mesh, PartitionSpec("a"))}
    big = jnp.ones(100_000)
    big = big if where == "uncommitted" else jax.device_put(big, place[where])
    check(lambda x: (x + big).sum(), jnp.float32(1))
    check(lambda x: (x + big).sum(), jax.device_put(jnp.float32(1), jax.devices()[2]))


def test_a_large_constant_under_a_transfer_guard():
    big, x = np.ones(100_000, np.float32), jnp.arange(4.0)
    component = prejit.component(lambda x: x.sum() + (x[0] + big).sum())
    with jax.transfer_guard("disallow"):
        out = component(x)
    assert float(out) == 6.0 + 100_000.0
