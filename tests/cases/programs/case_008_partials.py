"""`functools.partial` with different bound values.

Hit by: config bound with `partial`, sweep scripts
Right: 2, 3, 3; no `__name__`/`__qualname__` crash (a partial has neither).
Reported: joblib/joblib#1497
"""

import functools

from shim import component


def step(x, lr, decay=1.0):
    return x - lr * decay * x


p1, p2 = functools.partial(step, lr=0.5), functools.partial(step, lr=0.25)
c1, c2 = component(p1), component(p2)
assert (float(c1(4.0)), float(c2(4.0))) == (2.0, 3.0)
nested = component(functools.partial(p1, decay=0.5))  # partial of a partial
assert float(nested(4.0)) == 3.0
