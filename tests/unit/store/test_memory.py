import gc
import threading
import weakref

from prejit.store import BoundedCache
from prejit.store.memory import MemoryTier
from prejit.testing import make_entry


def test_the_least_recently_used_goes_first_and_is_told():
    gone = []
    cache = BoundedCache(3, on_evict=lambda key, value: gone.append(key))
    for key in "abc":
        cache.put(key, key.upper())
    cache.get("a")
    cache.put("d", "D")
    assert (gone, cache.keys()) == (["b"], ["c", "a", "d"])
    cache.put("c", "C2")
    assert gone == ["b"], "replacing is not evicting"
    assert cache.pop("a") == "A"
    assert gone == ["b"], "nor is taking back"
    assert cache.clear() == 2
    assert gone == ["b", "d", "c"]
    assert (len(cache), cache.weight, cache.get("d"), cache.pop("d")) == (0, 0, None, None)


def test_what_is_too_heavy_evicts_nothing():
    cache = BoundedCache(10)
    cache.put("a", 1, 10)
    assert not cache.put("b", 2, 11)
    assert list(cache) == ["a"]
    assert not cache.put("a", 3, 11)
    assert "a" not in cache, "a stale value is not kept either"


def test_no_bound():
    cache = BoundedCache(None)
    for number in range(1000):
        cache.put(number, number, 10**12)
    assert len(cache) == 1000


def test_the_callback_may_use_the_cache_and_a_finalizer_may_too():
    class Loaded:
        pass

    cache = BoundedCache(1, on_evict=lambda key, value: cache.pop("other"))
    loaded = Loaded()
    weakref.finalize(loaded, cache.pop, "other")
    cache.put("a", loaded)
    del loaded
    cache.put("b", None)
    gc.collect()
    assert cache.keys() == ["b"]


def test_threads_keep_the_weight_right():
    cache = BoundedCache(50)

    def work(offset):
        for number in range(2000):
            cache.put((number * 7 + offset) % 100, number, number % 9)
            cache.get(number % 100)
            cache.pop((number * 3) % 100)

    threads = [threading.Thread(target=work, args=(offset,)) for offset in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert cache.weight <= 50
    remaining = [cache.pop(key) for key in cache.keys()]  # noqa: SIM118
    assert cache.weight == 0
    assert len(remaining) <= 100


def test_entries_weigh_what_their_payloads_take():
    tier = MemoryTier(10_000)
    assert tier.keep(make_entry(1, size_bytes=5000))
    assert tier.keep(make_entry(2, size_bytes=5000))
    assert tier.keys() == [make_entry(2).key]
    assert not tier.keep(make_entry(3, size_bytes=10_000))
