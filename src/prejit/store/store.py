"""The store: tiers behind one door, and the promise that a failing store never fails a computation."""

import atexit
import collections
import contextlib
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Literal, Protocol, TypeVar

from prejit.config import GIB, parse_size
from prejit.errors import EntryTooLarge, StoreError, StoreRefused, StoreWarning, UnsupportedFormat, warn_user
from prejit.store.capacity import Cleared
from prejit.store.disk import DiskTier, Stored
from prejit.store.entry import CacheEntry, is_digest
from prejit.store.files import FileSystem, OSFileSystem
from prejit.store.forks import renew_after_fork
from prejit.store.locks import Claim, FileLocks, OSLocks, no_claim
from prejit.store.memory import MemoryTier
from prejit.store.reports import EntryInfo, GcReport, KindStats, Lookup, StoreStats, Tier, VerifyReport
from prejit.store.usage import Usage, Use

__all__ = ["EventHook", "Keyed", "Store"]

T = TypeVar("T")

DEFAULT_MAX_SIZE_BYTES = 10 * GIB
DEFAULT_MEMORY_MAX_SIZE_BYTES = GIB


class Keyed(Protocol):
    """Have a digest, as a `ComponentKey` has."""

    @property
    def digest(self) -> str:
        """64 lower-case hexadecimal digits."""
        ...


class EventHook(Protocol):
    """Be told `store.hit`, `.miss`, `.corrupt`, `.refused`, `.put`, `.reject`, `.evict` and `.error` as they happen."""

    def __call__(self, name: str, key: str, fields: Mapping[str, object], /) -> None:
        """Take one event; an exception from here reaches the caller of the store."""
        ...


class _Hooks:
    """Hold the hook that is told the events of every store."""

    everywhere: EventHook | None = None


_hooks = _Hooks()


def set_event_hook(hook: EventHook | None) -> None:
    """Have the events of every store in this process told to one hook, besides each store's own.

    Args:
        hook: Takes name, key and fields of each event; None stops it.

    Example:
        >>> set_event_hook(None)
    """
    _hooks.everywhere = hook


def _digest(key: str | Keyed) -> str:
    digest = key if isinstance(key, str) else key.digest
    if not is_digest(digest):
        raise ValueError(f"looking up a key: expected 64 hex digits or an object with a digest, got {digest!r:.80}")
    return digest


class Store:
    """Keep entries in memory and below a directory.

    A store that can't be used (a directory that is missing, full, read-only or not trusted, a damaged file) answers
    `miss` and takes nothing, says so once with a `StoreWarning` that names what to do, and counts it in `stats()`.

    Args:
        path: The directory, made at the first put; None or an empty path keeps everything in memory.
        max_size: Cap of the disk tier, in bytes or as `"10GiB"`; None is no cap. An entry larger than the cap is not
            stored and evicts nothing.
        memory_max_size: Cap of the memory tier, likewise.
        read_only: Read and never write, statistics included.
        strict: Raise a `StoreError` where otherwise a warning and a count would do.
        fs: The file system; tests put faults here.
        locks: What locks files; tests take locks away here.
        clock: Gives Unix time in seconds.
        on_event: Told about every lookup, put and eviction.

    **Threads**: any. **Effects**: hits are flushed in batches and at interpreter exit.

    Example:
        >>> store = Store(None)
        >>> store.put(CacheEntry(key="ab" * 32, kind="module", name="f", sections={"mlir": b"ML"}))
        True
        >>> store.lookup("ab" * 32).outcome, store.lookup("cd" * 32).outcome
        ('hit', 'miss')
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None,
        *,
        max_size: int | str | None = DEFAULT_MAX_SIZE_BYTES,
        memory_max_size: int | str | None = DEFAULT_MEMORY_MAX_SIZE_BYTES,
        read_only: bool = False,
        strict: bool = False,
        fs: FileSystem | None = None,
        locks: FileLocks | None = None,
        clock: Callable[[], float] = time.time,
        on_event: EventHook | None = None,
    ) -> None:
        text = os.fspath(path) if path is not None else ""
        self._path = Path(os.path.abspath(os.path.expanduser(text))) if text else None
        self._strict = strict
        self._clock = clock
        self._on_event = on_event
        self._memory = MemoryTier(None if memory_max_size is None else parse_size(memory_max_size))
        files = fs or OSFileSystem()
        self._disk: DiskTier | None = None
        if self._path is not None:
            self._disk = DiskTier(
                str(self._path),
                max_size_bytes=None if max_size is None else parse_size(max_size),
                read_only=read_only,
                files=files,
                locks=locks or OSLocks(),
                clock=clock,
            )
        self._usage = self._disk.usage if self._disk else Usage(files, lambda _for_writing: None, clock)
        self._refusal: StoreRefused | None = None
        self._counts: collections.Counter[str] = collections.Counter()
        self._listeners: list[weakref.ref[Callable[[], object]]] = []
        self._lock = threading.Lock()
        self._has_warned = False
        self._problem = ""
        renew_after_fork(self)
        _stores.add(self)

    def __repr__(self) -> str:
        return f"Store({str(self._path)!r})" if self._path else "Store(None)"

    @property
    def path(self) -> Path | None:
        """The directory, or None for a store in memory only."""
        return self._path

    # -- entries ------------------------------------------------------------------------------------------------------

    def lookup(self, key: str | Keyed) -> Lookup:
        """Look a key up, in memory and then on disk.

        Args:
            key: 64 lower-case hexadecimal digits, or an object with a `digest`.

        Returns:
            The outcome, with the entry on a hit and the reason otherwise.

        Raises:
            ValueError: The key is not a digest.
            StoreError: The store is strict and the file is damaged or not trusted, or can't be read.
        """
        digest = _digest(key)
        entry = self._memory.get(digest)
        found = Lookup("hit", entry, tier="memory") if entry is not None else self._read(digest)
        if found.entry is not None:
            self._usage.record(digest)
            if found.tier == "memory":
                self._count("memory_hits")
            else:
                self._memory.keep(found.entry)
        self._count({"hit": "hits", "miss": "misses"}.get(found.outcome, found.outcome))
        self._emit(f"store.{found.outcome}", digest, tier=found.tier, reason=found.reason)
        return found

    def _read(self, digest: str) -> Lookup:
        if self._disk is None:
            return Lookup("miss", reason="absent")
        if self._refusal is not None and not self._strict:
            return Lookup("refused", reason=self._refusal.reason)
        try:
            read = self._disk.read(digest)
        except StoreRefused as error:
            self._refusal = error
            self._fail(error)
            return Lookup("refused", reason=error.reason)
        except StoreError as error:
            self._fail(error)
            return Lookup("miss", reason="store unavailable")
        if read.error is not None and (self._strict or read.outcome != "corrupt"):
            self._fail(read.error)
        return Lookup(read.outcome, read.entry, read.reason, "disk" if read.entry is not None else None)

    def get(self, key: str | Keyed) -> CacheEntry | None:
        """Return the entry under a key, or None; see `lookup`."""
        return self.lookup(key).entry

    def put(self, entry: CacheEntry) -> bool:
        """Keep an entry under its key, in memory and on disk; what was there is replaced.

        Args:
            entry: The entry.

        Returns:
            True when it is kept for later processes (or in memory, where that is all there is).

        Raises:
            StoreError: The store is strict and the entry can't be published.
        """
        is_kept = self._memory.keep(entry)
        if self._disk is None:
            return self._finish_put(entry, is_kept, 0)
        if self._disk.layout.read_only or (self._refusal is not None and not self._strict):
            return self._finish_put(entry, False, 0)
        try:
            published = self._disk.publish(entry)
        except UnsupportedFormat as error:  # a newer prejit uses that key: both are right, and its entry stays
            self._emit("store.error", entry.key, reason=error.message)
            return self._finish_put(entry, False, 0)
        except EntryTooLarge as error:
            self._count("too_large")
            self._finish_put(entry, False, error.size_bytes)
            if self._strict:
                raise
            return False
        except StoreError as error:
            if isinstance(error, StoreRefused):
                self._refusal = error
            self._finish_put(entry, False, 0)
            self._fail(error)
            return False
        for victim in published.evicted:
            self._count("evictions")
            self._emit("store.evict", victim)
        return self._finish_put(entry, True, published.size_bytes)

    def _finish_put(self, entry: CacheEntry, is_kept: bool, size_bytes: int) -> bool:
        self._count("puts" if is_kept else "rejected")
        self._emit("store.put" if is_kept else "store.reject", entry.key, kind=entry.kind, size_bytes=size_bytes)
        return is_kept

    def claim(self, key: str | Keyed, timeout_s: float = 600.0) -> AbstractContextManager[Claim]:
        """Hold the claim to making one entry, so that several processes do the work once.

        Args:
            key: The key.
            timeout_s: Longest wait for another process.

        Returns:
            A context manager that gives a `Claim`. Where it is not owned (locks don't work, or another owner took
            too long) do the work all the same. After waiting, look the key up again.

        **Blocks**: up to `timeout_s`, in short sleeps. **Threads**: threads of one process exclude one another too.

        Example:
            >>> with Store(None).claim("ab" * 32) as claim:
            ...     claim.reason
            'unsupported'
        """
        digest = _digest(key)
        if self._disk is None or self._disk.layout.read_only or self._refusal is not None:
            return no_claim()
        return self._disk.claim(digest, timeout_s)

    # -- looking ------------------------------------------------------------------------------------------------------

    def keys(self) -> list[str]:
        """List the digests of all entries, on disk and in memory."""
        on_disk = self._guarded(self._disk.digests, []) if self._disk else []
        return sorted({*on_disk, *self._memory.keys()})

    def items(self) -> Iterator[tuple[str, EntryInfo]]:
        """List the entries with their descriptions; payloads are not read, damaged files are left out."""
        uses = self._uses()
        seen: set[str] = set()
        for stored in self._stored():
            seen.add(stored.digest)
            info = _described(stored, uses)
            if info is not None:
                yield stored.digest, info
        for entry in self._memory.values():
            if entry.key not in seen:
                yield entry.key, _remembered(entry, uses)

    def info(self, key: str | Keyed) -> EntryInfo:
        """Describe one entry.

        Raises:
            KeyError: There is none, or its file is damaged.
        """
        digest = _digest(key)
        if self._disk is not None and self._is_open():
            with contextlib.suppress(OSError):
                info = _described(self._disk.describe(digest), self._uses())
                if info is not None:
                    return info
        for entry in self._memory.values():
            if entry.key == digest:
                return _remembered(entry, self._uses())
        raise KeyError(digest)

    def hits(self, key: str | Keyed) -> int:
        """Count the lookups that an entry answered, in all processes; 0 for an unknown key."""
        use = self._uses().get(_digest(key))
        return use.hits if use else 0

    def stats(self) -> StoreStats:
        """Describe the store and what this process did with it; reads the header of every entry."""
        uses = self._uses()
        kinds: dict[str, KindStats] = {}
        entries = size_bytes = unreadable = total_hits = 0
        if self._disk is not None:
            for stored in self._stored():
                entries += 1
                size_bytes += stored.info.size_bytes
                total_hits += uses[stored.digest].hits if stored.digest in uses else 0
                if stored.header is None:
                    unreadable += 1
                else:
                    _add(kinds, stored.header.kind, stored.info.size_bytes)
        else:
            for entry in self._memory.values():
                entries += 1
                size_bytes += entry.size_bytes
                total_hits += uses[entry.key].hits if entry.key in uses else 0
                _add(kinds, entry.kind, entry.size_bytes)
        with self._lock:
            counts = self._counts.copy()
        return StoreStats(
            path=self._path,
            state=self._state(),
            problem=self._problem,
            entries=entries,
            size_bytes=size_bytes,
            cap_bytes=self._disk.capacity.max_size_bytes if self._disk else None,
            memory_entries=len(self._memory),
            memory_size_bytes=self._memory.weight,
            unreadable_entries=unreadable,
            hits=counts["hits"],
            memory_hits=counts["memory_hits"],
            misses=counts["misses"],
            corrupt=counts["corrupt"],
            refused=counts["refused"],
            puts=counts["puts"],
            rejected=counts["rejected"],
            too_large=counts["too_large"],
            evictions=counts["evictions"],
            errors=counts["errors"],
            total_hits=total_hits,
            kinds=kinds,
        )

    # -- upkeep -------------------------------------------------------------------------------------------------------

    def verify(self) -> VerifyReport:
        """Read every entry on disk and compare every digest; damaged ones go to quarantine.

        Returns:
            What was found.
        """
        return self._guarded(self._disk.verify, VerifyReport()) if self._disk else VerifyReport()

    def gc(self) -> GcReport:
        """Bring the store under its cap and remove what killed processes left behind.

        Returns:
            What was removed.
        """
        if self._disk is None:
            return GcReport()
        report = self._guarded(self._disk.capacity.collect, GcReport())
        for victim in report.evicted:
            self._count("evictions")
            self._emit("store.evict", victim)
        return report

    def clear(self, tier: Tier | None = None) -> int:
        """Forget entries.

        Args:
            tier: `memory` keeps what is on disk and has components drop what they loaded; `disk` keeps what is in
                memory; None is both.

        Returns:
            How many entries went, one in both tiers counted twice. That some could not be removed is counted in
            `stats().errors`, with the reason in `stats().problem`.

        Raises:
            ValueError: There is no such tier.
            StoreError: The store is strict and entries could not be removed; all others are gone.
        """
        if tier not in (None, "memory", "disk"):
            raise ValueError(f"clearing the store: expected 'memory', 'disk' or None, got {tier!r:.80}")
        removed = 0
        if tier != "disk":
            removed += self._memory.clear()
            with self._lock:
                listeners = [listener() for listener in self._listeners]
                self._listeners = [listener for listener in self._listeners if listener() is not None]
            for listener in listeners:
                if listener is not None:
                    listener()
        if tier != "memory" and self._disk is not None:
            cleared = self._guarded(self._disk.capacity.clear, Cleared())
            removed += cleared.removed
            if cleared.error is not None:
                self._fail(cleared.error)
        return removed

    def add_clear_listener(self, listener: Callable[[], object]) -> None:
        """Have something called whenever the memory tier is cleared.

        Args:
            listener: A function, or a method of an object; held weakly, so keep it alive yourself.
        """
        bound_to = getattr(listener, "__self__", None)
        is_method = bound_to is not None and hasattr(listener, "__func__")
        reference = weakref.WeakMethod(listener) if is_method else weakref.ref(listener)
        with self._lock:
            self._listeners = [kept for kept in self._listeners if kept() is not None]
            self._listeners.append(reference)

    def flush(self) -> None:
        """Write the hits that were counted since the last flush; done by itself in batches and at exit."""
        self._usage.flush()

    def after_fork_in_child(self) -> None:
        """Replace the lock, which another thread of the parent may have held."""
        self._lock = threading.Lock()

    # -- inside -------------------------------------------------------------------------------------------------------

    def _is_open(self) -> bool:
        return self._disk is not None and self._guarded(self._disk.layout.open, False)

    def _uses(self) -> dict[str, Use]:
        if self._is_open():
            self._usage.flush()
        return self._usage.load()

    def _stored(self) -> Iterator[Stored]:
        if self._is_open() and self._disk is not None:
            yield from self._disk.stored()

    def _state(self) -> Literal["ok", "memory only", "read-only", "refused", "unavailable"]:
        if self._disk is None:
            return "memory only"
        try:
            self._disk.layout.open()
        except StoreRefused as error:
            self._problem = str(error)
            return "refused"
        except StoreError as error:
            self._problem = str(error)
            return "unavailable"
        return "ok" if self._disk.layout.is_writable else "read-only"

    def _guarded(self, operation: Callable[[], T], otherwise: T) -> T:
        try:
            return operation()
        except StoreError as error:
            if isinstance(error, StoreRefused):
                self._refusal = error
            self._fail(error)
            return otherwise

    def _fail(self, error: StoreError) -> None:
        """Count a failure and say it once; raise it when the store is strict."""
        self._count("errors")
        self._emit("store.error", "", reason=error.message, code=error.code)
        if self._strict:
            raise error
        with self._lock:
            self._problem = str(error)
            if self._has_warned:
                return
            self._has_warned = True
        text = f"{error.message}; computing goes on without it\nhint: {error.hint}"
        warn_user(text, StoreWarning)

    def _count(self, name: str) -> None:
        with self._lock:
            self._counts[name] += 1

    def _emit(self, name: str, key: str, **fields: object) -> None:
        for hook in (self._on_event, _hooks.everywhere):
            if hook is not None:
                hook(name, key, fields)


def _described(stored: Stored, uses: Mapping[str, Use]) -> EntryInfo | None:
    header = stored.header
    if header is None:
        return None
    use = uses.get(stored.digest, _NEVER)
    return EntryInfo(
        name=header.name,
        kind=header.kind,
        digest=stored.digest,
        size_bytes=stored.info.size_bytes,
        created=header.created,
        last_used=max(stored.info.mtime, use.last_used),
        hits=use.hits,
        variant=header.variant,
    )


def _remembered(entry: CacheEntry, uses: Mapping[str, Use]) -> EntryInfo:
    use = uses.get(entry.key, _NEVER)
    return EntryInfo(
        name=entry.name,
        kind=entry.kind,
        digest=entry.key,
        size_bytes=entry.size_bytes,
        created=entry.created,
        last_used=max(entry.created, use.last_used),
        hits=use.hits,
        variant=entry.variant,
    )


def _add(kinds: dict[str, KindStats], kind: str, size_bytes: int) -> None:
    old = kinds.get(kind, KindStats(0, 0))
    kinds[kind] = KindStats(old.entries + 1, old.size_bytes + size_bytes)


_NEVER = Use(0, 0.0)
_stores: "weakref.WeakSet[Store]" = weakref.WeakSet()


@atexit.register
def _flush_all() -> None:
    for store in list(_stores):
        store.flush()
