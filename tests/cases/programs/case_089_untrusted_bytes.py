"""Cached bytes from an untrusted or shared store.

Hit by: team-wide remote caches, world-writable cache folders
Right: No pickle on bytes from a disk or a network. Executables are machine code, so a directory
    that others can write to is refused.
Reported: langflow-ai/langflow PR #13689, GoogleCloudPlatform/evalbench PR #439,
    ekzhu/datasketch#320
"""

import os
import pickle
import warnings

import jax.numpy as jnp

from shim import SCRATCH, cleared, component, entry_files, from_artifact, needs_export, raises


class Evil:
    def __reduce__(self):
        return (open, (SCRATCH + "/owned", "w"))


y = float(component(lambda x: jnp.sin(x) * 2)(1.0))
before = entry_files()
assert before
for path in before:
    with open(path, "wb") as file:
        file.write(pickle.dumps(Evil()))
cleared()
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    assert float(component(lambda x: jnp.sin(x) * 2)(1.0)) == y
assert not os.path.exists(SCRATCH + "/owned")
pickle.loads(pickle.dumps(Evil())).close()  # what it does to those who unpickle
assert os.path.exists(SCRATCH + "/owned")
os.remove(SCRATCH + "/owned")

needs_export()

raises(Exception, lambda: from_artifact(pickle.dumps(Evil())))
assert not os.path.exists(SCRATCH + "/owned")
