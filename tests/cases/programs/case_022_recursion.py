"""Recursive and mutually recursive functions.

Hit by: tree recursions with a static depth; helpers that call each other
Right: 120, 22, 3; the dependency walk terminates on cycles, including a component whose closure
    holds itself.
Reported: numba/numba PR #8375 (recursive dependency hashing)
"""

from shim import component


def fact(x, n):
    return x if n == 0 else fact(x * n, n - 1)


assert float(component(fact, static_argnums=1)(1.0, 5)) == 120.0


def even(x, n):
    return x if n == 0 else odd(x + 1, n - 1)


def odd(x, n):
    return x if n == 0 else even(x + 10, n - 1)


assert float(component(even, static_argnums=1)(0.0, 4)) == 22.0
selfref = component(lambda x, n: x if n == 0 else selfref(x + 1, n - 1), static_argnums=1)
assert float(selfref(0.0, 3)) == 3.0
