"""Caches in memory that are bounded by weight and forget what was used least recently."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from prejit.store.entry import CacheEntry
from prejit.store.forks import renew_after_fork

__all__ = ["BoundedCache", "MemoryTier"]

K = TypeVar("K")
V = TypeVar("V")


class BoundedCache(Generic[K, V]):
    """Keep values up to a total weight, dropping the least recently used.

    Args:
        max_weight: Total weight that is kept; None is no bound.
        on_evict: Called with key and value of what is dropped for want of room or by `clear`, not of what `put`
            replaces or `pop` hands back. It runs without the cache's lock, so it may use the cache.

    **Threads**: any.

    Example:
        >>> cache = BoundedCache[str, int](max_weight=2)
        >>> cache.put("a", 1), cache.put("b", 2), cache.get("a"), cache.put("c", 3)
        (True, True, 1, True)
        >>> sorted(cache.keys())
        ['a', 'c']
    """

    def __init__(self, max_weight: int | None, on_evict: Callable[[K, V], None] | None = None) -> None:
        self._max_weight = max_weight
        self._on_evict = on_evict
        self._items: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._weight = 0
        # Reentrant: a finalizer that runs while the lock is held may drop its own item.
        self._lock = threading.RLock()
        renew_after_fork(self)

    def get(self, key: K) -> V | None:
        """Return a value and mark it as used, or None."""
        with self._lock:
            item = self._items.get(key)
            if item is None:
                return None
            self._items.move_to_end(key)
            return item[0]

    def put(self, key: K, value: V, weight: int = 1) -> bool:
        """Keep a value.

        Args:
            key: Its key; what was there is replaced.
            value: The value.
            weight: Its share of the bound, not negative.

        Returns:
            False when it is heavier than the bound; then nothing is kept under the key and nothing else is dropped.
        """
        dropped: list[tuple[K, V]] = []
        with self._lock:
            old = self._items.pop(key, None)
            if old is not None:
                self._weight -= old[1]
            if self._max_weight is not None and weight > self._max_weight:
                return False
            self._items[key] = (value, weight)
            self._weight += weight
            while self._max_weight is not None and self._weight > self._max_weight:
                victim, (victim_value, victim_weight) = self._items.popitem(last=False)
                self._weight -= victim_weight
                dropped.append((victim, victim_value))
        self._tell(dropped)
        return True

    def pop(self, key: K) -> V | None:
        """Remove a value and return it, or None."""
        with self._lock:
            item = self._items.pop(key, None)
            if item is None:
                return None
            self._weight -= item[1]
            return item[0]

    def clear(self) -> int:
        """Drop everything and return how many values there were."""
        with self._lock:
            dropped = [(key, value) for key, (value, _) in self._items.items()]
            self._items.clear()
            self._weight = 0
        self._tell(dropped)
        return len(dropped)

    def keys(self) -> list[K]:
        """List the keys, least recently used first."""
        with self._lock:
            return list(self._items)

    def values(self) -> list[V]:
        """List the values, least recently used first, without marking them as used."""
        with self._lock:
            return [value for value, _ in self._items.values()]

    @property
    def weight(self) -> int:
        """Total weight of what is kept."""
        return self._weight

    def __len__(self) -> int:
        return len(self._items)

    def __contains__(self, key: object) -> bool:
        return key in self._items

    def __iter__(self) -> Iterator[K]:
        return iter(self.keys())

    def after_fork_in_child(self) -> None:
        """Replace the lock, which another thread of the parent may have held."""
        self._lock = threading.RLock()

    def _tell(self, dropped: list[tuple[K, V]]) -> None:
        if self._on_evict is not None:
            for key, value in dropped:
                self._on_evict(key, value)


# Rough size of an entry's fields around its payloads.
_ENTRY_OVERHEAD_BYTES = 2048


class MemoryTier(BoundedCache[str, CacheEntry]):
    """Keep decoded entries by digest, bounded by the bytes of their payloads.

    Example:
        >>> tier = MemoryTier(max_size_bytes=1024**2)
        >>> tier.keep(CacheEntry(key="ab" * 32, kind="plan", name="f"))
        True
    """

    def __init__(self, max_size_bytes: int | None) -> None:
        super().__init__(max_size_bytes)

    def keep(self, entry: CacheEntry) -> bool:
        """Keep an entry under its key; False when it is larger than the tier."""
        return self.put(entry.key, entry, entry.size_bytes + _ENTRY_OVERHEAD_BYTES)
