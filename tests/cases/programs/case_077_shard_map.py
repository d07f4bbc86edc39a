"""`shard_map` inside a component and a component inside `shard_map`/`pmap`.

Hit by: manual-collective code
Right: as asserted; per-shard shapes, not global ones, select the entry inside `shard_map`.
Reported: jax-ml/jax#21236 (non-deterministic module, misses), #23476
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from shim import component, from_artifact, mesh4, needs_export, to_artifact

mesh = mesh4()
x = jax.device_put(jnp.arange(8.0), NamedSharding(mesh, P("d")))
inside = component(jax.shard_map(lambda x: lax.psum(x, "d"), mesh=mesh, in_specs=P("d"), out_specs=P()))
assert np.allclose(inside(x), [12, 16])
comp = component(lambda x: x * 2)
outside = jax.shard_map(comp, mesh=mesh, in_specs=P("d"), out_specs=P("d"))
assert np.allclose(outside(x), 2 * np.arange(8.0)) and np.allclose(jax.jit(outside)(x), 2 * np.arange(8.0))
assert np.allclose(jax.pmap(comp)(jnp.arange(4.0)), [0, 2, 4, 6])
assert np.allclose(jax.grad(lambda v: outside(v).sum())(x), 2.0)
needs_export()

art = from_artifact(to_artifact(lambda x: x * 2, jnp.zeros(2)))
assert np.allclose(jax.jit(jax.shard_map(art, mesh=mesh, in_specs=P("d"), out_specs=P("d")))(x), 2 * np.arange(8.0))
