import errno
import fcntl
import os
import threading
import time

import pytest

from prejit.store import OSLocks, Store
from prejit.store.locks import claim
from prejit.testing import BrokenLocks, make_entry


def test_one_owner_at_a_time_among_threads(tmp_path):
    locks, path = OSLocks(), str(tmp_path / "x.lock")
    inside, most, owned = [], [], []

    def work():
        with claim(locks, path, 30.0) as mine:
            owned.append(mine.owned)
            inside.append(1)
            most.append(len(inside))
            time.sleep(0.01)
            inside.pop()

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert owned == [True] * 8
    assert max(most) == 1
    assert os.listdir(tmp_path) == [], "the lock file is gone"


def test_waiting_ends_and_says_so(tmp_path):
    locks, path = OSLocks(), str(tmp_path / "x.lock")
    with claim(locks, path, 5.0) as first:
        assert (first.owned, first.reason, first.waited_s) == (True, "owned", 0.0)
        with claim(locks, path, 0.0) as second:
            assert (second.owned, second.reason) == (False, "timeout")
        with claim(locks, path, 0.02) as second:
            assert (second.owned, second.reason) == (False, "timeout")
            assert second.waited_s >= 0.02
    with claim(locks, path, 0.0) as third:
        assert third.owned


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.EOPNOTSUPP, errno.ESTALE, errno.EROFS, errno.ENOSYS])
def test_where_locks_do_not_work_nobody_waits(tmp_path, code):
    with claim(BrokenLocks(code), str(tmp_path / "x.lock"), 600.0) as given:
        assert (given.owned, given.reason, given.waited_s) == (False, "unsupported", 0.0)


def test_a_missing_directory_is_no_lock(tmp_path):
    with claim(OSLocks(), str(tmp_path / "absent" / "x.lock"), 600.0) as given:
        assert given.reason == "unsupported"


def test_an_error_in_the_block_frees_the_claim_and_passes(tmp_path):
    locks, path = OSLocks(), str(tmp_path / "x.lock")
    with pytest.raises(KeyboardInterrupt), claim(locks, path, 0.0):
        raise KeyboardInterrupt
    with claim(locks, path, 0.0) as again:
        assert again.owned


def test_unrelated_keys_do_not_wait(tmp_path):
    store = Store(tmp_path / "s")
    with store.claim(make_entry(1).key, 0.0) as first, store.claim(make_entry(2).key, 0.0) as second:
        assert first.owned
        assert second.owned


def test_stores_that_write_nothing_give_claims_at_once(tmp_path):
    Store(tmp_path / "s").put(make_entry(1))
    for store in (Store(None), Store(tmp_path / "s", read_only=True), Store(tmp_path / "s", locks=BrokenLocks())):
        with store.claim(make_entry(1).key, 600.0) as given:
            assert not given.owned
    assert not (tmp_path / "s" / "v1" / "locks").exists() or os.listdir(tmp_path / "s" / "v1" / "locks") == []


def test_a_lock_on_a_file_that_its_last_owner_removed_is_no_lock(tmp_path, monkeypatch):
    path, flock = str(tmp_path / "x.lock"), fcntl.flock

    def flock_after_removal(fd, operation):
        os.unlink(path)  # as another owner's release does, between our open and our lock
        flock(fd, operation)

    locks = OSLocks()
    with monkeypatch.context() as patched:
        patched.setattr(fcntl, "flock", flock_after_removal)
        assert locks.acquire(path) is None
    with claim(locks, path, 0.0) as again:
        assert again.owned


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
def test_a_forked_child_has_no_claim_and_does_not_keep_its_parents(tmp_path):
    locks, path = OSLocks(), str(tmp_path / "x.lock")
    ready_read, ready_write = os.pipe()
    end_read, end_write = os.pipe()
    with claim(locks, path, 0.0) as mine:
        assert mine.owned
        pid = os.fork()
        if pid == 0:  # the child leaves the block as a whole process would, while the parent's goes on
            with claim(locks, path, 0.0) as childs:
                os.write(ready_write, b"o" if childs.owned else b"n")
            os.read(end_read, 1)
            os._exit(0)
        childs_answer = os.read(ready_read, 1)
    try:
        assert childs_answer == b"n"
        with claim(locks, path, 0.0) as again:
            assert again.owned, "the living child does not hold it"
    finally:
        os.write(end_write, b"x")
        os.waitpid(pid, 0)
        for fd in (ready_read, ready_write, end_read, end_write):
            os.close(fd)
