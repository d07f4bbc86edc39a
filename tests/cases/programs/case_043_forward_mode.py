"""Forward mode: `jvp`, `linearize`, `jacfwd`, `hessian`.

Hit by: Newton and Gauss-Newton solvers, HVPs
Right: diag(0, 6, 12); 15. If forward mode is impossible on a source-less artifact, say so by name.
Reported: jax-ml/jax#16049, jax-ml/jax#7401, jax-ml/jax PR #6127
"""

import jax
import jax.numpy as jnp
import numpy as np

from shim import component, from_artifact, needs_export, to_artifact, x3

c = component(lambda x: (x**3).sum())
assert np.allclose(jax.hessian(c)(x3), np.diag([0.0, 6.0, 12.0]))
assert float(jax.linearize(c, x3)[1](jnp.ones(3))) == 15.0
needs_export()

art = from_artifact(to_artifact(lambda x: (x**3).sum(), x3, vjp_order=2))
assert np.allclose(jax.grad(art)(x3), [0, 3, 12])
assert float(jax.jvp(art, (x3,), (jnp.ones(3),))[1]) == 15.0
