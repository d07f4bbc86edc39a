"""Module-level constant edited between runs.

Hit by: physics constants, hyperparameters kept as globals or in `config.py`
Right: 6.5, 8.5, 8.7.
Reported: numba/numba PR #8359 (caching notes), triton-lang/triton PR #7332 (fixes #7322),
    numba/numba#9304
"""

from shim import fresh, w

prog = "import cfg\nK = cfg.K\nprint(float(component(lambda x: x * K + cfg.B)(2.0)))\n"
w("cfg.py", "K = 3.0\nB = 0.5\n")
w("prog.py", prog)
a = fresh("prog.py")
w("cfg.py", "K = 4.0\nB = 0.5\n")
b = fresh("prog.py")  # a plain global
w("cfg.py", "K = 4.0\nB = 0.7\n")
c = fresh("prog.py")  # reached as module.attribute
assert [a, b] == ["6.5", "8.5"] and abs(float(c) - 8.7) < 1e-5
