"""A directory or file that another user owns or can write to."""

import os

import pytest

from prejit.errors import StoreRefused, StoreWarning
from prejit.store import Store
from prejit.testing import make_entry

needs_root = pytest.mark.skipif(os.getuid() != 0, reason="giving a file to another user needs root")


@pytest.fixture
def filled(tmp_path):
    Store(tmp_path / "s").put(make_entry(1))
    return tmp_path / "s"


def use(store):
    """What a program does: nothing from the disk, everything computed."""
    outcomes = [store.lookup(make_entry(1).key).outcome for _ in range(2)]
    kept = store.put(make_entry(2))
    assert store.get(make_entry(2).key) == make_entry(2)
    with store.claim(make_entry(1).key, 600.0) as claim:
        assert not claim.owned
    list(store.items())
    store.gc()
    return outcomes, kept


@pytest.mark.parametrize("mode", [0o777, 0o775, 0o1777])
@pytest.mark.parametrize("part", ["", "v1"])
def test_a_directory_that_others_can_write_is_off_for_the_process(filled, mode, part):
    os.chmod(filled / part, mode)
    before = sorted(os.walk(filled))
    store = Store(filled)
    with pytest.warns(StoreWarning, match=f"hint: chmod go-w {filled / part}") as caught:
        assert use(store) == (["refused", "refused"], False)
    assert len(caught) == 1
    assert sorted(os.walk(filled)) == before
    assert store.stats().state == "refused"
    assert store.stats().refused == 2
    assert store.stats().errors >= 1
    with pytest.raises(StoreRefused) as refused:
        Store(filled, strict=True).lookup(make_entry(1).key)
    assert refused.value.hint == f"chmod go-w {filled / part}"


@needs_root
def test_a_directory_of_another_user_is_off_for_the_process(filled):
    os.chown(filled, 12345, 12345)
    store = Store(filled)
    with pytest.warns(StoreWarning, match="got owned by user 12345") as caught:
        assert use(store) == (["refused", "refused"], False)
    assert len(caught) == 1
    with pytest.raises(StoreRefused, match="12345"):
        Store(filled, strict=True).put(make_entry(2))


@needs_root
def test_a_read_only_directory_of_another_user_is_refused_too(filled):
    os.chmod(filled, 0o555)
    os.chown(filled, 12345, 12345)
    with pytest.warns(StoreWarning):
        assert Store(filled).lookup(make_entry(1).key).outcome == "refused"


@needs_root
@pytest.mark.parametrize("change", ["owner", "mode"])
def test_a_single_file_that_another_user_could_have_written_is_refused_and_replaced(filled, change):
    [file] = filled.rglob("*.entry")
    if change == "owner":
        os.chown(file, 12345, 12345)
    else:
        os.chmod(file, 0o666)
    store = Store(filled, memory_max_size=0)
    with pytest.warns(StoreWarning, match=f"hint: remove {file}"):
        assert store.lookup(make_entry(1).key).outcome == "refused"
    assert store.verify().refused == (make_entry(1).key,)
    assert list(store.items()) == []
    assert store.put(make_entry(1))
    assert store.get(make_entry(1).key) == make_entry(1)


def test_a_link_is_judged_by_where_it_leads(filled, tmp_path):
    (tmp_path / "link").symlink_to(filled)
    assert Store(tmp_path / "link").get(make_entry(1).key) == make_entry(1)
    os.chmod(filled, 0o777)
    with pytest.warns(StoreWarning, match=f"chmod go-w {filled}"):
        assert Store(tmp_path / "link").lookup(make_entry(1).key).outcome == "refused"


def test_a_directory_that_is_made_again_is_judged_again(filled, tmp_path):
    import shutil

    store = Store(filled, memory_max_size=0)
    assert store.put(make_entry(2))
    shutil.rmtree(filled)
    filled.mkdir()
    os.chmod(filled, 0o777)
    with pytest.warns(StoreWarning, match="chmod go-w"):
        assert not store.put(make_entry(1))
    assert list(filled.iterdir()) == []
