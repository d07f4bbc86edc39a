"""The store's promises, on every kind of store."""

from pathlib import Path

from prejit.store import Store
from prejit.testing import BrokenLocks, FaultyFileSystem, StoreContract


class TestDisk(StoreContract):
    pass


class TestNoCap(StoreContract):
    def make_store(self, path: Path) -> Store:
        return Store(path / "store", max_size=None, memory_max_size=None)


class TestWithoutMemory(StoreContract):
    """Every lookup goes to the disk, because the memory tier holds nothing."""

    def make_store(self, path: Path) -> Store:
        return Store(path / "store", memory_max_size=0)


class TestMemoryOnly(StoreContract):
    survives_the_process = False

    def make_store(self, path: Path) -> Store:
        return Store(None)


class TestStrict(StoreContract):
    def make_store(self, path: Path) -> Store:
        return Store(path / "store", strict=True)


class TestWithoutLocks(StoreContract):
    def make_store(self, path: Path) -> Store:
        return Store(path / "store", locks=BrokenLocks())


class TestThroughTheSeam(StoreContract):
    """A faulty file system without faults is a file system."""

    def make_store(self, path: Path) -> Store:
        return Store(path / "store", fs=FaultyFileSystem())


class TestThroughALink(StoreContract):
    def make_store(self, path: Path) -> Store:
        (path / "real").mkdir(exist_ok=True)
        if not (path / "link").exists():
            (path / "link").symlink_to(path / "real")
        return Store(path / "link")
