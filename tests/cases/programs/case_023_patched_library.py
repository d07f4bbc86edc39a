"""Library patched or upgraded under the cache.

Hit by: `pip install -U jax`, editable installs, monkeypatched `jax.nn` functions
Right: 2, 50, 9. Version strings alone are not enough for patched or editable packages.
Reported: Blackwellboy/model-serving-minefield#3 (headers changed), vllm-project/vllm#41871,
    pytorch/pytorch PR #101027 (compiler source not in the key)
"""

from shim import SCRATCH, fresh, w

w("lib.py", "__version__ = '1.0'\ndef act(x): return x * 2\n")
w("prog.py", "import lib\nprint(float(component(lambda x: lib.act(x))(1.0)))\n")
a = fresh("prog.py")
patch = "import lib\nlib.act = lambda x: x * 50\n" + open(SCRATCH + "/prog.py").read()
b = fresh(patch)  # version string unchanged
c = fresh("import jax.nn\njax.nn.relu = lambda x: x * 9\nprint(float(component(lambda x: jax.nn.relu(x))(1.0)))")
assert (a, b, c) == ("2.0", "50.0", "9.0")
