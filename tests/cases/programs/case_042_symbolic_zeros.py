"""Symbolic zeros: perturbation information must cross the boundary.

Hit by: `custom_vjp(..., symbolic_zeros=True)` rules that skip work for constants
Right: gradient 5.0 and `(True, False)`. A rule that instantiates all tangents reports `(True,
    True)` and does wasted work.
Reported: jax-ml/jax PR #28664, jax-ml/jax#1536, tests/custom_api_test.py
"""

import jax
import jax.numpy as jnp

from shim import component

seen = []


@jax.custom_vjp
def mul(x, y):
    return x * y


def fwd(x, y):
    seen.append((x.perturbed, y.perturbed))
    return x.value * y.value, (x.value, y.value)


mul.defvjp(fwd, lambda r, g: (g * r[1], g * r[0]), symbolic_zeros=True)
assert float(jax.grad(component(mul))(jnp.float32(2), jnp.float32(5))) == 5.0
assert seen[-1] == (True, False)
