"""Unbatched arguments and outputs stay unbatched.

Hit by: `vmap(f, in_axes=(0, None), out_axes=(0, None))`: shared weights, shared keys
Right: as asserted. A batching rule that reports every output as batched breaks `out_axes=None`.
Reported: jax-ml/jax#9073, #14961, jax-ml/jax PR #39444 (batchedness of rule outputs)
"""

import jax
import jax.numpy as jnp
import numpy as np

from shim import component, raises, x3

f = component(lambda d: (d["a"] * d["b"], d["b"] + 1))
y, z = jax.vmap(f, in_axes=({"a": 0, "b": None},), out_axes=(0, None))({"a": x3, "b": 2.0})
assert np.allclose(y, [0, 2, 4]) and np.shape(z) == () and float(z) == 3.0
e = raises(ValueError, lambda: jax.vmap(component(lambda x, y: x * y), in_axes=(0, None), out_axes=None)(x3, 2.0))
assert "out_axes" in str(e)
assert np.allclose(jax.vmap(component(lambda x: x.sum()), in_axes=-1)(jnp.arange(6.0).reshape(2, 3)), [3, 5, 7])
