"""Entries that earlier versions wrote are read for good, or are a clean miss; see docs/spec/entry.md."""

from pathlib import Path

import pytest
from tests.compat.make_golden import GOLDEN, golden_entry

from prejit.store import FORMAT_VERSION, CacheEntry, Store

FILES = sorted(GOLDEN.glob("entry-v*.bin"))


def test_this_format_version_has_its_golden_file():
    assert GOLDEN / f"entry-v{FORMAT_VERSION}.bin" in FILES


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_golden_entries_are_read(path: Path):
    assert CacheEntry.from_bytes(path.read_bytes()) == golden_entry()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_golden_entries_are_served(path: Path, tmp_path: Path):
    entry = golden_entry()
    Store(tmp_path).put(entry)  # makes the directories, and a file whose place the golden one takes
    (target,) = tmp_path.rglob("*.entry")
    target.write_bytes(path.read_bytes())
    found = Store(tmp_path).lookup(entry.key)
    assert found.outcome == "hit"
    assert found.entry == entry
