"""Remote worker without the user's source.

Hit by: kernel registries, Ray/Dask/Modal-style workers
Right: the worker needs only the artifact. Nothing in it may import `usermod`; classes in the tree
    need registration or plain containers (case 53).
Reported: cloudpipe/cloudpickle PR #417, cloudpipe/cloudpickle#500, dask/distributed#2268,
    trytoolchest/lug#12
"""

import os

from shim import SCRATCH, fresh, needs_export, w

needs_export()

w("usermod.py", "def model(d):\n    return {'y': d['w'] * 2}\n")
fresh("import usermod\nopen('art.bin', 'wb').write(to_artifact(usermod.model, {'w': one}))")
os.remove(SCRATCH + "/usermod.py")
run = "print(from_artifact(open('art.bin', 'rb').read())({'w': one}))"
assert "2." in fresh(run)
e = fresh("import pickle\npickle.loads(b'cusermod\\nmodel\\n.')", check=False)
assert fresh.rc != 0 and "ModuleNotFoundError" in fresh.err  # what pickling by reference does instead
