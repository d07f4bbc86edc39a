"""Where linked programs run and where their results are: as under `jax.jit`."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, SingleDeviceSharding
from jax.sharding import PartitionSpec as P
from tests.transforms.table import assert_same

rng = np.random.default_rng(0)
W = rng.normal(size=(8, 8)).astype("float32")
X = rng.normal(size=(4, 8)).astype("float32")
DEVICES = jax.devices()


@jax.jit
def layer(w, x):
    return jnp.tanh(x @ w) + x


def program(w, x):
    for _ in range(3):
        x = layer(w, x)
    return x, x.sum(), w, 3.0


def uncommitted(value, number):
    with jax.default_device(DEVICES[number]):
        return jnp.array(value)


def committed(value, number):
    return jax.device_put(value, DEVICES[number])


def mesh(n, kind=jax.sharding.AxisType.Auto):
    return jax.make_mesh((n,), ("a",), devices=DEVICES[:n], axis_types=(kind,))


ARGUMENTS = {
    "numpy": lambda: (W, X),
    "uncommitted": lambda: (jnp.array(W), jnp.array(X)),
    "committed": lambda: (committed(W, 0), committed(X, 0)),
    "committed elsewhere": lambda: (committed(W, 3), committed(X, 3)),
    "one committed": lambda: (W, committed(X, 3)),
    "one committed, one uncommitted": lambda: (committed(W, 3), jnp.array(X)),
    "uncommitted elsewhere": lambda: (uncommitted(W, 3), uncommitted(X, 3)),
    "uncommitted on two": lambda: (uncommitted(W, 3), uncommitted(X, 2)),
}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_arguments(as_jit, name):
    as_jit(program, ARGUMENTS[name])


@pytest.mark.parametrize("name", ARGUMENTS)
@pytest.mark.parametrize("device", ["device", "platform"])
def test_arguments_under_a_default_device(as_jit, name, device):
    with jax.default_device(DEVICES[5] if device == "device" else "cpu"):
        as_jit(program, ARGUMENTS[name])


def test_one_program_for_all_of_them(linked):
    ours, theirs = linked(program), jax.jit(program)
    for default in (None, DEVICES[5], DEVICES[0], None):
        with jax.default_device(default):
            for make in ARGUMENTS.values():
                assert_same(ours(*make()), theirs(*make()), is_exact=False)


def test_committed_to_different_devices_is_jax_own_error(as_jit):
    as_jit(program, lambda: (committed(W, 1), committed(X, 2)), is_linked=None)


def test_without_arguments(as_jit):
    for default in (None, DEVICES[5]):
        with jax.default_device(default):
            as_jit(lambda: program(jnp.eye(8), jnp.ones((4, 8))), tuple, is_linked=None)


def test_arguments_that_nothing_uses_have_no_say(as_jit):
    def unused(w, x, u):
        return program(w, x)

    as_jit(unused, lambda: (W, X, committed(X, 3)))
    as_jit(unused, lambda: (committed(W, 2), X, uncommitted(X, 3)))
    as_jit(lambda w, x, u: (program(w, x), u), lambda: (W, X, committed(X, 3)))


def test_constants_have_no_say(as_jit):
    small, large = committed(W, 3), committed(np.ones((300, 300), "float32"), 3)

    def closed_over(x):
        return program(small, x), large, x @ large[:8]

    as_jit(closed_over, lambda: (X,))
    as_jit(closed_over, lambda: (committed(X, 2),))


def test_a_program_loaded_on_another_device(as_jit, linked, store):
    """Executables are kept without the device; each is loaded where it is needed."""
    linked(program)(W, X)
    for number in (0, 3, 7):
        store.clear(tier="memory")
        step = linked(lambda w, x: program(w, x))
        out = step(committed(W, number), committed(X, number))
        assert step.cache_info().compiles == 0
        assert out[0].devices() == {DEVICES[number]}
        np.testing.assert_allclose(out[0], jax.jit(program)(W, X)[0], rtol=1e-5)


# Programs that stay whole


def spread(value, n=4, spec="a", kind=jax.sharding.AxisType.Auto):
    return jax.device_put(value, NamedSharding(mesh(n, kind), P(spec)))


EXPLICIT = jax.sharding.AxisType.Explicit


WHOLE = {
    "sharded": lambda: (W, spread(X)),
    "replicated": lambda: (spread(W, spec=None), spread(X)),
    "a mesh of one device": lambda: (spread(W, 1), spread(X, 1)),
    "explicit axes": lambda: (spread(W, spec=None, kind=EXPLICIT), spread(X, kind=EXPLICIT)),
    "another memory": lambda: (jax.device_put(W, SingleDeviceSharding(DEVICES[0], memory_kind="pinned_host")), X),
}


@pytest.mark.parametrize("name", WHOLE)
def test_placed_arguments(as_jit, name):
    try:
        jax.jit(lambda w, x: program(w, x))(*WHOLE[name]())
    except Exception as error:  # noqa: BLE001
        pytest.skip(f"not on this version: {error}")
    as_jit(program, WHOLE[name], is_linked=None)


def placed_inside(place):
    def run(w, x):
        return layer(w, place(layer(w, layer(w, x))))

    return run


INSIDE = {
    "constraint": lambda y: jax.lax.with_sharding_constraint(y, NamedSharding(mesh(4), P("a"))),
    "constraint on one device": lambda y: jax.lax.with_sharding_constraint(y, SingleDeviceSharding(DEVICES[3])),
    "device_put": lambda y: jax.device_put(y, DEVICES[2]),
    "device_put home": lambda y: jax.device_put(y, DEVICES[0]),
    "device_put nowhere": jax.device_put,
    "device_put spread": lambda y: jax.device_put(y, NamedSharding(mesh(4), P("a"))),
    "shard_map": lambda y: jax.shard_map(lambda v: v * 2, mesh=mesh(4), in_specs=P("a"), out_specs=P("a"))(y),
    "inner out_shardings": lambda y: jax.jit(lambda v: v * 2, out_shardings=NamedSharding(mesh(4), P("a")))(y),
    "inner device": lambda y: jax.jit(lambda v: v * 2, out_shardings=SingleDeviceSharding(DEVICES[3]))(y),
    "inner donation": lambda y: jax.jit(lambda v: v * 2, donate_argnums=0)(y),
    "another memory": lambda y: jax.device_put(jax.device_put(y, jax.memory.Space.Host), jax.memory.Space.Device),
}


@pytest.mark.parametrize("name", INSIDE)
@pytest.mark.parametrize("start", ["numpy", "committed"])
def test_placement_inside(as_jit, name, start):
    """Where the two don't go together, the error is JAX's."""
    as_jit(placed_inside(INSIDE[name]), ARGUMENTS[start], is_linked=None)


def test_placement_inside_a_layer(as_jit):
    sharding = NamedSharding(mesh(4), P("a"))

    @jax.jit
    def placed(w, x):
        return jax.lax.with_sharding_constraint(jnp.tanh(x @ w), sharding) + x

    as_jit(lambda w, x: placed(w, placed(w, placed(w, x))), ARGUMENTS["numpy"], is_linked=False)
    inner = jax.jit(lambda w, x: jnp.tanh(x @ w) + x, out_shardings=sharding)
    as_jit(lambda w, x: inner(w, inner(w, x)), ARGUMENTS["numpy"], is_linked=False)


OPTIONS = {
    "out_shardings": lambda: {"out_shardings": NamedSharding(mesh(4), P("a"))},
    "out_shardings None": lambda: {"out_shardings": None},
    "out device": lambda: {"out_shardings": SingleDeviceSharding(DEVICES[3])},
    "in_shardings": lambda: {"in_shardings": (NamedSharding(mesh(4), P()), NamedSharding(mesh(4), P("a")))},
    "in device": lambda: {"in_shardings": SingleDeviceSharding(DEVICES[3])},
    "in_shardings None": lambda: {"in_shardings": None},
    "compiler_options": lambda: {"compiler_options": {"xla_cpu_enable_fast_min_max": True}},
}


@pytest.mark.parametrize("name", OPTIONS)
def test_options(as_jit, name):
    as_jit(lambda w, x: program(w, x)[0], ARGUMENTS["numpy"], is_linked=None, **OPTIONS[name]())


@pytest.mark.filterwarnings("ignore:backend and device argument:DeprecationWarning")
@pytest.mark.parametrize("options", [{"device": DEVICES[3]}, {"backend": "cpu"}], ids=str)
def test_options_of_the_past(linked, options):
    ours, theirs = linked(program, **options), jax.jit(program, **options)
    for _ in range(2):
        assert_same(ours(W, X), theirs(W, X), is_exact=False)


def test_meshes_around(as_jit):
    for n in (1, 4):
        with jax.set_mesh(mesh(n)):
            as_jit(program, ARGUMENTS["numpy"], is_linked=None)


def test_several_devices_and_back(linked):
    ours, theirs = linked(lambda w, x: program(w, x)[:2]), jax.jit(lambda w, x: program(w, x)[:2])
    calls = [ARGUMENTS["numpy"], WHOLE["sharded"], ARGUMENTS["committed elsewhere"], WHOLE["replicated"]]
    for make in calls * 2:
        assert_same(ours(*make()), theirs(*make()), is_exact=False)
