import gc
import weakref

import jax.numpy as jnp

import prejit
from prejit import config
from prejit.stage.listeners import forget_all, on_clear
from prejit.stage.loaded import Loaded, loaded_executables


class User:
    def __init__(self):
        self.forgotten = 0

    def forget(self):
        self.forgotten += 1


def test_clearing_memory_tells_users_and_drops_executables(store):
    cache, user = loaded_executables(store), User()
    loaded = Loaded(object(), {})
    loaded.used_by(user)
    cache.put(("a", 0), loaded, 10)
    assert loaded_executables(store) is cache
    store.clear(tier="disk")
    assert (user.forgotten, len(cache)) == (0, 1)
    store.clear(tier="memory")
    assert user.forgotten >= 1
    assert len(cache) == 0


def test_an_evicted_executable_tells_its_users(tmp_path):
    with config.override(memory_max_size=100):
        cache = loaded_executables(prejit.Store(tmp_path / "small"))
    users = [User() for _ in range(3)]
    for n, user in enumerate(users):
        loaded = Loaded(object(), {})
        loaded.used_by(user)
        cache.put((str(n), 0), loaded, 40)
    assert [user.forgotten for user in users] == [1, 0, 0]


def test_users_are_held_weakly():
    loaded, user = Loaded(object(), {}), User()
    loaded.used_by(user)
    on_clear(user)
    gone = weakref.ref(user)
    del user
    gc.collect()
    assert gone() is None
    loaded.unload()
    forget_all()


def test_listeners_of_all_stores_forget():
    user = User()
    on_clear(user)
    forget_all()
    assert user.forgotten == 1


def test_components_keep_working_when_memory_holds_one_executable(tmp_path):
    with config.override(memory_max_size=1), prejit.use_store(prejit.Store(tmp_path / "tiny")):
        components = [prejit.component(lambda x, n=n: x + n) for n in range(3)]
        for _ in range(3):
            assert [float(component(jnp.float32(0))) for component in components] == [0.0, 1.0, 2.0]


def test_a_store_and_its_executables_go_together(tmp_path):
    store = prejit.Store(tmp_path / "gone")
    with prejit.use_store(store):
        component = prejit.component(lambda x: x + 1)
        component(1.0)
        executable = weakref.ref(loaded_executables(store).values()[0])
    del component, store
    gc.collect()
    assert executable() is None
