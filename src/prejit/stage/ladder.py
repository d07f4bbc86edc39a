"""The ladder: a loaded executable, else a stored executable, else a stored module, else lowering; then publish."""

import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

from prejit import events
from prejit._jax import executables, tracing
from prejit.config import settings
from prejit.errors import KeyingError, PrejitError, warn_user
from prejit.events import Outcome
from prejit.key import ComponentKey
from prejit.stage.flight import Flights
from prejit.stage.job import Job
from prejit.stage.listing import ingredients_of
from prejit.stage.loaded import Loaded, loaded_executables
from prejit.stage.progress import compiling
from prejit.stage.reporting import report_store
from prejit.store import CacheEntry, Store, get_store

__all__ = ["Bypass", "Prepared", "build_key", "prepare"]


@dataclass(frozen=True, slots=True)
class Bypass:
    """Say why a program is not stored; the caller runs it as `jax.jit` would."""

    reason: str


@dataclass(frozen=True, slots=True)
class Prepared:
    """Hold what runs one traced call.

    Attributes:
        key: Its key.
        loaded: The executable.
        const_args: Hoisted constants on the device, which come before the arguments.
        out_tree: Structure of the result.
    """

    key: ComponentKey
    loaded: Loaded
    const_args: tuple[Any, ...]
    out_tree: Any

    def run(self, flat: Sequence[Any]) -> list[Any]:
        """Run on flat arguments and return flat results."""
        return self.loaded.executable.unsafe_call(*self.const_args, *flat)


_EXTRA = ("in_avals", "out_avals", "out_types", "out_tree", "out_paths", "function", "unusable")
_flights = Flights()
report_store()


def build_key(job: Job) -> ComponentKey:
    """Return the key of a call's executable.

    Raises:
        KeyingError: The call can't be stored; the reason says why.
    """
    reason = job.why_not()
    if reason is not None:
        raise KeyingError(
            f"building the key of {job.name}: expected a program that can be stored, got {reason}", reason=reason
        )
    return job.key("executable")


def prepare(job: Job) -> Prepared | Bypass:
    """Get an executable for a call: from memory, from the store, or by compiling, and then store it.

    Returns:
        What runs the call, or why it is not stored.

    Raises:
        NotNamedError: The job is a named one and its call can't be kept under the name.
        Exception: What JAX raises when it lowers or compiles the program.
    """
    reason = job.why_not()
    if reason is None:
        try:
            return _prepare(job, job.key("executable"), get_store())
        except KeyingError as error:
            reason = error.reason or str(error)
    events.record_lookup(events.Lookup(job.name, "", "bypass", reason))
    return Bypass(reason)


def _prepare(job: Job, key: ComponentKey, store: Store) -> Prepared:
    cache = loaded_executables(store)
    place = (key.digest, job.device.id)
    loaded = cache.get(place)
    if loaded is not None:
        _record(job, key, "hit", "in memory")
        return _prepared(job, key, loaded)
    timeout_s = settings().lock_timeout_s
    with _flights.enter(place, timeout_s) as is_first:
        loaded = cache.get(place)
        if loaded is not None:
            _record(job, key, "hit", "in memory")
            return _prepared(job, key, loaded)
        loaded, outcome, reason = _from_store(job, key, store)
        if loaded is None:
            # A thread that is here already, re-entered by a finalizer or a signal, must not wait for its own claim.
            with store.claim(key.digest, timeout_s) if is_first else nullcontext():
                again, second, _ = _from_store(job, key, store)
                if again is not None:
                    loaded, outcome, reason = again, second, "another process compiled it"
                else:
                    loaded = _compile(job, key, store)
        _record(job, key, outcome, reason)
        cache.put(place, loaded, loaded.weight_bytes)
        return _prepared(job, key, loaded)


def _record(job: Job, key: ComponentKey, outcome: Outcome, reason: str) -> None:
    events.record_lookup(events.Lookup(job.name, key.digest, outcome, reason))


def _prepared(job: Job, key: ComponentKey, loaded: Loaded) -> Prepared:
    if job.lowered is None and loaded.meta.get("unusable"):  # JAX says so when it lowers
        warn_user(tracing.unusable_text(loaded.meta["unusable"]))
    placed = executables.place_constants(loaded.executable, job.consts())
    return Prepared(key, loaded, placed, job.out_tree(loaded.meta))


def _from_store(job: Job, key: ComponentKey, store: Store) -> tuple[Loaded | None, Outcome, str]:
    found = store.lookup(key)
    if found.entry is None:
        return None, found.outcome, found.reason
    entry = found.entry
    started = time.perf_counter()
    try:
        data = entry.sections["executable"]
        executable = executables.load_executable(data, entry.meta, **job.arguments(entry.meta))
    except Exception as error:  # noqa: BLE001  # whatever the backend says about bytes it can't use, the next rung works
        return None, "stale", f"the backend rejected the stored executable: {_first_line(error)}"
    job.on_loaded(entry.meta)
    events.count("loads")
    events.count("load_seconds", time.perf_counter() - started)
    return Loaded(executable, {**entry.meta, "size_bytes": len(data)}), "hit", found.tier or "disk"


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]


def _compile(job: Job, key: ComponentKey, store: Store) -> Loaded:
    module_key = job.key("module")
    stored = store.lookup(module_key).entry if job.lowered is None else None
    with compiling(job.name):
        if stored is not None:
            meta: dict[str, Any] = stored.meta
            try:
                with events.own_compile():
                    executable = executables.compile_module(stored.sections["module"], meta, **job.arguments(meta))
            except Exception as error:  # noqa: BLE001  # the next rung lowers the function again
                events.logger.debug("%s: the stored module does not compile: %s", job.name, _first_line(error))
            else:
                extra = {name: meta[name] for name in _EXTRA if name in meta}
                return _publish_executable(job, key, store, executable, extra, meta["custom_call_targets"])
        job.before_lowering()
        lowered = job.lower()  # which may run eager operations, so it is no compile of our own yet
        reason = executables.why_not_storable(lowered)
        if reason is not None:
            raise KeyingError(
                f"storing {job.name}: expected a program that another process can run, got {reason}", reason=reason
            )
        with events.own_compile():
            executable = lowered.compile()._executable
            if not executables.is_fresh(executable):  # a plain `jax.jit` of the same function had loaded it
                executable = _compiled_anew(job, lowered) or executable
        _publish_module(job, module_key, store)
        targets = executables.custom_call_targets(lowered._lowering.stablehlo())
        return _publish_executable(job, key, store, executable, job.extra_meta(), targets)


def _compiled_anew(job: Job, lowered: Any) -> Any:
    """Compile what was lowered once more, as what was loaded can't be stored; None where it has no description."""
    try:
        meta = executables.describe_lowered(lowered, job.device)
    except KeyingError:
        return None
    if meta["intermediate_shardings"]:
        return None
    return executables.compile_module(executables.module_bytes(lowered), meta, **job.arguments(None))


def _publish_module(job: Job, key: ComponentKey, store: Store) -> None:
    try:
        meta = {**executables.describe_lowered(job.lower(), job.device), **job.extra_meta()}
    except KeyingError:
        return
    if not meta["intermediate_shardings"]:
        store.put(_entry(job, key, "module", meta, executables.module_bytes(job.lower())))


def _publish_executable(job: Job, key: ComponentKey, store: Store, executable: Any, extra: dict[str, Any],
                        targets: Sequence[str]) -> Loaded:  # fmt: skip
    if not executables.is_fresh(executable):
        events.logger.debug("%s: not stored: JAX had loaded it from its own cache", job.name)
        return Loaded(executable, {**extra, "size_bytes": 1})
    try:
        meta = {**executables.describe_compiled(executable, targets, job.device), **extra}
        data = executables.executable_bytes(executable)
    except PrejitError as error:
        events.logger.debug("%s: not stored: %s", job.name, error)
        return Loaded(executable, {**extra, "size_bytes": 1})
    except Exception as error:  # noqa: BLE001  # a backend that can't serialize still computes
        events.count("store_errors")
        events.logger.debug("%s: the backend can't serialize it: %s", job.name, _first_line(error))
        return Loaded(executable, {**extra, "size_bytes": 1})
    store.put(_entry(job, key, "executable", meta, data))
    return Loaded(executable, {**meta, "size_bytes": len(data)})


def _entry(job: Job, key: ComponentKey, kind: Any, meta: dict[str, Any], data: bytes) -> CacheEntry:
    return CacheEntry(
        key=key.digest,
        kind=kind,
        name=job.name,
        variant="",
        created=time.time(),
        ingredients=ingredients_of(key),
        meta=meta,
        sections={kind: data},
    )
