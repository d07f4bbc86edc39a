"""Threads calling one component for the first time.

Hit by: data-loader threads, servers, free-threaded Python
Right: eight right answers from one trace; thread-local configuration read on the calling thread.
Reported: jax-ml/jax PR #1055; ROCm/aiter PR #4966
"""

import threading
import time

import jax
import numpy as np

from shim import component

n, out = [], []


def slow(x):
    n.append(1)
    time.sleep(0.2)
    return x * 2


f = component(slow)
ts = [threading.Thread(target=lambda: out.append(float(f(3.0)))) for _ in range(8)]
[t.start() for t in ts]
[t.join() for t in ts]
assert out == [6.0] * 8 and len(n) == 1


def worker(x64):
    with jax.enable_x64(x64):
        out.append(component(lambda x: x + 1.5)(np.float64(1)).dtype.name)


out.clear()
ts = [threading.Thread(target=worker, args=(i % 2 == 0,)) for i in range(6)]
[t.start() for t in ts]
[t.join() for t in ts]
assert sorted(out) == ["float32"] * 3 + ["float64"] * 3  # thread-local config must not leak into the key
