"""A store that can't be used: the call computes, one warning names the fix, a counter counts."""

import os

import pytest

PROGRAM = """
import errno
case, where = sys.argv[1:3]
prejit.configure(cache_dir=where)
if case == "full":
    from prejit.testing import FaultyFileSystem
    full = prejit.Store(where, fs=FaultyFileSystem(failing={"write_new": errno.ENOSPC, "append": errno.ENOSPC}))
    block = prejit.use_store(full)
    block.__enter__()
functions = [lambda x: jnp.sin(x) * 3, lambda x: jnp.cos(x) - 1, lambda x: x @ x]
out = [bits(prejit.component(function)(X)) for function in functions]
eager = bits(jnp.tanh(X))
again = [bits(prejit.component(function)(X)) for function in functions]
assert out == again
stats = prejit.get_store().stats()
report(bits=[*out, eager], kept=stats.entries - stats.memory_entries, errors=stats.errors, refused=stats.refused,
       rejected=stats.rejected)
"""


def warnings_of(report):
    assert all(text.startswith("StoreWarning: ") for text in report.said), report.said
    return report.said


@pytest.fixture
def good(child, tmp_path):
    """What a usable store gives, without a word."""
    report = child(PROGRAM, "good", tmp_path / "good")
    assert warnings_of(report) == []
    assert report.errors == report.refused == report.rejected == 0
    assert report.counters["store_errors"] == report.counters["refused"] == 0
    return report


def test_read_only(child, tmp_path, good):
    path = tmp_path / "read-only"
    path.mkdir(mode=0o555)
    report = child(PROGRAM, "read-only", path)
    [warning] = warnings_of(report)
    assert f"hint: chmod u+w {path}, or set PREJIT_READ_ONLY=1" in warning
    assert report.bits == good.bits
    assert report.errors > 0
    assert report.counters["store_errors"] > 0
    assert list(path.iterdir()) == []
    # A filled one that is read-only gives hits, and there is nothing to say.
    filled = tmp_path / "good"
    os.chmod(filled, 0o555)
    try:
        warm = child(PROGRAM, "read-only", filled)
    finally:
        os.chmod(filled, 0o755)
    assert warm.counters["compiles"] == 0
    assert warnings_of(warm) == []
    assert warm.bits == good.bits


def test_full(child, tmp_path, good):
    path = tmp_path / "full"
    report = child(PROGRAM, "full", path)
    [warning] = warnings_of(report)
    assert "No space left" in warning
    assert "hint: " in warning
    assert report.bits == good.bits
    assert report.errors > 0
    assert report.counters["store_errors"] > 0
    assert [file for file in path.rglob("*") if file.is_file()] == [], "half a file is not left lying about"


def test_missing(child, tmp_path, good):
    # A directory that is only not there yet is made; one that can't be is reported.
    made = tmp_path / "some" / "where" / "else"
    report = child(PROGRAM, "missing", made)
    assert warnings_of(report) == []
    assert report.counters["misses"] > 0
    assert list(made.rglob("*.entry"))
    (tmp_path / "file").write_text("")
    report = child(PROGRAM, "impossible", tmp_path / "file" / "store")
    [warning] = warnings_of(report)
    assert "hint: " in warning
    assert report.bits == good.bits
    assert report.errors > 0
    assert report.counters["store_errors"] > 0
    assert (tmp_path / "file").read_text() == ""


def test_writable_by_others(child, tmp_path, good):
    filled = tmp_path / "good"
    os.chmod(filled, 0o777)
    report = child(PROGRAM, "world-writable", filled)
    [warning] = warnings_of(report)
    assert f"hint: chmod go-w {filled}" in warning
    assert report.bits == good.bits
    assert report.counters["compiles"] >= 3, "nothing that somebody else may have written was run"
    assert report.counters["loads"] == 0
    assert report.counters["refused"] > 0
    assert report.refused > 0
    os.chmod(filled, 0o755)
    assert child(PROGRAM, "again", filled).counters["compiles"] == 0, "the control: with the fix it is used"


def test_owned_by_another(child, tmp_path, good):
    filled = tmp_path / "good"
    uid = os.stat(filled).st_uid
    try:
        os.chown(filled, 54321, -1)
    except PermissionError:
        pytest.skip("this user can't give a directory away")
    try:
        report = child(PROGRAM, "foreign", filled)
    finally:
        os.chown(filled, uid, -1)
    [warning] = warnings_of(report)
    assert "owned by user 54321" in warning
    assert "hint: choose a directory of your own" in warning
    assert report.bits == good.bits
    assert report.counters["loads"] == 0
    assert report.counters["refused"] > 0


def test_disabled_is_plain_jit(child, tmp_path, good):
    path = tmp_path / "disabled"
    report = child(
        PROGRAM.replace("stats = ", "lowered = prejit.component(functions[0]).lower(X).as_text()\nstats = "),
        "disabled",
        path,
        env={"PREJIT_DISABLE": "1"},
    )
    assert not path.exists()
    assert report.bits == good.bits
    assert report.said == []
    counters = report.counters
    assert counters["hits"] == counters["misses"] == counters["eager_hits"] == counters["eager_misses"] == 0
    assert counters["compiles"] == report.seen["compiles"] > 0
    assert report.agrees()


def test_importing_makes_no_directory(child, tmp_path):
    child("import prejit.store, prejit.component\nprejit.component(lambda x: x)\nreport()")
    assert not (tmp_path / "store").exists()
