"""What `link="outline"` gives: a transformer of many layers, forward and backward, each way in a fresh process.

The layer is a component inside a `jax.jit` program; "inline" is what XLA makes of one module, "outline" keeps the
layer apart for XLA. "jax.jit" is the same program with an inner `jax.jit` and no prejit.
"""

import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import harness

WAYS = ("jax.jit", "inline", "outline", "auto")
WIDTH, CONTEXT, BATCH, HEADS = 128, 64, 8, 4


def measure(way: str, nr_layers: int, nr_steps: int) -> dict[str, Any]:
    import jax
    import jax.numpy as jnp

    from prejit.cli.demo import model
    from prejit.cli.demo.sizes import Size

    size = Size(nr_layers=nr_layers, width=WIDTH, nr_heads=HEADS, context=CONTEXT, batch=BATCH)
    layer = model.make_layer(HEADS)
    with tempfile.TemporaryDirectory() as folder:
        if way == "jax.jit":
            layer = jax.jit(layer)
        else:
            import prejit

            prejit.configure(cache_dir=folder)
            layer = prejit.component(layer, link=way)
        params = model.init_params(size, jax.random.key(0))
        characters = jnp.zeros((BATCH, CONTEXT + 1), jnp.int32)
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
    nr_layers, nr_steps, repeats = (4, 3, 1) if options.quick else (24, 10, 3)
    seen: dict[str, list[dict[str, Any]]] = {way: [] for way in WAYS}
    for _ in range(repeats):
        for way in WAYS:
            job = {"way": way, "nr_layers": nr_layers, "nr_steps": nr_steps}
            seen[way].append(harness.run_fresh(Path(__file__), job))
    rows = [
        {"way": way}
        | {
            title: f"{statistics.median(run[name] for run in runs) * factor:.{digits}f}"
            for title, name, factor, digits in (
                ("trace + lower, s", "trace_and_lower_s", 1, 2),
                ("compile, s", "compile_s", 1, 2),
                ("compile, CPU s", "compile_cpu_s", 1, 2),
                ("step, ms", "step_s", 1e3, 0),
                ("loss", "loss", 1, 6),
            )
        }
        | {
            "compile to jax.jit": str(
                harness.compare([r["compile_s"] for r in runs], [r["compile_s"] for r in seen["jax.jit"]])
            ),
            "step to jax.jit": str(
                harness.compare([r["step_s"] for r in runs], [r["step_s"] for r in seen["jax.jit"]])
            ),
        }
        for way, runs in seen.items()
    ]
    title = f"{nr_layers} layers, value_and_grad (medians of {repeats})"
    harness.write_report(title, rows, list(rows[0]), to=options.json, raw=seen)


if __name__ == "__main__":
    main()
