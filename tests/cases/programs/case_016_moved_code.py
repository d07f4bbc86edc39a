"""Moving code or editing comments should not miss.

Hit by: everyone during development; CI checkouts under different paths
Right: one entry for all three programs; artifact bytes equal (or hashed after stripping locations).
Reported: joblib/joblib PR #680 and #1302, joblib/joblib#1710, numba/numba#9316; jax
    tests/cache_key_test.py `test_identical_computations_different_metadata`
"""

import jax.numpy as jnp

from shim import entries, fresh, needs_export, one, to_artifact, w

body = "def f(x):\n    return jnp.sin(x) * 2 + 1\nprint(float(component(f)(0.0)))\n"
w("a.py", body)
fresh("a.py")
n = len(entries())
w("a.py", "\n\n# a comment\n\n" + body)
fresh("a.py")
w("b.py", "import math  # other file\n\n" + body)
fresh("b.py")
assert len(entries()) == n > 0
needs_export()

ns1, ns2 = {"jnp": jnp}, {"jnp": jnp}
exec(compile(body.split("print")[0], "p.py", "exec"), ns1)
exec(compile("\n\n" + body.split("print")[0], "p.py", "exec"), ns2)
assert to_artifact(ns1["f"], one) == to_artifact(ns2["f"], one)  # a content address needs this
