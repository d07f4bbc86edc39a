"""Components created per call must not pile up.

Hit by: `component(lambda ...)` inside a training loop, servers that run for weeks
Right: What is in memory goes with the component or sits in a bounded cache: none of the captured
    arrays is kept.
Reported: jax-ml/jax PR #1605, #7930, #11448, #2072; patrick-kidger/equinox PR #980
"""

import gc
import weakref

import numpy as np

from shim import component


def once(i):
    big = np.full(200_000, i, np.float32)
    f = component(lambda x: (x * big).sum())
    f(1.0)
    return weakref.ref(big)


refs = [once(float(i)) for i in range(6)]
gc.collect()
alive = sum(r() is not None for r in refs)
assert alive == 0, f"{alive} of 6 captured arrays still alive"
