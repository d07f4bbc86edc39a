"""The directory, or a part of it, goes away while the store is in use."""

import errno
import os
import shutil

import pytest

from prejit.store import Store
from prejit.testing import FaultyFileSystem, make_entry


def test_everything_goes_away_and_comes_back_with_the_next_put(tmp_path):
    store = Store(tmp_path / "s", memory_max_size=0)
    store.put(make_entry(1))
    shutil.rmtree(tmp_path / "s")
    assert store.lookup(make_entry(1).key).outcome == "miss"
    assert (store.keys(), list(store.items()), store.hits(make_entry(1).key)) == ([], [], 0)
    store.gc()
    store.flush()
    assert not (tmp_path / "s").exists(), "looking and counting do not bring it back"
    assert store.put(make_entry(1))
    assert store.get(make_entry(1).key) == make_entry(1)
    assert store.stats().errors == 0


def test_hits_counted_before_are_not_written_into_nothing(tmp_path):
    store = Store(tmp_path / "s", memory_max_size=0)
    store.put(make_entry(1))
    store.get(make_entry(1).key)
    shutil.rmtree(tmp_path / "s")
    store.flush()
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize("again", ["os.makedirs", "nothing"])
def test_a_claim_brings_it_back_too(tmp_path, again):
    store = Store(tmp_path / "s")
    store.put(make_entry(1))
    shutil.rmtree(tmp_path / "s")
    if again == "os.makedirs":
        os.makedirs(tmp_path / "s")
    with store.claim(make_entry(2).key, 0.0) as claim:
        assert claim.owned
        assert store.put(make_entry(2))


@pytest.mark.parametrize("part", ["v1", "v1/tmp", "v1/hits", "shard", "entry"])
def test_any_part_may_go(tmp_path, part):
    store = Store(tmp_path / "s", memory_max_size=0)
    store.put(make_entry(1))
    store.get(make_entry(1).key)
    store.flush()
    [file] = tmp_path.rglob("*.entry")
    victim = {"shard": file.parent, "entry": file}.get(part, tmp_path / "s" / part)
    if victim.is_dir():
        shutil.rmtree(victim)
    else:
        victim.unlink()
    assert store.lookup(make_entry(1).key).entry in (None, make_entry(1))
    assert store.put(make_entry(1))
    assert store.get(make_entry(1).key) == make_entry(1)
    assert store.stats().errors == 0


def test_a_stale_handle_is_a_miss(tmp_path):
    Store(tmp_path / "s").put(make_entry(1))
    store = Store(tmp_path / "s", fs=FaultyFileSystem(failing={"read": errno.ESTALE}), memory_max_size=0)
    found = store.lookup(make_entry(1).key)
    assert (found.outcome, found.reason) == ("miss", "absent")
    assert store.stats().errors == 0


def test_files_that_vanish_between_listing_and_reading_are_left_out(tmp_path):
    store = Store(tmp_path / "s", memory_max_size=0)
    for number in range(3):
        store.put(make_entry(number))
    listed = store.items()
    next(listed)
    shutil.rmtree(tmp_path / "s/v1")
    assert list(listed) == []
