"""No source: notebook, REPL, `exec`, frozen app.

Hit by: Jupyter users, SymPy `lambdify`, packaged or obfuscated apps
Right: 6, 8, 6; identical code in a second process hits. `inspect.getsource` raises `OSError` here
    and must not be required; the temporary file name that the kernel gives a cell must not enter
    the key.
Reported: joblib/joblib#1096, #1498, PR #1570; numba/numba#5128; dashingsoft/pyarmor#2193;
    pyinstaller/pyinstaller#5673
"""

from shim import component, entries, fresh


def cell(body):
    ns = {}
    exec(compile(f"def f(x):\n    return {body}\n", "<ipython-input-1>", "exec"), ns)
    return ns["f"]


f, g = component(cell("x * 3")), component(cell("x * 4"))  # same name, same "file", same line
assert (float(f(2.0)), float(g(2.0)), float(f(2.0))) == (6.0, 8.0, 6.0)
src = "ns = {}\nexec('def f(x): return x * 3', ns)\nprint(float(component(ns['f'])(2.0)))"
assert fresh(src) == "6.0"
n = len(entries())
assert fresh(src) == "6.0" and len(entries()) == n
