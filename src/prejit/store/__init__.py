"""Bytes in, bytes out: owns the entry format, the memory and disk tiers, eviction, trust and claims.

Must not know JAX, what a key is made of, or what the payloads mean.
Invariant: whatever happens to the store, a computation gets an intact entry or none, and goes on.
"""

from prejit.store.current import get_store, use_store
from prejit.store.entry import FORMAT_VERSION, CacheEntry, Kind
from prejit.store.files import FileInfo, FileSystem, OSFileSystem
from prejit.store.locks import Claim, FileLocks, OSLocks
from prejit.store.memory import BoundedCache
from prejit.store.reports import EntryInfo, GcReport, KindStats, Lookup, StoreStats, VerifyReport
from prejit.store.store import EventHook, Keyed, Store, set_event_hook

__all__ = [
    "FORMAT_VERSION",
    "BoundedCache",
    "CacheEntry",
    "Claim",
    "EntryInfo",
    "EventHook",
    "FileInfo",
    "FileLocks",
    "FileSystem",
    "GcReport",
    "Keyed",
    "Kind",
    "KindStats",
    "Lookup",
    "OSFileSystem",
    "OSLocks",
    "Store",
    "StoreStats",
    "VerifyReport",
    "get_store",
    "set_event_hook",
    "use_store",
]
