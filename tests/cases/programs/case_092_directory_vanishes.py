"""Eviction while another process is reading or about to use an entry.

Hit by: small caps, many workers, `tmpwatch`-style cleaners
Right: Right values throughout; the directory is made again on demand, without a warning, since
    nothing needs doing.
Reported: triton-lang/triton#11512 (files vanish between listing and reading), jax-ml/jax#22718,
    tenstorrent/tt-metal PR #51424
"""

import os
import shutil
import warnings

import jax.numpy as jnp

from shim import CACHE, cleared, component, entries

f = component(lambda x: jnp.sin(x) * 3)
y = float(f(1.0))
shutil.rmtree(CACHE)  # the whole directory goes away while we run
cleared()
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    assert float(f(1.0)) == y and float(component(lambda x: jnp.cos(x))(0.0)) == 1.0
assert not caught  # it is made again, so there is nothing to say
assert entries()
shutil.rmtree(CACHE)
os.makedirs(CACHE, mode=0o700)
cleared()
assert float(f(1.0)) == y and entries()  # writing goes on
