"""A progress line on long compiles, when stderr is a terminal.

There is one line, whatever compiles: several writers would write over each other. A program that prepares its pieces
together has the line first; what else compiles is a number on it.
"""

import os
import shutil
import sys
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from contextvars import ContextVar

from prejit.config import settings
from prejit.stage.abandoned import left_behind

__all__ = ["Group", "compiling", "group"]

_DELAY_S = 1.0  # What is shorter than this shows nothing.
_PERIOD_S = 0.5


class _Item:
    """Be something on the line, since a time."""

    __slots__ = ("name", "since")

    def __init__(self, name: str) -> None:
        self.name = name
        self.since = time.monotonic()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.since


class _Unit(_Item):
    """Be one compile, of a group or by itself."""

    __slots__ = ("group",)

    def __init__(self, name: str, group: "Group | None") -> None:
        super().__init__(name)
        self.group = group


class Group(_Item):
    """Be a program whose pieces are prepared together.

    Attributes:
        nr_all: How many pieces there are.
        nr_done: How many of them are ready.
    """

    __slots__ = ("nr_all", "nr_done")

    def __init__(self, name: str, nr_all: int) -> None:
        super().__init__(name)
        self.nr_all = nr_all
        self.nr_done = 0

    def one_done(self) -> None:
        """Count one more piece as ready; called by one thread."""
        self.nr_done += 1


_here: ContextVar[Group | None] = ContextVar("prejit_progress_group", default=None)


class _Display:
    """Own the line: what is on it, and the thread that writes it while there is anything.

    **Threads**: any; the lock is held while the line is written, so nobody writes after it was wiped.
    """

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        """Start with nothing on the line, as in a forked child."""
        self.lock = threading.Lock()
        self.items: list[_Item] = []
        self._left = threading.Event()  # set when the last item has left
        self._width = 0

    def enter(self, item: _Item) -> None:
        """Put something on the line."""
        with self.lock:
            self.items.append(item)
            if len(self.items) > 1:
                return
            self._left = threading.Event()
            thread = threading.Thread(target=self._show, args=(self._left,), name="prejit-progress", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # no more threads, or the interpreter is going down: then nothing is shown
            return

    def leave(self, item: _Item) -> None:
        """Take something off the line, and what belongs to it; wipe it when nothing is left."""
        with self.lock:
            before = len(self.items)
            self.items = [i for i in self.items if i is not item and getattr(i, "group", None) is not item]
            if before and not self.items:
                self._left.set()
                self._wipe()

    def _show(self, left: threading.Event) -> None:
        if left.wait(_DELAY_S):
            return
        while True:
            with self.lock:
                if left.is_set():
                    return
                line = _line(self.items)
                if line:
                    _write("\r" + line.ljust(self._width))
                    self._width = max(self._width, len(line))
                else:
                    self._wipe()
            if left.wait(_PERIOD_S):
                return

    def _wipe(self) -> None:
        if self._width:
            _write("\r" + " " * self._width + "\r")
            self._width = 0


_display = _Display()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_display.renew)


@contextmanager
def compiling(name: str) -> Generator[None]:
    """Show that something compiles, for how long, and how many others do, until the block ends."""
    unit = _Unit(name, _here.get())
    # What an interrupt left behind goes on compiling, and is nobody's news any more.
    is_news = _is_shown() and (unit.group is None or unit.group in _display.items)
    with left_behind():
        if not is_news:
            yield
            return
        _display.enter(unit)
        try:
            yield
        finally:
            _display.leave(unit)


@contextmanager
def group(name: str, nr_all: int) -> Generator[Group]:
    """Show how far a program is, and what compiles for it, until the block ends.

    What compiles in the block, and in threads that run in copies of its context, belongs to the group.
    """
    made = Group(name, nr_all)
    if not _is_shown():
        yield made
        return
    token = _here.set(made)
    _display.enter(made)
    try:
        yield made
    finally:
        _display.leave(made)
        _here.reset(token)


def _is_shown() -> bool:
    progress = settings().progress
    return progress == "on" or (progress == "auto" and sys.stderr is not None and sys.stderr.isatty())


def _line(items: list[_Item]) -> str:
    """Word the line: the oldest group first, its oldest compile, and how many others there are."""
    groups = [item for item in items if isinstance(item, Group) and item.seconds >= _DELAY_S]
    # What compiles for a group that is shown is shown from its start: the line is there anyway.
    units = [item for item in items if isinstance(item, _Unit) and (item.group in groups or item.seconds >= _DELAY_S)]
    shown = min(groups, key=lambda item: item.since, default=None)
    own = [unit for unit in units if unit.group is shown] if shown is not None else units
    unit = min(own, key=lambda item: item.since, default=None)
    parts = ["prejit:"]
    if shown is not None:
        parts.append(f"{shown.name}: {shown.nr_done} of {shown.nr_all} done" + ("," if unit else ""))
    if unit is not None:
        parts.append(f"compiling {unit.name}, {unit.seconds:.0f} s")
    nr_others = len(units) - (unit is not None)
    if nr_others:
        parts.append(f"({nr_others} more)")
    line = " ".join(parts) if len(parts) > 1 else ""
    return line[: max(shutil.get_terminal_size().columns - 1, 20)]  # a line that wraps can't be wiped


def _write(text: str) -> None:
    with suppress(OSError, ValueError, AttributeError):  # closed, gone or replaced meanwhile: no reason to fail
        sys.stderr.write(text)
        sys.stderr.flush()
