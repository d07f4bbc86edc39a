"""Filling and reading a store unpickles nothing."""

PROGRAM = """
found = []
sys.addaudithook(lambda event, args: found.append(list(map(str, args))) if event == "pickle.find_class" else None)

@prejit.component
def f(p, x):
    return jax.value_and_grad(lambda p: (jnp.linalg.inv(p["w"]) @ jnp.sin(x) + table.sum()).sum())(p)

table = np.arange(100_000, dtype=F32)  # large enough to become an argument
mesh = Mesh(np.array(jax.devices()), ("d",))
g = prejit.component(lambda x: (x * 2).sum())
named = prejit.component(lambda x: x * 7, key="named", version=1)
p, x = {"w": jnp.eye(4) + jnp.ones((4, 4))}, jnp.arange(4.0)  # eager operations, too
for _ in range(2):
    out = f(p, x), g(jax.device_put(jnp.arange(16.0), NamedSharding(mesh, P("d")))), named(x)
    forget()
store = prejit.get_store()
for key, info in store.items():
    prejit.CacheEntry.from_bytes(store.get(key).to_bytes())
store.verify(), store.stats()
quiet = list(found)
import pickle, datetime
pickle.loads(pickle.dumps(datetime.date(2020, 1, 1)))
report(quiet=quiet, loud=found, kinds=sorted({info.kind for _, info in store.items()}), bits=bits(out))
"""


def test_no_class_is_looked_up_by_pickle(child):
    env = {"XLA_FLAGS": "--xla_force_host_platform_device_count=4"}
    cold, warm = child(PROGRAM, env=env), child(PROGRAM, env=env)
    assert cold.quiet == warm.quiet == []
    assert cold.loud == warm.loud == [["datetime", "date"]], "the control: the hook sees a pickle"
    assert cold.counters["misses"] == 3
    assert warm.counters["compiles"] == 0
    assert warm.counters["loads"] >= 3
    assert cold.kinds == ["executable", "module"]
    assert cold.bits == warm.bits
