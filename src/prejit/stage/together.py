"""Many jobs side by side: the pieces of a program are looked up, compiled and loaded in parallel threads."""

import os
import queue
import sys
import threading
from collections import deque
from collections.abc import Sequence
from contextvars import copy_context
from typing import cast

from prejit import events
from prejit._jax.threads import ThreadState
from prejit.config import settings
from prejit.errors import holding_warnings, warn_user
from prejit.stage import ladder
from prejit.stage.abandoned import StoppableJob, helping
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
    if sys.version_info >= (3, 13):
        return os.process_cpu_count() or 1
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
    """Have threads work on a list of jobs in the name of the thread that made this.

    Attributes:
        is_abandoned: Nobody waits any more: no job and no step of a job is begun.
    """

    def __init__(self, jobs: Sequence[Job]) -> None:
        self.is_abandoned = False
        self._nr_all = len(jobs)
        # A context can't be entered by two threads, so each job has a copy.
        self._todo = deque([(position, job, copy_context()) for position, job in enumerate(jobs)])
        self._done: queue.SimpleQueue[tuple[int, Prepared | Bypass | BaseException]] = queue.SimpleQueue()
        self._state = ThreadState()
        self._owners = events.owners()
        self._warnings: list[tuple[str, type[Warning]]] = []  # which belong to the line that waits

    def run(self, nr_threads: int, progress: Group) -> list[Outcome]:
        """Start threads and wait for all jobs."""
        outcomes: dict[int, Outcome] = {}
        try:
            self._start(nr_threads)
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
            self.is_abandoned = True
        for message, category in self._warnings:
            warn_user(message, category)
        return [outcomes[position] for position in range(self._nr_all)]

    def _start(self, nr_threads: int) -> None:
        for number in range(nr_threads):
            # Daemons, or the end of the process would wait for compiles that can't be stopped.
            thread = threading.Thread(target=self._help, name=f"prejit-compile-{number}", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # no more threads, or the interpreter is going down
                if number == 0:
                    self._work()
                return

    def _help(self) -> None:
        with helping(self):
            self._work()

    def _work(self) -> None:
        while not self.is_abandoned:
            try:
                position, job, context = self._todo.popleft()
            except IndexError:
                return
            outcome: Prepared | Bypass | BaseException
            try:
                outcome = context.run(self._prepare, job)
            except BaseException as error:  # noqa: BLE001  # raised by the one who waits, if anybody does
                outcome = error
            self._done.put((position, outcome))
            del job, outcome  # an error's traceback has this frame

    def _prepare(self, job: Job) -> Prepared | Bypass:
        with self._state.applied(), holding_warnings(self._warnings), events.in_the_name_of(self._owners):
            return ladder.prepare(cast("Job", StoppableJob(job, self)))
