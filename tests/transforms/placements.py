"""Programs with a say in where they run, each written once for `jax.jit` and for what stands in its place.

A scenario is a generator: it takes a `jit` and yields calls, as a function with its arguments, which `outcomes.py` runs
and compares.
"""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental.layout import Format, Layout
from jax.sharding import AxisType, Mesh, NamedSharding, SingleDeviceSharding
from jax.sharding import PartitionSpec as P

__all__ = ["DEVICES", "SCENARIOS", "data", "layers", "named"]

SCENARIOS: dict[str, "Scenario"] = {}
DEVICES = jax.devices()


@dataclasses.dataclass(frozen=True)
class Scenario:
    """Calls to make with a `jit`.

    Attributes:
        calls: Makes them.
        is_stored: Whether a second process can make all of them without compiling.
    """

    calls: Callable[[Any], Iterator[tuple[Any, ...]]]
    is_stored: bool


def scenario(*, is_stored=True):
    """Add a scenario."""

    def add(function):
        SCENARIOS[function.__name__] = Scenario(function, is_stored)
        return function

    return add


# -- what the scenarios are made of


def mesh(shape=(4, 2), names=("a", "b"), devices=DEVICES, types=AxisType.Auto):
    """Make a mesh over some devices."""
    size = int(np.prod(shape))
    return Mesh(np.array(devices[:size]).reshape(shape), names, axis_types=(types,) * len(names))


def named(*spec, **options):
    """Place over the mesh of all devices."""
    kind = options.pop("memory_kind", None)
    return NamedSharding(mesh(**options), P(*spec), memory_kind=kind)


def data(*shape, dtype="float32"):
    """Make an array of the host."""
    return (np.arange(np.prod(shape), dtype=np.float32).reshape(shape) / 100 - 0.3).astype(dtype)


def layers():
    """Make a function in which a part repeats, so that there is something to link."""
    layer = jax.jit(lambda w, x: jnp.tanh(x @ w) + x.mean())

    def function(w, x):
        for _ in range(3):
            x = layer(w, x)
        return x

    return function


# -- shardings given


@scenario()
def in_shardings_as_a_tree(jit):
    places = ({"w": named("a"), "b": named(None)}, named(None, "a"))
    f = jit(lambda p, x: (x @ p["w"] + p["b"], p), in_shardings=places)
    for _ in range(2):
        yield f, {"w": data(8, 8), "b": data(8)}, data(4, 8)
    yield f, {"w": jnp.asarray(data(8, 8)), "b": jax.device_put(data(8), named())}, data(4, 8)
    yield f, {"w": jax.device_put(data(8, 8), named("b")), "b": data(8)}, data(4, 8)
    yield f, {"w": data(8, 8)}, data(4, 8)


@scenario()
def in_shardings_as_a_prefix(jit):
    f = jit(lambda p, x: (jax.tree.map(lambda v: v * 2, p), x.sum()), in_shardings=(named("a"), None))
    yield f, {"w": data(8, 8), "b": (data(8), data(16, 2))}, jnp.asarray(data(4))
    yield f, {"w": data(8, 8), "b": (data(8), data(16, 2))}, jax.device_put(data(4), named("b"))
    one = jit(lambda p, x: (p, x + 1), in_shardings=named("a"), out_shardings=named(None, "b"))
    yield one, [data(8, 4)], data(8, 8)
    yield one, [data(8, 4)], data(8, 3)
    yield one, [data(3, 4)], data(8, 4)


@scenario()
def out_shardings_of_uncommitted_arguments(jit):
    f = jit(layers(), out_shardings=named("a", "b"))
    for x in (data(8, 8), jnp.asarray(data(8, 8)), jnp.asarray(data(8, 8))):
        yield f, data(8, 8), x
    g = jit(lambda w, x: {"x": x @ w, "y": [w.sum(), x]}, out_shardings={"x": named("b"), "y": None})
    yield g, data(8, 8), data(8, 8)
    there = jit(layers(), out_shardings=SingleDeviceSharding(DEVICES[3]))
    for _ in range(2):
        yield there, data(8, 8), jnp.asarray(data(8, 8))


@scenario()
def shardings_given_over_one_device(jit):
    for place in (SingleDeviceSharding(DEVICES[3]), NamedSharding(mesh((1,), ("a",), DEVICES[5:]), P("a"))):
        f = jit(layers(), in_shardings=place)
        yield f, data(8, 8), jnp.asarray(data(8, 8))
        yield f, data(8, 8), jax.device_put(data(8, 8), place)
        yield f, data(8, 8), jax.device_put(data(8, 8), DEVICES[1])
        yield jit(layers(), in_shardings=(None, place), out_shardings=place), data(8, 8), data(8, 8)


@scenario()
def specs_under_a_mesh(jit):
    f = jit(lambda w, x: (x @ w, w), in_shardings=(P("a"), P(None, "b")), out_shardings=(P("a", "b"), P()))
    with jax.set_mesh(mesh()):
        for _ in range(2):
            yield f, data(8, 8), data(8, 8)
    with jax.set_mesh(mesh((2, 4))):
        yield f, data(8, 8), data(8, 8)
    with jax.set_mesh(mesh((2, 2), devices=DEVICES[4:])):
        yield f, data(8, 8), data(8, 8)
    yield f, data(8, 8), data(8, 8)
    with jax.set_mesh(mesh((8,), ("c",))):
        yield f, data(8, 8), data(8, 8)


@scenario()
def shardings_and_statics(jit):
    f = jit(lambda n, w, x: (x @ w) ** n, static_argnums=0, in_shardings=(named("a"), named()))
    yield f, 2, data(8, 8), data(8, 8)
    yield f, 3, data(8, 8), data(8, 8)
    yield f, 3, data(8, 8), data(4, 8)


@scenario()
def wrong_shardings(jit):
    yield jit(lambda x: x, in_shardings=(named("a"), named("a"))), data(8)
    yield jit(lambda x: (x, x), out_shardings=(named("a"),)), data(8)
    yield jit(lambda x: x, in_shardings=named("a")), data(6)
    yield jit(lambda x: x, in_shardings=named("a", "b")), data(8)
    yield jit(lambda x: x.reshape(2, 3), out_shardings=named("a")), data(6)
    yield (lambda x: jit(lambda x: x, in_shardings=named("a"))(x=x)), data(8)
    yield (lambda x: jit(lambda x: x, in_shardings="a")(x)), data(8)
    yield (lambda x: jit(lambda x: x, out_shardings=P("a"))(x)), data(8)
    yield jit(lambda x: x, in_shardings=named("a"), out_shardings=SingleDeviceSharding(DEVICES[1])), data(8)


# -- shardings of arguments


@scenario()
def committed_arguments(jit):
    f = jit(lambda w, x: (x @ w, x.sum(0), w))
    for spec, other in ((P("a"), P(None, "b")), (P(("a", "b")), P()), (P("a"), P(None, "b"))):
        yield f, jax.device_put(data(8, 8), named(*other)), jax.device_put(data(8, 8), named(*spec))
    yield f, data(8, 8), jax.device_put(data(8, 8), named("a"))
    yield f, jnp.asarray(data(8, 8)), jax.device_put(data(8, 8), named("a"))
    yield f, jax.device_put(data(8, 8), DEVICES[0]), jax.device_put(data(8, 8), named("a"))
    yield f, jax.device_put(data(8, 8), DEVICES[2]), jax.device_put(data(8, 8), DEVICES[3])
    half = NamedSharding(mesh((4,), ("a",)), P("a"))
    yield f, jax.device_put(data(8, 8), half), jax.device_put(data(8, 8), named("a"))


@scenario()
def other_devices_of_equal_shape(jit):
    f = jit(lambda x: (x * 2, x.sum()))
    for devices in (DEVICES, DEVICES[4:], DEVICES[::-1], DEVICES[2:4] + DEVICES[:2], DEVICES):
        yield f, jax.device_put(data(8, 4), NamedSharding(mesh((2, 2), devices=devices), P("a", "b")))


@scenario()
def one_device_of_eight(jit):
    f = jit(layers())
    for _ in range(2):
        yield f, jax.device_put(data(8, 8), DEVICES[3]), jax.device_put(data(8, 8), DEVICES[3])
        yield f, jax.device_put(data(8, 8), DEVICES[3]), jnp.asarray(data(8, 8))
        yield f, data(8, 8), jax.device_put(data(8, 8), DEVICES[3])
    yield f, data(8, 8), jnp.asarray(data(8, 8))
    yield f, data(8, 8), jax.device_put(data(8, 8), NamedSharding(mesh((1,), ("a",), DEVICES[3:]), P("a")))
    yield f, jax.device_put(data(8, 8), DEVICES[1]), jax.device_put(data(8, 8), DEVICES[3])


@scenario()
def a_default_device(jit):
    f = jit(layers())
    with jax.default_device(DEVICES[3]):
        yield f, data(8, 8), jnp.asarray(data(8, 8))
        yield f, data(8, 8), data(8, 8)
    x = jnp.asarray(data(8, 8))
    with jax.default_device(DEVICES[5]):
        yield f, data(8, 8), x
        yield f, jax.device_put(data(8, 8), DEVICES[1]), x
    with jax.default_device("cpu"):
        yield f, data(8, 8), x
    yield f, data(8, 8), x
    yield (jit(lambda: jnp.arange(3.0) * 2),)


@scenario()
def weak_and_empty_and_keys(jit):
    f = jit(lambda x, n: (x * n, n, x.sum()), in_shardings=(named("a"), named()))
    yield f, data(8), 2
    yield f, data(8), jnp.float32(2)
    yield f, data(0, 8), 2.0
    g = jit(lambda k: (jax.random.normal(k[0], (8,)), jax.random.split(k[1])))
    yield g, jax.random.split(jax.random.key(0), 8)
    yield g, jax.device_put(jax.random.split(jax.random.key(0), 8), named("a"))
    yield jit(lambda k: k, in_shardings=named("a")), jax.random.split(jax.random.key(0), 8)
    yield jit(lambda k: jax.random.split(k, 8), out_shardings=named("a")), jax.random.key(0)


@scenario()
def what_is_returned_as_it_is(jit):
    f = jit(lambda x, y: (x, y, x, jnp.ones(3), 2.0, np.arange(4.0)), out_shardings=named())
    yield f, data(8), jnp.asarray(data(8))
    g = jit(lambda x, y: (x, y, x, jnp.ones(3), 2.0, np.arange(4.0)))
    yield g, jax.device_put(data(8), named("a")), data(3)
    yield g, jax.device_put(data(8), DEVICES[2]), jnp.asarray(data(3))


def placing(jit, place):
    """Make programs that are placed in one way each."""
    yield jit(lambda x: x * 2, out_shardings=place)
    yield jit(lambda x: x * 2, in_shardings=place)
    yield jit(lambda x: lax.with_sharding_constraint(x * 2, place))
    yield jit(lambda x: jax.device_put(x * 2, place))
    yield jit(jax.jit(lambda x: x * 2, out_shardings=place))


@scenario()
def devices_that_do_not_match(jit):
    over, turned = named("a"), NamedSharding(mesh(devices=DEVICES[::-1]), P("a"))
    for other in (over, DEVICES[0], turned):
        for f in placing(jit, over):
            yield f, jax.device_put(data(8, 8), other)
    there = SingleDeviceSharding(DEVICES[1])
    for other in (DEVICES[1], over):
        for f in placing(jit, there):
            yield f, jax.device_put(data(8, 8), other)


@scenario()
def one_device_that_does_not_match(jit):
    for f in placing(jit, SingleDeviceSharding(DEVICES[1])):
        yield f, jax.device_put(data(8, 8), DEVICES[1])
    for f in placing(jit, SingleDeviceSharding(DEVICES[1])):
        yield f, jax.device_put(data(8, 8), DEVICES[0])


# -- meshes with explicit axes


def explicit(*spec):
    """Place over a mesh whose axes are part of types."""
    return NamedSharding(mesh(types=AxisType.Explicit), P(*spec))


@scenario()
def explicit_axes(jit):
    f = jit(lambda w, x: (jnp.dot(x, w, out_sharding=P("a", None)), jnp.sin(x), x.sum(0)))
    with jax.set_mesh(mesh(types=AxisType.Explicit)):
        for _ in range(2):
            yield f, jax.device_put(data(8, 8), explicit("b")), jax.device_put(data(8, 8), explicit("a", "b"))
        yield f, data(8, 8), jax.device_put(data(8, 8), explicit("a"))
        yield jit(lambda x: jax.sharding.reshard(x, P(None, "a")) * 2), jax.device_put(data(8, 8), explicit("a"))
        yield jit(lambda x: x * 2, in_shardings=P("a"), out_shardings=P(None, "b")), data(8, 8)
        yield jit(lambda x, y: x + y), *[jax.device_put(data(8, 8), explicit(axis)) for axis in "ab"]
    g = jit(lambda x: (x * 2, x.T))
    yield g, jax.device_put(data(8, 8), explicit("a"))
    yield g, jax.device_put(data(8, 8), named("a"))
    yield g, data(8, 8)


@scenario()
def layers_over_explicit_axes(jit):
    f = jit(layers())
    with jax.set_mesh(mesh(types=AxisType.Explicit)):
        for spec in (("a", None), (None, None), ("a", None)):
            yield f, jax.device_put(data(8, 8), explicit()), jax.device_put(data(8, 8), explicit(*spec))


# -- placement inside


@scenario()
def shard_map_inside(jit):
    total = jax.shard_map(lambda x: lax.psum(x, "a") * 2, mesh=mesh(), in_specs=P("a"), out_specs=P())
    f = jit(lambda x: (total(jnp.sin(x)), x))
    for x in (data(8, 4), jnp.asarray(data(8, 4)), jax.device_put(data(8, 4), named("a", "b"))):
        yield f, x
    yield f, jax.device_put(data(8, 4), DEVICES[0])
    yield f, data(6, 4)
    layer = jax.jit(lambda x: total(jnp.tanh(x) + 1).sum() + x)
    yield jit(lambda x: layer(layer(layer(x)))), jnp.asarray(data(8, 4))


@scenario()
def constraints_inside(jit):
    f = jit(lambda x: lax.with_sharding_constraint(jnp.sin(x), named("a", "b")) + 1)
    for x in (data(8, 4), jnp.asarray(data(8, 4)), jax.device_put(data(8, 4), named("b"))):
        yield f, x
    yield f, jax.device_put(data(8, 4), DEVICES[1])
    for spec in (P("a"), P(None, P.UNCONSTRAINED)):
        g = jit(lambda x, spec=spec: lax.with_sharding_constraint(x * 2, spec))
        with jax.set_mesh(mesh()):
            yield g, data(8, 4)
            yield g, jax.device_put(data(8, 4), named("b", "a"))
        yield g, data(8, 4)
    there = SingleDeviceSharding(DEVICES[3])
    linked = layers()
    yield jit(lambda w, x: linked(w, lax.with_sharding_constraint(linked(w, x), there))), data(8, 8), data(8, 8)
    yield jit(lambda w, x: linked(w, jax.device_put(linked(w, x), DEVICES[3]))), data(8, 8), data(8, 8)


@scenario()
def shardings_given_inside(jit):
    inner = jax.jit(lambda w, x: jnp.tanh(x @ w), out_shardings=named("a"))
    f = jit(lambda w, x: inner(w, inner(w, x)))
    for _ in range(2):
        yield f, data(8, 8), jnp.asarray(data(8, 8))
    nested = jit(lambda w, x: jnp.tanh(x @ w), in_shardings=(named(), named("a")))
    yield jax.jit(lambda w, x: nested(w, nested(w, x))), data(8, 8), jnp.asarray(data(8, 8))
    yield jit(lambda w, x: nested(w, nested(w, x))), data(8, 8), jnp.asarray(data(8, 8))
    yield jax.vmap(nested, in_axes=(None, 0)), data(8, 8), data(2, 8, 8)
    yield jax.grad(lambda w, x: nested(w, x).sum()), data(8, 8), data(8, 8)


@scenario()
def sharded_constants(jit):
    table, small = jax.device_put(data(256, 256), named("a")), jax.device_put(data(8), named("b"))
    f = jit(lambda x: x @ table + small.sum())
    yield f, data(8, 256)
    yield f, jax.device_put(data(8, 256), named("a"))
    yield f, jax.device_put(data(8, 256), DEVICES[1])
    big, linked = jax.device_put(data(128, 128), DEVICES[2]), layers()
    yield jit(lambda x: linked(big, x)), data(8, 128)
    yield jit(lambda x: linked(big, x), out_shardings=named("a")), data(8, 128)


@scenario()
def meshes_in_the_context(jit):
    f = jit(lambda x: lax.with_sharding_constraint(x * 2, P("a", "b")) + jnp.sin(x))
    g = jit(lambda x: x * 2, in_shardings=P("b"), out_shardings=P(None, "a"))
    for shape, devices in (((4, 2), DEVICES), ((2, 4), DEVICES), ((2, 2), DEVICES[4:]), ((4, 2), DEVICES)):
        with mesh(shape, devices=devices):
            yield f, data(8, 4)
            yield g, jnp.asarray(data(8, 4))
    with jax.sharding.use_abstract_mesh(mesh().abstract_mesh):
        yield f, jax.device_put(data(8, 4), named("a"))
        yield f, data(8, 4)
    mixed = Mesh(np.array(DEVICES).reshape(4, 2), ("a", "b"), axis_types=(AxisType.Explicit, AxisType.Auto))
    h = jit(lambda x: lax.with_sharding_constraint(x * 2, NamedSharding(mixed, P(None, "b"))).sum(1))
    with jax.set_mesh(mixed):
        yield h, jax.device_put(data(8, 4), NamedSharding(mixed, P("a")))
        yield h, data(8, 4)
    spread = jax.vmap(lambda x: lax.with_sharding_constraint(x * 2, named(None)), spmd_axis_name="a")
    yield jit(spread), jax.device_put(data(8, 4), named("a"))
    yield jit(spread), data(8, 4)


# -- donation


@scenario()
def donated_shards(jit):
    f = jit(lambda s, x: ({"w": s["w"] + x, "n": s["n"] + 1}, x.sum()), donate_argnums=0)
    for spec in ("a", "a", "b"):
        yield f, jax.device_put({"w": data(8, 8), "n": data(8)}, named(spec)), jax.device_put(data(8, 8), named("a"))
    g = jit(lambda s, x: s * x, donate_argnums=0, in_shardings=(named("a"), named()), out_shardings=named("a"))
    yield g, jax.device_put(data(8, 8), named("a")), data(8)
    yield g, jnp.asarray(data(8, 8)), data(8)
    yield g, data(8, 8), data(8)
    yield jit(lambda s: s.sum(), donate_argnums=0), jax.device_put(data(8, 8), named("a"))
    by_name = jit(lambda s, x: s * x, donate_argnames="s")
    for spec in ("a", "b"):
        yield (lambda s, x: by_name(x=x, s=s)), jax.device_put(data(8, 8), named(spec)), data(8)
    # The same array twice, one of them given up, crashes the process in JAX itself when it is on several devices.


@scenario()
def donated_shards_that_no_result_can_take(jit):
    f = jit(lambda s: s * 2, donate_argnums=0, out_shardings=named("b"))
    yield f, jax.device_put(data(8, 8), named("a"))


@scenario()
def donated_on_one_device(jit):
    f = jit(layers(), donate_argnums=1)
    for _ in range(2):
        yield f, data(8, 8), jax.device_put(data(8, 8), DEVICES[3])
        yield f, jax.device_put(data(8, 8), DEVICES[3]), jnp.asarray(data(8, 8))
        yield f, jnp.asarray(data(8, 8)), jnp.asarray(data(8, 8))


# -- the other arguments of jax.jit


@scenario()
def device_and_backend(jit):
    for options in ({"device": DEVICES[3]}, {"backend": "cpu"}):
        f = jit(layers(), **options)
        for _ in range(2):
            yield f, data(8, 8), jnp.asarray(data(8, 8))
        yield f, data(8, 8), jax.device_put(data(8, 8), DEVICES[1])
    yield (lambda x: jit(lambda x: x, backend="no")(x)), data(8)


@scenario()
def device_and_backend_that_do_not_go_together(jit):
    yield (lambda x: jit(lambda x: x, in_shardings=named("a"), device=DEVICES[0])(x)), data(8)
    yield (lambda x: jit(lambda x: x, device=DEVICES[2], backend="cpu")(x)), data(8)


@scenario()
def unused_arguments(jit):
    for options in ({}, {"keep_unused": True}):
        linked = layers()
        f = jit(lambda w, x, u, linked=linked: linked(w, x), **options)
        yield f, data(8, 8), data(8, 8), jnp.asarray(data(4))
        yield f, data(8, 8), data(8, 8), jax.device_put(data(4), DEVICES[3])
        yield f, data(8, 8), jax.device_put(data(8, 8), DEVICES[1]), jax.device_put(data(4), DEVICES[1])
        yield f, data(8, 8), jax.device_put(data(8, 8), DEVICES[1]), jax.device_put(data(4), DEVICES[3])
        yield f, data(8, 8), data(8, 8), jax.device_put(data(8), named("a"))
        yield f, data(8, 8), jax.device_put(data(8, 8), named("a")), jax.device_put(data(8), named("b"))


@scenario()
def compiler_options(jit):
    good = {"xla_llvm_disable_expensive_passes": True}
    f = jit(layers(), compiler_options=good)
    for _ in range(2):
        yield f, data(8, 8), jnp.asarray(data(8, 8))
    yield f, data(8, 8), jax.device_put(data(8, 8), named("a"))
    yield jit(layers(), compiler_options=good, out_shardings=named("a")), data(8, 8), data(8, 8)
    for bad in ({"xla_no_such_option": True}, {"xla_llvm_disable_expensive_passes": "perhaps"}):
        yield (lambda w, x, bad=bad: jit(layers(), compiler_options=bad)(w, x)), data(8, 8), data(8, 8)


@scenario()
def compiler_options_of_a_wrong_type(jit):
    yield (lambda w, x: jit(layers(), compiler_options={"a": object()})(w, x)), data(8, 8), data(8, 8)


@scenario()
def memory_kinds(jit):
    host = SingleDeviceSharding(DEVICES[0], memory_kind="pinned_host")
    f = jit(layers())
    yield f, jax.device_put(data(8, 8), host), jax.device_put(data(8, 8), host)
    yield f, jax.device_put(data(8, 8), host), data(8, 8)
    for kind in ("pinned_host", "device", "unpinned_host", "no such memory"):
        yield (
            (lambda x, kind=kind: jit(lambda x: x * 2, out_shardings=named("a", memory_kind=kind))(x)),
            jax.device_put(data(8, 8), named("a")),
        )
    g = jit(lambda x: jax.device_put(jax.device_put(x * 2, jax.memory.Space.Host), jax.memory.Space.Device) + 1)
    yield g, data(8, 8)
    yield jit(lambda x: x + 1, in_shardings=named("a", memory_kind="pinned_host")), data(8, 8)
    yield jit(lambda x: x, in_shardings=host, out_shardings=host), data(8, 8)


@scenario()
def layouts(jit):
    turned = Format(Layout((1, 0)), SingleDeviceSharding(DEVICES[0]))
    over = Format(Layout((1, 0)), named("a"))
    yield jit(lambda x: x * 2, out_shardings=turned), data(8, 4)
    f = jit(lambda x: x * 2)
    for _ in range(2):
        yield f, jax.device_put(data(8, 4), turned)
        yield f, jax.device_put(data(8, 4), over)
        yield f, data(8, 4)
    g = jit(layers())
    yield g, jax.device_put(data(8, 8), turned), data(8, 8)
    yield jit(lambda x: x * 2, in_shardings=over, out_shardings=over), jax.device_put(data(8, 4), over)
    yield jit(lambda x: x * 2, in_shardings=over), data(8, 4)
    yield jit(lambda x: x * 2, in_shardings=turned), jax.device_put(data(8, 4), DEVICES[0])
    auto = jit(lambda x: x * 2, in_shardings=Format(Layout.AUTO), out_shardings=Format(Layout.AUTO))
    yield (lambda x: auto.lower(x).compile()(x)), data(8, 4)
    yield auto, data(8, 4)


# -- ahead of time, effects


@scenario()
def compiled_ahead(jit):
    spec = jax.ShapeDtypeStruct((8, 8), jnp.float32, sharding=named("a"))
    f = jit(lambda w, x: x @ w)
    yield (lambda w, x: f.lower(spec, spec).compile()(w, x)), *[jax.device_put(data(8, 8), named("a"))] * 2
    yield (lambda w, x: f.lower(spec, spec).compile()(w, x)), *[data(8, 8)] * 2
    yield (lambda w, x: f.lower(spec, spec).compile()(w, x)), *[jax.device_put(data(8, 8), named("b"))] * 2
    there = jax.ShapeDtypeStruct((8, 8), jnp.float32, sharding=SingleDeviceSharding(DEVICES[3]))
    g = jit(layers())
    compiled = g.lower(there, there).compile()
    yield compiled, jax.device_put(data(8, 8), DEVICES[3]), jax.device_put(data(8, 8), DEVICES[3])
    yield compiled, data(8, 8), jnp.asarray(data(8, 8))
    yield compiled, data(8, 8), jax.device_put(data(8, 8), DEVICES[1])
    placed = jit(lambda x: x * 2, in_shardings=named("a"), out_shardings=named("b"))
    yield placed.lower(jax.ShapeDtypeStruct((8, 8), jnp.float32)).compile(), data(8, 8)
    yield (lambda x: [str(place) for place in jax.tree.leaves(placed.lower(x).compile().input_shardings)]), data(8, 8)


@scenario(is_stored=False)
def effects_on_several_devices(jit):
    seen = []
    x = jax.device_put(data(8, 8), named("a"))

    def watched(x, is_ordered):
        jax.debug.callback(lambda n: seen.append(float(n)), x.sum(), ordered=is_ordered)
        return x * 2

    yield jit(lambda x: watched(x, is_ordered=False)), x
    jax.effects_barrier()
    yield ((lambda: seen),)
    yield jit(lambda x: watched(x, is_ordered=True)), x
    spec = jax.ShapeDtypeStruct((8, 8), np.float32)
    yield jit(lambda x: jax.pure_callback(lambda v: np.sin(v), spec, x * 2)), x
    yield jit(lambda x: watched(watched(x, is_ordered=True), is_ordered=True)), jax.device_put(data(8, 8), DEVICES[3])
    jax.effects_barrier()
    yield ((lambda: seen),)
