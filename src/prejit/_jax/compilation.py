"""The point at which JAX turns a lowered module into an executable, for everything that does not pass through prejit.

`jax._src.compiler.compile_or_get_cached` is what eager operations and every `jax.jit` call with a module in hand. It is
where JAX's own persistent cache sits. `install` puts a function of ours around it.
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax import monitoring
from jax._src import cache_key, compilation_cache, compiler
from jax._src.lib.mlir import ir

Compile = Callable[[], Any]


@dataclass(frozen=True, slots=True)
class ModuleRequest:
    """A module that JAX wants compiled.

    Attributes:
        name: The module's name, such as `jit_add`.
        client: The PJRT client.
        devices: The devices of the assignment, in order.
        load: Load serialized bytes for this request.
    """

    name: str
    client: Any
    devices: tuple[Any, ...]
    module: Any
    options: Any
    load: Callable[[bytes], Any]

    def digest(self) -> str:
        """Return JAX's own cache key of the module: its text without locations, versions, flags and options."""
        return cache_key.get(self.module, _array(self.devices), self.options, self.client)


def _array(devices: Sequence[Any]) -> Any:
    return np.array(list(devices), dtype=object)


# What was made from bytes must not be made into bytes again: XLA on CPU then leaves functions out, and the result
# fails when it runs (0.10.2 and 0.12.0). By identity, for these objects take no weak reference; what XLA
# compiles at the place of one that is gone is taken off.
_deserialized: set[int] = set()


def was_deserialized(executable: Any) -> bool:
    """Say whether a bare executable may have been made from bytes, by us or by JAX's own persistent cache."""
    return id(executable) in _deserialized


def _note(executable: Any) -> Any:
    _thread.is_loaded = True
    _deserialized.add(id(executable))
    return executable


class _Thread(threading.local):
    """Whether what this thread compiled last came from JAX's own cache."""

    is_loaded = False


_thread = _Thread()


def _watch_jax_cache() -> None:
    current = compilation_cache.get_executable_and_time
    original: Any = getattr(current, "prejit_original", current)

    def get_executable_and_time(*args: Any, **kwargs: Any) -> Any:
        found = original(*args, **kwargs)
        if found[0] is not None:
            _note(found[0])
        return found

    get_executable_and_time.prejit_original = original  # pyright: ignore[reportFunctionMemberAccess]
    compilation_cache.get_executable_and_time = get_executable_and_time


def install(handle: Callable[[ModuleRequest, Compile], Any]) -> None:
    """Route compile requests of the whole process through `handle(request, compile)`; a second call replaces the first.

    Requests that can't be served from a store go straight to JAX: those with host callbacks, of several processes, or
    with custom calls of other native code; and all of them when the user has set up JAX's own persistent cache.
    """
    current = compiler.compile_or_get_cached
    original: Any = getattr(current, "prejit_original", current)

    def compile_or_get_cached(
        backend: Any, computation: Any, devices: Any, compile_options: Any, host_callbacks: Any,
        executable_devices: Any, pgle_profiler: Any = None, *rest: Any, **named: Any,
    ) -> Any:  # fmt: skip
        def compile_now() -> Any:
            _thread.is_loaded = False
            executable = original(
                backend, computation, devices, compile_options, host_callbacks, executable_devices, pgle_profiler,
                *rest, **named,
            )  # fmt: skip
            if not _thread.is_loaded:
                _deserialized.discard(id(executable))
            return executable

        from prejit._jax.executables import custom_call_targets, foreign_targets  # 6 ms, when needed

        if (
            host_callbacks
            or pgle_profiler is not None
            or rest
            or named
            or jax.config.jax_compilation_cache_dir
            or len({d.process_index for d in devices.flat}) > 1
            or foreign_targets(custom_call_targets(computation))
        ):
            return compile_now()
        request = ModuleRequest(
            name=ir.StringAttr(computation.operation.attributes["sym_name"]).value,
            client=backend,
            devices=tuple(devices.flat),
            module=computation,
            options=compile_options,
            load=lambda data: _note(backend.deserialize_executable(data, executable_devices, compile_options)),
        )
        return handle(request, compile_now)

    compile_or_get_cached.prejit_original = original  # pyright: ignore[reportFunctionMemberAccess]
    compiler.compile_or_get_cached = compile_or_get_cached
    _watch_jax_cache()


def serialize(executable: Any) -> bytes:
    """Serialize a bare executable, as JAX's own cache does."""
    if hasattr(executable, "serialize"):
        return executable.serialize()
    return executable.client.serialize_executable(executable)


def announce_hit() -> None:
    """Tell `jax.monitoring` of a hit, under the name that JAX's own cache uses."""
    monitoring.record_event("/jax/compilation_cache/cache_hits")


__all__ = ["ModuleRequest", "announce_hit", "install", "serialize", "was_deserialized"]
