"""Modules that do not pass through prejit (eager operations, plain `jax.jit`): JAX's compilation cache on our store."""

import time
from typing import Any

from prejit import events
from prejit._jax import compilation
from prejit.key import ComponentKey, Ingredient, environment_ingredients
from prejit.stage.listing import ingredients_of
from prejit.stage.reporting import report_store
from prejit.store import CacheEntry, get_store

__all__ = ["get_or_compile"]

report_store()


def get_or_compile(request: compilation.ModuleRequest, compile_now: compilation.Compile) -> Any:
    """Load the module's executable from the store, or compile it and store it."""
    try:
        key = _key(request)
    except Exception as error:  # noqa: BLE001  # JAX's key can fail for reasons of its own; then compile as without us
        events.record_lookup(events.Lookup(request.name, "", "bypass", str(error), is_eager=True))
        return compile_now()
    store = get_store()
    found = store.lookup(key)
    outcome, reason = found.outcome, found.reason
    if found.entry is not None:
        started = time.perf_counter()
        try:
            executable = request.load(found.entry.sections["executable"])
        except Exception as error:  # noqa: BLE001  # whatever the backend says, compiling works
            outcome, reason = "stale", f"the backend rejected the stored executable: {error}"
        else:
            events.count("eager_load_seconds", time.perf_counter() - started)
            compilation.announce_hit()  # which counts as a load
            events.record_lookup(events.Lookup(request.name, key.digest, "hit", found.tier or "disk", is_eager=True))
            return executable
    events.record_lookup(events.Lookup(request.name, key.digest, outcome, reason, is_eager=True))
    executable = compile_now()
    _publish(key, request, executable)
    return executable


def _key(request: compilation.ModuleRequest) -> ComponentKey:
    return ComponentKey(
        identity=(Ingredient("jax_cache_key", request.digest()), Ingredient("kind", "executable")),
        signature=(),
        transforms=(),
        environment=tuple(
            environment_ingredients("executable", platform=request.client.platform, devices=request.devices)
        ),
    )


def _publish(key: ComponentKey, request: compilation.ModuleRequest, executable: Any) -> None:
    try:
        data = compilation.serialize(executable)
    except Exception as error:  # noqa: BLE001  # a backend that can't serialize still computes
        events.logger.debug("eager %s: the backend can't serialize it: %s", request.name, error)
        return
    get_store().put(
        CacheEntry(
            key=key.digest,
            kind="executable",
            name=request.name,
            variant="eager",
            created=time.time(),
            ingredients=ingredients_of(key),
            meta={"in_avals": [], "out_avals": []},
            sections={"executable": data},
        )
    )
