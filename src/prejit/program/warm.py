"""Get a program ready before it is needed, on a thread of its own if asked."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import copy_context

from prejit import events
from prejit._jax.threads import ThreadState

__all__ = ["warm"]


def warm(compile_all: Callable[[], None], *, is_background: bool) -> "Future[None]":
    """Run something that compiles, here or on a thread that sees the caller's JAX contexts and prejit's settings."""
    future: Future[None] = Future()
    if not is_background:
        compile_all()
        future.set_result(None)
        return future
    state, context, owners = ThreadState(), copy_context(), events.owners()

    def run() -> None:
        future.set_running_or_notify_cancel()
        try:
            with state.applied(), events.in_the_name_of(owners):
                context.run(compile_all)
        except BaseException as error:  # noqa: BLE001  # the future has it
            future.set_exception(error)
        else:
            future.set_result(None)

    threading.Thread(target=run, name="prejit-warm", daemon=True).start()
    return future
