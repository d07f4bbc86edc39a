"""What the store says about itself: values for people, the command line and tests."""

import dataclasses
from pathlib import Path
from typing import Literal

from prejit.store.entry import CacheEntry

__all__ = ["EntryInfo", "GcReport", "KindStats", "Lookup", "Outcome", "StoreStats", "Tier", "VerifyReport"]

Outcome = Literal["hit", "miss", "stale", "corrupt", "refused"]
Tier = Literal["memory", "disk"]


@dataclasses.dataclass(frozen=True, slots=True)
class Lookup:
    """Hold what looking up one key gave.

    Attributes:
        outcome: `hit`, `miss`, `stale`, `corrupt` or `refused`.
        entry: The entry on a hit, else None.
        reason: Why there is none, as a short phrase.
        tier: Where the entry came from, on a hit.

    Example:
        >>> Lookup("miss", reason="absent").is_hit
        False
    """

    outcome: Outcome
    entry: CacheEntry | None = None
    reason: str = ""
    tier: Tier | None = None

    @property
    def is_hit(self) -> bool:
        """Whether there is an entry."""
        return self.entry is not None


@dataclasses.dataclass(frozen=True, slots=True)
class EntryInfo:
    """Describe one stored entry without its payloads.

    Attributes:
        name: Name of the function.
        kind: `trace`, `module`, `executable`, `plan` or `manifest`.
        digest: Its key.
        size_bytes: Size of its file, or of its payloads when it is in memory only.
        created: Unix time in seconds at which it was made.
        last_used: Unix time in seconds of its last hit, or of its publishing.
        hits: Lookups that it answered, in all processes.
        variant: Which derived form of the function this is.

    Example:
        >>> EntryInfo("f", "module", "ab" * 32, 10, 1.0, 2.0, 3, "").hits
        3
    """

    name: str
    kind: str
    digest: str
    size_bytes: int
    created: float
    last_used: float
    hits: int
    variant: str


@dataclasses.dataclass(frozen=True, slots=True)
class KindStats:
    """Count the entries of one kind.

    Example:
        >>> KindStats(entries=2, size_bytes=100).entries
        2
    """

    entries: int
    size_bytes: int


@dataclasses.dataclass(frozen=True, slots=True)
class StoreStats:
    """Describe a store: what lies in it, and what this process did with it.

    Attributes:
        path: The directory; None is a store in memory only.
        state: `ok`, `memory only`, `read-only`, `refused` or `unavailable`.
        problem: What is wrong and how to mend it, or an empty string.
        entries: Entries on disk, or in memory when that is all there is.
        size_bytes: Their size.
        cap_bytes: The cap for that size; None is no cap.
        memory_entries: Entries in memory.
        memory_size_bytes: Their size.
        unreadable_entries: Files on disk that are damaged or in a newer format; counted in `entries` too.
        hits: Lookups that this process had answered, in any tier.
        memory_hits: Those answered from memory.
        misses: Lookups without an entry.
        corrupt: Lookups that met a damaged file.
        refused: Lookups that met a directory or file that is not trusted.
        puts: Entries published.
        rejected: Puts that left no entry on disk, for whatever reason.
        too_large: Those because the entry is larger than the cap.
        evictions: Entries that this process evicted from disk.
        errors: File-system operations that failed.
        total_hits: Hits of all processes on the entries that are there.
        kinds: Entries and sizes per kind.
    """

    path: Path | None
    state: Literal["ok", "memory only", "read-only", "refused", "unavailable"]
    problem: str
    entries: int
    size_bytes: int
    cap_bytes: int | None
    memory_entries: int
    memory_size_bytes: int
    unreadable_entries: int
    hits: int
    memory_hits: int
    misses: int
    corrupt: int
    refused: int
    puts: int
    rejected: int
    too_large: int
    evictions: int
    errors: int
    total_hits: int
    kinds: dict[str, KindStats]


@dataclasses.dataclass(frozen=True, slots=True)
class VerifyReport:
    """Tell what checking every entry found.

    Attributes:
        checked: Files that were read.
        intact: Entries whose digests all agree.
        corrupt: Digests of damaged entries.
        refused: Digests of files that somebody else could have written.
        unsupported: Digests of entries in a newer format; they were left alone.
        unreadable: Digests of files that could not be read.
        quarantined: How many damaged files were moved away.

    Example:
        >>> VerifyReport(checked=1, intact=1).is_clean
        True
    """

    checked: int = 0
    intact: int = 0
    corrupt: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    unsupported: tuple[str, ...] = ()
    unreadable: tuple[str, ...] = ()
    quarantined: int = 0

    @property
    def is_clean(self) -> bool:
        """Whether nothing was damaged, refused or unreadable."""
        return not (self.corrupt or self.refused or self.unreadable)


@dataclasses.dataclass(frozen=True, slots=True)
class GcReport:
    """Tell what housekeeping removed.

    Attributes:
        evicted: Digests of entries that had to go.
        freed_bytes: Their size.
        drafts: Files left by killed writers.
        locks: Lock files left by killed owners.
        quarantined: Old files in quarantine.
        journals: Journals of hits that were put together.

    Example:
        >>> GcReport().freed_bytes
        0
    """

    evicted: tuple[str, ...] = ()
    freed_bytes: int = 0
    drafts: int = 0
    locks: int = 0
    quarantined: int = 0
    journals: int = 0
