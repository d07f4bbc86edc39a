"""Many jobs side by side: the pieces of a program are looked up, compiled and loaded in parallel threads."""

import os
import queue
import threading
from collections import deque
from collections.abc import Sequence
from contextvars import Context, copy_context

from prejit import events
from prejit._jax.threads import ThreadState
from prejit.config import settings
from prejit.stage import ladder
from prejit.stage.job import Job
from prejit.stage.ladder import Bypass, Prepared
from prejit.stage.progress import Group, group

__all__ = ["Outcome", "prepare_together"]

Outcome = Prepared | Bypass | Exception

_POLL_S = 0.2  # The caller wakes this often for Ctrl-C that came to another thread.


def prepare_together(jobs: Sequence[Job], *, name: str) -> list[Outcome]:
    """Get an executable for each of several calls, as `ladder.prepare` does for one, in parallel.

    Args:
        jobs: The calls. They start in this order.
        name: The program, as it is called on the progress line.

    Returns:
        What `prepare` returned for each, in the order of the jobs; where it raised an `Exception`, that.

    Raises:
        KeyboardInterrupt: At once; what compiles goes on in the background and is stored, and nothing else starts.

    **Blocks**: until all are ready. **Threads**: any; the jobs see the caller's JAX contexts, settings and store.
    """
    nr_threads = min(len(jobs), settings().compile_threads or _nr_usable_cpus())
    with group(name, len(jobs)) as progress:
        if nr_threads > 1:
            return _Crew(jobs).run(nr_threads, progress)
        return [_in_this_thread(job, progress) for job in jobs]


def _nr_usable_cpus() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _in_this_thread(job: Job, progress: Group) -> Outcome:
    try:
        return ladder.prepare(job)
    except Exception as error:  # noqa: BLE001  # the caller decides what becomes of a piece that does not compile
        return error
    finally:
        progress.one_done()


class _Crew:
    """Have threads work on a list of jobs in the name of the thread that made this."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self._todo = deque(enumerate(jobs))
        self._nr_all = len(jobs)
        self._done: queue.SimpleQueue[tuple[int, Prepared | Bypass | BaseException]] = queue.SimpleQueue()
        self._state = ThreadState()
        self._contexts: list[Context] = [copy_context() for _ in jobs]  # one can't be entered by two threads
        self._owners = events.owners()

    def run(self, nr_threads: int, progress: Group) -> list[Outcome]:
        """Start threads and wait for all jobs."""
        for number in range(nr_threads):
            threading.Thread(target=self._work, name=f"prejit-compile-{number}", daemon=True).start()
        outcomes: dict[int, Outcome] = {}
        try:
            while len(outcomes) < self._nr_all:
                try:
                    position, outcome = self._done.get(timeout=_POLL_S)
                except queue.Empty:
                    continue
                if isinstance(outcome, BaseException) and not isinstance(outcome, Exception):
                    raise outcome
                outcomes[position] = outcome
                progress.one_done()
        finally:
            self._todo.clear()
        return [outcomes[position] for position in range(self._nr_all)]

    def _work(self) -> None:
        while True:
            try:
                position, job = self._todo.popleft()
            except IndexError:
                return
            outcome: Prepared | Bypass | BaseException
            try:
                outcome = self._contexts[position].run(self._prepare, job)
            except BaseException as error:  # noqa: BLE001  # raised by the one who waits
                outcome = error
            self._done.put((position, outcome))

    def _prepare(self, job: Job) -> Prepared | Bypass:
        with self._state.applied(), events.in_the_name_of(self._owners):
            return ladder.prepare(job)
