"""Branching on a symbolic dimension changes the meaning silently.

Hit by: code with `if x.shape[0] == 1:` special cases exported once for all batch sizes
Right: 100 for size 1: exclude that size (constraint), specialise it, or warn when equality on a
    symbolic dimension was decided. `b > 4` raises `InconclusiveDimensionOperation`, `b == 1` does
    not.
Reported: jax-ml/jax PR #14290 (equality made total, unsoundness acknowledged)
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import export

from shim import component, from_artifact, needs_export, to_artifact

f = lambda x: x * 100 if x.shape[0] == 1 else x
assert np.allclose(component(f)(jnp.ones(1)), 100.0) and np.allclose(component(f)(jnp.ones(3)), 1.0)

needs_export()

(b,) = export.symbolic_shape("b")
a = from_artifact(to_artifact(f, jax.ShapeDtypeStruct((b,), jnp.float32)))
assert np.allclose(a(jnp.ones(3)), 1.0)
assert np.allclose(a(jnp.ones(1)), 100.0)
