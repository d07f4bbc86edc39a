"""How long JAX traces, lowers and compiles, as wall time that nothing else is counted in twice.

JAX reports each piece of work when it ends. Traces nest, and lowering traces too, so sums count some time twice; here
the intervals are united: of a moment in which JAX lowers and traces, lowering has it.
"""

import threading
import time
from collections.abc import Sequence
from typing import Any

from jax import monitoring

_KINDS = {
    "/jax/core/compile/jaxpr_trace_duration": "trace",
    "/jax/core/compile/jaxpr_to_mlir_module_duration": "lower",
    "/jax/core/compile/backend_compile_duration": "compile",
}
_CACHE_HIT = "/jax/compilation_cache/cache_hits"

Interval = tuple[float, float]


class CompileEvents:
    """Collect what JAX reports, from when it is made."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._intervals: dict[str, list[Interval]] = {"trace": [], "lower": [], "compile": [], "load": []}
        self._thread = threading.local()
        monitoring.register_event_listener(self._on_event)
        monitoring.register_event_duration_secs_listener(self._on_duration)

    def clear(self) -> None:
        """Forget what was collected."""
        with self._lock:
            for intervals in self._intervals.values():
                intervals.clear()

    def summary(self) -> dict[str, Any]:
        """Return wall seconds and counts; a compile that JAX's cache answered is a load."""
        with self._lock:
            found = {kind: list(intervals) for kind, intervals in self._intervals.items()}
        return {
            "trace_s": outside(found["trace"], found["lower"]),
            "lower_s": outside(found["lower"], [*found["compile"], *found["load"]]),
            "compile_s": length(found["compile"]),
            "load_s": length(found["load"]),
            "compile_sum_s": sum(end - begin for begin, end in found["compile"]),
            "nr_compiles": len(found["compile"]),
            "nr_loads": len(found["load"]),
        }

    def _on_event(self, event: str, **kwargs: Any) -> None:
        # JAX announces a hit in the thread that then reports the compile.
        if event == _CACHE_HIT:
            self._thread.is_load = True

    def _on_duration(self, event: str, duration_s: float, **kwargs: Any) -> None:
        kind = _KINDS.get(event)
        if kind is None:
            return
        end = time.perf_counter()
        if kind == "compile" and getattr(self._thread, "is_load", False):
            self._thread.is_load = False
            kind = "load"
        with self._lock:
            self._intervals[kind].append((end - duration_s, end))


def length(intervals: Sequence[Interval]) -> float:
    """Return how much time intervals cover together.

    >>> length([(0, 2), (1, 3), (5, 6)])
    4.0
    """
    total, until = 0.0, float("-inf")
    for begin, end in sorted(intervals):
        total += max(0.0, end - max(begin, until))
        until = max(until, end)
    return total


def outside(intervals: Sequence[Interval], others: Sequence[Interval]) -> float:
    """Return how much time intervals cover that others don't.

    >>> outside([(0, 4)], [(1, 2), (3, 9)])
    2.0
    """
    return length([*intervals, *others]) - length(others)
