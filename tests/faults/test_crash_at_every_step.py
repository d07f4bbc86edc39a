"""The process dies between any two things that it does to the disk; the next one finds a store that works."""

import os
import time

import pytest

from prejit.store import Store
from prejit.testing import FaultyFileSystem, SimulatedCrash, make_entry

OLD, NEW = make_entry(1, name="old", size_bytes=400), make_entry(1, name="new", size_bytes=400)


def put_first(store):
    store.put(NEW)


def replace(store):
    store.put(NEW)


def evict(store):
    store.put(make_entry(2, size_bytes=700))
    store.put(make_entry(3, size_bytes=700))


def quarantine(store):
    store.get(OLD.key)


def collect(store):
    store.gc()


def clear(store):
    store.clear()


def count_hits(store):
    store.get(OLD.key)
    store.flush()


@pytest.mark.parametrize("work", [put_first, replace, evict, quarantine, collect, clear, count_hits])
def test_the_next_process_finds_a_store_that_works(tmp_path, work):
    steps = 0
    while True:
        path = tmp_path / str(steps)
        if work is not put_first:
            Store(path, max_size=2500).put(OLD)
        if work is quarantine:
            [file] = path.rglob("*.entry")
            file.write_bytes(file.read_bytes()[:-1] + b"?")
        files = FaultyFileSystem(crash_at=steps)
        try:
            work(Store(path, max_size=2500, memory_max_size=0, fs=files))
        except SimulatedCrash:
            check(path)
        else:
            break
        steps += 1
    assert steps >= {put_first: 7, replace: 5, evict: 10, quarantine: 2, collect: 0, clear: 1, count_hits: 3}[work]


def check(path):
    later = Store(path, max_size=2500, memory_max_size=0)
    found = later.lookup(NEW.key)
    assert found.entry in (None, OLD, NEW)
    assert found.outcome in ("hit", "miss", "corrupt")
    for number in (2, 3):
        assert later.lookup(make_entry(number, size_bytes=700).key).outcome in ("hit", "miss")
    assert later.put(NEW)
    assert later.get(NEW.key) == NEW
    later.gc()
    assert later.verify().is_clean
    assert later.stats().size_bytes <= 2500
    # What the dead process left is not kept for ever.
    old = time.time() - 7200
    for where, _, names in os.walk(path):
        for name in names:
            if name.endswith((".tmp", ".draft", ".lock")):
                os.utime(os.path.join(where, name), (old, old))
    later.gc()
    assert not [name for _, _, names in os.walk(path) for name in names if name.endswith((".tmp", ".draft", ".lock"))]
    assert later.get(NEW.key) == NEW


def test_the_drafts_of_living_processes_are_left_alone(tmp_path):
    Store(tmp_path).put(OLD)
    (tmp_path / "v1/tmp/1.tmp").write_text("being written")
    assert Store(tmp_path).gc().drafts == 0
    old = time.time() - 7200
    os.utime(tmp_path / "v1/tmp/1.tmp", (old, old))
    assert Store(tmp_path).gc().drafts == 1


def test_the_first_put_of_a_process_sweeps_up(tmp_path):
    Store(tmp_path).put(OLD)
    for name in ("tmp/1.tmp", "locks/1.lock"):
        (tmp_path / "v1" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "v1" / name).write_text("")
        os.utime(tmp_path / "v1" / name, (1, 1))
    Store(tmp_path).put(make_entry(2))
    assert os.listdir(tmp_path / "v1/tmp") == os.listdir(tmp_path / "v1/locks") == []
