"""The file system as the store sees it: a narrow seam where tests put faults.

Everything that the disk tier does to files goes through `FileSystem`, one method per step that can fail on its own.
Locks are not here: they are an optimization and have their own seam in `locks`.
"""

import dataclasses
import errno
import os
import stat
from collections.abc import Sequence
from typing import Protocol

__all__ = ["FileInfo", "FileSystem", "OSFileSystem"]


@dataclasses.dataclass(frozen=True, slots=True)
class FileInfo:
    """Describe one file or directory.

    Attributes:
        name: Last part of its path.
        size_bytes: Its size.
        mtime: Unix time of the last change, in seconds.
        mode: Type and permission bits.
        uid: Owner; -1 where the platform has none.
        inode: Number that tells a file from the one that replaced it.
        is_dir: It is a directory.
    """

    name: str
    size_bytes: int
    mtime: float
    mode: int
    uid: int
    inode: int
    is_dir: bool

    @classmethod
    def from_stat(cls, name: str, result: os.stat_result) -> "FileInfo":
        """Take what the store needs from a stat result."""
        return cls(
            name=name,
            size_bytes=result.st_size,
            mtime=result.st_mtime,
            mode=result.st_mode,
            uid=result.st_uid if hasattr(os, "getuid") else -1,
            inode=result.st_ino,
            is_dir=stat.S_ISDIR(result.st_mode),
        )


class FileSystem(Protocol):
    """Do the store's file operations; every method raises `OSError` when it can't."""

    def read(self, path: str, limit_bytes: int | None = None) -> tuple[bytes, FileInfo]:
        """Read a regular file, from its start, and describe the very file that was read."""
        ...

    def write_new(self, path: str, data: bytes) -> None:
        """Create a file that must not exist, write all of it and wait until it is on the device."""
        ...

    def append(self, path: str, data: bytes) -> None:
        """Add to the end of a file in one write, creating it if needed."""
        ...

    def replace(self, source: str, target: str) -> None:
        """Give a file another name in one step, taking the place of what was there."""
        ...

    def remove(self, path: str) -> None:
        """Remove a file."""
        ...

    def scan(self, path: str) -> Sequence[FileInfo]:
        """List a directory; what vanishes meanwhile is left out."""
        ...

    def stat(self, path: str) -> FileInfo:
        """Describe a file or directory, following links."""
        ...

    def make_dir(self, path: str, mode: int) -> None:
        """Make a directory and what is missing above it; one that exists is left as it is."""
        ...


_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
# Non-blocking, so that a pipe with an entry's name can't hang a reader.
_READ = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
# Readable for whoever may enter the directory, and never writable by others: `trust` refuses such a file.
_FILE_MODE = 0o644


class OSFileSystem:
    """Do the store's file operations on the machine's own file system.

    Example:
        >>> OSFileSystem().stat("/").is_dir
        True
    """

    __slots__ = ()

    def read(self, path: str, limit_bytes: int | None = None) -> tuple[bytes, FileInfo]:
        """Read a regular file, from its start, and describe the very file that was read."""
        fd = os.open(path, _READ)
        with open(fd, "rb", buffering=0) as file:
            result = os.fstat(fd)
            if not stat.S_ISREG(result.st_mode):
                raise OSError(errno.EINVAL, "not a regular file", path)
            data = file.readall() if limit_bytes is None else _read_up_to(fd, limit_bytes)
        return data, FileInfo.from_stat(os.path.basename(path), result)

    def write_new(self, path: str, data: bytes) -> None:
        """Create a file that must not exist, write all of it and wait until it is on the device."""
        with open(os.open(path, _NEW_FILE, _FILE_MODE), "wb", buffering=0) as file:
            view = memoryview(data)
            while view:
                view = view[file.write(view) :]
            os.fsync(file.fileno())

    def append(self, path: str, data: bytes) -> None:
        """Add to the end of a file in one write, creating it if needed."""
        fd = os.open(path, _APPEND, _FILE_MODE)
        try:
            os.write(fd, data)
        finally:
            os.close(fd)

    def replace(self, source: str, target: str) -> None:
        """Give a file another name in one step, taking the place of what was there."""
        os.replace(source, target)

    def remove(self, path: str) -> None:
        """Remove a file."""
        os.unlink(path)

    def scan(self, path: str) -> Sequence[FileInfo]:
        """List a directory; what vanishes meanwhile is left out."""
        found: list[FileInfo] = []
        with os.scandir(path) as items:
            for item in items:
                try:
                    found.append(FileInfo.from_stat(item.name, item.stat(follow_symlinks=False)))
                except FileNotFoundError:
                    continue
        return found

    def stat(self, path: str) -> FileInfo:
        """Describe a file or directory, following links."""
        return FileInfo.from_stat(os.path.basename(path), os.stat(path))

    def make_dir(self, path: str, mode: int) -> None:
        """Make a directory and what is missing above it; one that exists is left as it is."""
        try:
            _make_one(path, mode)
        except FileNotFoundError:
            parent = os.path.dirname(path)
            if parent == path:
                raise
            self.make_dir(parent, mode)
            _make_one(path, mode)  # not again from the start: a place such as /proc is there and takes no directories


def _make_one(path: str, mode: int) -> None:
    try:
        os.mkdir(path, mode)
    except FileExistsError:  # another process was quicker, or it was there
        if not os.path.isdir(path):
            raise


def _read_up_to(fd: int, limit_bytes: int) -> bytes:
    parts: list[bytes] = []
    while limit_bytes > 0 and (part := os.read(fd, limit_bytes)):
        parts.append(part)
        limit_bytes -= len(part)
    return b"".join(parts)
