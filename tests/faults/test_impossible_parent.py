"""A cache directory below a place that takes no directories, though it exists."""

import os
from pathlib import Path

import pytest

from prejit.errors import StoreWarning
from prejit.store import OSFileSystem, Store
from prejit.testing import make_entry


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="no /proc, the one such place that is on every machine")
def test_a_place_without_room_for_directories_is_an_error_not_a_recursion() -> None:
    with pytest.raises(OSError):  # noqa: PT011  # which errno is the kernel's choice
        OSFileSystem().make_dir("/proc/nowhere/deeper", 0o700)
    store = Store(Path("/proc/nowhere/deeper"))
    with pytest.warns(StoreWarning, match="PREJIT_CACHE_DIR"):
        store.put(make_entry(1))
    assert store.lookup(make_entry(1).key).outcome == "hit", "memory still works"


def test_two_makers_of_one_directory(tmp_path: Path) -> None:
    class Racing(OSFileSystem):
        def make_dir(self, path: str, mode: int) -> None:
            super().make_dir(path, mode)
            super().make_dir(path, mode)

    Racing().make_dir(str(tmp_path / "a" / "b"), 0o700)
    assert (tmp_path / "a" / "b").is_dir()
