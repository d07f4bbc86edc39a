"""Zero-size and zero-dimensional arrays.

Hit by: empty batches, filtered data, scalar states
Right: as asserted; an entry with zero outputs or zero-byte constants must round-trip.
Reported: jax-ml/jax#23456 (size 0 under symbolic shapes); tests/lru_cache_test.py
    `test_put_empty_value` for empty payloads
"""

import jax.numpy as jnp
import numpy as np

from shim import cleared, component, from_artifact, needs_export, raises, to_artifact

f = lambda x: (x.sum(), x * 2, x.reshape(-1)[:1])


def check(g):
    s, y, z = g(jnp.zeros((0, 3)))
    assert float(s) == 0.0 and y.shape == (0, 3) and z.shape == (0,)


check(component(f))
cleared()
check(component(f))  # from the store
assert component(lambda: ())() == () and component(lambda *a: a)() == ()
assert float(component(lambda x: x)(np.float32(3))) == 3.0 and np.shape(component(lambda x: x)(3.0)) == ()
raises(ValueError, lambda: component(lambda x: x.max())(jnp.zeros((0,))))

needs_export()

check(from_artifact(to_artifact(f, jnp.zeros((0, 3)))))
