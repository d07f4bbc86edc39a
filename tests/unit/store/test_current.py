import os
import threading

import pytest

from prejit import config
from prejit.store import Store, get_store, set_event_hook, use_store
from prejit.testing import make_entry


@pytest.fixture(autouse=True)
def _fresh():
    config.reset({"PREJIT_CACHE_DIR": ""})
    yield
    set_event_hook(None)
    config.reset()


def test_the_store_follows_the_settings_and_makes_nothing(tmp_path):
    assert get_store().path is None
    config.configure(cache_dir=tmp_path / "a")
    first = get_store()
    assert first.path == tmp_path / "a"
    assert get_store() is first
    config.configure(strict=False)
    assert get_store() is first, "nothing that it is built from has changed"
    config.configure(max_size="1MB", read_only=True)
    second = get_store()
    assert second is not first
    assert second.stats().cap_bytes == 10**6
    with config.override(cache_dir=tmp_path / "b"):
        assert get_store().path == tmp_path / "b"
    assert get_store() is second
    assert os.listdir(tmp_path) == []


def test_no_cap_is_no_cap(tmp_path):
    config.configure(cache_dir=tmp_path / "a", max_size=None)
    assert get_store().stats().cap_bytes is None


def test_a_block_uses_its_own_store_in_its_own_thread():
    outer, inner, seen = Store(None), Store(None), []
    with use_store(outer) as given:
        assert get_store() is given is outer
        with use_store(inner):
            assert get_store() is inner
            thread = threading.Thread(target=lambda: seen.append(get_store()))
            thread.start()
            thread.join()
        assert get_store() is outer
    assert seen[0] not in (outer, inner)


def test_many_settings_keep_few_stores(tmp_path):
    config.configure(cache_dir=tmp_path / "first")
    first = get_store()
    for number in range(20):
        with config.override(cache_dir=tmp_path / str(number)):
            get_store()
    assert get_store() is not first


def test_events_of_configured_stores_are_told():
    told = []
    set_event_hook(lambda name, key, fields: told.append((name, key, fields.get("reason"))))
    get_store().lookup(make_entry(1).key)
    get_store().put(make_entry(1))
    get_store().lookup(make_entry(1).key)
    key = make_entry(1).key
    assert told == [("store.miss", key, "absent"), ("store.put", key, None), ("store.hit", key, "")]
    get_store().clear()
