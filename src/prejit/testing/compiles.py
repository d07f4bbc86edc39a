"""Count what JAX does in a block, without asking prejit's own counters."""

import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field

__all__ = ["CompileCounts", "count_compiles"]

_TRACE = "/jax/core/compile/jaxpr_trace_duration"
_LOWER = "/jax/core/compile/jaxpr_to_mlir_module_duration"
_COMPILE = "/jax/core/compile/backend_compile_duration"
_CACHE_HIT = "/jax/compilation_cache/cache_hits"


@dataclass(slots=True)
class CompileCounts:
    """Hold what JAX reported since a block was entered; grows while the block runs.

    Attributes:
        traced: Names of what was traced, nested jitted functions included, in order.
        lowered: Names of what was lowered to StableHLO.
        compiled: Names of what XLA compiled.
        cached: Names of what JAX took from a compilation cache instead of compiling it; eager operations that prejit
            answers from its store are among them, executables that a component loads are not.

    Example:
        >>> CompileCounts(compiled=["f"]).compiles
        1
    """

    traced: list[str] = field(default_factory=list[str])
    lowered: list[str] = field(default_factory=list[str])
    compiled: list[str] = field(default_factory=list[str])
    cached: list[str] = field(default_factory=list[str])

    @property
    def traces(self) -> int:
        """How often JAX traced."""
        return len(self.traced)

    @property
    def lowerings(self) -> int:
        """How often JAX lowered."""
        return len(self.lowered)

    @property
    def compiles(self) -> int:
        """How often XLA compiled."""
        return len(self.compiled)


@contextmanager
def count_compiles() -> Generator[CompileCounts]:
    """Count what JAX traces, lowers and compiles in a block, in all threads of the process.

    The numbers come from listeners of `jax.monitoring` that know nothing of prejit, so they check `prejit.counters()`
    and work in a test of any JAX program.

    Returns:
        A context manager that gives the counts; they stay readable after the block.

    **Threads**: any; work of other threads is counted too. Blocks may be nested.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> with count_compiles() as counts:
        ...     doubled = jax.jit(lambda x: x * 2)(3.0)
        >>> counts.lowerings
        1
    """
    from jax import monitoring

    counts = CompileCounts()
    lists = {_TRACE: counts.traced, _LOWER: counts.lowered, _COMPILE: counts.compiled}
    thread = threading.local()

    def on_event(event: str, **_: str | int) -> None:
        if event == _CACHE_HIT:
            thread.is_cached = True

    def on_duration(event: str, duration_secs: float, **kwargs: str | int) -> None:
        names = lists.get(event)
        if names is None:
            return
        if event == _COMPILE and getattr(thread, "is_cached", False):
            # JAX times a compile and a load from a cache under one event; the hit was announced just before.
            thread.is_cached = False
            names = counts.cached
        names.append(str(kwargs.get("fun_name", "")))

    monitoring.register_event_listener(on_event)
    monitoring.register_event_duration_secs_listener(on_duration)
    try:
        yield counts
    finally:
        monitoring.unregister_event_listener(on_event)
        monitoring.unregister_event_duration_listener(on_duration)
