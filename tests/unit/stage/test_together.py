import _thread
import os
import threading
import time
import traceback
from contextlib import ExitStack
from contextvars import copy_context

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax._src import config as jax_config

import prejit
from prejit import config, errors, events
from prejit._jax import environment, tracing
from prejit._jax.threads import ThreadState
from prejit.stage import abandoned, together
from prejit.stage.job import TracedJob
from prejit.stage.ladder import Bypass, Prepared
from prejit.stage.together import prepare_together

X = np.arange(4, dtype=np.float32)


class Hooked(TracedJob):
    """A job that calls something when it lowers."""

    def __init__(self, *args, hook):
        super().__init__(*args)
        self.hook = hook

    def lower(self):
        if self.lowered is None and self.hook is not None:
            self.hook(self)
        return super().lower()


def job(function, *args, name="piece", hook=None):
    args = args or (X,)
    return Hooked(tracing.open_traced(jax.jit(function).trace(*args)), list(args), name, hook=hook)


def many(n, hook=None, start=0):
    return [
        job(lambda x, i=i: jnp.sin(x) * i + i, name=f"piece {i}", hook=hook) for i in range(start, start + n)
    ]  # fmt: skip


class since:
    def __init__(self):
        self.before = prejit.counters()

    def __call__(self, *names):
        now = prejit.counters()
        return [now[name] - self.before[name] for name in names]


@pytest.fixture(autouse=True)
def three_threads():
    """As on a machine that has more CPUs than this one may have."""
    with config.override(compile_threads=3):
        yield
    deadline = time.monotonic() + 60
    while abandoned._helpers and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not abandoned._helpers, "no helper outlives what it does"


def test_results_are_in_order_and_right():
    n = since()
    got = prepare_together(many(7), name="program")
    for i, one in enumerate(got):
        np.testing.assert_allclose(one.run([X])[0], np.sin(X) * i + i, rtol=1e-6)
    assert n("misses", "compiles", "lowerings", "eager_compiles") == [7, 7, 7, 0]


def test_what_is_known_is_not_compiled_again(store):
    prepare_together(many(4), name="program")
    n = since()
    prepare_together(many(4), name="program")
    assert n("hits", "compiles", "loads") == [4, 0, 0]
    store.clear(tier="memory")
    prepare_together(many(5), name="program")
    assert n("hits", "misses", "compiles", "loads") == [8, 1, 1, 4]


def test_equal_jobs_compile_once():
    n = since()
    got = prepare_together([many(1)[0] for _ in range(5)], name="program")
    assert n("misses", "hits", "compiles") == [1, 4, 1]
    assert len({one.key for one in got}) == 1


def test_they_work_at_the_same_time():
    together_now = threading.Barrier(3, timeout=60)  # breaks, and fails the job, where fewer than three are at work
    assert all(isinstance(one, Prepared) for one in prepare_together(many(3, lambda _: together_now.wait()), name="p"))


def test_no_more_threads_than_asked_for():
    lock, now, most = threading.Lock(), [0], [0]

    def busy(_):
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
        time.sleep(0.02)
        with lock:
            now[0] -= 1

    with config.override(compile_threads=2):
        prepare_together(many(6, busy), name="program")
    assert most[0] <= 2


@pytest.mark.parametrize(("n", "threads"), [(1, 3), (4, 1)])
def test_one_job_or_one_thread_needs_no_other_thread(n, threads):
    seen, order = set(), []

    def hook(self):
        seen.add(threading.current_thread())
        order.append(self.name)

    with config.override(compile_threads=threads):
        prepare_together(many(n, hook), name="program")
    assert seen == {threading.current_thread()}
    assert order == [f"piece {i}" for i in range(n)]


def test_no_jobs():
    assert prepare_together([], name="program") == []


def test_as_many_threads_as_cpus(monkeypatch):
    monkeypatch.setattr(together, "_nr_usable_cpus", lambda: 2)
    seen = set()
    with config.override(compile_threads=None):
        prepare_together(many(5, lambda _: seen.add(threading.get_ident())), name="program")
    assert 1 <= len(seen) <= 2
    assert threading.get_ident() not in seen


def test_without_more_threads_the_caller_does_it(monkeypatch):
    def start(self):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    seen = set()
    got = prepare_together(many(4, lambda _: seen.add(threading.get_ident())), name="program")
    assert all(isinstance(one, Prepared) for one in got)
    assert seen == {threading.get_ident()}


# -- what fails --------------------------------------------------------------------------------------------------------


class CompileError(Exception):
    pass


def fail(self):
    raise CompileError(self.name)


@pytest.mark.parametrize("threads", [1, 3])
def test_a_failure_stands_in_its_place_and_the_others_are_ready(threads):
    jobs = [*many(2), *many(1, fail, start=2), *many(3, start=3)]
    with config.override(compile_threads=threads):
        got = prepare_together(jobs, name="program")
    assert [type(one) for one in got] == [Prepared, Prepared, CompileError, Prepared, Prepared, Prepared]
    assert str(got[2]) == "piece 2"
    names = [frame.name for frame in traceback.extract_tb(got[2].__traceback__)]
    assert "fail" in names, "its traceback leads to where it happened"


def test_what_is_not_stored_says_why():
    def effectful(x):
        jax.debug.print("{}", x)
        return x

    got = prepare_together([job(effectful), *many(2)], name="program")
    assert isinstance(got[0], Bypass)
    assert "effect" in got[0].reason


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_in_a_job_is_raised_at_once(kind, capfd):
    release, is_in = threading.Event(), threading.Event()

    def stop(_):
        is_in.wait(60)
        raise kind

    def wait(_):
        is_in.set()
        assert release.wait(60)

    n = since()
    try:
        with pytest.raises(kind):
            prepare_together([*many(1, wait), *many(1, stop, start=1), *many(5, start=2)], name="program")
        assert not release.is_set()
    finally:
        release.set()
    _wait_for_helpers()
    # The one that was lowering saw between two steps that nobody waits. Of the others one thread may have made some.
    assert n("compiles")[0] <= 5
    assert capfd.readouterr() == ("", "")


def _wait_for_helpers():
    deadline = time.monotonic() + 60
    while abandoned._helpers and time.monotonic() < deadline:
        time.sleep(0.01)


def test_ctrl_c_ends_the_waiting_and_a_later_call_is_answered(capfd, monkeypatch):
    hooked = []
    monkeypatch.setattr(threading, "excepthook", hooked.append)
    release, are_in = threading.Event(), threading.Semaphore(0)

    def wait(_):
        are_in.release()
        assert release.wait(60)

    def interrupt():
        for _ in range(3):
            assert are_in.acquire(timeout=60)
        _thread.interrupt_main()

    threading.Thread(target=interrupt).start()
    n = since()
    jobs = many(6, wait)
    with pytest.raises(KeyboardInterrupt):
        prepare_together(jobs, name="program")
    assert n("compiles") == [0]
    # Three are still at it. The same again, before they are through: it waits for them, and then does what they left.
    threading.Timer(0.3, release.set).start()
    got = prepare_together(many(6), name="program")
    assert all(isinstance(one, Prepared) for one in got)
    assert n("compiles") == [6]
    _wait_for_helpers()
    assert n("compiles") == [6]
    assert hooked == []
    assert capfd.readouterr() == ("", "")


def test_a_helper_that_is_told_to_stop_says_nothing(capfd):
    def work():
        with abandoned.helping():
            abandoned._raise_in_helpers(abandoned.Abandoned)
            for _ in range(100):
                time.sleep(0.01)
            seen.append("still here")

    seen = []
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join()
    assert seen == []
    assert not abandoned._helpers
    assert capfd.readouterr() == ("", "")


def test_at_the_end_what_lowers_is_stopped_and_what_is_quick_gets_through(store, monkeypatch):
    made_safe = []
    monkeypatch.setattr(abandoned, "make_exit_safe", lambda: made_safe.append(1))
    monkeypatch.setattr(abandoned, "_FINISH_S", 0.2)
    are_in = threading.Barrier(3, timeout=60)

    def for_ever(_):
        are_in.wait()
        while True:
            time.sleep(0.01)

    def quickly(_):
        are_in.wait()

    def run():
        with pytest.raises(KeyboardInterrupt):  # which nobody would see at the end
            prepare_together([*many(1, for_ever), *many(1, quickly, start=1), *many(3, start=2)], name="program")

    abandoned._at_exit()
    assert made_safe == [], "nothing is at work"
    thread = threading.Thread(target=copy_context().run, args=(run,))
    thread.start()
    are_in.wait()
    abandoned._at_exit()
    assert made_safe == [1]
    assert not abandoned._helpers
    thread.join()
    assert os.listdir(store.path / "v1" / "locks") == []


# -- what the workers see ----------------------------------------------------------------------------------------------

user_context = jax.make_user_context(None)


def _mesh():
    return jax.sharding.Mesh(np.array(jax.devices()[:2]), ("x",))


CONTEXTS = {
    "x64": lambda: jax.enable_x64(True),
    "matmul precision": lambda: jax.default_matmul_precision("highest"),
    "device": lambda: jax.default_device(jax.devices()[1]),
    "promotion": lambda: jax.numpy_dtype_promotion("strict"),
    "rank promotion": lambda: jax.numpy_rank_promotion("raise"),
    "random numbers": lambda: jax.default_prng_impl("rbg"),
    "partitionable": lambda: jax.threefry_partitionable(False),
    "debug nans": lambda: jax.debug_nans(True),
    "debug infs": lambda: jax.debug_infs(True),
    "leaks": lambda: jax.checking_leaks(),
    "log compiles": lambda: jax.log_compiles(False),
    "transfers": lambda: jax.transfer_guard("allow"),
    "set_mesh": lambda: jax.set_mesh(_mesh()),
    "with mesh": _mesh,
    "user context": lambda: user_context("mine"),
    "shardy": lambda: jax_config.use_shardy_partitioner(False),
}


def everything():
    """What JAX's context managers can change: the trace context, all options, and the mesh of `with mesh:`."""
    from jax._src.mesh import thread_resources

    names = environment.option_names()
    return environment.trace_context(), environment.option_values(names), thread_resources.env


@pytest.mark.parametrize("name", [*CONTEXTS, "all of these"])
def test_workers_see_the_callers_contexts(name):
    seen = []

    def look(_):
        seen.append((threading.get_ident(), everything()))

    makers = [CONTEXTS[name]] if name in CONTEXTS else [make for n, make in CONTEXTS.items() if n != "with mesh"]
    jobs = many(4, look)
    plain = everything()
    with ExitStack() as stack:
        for make in makers:
            stack.enter_context(make())
        mine = everything()
        assert mine != plain or name in ("log compiles", "transfers"), "the context changes something"
        got = prepare_together(jobs, name="program")
        assert everything() == mine
    assert everything() == plain
    assert all(isinstance(one, Prepared | Bypass) for one in got), got
    assert len(seen) == 4
    for thread, theirs in seen:
        assert thread != threading.get_ident()
        assert theirs == mine


def test_a_jobs_own_context_reaches_no_other_job():
    seen, leaked = [], threading.Event()

    def leak(_):
        jax_config.default_matmul_precision.set_local("highest")  # as a context manager that is never left
        leaked.set()

    def look(_):
        assert leaked.wait(60)
        seen.append(everything())

    with config.override(compile_threads=2):
        prepare_together([*many(1, leak), *many(4, look, start=1)], name="program")
    assert seen == [everything()] * 4


def test_a_threads_state_is_as_before_afterwards():
    with jax.default_matmul_precision("highest"), jax.transfer_guard("disallow"), user_context(3), _mesh():
        state, mine = ThreadState(), everything()
    seen = []

    def work():
        with jax.debug_nans(True):  # which the captured thread had not
            before = everything()
            try:
                with state.applied():
                    seen.append(everything() == mine)
                    raise KeyError
            except KeyError:
                seen.append(everything() == before)
        with state.applied(), pytest.raises(Exception, match="transfer"):
            jnp.sin(np.ones(3))  # C++ knows too
        jnp.sin(np.ones(3))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [True, True]


def test_settings_and_store_are_the_callers(store):
    seen = []
    with config.override(hoist_bytes=7):
        jobs = many(3, lambda _: seen.append((config.settings().hoist_bytes, prejit.get_store() is store)))
        prepare_together(jobs, name="program")
    assert seen == [(7, True)] * 3
    assert len([info for _, info in store.items() if info.kind == "executable"]) == 3


def test_work_is_counted_for_whom_the_caller_works():
    mine, other = events.Tally(), events.Tally()
    with events.attributed_to(other), events.attributed_to(mine):
        prepare_together(many(3), name="program")
        prepare_together(many(3), name="program")
    assert [mine.get(name) for name in ("misses", "lowerings", "compiles", "hits")] == [3, 3, 3, 3]
    assert other.snapshot() == {}
    assert events.owners() == ()
    with events.attributed_to(mine), events.in_the_name_of((other,)):
        events.count("loads")
    assert (mine.get("loads"), other.get("loads")) == (0, 1)


FORK = """
import os, signal, sys, threading, warnings
import prejit
from prejit.stage import abandoned, progress, together

prejit.configure(compile_threads=2, progress="on")
progress._DELAY_S = 0.0
are_in, release = threading.Semaphore(0), threading.Event()

def prepare(job):
    with progress.compiling(job._job):
        if job._job.startswith("slow"):
            are_in.release()
            release.wait(60)
        return job._job

together.ladder.prepare = prepare
work = threading.Thread(target=together.prepare_together, args=(["slow 1", "slow 2", "slow 3"],), kwargs={"name": "p"})
work.start()
are_in.acquire()
are_in.acquire()
warnings.simplefilter("ignore")  # JAX's own about forking
pid = os.fork()
if pid == 0:
    signal.alarm(60)
    is_right = not abandoned._helpers and not progress._display.items
    is_right &= together.prepare_together(["a", "b", "c"], name="child") == ["a", "b", "c"]
    abandoned._at_exit()
    os._exit(0 if is_right else 1)
status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
release.set()
work.join()
sys.exit(status)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_starts_with_nothing_at_work(run_python):
    run_python(FORK)


def test_a_warning_in_a_thread_is_given_at_the_line_that_waits():
    def warn(_):
        errors.warn_user(f"from {threading.current_thread().name}", errors.StoreWarning)

    with config.override(compile_threads=2), pytest.warns(errors.StoreWarning, match="from prejit-compile") as caught:
        prepare_together(many(2, hook=warn, start=70), name="program")
    assert [one.filename for one in caught] == [__file__] * 2
