import errno
import json
import time

import pytest
from typer.testing import CliRunner

from prejit import config
from prejit.cli.app import app
from prejit.store import CacheEntry, Store, use_store
from prejit.testing import FaultyFileSystem

DAY_S = 86_400.0


@pytest.fixture
def cli():
    def run(*args, code=0):
        done = CliRunner().invoke(app, ["cache", *args])
        assert done.exit_code == code, done.output
        return done

    return run


@pytest.fixture
def clock():
    class Clock:
        now = time.time()

        def __call__(self):
            return self.now

    return Clock()


@pytest.fixture
def store(store_dir, clock):
    return Store(store_dir, clock=clock)


def put(store, digits, *, name="f", kind="executable", size_bytes=1000, ingredients=()):
    digest = digits.ljust(64, "0")
    entry = CacheEntry(
        key=digest, kind=kind, name=name, created=1.0, ingredients=ingredients, sections={"x": b"x" * size_bytes}
    )
    assert store.put(entry)
    return digest


def entry_file(store_dir, digest):
    (path,) = store_dir.rglob(f"{digest}.entry")
    return path


def test_an_empty_store_is_no_error(cli, store_dir):
    assert json.loads(cli("ls", "--json").stdout) == []
    assert json.loads(cli("stats", "--json").stdout)["entries"] == 0
    assert cli("verify").stdout == "0 of 0 entries are intact\n"


def test_stats_count_entries_kinds_and_sizes(cli, store, store_dir):
    put(store, "a1")
    put(store, "b2", kind="module")
    stats = json.loads(cli("stats", "--json").stdout)
    assert stats["path"] == str(store_dir)
    assert (stats["state"], stats["problem"], stats["entries"]) == ("ok", "", 2)
    assert {kind: found["entries"] for kind, found in stats["kinds"].items()} == {"executable": 1, "module": 1}
    assert stats["size_bytes"] == sum(found["size_bytes"] for found in stats["kinds"].values()) > 0
    plain = cli("stats").stdout
    assert str(store_dir) in plain
    assert "kind module" in plain


def test_hits_of_other_processes_are_counted(cli, store):
    digest = put(store, "a1")
    for _ in range(3):
        store.get(digest)
    store.flush()
    assert json.loads(cli("stats", "--json").stdout)["total_hits"] == 3
    assert json.loads(cli("ls", "--json").stdout)[0]["hits"] == 3


def test_ls_shows_the_last_used_first_and_filters(cli, store, clock):
    old = put(store, "a1", name="layer")
    put(store, "b2", name="step", kind="module")
    clock.now += DAY_S
    store.get(old)
    store.flush()

    def names(*options):
        return [entry["name"] for entry in json.loads(cli("ls", "--json", *options).stdout)]

    assert names() == ["layer", "step"]
    assert names("--limit", "1") == ["layer"]
    assert names("--kind", "module") == ["step"]
    assert names("--name", "lay*") == ["layer"]
    assert names("--name", "LAYER") == []
    assert cli("ls").stdout.splitlines()[1].startswith(f"{old[:12]}  layer")


def test_ls_refuses_an_unknown_kind(cli):
    assert "executable" in cli("ls", "--kind", "kernel", code=2).output


def test_show_prints_every_ingredient(cli, store):
    ingredients = (
        ("identity", "function", "m:layer"),
        ("environment", "jax", "0.10.2"),
        ("signature", "long", "v" * 500),
    )
    digest = put(store, "abc1", name="layer", ingredients=ingredients)
    shown = json.loads(cli("show", "abc", "--json").stdout)
    assert [tuple(row.values()) for row in shown["ingredients"]] == list(ingredients)
    assert shown["info"]["digest"] == digest
    assert shown["sections"] == {"x": 1000}
    plain = cli("show", digest).stdout
    for group, name, value in ingredients:
        assert any(line.split() == [group, name, value] for line in plain.splitlines())


def test_a_look_is_not_a_use(cli, store):
    digest = put(store, "a1")
    before = store.info(digest)
    cli("show", "a1")
    cli("ls")
    assert Store(store.path).info(digest) == before


def test_an_upper_case_prefix_is_understood(cli, store):
    put(store, "abc1")
    cli("show", "ABC")


def test_a_prefix_of_several_names_them(cli, store):
    put(store, "abc1", name="layer")
    put(store, "abc2", name="step")
    error = cli("show", "abc", code=1).stderr
    assert "expected how one digest begins, got 'abc', as 2 do" in error
    assert "abc100000000 layer" in error
    assert "abc200000000 step" in error
    assert "hint: give more digits" in error


def test_a_prefix_of_many_names_five(cli, store):
    for n in range(8):
        put(store, f"abc{n}")
    assert "... and 3 more" in cli("show", "a", code=1).stderr


def test_a_prefix_of_none_says_where_to_look(cli, store):
    put(store, "abc1")
    error = cli("show", "f", code=1).stderr
    assert error == "finding an entry: expected how one digest begins, got 'f', as none does\nhint: prejit cache ls\n"


def test_verify_finds_damage_and_moves_it_away(cli, store, store_dir):
    digest = put(store, "a1")
    put(store, "b2")
    path = entry_file(store_dir, digest)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    report = json.loads(cli("verify", "--json", code=1).stdout)
    assert (report["checked"], report["intact"], report["corrupt"], report["quarantined"]) == (2, 1, [digest], 1)
    assert cli("verify").stdout == "1 of 1 entries are intact\n"


def test_gc_tells_what_it_did(cli, store):
    put(store, "a1")
    assert json.loads(cli("gc", "--json").stdout)["evicted"] == []
    assert cli("gc").stdout.startswith("0 entries evicted, 0 B freed")


def test_clear_asks_or_needs_yes(cli, store, store_dir):
    digest = put(store, "a1")
    assert "--yes" in cli("clear", code=2).stderr
    assert entry_file(store_dir, digest).exists()
    assert json.loads(cli("clear", "--yes", "--json").stdout) == {"removed": 1, "left": 0}
    assert Store(store_dir).keys() == []


def test_clear_tells_what_is_left_and_fails(cli, store, store_dir):
    put(store, "a1")
    put(store, "b2")
    with use_store(Store(store_dir, fs=FaultyFileSystem(failing={"remove": errno.EACCES}))):
        done = cli("clear", "--yes", code=1)
        assert json.loads(cli("clear", "--yes", "--json", code=1).stdout) == {"removed": 0, "left": 2}
    assert done.stdout == f"0 entries removed from {store_dir}, 2 left\n"
    assert f"hint: chmod -R u+w {store_dir}" in done.stderr
    assert cli("clear", "--yes").stdout == f"2 entries removed from {store_dir}\n"


def test_clear_of_a_store_set_read_only_names_the_setting(cli, store, store_dir):
    put(store, "a1")
    config.configure(read_only=True)
    done = cli("clear", "--yes", code=1)
    assert done.stdout == f"0 entries removed from {store_dir}, 1 left\n"
    assert done.stderr.splitlines()[-1].startswith("hint: unset PREJIT_READ_ONLY")


@pytest.mark.parametrize("command", [("clear", "--yes"), ("verify",), ("gc",)])
def test_a_file_in_the_place_of_the_directory_is_a_failure(cli, store_dir, command):
    store_dir.write_text("")
    assert f"expected it to succeed, got not a directory at {store_dir}" in cli(*command, code=1).stderr


def test_memory_only_has_nothing_to_clear(cli, store_dir):
    config.configure(cache_dir=None)
    assert cli("clear", "--yes").stdout == "memory only: nothing on disk\n"
    assert json.loads(cli("clear", "--json").stdout) == {"removed": 0, "left": 0}


def test_a_store_that_others_can_write_is_told_with_its_fix(cli, store, store_dir):
    put(store, "a1")
    store_dir.chmod(0o777)
    with pytest.warns(Warning, match="chmod go-w"):
        stats = json.loads(cli("stats", "--json").stdout)
    assert stats["state"] == "refused"
    assert "chmod go-w" in stats["problem"]
