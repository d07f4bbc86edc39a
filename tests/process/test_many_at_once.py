"""First calls from many threads and processes compile once; forks and spawned pools work."""

import os

import pytest

SLOW = """
@prejit.component
def slow(x):
    time.sleep(0.3)  # long enough for all to be inside
    return jnp.tanh(x) @ jnp.ones((16, 16)) + 1
"""

THREADS = """
traces = []
@prejit.component
def f(x):
    traces.append(1)
    return slow.__wrapped__(x)

def at_once(functions):
    out, barrier = [], threading.Barrier(len(functions))
    def work(function):
        barrier.wait()
        out.append(bits(function(X)))
    threads = [threading.Thread(target=work, args=(function,)) for function in functions]
    [t.start() for t in threads]
    [t.join() for t in threads]
    return out

n = since()
one = at_once([f] * 8)
first, n = n(), since()
# Eight components of eight equal functions: the program is one.
many = at_once([prejit.component(lambda x: jnp.cos(x) * 3 + jnp.sin(x).sum()) for _ in range(8)])
report(one=one, many=many, traces=len(traces), first=first, second=n())
"""


def test_eight_threads_compile_once(child, store_files):
    done = child(SLOW + THREADS)
    assert len(done.one) == len(done.many) == 8
    assert all(out == done.one[0] for out in done.one)
    assert all(out == done.many[0] for out in done.many)
    assert done.traces == 1
    assert (done.first["compiles"], done.first["lowerings"], done.first["misses"]) == (1, 1, 1)
    assert (done.second["compiles"], done.second["misses"], done.second["hits"]) == (1, 1, 7)
    assert set(store_files()) <= {"entry", "hits"}, "no drafts, locks or damaged files"
    # The control: without prejit, eight functions are eight compiles.
    assert child(SLOW + THREADS, env={"PREJIT_DISABLE": "1"}).second["compiles"] == 8


PROCESSES = """
number, meeting = sys.argv[1:]
os.makedirs(meeting, exist_ok=True)
open(f"{meeting}/{number}", "w").close()
deadline = time.monotonic() + 60
while len(os.listdir(meeting)) < 4:
    assert time.monotonic() < deadline
    time.sleep(0.01)
out = slow(X)
expected = np.tanh(X) @ np.ones((16, 16)) + 1
report(bits=bits(out), is_right=bool(np.allclose(out, expected, rtol=1e-5)))
"""


def test_four_processes_compile_once(children, store_files, tmp_path):
    done = children(SLOW + PROCESSES, tmp_path / "meeting", n=4)
    assert all(report.is_right for report in done)
    assert len({tuple(report.bits) for report in done}) == 1
    own = [sum(name == "jit(slow)" for name in report.compiled) for report in done]
    assert sum(own) == 1, [report.compiled for report in done]
    assert sorted(report.counters["misses"] for report in done) == [0, 0, 0, 1]
    assert sum(report.counters["loads"] for report in done) >= 3
    assert set(store_files()) <= {"entry", "hits"}


def test_four_processes_without_a_common_store_compile_four_times(children, tmp_path):
    """The control of the test above: its count can be other than one."""
    program = f"prejit.configure(cache_dir=sys.argv[2] + sys.argv[1] + 'store')\n{SLOW}{PROCESSES}"
    done = children(program, tmp_path / "meeting", n=4)
    assert sum(name == "jit(slow)" for report in done for name in report.compiled) == 4


FORK = """
@prejit.component
def f(x):
    return jnp.sin(x) * 2 + 1

expected = np.sin(X) * 2 + 1

def work():
    out = np.asarray(f(X))
    fresh = np.asarray(prejit.component(lambda x: x * 5 - 2)(X))
    n = prejit.counters()
    return [bool(np.allclose(out, expected, rtol=1e-5)), bool(np.allclose(fresh, X * 5 - 2)), n["compiles"], n["loads"]]
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_fork_before_first_use_works(child):
    program = (
        f"{FORK}\nfirst = in_child(work)\nsecond = in_child(work)\nreport(first=first, second=second, mine=work())"
    )
    done = child(program)
    assert done.first == [True, True, 2, 0]
    assert done.second == [True, True, 0, 2], "what a forked child stored is there for the next"
    assert done.mine == [True, True, 0, 2]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_fork_after_use_can_look_up_and_store(child, store_files):
    # XLA's own thread pool does not survive a fork, so the child keeps to what prejit does: keys, locks and the store.
    program = f"""{FORK}
from prejit.testing import make_entry
mine = work()
# A fork while other threads are in the middle of looking up and storing.
stop = threading.Event()
def busy():
    i = 0
    while not stop.is_set():
        prejit.get_store().put(make_entry(i % 7)); prejit.get_store().get(make_entry(i % 5).key)
        f.cache_info(); f.cache_clear(); prejit.counters(); i += 1
threads = [threading.Thread(target=busy) for _ in range(3)]
[t.start() for t in threads]
def in_the_store():
    store = prejit.get_store()
    with store.claim(make_entry(100).key, 5.0) as claim:
        is_put = store.put(make_entry(100))
    key = f.key_for(SPEC)
    store.clear(tier="memory")
    return [claim.owned, is_put, store.get(key) is not None, prejit.counters()["store_errors"]]
got = [in_child(in_the_store) for _ in range(5)]
stop.set()
[t.join() for t in threads]
report(mine=mine, got=got, after=work())
"""
    done = child(program)
    assert done.mine == [True, True, 2, 0]
    assert done.got == [[True, True, True, 0]] * 5
    assert done.after[:2] == [True, True]
    assert set(store_files()) <= {"entry", "hits"}


POOL = """
import multiprocessing
import numpy as np
import prejit
import jax.numpy as jnp

@prejit.component
def f(x):
    return jnp.sin(x) * 2 + 1

def work(x):
    out = np.asarray(f(x))
    n = prejit.counters()
    return out.tolist(), n["compiles"], n["lowerings"], n["loads"]

if __name__ == "__main__":
    from inside import *
    expected = np.asarray(f(X))
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        got = pool.map(work, [X, X, X, X], chunksize=1)
        by_reference = pool.map(f, [X])  # a component pickles by reference
    report(are_equal=all(np.array_equal(np.asarray(out, F32), expected) for out, *_ in got),
           counts=[counts for _, *counts in got], by_reference=bool(np.array_equal(by_reference[0], expected)))
"""


def test_a_spawned_pool_loads_what_the_parent_compiled(child, tmp_path):
    # The program is a file, which the pool's processes import.
    (tmp_path / "pool.py").write_text(POOL)
    done = child(f"os.execv(sys.executable, [sys.executable, {str(tmp_path / 'pool.py')!r}])")
    assert done.are_equal
    assert done.by_reference
    assert all(compiles == lowerings == 0 and loads == 1 for compiles, lowerings, loads in done.counts)
