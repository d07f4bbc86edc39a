"""One training run in a process of its own: `python -m prejit.cli.demo.worker JOB`, the job as JSON.

It prints one line of JSON, the `Run`. Nothing but the standard library is imported before the clock has been read, and
prejit's own code only where the way asks for it, so that the ways of plain JAX pay for plain JAX.
"""

import json
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, cast

Mark = Literal["jax", "prejit"]


@dataclass(frozen=True, slots=True)
class Job:
    """What a worker is asked to do.

    Attributes:
        mark: `jax` for `jax.jit`, `prejit` for `prejit.component`.
        cache_dir: Where the way's cache lies; None for no cache.
        keeps_all: Whether JAX's cache is to keep what is small and quick to compile, too.
        size: Fields of `Size`.
        started_s: When the process was started, on the monotonic clock, which all processes share.
    """

    mark: Mark
    cache_dir: str | None
    keeps_all: bool
    size: dict[str, int]
    started_s: float


@dataclass(frozen=True, slots=True)
class Run:
    """What a worker saw. Seconds are wall time; the parts add up to `time_to_first_step_s`."""

    time_to_first_step_s: float
    import_s: float
    setup_s: float
    trace_s: float
    lower_s: float
    compile_s: float
    load_s: float
    first_run_s: float
    steady_step_s: float
    losses: list[float]
    setup_counts: dict[str, int]
    step_counts: dict[str, int]
    counters: dict[str, Any] = field(default_factory=dict[str, Any])

    @property
    def setup_and_step_counts(self) -> dict[str, int]:
        """How often each stage ran until the first step was done, by JAX's own events."""
        return {stage: self.setup_counts[stage] + count for stage, count in self.step_counts.items()}


def train(job: Job) -> Run:
    """Import, set up, and train; take the times.

    Args:
        job: What to run.

    Returns:
        Times, losses and counts.
    """
    import jax

    from prejit.cli.demo import model, text
    from prejit.cli.demo.clock import StageRecorder, count_stages, split_time
    from prejit.cli.demo.sizes import Size

    size = Size(**job.size)
    layer = model.make_layer(size.nr_heads)
    optimizer = model.make_optimizer()
    step: Callable[..., Any]
    read_counters: Callable[[], Mapping[str, Any]] = dict[str, Any]
    if job.mark == "prejit":
        import prejit

        prejit.configure(cache_dir=job.cache_dir)
        read_counters = prejit.counters
        layer = prejit.component(layer)
        step = prejit.component(model.make_train_step(layer, optimizer), donate_argnums=(0, 1))
    else:
        if job.cache_dir is not None:
            jax.config.update("jax_compilation_cache_dir", job.cache_dir)
        if job.keeps_all:
            jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
            jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)
        jitted = jax.jit(model.make_train_step(layer, optimizer), donate_argnums=(0, 1))
        step = cast("Callable[..., Any]", jitted)
    recorder = StageRecorder()
    recorder.start()
    imported_s = time.monotonic()

    batches = text.draw_batches(text.read_text(size.text_bytes), batch=size.batch, context=size.context)
    params = model.init_params(size, jax.random.key(0))
    state = optimizer.init(params)
    jax.block_until_ready((params, state))
    set_up_s = time.monotonic()

    counters_before = read_counters()
    params, state, loss = step(params, state, next(batches))
    jax.block_until_ready((params, state, loss))
    stepped_s = time.monotonic()
    counters_after = read_counters()

    losses, step_times_s = [float(loss)], [0.0]
    for _ in range(size.nr_steps - 1):
        begin_s = time.monotonic()
        params, state, loss = step(params, state, next(batches))
        losses.append(float(loss))
        step_times_s.append(time.monotonic() - begin_s)

    spans = recorder.spans
    parts = split_time(spans, set_up_s, stepped_s)
    step_counts = count_stages(spans, set_up_s, stepped_s)
    # A component's executable is loaded without an event of JAX's; what eager operations load has one.
    own_load_s = counters_after.get("load_seconds", 0.0) - counters_before.get("load_seconds", 0.0)
    step_counts["load"] += _own_loads(counters_after) - _own_loads(counters_before)
    return Run(
        time_to_first_step_s=stepped_s - job.started_s,
        import_s=imported_s - job.started_s,
        setup_s=set_up_s - imported_s,
        trace_s=parts["trace"],
        lower_s=parts["lower"],
        compile_s=parts["compile"],
        load_s=parts["load"] + own_load_s,
        first_run_s=parts["rest"] - own_load_s,
        steady_step_s=statistics.median(step_times_s[1:] or step_times_s),
        losses=losses,
        setup_counts=count_stages(spans, imported_s, set_up_s),
        step_counts=step_counts,
        counters=dict(read_counters()),
    )


def _own_loads(counters: Mapping[str, Any]) -> int:
    return counters.get("loads", 0) - counters.get("eager_loads", 0)


if __name__ == "__main__":
    json.dump(asdict(train(Job(**json.loads(sys.argv[1])))), sys.stdout)
