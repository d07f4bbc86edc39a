"""PRNG settings: implementation, partitionability, gumbel mode.

Hit by: anyone changing `jax_default_prng_impl` between runs or tests
Right: the call under `rbg` equals the eager value.
Reported: jax-ml/jax#40609 (gumbel flag not in the key), jax-ml/jax PR #13361, jax-ml/jax#21061
"""

import jax
import numpy as np

from shim import component

u = lambda s: jax.random.uniform(jax.random.PRNGKey(s), (4,))
f = component(u)
a = np.asarray(f(0))
with jax.threefry_partitionable(not jax.config.jax_threefry_partitionable):
    b = np.asarray(f(0))
with jax.default_prng_impl("rbg"):
    c, want = np.asarray(f(0)), np.asarray(u(0))
assert not np.array_equal(a, b)
assert np.array_equal(c, want)
