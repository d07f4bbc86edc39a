"""`jax.checkpoint`: named residuals and policies see inside.

Hit by: memory-tuned transformer training
Right: `h` is saved; gradients equal the undecorated ones.
Reported: jax-ml/jax PR #40309, PR #16578, jax-ml/jax#12792
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax._src.ad_checkpoint import saved_residuals
from jax.ad_checkpoint import checkpoint_name

from shim import component, x3

block = component(lambda x: jnp.sin(checkpoint_name(jnp.cos(x), "h")))
pol = jax.checkpoint_policies.save_only_these_names("h")
res = saved_residuals(jax.checkpoint(lambda x: block(x) ** 2, policy=pol), x3)
assert len(res) == 2  # the argument and "h"
g = jax.grad(lambda x: jax.checkpoint(lambda x: block(x) ** 2, policy=pol)(x).sum())(x3)
assert np.allclose(g, jax.grad(lambda x: (jnp.sin(jnp.cos(x)) ** 2).sum())(x3))
