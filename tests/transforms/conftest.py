"""Eight devices, and a store of its own for every test."""

import pytest

import prejit


@pytest.fixture(autouse=True)
def store(tmp_path):
    """Use a fresh store, in memory and on disk, for one test."""
    with prejit.use_store(prejit.Store(tmp_path / "store")) as fresh:
        yield fresh
