"""`jax_numpy_dtype_promotion` / rank promotion: errors must survive a cache hit.

Hit by: libraries that run CI in strict mode
Right: strict mode raises even though the lenient result is cached.
Reported: jax tests/config_test.py and api_test cache-miss explanations (jax-ml/jax PR #27980 shows
    rank promotion in the trace context)
"""

import jax
import jax.numpy as jnp

from shim import component, raises

f = component(lambda i: jnp.float32(1) + i)
assert float(f(jnp.int32(1))) == 2.0  # warm
with jax.numpy_dtype_promotion("strict"):
    e = raises(Exception, lambda: f(jnp.int32(1)))
assert "romotion" in type(e).__name__ + str(e)
g = component(lambda x: x + jnp.ones((2, 3)))
g(jnp.ones(3))
with jax.numpy_rank_promotion("raise"):
    raises(ValueError, lambda: g(jnp.ones(3)))
