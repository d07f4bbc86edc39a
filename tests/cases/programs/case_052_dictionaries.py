"""Dictionaries: key order and key types.

Hit by: parameter dicts keyed by layer index, feature dicts
Right: as asserted (or an error *at export time* that names the offending key); mixed-type keys are
    rejected as in JAX.
Reported: jax-ml/jax#24398, #4085, #8419, #15358, #32680, #40026
"""

from shim import component, entries, from_artifact, needs_export, one, raises, to_artifact

f = component(lambda d: {"z": d["a"] - d["b"], "k": d["b"]})
r1 = f({"a": 5.0, "b": 2.0})
n = len(entries())
r2 = f({"b": 2.0, "a": 5.0})  # other insertion order: same entry
assert float(r1["z"]) == float(r2["z"]) == 3.0 and list(r1) == ["k", "z"] and len(entries()) == n
assert float(component(lambda d: d[0] - d[1])({1: 2.0, 0: 5.0})) == 3.0
e = raises(ValueError, lambda: component(lambda d: d[0])({0: 1.0, "a": 2.0}))
needs_export()

assert float(from_artifact(to_artifact(lambda d: d[0] - d[1], {0: one, 1: one}))({0: one, 1: one})) == 0.0
