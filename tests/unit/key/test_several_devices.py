"""Meshes and shardings count by what a program sees of them, not by this process's device ids."""

import json

import pytest

PROGRAM = """
import json, sys
import jax, jax.numpy as jnp, numpy as np
from jax import lax
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec as P
from prejit.key import fingerprint, program_digest

devices = np.array(jax.devices())
def mesh(order=range(8), names=("i", "j"), shape=(4, 2), **kw):
    return Mesh(devices[list(order)].reshape(shape), names, **kw)
X = jax.ShapeDtypeStruct((8, 8), jnp.float32)
def digest(fun, *specs):
    return program_digest(jax.make_jaxpr(fun)(*(specs or (X,)))).digest
def constrained(mesh, spec, **kw):
    return digest(lambda x: lax.with_sharding_constraint(x * 2, NamedSharding(mesh, spec, **kw)))
def mapped(mesh, **kw):
    return digest(jax.shard_map(lambda x: lax.psum(x, "i"), mesh=mesh, in_specs=P("i"), out_specs=P(), **kw))
explicit = (AxisType.Explicit, AxisType.Explicit)
def in_type(mesh, spec):
    with jax.set_mesh(mesh):
        placed = jax.ShapeDtypeStruct((8, 8), jnp.float32, sharding=NamedSharding(mesh, spec))
        return digest(lambda x: jnp.sin(x), placed)
def with_constant():
    const = jax.device_put(jnp.arange(8.), NamedSharding(mesh(), P("i")))
    return digest(lambda x: x + const, 1.0)
out = dict(
    plain=constrained(mesh(), P("i")),
    other_axis=constrained(mesh(), P("j")),
    both=constrained(mesh(), P(("i", "j"))),
    swapped=constrained(mesh(), P(("j", "i"))),
    unconstrained=constrained(mesh(), P("i", P.UNCONSTRAINED)),
    other_shape=constrained(mesh(shape=(2, 4)), P("i")),
    other_order=constrained(mesh(order=[1, 0, 2, 3, 4, 5, 6, 7]), P("i")),
    memory=constrained(mesh(), P("i"), memory_kind="unpinned_host"),
    mapped=mapped(mesh()),
    unchecked=mapped(mesh(), check_vma=False),
    partly=mapped(mesh(), axis_names={"i"}),
    in_type=in_type(mesh(axis_types=explicit), P("i")),
    in_type_j=in_type(mesh(axis_types=explicit), P("j")),
    first=fingerprint(jax.sharding.SingleDeviceSharding(jax.devices()[0])),
    second=fingerprint(jax.sharding.SingleDeviceSharding(jax.devices()[1])),
    transfer=digest(lambda x: jax.device_put(x, jax.devices()[1])),
    transfer_first=digest(lambda x: jax.device_put(x, jax.devices()[0])),
    sharded_const=with_constant(),
)
print(json.dumps(out))
"""


@pytest.mark.slow
def test_meshes_and_shardings(run_python):
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=8"}
    one = json.loads(run_python(PROGRAM, env=flags | {"PYTHONHASHSEED": "1"}).stdout)
    again = json.loads(run_python("\n\n" + PROGRAM, env=flags | {"PYTHONHASHSEED": "2"}).stdout)
    assert one == again
    assert len(set(one.values())) == len(one)
