"""The disk tier: one file per entry, published by rename, so that no lock is needed for being right.

Reading needs no write permission. Methods raise a `StoreError`; what that means for a computation, `Store` says.
"""

import contextlib
import dataclasses
import errno
import os
from collections.abc import Callable, Generator, Iterator
from typing import Literal

from prejit.errors import (
    CorruptEntry,
    EntryTooLarge,
    StoreError,
    StoreRefused,
    UnsupportedFormat,
    mismatch,
)
from prejit.store import upkeep
from prejit.store.capacity import Capacity
from prejit.store.entry import PREFIX_BYTES, CacheEntry, Header, decode_header, decode_prefix
from prejit.store.files import FileInfo, FileSystem
from prejit.store.layout import Layout
from prejit.store.locks import Claim, FileLocks, claim, no_claim
from prejit.store.reports import VerifyReport
from prejit.store.trust import problem
from prejit.store.usage import Usage

__all__ = ["DiskRead", "DiskTier", "Published", "Stored"]

# A header with its ingredients is a few kilobytes; one read gets nearly all of them.
_HEADER_GUESS_BYTES = 16384
ABSENT = "absent"
_ABSENT_ERRNOS = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ESTALE})


@dataclasses.dataclass(frozen=True, slots=True)
class DiskRead:
    """Hold what reading one entry gave; `error` is what a strict store raises."""

    outcome: Literal["hit", "miss", "corrupt", "refused"]
    entry: CacheEntry | None = None
    reason: str = ""
    error: StoreError | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Published:
    """Tell what publishing one entry did."""

    size_bytes: int
    evicted: tuple[str, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Stored:
    """Describe one stored file; `header` is None when it is damaged or in a newer format."""

    digest: str
    info: FileInfo
    header: Header | None


class DiskTier:
    """Read, publish and evict entries below one directory.

    Args:
        path: The directory; made at the first publish, with mode 0700.
        max_size_bytes: Cap for the sizes of all entries; None is no cap.
        read_only: Write nothing at all.
        files: The file system.
        locks: What locks files.
        clock: Gives Unix time in seconds.

    **Threads**: any.
    """

    def __init__(
        self,
        path: str,
        *,
        max_size_bytes: int | None,
        read_only: bool,
        files: FileSystem,
        locks: FileLocks,
        clock: Callable[[], float],
    ) -> None:
        self.layout = Layout(path, read_only=read_only, files=files)
        self.usage = Usage(files, self.layout.journals, clock)
        self.capacity = Capacity(self.layout, self.usage, max_size_bytes=max_size_bytes, locks=locks, clock=clock)
        self._files = files
        self._locks = locks

    # -- reading ------------------------------------------------------------------------------------------------------

    def read(self, digest: str) -> DiskRead:
        """Read one entry.

        Returns:
            The entry, or why there is none. A damaged file was moved to quarantine if that could be done.

        Raises:
            StoreRefused: Somebody else could have filled the directory.
            StoreUnavailable: It can't be looked at.
        """
        if not self.layout.is_open and not self.layout.open():
            return DiskRead("miss", reason="no store directory")
        path = self.layout.entry(digest)
        # Twice before a file is condemned: the damage may have happened on the way here.
        for is_last in (False, True):
            try:
                data, info = self._files.read(path)
            except OSError as error:
                return self._unreadable(path, error)
            if reason := problem(info):
                message = mismatch("reading an entry", expected="a file of yours or root's", got=reason, at=path)
                refused = StoreRefused(message, path=path, reason=reason, hint=f"remove {path}")
                return DiskRead("refused", reason=reason, error=refused)
            try:
                entry = CacheEntry.from_bytes(data, expected_key=digest)
            except UnsupportedFormat as error:
                return DiskRead("miss", reason=f"format version {error.version}")
            except CorruptEntry as error:
                if is_last:
                    return self._condemn(path, info, error)
                continue
            self.capacity.touch(digest)
            return DiskRead("hit", entry)
        raise AssertionError("unreachable")

    def _unreadable(self, path: str, error: OSError) -> DiskRead:
        if error.errno in _ABSENT_ERRNOS:
            return DiskRead("miss", reason=ABSENT)
        return DiskRead(
            "miss",
            reason=f"unreadable: {error.strerror}",
            error=self.layout.unavailable("reading an entry", error, path),
        )

    def _condemn(self, path: str, info: FileInfo, error: CorruptEntry) -> DiskRead:
        if self.layout.is_writable:
            upkeep.quarantine(self._files, path, info, self.layout.directory("quarantine"), self.layout.mode)
        located = CorruptEntry(
            f"{error.message} at {path}", path=path, reason=error.reason, hint="nothing: the next put repairs it"
        )
        return DiskRead("corrupt", reason=error.reason, error=located)

    # -- writing ------------------------------------------------------------------------------------------------------

    def publish(self, entry: CacheEntry) -> Published:
        """Write an entry where readers see all of it or nothing, and evict if the store is over its cap.

        Raises:
            EntryTooLarge: It is larger than the cap or than the format allows; nothing was evicted.
            UnsupportedFormat: A newer prejit's entry is there; it was kept.
            StoreRefused: Somebody else could have filled the directory.
            StoreUnavailable: A file-system operation failed; no draft is left if it could be removed.
        """
        data = entry.to_bytes()
        cap = self.capacity.max_size_bytes
        if cap is not None and len(data) > cap:
            raise EntryTooLarge(
                mismatch("storing an entry", expected=f"at most {cap} bytes", got=len(data), at=entry.name),
                path=self.layout.path,
                size_bytes=len(data),
                limit_bytes=cap,
                hint="raise max_size",
            )
        self.layout.make_ready()
        path = self.layout.entry(entry.key)
        self._keep_newer(path)
        draft = f"{self.layout.directory('tmp')}/{entry.key[:16]}-{os.getpid()}-{os.urandom(4).hex()}.tmp"
        try:
            self.layout.retried(lambda: self._files.write_new(draft, data), self.layout.directory("tmp"))
            self.layout.retried(lambda: self._files.replace(draft, path), os.path.dirname(path))
        except OSError as error:
            with contextlib.suppress(OSError):
                self._files.remove(draft)
            raise self.layout.unavailable("publishing an entry", error, path) from error
        except KeyboardInterrupt:
            with contextlib.suppress(OSError):
                self._files.remove(draft)
            raise
        self.capacity.touch(entry.key)
        return Published(len(data), self.capacity.make_room(entry.key, len(data)))

    def _keep_newer(self, path: str) -> None:
        with contextlib.suppress(OSError, CorruptEntry):
            try:
                decode_prefix(self._files.read(path, PREFIX_BYTES)[0])
            except UnsupportedFormat as error:
                error.path = path
                raise

    # -- looking ------------------------------------------------------------------------------------------------------

    def stored(self) -> Iterator[Stored]:
        """List entries with their headers; payloads are not read.

        Raises:
            StoreRefused: Somebody else could have filled the directory.
            StoreUnavailable: It can't be looked at.
        """
        if not self.layout.open():
            return
        for digest, _ in self.layout.scan():
            with contextlib.suppress(OSError):
                yield self.describe(digest)

    def describe(self, digest: str) -> Stored:
        """Describe one entry by its header.

        Raises:
            OSError: There is none, or it can't be read.
        """
        path = self.layout.entry(digest)
        data, info = self._files.read(path, _HEADER_GUESS_BYTES)
        header: Header | None = None
        if not problem(info):
            with contextlib.suppress(CorruptEntry, UnsupportedFormat):
                prefix = decode_prefix(data)
                end = PREFIX_BYTES + prefix.header_size_bytes
                if len(data) < end:
                    data, info = self._files.read(path, end)
                header = decode_header(prefix, data[PREFIX_BYTES:end], expected_key=digest)
                if info.size_bytes != prefix.file_size_bytes:
                    header = None
        return Stored(digest, info, header)

    def digests(self) -> list[str]:
        """List the digests that have a file.

        Raises:
            StoreRefused: Somebody else could have filled the directory.
            StoreUnavailable: It can't be looked at.
        """
        return [digest for digest, _ in self.layout.scan()] if self.layout.open() else []

    def verify(self) -> VerifyReport:
        """Read every entry and compare every digest; damaged ones go to quarantine.

        Raises:
            StoreRefused: Somebody else could have filled the directory.
            StoreUnavailable: It can't be looked at.
        """
        found: dict[str, list[str]] = {"hit": [], "corrupt": [], "refused": [], "unsupported": [], "unreadable": []}
        for digest in self.digests():
            read = self.read(digest)
            if read.outcome != "miss":
                found[read.outcome].append(digest)
            elif read.error is not None:
                found["unreadable"].append(digest)
            elif read.reason != ABSENT:
                found["unsupported"].append(digest)
        left = set(self.digests()) if found["corrupt"] else set[str]()
        return VerifyReport(
            checked=sum(map(len, found.values())),
            intact=len(found["hit"]),
            corrupt=tuple(found["corrupt"]),
            refused=tuple(found["refused"]),
            unsupported=tuple(found["unsupported"]),
            unreadable=tuple(found["unreadable"]),
            quarantined=sum(digest not in left for digest in found["corrupt"]),
        )

    @contextlib.contextmanager
    def claim(self, digest: str, timeout_s: float) -> Generator[Claim]:
        """Hold the claim to making one entry; not owned where locks don't work."""
        with contextlib.ExitStack() as stack:
            try:
                self.layout.make_ready()
                directory = self.layout.directory("locks")
                self._files.make_dir(directory, self.layout.mode)
                context = claim(self._locks, f"{directory}/{digest}.lock", timeout_s)
            except OSError:  # StoreRefused and StoreUnavailable are OSErrors too
                context = no_claim()
            yield stack.enter_context(context)
