import os
import threading

import pytest

from prejit.store import OSFileSystem
from prejit.store.usage import Usage, Use
from prejit.testing import FaultyFileSystem, SimulatedCrash

KEYS = [f"{n:064x}" for n in range(5)]


class Clock:
    def __init__(self, now=1_000_000.0):
        self.now = now

    def __call__(self):
        return self.now


def open_usage(tmp_path, clock=None, files=None):
    return Usage(files or OSFileSystem(), lambda for_writing: str(tmp_path), clock or Clock())


def test_uses_of_several_processes_add_up(tmp_path):
    clock = Clock(100.0)
    first, second = open_usage(tmp_path, clock), open_usage(tmp_path, clock)
    for _ in range(3):
        first.record(KEYS[0])
    clock.now = 200.0
    second.record(KEYS[0])
    second.record(KEYS[1])
    first.flush()
    second.flush()
    expected = {KEYS[0]: Use(4, 200.0), KEYS[1]: Use(1, 200.0)}
    assert first.load() == second.load() == open_usage(tmp_path).load() == expected


def test_pending_uses_count_at_home_at_once(tmp_path):
    usage = open_usage(tmp_path)
    usage.record(KEYS[0])
    assert usage.load()[KEYS[0]].hits == 1
    assert open_usage(tmp_path).load() == {}


def test_a_batch_flushes_itself(tmp_path):
    usage = open_usage(tmp_path)
    for _ in range(64):
        usage.record(KEYS[0])
    assert open_usage(tmp_path).load()[KEYS[0]].hits == 64
    assert len(os.listdir(tmp_path)) == 1


def test_a_torn_append_spoils_itself_only(tmp_path):
    usage = open_usage(tmp_path)
    usage.record(KEYS[0])
    usage.flush()
    [journal] = tmp_path.iterdir()
    whole = journal.read_bytes()
    for size_bytes in range(len(whole)):
        journal.write_bytes(whole[:size_bytes] + whole)
        use = open_usage(tmp_path).load()[KEYS[0]]
        is_cut_in_the_time = whole[:size_bytes].count(b" ") == 2 and not whole[:size_bytes].endswith(b" ")
        assert use == Use(2 if is_cut_in_the_time else 1, 1_000_000.0)


@pytest.mark.parametrize(
    "line",
    ["", "x", "K", "K x 1.0", "K 1 nan", "K -5 1.0", "K 1 1e99", "K 1", "K 1 1 1", "../x 1 1.0", "\xff 1 1"],
)
def test_garbage_in_a_journal_is_skipped(tmp_path, line):
    (tmp_path / "a.hits").write_text(line.replace("K", KEYS[0]) + "\n" + f"{KEYS[1]} 2 5.000\n", encoding="latin-1")
    assert open_usage(tmp_path).load() == {KEYS[1]: Use(2, 5.0)}


def fill(tmp_path, journals):
    for number in range(journals):
        (tmp_path / f"{number:016x}.hits").write_text(f"{KEYS[number % 2]} 1 {number}.000\n")
        os.utime(tmp_path / f"{number:016x}.hits", (1000, 1000))


def test_compaction_keeps_the_sum_and_forgets_keys_without_entry(tmp_path):
    fill(tmp_path, 40)
    usage = open_usage(tmp_path)
    usage.record(KEYS[0])
    assert usage.compact({KEYS[0]}) == 40
    assert len(os.listdir(tmp_path)) == 1
    assert usage.load() == {KEYS[0]: Use(21, 1_000_000.0)}
    assert open_usage(tmp_path).load() == {KEYS[0]: Use(20, 38.0)}


def test_young_or_few_journals_are_left_alone(tmp_path):
    fill(tmp_path, 31)
    assert open_usage(tmp_path).compact(KEYS) == 0
    fill(tmp_path, 40)
    assert open_usage(tmp_path, Clock(1030.0)).compact(KEYS) == 0
    assert len(os.listdir(tmp_path)) == 40


def test_compaction_killed_at_any_step_loses_and_doubles_nothing(tmp_path):
    expected = {KEYS[0]: Use(20, 38.0), KEYS[1]: Use(20, 39.0)}
    step = 0
    while True:
        directory = tmp_path / str(step)
        directory.mkdir()
        fill(directory, 40)
        files = FaultyFileSystem(crash_at=step)
        try:
            open_usage(directory, files=files).compact(KEYS)
        except SimulatedCrash:
            assert open_usage(directory).load() == expected, files.steps
            for name in os.listdir(directory):
                os.utime(directory / name, (1000, 1000))
            open_usage(directory).compact(KEYS)
            assert open_usage(directory).load() == expected, files.steps
        else:
            break
        step += 1
    assert step > 80, "every rename and removal was a step"


def test_without_a_directory_nothing_is_lost_until_there_is_one(tmp_path):
    where = None
    usage = Usage(OSFileSystem(), lambda for_writing: where, Clock())
    for _ in range(200):
        usage.record(KEYS[0])
    assert not usage.flush()
    where = str(tmp_path)
    assert usage.flush()
    assert open_usage(tmp_path).load()[KEYS[0]].hits == 200


def test_a_failing_flush_is_forgotten(tmp_path):
    usage = open_usage(tmp_path, files=FaultyFileSystem(failing={"append": 28}))
    for _ in range(100):
        usage.record(KEYS[0])
    assert not usage.flush()


def test_threads_lose_nothing(tmp_path):
    usage = open_usage(tmp_path)
    threads = [threading.Thread(target=lambda: [usage.record(KEYS[0]) for _ in range(500)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    usage.flush()
    assert open_usage(tmp_path).load()[KEYS[0]].hits == 2000
