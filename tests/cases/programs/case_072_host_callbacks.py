"""Host callbacks cannot be exported; two callbacks must not share code.

Hit by: `pure_callback` to SciPy, `jax.debug.print` left in a model
Right: sin/cos never mix, within and across processes; export fails early and names the callback (or
    offers to drop `debug.print`).
Reported: jax-ml/jax PR #38405 and tests/compilation_cache_test.py `test_jit_with_host_callback`;
    jax-ml/jax#31319
"""

import jax
import jax.numpy as jnp
import numpy as np

from shim import component, fresh, needs_export, one, raises, to_artifact

sds = jax.ShapeDtypeStruct((), jnp.float32)
wrap = lambda fn: component(lambda x: jax.pure_callback(lambda v: np.float32(fn(v)), sds, x))
assert abs(float(wrap(np.sin)(1.0)) - 0.84147) < 1e-4
assert abs(float(wrap(np.cos)(1.0)) - 0.54030) < 1e-4  # same HLO apart from the callback
src = "import numpy\nf = component(lambda x: jax.pure_callback(lambda v: numpy.float32(numpy.%s(v)), jax.ShapeDtypeStruct((), jnp.float32), x))\nprint(round(float(f(1.0)), 4))"
assert [fresh(src % n) for n in ("sin", "cos", "sin")] == ["0.8415", "0.5403", "0.8415"]
needs_export()

for bad in (lambda x: jax.pure_callback(np.sin, sds, x), lambda x: (jax.debug.print("{}", x), x)[1]):
    e = raises(NotImplementedError, lambda: to_artifact(bad, one))
