"""Weak types through an artifact.

Hit by: bf16 models that multiply by a component's scalar output
Right: bfloat16, float32, bfloat16. `float32` and weak `float32` are two signatures.
Reported: jax-ml/jax#23302, #4274, PR #4682; google/jaxopt#451
"""

import jax.numpy as jnp
import numpy as np

from shim import cleared, component, from_artifact, needs_export, to_artifact

f = lambda x: x * 2
c = component(f)
assert c(2.0).weak_type and (c(2.0) * jnp.bfloat16(1)).dtype == jnp.bfloat16
assert not c(np.float32(2)).weak_type and (c(np.float32(2)) * jnp.bfloat16(1)).dtype == jnp.float32
cleared()
assert c(2.0).weak_type and not c(np.float32(2)).weak_type  # from the store, too

needs_export()

a = from_artifact(to_artifact(f, 2.0))
assert (a(2.0) * jnp.bfloat16(1)).dtype == jnp.bfloat16  # same promotion after a round trip
