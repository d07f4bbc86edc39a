"""Default arguments replaced or mutated.

Hit by: `def f(x, table=TABLE)`, notebooks
Right: 2, 101, 51, 8. Values of `__defaults__`/`__kwdefaults__` belong in the key, read at trace
    time.
Reported: joblib/joblib#1530 (constants promoted to defaults); general Python trap
"""

from shim import component, fresh

src = "def f(x, c=[%s]): return x + c[0]\nprint(float(component(f)(1.0)))"
assert [fresh(src % v) for v in ("1.0", "100.0")] == ["2.0", "101.0"]  # default edited between runs


def f(x, c=[1.0]):
    return x + c[0]


f.__defaults__[0][0] = 50.0  # mutated before the first call
assert float(component(f)(1.0)) == 51.0


def k(x, *, c=1.0):
    return x + c


k.__kwdefaults__ = {"c": 7.0}
assert float(component(k)(1.0)) == 8.0
