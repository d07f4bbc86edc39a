"""Where a process's start goes: JAX's own duration events, turned into a split of wall time.

Every way is measured by the same events. They nest (a trace traces inner functions, a lowering traces too) and can
overlap in threads, so sums of durations would count time twice; a sweep gives each instant to the innermost stage.
"""

import itertools
import threading
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

STAGES: tuple[str, ...] = ("trace", "lower", "compile", "load")

_STAGE_OF_EVENT = {
    "/jax/core/compile/jaxpr_trace_duration": "trace",
    "/jax/core/compile/jaxpr_to_mlir_module_duration": "lower",
    "/jax/core/compile/backend_compile_duration": "compile",
}
# Comes inside a backend compile that a cache answered, JAX's own or prejit in its place: then that compile was a load.
_HIT_EVENT = "/jax/compilation_cache/cache_hits"


@dataclass(frozen=True, slots=True)
class Span:
    """One stage that ran from `begin_s` to `end_s`, on the monotonic clock."""

    stage: str
    begin_s: float
    end_s: float


def split_time(spans: Iterable[Span], begin_s: float, end_s: float) -> dict[str, float]:
    """Divide an interval among the stages that ran in it.

    Args:
        spans: Stages in any order; they may nest and overlap, and reach out of the interval.
        begin_s: Where the interval begins.
        end_s: Where it ends.

    Returns:
        Seconds by stage, and under "rest" what no stage covers; they add up to the interval.
    """
    inside = [span for span in spans if span.end_s > begin_s and span.begin_s < end_s]
    cuts = sorted(
        {begin_s, end_s} | {min(max(edge, begin_s), end_s) for span in inside for edge in (span.begin_s, span.end_s)}
    )
    seconds: dict[str, float] = dict.fromkeys((*STAGES, "rest"), 0.0)
    for left, right in itertools.pairwise(cuts):
        covering = [span for span in inside if span.begin_s <= left and span.end_s >= right]
        innermost = max(covering, key=lambda span: (span.begin_s, -span.end_s), default=None)
        seconds[innermost.stage if innermost else "rest"] += right - left
    return seconds


def count_stages(spans: Iterable[Span], begin_s: float, end_s: float) -> dict[str, int]:
    """Count the stages that ended within an interval."""
    counts = Counter(span.stage for span in spans if begin_s < span.end_s <= end_s)
    return {stage: counts[stage] for stage in STAGES}


class StageRecorder:
    """Listens to JAX's duration events from `start()` on.

    **Threads**: events may come from any thread; `spans` is a copy.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._spans: list[Span] = []
        self._answered_in: set[int] = set()

    def start(self) -> None:
        """Register with JAX; there is no way back, so a process starts one recorder."""
        import jax.monitoring

        jax.monitoring.register_event_listener(self._note_hit)
        jax.monitoring.register_event_duration_secs_listener(self._record)

    @property
    def spans(self) -> Sequence[Span]:
        """What has been seen so far, in order of end."""
        with self._lock:
            return tuple(self._spans)

    def _note_hit(self, event: str, **_: str | int) -> None:
        if event == _HIT_EVENT:
            self._answered_in.add(threading.get_ident())

    def _record(self, event: str, duration_secs: float, **_: str | int) -> None:
        end_s = time.monotonic()
        stage = _STAGE_OF_EVENT.get(event)
        if stage is None:
            return
        if stage == "compile" and threading.get_ident() in self._answered_in:
            self._answered_in.discard(threading.get_ident())
            stage = "load"
        with self._lock:
            self._spans.append(Span(stage, end_s - duration_secs, end_s))
