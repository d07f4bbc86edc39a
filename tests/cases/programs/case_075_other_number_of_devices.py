"""Artifact made for N devices, called with M.

Hit by: moving from an 8-GPU node to a 4-GPU worker
Right: as asserted; or re-shard automatically when asked.
Reported: jax-ml/jax PR #21280, PR #18001; tests/export_test.py
    `test_call_with_different_no_of_devices_*`
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from shim import from_artifact, mesh4, needs_export, raises, to_artifact

needs_export()

m4, m2 = mesh4(), Mesh(np.array(jax.devices()[:2]), ("d",))
put = lambda m: jax.device_put(jnp.arange(8.0), NamedSharding(m, P("d")))
one_dev = from_artifact(to_artifact(lambda x: x * 2, jnp.arange(8.0)))
assert one_dev(put(m4)).sharding.spec == P("d")  # no shardings inside: runs anywhere
four = from_artifact(to_artifact(jax.jit(lambda x: x * 2, in_shardings=NamedSharding(m4, P("d"))), put(m4)))
assert np.allclose(four(put(m4)), 2 * np.arange(8.0))
for bad in (jnp.arange(8.0), put(m2)):
    e = raises(ValueError, lambda: four(bad))
    assert "4 devices" in str(e)
