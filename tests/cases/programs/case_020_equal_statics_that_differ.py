"""Static arguments that compare equal but behave differently.

Hit by: `static_argnums` with flags, scales, axis values
Right: 3, 4, 5 and +inf, -inf. A persistent key should use type and exact bits (also NaN, which
    never equals itself).
Reported: jax-ml/jax#9273, for types; signed zeros are of the same kind
"""

import numpy as np

from shim import component

f = component(lambda s, x: x + len(type(s).__name__), static_argnums=0)
assert [float(f(v, 0.0)) for v in (1, True, 1.0)] == [3.0, 4.0, 5.0]
g = component(lambda s, x: x / s, static_argnums=0)
assert np.isposinf(g(0.0, 1.0)) and np.isneginf(g(-0.0, 1.0))
traced = []
h = component(lambda s, x: traced.append(s) or x, static_argnums=0)
h(float("nan"), 0.0), h(float("nan"), 0.0)
assert len(traced) == 1  # NaN finds its own program again
