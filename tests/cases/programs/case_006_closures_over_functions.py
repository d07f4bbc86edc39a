"""Closures that capture functions: wrong hit, or never a hit.

Hit by: `compose(f, g)`, ODE steppers that take a vector field
Right: 3 and 10; a second process adds no entry.
Reported: numba/numba#6093 (wrong replay), numba/numba#6264 (a per-process id in the key: never
    hits)
"""

from shim import entries, fresh

src = """
def make(fn): return component(lambda x: fn(x) + 1)
def f(x): return x * 2
def g(x): return x * 9
print(float(make(f)(1.0)), float(make(g)(1.0)))
"""
assert fresh(src) == "3.0 10.0"
n = len(entries())
assert fresh(src) == "3.0 10.0" and len(entries()) == n > 0  # second process: only hits
