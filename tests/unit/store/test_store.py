import os
import sys
from pathlib import Path

import pytest

import prejit.store as store_module
from prejit.errors import CorruptEntry, EntryTooLarge, StoreUnavailable, StoreWarning
from prejit.store import CacheEntry, Store
from prejit.testing import make_entry

PATHS = {"PYTHONPATH": os.pathsep.join(sys.path)}


def entry_file(directory, number=1):
    key = make_entry(number).key
    return directory / "v1" / key[:2] / f"{key}.entry"


def test_opening_and_looking_make_nothing(tmp_path):
    store = Store(tmp_path / "s")
    assert store.lookup(make_entry(1).key).reason == "no store directory"
    assert (store.keys(), list(store.items()), store.hits(make_entry(1).key)) == ([], [], 0)
    assert store.stats().state == "ok"
    assert store.verify().checked == 0
    store.gc()
    store.clear()
    store.flush()
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("nothing", [None, ""])
def test_no_path_is_memory_only(nothing):
    store = Store(nothing)
    assert store.path is None
    assert store.stats().state == "memory only"
    assert repr(store) == "Store(None)"


def test_paths(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert Store("s").path == tmp_path / "s"
    assert Store(tmp_path / "s").path == tmp_path / "s"
    assert Store("~/s").path == tmp_path.home() / "s"


def test_one_file_per_entry_and_nothing_at_the_top(tmp_path):
    store = Store(tmp_path / "s")
    store.put(make_entry(1))
    assert os.listdir(tmp_path / "s") == ["v1"]
    assert entry_file(tmp_path / "s").read_bytes()[:8] == b"\x89prejit\n"
    assert CacheEntry.from_bytes(entry_file(tmp_path / "s").read_bytes()) == make_entry(1)


def test_entries_can_be_copied_to_another_machine(tmp_path):
    import shutil

    Store(tmp_path / "a").put(make_entry(1))
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    assert Store(tmp_path / "b").get(make_entry(1).key) == make_entry(1)


def test_tiers_are_named(tmp_path):
    store = Store(tmp_path / "s")
    store.put(make_entry(1))
    assert store.lookup(make_entry(1).key).tier == "memory"
    store.clear(tier="memory")
    assert store.lookup(make_entry(1).key).tier == "disk"
    assert store.lookup(make_entry(1).key).tier == "memory"
    store.clear(tier="disk")
    assert store.lookup(make_entry(1).key).tier == "memory"
    with pytest.raises(ValueError, match="'memory', 'disk' or None"):
        store.clear(tier="tape")


def test_a_damaged_entry_is_counted_quarantined_and_repaired(tmp_path):
    store = Store(tmp_path / "s", memory_max_size=0)
    store.put(make_entry(1))
    entry_file(tmp_path / "s").write_bytes(b"garbage")
    found = store.lookup(make_entry(1).key)
    assert (found.outcome, found.entry, found.reason) == ("corrupt", None, "truncated")
    assert not entry_file(tmp_path / "s").exists()
    assert [path.read_bytes() for path in (tmp_path / "s/v1/quarantine").iterdir()] == [b"garbage"]
    assert store.lookup(make_entry(1).key).outcome == "miss"
    store.put(make_entry(1))
    assert store.get(make_entry(1).key) == make_entry(1)
    assert store.stats().corrupt == 1


def test_a_put_repairs_what_nobody_has_read(tmp_path):
    store = Store(tmp_path / "s", memory_max_size=0)
    store.put(make_entry(1))
    entry_file(tmp_path / "s").write_bytes(b"garbage")
    assert store.put(make_entry(1))
    assert store.get(make_entry(1).key) == make_entry(1)


def test_an_entry_under_another_name_is_corrupt(tmp_path):
    store = Store(tmp_path / "s", memory_max_size=0)
    store.put(make_entry(1))
    store.put(make_entry(2))
    os.replace(entry_file(tmp_path / "s", 1), entry_file(tmp_path / "s", 2))
    assert store.lookup(make_entry(2).key).reason == "misplaced"
    assert store.keys() == []


def test_pickled_bytes_are_never_unpickled(tmp_path, run_python):
    code = """
import os, pickle, sys, decimal
from prejit.store import Store
from prejit.testing import make_entry

class Evil:
    def __reduce__(self):
        return (open, (sys.argv[1] + "/owned", "w"))

found = []
sys.addaudithook(lambda event, args: found.append(event) if event == "pickle.find_class" else None)
store = Store(sys.argv[1] + "/s", memory_max_size=0)
key = make_entry(1).key
store.put(make_entry(1))
with open(f"{sys.argv[1]}/s/v1/{key[:2]}/{key}.entry", "wb") as file:
    file.write(pickle.dumps(Evil()))
assert store.lookup(key).outcome == "corrupt"
store.put(make_entry(1))
assert store.verify().is_clean and store.get(key) and list(store.items())
assert found == [], found
pickle.loads(pickle.dumps(decimal.Decimal(1)))
assert found, "the hook works"
"""
    run_python(code, tmp_path, env=PATHS)
    assert not (tmp_path / "owned").exists()


def test_a_newer_format_is_a_clean_miss_and_stays(tmp_path):
    import hashlib
    import struct

    store = Store(tmp_path / "s", memory_max_size=0)
    store.put(make_entry(1))
    frame = struct.pack("<8sIIQ32s", b"\x89prejit\n", 2, 5, 93, bytes(32))
    newer = frame + hashlib.sha256(frame).digest() + b"newer"
    entry_file(tmp_path / "s").write_bytes(newer)
    found = store.lookup(make_entry(1).key)
    assert (found.outcome, found.reason) == ("miss", "format version 2")
    assert not store.put(make_entry(1)), "its place is taken"
    assert store.verify().unsupported == (make_entry(1).key,)
    assert store.verify().is_clean
    assert list(store.items()) == []
    stats = store.stats()
    assert (stats.entries, stats.unreadable_entries, stats.errors, stats.rejected) == (1, 1, 0, 1)
    assert entry_file(tmp_path / "s").read_bytes() == newer
    store.clear()
    assert not entry_file(tmp_path / "s").exists(), "clearing is asked for"


def test_verify_finds_and_moves_the_damaged(tmp_path):
    store = Store(tmp_path / "s")
    for number in range(4):
        store.put(make_entry(number))
    data = bytearray(entry_file(tmp_path / "s", 2).read_bytes())
    data[-1] ^= 1
    entry_file(tmp_path / "s", 2).write_bytes(data)
    report = store.verify()
    assert (report.checked, report.intact, report.corrupt, report.quarantined) == (4, 3, (make_entry(2).key,), 1)
    assert not report.is_clean
    assert store.verify().is_clean


def test_quarantine_is_bounded(tmp_path):
    store = Store(tmp_path / "s", memory_max_size=0)
    for number in range(40):
        store.put(make_entry(number))
        entry_file(tmp_path / "s", number).write_bytes(b"garbage")
    assert store.verify().quarantined == 40
    assert len(os.listdir(tmp_path / "s/v1/quarantine")) == 16


def test_info_reads_headers_only(tmp_path):
    store = Store(tmp_path / "s", memory_max_size=0)
    store.put(make_entry(1, size_bytes=100_000))
    data = bytearray(entry_file(tmp_path / "s").read_bytes())
    data[-1] ^= 1
    entry_file(tmp_path / "s").write_bytes(data)
    assert store.info(make_entry(1).key).size_bytes == len(data)
    big = CacheEntry(key="ab" * 32, kind="plan", name="f", meta={"x": "y" * 50_000})
    store.put(big)
    assert store.info(big.key).kind == "plan"


def test_what_is_too_large_is_not_stored_and_evicts_nothing(tmp_path):
    store = Store(tmp_path / "s", max_size=5000)
    store.put(make_entry(1, size_bytes=1000))
    assert not store.put(make_entry(2, size_bytes=6000))
    stats = store.stats()
    assert (stats.entries, stats.too_large, stats.rejected, stats.evictions, stats.errors) == (1, 1, 1, 0, 0)
    assert store.get(make_entry(2).key), "this process still has it in memory"
    with pytest.raises(EntryTooLarge):
        Store(tmp_path / "s", max_size=5000, strict=True).put(make_entry(3, size_bytes=6000))


def test_the_least_recently_used_goes(tmp_path):
    told = []
    store = Store(tmp_path / "s", max_size=10_000, memory_max_size=0, on_event=lambda *event: told.append(event))
    for number in range(1, 4):
        store.put(make_entry(number, size_bytes=2500))
        os.utime(entry_file(tmp_path / "s", number), (number, number))
    later = Store(tmp_path / "s", max_size=10_000, memory_max_size=0)
    later.get(make_entry(1).key)
    later.flush()
    assert store.put(make_entry(4, size_bytes=2500))
    assert store.stats().evictions == 1
    present = store.keys()
    assert make_entry(2).key not in present, "the hit in the other process saved the oldest file"
    assert [key for name, key, _ in told if name == "store.evict"] == [make_entry(2).key]


def test_gc_brings_a_grown_store_under_a_smaller_cap(tmp_path):
    Store(tmp_path / "s").put(make_entry(0))
    for number in range(1, 10):
        Store(tmp_path / "s").put(make_entry(number, size_bytes=1000))
    small = Store(tmp_path / "s", max_size=5000)
    report = small.gc()
    assert report.evicted
    assert report.freed_bytes >= 4000
    assert small.stats().size_bytes <= 5000
    assert small.stats().evictions == len(report.evicted)


def test_a_read_only_store_reads_and_writes_nothing(tmp_path):
    Store(tmp_path / "s").put(make_entry(1))
    before = sorted((where, names) for where, _, names in os.walk(tmp_path))
    store = Store(tmp_path / "s", read_only=True)
    assert store.get(make_entry(1).key) == make_entry(1)
    assert store.hits(make_entry(1).key) == 1
    assert not store.put(make_entry(2))
    assert store.get(make_entry(2).key) == make_entry(2), "in memory"
    store.gc()
    store.flush()
    assert store.stats().state == "read-only"
    assert sorted((where, names) for where, _, names in os.walk(tmp_path)) == before


def test_strict_raises_what_otherwise_is_counted(tmp_path):
    (tmp_path / "file").write_text("")
    store = Store(tmp_path / "file" / "s", strict=True)
    with pytest.raises(StoreUnavailable) as caught:
        store.put(make_entry(1))
    assert "PREJIT_CACHE_DIR" in caught.value.hint
    store = Store(tmp_path / "s", strict=True, memory_max_size=0)
    store.put(make_entry(1))
    entry_file(tmp_path / "s").write_bytes(b"garbage")
    with pytest.raises(CorruptEntry) as corrupt:
        store.lookup(make_entry(1).key)
    assert corrupt.value.path == str(entry_file(tmp_path / "s"))
    assert store.lookup(make_entry(1).key).outcome == "miss", "it was moved away all the same"


def test_a_directory_that_cannot_be_made_is_one_warning(tmp_path):
    (tmp_path / "file").write_text("")
    store = Store(tmp_path / "file" / "s")

    def use():
        for number in range(5):
            assert store.lookup(make_entry(number).key).outcome == "miss"
            store.put(make_entry(number))
            assert store.get(make_entry(number).key) == make_entry(number)
            with store.claim(make_entry(number).key):
                pass
        list(store.items())
        store.gc()
        store.clear()

    with pytest.warns(StoreWarning) as caught:
        use()
    assert len(caught) == 1
    assert "hint: set PREJIT_CACHE_DIR" in str(caught[0].message)
    stats = store.stats()
    assert stats.state == "unavailable"
    assert stats.errors >= 10
    assert stats.rejected == 5


def test_a_full_process_counts_hits_at_exit(tmp_path, run_python):
    Store(tmp_path / "s").put(make_entry(1))
    code = (
        "import sys; from prejit.store import Store; from prejit.testing import make_entry; "
        "s = Store(sys.argv[1], read_only=len(sys.argv) > 2); assert s.get(make_entry(1).key)"
    )
    for _ in range(3):
        run_python(code, tmp_path / "s", env=PATHS)
    run_python(code, tmp_path / "s", "read only", env=PATHS)
    assert Store(tmp_path / "s").hits(make_entry(1).key) == 3


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
def test_a_forked_child_uses_the_store_and_counts_its_own_hits(tmp_path):
    store = Store(tmp_path / "s")
    store.put(make_entry(1))
    store.get(make_entry(1).key)
    pid = os.fork()
    if pid == 0:
        is_right = store.get(make_entry(1).key) == make_entry(1) and store.put(make_entry(2))
        store.flush()
        os._exit(0 if is_right else 1)
    assert os.waitpid(pid, 0)[1] == 0
    assert store.get(make_entry(2).key) == make_entry(2)
    assert store.hits(make_entry(1).key) == 2


def test_importing_the_store_needs_no_jax(run_python):
    code = """
import sys, types
package = types.ModuleType("prejit")  # its own __init__ may need JAX, the store may not
package.__path__ = [sys.argv[1]]
sys.modules |= {"prejit": package, "jax": None, "jaxlib": None}
import prejit.store
print("platformdirs" in sys.modules, "importlib.metadata" in sys.modules)
"""
    assert run_python(code, Path(store_module.__file__).parents[1], env=PATHS).stdout.split() == ["False", "False"]
