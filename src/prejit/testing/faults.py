"""A file system that fails on demand, for tests of what a store does then."""

import errno
import os
from collections.abc import Callable, Mapping, Sequence

from prejit.store import FileInfo, FileSystem, OSFileSystem

__all__ = ["BrokenLocks", "FaultyFileSystem", "SimulatedCrash"]


class SimulatedCrash(BaseException):
    """Stand for the death of the process, so that no `except Exception` can catch it."""


class FaultyFileSystem:
    """Pass operations on to another file system, until one is to fail.

    Operations that change something are numbered steps, in `steps`; creating a file is four of them: before it exists,
    while it is empty, half written, and written but not yet on the device.

    Args:
        inner: What does the work; the machine's own file system by default.
        crash_at: Number of the step, from 0, at which the process dies. From then on every operation dies too.
        failing: Error number per operation that is to fail: `read`, `write_new`, `append`, `replace`, `remove`,
            `scan`, `stat`, `make_dir`. A failing `write_new` leaves half a file, as a full disk does.
        flip_bit: Number of the bit to invert in what is read from entries.
        flips: How many reads see it inverted; None is all of them.
        torn: A write stops half way without any error, as after a power cut.

    Example:
        >>> full = FaultyFileSystem(failing={"make_dir": errno.ENOSPC})
        >>> try:
        ...     full.make_dir("/tmp/never", 0o700)
        ... except OSError as error:
        ...     errno.errorcode[error.errno]
        'ENOSPC'
    """

    def __init__(
        self,
        inner: FileSystem | None = None,
        *,
        crash_at: int | None = None,
        failing: Mapping[str, int] | None = None,
        flip_bit: int | None = None,
        flips: int | None = None,
        torn: bool = False,
    ) -> None:
        self.inner = inner or OSFileSystem()
        self.crash_at = crash_at
        self.failing = dict(failing or {})
        self.flip_bit = flip_bit
        self.flips = flips
        self.torn = torn
        self.steps: list[str] = []
        self.is_dead = False

    def _enter(
        self, operation: str, path: str, *, is_step: bool = True, partial: Callable[[], None] | None = None
    ) -> None:
        if self.is_dead:
            raise SimulatedCrash(operation)
        if is_step:
            if self.crash_at == len(self.steps):
                if partial is not None:
                    partial()
                self.is_dead = True
                raise SimulatedCrash(f"{operation} {path}")
            self.steps.append(f"{operation} {os.path.basename(path)}")
        code = self.failing.get(operation.partition(":")[0])
        if code is not None:
            if partial is not None:
                partial()
            raise OSError(code, os.strerror(code), path)

    def read(self, path: str, limit_bytes: int | None = None) -> tuple[bytes, FileInfo]:
        """Read a file, perhaps with one bit inverted."""
        self._enter("read", path, is_step=False)
        data, info = self.inner.read(path, limit_bytes)
        if self.flip_bit is not None and self.flips != 0 and path.endswith(".entry"):
            if self.flips is not None:
                self.flips -= 1
            flipped = bytearray(data)
            flipped[self.flip_bit // 8 % len(flipped)] ^= 1 << self.flip_bit % 8
            data = bytes(flipped)
        return data, info

    def write_new(self, path: str, data: bytes) -> None:
        """Create a file, in four steps."""

        def write(size_bytes: int) -> None:
            self.inner.write_new(path, data[:size_bytes])

        half = len(data) // 2
        if "write_new" not in self.failing:
            self._enter("write_new:create", path)
            self._enter("write_new:empty", path, partial=lambda: write(0))
        self._enter("write_new:half", path, partial=lambda: write(half))
        self._enter("write_new:written", path, partial=lambda: write(len(data)))
        write(half if self.torn else len(data))

    def append(self, path: str, data: bytes) -> None:
        """Add to a file, in two steps."""
        self._enter("append:begin", path)
        self._enter("append:half", path, partial=lambda: self.inner.append(path, data[: len(data) // 2]))
        self.inner.append(path, data)

    def replace(self, source: str, target: str) -> None:
        """Rename a file."""
        self._enter("replace", target)
        self.inner.replace(source, target)

    def remove(self, path: str) -> None:
        """Remove a file."""
        self._enter("remove", path)
        self.inner.remove(path)

    def scan(self, path: str) -> Sequence[FileInfo]:
        """List a directory."""
        self._enter("scan", path, is_step=False)
        return self.inner.scan(path)

    def stat(self, path: str) -> FileInfo:
        """Describe a file."""
        self._enter("stat", path, is_step=False)
        return self.inner.stat(path)

    def make_dir(self, path: str, mode: int) -> None:
        """Make a directory."""
        self._enter("make_dir", path)
        self.inner.make_dir(path, mode)


class BrokenLocks:
    """Refuse every lock, as a network file system without a lock daemon does.

    Args:
        code: Error number.

    Example:
        >>> try:
        ...     BrokenLocks().acquire("x.lock")
        ... except OSError as error:
        ...     errno.errorcode[error.errno]
        'ENOLCK'
    """

    def __init__(self, code: int = errno.ENOLCK) -> None:
        self.code = code

    def acquire(self, path: str) -> int | None:
        """Fail."""
        raise OSError(self.code, os.strerror(self.code), path)

    def release(self, handle: int, path: str) -> None:
        """Do nothing: no lock was ever given."""
