"""Impure tracing: time, RNG, environment, files read while tracing.

Hit by: `os.environ["MODE"]`, `random.random()`, data files loaded inside the function
Right: 1.5, 10.5, 12.5: the key comes from the trace, which runs again.
Reported: jax-ml/jax#2884 (side effects); triton-lang/triton PR #8342 (environment variables in the
    key)
"""

from shim import fresh, w

src = """
import os
def f(x): return x * (10.0 if os.environ.get('FAST') else 1.0) + float(open('coef.txt').read())
print(float(component(f)(1.0)))
"""
w("coef.txt", "0.5")
a = fresh(src, env={"FAST": ""})
b = fresh(src, env={"FAST": "1"})
w("coef.txt", "2.5")
c = fresh(src, env={"FAST": "1"})
assert (a, b, c) == ("1.5", "10.5", "12.5")
