"""`has_aux`, unused arguments, integer auxiliaries.

Hit by: training steps that return metrics
Right: as asserted; a pruned unused input still gets a zero gradient of the right shape.
Reported: jax-ml/jax PR #15341 (unused arguments and float0); tests/export_test.py
    `test_unused_args`
"""

import jax
import jax.numpy as jnp

from shim import component

f = component(lambda p, unused: (p["w"] ** 2, {"n": jnp.int32(4), "none": None}))
(v, aux), g = jax.value_and_grad(f, argnums=(0, 1), has_aux=True)({"w": jnp.float32(3)}, jnp.float32(9))
assert float(v) == 9.0 and int(aux["n"]) == 4 and aux["none"] is None
assert float(g[0]["w"]) == 6.0 and float(g[1]) == 0.0
