"""Helper function edited in another file between runs.

Hit by: anyone whose component calls a helper imported from another module
Right: 7.0, then 16.0. A key made from the component's own source (or the defining file's mtime)
    gives 7.0 twice.
Reported: numba/numba#9483, numba/numba PR #8359 and #8375, numba/numba#8851,
    https://numba.readthedocs.io/en/stable/developer/caching.html
"""

from shim import fresh, w

w("helpers.py", "def scale(x): return x * 2.0\n")
w("prog.py", "from helpers import scale\nprint(float(component(lambda x: scale(x) + 1)(3.0)))\n")
first = fresh("prog.py")
w("helpers.py", "def scale(x): return x * 5.0\n")  # same byte length, likely the same mtime second
assert (first, fresh("prog.py")) == ("7.0", "16.0")
