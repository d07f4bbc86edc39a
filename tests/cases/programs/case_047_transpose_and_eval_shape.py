"""`linear_transpose`, `eval_shape`, `make_jaxpr`.

Hit by: tomography/MRI operators, libraries that probe shapes
Right: abstract evaluation compiles and executes nothing; transpose works.
Reported: tests/debug_info_test.py (`test_linear_call`, `test_eval_shape`)
"""

import jax
import jax.numpy as jnp
import numpy as np

from shim import component, entries, x3

n, before = [], entries()
A = component(lambda x: n.append(1) or 2.0 * x)
out = jax.eval_shape(A, jax.ShapeDtypeStruct((3,), jnp.float32))
assert out.shape == (3,) and entries() == before  # nothing compiled, nothing written
assert np.allclose(jax.linear_transpose(A, x3)(jnp.ones(3))[0], 2.0)
jax.make_jaxpr(A)(x3)
assert len(n) == 1  # one trace served all three
