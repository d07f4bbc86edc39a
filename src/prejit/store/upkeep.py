"""Housekeeping of a store's side directories: quarantine, drafts, abandoned locks. Everything here is best effort."""

import contextlib
import os
from collections.abc import Iterable

from prejit.store.files import FileInfo, FileSystem
from prejit.store.locks import FileLocks

__all__ = ["quarantine", "remove_drafts", "remove_locks", "trim_quarantine"]

# A draft or lock file this old belongs to nobody: publishing takes seconds, a compile less than an hour.
STALE_AFTER_S = 3600.0
QUARANTINE_FILES = 16
QUARANTINE_BYTES = 64 * 1024**2


def _listed(files: FileSystem, directory: str) -> list[FileInfo]:
    with contextlib.suppress(OSError):
        return [info for info in files.scan(directory) if not info.is_dir]
    return []


def _removed(files: FileSystem, paths: Iterable[str]) -> int:
    count = 0
    for path in paths:
        with contextlib.suppress(OSError):
            files.remove(path)
            count += 1
    return count


def quarantine(files: FileSystem, path: str, bad: FileInfo, directory: str, mode: int) -> bool:
    """Move a bad entry out of the way, keeping it for whoever wants to know what happened.

    Args:
        files: The file system.
        path: The entry's file.
        bad: Description of the very file that was found bad.
        directory: Where it goes.
        mode: Mode for making that directory.

    Returns:
        True when the file is gone; False when it can't be moved or another process has replaced it meanwhile.
    """
    digest = path.rsplit("/", 1)[-1].split(".", 1)[0]
    try:
        now = files.stat(path)
        if (now.inode, now.mtime, now.size_bytes) != (bad.inode, bad.mtime, bad.size_bytes):
            return False
        files.make_dir(directory, mode)
        files.replace(path, f"{directory}/{digest}.{os.urandom(4).hex()}.entry")
    except OSError:
        return False
    trim_quarantine(files, directory)
    return True


def trim_quarantine(files: FileSystem, directory: str) -> int:
    """Keep the newest bad entries, few in number and in bytes; return how many went."""
    surplus: list[str] = []
    total_bytes = 0
    for rank, info in enumerate(sorted(_listed(files, directory), key=lambda info: (-info.mtime, info.name))):
        total_bytes += info.size_bytes
        if rank >= QUARANTINE_FILES or total_bytes > QUARANTINE_BYTES:
            surplus.append(f"{directory}/{info.name}")
    return _removed(files, surplus)


def remove_drafts(files: FileSystem, directory: str, *, now: float) -> int:
    """Remove files that a killed writer left behind; return how many."""
    return _removed(
        files,
        (
            f"{directory}/{info.name}"
            for info in _listed(files, directory)
            if info.name.endswith((".tmp", ".draft")) and now - info.mtime > STALE_AFTER_S
        ),
    )


def remove_locks(files: FileSystem, locks: FileLocks, directory: str, *, now: float) -> int:
    """Remove lock files that a killed owner left behind and nobody holds; return how many."""
    count = 0
    for info in _listed(files, directory):
        if now - info.mtime > STALE_AFTER_S:
            path = f"{directory}/{info.name}"
            with contextlib.suppress(OSError):
                handle = locks.acquire(path)
                if handle is not None:
                    locks.release(handle, path)
                    count += 1
    return count
