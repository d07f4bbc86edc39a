"""Control flow inside must not be flattened by a batching fallback.

Hit by: loops that terminate only on the taken branch
Right: a component may only become "both branches + select" when plain JAX would do so.
Reported: jax-ml/jax#2947 (vmapped cond runs both branches: non-termination), jax-ml/jax#8409
"""

import jax
import numpy as np
from jax import lax

from shim import component, x3


def f(p, x):
    loop = lambda x: lax.while_loop(lambda y: y > 1e-3, lambda y: y * 0.1, x)
    return lax.cond(p, loop, lambda x: x, x)


c = component(f)
jaxpr = str(jax.make_jaxpr(jax.vmap(c, in_axes=(None, 0)))(False, x3))
assert "cond[" in jaxpr and "select_n" not in jaxpr  # predicate unbatched: stays a real cond
assert np.allclose(jax.vmap(c, in_axes=(None, 0))(False, -x3), -x3)
assert "while[" in str(jax.make_jaxpr(c)(True, 1.0))
