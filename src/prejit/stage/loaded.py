"""Loaded executables, bounded: one cache for each store, weighed by what they take in memory."""

import os
import threading
import weakref
from typing import Any

from prejit.config import settings
from prejit.stage.listeners import Users, forget_all
from prejit.store import Store
from prejit.store.memory import BoundedCache

__all__ = ["Loaded", "loaded_executables"]


# What a loaded executable takes besides its code: 220 kB for a tiny one of 6 kB (resident memory, CPU, 2026-12).
_OVERHEAD_BYTES = 220_000


class Loaded:
    """Hold a loaded executable and tell those that dispatch to it when it should go.

    Attributes:
        executable: What runs.
        meta: The entry's description of it.
    """

    __slots__ = ("__weakref__", "_users", "executable", "meta")

    def __init__(self, executable: Any, meta: dict[str, Any]) -> None:
        self.executable = executable
        self.meta = meta
        self._users = Users()

    @property
    def weight_bytes(self) -> int:
        """Estimate the memory that the executable takes, in bytes."""
        return _OVERHEAD_BYTES + self.meta.get("size_bytes", 0)

    def used_by(self, user: Any) -> None:
        """Remember someone with a `forget()` to call when this is unloaded."""
        self._users.add(user)

    def unload(self) -> None:
        """Make every user forget the executable; it goes when the last running call returns."""
        self._users.forget()


Cache = BoundedCache[tuple[str, int], Loaded]

_caches: "weakref.WeakKeyDictionary[Store, Cache]" = weakref.WeakKeyDictionary()
_lock = threading.Lock()


def _renew_lock() -> None:
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)

_clears: "weakref.WeakKeyDictionary[Store, _Clear]" = weakref.WeakKeyDictionary()


def loaded_executables(store: Store) -> Cache:
    """Return the cache of what was loaded from, or compiled for, a store. Keys are digest and device id."""
    with _lock:
        cache = _caches.get(store)
        if cache is None:
            cache = _caches[store] = BoundedCache(settings().memory_max_size_bytes, _unloaded)
            clear = _clears[store] = _Clear(cache)  # the store holds its listeners weakly
            store.add_clear_listener(clear)
        return cache


def _unloaded(_: tuple[str, int], loaded: Loaded) -> None:
    loaded.unload()


class _Clear:
    """Clear the loaded executables when a store's memory tier is cleared."""

    __slots__ = ("__weakref__", "_cache")

    def __init__(self, cache: Cache) -> None:
        self._cache = cache

    def __call__(self) -> None:
        self._cache.clear()
        forget_all()
