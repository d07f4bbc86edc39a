"""Typed PRNG keys in, out, batched, and with another implementation.

Hit by: stochastic models, dropout, samplers
Right: as asserted; raw and typed keys are different entries.
Reported: jax-ml/jax#24143, PR #27776, jax-ml/jax#18442
"""

import jax
import jax.numpy as jnp
import numpy as np

from shim import component, entries, from_artifact, needs_export, raises, to_artifact

f = lambda k: (jax.random.split(k), jax.random.uniform(k))
k = jax.random.key(0)
c = component(f)


def check(g):
    ks, u = g(k)
    assert jnp.issubdtype(ks.dtype, jax.dtypes.prng_key) and ks.shape == (2,) and u == f(k)[1]


check(c)
assert np.allclose(jax.vmap(c)(jax.random.split(k, 3))[1], [f(q)[1] for q in jax.random.split(k, 3)])
rbg = jax.random.key(0, impl="rbg")
assert c(rbg)[1] == f(rbg)[1] and c(k)[1] == f(k)[1]  # another implementation is another entry
raw = component(lambda k: jax.random.uniform(k))
assert raw(jax.random.PRNGKey(0)) == raw(k) == f(k)[1] and len([e for e in entries() if "_lambda_" in e]) == 4
assert jax.grad(lambda x, k: c(k)[1] * x)(2.0, k) == f(k)[1]

needs_export()

a = from_artifact(to_artifact(f, k))
check(a)
e = raises(ValueError, lambda: a(jax.random.key(0, impl="rbg")))
assert "key<rbg>" in str(e)
raises(ValueError, lambda: a(jax.random.PRNGKey(0)))  # raw uint32[2] is not a key
