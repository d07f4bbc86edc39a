"""A progress line on long compiles, when stderr is a terminal."""

import sys
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager

from prejit.config import settings

__all__ = ["compiling"]

_DELAY_S = 1.0  # Compiles that are shorter than this show nothing.
_PERIOD_S = 0.5

_lock = threading.Lock()
_running: dict[int, tuple[str, float]] = {}


@contextmanager
def compiling(name: str) -> Generator[None]:
    """Show that something compiles, for how long, and how many others do, until the block ends."""
    if not _is_shown():
        yield
        return
    done = threading.Event()
    ticket = id(done)
    with _lock:
        _running[ticket] = (name, time.monotonic())
    thread = threading.Thread(target=_show, args=(done, ticket), name="prejit-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        with _lock:
            del _running[ticket]
        done.set()
        thread.join()


def _is_shown() -> bool:
    progress = settings().progress
    return progress == "on" or (progress == "auto" and sys.stderr is not None and sys.stderr.isatty())


def _show(done: threading.Event, ticket: int) -> None:
    if done.wait(_DELAY_S):
        return
    width = 0
    while True:
        line = _line(ticket)
        if line:
            sys.stderr.write("\r" + line.ljust(width))
            sys.stderr.flush()
            width = max(width, len(line))
        if done.wait(_PERIOD_S):
            break
    if width:
        sys.stderr.write("\r" + " " * width + "\r")
        sys.stderr.flush()


def _line(ticket: int) -> str:
    with _lock:
        # Only the one that has run longest writes; the others are a number on its line.
        if not _running or min(_running, key=lambda t: _running[t][1]) != ticket:
            return ""
        name, since = _running[ticket]
        others = len(_running) - 1
    return f"prejit: compiling {name}, {time.monotonic() - since:.0f} s" + (f" ({others} more)" if others else "")
