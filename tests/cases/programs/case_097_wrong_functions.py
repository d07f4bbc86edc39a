"""Wrong kinds of function or result.

Hit by: first-time users
Right: same types as `jax.jit`, raised at decoration or first call, never a cache-layer error such
    as "cannot hash".
Reported: jax-ml/jax#648, #883, PR #4661; tests/jax_jit_test.py
"""

import jax
import jax.numpy as jnp

from shim import component, raises


async def coro(x):
    return x


def gen(x):
    yield x


raises(TypeError, lambda: component(coro)(1.0))
raises(TypeError, lambda: component(gen)(1.0))
raises(TypeError, lambda: component(lambda x: (x, "hi"))(1.0))
e = raises(ValueError, lambda: component(lambda s, x: x, static_argnums=0)([1, 2], 1.0))
assert "hashable" in str(e)
raises(TypeError, lambda: component(lambda d: d["x"])({"x": 1.0, "name": "a"}))
raises(TypeError, lambda: component(3))
raises(ValueError, lambda: jax.jit(lambda n: component(lambda k: jnp.zeros(k), static_argnums=0)(n))(3))
