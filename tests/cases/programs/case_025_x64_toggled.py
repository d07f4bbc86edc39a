"""`jax_enable_x64` toggled around one component.

Hit by: mixed-precision solvers, test suites that run both modes on one cache
Right: as asserted; also with `enable_x64` entered *inside* the component.
Reported: jax-ml/jax#5982, #4131, #27602; ryan112358/mbi PR #193 (AOT warm-up misses under x64)
"""

import jax
import jax.numpy as jnp
import numpy as np

from shim import component, fresh

f = component(lambda x: x + jnp.arange(3))
a = f(np.float64(1))
with jax.enable_x64(True):
    b = f(np.float64(1))
    c = f(1.0)
d = f(np.float64(1))
assert [v.dtype.name for v in (a, b, c, d)] == ["float32", "float64", "float64", "float32"]
src = "print(component(lambda x: x * jnp.arange(2).sum())(3).dtype)"
assert [fresh(src, env={"JAX_ENABLE_X64": v}) for v in ("0", "1", "0")] == ["int32", "int64", "int32"]
