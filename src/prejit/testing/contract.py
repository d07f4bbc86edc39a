"""What every store must do, as tests to run on yours.

Subclass `StoreContract` in a test module, override `make_store`, and pytest runs the suite.
"""

# ruff: noqa: D102 -- the names of the tests say what they check

import os
import threading
from pathlib import Path

from prejit.store import CacheEntry, Store

__all__ = ["StoreContract", "make_entry"]


def make_entry(number: int = 0, *, size_bytes: int = 64, name: str = "f", kind: str = "module") -> CacheEntry:
    """Make an entry whose key and payload follow from a number.

    Args:
        number: Which entry; equal numbers give equal entries.
        size_bytes: Size of its payload, which does not compress.
        name: Name of the function.
        kind: Kind of the entry.

    Returns:
        The entry.

    Example:
        >>> make_entry(1) == make_entry(1), make_entry(1).key == make_entry(2).key
        (True, False)
    """
    import hashlib
    import random

    payload = random.Random(number).randbytes(size_bytes)  # a test's payload, not a secret
    return CacheEntry(
        key=hashlib.sha256(f"entry {number}".encode()).hexdigest(),
        kind=kind,  # pyright: ignore[reportArgumentType]  # checked when the entry is made
        name=name,
        created=1_700_000_000.0 + number,
        ingredients=(("identity", "name", name),),
        meta={"in_avals": [["float32", [3]]], "out_avals": [["float32", []]]},
        sections={"payload": payload},
    )


class StoreContract:
    """Run the promises of `Store` as tests; pytest collects the subclass.

    Example:
        >>> class TestMine(StoreContract):
        ...     def make_store(self, path: Path) -> Store:
        ...         return Store(path / "mine")
    """

    survives_the_process = True

    def make_store(self, path: Path) -> Store:
        """Open the store below a directory of the test's own; called again for what a later process would see."""
        return Store(path / "store")

    def test_what_was_put_is_got(self, tmp_path: Path) -> None:
        store, entry = self.make_store(tmp_path), make_entry(1)
        assert store.put(entry)
        assert store.get(entry.key) == entry
        store.clear(tier="memory")
        assert store.get(entry.key) == (entry if self.survives_the_process else None)

    def test_an_absent_key_is_a_miss(self, tmp_path: Path) -> None:
        store = self.make_store(tmp_path)
        found = store.lookup(make_entry(1).key)
        assert (found.outcome, found.entry, found.tier) == ("miss", None, None)
        assert found.reason

    def test_a_second_put_replaces_the_first(self, tmp_path: Path) -> None:
        store = self.make_store(tmp_path)
        first, second = make_entry(1, name="a"), make_entry(1, name="b")
        assert store.put(first)
        assert store.put(second)
        store_later = self.make_store(tmp_path) if self.survives_the_process else store
        assert store_later.get(first.key) == second
        assert store.keys() == [first.key]

    def test_an_object_with_a_digest_is_a_key(self, tmp_path: Path) -> None:
        class Key:
            digest = make_entry(3).key

        store = self.make_store(tmp_path)
        store.put(make_entry(3))
        assert store.lookup(Key()).is_hit
        assert store.hits(Key()) == 1

    def test_a_key_that_is_no_digest_is_an_error(self, tmp_path: Path) -> None:
        store = self.make_store(tmp_path)
        for wrong in ("", "../../etc/passwd", "AB" * 32, "ab" * 31):
            try:
                store.lookup(wrong)
            except ValueError as error:
                assert "64 hex digits" in str(error)  # noqa: PT017 -- no pytest in the library
            else:
                raise AssertionError(wrong)

    def test_keys_items_and_info_agree(self, tmp_path: Path) -> None:
        store = self.make_store(tmp_path)
        entries = [make_entry(n, name=f"f{n}") for n in range(5)]
        for entry in entries:
            store.put(entry)
        listed = dict(store.items())
        assert sorted(listed) == store.keys() == sorted(entry.key for entry in entries)
        for entry in entries:
            info = store.info(entry.key)
            assert info == listed[entry.key]
            assert (info.name, info.kind, info.digest, info.variant) == (entry.name, "module", entry.key, "")
            assert info.created == entry.created
            assert info.size_bytes >= 64
            assert info.hits == 0

    def test_info_of_an_absent_key_is_a_key_error(self, tmp_path: Path) -> None:
        store = self.make_store(tmp_path)
        try:
            store.info(make_entry(1).key)
        except KeyError:
            return
        raise AssertionError("no KeyError")

    def test_hits_are_counted_per_key(self, tmp_path: Path) -> None:
        store = self.make_store(tmp_path)
        store.put(make_entry(1))
        store.put(make_entry(2))
        for _ in range(3):
            store.get(make_entry(1).key)
        store.get(make_entry(9).key)
        assert [store.hits(make_entry(n).key) for n in (1, 2, 9)] == [3, 0, 0]
        if self.survives_the_process:
            store.flush()
            later = self.make_store(tmp_path)
            later.get(make_entry(1).key)
            assert later.hits(make_entry(1).key) == store.hits(make_entry(1).key) == 4

    def test_stats_count_what_happened(self, tmp_path: Path) -> None:
        store = self.make_store(tmp_path)
        store.put(make_entry(1))
        store.put(make_entry(2, kind="executable"))
        store.get(make_entry(1).key)
        store.get(make_entry(9).key)
        stats = store.stats()
        assert (stats.entries, stats.hits, stats.misses, stats.puts) == (2, 1, 1, 2)
        assert (stats.corrupt, stats.refused, stats.evictions, stats.errors, stats.rejected) == (0, 0, 0, 0, 0)
        assert {kind: counts.entries for kind, counts in stats.kinds.items()} == {"module": 1, "executable": 1}
        assert stats.size_bytes == sum(counts.size_bytes for counts in stats.kinds.values())

    def test_clearing_forgets(self, tmp_path: Path) -> None:
        store = self.make_store(tmp_path)
        store.put(make_entry(1))
        store.clear()
        assert store.get(make_entry(1).key) is None
        assert store.keys() == []
        assert store.put(make_entry(1)), "a cleared store goes on"

    def test_clearing_memory_tells_listeners_that_still_live(self, tmp_path: Path) -> None:
        class Listener:
            calls = 0

            def forget(self) -> None:
                self.calls += 1

        store = self.make_store(tmp_path)
        kept, dropped = Listener(), Listener()
        store.add_clear_listener(kept.forget)
        store.add_clear_listener(dropped.forget)
        del dropped
        store.clear(tier="memory")
        store.clear(tier="disk")
        store.clear()
        assert kept.calls == 2

    def test_a_fresh_store_is_clean(self, tmp_path: Path) -> None:
        store = self.make_store(tmp_path)
        store.put(make_entry(1))
        assert store.verify().is_clean
        assert store.gc().evicted == ()
        assert store.get(make_entry(1).key) == make_entry(1)

    def test_a_claim_never_stands_in_the_way(self, tmp_path: Path) -> None:
        store = self.make_store(tmp_path)
        with store.claim(make_entry(1).key, timeout_s=5.0), store.claim(make_entry(2).key, timeout_s=5.0):
            store.put(make_entry(1))
        with store.claim(make_entry(1).key, timeout_s=5.0):
            assert store.get(make_entry(1).key) == make_entry(1)

    def test_threads_share_it(self, tmp_path: Path) -> None:
        store = self.make_store(tmp_path)
        wrong: list[int] = []

        def work(offset: int) -> None:
            for n in range(20):
                number = (n + offset) % 10
                store.put(make_entry(number))
                if store.get(make_entry(number).key) != make_entry(number):
                    wrong.append(number)

        threads = [threading.Thread(target=work, args=(offset,)) for offset in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert wrong == []
        assert len(store.keys()) == 10
        assert store.stats().hits == 80

    def test_no_draft_is_left(self, tmp_path: Path) -> None:
        store = self.make_store(tmp_path)
        for number in range(5):
            store.put(make_entry(number))
        left = [
            name for _, _, names in os.walk(tmp_path) for name in names if name.endswith((".tmp", ".draft", ".lock"))
        ]
        assert left == []
