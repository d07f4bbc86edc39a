"""Keyword, positional and default arguments name one call.

Hit by: APIs called in mixed styles; remote clients
Right: All equal, and one entry for the spellings: the call is bound through the signature.
Reported: jax-ml/jax#523, PR #595, #1159, #10618
"""

from shim import component, entries, from_artifact, needs_export, one, to_artifact


def count(name):
    return len([entry for entry in entries() if name in entry])


f = component(lambda x, y=1.0: x - y, name="f")
assert [float(v) for v in (f(5.0, 3.0), f(5.0, y=3.0), f(y=3.0, x=5.0))] == [2.0, 2.0, 2.0]
assert count("jit_f-") == 1  # three spellings, one entry
assert float(f(5.0)) == 4.0 and count("jit_f-") == 2  # a default left out is a constant of the program, as in jax.jit
n = component(lambda x, k=2: x * k, static_argnames="k", name="n")
assert float(n(3.0, 2)) == float(n(3.0, k=2)) == float(n(3.0)) == 6.0
assert count("jit_n-") == 1  # a static default is the same value as the default written out

needs_export()

a = from_artifact(to_artifact(lambda x, y: x - y, one, y=one))
assert float(a(one, y=one)) == 0.0
assert float(a(one, one)) == 0.0  # positional call of the same artifact
