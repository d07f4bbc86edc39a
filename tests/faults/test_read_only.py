"""A directory that can be read and not written, by its mode, by the system, or because it was asked for."""

import errno
import os

import pytest

from prejit.errors import StoreUnavailable, StoreWarning
from prejit.store import Store
from prejit.testing import FaultyFileSystem, make_entry


def listing(path):
    return sorted((where, sorted(names), os.stat(where).st_mtime_ns) for where, _, names in os.walk(path))


@pytest.fixture
def filled(tmp_path):
    path = tmp_path / "s"
    store = Store(path)
    store.put(make_entry(1))
    store.clear(tier="memory")
    yield path
    os.chmod(path, 0o755)


def test_a_mode_without_writing_is_respected_even_for_root(filled):
    os.chmod(filled, 0o555)
    before = listing(filled)
    store = Store(filled)
    assert store.get(make_entry(1).key) == make_entry(1)
    assert store.hits(make_entry(1).key) == 1
    assert store.stats().state == "read-only"
    store.flush()
    store.gc()
    with store.claim(make_entry(2).key, 600.0) as claim:
        assert not claim.owned
    with pytest.warns(StoreWarning, match=f"hint: chmod u\\+w {filled}, or set PREJIT_READ_ONLY=1") as caught:
        assert [store.put(make_entry(number)) for number in (2, 3)] == [False, False]
    assert len(caught) == 1
    assert listing(filled) == before
    os.chmod(filled, 0o755)
    assert store.put(make_entry(2)), "and goes on once it can be written"


@pytest.mark.parametrize("code", [errno.EROFS, errno.EACCES, errno.EPERM])
def test_a_read_only_file_system_gives_hits(filled, code):
    failing = dict.fromkeys(["write_new", "append", "replace", "remove", "make_dir"], code)
    store = Store(filled, fs=FaultyFileSystem(failing=failing), memory_max_size=0)
    assert store.get(make_entry(1).key) == make_entry(1)
    store.flush()
    with pytest.warns(StoreWarning, match="PREJIT_READ_ONLY=1") as caught:
        assert not store.put(make_entry(2))
    assert len(caught) == 1


def test_damage_that_cannot_be_moved_is_only_reported(filled):
    [file] = filled.rglob("*.entry")
    file.write_bytes(b"garbage")
    store = Store(filled, read_only=True)
    assert [store.lookup(make_entry(1).key).outcome for _ in range(2)] == ["corrupt", "corrupt"]
    assert store.verify().quarantined == 0
    assert file.read_bytes() == b"garbage"


@pytest.mark.parametrize("code", [errno.EACCES, errno.EIO])
def test_an_unreadable_entry_is_a_counted_miss(filled, code):
    store = Store(filled, fs=FaultyFileSystem(failing={"read": code}), memory_max_size=0)
    with pytest.warns(StoreWarning) as caught:
        found = [store.lookup(make_entry(1).key) for _ in range(2)]
    assert [lookup.outcome for lookup in found] == ["miss", "miss"]
    assert "unreadable" in found[0].reason
    assert len(caught) == 1
    assert store.stats().errors == 2


class OneStays(FaultyFileSystem):
    """Refuse to remove one entry, as a directory of its own without writing does."""

    def __init__(self, digest, code):
        super().__init__()
        self.digest, self.code = digest, code

    def remove(self, path):
        if self.digest in path:
            raise OSError(self.code, os.strerror(self.code), path)
        super().remove(path)


@pytest.mark.parametrize(("code", "hint"), [(errno.EACCES, "chmod -R u\\+w"), (errno.EIO, "set PREJIT_CACHE_DIR")])
def test_clearing_goes_on_past_what_stays_and_tells_of_it(filled, code, hint):
    for number in range(2, 6):
        Store(filled).put(make_entry(number))
    stuck = make_entry(3).key
    store = Store(filled, fs=OneStays(stuck, code))
    with pytest.warns(StoreWarning, match=f"expected 5 entries to go, got .* for 1 of them at .*\nhint: {hint}"):
        assert store.clear() == 4
    assert store.keys() == [stuck]
    assert store.stats().errors == 1
    assert "1 of them" in store.stats().problem
    with pytest.raises(StoreUnavailable) as caught:
        Store(filled, fs=OneStays(stuck, code), strict=True).clear()
    assert (caught.value.errno, caught.value.operation) == (code, "clearing the store")
    assert stuck in caught.value.path


def test_what_another_process_removed_first_is_no_failure(filled):
    store = Store(filled, fs=OneStays(make_entry(1).key, errno.ENOENT), strict=True)
    assert store.clear() == 0


def test_clearing_a_store_that_is_set_read_only_names_the_setting(filled):
    store = Store(filled, read_only=True)
    with pytest.warns(StoreWarning, match="hint: unset PREJIT_READ_ONLY"):
        assert store.clear() == 0
    assert store.keys() == [make_entry(1).key]
