"""What eviction promises, whatever the store holds and whatever the clock shows."""

import os
import shutil
import tempfile

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from prejit.store import BoundedCache, Store
from prejit.store.eviction import Candidate, choose_victims
from prejit.testing import make_entry

candidates = st.lists(
    st.builds(
        Candidate,
        digest=st.text("ab", min_size=1, max_size=8),
        size_bytes=st.integers(0, 100),
        last_used=st.floats(-1e3, 1e4),
        is_fresh=st.booleans(),
    ),
    max_size=20,
    unique_by=lambda candidate: candidate.digest,
)


def credible(last_used, now):
    return 0.0 if last_used > now + 3600 else min(last_used, now)


@given(candidates, st.integers(0, 1000), st.floats(0, 1e3), st.integers(0, 19))
def test_victims(found, cap_bytes, now, pinned_index):
    if found and found[pinned_index % len(found)].size_bytes <= cap_bytes:
        pinned = found[pinned_index % len(found)]
        found[pinned_index % len(found)] = pinned = Candidate(
            pinned.digest, pinned.size_bytes, pinned.last_used, is_pinned=True
        )
    else:
        pinned = None
    victims = choose_victims(found, cap_bytes, now=now)
    kept = [candidate for candidate in found if candidate not in victims]
    total_bytes = sum(candidate.size_bytes for candidate in found)
    kept_bytes = sum(candidate.size_bytes for candidate in kept)

    assert kept_bytes <= cap_bytes
    assert pinned not in victims
    assert len(set(victims)) == len(victims)
    if total_bytes <= cap_bytes:
        assert victims == []
    if any(victim.is_fresh for victim in victims):
        assert all(candidate.is_fresh or candidate.is_pinned for candidate in kept), "fresh ones go last"
        assert kept_bytes + victims[-1].size_bytes > cap_bytes, "and only as far as needed"
    for is_fresh in (True, False):
        newest_victim = max((credible(v.last_used, now) for v in victims if v.is_fresh == is_fresh), default=None)
        rivals = [c for c in kept if c.is_fresh == is_fresh and not c.is_pinned]
        if newest_victim is not None:
            assert all(credible(c.last_used, now) >= newest_victim for c in rivals), "least recently used first"
    assert choose_victims(reversed(found), cap_bytes, now=now) == victims, "order of listing does not matter"
    assert choose_victims(kept, cap_bytes, now=now) == []


@given(st.integers(0, 50), st.lists(st.tuples(st.integers(0, 9), st.integers(0, 30)), max_size=40))
def test_a_bounded_cache_is_bounded(max_weight, puts):
    evicted = []
    cache = BoundedCache(max_weight, on_evict=lambda key, value: evicted.append((key, value)))
    for number, (key, weight) in enumerate(puts):
        is_kept = cache.put(key, (number, weight), weight)
        assert is_kept == (weight <= max_weight) == (key in cache)
        assert cache.weight == sum(weight for _, weight in cache.values()) <= max_weight
    assert not {number for _, (number, _) in evicted} & {number for number, _ in cache.values()}


class StoreWithCap(RuleBasedStateMachine):
    """Any order of puts and gets by two stores on one directory keeps the cap and returns right entries."""

    cap_bytes = 4000

    def __init__(self):
        super().__init__()
        self.directory = tempfile.mkdtemp()
        self.stores = [Store(self.directory + "/s", max_size=self.cap_bytes, memory_max_size=0) for _ in range(2)]
        self.last_put = None

    def teardown(self):
        shutil.rmtree(self.directory)

    @rule(which=st.integers(0, 1), number=st.integers(0, 20))
    def put(self, which, number):
        size_bytes = 5000 if number == 20 else number * 100
        before = set(self.stores[which].keys())
        is_kept = self.stores[which].put(make_entry(number, size_bytes=size_bytes))
        assert is_kept == (number != 20)
        if is_kept:
            self.last_put = make_entry(number, size_bytes=size_bytes)
        else:
            assert set(self.stores[which].keys()) == before, "what is too large evicts nothing"

    @rule(which=st.integers(0, 1), number=st.integers(0, 20))
    def get(self, which, number):
        found = self.stores[which].lookup(make_entry(number, size_bytes=number * 100).key)
        assert found.outcome in ("hit", "miss")
        assert found.entry in (None, make_entry(number, size_bytes=number * 100))

    @rule(which=st.integers(0, 1))
    def collect(self, which):
        self.stores[which].gc()
        assert self.size_bytes() <= self.cap_bytes

    @precondition(lambda self: self.last_put is not None)
    @rule(which=st.integers(0, 1))
    def what_was_put_last_is_there(self, which):
        assert self.stores[which].get(self.last_put.key) == self.last_put

    @invariant()
    def within_what_two_processes_may_overshoot(self):
        assert self.size_bytes() <= 2 * self.cap_bytes

    def size_bytes(self):
        return sum(
            os.path.getsize(os.path.join(where, name))
            for where, _, names in os.walk(self.directory)
            for name in names
            if name.endswith(".entry")
        )


StoreWithCap.TestCase.settings = settings(max_examples=30, stateful_step_count=30, deadline=None)
TestStoreWithCap = StoreWithCap.TestCase
