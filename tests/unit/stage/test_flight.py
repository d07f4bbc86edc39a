import os
import threading
import time

import pytest

from prejit.stage.flight import Flights


def in_threads(count, function):
    errors = []

    def run():
        try:
            function()
        except Exception as error:  # noqa: BLE001
            errors.append(error)

    threads = [threading.Thread(target=run, daemon=True) for _ in range(count)]
    [thread.start() for thread in threads]
    [thread.join(60) for thread in threads]
    assert not any(thread.is_alive() for thread in threads)
    return errors


def test_one_works_while_the_others_wait():
    flights, active, most, done = Flights(), [], [], []
    barrier = threading.Barrier(6)

    def work():
        barrier.wait(30)
        with flights.enter("key", 30):
            active.append(1)
            most.append(len(active))
            time.sleep(0.01)
            active.pop()
        done.append(1)

    assert in_threads(6, work) == []
    assert max(most) == 1
    assert len(done) == 6


def test_different_keys_do_not_wait():
    flights = Flights()
    barrier = threading.Barrier(3)
    keys = iter(["a", "b", "c"])

    def work():
        with flights.enter(next(keys), 30):
            barrier.wait(30)  # Passes only if all three are inside at once.

    assert in_threads(3, work) == []


def test_a_thread_may_enter_its_own_flight_again():
    flights = Flights()
    with flights.enter("key", 30), flights.enter("key", 30):
        pass
    order = []

    def other():
        with flights.enter("key", 30):
            order.append("other")

    with flights.enter("key", 30):
        with flights.enter("key", 30):
            pass
        thread = threading.Thread(target=other, daemon=True)
        thread.start()
        time.sleep(0.3)
        assert order == [], "the outer flight has not landed"
    thread.join(30)
    assert order == ["other"]


def test_an_exception_lets_the_next_one_in():
    flights = Flights()
    with pytest.raises(KeyError), flights.enter("key", 30):
        raise KeyError
    entered = []
    assert in_threads(1, lambda: entered.append(flights.enter("key", 0).__enter__())) == []
    assert len(entered) == 1


def test_after_the_timeout_both_work():
    flights = Flights()
    inside, release = threading.Event(), threading.Event()

    def slow():
        with flights.enter("key", 30):
            inside.set()
            release.wait(30)

    thread = threading.Thread(target=slow, daemon=True)
    thread.start()
    inside.wait(30)
    with flights.enter("key", 0.05):
        assert not release.is_set()
    entered = []
    release.set()
    thread.join(30)
    with flights.enter("key", 0):
        entered.append(1)
    assert entered == [1]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::RuntimeWarning")
def test_a_child_starts_with_no_flights():
    flights = Flights()
    inside, release = threading.Event(), threading.Event()

    def slow():
        with flights.enter("key", 30):
            inside.set()
            release.wait(60)

    thread = threading.Thread(target=slow, daemon=True)
    thread.start()
    inside.wait(30)
    child = os.fork()
    if child == 0:
        started = time.monotonic()
        with flights.enter("key", 20):
            os._exit(0 if time.monotonic() - started < 5 else 1)
    try:
        _, status = os.waitpid(child, 0)
    finally:
        release.set()
        thread.join(30)
    assert os.waitstatus_to_exitcode(status) == 0


def test_nothing_is_left_behind():
    flights = Flights()
    for n in range(10):
        with flights.enter(n, 1):
            pass
    assert flights._flights == {}


def test_a_thread_inside_its_own_work_is_told_so():
    flights = Flights()
    with flights.enter("key", 5.0) as is_first:
        assert is_first
        with flights.enter("key", 5.0) as is_first_again:
            assert not is_first_again
    with flights.enter("key", 5.0) as is_first_now:
        assert is_first_now
