"""What the demo prints: the loss going down, where each start went, and the counts that prove it."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from prejit.cli.demo.sizes import Size
from prejit.cli.demo.ways import LOSS_TOLERANCE, Way, largest_loss_difference
from prejit.cli.demo.worker import Run
from prejit.cli.output import Column, print_table

_BARS = "▁▂▃▄▅▆▇█"
_STAGES = ("trace", "lower", "compile", "load")
_SHOWN_COUNTERS = ("traces", "lowerings", "compiles", "loads", "hits", "misses", "eager_hits", "eager_misses")
_NOTES = """\
prejit: the layer and the step are a `prejit.component` each; in the other ways the step is one `jax.jit`.
trace, lower, compile, load, first run: of the first step alone; what the eager set-up lowers, compiles and loads takes
its time under "eager set-up", and is counted among the events.
a step: median of the later ones, each until its loss is read.
no threshold: JAX's cache, filled, has kept what compiles in less than a second too, as eager operations do.
Each way ran once, so what else the machine did meanwhile shows; run it again before you compare small differences."""
_PARTS = (
    ("import", "import_s"),
    ("eager set-up", "setup_s"),
    ("trace", "trace_s"),
    ("lower", "lower_s"),
    ("compile", "compile_s"),
    ("load", "load_s"),
    ("first run", "first_run_s"),
)


def draw_sparkline(values: Sequence[float]) -> str:
    """Draw values as one line of bars, the largest one full.

    Example:
        >>> draw_sparkline([4.0, 2.0, 1.0, 0.0])
        '█▄▂▁'
    """
    low, high = min(values), max(values)
    scale = (len(_BARS) - 1) / (high - low) if high > low else 0.0
    return "".join(_BARS[int((value - low) * scale)] for value in values)


def to_plain(size: Size, runs: Mapping[Way, Run], wall_s: float) -> dict[str, Any]:
    """Return everything that the demo found, for `--json`."""
    return {
        "size": size.to_dict(),
        "wall_s": wall_s,
        "largest_relative_loss_difference": largest_loss_difference(runs),
        "runs": [{"way": way.name, "is_shown": way.is_shown, **asdict(run)} for way, run in runs.items()],
    }


def print_report(size: Size, runs: Mapping[Way, Run], wall_s: float) -> None:
    """Print the demo's result for people."""
    shown = {way: run for way, run in runs.items() if way.is_shown}
    _print_losses(runs)
    print()
    print_table(
        [
            Column("way"),
            *(Column(title, is_number=True) for title in ("first step", *(p[0] for p in _PARTS), "a step")),
        ],
        [_times_row(way, run) for way, run in shown.items()],
        title="seconds from process start to the end of the first training step, and where they went",
    )
    print()
    print_table(
        [Column("way"), *(Column(title, is_number=True) for title in ("traces", "lowerings", "compiles", "loads"))],
        [_events_row(way, run) for way, run in shown.items()],
        title="until then, by JAX's own events (the eager set-up included)",
    )
    print()
    print_table(
        [Column("way"), *(Column(name.replace("_", " "), is_number=True) for name in _SHOWN_COUNTERS)],
        [
            (way.name, *(str(run.counters.get(name, 0)) for name in _SHOWN_COUNTERS))
            for way, run in shown.items()
            if run.counters
        ],
        title="at the end of the run, by prejit.counters()",
    )
    print(f"\n{_NOTES}")
    print(f"\n{size.nr_layers} layers of width {size.width}, {size.nr_steps} steps; {wall_s:.0f} s in all")


def _print_losses(runs: Mapping[Way, Run]) -> None:
    losses = next(iter(runs.values())).losses
    per_bar = max(len(losses) // 20, 1)
    means = [statistics.fmean(losses[at : at + per_bar]) for at in range(0, len(losses), per_bar)]
    print(f"loss {losses[0]:.2f} {draw_sparkline(means)} {means[-1]:.2f} nats per character")
    print(
        f"the same in all {len(runs)} runs: largest relative difference of a step's loss "
        f"{largest_loss_difference(runs):.1e}, tolerance {LOSS_TOLERANCE:.0e}"
    )


def _times_row(way: Way, run: Run) -> tuple[str, ...]:
    parts = [getattr(run, name) for _, name in _PARTS]
    return (
        way.name,
        f"{run.time_to_first_step_s:.2f}",
        *(f"{seconds:.2f}" for seconds in parts),
        f"{run.steady_step_s * 1e3:.0f} ms",
    )


def _events_row(way: Way, run: Run) -> tuple[str, ...]:
    counts = run.setup_and_step_counts
    return (way.name, *(str(counts[stage]) for stage in _STAGES))
