"""What a border between two executables costs while they run, whoever calls them.

A forward pass of twelve transformer layers, cut into executables of one layer up to all twelve, all of them by plain
`jax.jit` and without prejit: what XLA and the machine lose where one executable ends and the next begins. Run it under
`taskset -c 0` too: on one core nothing is lost, on several the threads that share an operation fall asleep in between.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

import harness
import transformer

NR_LAYERS = 12


def make_ways(norm: str) -> dict[str, Callable[[], Any]]:
    """Return the pass in executables of so many layers each."""
    layers = transformer.init_params(NR_LAYERS, norm)["layers"]
    x = jnp.ones((transformer.BATCH, transformer.CONTEXT, transformer.WIDTH))

    def several(params: list[Any], y: jax.Array) -> jax.Array:
        return functools.reduce(lambda y, layer: transformer.layer(layer, y), params, y)

    def way(size: int) -> Callable[[], Any]:
        step = jax.jit(several)

        def run() -> Any:
            y = x
            for first in range(0, NR_LAYERS, size):
                y = step(layers[first : first + size], y)
            return jax.block_until_ready(y)

        return run

    return {str(size): way(size) for size in (1, 2, 3, 4, 6, NR_LAYERS)}


def main() -> None:
    options = harness.parse_arguments(__doc__)
    rows: list[dict[str, Any]] = []
    raw: dict[str, Any] = {}
    for norm in ("layer", "rms"):
        times = raw[norm] = harness.time_interleaved(make_ways(norm), rounds=10 if options.quick else 100, calls=1)
        whole = times[str(NR_LAYERS)]
        for size, seen in times.items():
            nr_borders = NR_LAYERS // int(size) - 1
            lost = [(one - other) / max(nr_borders, 1) for one, other in zip(seen, whole, strict=True)]
            rows.append(
                {"norm": norm, "layers in one": size, "pass, ms": harness.milliseconds(seen)}
                | {"to all in one": harness.compare(seen, whole)}
                | ({"a border, us": harness.microseconds(lost)} if nr_borders else {})
            )
    columns = ["norm", "layers in one", "pass, ms", "to all in one", "a border, us"]
    harness.write_report("borders (ratios: median [95 % bounds])", rows, columns, to=options.json, raw=raw)


if __name__ == "__main__":
    main()
