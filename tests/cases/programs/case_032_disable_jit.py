"""`jax.disable_jit()`.

Hit by: people debugging with `print`/`pdb` inside the component
Right: the Python body really runs, even with a warm cache; nothing is written to the cache in this
    mode.
Reported: jax-ml/jax#10023, brainpy/BrainPy#605, jax-ml/jax PR #27059
"""

import jax
import jax.numpy as jnp

from shim import component

seen = []


@component
def f(x):
    if jax.config.jax_disable_jit:
        seen.append(float(x))  # only legal when run eagerly
    return x * 2


assert float(f(jnp.float32(3))) == 6.0  # warm the cache first
with jax.disable_jit():
    assert float(f(jnp.float32(4))) == 8.0 and seen == [4.0]
assert float(f(jnp.float32(5))) == 10.0 and seen == [4.0]  # compiled path again
