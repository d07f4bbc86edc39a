"""The ladder: a loaded executable, else a stored executable, else a stored module, else lowering; then publish."""

import hashlib
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from prejit import events
from prejit._jax import executables, tracing
from prejit._jax.shardings import placement_token
from prejit.config import settings
from prejit.errors import KeyingError, PrejitError
from prejit.events import Outcome
from prejit.key import ComponentKey, Ingredient, environment_ingredients, program_digest
from prejit.signature.describe import aval_text
from prejit.stage.flight import Flights
from prejit.stage.listing import ingredients_of
from prejit.stage.loaded import Loaded, loaded_executables
from prejit.stage.progress import compiling
from prejit.store import CacheEntry, Store, get_store

__all__ = ["Bypass", "Prepared", "build_key", "prepare"]


@dataclass(frozen=True, slots=True)
class Bypass:
    """Say why a program is not stored; the caller runs it as `jax.jit` would."""

    is_bypass: ClassVar[Literal[True]] = True
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

    is_bypass: ClassVar[Literal[False]] = False
    key: ComponentKey
    loaded: Loaded
    const_args: tuple[Any, ...]
    out_tree: Any

    def run(self, flat: Sequence[Any]) -> list[Any]:
        """Run on flat arguments and return flat results."""
        return self.loaded.executable.unsafe_call(*self.const_args, *flat)


class _Job:
    """One traced call on its way to an executable."""

    def __init__(self, program: tracing.TracedProgram, flat: Sequence[Any], name: str, explicit: Sequence[tuple[str, str]]):
        self.program = program
        self.flat = flat
        self.name = name
        self.explicit = tuple([Ingredient(*pair) for pair in explicit])
        self.hoisted = self._choose_hoisted()
        self.devices = tracing.devices_of(flat) or [tracing.default_device()]
        self.device = self.devices[0]
        self.lowered: Any = None
        self.in_avals = [*[_aval_of(program.consts[i]) for i in self.hoisted], *program.in_avals]

    def _choose_hoisted(self) -> tuple[int, ...]:
        limit = settings().hoist_bytes
        return tuple([i for i, const in enumerate(self.program.consts) if tracing.size_bytes(const) > limit])

    def lower(self) -> Any:
        if self.lowered is None:
            if self.hoisted:
                self.lowered = tracing.lower_with_arguments(self.program, self.hoisted, self.flat)
            else:
                self.lowered = self.program.traced.lower()
        return self.lowered

    def key(self, kind: str) -> ComponentKey:
        """Build the key of this program's executable or module.

        Raises:
            KeyingError: Nothing about the program can be digested, or it can't be stored at all.
        """
        return ComponentKey(
            identity=(*self.explicit, *self._identity(), Ingredient("kind", kind)),
            signature=self._signature(),
            transforms=(),
            environment=tuple(
                environment_ingredients(kind, platform=self.device.platform, devices=tuple(self.devices))
            ),
        )

    def _identity(self) -> tuple[Ingredient, ...]:
        try:
            digest = program_digest(self.program.closed_jaxpr, hoisted_consts=self.hoisted).digest
            return (Ingredient("program", digest),)
        except KeyingError as error:
            # Not everything in the jaxpr has content that can be digested; the lowered module may have.
            lowered = self.lower()
            reason = executables.why_not_storable(lowered)
            if reason is not None:
                raise KeyingError(str(error), reason=reason) from error
            return (Ingredient("module", hashlib.sha256(lowered.as_text().encode()).hexdigest()),)

    def _signature(self) -> tuple[Ingredient, ...]:
        placed = [(n, placement_token(value)) for n, value in enumerate(self.flat)]
        donated = ",".join(str(n) for n, is_donated in enumerate(self.program.donated) if is_donated)
        return (
            Ingredient("in_avals", ", ".join(aval_text(aval) for aval in self.program.in_avals)),
            *[Ingredient(f"placement of {n}", token) for n, token in placed if token],
            *([Ingredient("donated", donated)] if donated else []),
        )

    def arguments(self) -> dict[str, Any]:
        return {
            "in_avals": self.in_avals,
            "out_avals": self.program.out_avals,
            "debug_info": self.program.debug_info,
            "device": self.device,
        }


_flights = Flights()


def build_key(program: tracing.TracedProgram, flat: Sequence[Any], name: str,
              explicit: Sequence[tuple[str, str]] = ()) -> ComponentKey:  # fmt: skip
    """Return the key of a traced call's executable.

    Raises:
        KeyingError: The program can't be stored; the reason says why.
    """
    job = _Job(program, flat, name, explicit)
    reason = _why_not_traced(job)
    if reason is not None:
        raise KeyingError(
            f"building the key of {name}: expected a program that can be stored, got {reason}", reason=reason
        )
    return job.key("executable")


def prepare(program: tracing.TracedProgram, flat: Sequence[Any], name: str,
            explicit: Sequence[tuple[str, str]] = ()) -> Prepared | Bypass:  # fmt: skip
    """Get an executable for a traced call: from memory, from the store, or by compiling, and then store it.

    Args:
        program: The traced program.
        flat: Its flat arguments or their specs.
        name: Display name.
        explicit: Ingredients of an identity that the user gave.

    Returns:
        What runs the call, or why it is not stored.

    Raises:
        Exception: What JAX raises when it lowers or compiles the program.
    """
    reason = _why_not_traced(job := _Job(program, flat, name, explicit))
    if reason is None:
        try:
            key = job.key("executable")
            return _prepare(job, key, get_store())
        except KeyingError as error:
            reason = error.reason or str(error)
    events.record_lookup(events.Lookup(name, "", "bypass", reason))
    return Bypass(reason)


def _why_not_traced(job: _Job) -> str | None:
    if job.program.effects:
        return f"effects: {', '.join(sorted(type(e).__name__ for e in job.program.effects))}"
    if any(isinstance(const, tracing.Tracer) for const in job.program.consts):
        return "it closes over a value that is being traced"
    if len({device.process_index for device in job.devices}) > 1:
        return "its devices belong to several processes"
    return None


def _prepare(job: _Job, key: ComponentKey, store: Store) -> Prepared:
    cache = loaded_executables(store)
    place = (key.digest, job.device.id)
    loaded = cache.get(place)
    if loaded is not None:
        _record(job, key, "hit", "in memory")
        return _prepared(job, key, loaded)
    timeout_s = settings().lock_timeout_s
    with _flights.enter(place, timeout_s):
        loaded = cache.get(place)
        if loaded is not None:
            _record(job, key, "hit", "in memory")
            return _prepared(job, key, loaded)
        loaded, outcome, reason = _from_store(job, key, store)
        if loaded is None:
            with _claim(store, key, timeout_s):
                again, second, _ = _from_store(job, key, store)
                if again is not None:
                    loaded, outcome, reason = again, second, "another process compiled it"
                else:
                    loaded = _compile(job, key, store)
        _record(job, key, outcome, reason)
        cache.put(place, loaded, loaded.meta.get("size_bytes", 1))
        return _prepared(job, key, loaded)


def _claim(store: Store, key: ComponentKey, timeout_s: float) -> AbstractContextManager[Any]:
    return store.claim(key.digest, timeout_s)


def _record(job: _Job, key: ComponentKey, outcome: Outcome, reason: str) -> None:
    events.record_lookup(events.Lookup(job.name, key.digest, outcome, reason))


def _prepared(job: _Job, key: ComponentKey, loaded: Loaded) -> Prepared:
    consts = [job.program.consts[i] for i in job.hoisted]
    placed = tuple(loaded.executable.shard_const_args(consts)) if consts else ()
    return Prepared(key, loaded, placed, job.program.traced.out_tree)


def _from_store(job: _Job, key: ComponentKey, store: Store) -> tuple[Loaded | None, Outcome, str]:
    found = store.lookup(key)
    if found.entry is None:
        return None, found.outcome, found.reason
    entry = found.entry
    started = time.perf_counter()
    try:
        data = entry.sections["executable"]
        executable = executables.load_executable(data, entry.meta, **job.arguments())
    except Exception as error:  # noqa: BLE001  # whatever the backend says about bytes it can't use, the next rung works
        return None, "stale", f"the backend rejected the stored executable: {_first_line(error)}"
    events.count("loads")
    events.count("load_seconds", time.perf_counter() - started)
    return Loaded(executable, {**entry.meta, "size_bytes": len(data)}), "hit", found.tier or "disk"


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]


def _compile(job: _Job, key: ComponentKey, store: Store) -> Loaded:
    compiled = None
    module_key = job.key("module")
    stored = store.lookup(module_key).entry if job.lowered is None else None
    with compiling(job.name), events.own_compile():
        if stored is not None:
            try:
                executable = executables.compile_module(stored.sections["module"], stored.meta, **job.arguments())
                compiled, targets = executable, stored.meta["custom_call_targets"]
            except Exception as error:  # noqa: BLE001  # the next rung lowers the function again
                events.logger.debug("%s: the stored module does not compile: %s", job.name, _first_line(error))
        if compiled is None:
            lowered = job.lower()
            reason = executables.why_not_storable(lowered)
            if reason is not None:
                raise KeyingError(
                    f"storing {job.name}: expected a program that another process can run, got {reason}", reason=reason
                )
            compiled = lowered.compile()._executable
            targets = executables.custom_call_targets(lowered._lowering.stablehlo())
            _publish_module(job, module_key, store)
    return _publish_executable(job, key, store, compiled, targets)


def _publish_module(job: _Job, key: ComponentKey, store: Store) -> None:
    try:
        meta = executables.describe_lowered(job.lowered)
    except KeyingError:
        return
    if not meta["intermediate_shardings"]:
        store.put(_entry(job, key, "module", meta, executables.module_bytes(job.lowered)))


def _publish_executable(job: _Job, key: ComponentKey, store: Store, executable: Any, targets: Sequence[str]) -> Loaded:
    try:
        meta = executables.describe_compiled(executable, targets)
        data = executables.executable_bytes(executable)
    except PrejitError as error:
        events.logger.debug("%s: not stored: %s", job.name, error)
        return Loaded(executable, {"size_bytes": 1})
    except Exception as error:  # noqa: BLE001  # a backend that can't serialize still computes
        events.count("store_errors")
        events.logger.debug("%s: the backend can't serialize it: %s", job.name, _first_line(error))
        return Loaded(executable, {"size_bytes": 1})
    store.put(_entry(job, key, "executable", meta, data))
    return Loaded(executable, {**meta, "size_bytes": len(data)})


def _entry(job: _Job, key: ComponentKey, kind: Any, meta: dict[str, Any], data: bytes) -> CacheEntry:
    return CacheEntry(
        key=key.digest,
        kind=kind,
        name=job.name,
        variant="",
        created=time.time(),
        ingredients=ingredients_of(key),
        meta={
            **meta,
            "in_avals": [aval_text(a) for a in job.in_avals],
            "out_avals": [aval_text(a) for a in job.program.out_avals],
        },
        sections={kind: data},
    )


def _aval_of(const: Any) -> Any:
    return tracing.aval_of(const)
