"""What `import prejit` adds to `import jax`, in fresh processes taken in turn."""

import json
import statistics
import sys
import time
from pathlib import Path

import harness

WAYS = {
    "jax": "import jax",
    "jax, then prejit.component": "import jax, prejit; prejit.component",
    "prejit alone": "import prejit",
}


def measure(statement: str) -> dict[str, object]:
    begin = time.perf_counter()
    exec(statement, {})
    return {"seconds": time.perf_counter() - begin, "has_jax": "jax" in sys.modules}


def main() -> None:
    options = harness.parse_arguments(__doc__)
    if options.job:
        print(json.dumps(measure(WAYS[options.job["way"]])))
        return
    times: dict[str, list[float]] = {way: [] for way in WAYS}
    for _ in range(3 if options.quick else 15):
        for way, seen in times.items():
            seen.append(harness.run_fresh(Path(__file__), {"way": way})["seconds"])
    rows: list[dict[str, str]] = []
    for way, seen in times.items():
        more_s = statistics.median(a - b for a, b in zip(seen, times["jax"], strict=True))
        rows.append(
            {
                "imported": way,
                "ms": harness.milliseconds(seen),
                "more than jax, ms": f"{more_s * 1e3:.1f}",
            }
        )
    harness.write_report("import", rows, ["imported", "ms", "more than jax, ms"], to=options.json, raw=times)


if __name__ == "__main__":
    main()
