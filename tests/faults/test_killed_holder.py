"""The process that holds a claim is killed."""

import os
import signal
import subprocess
import sys
import time

import pytest

from prejit.store import Store
from prejit.testing import make_entry

HOLD = """
import sys, time
from prejit.store import Store
from prejit.testing import make_entry
with Store(sys.argv[1]).claim(make_entry(1).key, 0.0) as claim:
    print(claim.owned, flush=True)
    time.sleep(600)
"""


@pytest.fixture
def holder(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path / "s")],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    try:
        assert process.stdout.readline().strip() == "True"
        yield process
    finally:
        process.kill()
        process.communicate()


def test_a_killed_holder_holds_nothing(tmp_path, holder):
    store = Store(tmp_path / "s")
    with store.claim(make_entry(1).key, 0.0) as claim:
        assert (claim.owned, claim.reason) == (False, "timeout"), "it is held while the holder lives"
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    with store.claim(make_entry(1).key, 60.0) as claim:
        assert claim.owned
    assert os.listdir(tmp_path / "s/v1/locks") == []


def test_the_living_child_of_a_killed_holder_does_not_hold_it(tmp_path):
    code = HOLD.replace(
        "    print(claim.owned", "    import os; child = os.fork(); child or time.sleep(600)\n    print(child"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "s")],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    child = 0
    try:
        child = int(process.stdout.readline())
        process.kill()
        process.wait()
        os.kill(child, 0)  # it lives
        with Store(tmp_path / "s").claim(make_entry(1).key, 30.0) as claim:
            assert claim.owned
    finally:
        process.kill()
        if child:
            os.kill(child, signal.SIGKILL)
        process.communicate()


def test_a_waiter_gets_the_claim_when_the_holder_is_killed(tmp_path, holder):
    import threading

    timer = threading.Timer(0.2, holder.kill)
    timer.start()
    with Store(tmp_path / "s").claim(make_entry(1).key, 60.0) as claim:
        assert claim.owned
        assert claim.waited_s > 0
    timer.join()


def test_a_stopped_holder_is_waited_for_no_longer_than_asked(tmp_path, holder):
    holder.send_signal(signal.SIGSTOP)
    with Store(tmp_path / "s").claim(make_entry(1).key, 0.1) as claim:
        assert (claim.owned, claim.reason) == (False, "timeout")


def test_what_a_killed_holder_left_is_removed_and_what_is_held_is_not(tmp_path, holder):
    store = Store(tmp_path / "s")
    [lock] = (tmp_path / "s/v1/locks").iterdir()
    os.utime(lock, (1, 1))
    assert store.gc().locks == 0, "old, but held"
    holder.kill()
    holder.wait()
    assert lock.exists()
    assert store.gc().locks == 1
    assert not lock.exists()


# A shell may have had its background jobs ignore the signal.
HEARING = """
import gc, signal
signal.signal(signal.SIGINT, signal.default_int_handler)
import prejit.store, prejit.testing
gc.disable()  # an interrupt inside a callback of the collector is lost
print("up", flush=True)
"""


def test_ctrl_c_ends_the_waiting(tmp_path, holder):
    code = HOLD.replace("0.0", "600.0").replace("print", "print('never'),print")
    waiter = subprocess.Popen(
        [sys.executable, "-c", HEARING + code, str(tmp_path / "s")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    try:
        assert waiter.stdout.readline().strip() == "up"
        time.sleep(1.0)  # long enough to be waiting
        waiter.send_signal(signal.SIGINT)
        out, err = waiter.communicate(timeout=60)
    finally:
        waiter.kill()
        waiter.wait()
    assert "KeyboardInterrupt" in err
    assert out == ""
