"""Counters, timings and lookup events: everything that reports reads these.

`traces`, `lowerings` and `compiles` come from `jax.monitoring`, so they count what JAX did in this process, whoever
asked for it, and agree with what any other listener counts. A lookup is an event with a key, an outcome and a reason;
it is logged at debug level on the `prejit` logger, which is silent unless the program sets logging up.
"""

import logging
import os
import threading
import weakref
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from jax import monitoring

__all__ = [
    "Lookup",
    "Outcome",
    "Tally",
    "attributed_to",
    "count",
    "counters",
    "in_the_name_of",
    "install",
    "is_own_compile",
    "own_compile",
    "owners",
    "record_lookup",
    "subscribe",
]

Outcome = Literal["hit", "miss", "bypass", "stale", "corrupt", "refused"]

logger = logging.getLogger("prejit")
logger.addHandler(logging.NullHandler())

_JAX_EVENTS = {
    "/jax/core/compile/jaxpr_trace_duration": ("traces", "trace_seconds"),
    "/jax/core/compile/jaxpr_to_mlir_module_duration": ("lowerings", "lower_seconds"),
    "/jax/core/compile/backend_compile_duration": ("compiles", "compile_seconds"),
}
_NAMES = (
    "traces",
    "lowerings",
    "compiles",
    "loads",
    "hits",
    "misses",
    "bypasses",
    "stale",
    "corrupt",
    "refused",
    "store_errors",
    "eager_hits",
    "eager_misses",
    "eager_loads",
    "eager_compiles",
)
_SECONDS = ("trace_seconds", "lower_seconds", "compile_seconds", "load_seconds", "eager_load_seconds")
_OUTCOME_COUNTERS: dict[Outcome, str] = {
    "hit": "hits",
    "miss": "misses",
    "bypass": "bypasses",
    "stale": "stale",
    "corrupt": "corrupt",
    "refused": "refused",
}


@dataclass(frozen=True, slots=True)
class Lookup:
    """Report what became of one lookup.

    Attributes:
        name: Display name of the function.
        digest: The key's digest, or an empty string when no key could be built.
        outcome: `hit`, `miss`, `bypass`, `stale`, `corrupt` or `refused`.
        reason: Why, in words; empty for a plain hit or miss.
        is_eager: True for a module that did not pass through prejit (an eager operation or a plain `jax.jit`).
    """

    name: str
    digest: str
    outcome: Outcome
    reason: str = ""
    is_eager: bool = False


_tallies: "weakref.WeakSet[Tally]" = weakref.WeakSet()


class Tally:
    """Count events by name; one for the process and one for each component.

    **Threads**: any.
    """

    __slots__ = ("__weakref__", "_lock", "_values")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: dict[str, float] = {}
        _tallies.add(self)

    def add(self, name: str, amount: float = 1) -> None:
        """Add to a count."""
        with self._lock:
            self._values[name] = self._values.get(name, 0) + amount

    def get(self, name: str) -> int:
        """Return a count."""
        return int(self._values.get(name, 0))

    def snapshot(self) -> dict[str, float]:
        """Return all counts."""
        with self._lock:
            return dict(self._values)

    def clear(self) -> None:
        """Set every count to zero."""
        with self._lock:
            self._values.clear()

    def renew_lock(self) -> None:
        """Replace the lock, which another thread may have held when the process forked."""
        self._lock = threading.Lock()


class _Thread(threading.local):
    """What one thread is doing: whose work it is, who compiles, and whether the next compile event is really a load."""

    def __init__(self) -> None:
        self.owners: list[Tally] = []
        self.is_own_compile = False
        self.is_load = False


_process = Tally()
_thread = _Thread()
_subscribers: list[Callable[[Lookup], None]] = []
_installed = False


def count(name: str, amount: float = 1) -> None:
    """Add to a counter of the process and of the component whose work this thread is doing."""
    _process.add(name, amount)
    if _thread.owners:
        _thread.owners[-1].add(name, amount)


def counters() -> dict[str, int | float]:
    """Return what this process did so far.

    Returns:
        `traces`, `lowerings`, `compiles`: JAX's own events, of the whole process; a compile that was answered from a
        store is not one. `loads`: executables loaded from a store. `hits`, `misses`, `bypasses`: outcomes of lookups of
        components and programs, of which a linked one has one for each executable that it needs. `stale`, `corrupt`,
        `refused`: outcomes of all lookups. `eager_hits`, `eager_misses`, `eager_loads`, `eager_compiles`: of modules
        that did not pass through prejit; `loads` and `compiles` include them. `store_errors`: failed reads and writes.
        `*_seconds`: seconds spent, nested traces counted in their callers too.

    Example:
        >>> counters()["hits"] >= 0
        True
    """
    values = _process.snapshot()
    whole: dict[str, int | float] = {name: int(values.get(name, 0)) for name in _NAMES}
    return whole | {name: values.get(name, 0.0) for name in _SECONDS}


@contextmanager
def attributed_to(tally: Tally) -> Generator[None]:
    """Count what this thread does in a block for one component, too."""
    _thread.owners.append(tally)
    try:
        yield
    finally:
        _thread.owners.pop()


def owners() -> tuple[Tally, ...]:
    """Return those for whom this thread works, to hand on to a thread that helps; see `in_the_name_of`."""
    return tuple(_thread.owners)


@contextmanager
def in_the_name_of(others: tuple[Tally, ...]) -> Generator[None]:
    """Count what this thread does in a block for those for whom another thread works, and for nobody else."""
    before, _thread.owners = _thread.owners, list(others)
    try:
        yield
    finally:
        _thread.owners = before


@contextmanager
def own_compile() -> Generator[None]:
    """Mark what this thread compiles in a block as prejit's own, which is stored under its own key."""
    before, _thread.is_own_compile = _thread.is_own_compile, True
    try:
        yield
    finally:
        _thread.is_own_compile = before


def is_own_compile() -> bool:
    """Say whether this thread compiles for prejit."""
    return _thread.is_own_compile


def record_lookup(lookup: Lookup) -> None:
    """Count a lookup, log it at debug level and tell the subscribers."""
    if not lookup.is_eager:
        count(_OUTCOME_COUNTERS[lookup.outcome])
    elif lookup.outcome == "hit":
        _process.add("eager_hits")
    else:
        _process.add("eager_misses")
        if lookup.outcome in ("stale", "corrupt", "refused"):
            _process.add(lookup.outcome)
    if logger.isEnabledFor(logging.DEBUG):
        logger.debug(
            "%s%s: %s%s%s",
            "eager " if lookup.is_eager else "",
            lookup.name,
            lookup.outcome,
            f" ({lookup.reason})" if lookup.reason else "",
            f" {lookup.digest[:12]}" if lookup.digest else "",
        )
    for subscriber in tuple(_subscribers):
        subscriber(lookup)


def subscribe(subscriber: Callable[[Lookup], None]) -> Callable[[], None]:
    """Call a function with every lookup from now on.

    Args:
        subscriber: Called in the thread that looked up; what it raises reaches the caller of the component.

    Returns:
        A function that ends the subscription.

    Example:
        >>> seen = []
        >>> stop = subscribe(seen.append)
        >>> stop()
    """
    _subscribers.append(subscriber)

    def stop() -> None:
        if subscriber in _subscribers:
            _subscribers.remove(subscriber)

    return stop


def _renew_locks() -> None:
    for tally in list(_tallies):
        tally.renew_lock()


def _on_duration(event: str, duration_secs: float, **kwargs: str | int) -> None:
    names = _JAX_EVENTS.get(event)
    if names is None:
        return
    name, duration = names
    if name == "compiles" and _thread.is_load:
        _thread.is_load = False
        return
    count(name)
    count(duration, duration_secs)
    if name == "compiles" and not _thread.is_own_compile:
        _process.add("eager_compiles")


def _on_event(event: str, **kwargs: str | int) -> None:
    # JAX announces a hit of its cache, which may be our store, in the thread that then records the compile event.
    if event == "/jax/compilation_cache/cache_hits":
        _thread.is_load = True
        count("loads")
        count("eager_loads")


def install() -> None:
    """Start counting; importing prejit does it, and again does nothing."""
    global _installed
    if not _installed:
        _installed = True
        monitoring.register_event_listener(_on_event)
        monitoring.register_event_duration_secs_listener(_on_duration)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=_renew_locks)
