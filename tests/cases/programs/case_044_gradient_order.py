"""Gradient order exhausted on a loaded artifact.

Hit by: people who serialize with the default `vjp_order=0` and differentiate later
Right: 12, 12, then an error naming the stored order and how to raise it.
Reported: jax-ml/jax PR #21763 (`vjp_order`), PR #15432; tests/export_test.py
    `test_higher_order_grad`
"""

import jax
import jax.numpy as jnp

from shim import from_artifact, needs_export, raises, to_artifact

needs_export()

s = jnp.float32(2)
a1 = from_artifact(to_artifact(lambda x: x**3, s, vjp_order=1))
a2 = from_artifact(to_artifact(lambda x: x**3, s, vjp_order=2))
assert float(jax.grad(jax.grad(a2))(s)) == 12.0
assert float(jax.grad(a1)(s)) == 12.0
e = raises(Exception, lambda: jax.grad(jax.grad(a1))(s))
assert "order" in str(e)
