"""The clock is set back or forward while the store is in use."""

import os
import time

import pytest

from prejit.store import Store
from prejit.store.eviction import Candidate, choose_victims
from prejit.testing import make_entry


class Clock:
    def __init__(self):
        self.offset_s = 0.0

    def __call__(self):
        return time.time() + self.offset_s


DAY_S = 86400.0


@pytest.mark.parametrize("jump_s", [-400 * DAY_S, -DAY_S, DAY_S, 400 * DAY_S])
def test_entries_survive_and_the_cap_holds(tmp_path, jump_s):
    clock = Clock()
    store = Store(tmp_path / "s", max_size=10_000, memory_max_size=0, clock=clock)
    store.put(make_entry(1, size_bytes=2500))
    store.get(make_entry(1).key)
    store.flush()
    clock.offset_s = jump_s
    for number in range(2, 12):
        entry = make_entry(number, size_bytes=2500)
        assert store.put(entry)
        assert store.get(entry.key) == entry, "what was just published is there"
        assert store.stats().size_bytes <= 10_000
    assert store.stats().evictions == 8
    assert store.hits(make_entry(1).key) in (0, 1)


def test_a_last_use_in_the_future_makes_nothing_immortal(tmp_path):
    clock = Clock()
    clock.offset_s = 400 * DAY_S
    ahead = Store(tmp_path / "s", memory_max_size=0, clock=clock)
    for number in (1, 2):
        ahead.put(make_entry(number, size_bytes=2400))
    ahead.get(make_entry(1).key)
    ahead.flush()
    Store(tmp_path / "s").put(make_entry(3, size_bytes=2400))
    store = Store(tmp_path / "s", max_size=10_000)
    store.put(make_entry(4, size_bytes=2400))
    assert store.stats().evictions == 1
    assert sorted(store.keys()) == sorted(make_entry(number).key for number in (2, 3, 4))


def test_a_little_skew_between_machines_is_no_jump():
    ahead, behind = Candidate("a", 60, 1010.0), Candidate("b", 60, 990.0)
    assert choose_victims([ahead, behind], 100, now=1000.0) == [behind]


def test_a_draft_from_the_future_is_left_to_its_writer(tmp_path):
    store = Store(tmp_path / "s")
    store.put(make_entry(1))
    (tmp_path / "s/v1/tmp/1.tmp").write_text("")
    later = time.time() + DAY_S
    os.utime(tmp_path / "s/v1/tmp/1.tmp", (later, later))
    assert store.gc().drafts == 0


def test_waiting_for_a_claim_does_not_look_at_the_clock(tmp_path):
    clock = Clock()
    store = Store(tmp_path / "s", clock=clock)
    with store.claim(make_entry(1).key, 0.0):
        clock.offset_s = -400 * DAY_S
        with store.claim(make_entry(1).key, 0.02) as second:
            assert second.reason == "timeout"
