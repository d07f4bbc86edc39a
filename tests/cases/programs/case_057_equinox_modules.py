"""Equinox-style modules: arrays, static ints and functions mixed in the leaves.

Hit by: equinox users; filtered transforms on top of a component
Right: The same value and a gradient that is a module. In the last line the leaves that are not
    arrays are static.
Reported: patrick-kidger/equinox#325, PR #71, #1131
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from shim import component

m = eqx.nn.MLP(2, 1, 4, 1, key=jax.random.key(0))
x = jnp.ones(2)
want = m(x)
arr, static = eqx.partition(m, eqx.is_array)
f = component(lambda arr, x: eqx.combine(arr, static)(x))
assert np.allclose(f(arr, x), want)
g = jax.grad(lambda a: f(a, x)[0])(arr)
assert g.layers[0].weight.shape == (4, 2) and np.allclose(
    eqx.filter_jit(lambda m, x: f(eqx.filter(m, eqx.is_array), x))(m, x), want
)
assert np.allclose(component(lambda m, x: m(x))(m, x), want)  # non-array leaves passed directly
