"""Eight devices, and a store of its own for every test."""

import jax
import pytest

import prejit

# Not through XLA_FLAGS, which every process that a test of another folder starts would inherit.
jax.config.update("jax_num_cpu_devices", 8)


@pytest.fixture(autouse=True)
def store(tmp_path):
    """Use a fresh store, in memory and on disk, for one test."""
    with prejit.use_store(prejit.Store(tmp_path / "store")) as fresh:
        yield fresh
