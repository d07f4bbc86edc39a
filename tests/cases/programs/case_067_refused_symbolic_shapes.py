"""Operations that refuse symbolic shapes.

Hit by: FFT, searchsorted, `np.arange(x.shape[0])`, Python loops over a dimension
Right: automatic polymorphism is attempted, never required; fall back to one entry per shape.
Reported: jax-ml/jax#36766, #22489, #24730
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import export

from shim import component, from_artifact, needs_export, raises, to_artifact

fs = (
    lambda x: jnp.fft.fft(x).real,
    lambda x: x * np.arange(x.shape[0]),
    lambda x: sum(x[i] for i in range(x.shape[0])),
    lambda x: jnp.searchsorted(x, jnp.ones(2)).astype(jnp.float32),
)
for f in fs:  # one entry per shape, always
    c = component(f)
    assert np.allclose(c(jnp.arange(4.0)), f(jnp.arange(4.0))) and np.allclose(c(jnp.arange(5.0)), f(jnp.arange(5.0)))

needs_export()

(b,) = export.symbolic_shape("b")
S = jax.ShapeDtypeStruct((b,), jnp.float32)


def poly_or_static(f, x):  # what a component should do on its own
    try:
        return from_artifact(to_artifact(f, S))(x)
    except Exception:
        return component(f)(x)


ok = from_artifact(to_artifact(lambda x: x * jnp.arange(x.shape[0]), S))
assert np.allclose(ok(jnp.ones(3)), [0, 1, 2])
for f in fs:
    raises(Exception, lambda: to_artifact(f, S))
    assert np.allclose(poly_or_static(f, jnp.arange(4.0)), f(jnp.arange(4.0)))
