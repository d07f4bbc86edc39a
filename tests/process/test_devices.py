"""Placement, donation and large constants survive a warm start."""

EIGHT = {"XLA_FLAGS": "--xla_force_host_platform_device_count=8"}

PROGRAM = """
devices = jax.devices()
assert len(devices) == 8
results, counts = {}, {}

def record(name, function, *args):
    n = since()
    out = jax.block_until_ready(function(*args))
    got = n()
    counts[name] = [got["compiles"], got["lowerings"], got["loads"], got["hits"], got["misses"]]
    placed = [[str(getattr(leaf.sharding, "spec", "")), sorted(d.id for d in leaf.devices()),
               sorted([str(s.index), s.device.id] for s in leaf.addressable_shards), leaf.committed]
              for leaf in jax.tree.leaves(out)]
    results[name] = [bits(out), placed]
    return out

# One device: what was compiled for the first serves the third.
f = prejit.component(lambda x: jnp.sin(x) * 3 + x.sum(), name="f")
record("uncommitted", f, X)
for i in (0, 2, 5):
    record(f"on {i}", f, jax.device_put(X, devices[i]))

# All eight.
mesh = Mesh(np.array(devices).reshape(4, 2), ("a", "b"))
def put(spec, shape=(8, 16)):
    data = np.arange(np.prod(shape), dtype=F32).reshape(shape) / 100
    return jax.device_put(data, NamedSharding(mesh, spec))

over_a = NamedSharding(mesh, P(None, "a"))
g = prejit.component(lambda x, w: (x @ w, x.sum(), jax.lax.with_sharding_constraint(x * 2, over_a)), name="g")
record("sharded", g, put(P("a", "b")), put(P("b", None), (16, 4)))
record("sharded otherwise", g, put(P(None, "b")), put(P(), (16, 4)))
sharded_map = prejit.component(jax.shard_map(lambda x: jax.lax.psum(x, "a"), mesh=mesh, in_specs=P("a"), out_specs=P()))
record("shard_map", sharded_map, put(P("a")))

# Donation.
d = prejit.component(lambda x, y: (x + 1, y * 2), donate_argnums=0, name="d")
x, y = jax.device_put(X, devices[0]), jax.device_put(X, devices[0])
with warnings.catch_warnings():
    warnings.simplefilter("error")
    record("donated", d, x, y)
    after = [x.is_deleted(), y.is_deleted()]
    x2 = jax.device_put(X, devices[0])
    d(x2, y)  # by the C++ dispatch
    after.append(x2.is_deleted())
    not_donated = prejit.component(lambda x: x + 1)
    not_donated(y)
    after.append(y.is_deleted())

report(results=results, counts=counts, after=after, names=sorted(
    info.name for _, info in prejit.get_store().items() if info.kind == "executable" and not info.variant))
"""


def test_placement_and_donation_survive_a_warm_start(child, tmp_path):
    cold, warm = child(PROGRAM, env=EIGHT), child(PROGRAM, env=EIGHT)
    plain = child(PROGRAM, env=EIGHT | {"PREJIT_DISABLE": "1"})
    compiled = {name: counts[0] for name, counts in cold.counts.items()}
    assert compiled["uncommitted"] + compiled["on 0"] <= 2
    assert compiled["on 2"] == compiled["on 5"] == 0, "an entry for the first device serves the others"
    assert compiled["sharded"] == compiled["sharded otherwise"] == compiled["shard_map"] == compiled["donated"] == 1
    assert all(counts[:2] == [0, 0] for counts in warm.counts.values()), warm.counts
    assert warm.counts["sharded"] == [0, 0, 1, 1, 0]
    assert warm.results == cold.results == plain.results
    assert cold.results["on 2"][1][0][1] == [2]
    assert cold.results["on 5"][1][0][1] == [5]
    assert len(cold.results["sharded"][1][2][2]) == 8
    assert warm.after == cold.after == plain.after == [True, False, True, False]


CONSTANTS = """
table = np.full((512, 512), float(sys.argv[1]), F32)  # 1 MB, closed over
table[0, 0] = 7
weak = np.arange(4, dtype=F32) + float(sys.argv[1])  # small: part of the program
f = prejit.component(lambda x: (table * x).sum() + table[0, 0], name="f")
g = prejit.component(lambda x: x + weak, name="g")
n = since()
out = float(f(F32(2)))
large = n()
n = since()
small_out = np.asarray(g(F32(1))).tolist()
small = n()
store = prejit.get_store()
sizes = [store.info(key).size_bytes for key in entries() + entries("module") if store.info(key).name == "f"]
f2 = float(f(F32(3)))
forget()
report(out=out, expected=float((table * 2).sum(dtype=np.float64) + 7), large=large, small=small, small_out=small_out,
       again=float(f(F32(2))), by_dispatch=f2, sizes=sizes)
"""


def test_a_large_constant_is_an_argument(child):
    runs = [child(CONSTANTS, value) for value in (1, 5, 1)]
    for run in runs:
        assert abs(run.out / run.expected - 1) < 1e-5
        assert run.again == run.out
    assert runs[0].out == runs[2].out != runs[1].out
    assert [run.large["compiles"] for run in runs] == [1, 0, 0], "one entry for different contents"
    assert [run.small["compiles"] for run in runs] == [1, 1, 0], "the control: small ones are part of the program"
    assert runs[0].small_out != runs[1].small_out
    assert len(runs[2].sizes) == 2
    assert max(runs[2].sizes) < 200_000, "the data is not in the store"
