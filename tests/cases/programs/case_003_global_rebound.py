"""Global rebound inside one process.

Hit by: notebook users who rerun the cell that sets `K`
Right: The store never maps the new constant to 6.0. A new component of the function sees the new
    value; one that was called before keeps what it traced, as `jax.jit` does.
Reported: jax-ml/jax#1426; triton-lang/triton#7322
"""

import jax.numpy as jnp

from shim import component, fresh

K = 2.0


def f(x):
    return x * K


a = float(component(f)(jnp.float32(3)))
K = 5.0
b = float(component(f)(jnp.float32(3)))  # a new wrapper of the same function
c = float(fresh("K = 5.0\ndef f(x): return x * K\nprint(float(component(f)(jnp.float32(3))))"))
assert (a, c) == (6.0, 15.0)  # nothing stale reaches the disk
assert b == 15.0  # a new wrapper traces again; `jax.jit` gives 6.0
