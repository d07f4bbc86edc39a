"""Tracing order depends on hash randomisation.

Hit by: code that iterates a `set` of names, sharding rules kept in sets
Right: 15.0 always. The programs do differ, so each seed has its entry; a wrong hit is not allowed.
Reported: jax-ml/jax#16649, jax-ml/jax#21236, jax-ml/jax#13325
"""

from shim import entries, fresh

src = """
S = {'alpha', 'beta', 'gamma', 'delta'}
def f(d):
    o = 0.0
    for k in S: o = o * 2 + d[k]
    return o
print(float(component(f)({k: 1.0 for k in S})))
"""
assert {fresh(src, env={"PYTHONHASHSEED": str(s)}) for s in (0, 1, 2, 1)} == {"15.0"}
assert len([e for e in entries() if "jit_f" in e]) == 3  # three seeds, three programs; seed 1 hits
