"""`vmap` of a component that was loaded as an artifact.

Hit by: anyone batching a deserialized model; `jacrev` (it uses vmap)
Right: [0,1,8] and [0,3,12], by re-tracing when source exists, a symbolic batch dimension, or a
    sequential fallback.
Reported: jax-ml/jax#28327
"""

import jax
import numpy as np
from jax import lax

from shim import from_artifact, needs_export, one, to_artifact, x3

needs_export()

f = from_artifact(to_artifact(lambda x: x**3, one, vjp_order=1))
assert np.allclose(lax.map(f, x3), [0, 1, 8])
assert np.allclose(jax.vmap(f)(x3), [0, 1, 8])
assert np.allclose(jax.vmap(jax.grad(f))(x3), [0, 3, 12])
