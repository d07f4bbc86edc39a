import os
import stat

import pytest

from prejit.errors import StoreRefused
from prejit.store import FileInfo, Store
from prejit.store.trust import check_directory, problem, subdirectory_mode
from prejit.testing import make_entry

ME = os.getuid()


def info(mode=0o40700, uid=ME):
    return FileInfo("d", 0, 0.0, mode, uid, 1, True)


@pytest.mark.parametrize(
    ("described", "reason"),
    [
        (info(), ""),
        (info(0o40755), ""),
        (info(0o40555), ""),
        (info(uid=0), ""),
        (info(0o40555, uid=0), ""),
        (info(0o40777), "writable by others"),
        (info(0o41777), "writable by others"),
        (info(0o40770), "writable by its group"),
        (info(0o40500, uid=ME + 1001), f"owned by user {ME + 1001}"),
        (info(0o40777, uid=-1), ""),
    ],
)
def test_who_could_have_written_it(described, reason):
    assert problem(described) == reason


def test_the_hint_is_the_command_that_helps():
    with pytest.raises(StoreRefused) as caught:
        check_directory("/cache", info(0o40777))
    assert caught.value.hint == "chmod go-w /cache"
    assert caught.value.reason == "writable by others"
    with pytest.raises(StoreRefused) as caught:
        check_directory("/cache", info(0o40777, uid=ME + 7))
    assert "PREJIT_CACHE_DIR" in caught.value.hint


def test_directories_inside_are_never_writable_by_others():
    assert subdirectory_mode(info(0o40777)) == 0o755
    assert subdirectory_mode(info(0o40750)) == 0o750
    assert subdirectory_mode(info(0o40500)) == 0o700


@pytest.mark.parametrize("umask", [0o000, 0o002, 0o022, 0o077])
def test_what_the_store_makes_is_trusted_under_any_umask(tmp_path, umask):
    old = os.umask(umask)
    try:
        Store(tmp_path / "new" / "store").put(make_entry(1))
    finally:
        os.umask(old)
    for where, _, names in os.walk(tmp_path / "new" / "store"):
        assert stat.S_IMODE(os.stat(where).st_mode) == 0o700
        for name in names:
            assert os.stat(os.path.join(where, name)).st_mode & 0o022 == 0
    assert Store(tmp_path / "new" / "store", strict=True).get(make_entry(1).key) == make_entry(1)


def test_a_store_in_a_directory_that_others_may_read_stays_readable(tmp_path):
    (tmp_path / "shared").mkdir(mode=0o755)
    os.chmod(tmp_path / "shared", 0o755)
    Store(tmp_path / "shared").put(make_entry(1))
    for where, _, names in os.walk(tmp_path / "shared"):
        assert stat.S_IMODE(os.stat(where).st_mode) == 0o755
        assert all(os.stat(os.path.join(where, name)).st_mode & 0o444 == 0o444 for name in names)
