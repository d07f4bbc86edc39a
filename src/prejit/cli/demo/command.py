"""`prejit demo`: run the ways, compare, print."""

import tempfile
import time
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from prejit.cli.demo.sizes import FULL, QUICK
from prejit.cli.output import print_error, print_json


def demo(
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything measured as JSON.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="A tiny model and few steps: does it work?")] = False,
    layers: Annotated[int | None, typer.Option("--layers", min=1, help="Transformer layers; 12 if not given.")] = None,
) -> None:
    """Train a small transformer in fresh processes, with and without prejit, and show where each start goes.

    Needs optax (`pip install optax`). Caches and stores are made in a temporary directory and removed.
    """
    if find_spec("optax") is None:
        print_error("running the demo: expected optax, got no such module\nhint: pip install optax")
        raise typer.Exit(2)
    from prejit.cli.demo import report, ways

    size = QUICK if quick else FULL
    if layers is not None:
        size = replace(size, nr_layers=layers)
    begin_s = time.monotonic()
    try:
        with tempfile.TemporaryDirectory(prefix="prejit-demo-") as folder:
            runs = ways.run_ways(size, Path(folder), lambda way: print_error(f"running: {way.name}"))
        ways.check_losses(runs)
    except ways.DemoFailed as failure:
        print_error(str(failure))
        raise typer.Exit(1) from None
    wall_s = time.monotonic() - begin_s
    if as_json:
        print_json(report.to_plain(size, runs, wall_s))
    else:
        report.print_report(size, runs, wall_s)
