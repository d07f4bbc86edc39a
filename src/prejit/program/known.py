"""Calls that are ready in this process, by their trace: who jits a function again finds them, as in JAX.

Code that writes `jax.jit(f)(x)` inside a function makes a new object on every call. JAX gives all of them one trace; so
a call that was prepared belongs to the trace, and goes when the trace goes.
"""

import os
import threading
import weakref
from collections.abc import Hashable
from typing import Any

from prejit.stage.listeners import on_clear

__all__ = ["KNOWN"]


class _Known:
    """Hold what was prepared for each trace, weakly by the trace.

    **Threads**: any. After `os.fork` the child starts with none.
    """

    def __init__(self) -> None:
        self._renew()
        on_clear(self)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._renew)

    def _renew(self) -> None:
        self._lock = threading.Lock()
        self._calls: weakref.WeakKeyDictionary[Any, dict[Hashable, Any]] = weakref.WeakKeyDictionary()

    def get(self, trace: Any, kind: Hashable) -> Any:
        """Return what was prepared for a kind of call of a trace, or None."""
        with self._lock:
            return self._calls.get(trace, {}).get(kind)

    def put(self, trace: Any, kind: Hashable, prepared: Any) -> None:
        """Keep what was prepared for as long as the trace lives and nothing is forgotten."""
        with self._lock:
            self._calls.setdefault(trace, {})[kind] = prepared

    def forget(self) -> None:
        """Drop everything: executables that were to go would stay loaded."""
        with self._lock:
            self._calls.clear()


KNOWN = _Known()
