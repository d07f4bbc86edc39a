"""`spmd_axis_name` and sharding constraints inside.

Hit by: data-parallel training written as vmap
Right: the batch axis stays sharded on `d` only with `spmd_axis_name`; it is part of the batched
    variant's key.
Reported: jax-ml/jax#23476
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from shim import component, mesh4

mesh = mesh4()
inner = component(lambda x: lax.with_sharding_constraint(x * 2, NamedSharding(mesh, P(None))))
x = jax.device_put(jnp.arange(8.0).reshape(4, 2), NamedSharding(mesh, P("d")))
y = jax.jit(jax.vmap(inner, spmd_axis_name="d"))(x)
assert np.allclose(y, x * 2) and y.sharding.spec == P("d")
z = jax.jit(jax.vmap(inner))(x)
assert np.allclose(z, x * 2)
