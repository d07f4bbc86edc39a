"""Optional dependencies missing at the moment of saving.

Hit by: a fresh `pip install jax`, slim worker images
Right: declare the dependency, or detect its absence when the feature is switched on, not after
    minutes of tracing.
Reported: jax/_src/lru_cache.py; jax without `flatbuffers` or `filelock`
"""

from shim import fresh, needs_export

hide = "import sys\nsys.modules['flatbuffers'] = None\n"
out = fresh(hide + "print(float(component(lambda x: x * 2)(3.0)))")
assert out == "6.0"  # computing never depends on it
needs_export()

fresh(hide + "try: to_artifact(lambda x: x, one)\nexcept ImportError as e: print('flatbuffers' in str(e))")
assert fresh.rc == 0
early = fresh(hide + "e = export.export(jax.jit(lambda x: x))(one)\nprint('exported')", check=False)
assert early == "" and "flatbuffers" in fresh.err  # should be reported before tracing, not after
