import pytest

import prejit


@pytest.fixture(autouse=True)
def store(tmp_path):
    """Use a fresh store for one test."""
    with prejit.use_store(prejit.Store(tmp_path / "store")) as fresh:
        yield fresh
