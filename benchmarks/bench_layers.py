"""What `link="outline"` gives: a transformer of many layers, forward and backward, each way in a fresh process.

The layer is a component inside a `jax.jit` program; "inline" is what XLA makes of one module, "outline" keeps the
layer apart for XLA, "auto" decides by the body. "jax.jit" is the same program with an inner `jax.jit` and no prejit.
"""

import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import harness

WAYS = ("jax.jit", "inline", "outline", "auto")
SHAPES = ((4, 64, 32, "rms"), (24, 128, 64, "rms"), (24, 128, 64, "layer"))
"""Layers, width, context, normalization; the first for `--quick`."""
HEADS, BATCH = 4, 8


def measure(way: str, nr_layers: int, width: int, context: int, norm: str, nr_steps: int) -> dict[str, Any]:
    import jax
    import jax.numpy as jnp

    import prejit
    from prejit.cli.demo import model
    from prejit.cli.demo.sizes import Size

    size = Size(nr_layers=nr_layers, width=width, nr_heads=HEADS, context=context, batch=BATCH)
    layer = model.make_layer(HEADS, model.normalize_layer) if norm == "layer" else model.make_layer(HEADS)
    with tempfile.TemporaryDirectory() as folder:
        # Importing prejit backs every jax.jit by its store: here each way is to compile.
        prejit.configure(cache_dir=folder, eager_cache=False)
        layer = jax.jit(layer) if way == "jax.jit" else prejit.component(layer, link=way)
        params = model.init_params(size, jax.random.key(0))
        characters = jnp.zeros((BATCH, context + 1), jnp.int32)
        begin = time.perf_counter()
        lowered = jax.jit(jax.value_and_grad(model.make_loss(layer))).lower(params, characters)
        lowered_at, cpu_at = time.perf_counter(), time.process_time()
        compiled = lowered.compile()
        compiled_at, compile_cpu_s = time.perf_counter(), time.process_time() - cpu_at
        loss = jax.block_until_ready(compiled(params, characters))[0]
        steps: list[float] = []
        for _ in range(nr_steps):
            step_at = time.perf_counter()
            jax.block_until_ready(compiled(params, characters))
            steps.append(time.perf_counter() - step_at)
    return {
        "trace_and_lower_s": lowered_at - begin,
        "compile_s": compiled_at - lowered_at,
        "compile_cpu_s": compile_cpu_s,
        "step_s": statistics.median(steps),
        "loss": float(loss),
    }


def main() -> None:
    options = harness.parse_arguments(__doc__)
    if options.job:
        print(json.dumps(measure(**options.job)))
        return
    nr_steps, repeats = (3, 1) if options.quick else (10, 3)
    rows: list[dict[str, Any]] = []
    raw: dict[str, Any] = {}
    for nr_layers, width, context, norm in SHAPES[:1] if options.quick else SHAPES[1:]:
        seen: dict[str, list[dict[str, Any]]] = {way: [] for way in WAYS}
        shape = {"nr_layers": nr_layers, "width": width, "context": context, "norm": norm}
        for _ in range(repeats):
            for way, runs in seen.items():
                runs.append(harness.run_fresh(Path(__file__), {"way": way, **shape, "nr_steps": nr_steps}))
        name = f"{nr_layers} layers, {norm} norm, width {width}, context {context}"
        rows += [make_row(name, way, runs, seen["jax.jit"]) for way, runs in seen.items()]
        raw[name] = seen
    title = f"value_and_grad over layers (medians of {repeats})"
    harness.write_report(title, rows, list(rows[0]), to=options.json, raw=raw)


def make_row(shape: str, way: str, runs: list[dict[str, Any]], plain: list[dict[str, Any]]) -> dict[str, Any]:
    row: dict[str, Any] = {"program": shape, "way": way}
    for title, name, factor, digits in (
        ("trace + lower, s", "trace_and_lower_s", 1, 2),
        ("compile, s", "compile_s", 1, 2),
        ("compile, CPU s", "compile_cpu_s", 1, 2),
        ("step, ms", "step_s", 1e3, 0),
        ("loss", "loss", 1, 6),
    ):
        row[title] = f"{statistics.median(run[name] for run in runs) * factor:.{digits}f}"
    for title, name in (("compile CPU to jax.jit", "compile_cpu_s"), ("step to jax.jit", "step_s")):
        row[title] = harness.compare([run[name] for run in runs], [run[name] for run in plain])
    return row


if __name__ == "__main__":
    main()
