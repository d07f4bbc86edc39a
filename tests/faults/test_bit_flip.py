"""Bits that change on the disk, or on the way from it."""

import pytest

from prejit.store import Store
from prejit.testing import FaultyFileSystem, make_entry


@pytest.fixture
def filled(tmp_path):
    Store(tmp_path / "s").put(make_entry(1))
    return tmp_path / "s"


def test_no_flipped_bit_of_a_file_gives_an_entry(filled):
    [file] = filled.rglob("*.entry")
    good = file.read_bytes()
    store = Store(filled, memory_max_size=0)
    for position in range(0, len(good) * 8, 37):
        bad = bytearray(good)
        bad[position // 8] ^= 1 << position % 8
        file.write_bytes(bad)
        found = store.lookup(make_entry(1).key)
        assert (found.outcome, found.entry) == ("corrupt", None), position
    file.write_bytes(good)
    assert store.get(make_entry(1).key) == make_entry(1)


@pytest.mark.parametrize("position", [0, 70, 200, 1000, 5000])
def test_a_flip_on_the_way_is_read_again(filled, position):
    store = Store(filled, fs=FaultyFileSystem(flip_bit=position, flips=1), memory_max_size=0)
    assert store.get(make_entry(1).key) == make_entry(1)
    assert store.stats().corrupt == 0


def test_a_disk_that_always_flips_is_corrupt_and_its_file_is_kept_aside(filled):
    store = Store(filled, fs=FaultyFileSystem(flip_bit=5000), memory_max_size=0)
    assert store.lookup(make_entry(1).key).outcome == "corrupt"
    assert len(list((filled / "v1/quarantine").iterdir())) == 1
