"""Closing over a tracer.

Hit by: components defined inside a differentiated or vmapped function
Right: 5; [1, 2, 3]; 2; no tracer is hashed, stored or kept alive: it becomes an argument of the
    inner call.
Reported: jax-ml/jax#5440, #5666, jax-ml/jax PR #34216, PR #39940
"""

import jax
import numpy as np

from shim import component, x3


def loss(w):
    layer = component(lambda x: w * x**2)  # w is a tracer here
    return jax.vmap(layer)(x3).sum()


assert float(jax.grad(loss)(2.0)) == 5.0
assert np.allclose(jax.vmap(lambda w: component(lambda x: x + w)(1.0))(x3), [1, 2, 3])
assert float(jax.jit(lambda w: component(lambda: w + 1)())(1.0)) == 2.0
with jax.checking_leaks():
    assert float(jax.jit(lambda x: component(lambda y: y * 2)(x))(2.0)) == 4.0
