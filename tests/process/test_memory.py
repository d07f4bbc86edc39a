"""What is kept in memory is bounded, and goes with the component."""

BOUNDED = """
from prejit.stage.loaded import loaded_executables
if sys.argv[1] == "small":
    prejit.configure(memory_max_size=1_000_000)
functions = [prejit.component(lambda x, i=i: jnp.sin(x) * i + jnp.cos(x + i), name=f"f{i}") for i in range(12)]
first = [bits(f(X)) for f in functions]
n = since()
rounds = [[bits(f(X)) for f in functions] for _ in range(2)]
got = n()
store = prejit.get_store()
cache = loaded_executables(store)
# What a loaded executable is taken to weigh: its code and what comes with it.
sizes = [220_000 + len(store.get(f.key_for(SPEC)).sections["executable"]) for f in functions]
same = all(outs == first for outs in rounds)
report(same=same, got=got, nr=len(cache), weight=cache.weight, total=sum(sizes), one=max(sizes))
"""


def test_executables_are_unloaded_and_loaded_again(child):
    small = child(BOUNDED, "small")
    assert small.total > 1_000_000 > 2 * small.one, "the bound must hold some and not all for this to be a test"
    assert small.same
    assert small.got["compiles"] == 0
    assert small.got["loads"] >= 12, "the first to go is the next to be called"
    assert 0 < small.nr < 12
    assert small.weight <= 1_000_000
    # The control: without a bound that small, nothing is loaded a second time.
    large = child(BOUNDED, "large")
    assert large.same
    assert large.nr == 12
    assert large.got["loads"] == large.got["compiles"] == 0
    assert large.got["hits"] == 0, "by the C++ dispatch, not even a lookup"


LOOP = """
import types
keep = sys.argv[1] == "keep"
kept = []

def once(i, large):
    data = np.full(200_000 if large else 20, i, F32)
    def function(x):
        return (x * data).sum()
    f = prejit.component(function)
    inside = prejit.component(lambda x: jnp.sin(x) * data[0])
    key = prejit.component(lambda x: x * data[1], key=f"loop {i}", version=1)
    refs = [weakref.ref(o) for o in (data, function, f, f._core, inside, key)]
    expected = float(data.sum(dtype=np.float64)) * 2
    assert abs(float(f(2.0)) - expected) <= 1e-3 * abs(expected)
    jax.jit(lambda x: inside(x) + 1)(1.0)
    jax.vmap(inside)(X), jax.grad(inside)(1.0), key(1.0), f.lower(1.0), f.eval_shape(1.0), f.key_for(1.0)
    if keep:
        kept.append(f)
    return refs

def sizes():
    # Every container and cache that a module or a class of prejit holds on to.
    found, seen_ids = {}, set()
    for name, module in list(sys.modules.items()):
        if not name.startswith("prejit"):
            continue
        owners = [(name, module)]
        owners += [(f"{name}.{n}", c) for n, c in vars(module).items() if isinstance(c, type) and c.__module__ == name]
        for where, owner in owners:
            for attribute, value in list(vars(owner).items()):
                if attribute.startswith("__") or id(value) in seen_ids:
                    continue
                seen_ids.add(id(value))
                if hasattr(value, "cache_info") and callable(value):
                    try:
                        found[f"{where}.{attribute}"] = value.cache_info().currsize
                    except Exception:
                        pass
                    continue
                todo = [(attribute, value)]
                if type(value).__module__.startswith("prejit"):
                    slots = [n for k in type(value).__mro__ for n in getattr(k, "__slots__", ())]
                    names = {*slots, *getattr(value, "__dict__", {})}
                    todo += [(f"{attribute}.{n}", getattr(value, n, None)) for n in names if isinstance(n, str)]
                for label, item in todo:
                    if isinstance(item, type | types.ModuleType | str | bytes):
                        continue
                    try:
                        found[f"{where}.{label}"] = len(item)
                    except Exception:
                        pass
    return found

for i in range(3):  # what is made once
    once(i + 0.5, i % 2)
gc.collect()
before, objects = sizes(), len(gc.get_objects())
refs = [ref for i in range(20) for ref in once(float(i), i % 4 == 0)]
gc.collect()
after = sizes()
alive = [type(ref()).__name__ for ref in refs if ref() is not None]
grown = {name: [before.get(name, 0), size] for name, size in after.items() if size > before.get(name, 0)}
report(alive=alive, nr=len(refs), grown=grown, looked_at=len(after), objects=[objects, len(gc.get_objects())])
"""
# A cache may fill up to its bound, and there are as many counters as names of counters.
BOUNDED_BY_DESIGN = {"prejit.key.environment._cache": 64, "prejit.events._process._values": 40}


def test_components_made_in_a_loop_are_collected(child):
    done = child(LOOP, "drop")
    assert done.nr == 120
    assert done.alive == []
    assert done.looked_at > 20
    grown = {name: sizes for name, sizes in done.grown.items() if sizes[1] > BOUNDED_BY_DESIGN.get(name, 0)}
    assert grown == {}
    # The control: what is kept is seen.
    kept = child(LOOP, "keep")
    assert kept.alive.count("Component") == kept.alive.count("Core") == 20
