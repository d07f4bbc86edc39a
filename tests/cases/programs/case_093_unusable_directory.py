"""Read-only, foreign-owned or impossible cache directory.

Hit by: cluster nodes with a read-only home, images with a pre-filled cache, first-creator ownership
    in shared directories
Right: 6.0 both times; reading needs no write permission. One warning that says what to do.
    Importing makes no directory.
Reported: goodfire-ai/spd PR #974, zadorlab/sella PR #74, jax-ml/jax PR #12594, tests
    `test_cache_write_warning`
"""

import os

from shim import CACHE, SCRATCH, fresh

open(SCRATCH + "/plainfile", "w").close()
src = "print(float(component(lambda x: x * 2)(3.0)))"
assert fresh(src, cache=SCRATCH + "/plainfile/sub") == "6.0"  # cannot be created (works as root too)
assert fresh.err.count("StoreWarning") == 1 and "hint: " in fresh.err
fresh(src)
n = len(os.listdir(CACHE))
os.chmod(CACHE, 0o555)
try:
    assert fresh(src) == "6.0" and len(os.listdir(CACHE)) == n  # pre-filled, read-only: hits, writes nothing
finally:
    os.chmod(CACHE, 0o755)
