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

from prejit._jax.exits import is_compiling, is_inside, make_exit_safe

__all__ = ["Abandoned", "Crew", "StoppableJob", "helping", "left_behind"]

# At the end of the process: how long helpers may take to finish a step, such as storing, how long to leave one that was
# interrupted, and how long to stand still. Those that compile are not waited for.
_FINISH_S = 0.5
_LEAVE_S = 0.5
_HALT_S = 0.3
_POLL_S = 0.005


class Abandoned(KeyboardInterrupt):
    """Be raised in a helper whose work nobody waits for; what undoes half a step for Ctrl-C does so for this."""


class Crew(Protocol):
    """Be what a helper works for; `is_abandoned` says that nobody waits for it any more."""

    is_abandoned: bool


class _Alone:
    is_abandoned = False


class StoppableJob:
    """Be another job, which stops between two of its steps once nobody waits for it."""

    def __init__(self, job: Any, crew: Crew) -> None:
        self._job = job
        self._crew = crew

    def __getattr__(self, name: str) -> Any:
        return getattr(self._job, name)

    def arguments(self, meta: dict[str, Any] | None) -> dict[str, Any]:
        """Return what loading or compiling needs, which comes next."""
        self._check()
        return self._job.arguments(meta)

    def lower(self) -> Any:
        """Lower, once; before compiling, and asked for again when what was compiled is stored."""
        if self._job.lowered is None:
            self._check()
            self._job.lower()
            self._check()
        return self._job.lower()

    def _check(self) -> None:
        if self._crew.is_abandoned:
            raise Abandoned


_helpers: dict[threading.Thread, Crew] = {}
_is_left_behind = False


@contextmanager
def helping(crew: Crew | None = None) -> Generator[None]:
    """Know the calling thread as a helper for as long as the block runs, so that the process can end without it.

    Args:
        crew: What it works for, if several threads do.

    **Effects**: the thread handles no signals any more; it must be a daemon, made for this alone.
    """
    if hasattr(signal, "pthread_sigmask"):
        # A signal that ends up here would wait until the compile is ready; see also `_jax.exits`. Not the synchronous
        # ones: blocked, they end the process before a fault handler can say where.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - _SYNCHRONOUS)
    thread = threading.current_thread()
    _helpers[thread] = crew or _Alone()
    with suppress(Abandoned):  # which can come at any line, and would be printed as what the thread failed with
        try:
            yield
        finally:
            _helpers.pop(thread, None)


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


# -- the end of the process -------------------------------------------------------------------------------------------


class _Halt(BaseException):
    """Be raised in a helper that must not run Python any more: it never comes to be raised."""

    def __new__(cls, *_: object) -> "_Halt":
        return _stand_still()


_never = threading.Lock()
_never.acquire()


def _stand_still() -> Any:
    while True:
        _never.acquire()


def _at_exit() -> None:
    if not _helpers and not _is_left_behind:
        return
    make_exit_safe()
    for crew in list(_helpers.values()):
        crew.is_abandoned = True
    with suppress(KeyboardInterrupt):  # who is in a hurry may skip the waiting
        _wait(_FINISH_S, is_compiling)
        _raise_in_helpers(Abandoned)
        _wait(_LEAVE_S, is_compiling)
    # The interpreter goes down any moment now, and then nothing may be on its way back from XLA.
    _raise_in_helpers(_Halt)
    with suppress(KeyboardInterrupt):
        _wait(_HALT_S, lambda thread: is_compiling(thread) or is_inside(thread, _stand_still))


def _wait(longest_s: float, is_ready: Callable[[threading.Thread], bool]) -> None:
    deadline = time.monotonic() + longest_s
    # Twice in a row: the first time a thread may have been on its way, and waiting for the interpreter's lock.
    nr_ready = 0
    while nr_ready < 2 and time.monotonic() < deadline:
        nr_ready = nr_ready + 1 if all(is_ready(thread) for thread in list(_helpers)) else 0
        time.sleep(_POLL_S)


def _raise_in_helpers(error: type[BaseException]) -> None:
    """Raise an error in helpers before they do anything else in Python, in place of one that they have not come to."""
    for thread in list(_helpers):
        raise_in: Callable[[Any, Any], int] = ctypes.pythonapi.PyThreadState_SetAsyncExc
        raise_in(ctypes.c_ulong(thread.ident or 0), ctypes.py_object(error))


def _forget() -> None:
    global _is_left_behind
    _helpers.clear()
    _is_left_behind = False


# Registered after JAX's and the store's own hooks, so it runs before them.
atexit.register(_at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
