"""Several processes publish, read, evict and count at once."""

import os
import subprocess
import sys

import pytest

from prejit.store import Store
from prejit.testing import make_entry

SAME_KEY = """
import sys
from prejit.store import Store
from prejit.testing import make_entry
entry = make_entry(1, size_bytes=300_000)
sys.stdin.readline()
wrong = 0
for _ in range(30):
    store = Store(sys.argv[1], memory_max_size=0)
    found = store.lookup(entry.key)
    wrong += found.outcome not in ("hit", "miss") or found.entry not in (None, entry)
    wrong += not store.put(entry)
    wrong += store.get(entry.key) != entry
print(wrong)
"""

ONE_WORKS = """
import sys
from prejit.store import Store
from prejit.testing import make_entry
store, entry, worked = Store(sys.argv[1], memory_max_size=0), make_entry(1), 0
sys.stdin.readline()
with store.claim(entry.key, 60.0) as claim:
    if store.get(entry.key) is None:
        worked = 1
        store.put(entry)
print(worked)
"""

SMALL_CAP = """
import sys
from prejit.store import Store
from prejit.testing import make_entry
store = Store(sys.argv[1], max_size=20_000, memory_max_size=0)
sys.stdin.readline()
wrong = 0
for number in range(100):
    entry = make_entry(number % 25, size_bytes=2000)
    found = store.lookup(entry.key)
    wrong += found.outcome not in ("hit", "miss") or found.entry not in (None, entry)
    if found.entry is None:
        wrong += not store.put(entry)
    if number % 20 == 0:
        store.gc()
wrong += store.stats().errors + store.stats().corrupt
print(wrong)
"""

COUNT = """
import sys
from prejit.store import Store
from prejit.testing import make_entry
store = Store(sys.argv[1])
sys.stdin.readline()
for _ in range(150):
    assert store.get(make_entry(1).key)
print(0)
"""


@pytest.fixture
def at_once(tmp_path):
    """Run one program in four processes that start together; returns what they print."""
    processes = []

    def run(code):
        processes.extend(
            subprocess.Popen(
                [sys.executable, "-W", "error", "-c", code, str(tmp_path / "s")],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
            )
            for _ in range(4)
        )
        for process in processes:
            process.stdin.write("go\n")
            process.stdin.flush()
        return [process.communicate(timeout=120)[0].strip() for process in processes]

    yield run
    for process in processes:
        process.kill()
        process.communicate()


def left_behind(path):
    return [name for _, _, names in os.walk(path) for name in names if name.endswith((".tmp", ".draft", ".lock"))]


def test_one_key_is_always_whole_and_nothing_is_left(tmp_path, at_once):
    assert at_once(SAME_KEY) == ["0"] * 4
    store = Store(tmp_path / "s")
    assert store.keys() == [make_entry(1).key]
    assert store.verify().is_clean
    assert left_behind(tmp_path) == []
    assert not (tmp_path / "s/v1/quarantine").exists()


def test_a_claim_has_one_process_work(tmp_path, at_once):
    assert sorted(at_once(ONE_WORKS)) == ["0", "0", "0", "1"]
    assert left_behind(tmp_path) == []


def test_evicting_at_once_is_harmless(tmp_path, at_once):
    assert at_once(SMALL_CAP) == ["0"] * 4
    store = Store(tmp_path / "s", max_size=20_000)
    store.gc()
    assert store.stats().size_bytes <= 20_000
    assert store.verify().is_clean
    assert left_behind(tmp_path) == []


def test_hits_of_all_processes_add_up(tmp_path, at_once):
    Store(tmp_path / "s").put(make_entry(1))
    assert at_once(COUNT) == ["0"] * 4
    assert Store(tmp_path / "s").hits(make_entry(1).key) == 600
