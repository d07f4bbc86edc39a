"""Platform mismatch, and branches baked in by the exporting host.

Hit by: export on a CPU laptop, run on GPU workers
Right: clear platform error; a warning or refusal when tracing consults
    `jax.default_backend()`/`jax.devices()` for a foreign target.
Reported: jax-ml/jax#26000 (platform-dependent code under jit); tests/export_test.py
    `test_error_wrong_platform`, `test_multi_platform*`
"""

import jax
from jax import export, lax

from shim import from_artifact, needs_export, one, raises, to_artifact

needs_export()

gpu_only = from_artifact(to_artifact(lambda x: x * 2, one, platforms=["cuda"]))
e = raises(ValueError, lambda: gpu_only(one))
assert "cuda" in str(e) and "cpu" in str(e)
both = from_artifact(
    to_artifact(
        lambda x: lax.platform_dependent(x, cpu=lambda x: x + 1, cuda=lambda x: x + 2), one, platforms=["cpu", "cuda"]
    )
)
assert float(both(one)) == 2.0
baked = export.export(jax.jit(lambda x: x + 1 if jax.default_backend() == "cpu" else x + 7), platforms=["cuda"])(one)
assert "7.000" in baked.mlir_module()  # the CUDA program should not contain the exporting host's branch
