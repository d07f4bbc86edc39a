"""Which store is in use: the one of the block, or the one that the settings describe."""

import contextlib
import threading
from collections import OrderedDict
from collections.abc import Generator
from contextvars import ContextVar

from prejit.config import Settings, settings
from prejit.store.forks import renew_after_fork
from prejit.store.store import Store

__all__ = ["get_store", "use_store"]

# Enough for a program that switches between a few directories by `override`; an older one only loses its memory tier.
_MOST_STORES = 8

_here: ContextVar[Store | None] = ContextVar("prejit_store", default=None)


class _Stores:
    """Keep the stores that the settings described lately."""

    def __init__(self) -> None:
        self._by_settings: OrderedDict[tuple[object, ...], Store] = OrderedDict()
        self._lock = threading.Lock()
        renew_after_fork(self)

    def get(self, current: Settings) -> Store:
        key = (
            current.cache_dir,
            current.max_size_bytes,
            current.memory_max_size_bytes,
            current.read_only,
            current.strict,
        )
        with self._lock:
            store = self._by_settings.get(key)
            if store is None:
                store = self._by_settings[key] = Store(
                    current.cache_dir,
                    max_size=current.max_size_bytes,
                    memory_max_size=current.memory_max_size_bytes,
                    read_only=current.read_only,
                    strict=current.strict,
                )
                if len(self._by_settings) > _MOST_STORES:
                    _, oldest = self._by_settings.popitem(last=False)
                    oldest.flush()
            self._by_settings.move_to_end(key)
            return store

    def after_fork_in_child(self) -> None:
        self._lock = threading.Lock()


_stores = _Stores()


def get_store() -> Store:
    """Return the store in use here: of the innermost `use_store`, else the one that the settings describe.

    **Threads**: any; a block counts for its own thread or task only, so pass the store to worker threads.

    Example:
        >>> with use_store(Store(None)) as store:
        ...     get_store() is store
        True
    """
    return _here.get() or _stores.get(settings())


@contextlib.contextmanager
def use_store(store: Store) -> Generator[Store]:
    """Use a store for a block, in this thread or task only.

    A component that was called before answers from its own memory and asks no store; to fill a store with what is warm
    already, call `cache_clear()` on it inside the block.

    Args:
        store: The store.

    Returns:
        A context manager that gives the store.

    Example:
        >>> with use_store(Store(None)):
        ...     get_store().path is None
        True
    """
    token = _here.set(store)
    try:
        yield store
    finally:
        _here.reset(token)
