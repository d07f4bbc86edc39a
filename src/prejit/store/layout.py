"""Where the disk tier keeps what, and whether it may be used.

Layout: `<root>/v1/<first two digits>/<digest>.entry`; beside the shards `tmp` (drafts), `locks`, `hits` (journals) and
`quarantine`. The layout's version is in the path, so another version of prejit with another layout finds its own.
"""

import contextlib
import errno
import os
from collections.abc import Callable, Iterator

from prejit.errors import StoreError, StoreRefused, StoreUnavailable, mismatch
from prejit.store.entry import is_digest
from prejit.store.files import FileInfo, FileSystem
from prejit.store.trust import PRIVATE_MODE, check_directory, subdirectory_mode

__all__ = ["Layout"]

VERSION = "v1"
SUFFIX = ".entry"
_SHARD_DIGITS = 2
_NO_ROOM = frozenset({errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC)})  # Windows has no quota error


class Layout:
    """Know the paths below one root, look at it before it is used, and make what is missing.

    Args:
        path: The root; made on demand, with mode 0700.
        read_only: Nothing may be written.
        files: The file system.

    **Threads**: any.
    """

    def __init__(self, path: str, *, read_only: bool, files: FileSystem) -> None:
        self.path = path
        self.read_only = read_only
        self.files = files
        self.mode = PRIVATE_MODE
        self._home = ""  # the layout's directory, once it was looked at
        self._is_writable = not read_only

    def open(self) -> bool:
        """Look at the directory, and return whether it is there.

        Raises:
            StoreRefused: Somebody else could have filled it.
            StoreUnavailable: It can't be looked at, or is not a directory.
        """
        root = os.path.realpath(self.path)
        home = f"{root}/{VERSION}"
        try:
            info = self.files.stat(root)
            if not info.is_dir:
                raise NotADirectoryError(errno.ENOTDIR, "not a directory", root)
            check_directory(root, info)
            self.mode = subdirectory_mode(info)
            # The mode counts for root too, whom the system would let write.
            is_writable = not self.read_only and bool(info.mode & 0o200)
            with contextlib.suppress(FileNotFoundError):
                inner = self.files.stat(home)
                check_directory(home, inner)
                is_writable = is_writable and bool(inner.mode & 0o200)
        except StoreRefused:
            raise
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ESTALE):
                self._home = ""
                return False
            raise self.unavailable("opening the store", error, root) from error
        self._home, self._is_writable = home, is_writable
        return True

    @property
    def is_open(self) -> bool:
        """Whether the directory was looked at and found good."""
        return bool(self._home)

    @property
    def is_writable(self) -> bool:
        """Whether entries can be published, as far as modes and settings tell."""
        return self._is_writable

    def make_ready(self) -> None:
        """Make the directory if it is not there, and look at it in any case: it may have been replaced.

        Raises:
            StoreRefused: Somebody else could have filled it.
            StoreUnavailable: It can't be made or looked at, or it is read-only.
        """
        try:
            if not self.open():
                self.files.make_dir(os.path.realpath(self.path), PRIVATE_MODE)
                self.open()
        except StoreError:
            raise
        except OSError as error:
            raise self.unavailable("making the store's directory", error, self.path) from error
        self.require_writable("publishing an entry")

    def require_writable(self, doing: str) -> None:
        """Raise `StoreUnavailable` if the directory is read-only, or is to be left as it is."""
        if self.read_only:
            raise StoreUnavailable(
                mismatch(doing, expected="a store that may be written", got="one set read-only", at=self.path),
                path=self.path,
                operation=doing,
                errno=errno.EROFS,
                hint="unset PREJIT_READ_ONLY, or leave read_only=True out",
            )
        if not self._is_writable:
            raise self.unavailable(doing, OSError(errno.EROFS, "a read-only directory"), os.path.realpath(self.path))

    def entry(self, digest: str) -> str:
        """Path of one entry's file."""
        return f"{self._home}/{digest[:_SHARD_DIGITS]}/{digest}{SUFFIX}"

    def directory(self, name: str) -> str:
        """Path of a side directory: `tmp`, `locks`, `hits` or `quarantine`."""
        return f"{self._home}/{name}"

    def journals(self, for_writing: bool) -> str | None:
        """Path of the journals' directory, or None while there is none to read or to write."""
        if not self._home or (for_writing and not self._is_writable):
            return None
        directory = self.directory("hits")
        if for_writing:
            try:
                self.files.stat(self._home)  # a store that was deleted comes back with a put, not with a statistic
                self.files.make_dir(directory, self.mode)
            except OSError:
                return None
        return directory

    def retried(self, operation: Callable[[], None], directory: str) -> None:
        """Do something in a directory, making the directory if it is missing."""
        try:
            operation()
        except FileNotFoundError:
            self.files.make_dir(directory, self.mode)
            operation()

    def scan(self) -> Iterator[tuple[str, FileInfo]]:
        """List the entries' files in order; what vanishes meanwhile is left out."""
        shards: list[FileInfo] = []
        with contextlib.suppress(OSError):
            shards = [info for info in self.files.scan(self._home) if info.is_dir and len(info.name) == _SHARD_DIGITS]
        for shard in sorted(shards, key=lambda info: info.name):
            found: list[FileInfo] = []
            with contextlib.suppress(OSError):
                found = sorted(self.files.scan(f"{self._home}/{shard.name}"), key=lambda info: info.name)
            for info in found:
                digest = info.name.removesuffix(SUFFIX)
                if digest != info.name and is_digest(digest) and digest.startswith(shard.name) and not info.is_dir:
                    yield digest, info

    def unavailable(self, doing: str, error: OSError, path: str) -> StoreUnavailable:
        """Make the error for an operation that the system refused."""
        return StoreUnavailable(
            mismatch(doing, expected="it to succeed", got=error.strerror or type(error).__name__, at=path),
            path=path,
            operation=doing,
            errno=error.errno,
            hint=_hint(error.errno, self.path),
        )


def _hint(code: int | None, path: str) -> str:
    if code in _NO_ROOM:
        return f"free some space, or lower max_size of the store at {path}"
    if code in (errno.EROFS, errno.EACCES, errno.EPERM):
        return f"chmod u+w {path}, or set PREJIT_READ_ONLY=1 to use it as it is"
    return "set PREJIT_CACHE_DIR to a directory that can be written, or to an empty value for no store on disk"
