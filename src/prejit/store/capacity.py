"""Keeping the disk tier under its cap, and clearing it."""

import contextlib
import dataclasses
import errno
import threading
import time
from collections import OrderedDict
from collections.abc import Callable

from prejit.errors import StoreUnavailable, mismatch
from prejit.store import upkeep
from prejit.store.eviction import Candidate, choose_victims
from prejit.store.files import FileInfo
from prejit.store.forks import renew_after_fork
from prejit.store.layout import Layout
from prejit.store.locks import FileLocks
from prejit.store.reports import GcReport
from prejit.store.usage import Usage

__all__ = ["Capacity", "Cleared"]

# How often a process looks at the whole directory: other processes add to it too.
_PUTS_PER_SCAN = 64
_FRESH_S = 60.0
_MOST_FRESH = 1024


@dataclasses.dataclass(frozen=True, slots=True)
class Cleared:
    """Tell what clearing did; `error` says why entries are left."""

    removed: int = 0
    error: StoreUnavailable | None = None


class Capacity:
    """Evict the least recently used entries of one directory, and sweep up after killed processes.

    Several processes may evict at once: a file that is gone already is as good as removed.

    Args:
        layout: The directory.
        usage: Knows when entries were used last.
        max_size_bytes: Cap for the sizes of all entries; None is no cap.
        locks: What locks files.
        clock: Gives Unix time in seconds.

    **Threads**: any.
    """

    def __init__(
        self,
        layout: Layout,
        usage: Usage,
        *,
        max_size_bytes: int | None,
        locks: FileLocks,
        clock: Callable[[], float],
    ) -> None:
        self.max_size_bytes = max_size_bytes
        self._layout = layout
        self._usage = usage
        self._locks = locks
        self._clock = clock
        self._lock = threading.Lock()
        self._fresh: OrderedDict[str, float] = OrderedDict()
        self._known_bytes: int | None = None
        self._puts_until_scan = 0
        self._has_swept = False
        renew_after_fork(self)

    def touch(self, digest: str) -> None:
        """Take note that this process has just read or published an entry."""
        with self._lock:
            self._fresh[digest] = time.monotonic()
            self._fresh.move_to_end(digest)
            if len(self._fresh) > _MOST_FRESH:
                self._fresh.popitem(last=False)

    def make_room(self, digest: str, size_bytes: int) -> tuple[str, ...]:
        """Evict if the entry that was just published takes the store over its cap; return what went."""
        cap = self.max_size_bytes
        if not self._has_swept:
            self._has_swept = True
            self._sweep()
        if cap is None:
            return ()
        with self._lock:
            self._puts_until_scan -= 1
            if self._known_bytes is not None:
                self._known_bytes += size_bytes  # too much when it replaced something; the next scan corrects it
            if self._known_bytes is not None and self._puts_until_scan > 0 and self._known_bytes <= cap:
                return ()
            self._puts_until_scan = _PUTS_PER_SCAN
        return tuple(victim.digest for victim in self._evict(digest))

    def _evict(self, pinned: str | None) -> list[Candidate]:
        cap = self.max_size_bytes
        entries = list(self._layout.scan())
        total_bytes = sum(info.size_bytes for _, info in entries)
        removed: list[Candidate] = []
        if cap is not None and total_bytes > cap:
            uses = self._usage.load()
            fresh_since = time.monotonic() - _FRESH_S
            with self._lock:
                fresh = {digest for digest, when in self._fresh.items() if when > fresh_since}
            seen = dict(entries)
            victims = choose_victims(
                (
                    Candidate(
                        digest,
                        info.size_bytes,
                        max(info.mtime, uses[digest].last_used if digest in uses else 0.0),
                        is_fresh=digest in fresh,
                        is_pinned=digest == pinned,
                    )
                    for digest, info in entries
                ),
                cap,
                now=self._clock(),
            )
            removed = [victim for victim in victims if self._remove_unchanged(victim.digest, seen[victim.digest])]
        with self._lock:
            self._known_bytes = total_bytes - sum(victim.size_bytes for victim in removed)
        return removed

    def _remove_unchanged(self, digest: str, seen: FileInfo) -> bool:
        """Remove an entry unless another process has published it anew since it was seen."""
        path = self._layout.entry(digest)
        with contextlib.suppress(OSError):
            now = self._layout.files.stat(path)
            if (now.inode, now.mtime) == (seen.inode, seen.mtime):
                self._layout.files.remove(path)
                return True
        return False

    def _sweep(self) -> tuple[int, int, int]:
        now = self._clock()
        drafts = upkeep.remove_drafts(self._layout.files, self._layout.directory("tmp"), now=now)
        drafts += upkeep.remove_drafts(self._layout.files, self._layout.directory("hits"), now=now)
        locks = upkeep.remove_locks(self._layout.files, self._locks, self._layout.directory("locks"), now=now)
        return drafts, locks, upkeep.trim_quarantine(self._layout.files, self._layout.directory("quarantine"))

    def collect(self) -> GcReport:
        """Bring the store under its cap and remove what killed writers left behind.

        Raises:
            StoreRefused: Somebody else could have filled the directory.
            StoreUnavailable: It can't be looked at.
        """
        if not self._layout.open() or not self._layout.is_writable:
            return GcReport()
        self._usage.flush()
        evicted = self._evict(None)
        drafts, locks, quarantined = self._sweep()
        journals = self._usage.compact({digest for digest, _ in self._layout.scan()})
        return GcReport(
            evicted=tuple(victim.digest for victim in evicted),
            freed_bytes=sum(victim.size_bytes for victim in evicted),
            drafts=drafts,
            locks=locks,
            quarantined=quarantined,
            journals=journals,
        )

    def clear(self) -> Cleared:
        """Remove every entry, whatever its format, and the statistics.

        Returns:
            How many entries went. One that can't be removed does not keep the others; the error tells of it.

        Raises:
            StoreRefused: Somebody else could have filled the directory.
            StoreUnavailable: It can't be looked at, or can't be written.
        """
        if not self._layout.open():
            return Cleared()
        self._layout.require_writable("clearing the store")
        removed = 0
        failed: list[tuple[str, OSError]] = []
        for digest, _ in self._layout.scan():
            path = self._layout.entry(digest)
            try:
                self._layout.files.remove(path)
                removed += 1
            except FileNotFoundError:  # another process was quicker
                pass
            except OSError as error:
                failed.append((path, error))
        self._usage.discard()
        for name in ("hits", "quarantine"):
            with contextlib.suppress(OSError):
                for info in self._layout.files.scan(self._layout.directory(name)):
                    with contextlib.suppress(OSError):
                        self._layout.files.remove(f"{self._layout.directory(name)}/{info.name}")
        with self._lock:
            self._known_bytes = None
            self._fresh.clear()
        return Cleared(removed, self._left_over(removed, failed) if failed else None)

    def _left_over(self, removed: int, failed: list[tuple[str, OSError]]) -> StoreUnavailable:
        path, error = failed[0]
        unavailable = self._layout.unavailable("clearing the store", error, path)
        message = mismatch(
            "clearing the store",
            expected=f"{removed + len(failed)} entries to go",
            got=f"{error.strerror or type(error).__name__} for {len(failed)} of them",
            at=path,
        )
        may_not = error.errno in (errno.EACCES, errno.EPERM)
        # The directories inside may have modes of their own.
        hint = f"chmod -R u+w {self._layout.path}" if may_not else unavailable.hint
        return StoreUnavailable(message, path=path, operation="clearing the store", errno=error.errno, hint=hint)

    def after_fork_in_child(self) -> None:
        """Replace the lock, which another thread of the parent may have held."""
        self._lock = threading.Lock()
