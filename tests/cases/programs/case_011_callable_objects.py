"""Callable objects, including ones that hold arrays.

Hit by: `class Layer: __call__`, equinox modules passed directly to the decorator
Right: 2, 3, 8. A module that holds arrays is unhashable, and works all the same. A changed object
    gives a new component its new value.
Reported: patrick-kidger/equinox#267; jax-ml/jax#15338
"""

import equinox as eqx
import jax
import jax.numpy as jnp

from shim import component


class Affine:
    def __init__(self, a):
        self.a = a

    def __call__(self, x):
        return self.a * x


f, g = component(Affine(2.0)), component(Affine(3.0))
assert (float(f(1.0)), float(g(1.0))) == (2.0, 3.0)
obj = Affine(2.0)
h = component(obj)
h(1.0)
obj.a = 7.0
assert float(component(obj)(1.0)) == 7.0  # a new component sees the new state
assert float(h(1.0)) == 2.0  # one that was called keeps what it traced, as jax.jit does


class M(eqx.Module):
    w: jax.Array

    def __call__(self, x):
        return self.w * x


assert float(component(M(jnp.float32(4)))(2.0)) == 8.0
