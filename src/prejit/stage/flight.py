"""Single flight inside one process: of threads that want the same thing, one does it and the others wait."""

import os
import threading
import time
from collections.abc import Generator, Hashable
from contextlib import contextmanager

__all__ = ["Flights"]

_POLL_S = 0.2  # A waiter wakes this often for Ctrl-C and to see its deadline.


class _Flight:
    __slots__ = ("landed", "owner")

    def __init__(self) -> None:
        self.owner = threading.get_ident()
        self.landed = threading.Event()


class Flights:
    """Let one thread at a time work on a key. No lock is held while it works.

    **Threads**: any. After `os.fork` the child starts with no flights.
    """

    __slots__ = ("__weakref__", "_flights", "_lock")

    def __init__(self) -> None:
        self._renew()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._renew)

    def _renew(self) -> None:
        self._lock = threading.Lock()
        self._flights: dict[Hashable, _Flight] = {}

    @contextmanager
    def enter(self, key: Hashable, timeout_s: float) -> Generator[bool]:
        """Wait for the thread that works on the key, if any, then be the one.

        Args:
            key: What is worked on.
            timeout_s: Longest wait; then the work is done twice rather than not at all. A thread that already works on
                the key goes on at once.

        Returns:
            A context manager that gives True if this thread now is the one, False if it goes on beside another or
            inside its own earlier work.
        """
        mine = _Flight()
        deadline = time.monotonic() + timeout_s
        while True:
            with self._lock:
                other = self._flights.setdefault(key, mine)
            if other is mine or other.owner == mine.owner or time.monotonic() >= deadline:
                break
            other.landed.wait(_POLL_S)
        try:
            yield other is mine
        finally:
            with self._lock:
                if self._flights.get(key) is mine:
                    del self._flights[key]
            mine.landed.set()
