"""One fresh process of `bench_programs`: start one way, or run several ways side by side.

prejit is imported only where a way uses it: importing it backs every `jax.jit` of the process by its store.
"""

import importlib.util
import json
import math
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

import harness
import memory
from compile_events import CompileEvents

MODEL = Path(__file__).with_name("transformer.py")
VALUE_STEPS = 10
LEARNING_RATE = 0.1  # of the gradient descent that stands in for an optimizer where the program has none
STEADY_S, MIN_STEPS, MAX_STEPS = 5.0, 5, 50
BLOCK = 2  # steps of one way before it is another's turn


class Program:
    """A program marked in one way, with arguments of its own.

    Args:
        model: The module of the model.
        name: `forward`, `value_and_grad` or `adamw`, with `-rms` or `-centred` for another normalization.
        way: How layer and step are marked.
        nr_layers: How many layers.
        link: For `prejit.jit`.
    """

    def __init__(self, model: Any, name: str, way: str, nr_layers: int, link: str) -> None:
        self.kind, _, norm = name.partition("-")
        params = model.init_params(nr_layers, norm or "layer")
        if way == "lax.scan":
            params = model.stack_layers(params)
            layers = model.scan(model.layer)
        else:
            layers = model.loop(_mark(way, model.layer))
        self.tokens = model.make_tokens()
        if self.kind == "adamw":
            step, donated = model.make_train_step(layers), (0, 1)
            self.args = (params, model.make_optimizer().init(params), self.tokens)
        else:
            step = model.make_forward(layers)
            if self.kind == "value_and_grad":
                step = jax.value_and_grad(model.make_loss(layers))
            donated, self.args = (), (params, self.tokens)
        if way.startswith("prejit"):
            import prejit

            self.step: Any = prejit.jit(step, donate_argnums=donated, link=link)
        else:
            self.step = jax.jit(step, donate_argnums=donated)
        jax.block_until_ready(self.args)

    def run(self) -> Any:
        """Take one step and wait for it."""
        out = jax.block_until_ready(self.step(*self.args))
        if self.kind == "adamw":
            self.args = (out[0], out[1], self.tokens)
        return out

    def values(self) -> dict[str, Any]:
        """Return what the program computes: the first results and what ten steps make of the parameters.

        Vectors of float64; without an optimizer in the program, the ten steps are plain gradient descent.
        """
        before = _vector(self.args[0])
        if self.kind == "forward":
            return {"first": _vector(self.run())}
        if self.kind == "adamw":
            losses = [float(self.run()[2]) for _ in range(VALUE_STEPS)]
            return {"losses": np.asarray(losses), "params": _vector(self.args[0])} | _change(before, self.args[0])
        losses, first, kept = [], None, self.args
        for _ in range(VALUE_STEPS):
            loss, gradient = self.run()
            losses.append(float(loss))
            first = _vector(gradient) if first is None else first
            params = jax.tree.map(lambda p, g: p - LEARNING_RATE * g, self.args[0], gradient)
            self.args = (params, self.tokens)
        values = {"first": first, "losses": np.asarray(losses), "params": _vector(self.args[0])}
        values |= _change(before, self.args[0])
        self.args = kept
        return values


def _mark(way: str, layer: Any) -> Any:
    if way == "prejit+component":
        import prejit

        return prejit.component(layer)
    return jax.jit(layer) if way in ("prejit+inner", "jax.jit+marked") else layer


def _vector(tree: Any) -> np.ndarray:
    return np.concatenate([np.ravel(np.asarray(leaf, np.float64)) for leaf in jax.tree.leaves(tree)])


def _change(before: np.ndarray, params: Any) -> dict[str, Any]:
    return {"change": _vector(params) - before}


def start(
    *, way: str, program: str, nr_layers: int, cache_dir: str, link: str = "auto", nr_steps: int | None = None,
    model_file: str = str(MODEL), only_start: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """Start a program: seconds to the first result and where they went, then steady steps and memory.

    Args:
        way: How layer and step are marked.
        program: Which program.
        nr_layers: How many layers.
        cache_dir: Where the caches of this way are; empty for a cold start.
        link: For `prejit.jit`.
        nr_steps: How many steady steps; by time if None.
        model_file: The model's source.
        only_start: No steady steps.
    """
    if way.startswith("prejit"):
        import prejit

        prejit.configure(cache_dir=cache_dir, progress="off")
    elif way == "jax.jit+cache":
        jax.config.update("jax_compilation_cache_dir", cache_dir)
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)
    model = _load(model_file)
    run = Program(model, program, way, nr_layers, link)
    events = CompileEvents()
    counted = _counters(way)
    begin, cpu = time.perf_counter(), time.process_time()
    run.run()
    first_s, first_cpu_s = time.perf_counter() - begin, time.process_time() - cpu
    result: dict[str, Any] = {"first_s": first_s, "first_cpu_s": first_cpu_s, **events.summary()}
    result["without_tracing_s"] = first_s - result["trace_s"]
    result["counters"] = {name: value - counted[name] for name, value in _counters(way).items()}
    result["start_peak_mib"] = memory.peak_mib()
    if not only_start:
        result |= _steady(run, nr_steps)
    if way.startswith("prejit"):
        result["plan"] = _plan(run)
    return result


def _steady(run: Program, nr_steps: int | None) -> dict[str, Any]:
    run.run()
    is_reset = memory.reset_peak()
    rest_mib = memory.resident_mib()
    steps: list[float] = []
    while len(steps) < (nr_steps or MIN_STEPS) or (
        nr_steps is None and len(steps) < MAX_STEPS and math.fsum(steps) < STEADY_S
    ):
        begin = time.perf_counter()
        run.run()
        steps.append(time.perf_counter() - begin)
    return {
        "step_s": statistics.median(steps),
        "rest_mib": rest_mib,
        "steps_peak_mib": memory.peak_mib() if is_reset else None,
    }


def _counters(way: str) -> dict[str, float]:
    if not way.startswith("prejit"):
        return {}
    import prejit

    return prejit.counters()


def _plan(run: Program) -> Any:
    specs = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), run.args)
    return run.step.plan(*specs).to_dict()


def side_by_side(
    *, ways: list[str], program: str, nr_layers: int, cache_dir: str, link: str, rounds: int
) -> dict[str, Any]:
    """Compile several ways in one process and compare their values and their steps, taken in turns."""
    if any(way.startswith("prejit") for way in ways):
        import prejit

        # Plain jax.jit is to compile by itself here.
        prejit.configure(cache_dir=cache_dir, eager_cache=False, progress="off")
    model = _load(str(MODEL))
    programs = {way: Program(model, program, way, nr_layers, link) for way in ways}
    values = {way: run.values() for way, run in programs.items()}
    reference = values[ways[0]]
    cpu_s: dict[str, list[float]] = {way: [] for way in ways}
    steps = harness.time_interleaved(
        {way: _metered(run, cpu_s[way]) for way, run in programs.items()}, rounds=rounds, calls=BLOCK
    )
    differences = {
        way: {name: _relative(found[name], reference[name]) for name in reference} for way, found in values.items()
    }
    return {"steps_s": steps, "steps_cpu_s": cpu_s, "differences": differences}


def _metered(program: Program, cpu_s: list[float]) -> Callable[[], None]:
    """Return one step that notes the time of all cores; unlike wall time, it does not depend on what else runs."""

    def run() -> None:
        begin = time.process_time()
        program.run()
        cpu_s.append(time.process_time() - begin)

    return run


def _relative(found: np.ndarray, expected: np.ndarray) -> float:
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))


def _load(file: str) -> Any:
    spec = importlib.util.spec_from_file_location("transformer", file)
    assert spec is not None
    assert spec.loader is not None
    model = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(model)
    return model


JOBS: dict[str, Callable[..., dict[str, Any]]] = {"start": start, "side_by_side": side_by_side}


def main() -> None:
    job = harness.parse_arguments(__doc__).job
    print(json.dumps(JOBS[job.pop("do")](**job)))


if __name__ == "__main__":
    main()
