"""A power cut: the rename reached the disk, the data did only in part."""

import pytest

from prejit.store import Store
from prejit.testing import FaultyFileSystem, make_entry


def test_a_torn_entry_is_corrupt_and_repaired(tmp_path):
    torn = Store(tmp_path / "s", fs=FaultyFileSystem(torn=True), memory_max_size=0)
    assert torn.put(make_entry(1))
    later = Store(tmp_path / "s", memory_max_size=0)
    assert later.lookup(make_entry(1).key).outcome == "corrupt"
    assert later.put(make_entry(1))
    assert later.get(make_entry(1).key) == make_entry(1)
    assert later.stats().corrupt == 1


@pytest.mark.parametrize("share", [0.0, 0.01, 0.3, 0.7, 0.999])
def test_a_file_cut_anywhere_is_never_an_entry(tmp_path, share):
    store = Store(tmp_path / "s", memory_max_size=0)
    store.put(make_entry(1, size_bytes=5000))
    [path] = tmp_path.rglob("*.entry")
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * share)])
    assert store.lookup(make_entry(1).key).outcome == "corrupt"
    assert store.lookup(make_entry(1).key).outcome == "miss"
