"""Closures with one name and different captured values.

Hit by: factories (`make_loss(weight)`), layer builders
Right: 2, 3, 2 in-process; 2 and 7 across processes.
Reported: numba/numba#6093, numba/numba#2065, NVIDIA/cccl#6715
"""

from shim import component, fresh


def make(c):
    return component(lambda x: x * c)


f, g = make(2.0), make(3.0)  # same qualname, same code object
assert (float(f(1.0)), float(g(1.0)), float(f(1.0))) == (2.0, 3.0, 2.0)
src = "def make(c):\n    return component(lambda x: x * c)\nprint(float(make(%s)(1.0)))"
assert fresh(src % "2.0") == "2.0" and fresh(src % "7.0") == "7.0"
