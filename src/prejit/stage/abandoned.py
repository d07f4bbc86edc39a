"""Work that nobody waits for any more: XLA's compiles can't be stopped, so an interrupt leaves them behind.

As long as the process lives they may come to their end: what they made is stored, and a later call for it waits for
them or finds it. When the process ends, whatever is still Python is stopped, and XLA is left alone.
"""

import atexit
import ctypes
import os
import signal
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from typing import Any, Protocol

from prejit._jax.exits import make_exit_safe

__all__ = ["Abandoned", "Crew", "Helper", "StoppableJob", "helping", "left_behind"]

# At the end of the process: how long helpers may take to finish a step, such as storing, and how long to leave one that
# was interrupted. Those that compile are not waited for.
_FINISH_S = 0.5
_LEAVE_S = 0.5
_POLL_S = 0.01


class Abandoned(KeyboardInterrupt):
    """Be raised in a helper whose work nobody waits for; what undoes half a step for Ctrl-C does so for this."""


class Crew(Protocol):
    """Be what a helper works for."""

    is_abandoned: bool


class Helper:
    """Be a thread that works for a crew.

    Attributes:
        crew: The crew.
        thread: The thread.
        is_in_xla: It compiles or loads, which can't be stopped.
    """

    __slots__ = ("crew", "is_in_xla", "thread")

    def __init__(self, crew: Crew) -> None:
        self.crew = crew
        self.thread = threading.current_thread()
        self.is_in_xla = False


class StoppableJob:
    """Be another job, which stops between two of its steps once nobody waits for it.

    The steps are seen by what `ladder` asks for: compiling and loading come right after `lower` and `arguments`, and
    whatever else is asked for comes after them.
    """

    def __init__(self, job: Any, helper: Helper) -> None:
        self._job = job
        self._helper = helper

    def __getattr__(self, name: str) -> Any:
        self._helper.is_in_xla = False
        return getattr(self._job, name)

    def arguments(self, meta: dict[str, Any] | None) -> dict[str, Any]:
        """Return what loading or compiling needs, which comes next."""
        self._check()
        found = self._job.arguments(meta)
        self._helper.is_in_xla = True
        return found

    def lower(self) -> Any:
        """Lower, once; before compiling, and asked for again when what was compiled is stored."""
        self._helper.is_in_xla = False
        if self._job.lowered is not None:
            return self._job.lower()
        self._check()
        lowered = self._job.lower()
        self._check()
        self._helper.is_in_xla = True
        return lowered

    def _check(self) -> None:
        self._helper.is_in_xla = False
        if self._helper.crew.is_abandoned:
            raise Abandoned


_helpers: set[Helper] = set()
_is_left_behind = False


@contextmanager
def helping(crew: Crew) -> Generator[Helper]:
    """Know the calling thread, which does nothing else, as one that works for a crew, for as long as the block runs."""
    if hasattr(signal, "pthread_sigmask"):
        # A signal that ends up here would wait until the compile is ready; see also `_jax.exits`. Not the synchronous
        # ones: blocked, they end the process before a fault handler can say where.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - _SYNCHRONOUS)
    helper = Helper(crew)
    _helpers.add(helper)
    try:
        yield helper
    finally:
        _helpers.discard(helper)


_SYNCHRONOUS = {
    getattr(signal, name)
    for name in ("SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGABRT", "SIGTRAP", "SIGSYS")
    if hasattr(signal, name)
}


@contextmanager
def left_behind() -> Generator[None]:
    """Take note if Ctrl-C ends the block, in which XLA compiles in threads of its own and goes on (jax 0.10)."""
    global _is_left_behind
    try:
        yield
    except Exception:
        raise
    except BaseException:
        if threading.current_thread() is threading.main_thread():
            _is_left_behind = True
        raise


def _at_exit() -> None:
    if not _helpers and not _is_left_behind:
        return
    make_exit_safe()
    for helper in list(_helpers):
        helper.crew.is_abandoned = True
    with suppress(KeyboardInterrupt):  # who is in a hurry may skip the waiting
        _wait(_FINISH_S)
        for helper in list(_helpers):
            _raise_in(helper.thread)  # also where it compiles, so that nothing begins if that ends now
        _wait(_LEAVE_S)


def _wait(longest_s: float) -> None:
    deadline = time.monotonic() + longest_s
    while any(not helper.is_in_xla for helper in list(_helpers)) and time.monotonic() < deadline:
        time.sleep(_POLL_S)


def _raise_in(thread: threading.Thread) -> None:
    raise_in: Callable[[Any, Any], int] = ctypes.pythonapi.PyThreadState_SetAsyncExc
    raise_in(ctypes.c_ulong(thread.ident or 0), ctypes.py_object(Abandoned))


def _forget() -> None:
    global _is_left_behind
    _helpers.clear()
    _is_left_behind = False


# Registered after JAX's and the store's own hooks, so it runs before them.
atexit.register(_at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
