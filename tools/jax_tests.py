"""Run JAX's own tests with `jax.jit` replaced by `prejit.jit`, and print what changes.

    python tools/jax_tests.py PATH_TO_JAX_CHECKOUT [test files ...]

The checkout has to be at the tag of the installed JAX; its tests run against the installed one. Each file runs in
processes of its own, once as it is and once with the replacement and an empty store. Exit code 0: all that passes
without the replacement passes with it, or is listed in `jax_tests_known.toml`; 1: something does not; 2: nothing could
be compared.
"""

import argparse
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from jax_tests_outcomes import Comparison, Known, Side, compare, group, read_events, read_known

HERE = Path(__file__).parent
DEFAULT_FILES = ("tests/api_test.py", "tests/jax_jit_test.py")
# What a user's shell may hold and would change what the tests do. Where to run them (JAX_PLATFORMS) stays.
FOREIGN = ("PREJIT_", "JAX_", "XLA_", "PYTEST_")
KEPT = ("JAX_PLATFORMS",)


class NotComparableError(Exception):
    """Something is missing or wrong before any test could be compared."""


def checkout_version(checkout: Path) -> str:
    """Read the version of a JAX checkout."""
    path = checkout / "jax" / "version.py"
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as e:
        raise NotComparableError(f"{checkout} is no JAX checkout: {path} can't be read ({e.strerror})") from e
    if not (found := re.search(r'^_version = "([^"]+)"', text, re.MULTILINE)):
        raise NotComparableError(f"{path} has no line `_version = ...`")
    return found.group(1)


def check_versions(checkout: Path) -> str:
    """Return the version that the checkout and the installed JAX share."""
    installed, found = metadata.version("jax"), checkout_version(checkout)
    if installed != found:
        raise NotComparableError(
            f"the checkout is JAX {found}, installed is JAX {installed}: the tests of one don't fit the other\n"
            f"hint: git -C {checkout} checkout jax-v{installed}"
        )
    return installed


def child_environment(replacement: str, store: Path, log: Path, args: argparse.Namespace) -> dict[str, str]:
    """Return the environment of a pytest process."""
    inherited = {name: value for name, value in os.environ.items() if name in KEPT or not name.startswith(FOREIGN)}
    ours = {
        "JAX_TESTS_LOG": str(log),
        "JAX_TESTS_REPLACEMENT": replacement,
        "JAX_TESTS_EVERYWHERE": "1" if args.everywhere else "",
        "JAX_TESTS_TIMEOUT_S": str(args.timeout_s),
        "PREJIT_CACHE_DIR": str(store),
        # Tests start Python in the checkout, where `import jax` would find its sources, not the installed JAX.
        "PYTHONSAFEPATH": "1",
        "PYTHONPATH": os.pathsep.join(filter(None, [str(HERE), os.environ.get("PYTHONPATH")])),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    if args.devices is not None:
        ours["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={args.devices}"
    settings = dict(setting.split("=", 1) for setting in args.setting) if replacement else {}
    return inherited | ours | settings


def run_side(checkout: Path, file: str, replacement: str, store: Path, args: argparse.Namespace) -> Side:
    """Run one test file in processes of its own; an empty `replacement` leaves JAX as it is."""
    with tempfile.TemporaryDirectory(prefix="jax-tests-") as directory:
        log = Path(directory)
        events, output = log / "events.jsonl", log / "output.txt"
        events.touch()
        command = [sys.executable, "-m", "pytest", file, "-q", "-n", str(args.n), "--max-worker-restart=1000"]
        command += ["-p", "jax_tests_plugin", "-p", "no:cacheprovider", "-p", "no:faulthandler"]
        command += [f"--timeout={args.timeout_s}", "--timeout-method=signal", f"--rootdir={checkout}"]
        command += ["-k", args.k] if args.k else []
        with output.open("wb") as stream:
            process = subprocess.Popen(
                command,
                cwd=checkout,
                env=child_environment(replacement, store, log, args),
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            _wait(process, events, quiet_s=2 * args.timeout_s + 120)
        with events.open(encoding="utf-8", errors="replace") as lines:
            side = read_events(lines)
        if not side.collected and not side.uncollected:
            tail = output.read_text(encoding="utf-8", errors="replace")[-4000:]
            raise NotComparableError(f"{file}: pytest ran no tests (exit code {process.returncode})\n{tail}")
        return side


def _wait(process: subprocess.Popen[bytes], events: Path, quiet_s: float) -> None:
    # Each test has a time limit of its own. This one is for pytest itself, which hangs when a worker hangs at its end.
    try:
        while process.poll() is None and time.time() - events.stat().st_mtime < quiet_s:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=2)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _counts(side: Side) -> str:
    kinds = [f"{side.count(kind):5d} {kind}" for kind in ("passed", "skipped", "failed")]
    kinds += [f"{side.count(kind):5d} {kind}" for kind in ("hung", "crashed") if side.count(kind)]
    missing = len(side.collected) - len(side.outcomes)
    return ", ".join(kinds) + (f", {missing} did not run" if missing else "")


def _trouble(side: Side) -> Iterator[str]:
    for text in side.uncollected:
        yield f"could not be imported: {text}"
    if not side.is_complete:
        running = ", ".join(side.unfinished) or "no test"
        yield f"pytest itself was ended or died, while {running} ran"


def print_comparison(comparison: Comparison) -> None:
    """Print what changed in one file."""
    for title, tests in (
        ("found by pytest without the replacement only", comparison.only_plain),
        ("found by pytest with the replacement only", comparison.only_replaced),
        ("fail without the replacement only", comparison.repaired),
    ):
        if tests:
            print(f"  {len(tests)} {title}:")
            for test in tests:
                print(f"      {test}")
    if comparison.unknown:
        print(f"  {len(comparison.unknown)} pass without the replacement and not with it:")
        for title, differences in group(comparison.unknown).items():
            print(f"    {title}")
            for difference in differences:
                print(f"      {difference.test}")
    if expected := [difference for difference in comparison.differences if difference.known]:
        print(f"  {len(expected)} more are known:")
        for difference in expected:
            assert difference.known is not None
            print(f"      {difference.test}\n          {difference.known.reason}")
    for entry in comparison.idle:
        print(f"  listed as known, but nothing fails any more: {entry.pattern}")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    args = parse(argv)
    checkout: Path = args.checkout.resolve()
    try:
        version = check_versions(checkout)
        known = read_known(args.known.read_text(encoding="utf-8"))
        plain = read_plain(args.plain_from, version) if args.plain_from else {}
        print(f"JAX {version}, jax.jit replaced by {args.replacement.replace(':', '.')}", flush=True)
        files: dict[str, Any] = {}
        comparisons: list[Comparison] = []
        for file in args.files:
            sides = run_file(checkout, file, plain.get(file), args)
            comparisons += compare_file(sides, known)
            files[file] = {way: side.to_dict() for way, side in sides.items()}
            if args.json:  # after each file: the next one may take long
                report = {"jax": version, "replacement": args.replacement, "files": files}
                args.json.write_text(json.dumps(report, indent=1), encoding="utf-8")
    except NotComparableError as e:
        print(f"error: {e}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    unknown = sum(len(comparison.unknown) for comparison in comparisons)
    print(f"\n{unknown} unknown differences" if unknown else "\nNo unknown differences.")
    return 0 if all(comparison.is_good for comparison in comparisons) else 1


def read_plain(path: Path, version: str) -> dict[str, Side]:
    """Read the runs without the replacement from an earlier report, by file."""
    report = json.loads(path.read_text(encoding="utf-8"))
    if report["jax"] != version:
        raise NotComparableError(f"{path} is of JAX {report['jax']}, installed is JAX {version}")
    return {file: Side.from_dict(sides["plain"]) for file, sides in report["files"].items() if "plain" in sides}


def run_file(checkout: Path, file: str, plain: Side | None, args: argparse.Namespace) -> dict[str, Side]:
    """Run one file all ways that were asked for, or take the plain one as given; returns them by name."""
    print(f"\n{file}", flush=True)
    ways = ([] if args.only_replaced else ["plain"]) + ["replaced"] + (["warm"] if args.warm else [])
    sides: dict[str, Side] = {}
    with tempfile.TemporaryDirectory(prefix="jax-tests-store-", ignore_cleanup_errors=True) as store:
        for way in ways:
            start = time.monotonic()
            if way == "plain" and plain is not None:
                side = plain
            else:
                side = run_side(checkout, file, "" if way == "plain" else args.replacement, Path(store), args)
            sides[way] = side
            print(f"  {way:9s} {_counts(side)}  ({time.monotonic() - start:.0f} s)", flush=True)
            for trouble in _trouble(side):
                print(f"  {way:9s} {trouble}")
    return sides


def compare_file(sides: Mapping[str, Side], known: Sequence[Known]) -> list[Comparison]:
    """Compare each run of one file that had the replacement with the one that had not, and print."""
    comparisons: list[Comparison] = []
    for way in ("replaced", "warm"):
        if way in sides:
            comparison = compare(sides.get("plain"), sides[way], known)
            comparisons.append(comparison)
            if way == "warm":
                print("  with the store that the run before filled:")
            print_comparison(comparison)
    return comparisons


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("checkout", type=Path, help="JAX's repository, at the tag of the installed version")
    parser.add_argument("files", nargs="*", default=list(DEFAULT_FILES), help=f"default: {' '.join(DEFAULT_FILES)}")
    parser.add_argument(
        "--known",
        type=Path,
        default=HERE / "jax_tests_known.toml",
        metavar="FILE",
        help="what is expected to fail with the replacement, and why (default: %(default)s)",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all outcomes, with tracebacks, to FILE")
    parser.add_argument("-n", type=int, default=2, help="processes that run tests (default: %(default)s)")
    parser.add_argument("-k", metavar="EXPR", help="only tests that match, as in pytest")
    parser.add_argument("--only-replaced", action="store_true", help="leave the run without the replacement out")
    parser.add_argument("--plain-from", type=Path, metavar="FILE", help="take that run from an earlier --json FILE")
    parser.add_argument("--warm", action="store_true", help="run a third time, with the store that the second filled")
    parser.add_argument(
        "--everywhere", action="store_true", help="JAX's own modules and prejit's get the replacement as well"
    )
    parser.add_argument("--timeout-s", type=float, default=300.0, help="limit for one test (default: %(default)s)")
    parser.add_argument("--devices", type=int, help="virtual CPU devices, for files that don't ask for them themselves")
    parser.add_argument(
        "--setting",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a variable for the replaced runs, such as PREJIT_LINK=separate",
    )
    parser.add_argument("--replacement", default="prejit:jit", metavar="MODULE:NAME", help="default: %(default)s")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
