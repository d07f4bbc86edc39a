"""Functions made in a loop.

Hit by: per-layer or per-fold builders
Right: as in Python. If the decorator hashes captured values at decoration time (i=0) but traces
    later (i=2), the entry for "i=0" holds the wrong program.
Reported: jax-ml/jax#9288, jax-ml/jax PR #1605, NVIDIA/cccl#6715
"""

from shim import component

late, bound = [], []
for i in range(3):

    @component
    def f(x):
        return x + i  # late binding: reads i at trace time

    @component
    def g(x, i=i):
        return x + i

    late.append(f)
    bound.append(g)
assert [float(h(0.0)) for h in late] == [2.0, 2.0, 2.0]
assert [float(h(0.0)) for h in bound] == [0.0, 1.0, 2.0]
