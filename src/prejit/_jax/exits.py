"""The end of a process in which XLA still compiles, which nothing can stop.

These things go wrong then, measured 2026-12 on jax 0.10.2 and 0.12.0.1, CPU, CPython 3.11 and 3.13 on Linux:

- A thread that wants the interpreter's lock once the interpreter goes down is ended by `pthread_exit` (until CPython
  3.14, which lets it hang). glibc unwinds the thread's stack, comes to a C++ frame of jaxlib that must not be unwound,
  and C++ ends the process: "terminate called ...". On 0.10.2 a thread that waits for a compile wants the lock every
  200 ms, so this is what always happened; on 0.12 when a compile was ready while the interpreter went down. A thread
  that runs Python below a C++ frame of JAX's that can be unwound ends in a segmentation fault, for there the references
  are dropped: such threads must be gone, or hang, before (see `stage.abandoned`).
- Modules are cleared, and with them goes what a compile uses: MLIR's thread pool, whose destructor then waits for ever,
  and, where Ctrl-C has ended JAX's own waiting in the main thread (0.10.2), the client, whose destructor waits until
  the compile is ready, which ends in a segmentation fault.
- `exit` runs the destructors of C++'s static objects, under a compile that uses them: "pure virtual method called" in
  2 of 8 runs on 0.12.

Nothing of Python's own way down is left out: exit hooks, flushing and the exit status are what they always are. It
takes a moment, for which it competes with the compiles: 1.3 to 3 s with as many of those as CPUs, 0.4 to 0.6 s when
they have to stand back.
"""

import ctypes
import inspect
import os
import sys
import threading
from contextlib import suppress
from typing import Any

from jax._src import compiler, xla_bridge
from jax._src.interpreters import mlir

__all__ = ["is_compiling", "is_inside", "make_exit_safe"]

_done_in: int | None = None  # the process that did it


def make_exit_safe() -> None:
    """Let this process end while XLA compiles; called when it begins to end, before the interpreter goes down."""
    global _done_in
    if _done_in == os.getpid():
        return
    _done_in = os.getpid()
    for used in (*xla_bridge._backends.values(), getattr(mlir, "global_thread_pool", None)):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(used))  # so that it is never destroyed
    if sys.platform == "linux":
        libc: Any = ctypes.CDLL(None)
        if sys.version_info < (3, 14):
            _let_lost_threads_hang(libc)
        _skip_static_destructors(libc)
        _let_others_stand_back()


def is_compiling(thread: threading.Thread) -> bool:
    """Say whether a thread is where JAX calls XLA's compiler; False if this JAX calls it from another place."""
    calls: Any = getattr(compiler, "backend_compile_and_load", None)
    return calls is not None and is_inside(thread, inspect.unwrap(calls))


def is_inside(thread: threading.Thread, function: Any) -> bool:
    """Say whether a function is the innermost one in Python that a thread runs."""
    frame = sys._current_frames().get(thread.ident or 0)
    return frame is not None and frame.f_code is function.__code__


def _let_lost_threads_hang(libc: Any) -> None:
    """Where C++ would end the process for a thread that can't be unwound, have that thread wait for the end instead."""
    try:
        set_terminate: Any = ctypes.CDLL("libstdc++.so.6")["_ZSt13set_terminatePFvvE"]  # the one that jaxlib has loaded
        set_terminate.argtypes, set_terminate.restype = [ctypes.c_void_p], ctypes.c_void_p
        # Returns only after a signal has been handled, and helpers block those.
        set_terminate(_address(libc.pause))
    except (OSError, AttributeError):
        return


def _skip_static_destructors(libc: Any) -> None:
    """Have `exit(status)` write out C's buffers and end the process, before it comes to what was registered earlier.

    Who calls `_exit` has to know the status, and only `exit` itself does: `on_exit` hands it on.
    """
    try:
        on_exit: Any = libc.on_exit
        on_exit.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
        on_exit(_address(libc._exit), None)
        on_exit(_address(libc.fcloseall), None)  # the last one registered runs first
    except AttributeError:  # not glibc
        return


def _let_others_stand_back() -> None:
    """Give the CPUs to the calling thread first; on Linux every thread has a priority of its own."""
    own = threading.get_native_id()
    with suppress(OSError):
        for name in os.listdir("/proc/self/task"):
            if int(name) != own:
                with suppress(OSError):  # it has ended
                    os.setpriority(os.PRIO_PROCESS, int(name), 19)


def _address(function: Any) -> Any:
    return ctypes.cast(function, ctypes.c_void_p)
