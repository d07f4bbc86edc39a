"""Stages ahead of time, keys of calls, and exact counts."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from tests.transforms.table import assert_same

import prejit


def counting(body):
    seen = []

    def counted(*args, **kwargs):
        seen.append(1)
        return body(*args, **kwargs)

    return counted, seen


def body(x, y=2.0):
    return jnp.sin(x) * y


SPEC = jax.ShapeDtypeStruct((3,), "float32")


def test_stages_share_one_trace():
    counted, seen = counting(lambda x: jnp.sin(x))
    component = prejit.component(counted)
    traced = component.trace(SPEC)
    lowered = component.lower(SPEC)
    compiled = component.compile(SPEC)
    assert component.eval_shape(SPEC).shape == (3,)
    key = component.key_for(SPEC)
    x = jnp.arange(3.0)
    want = jax.jit(jnp.sin)(x)
    assert_same(compiled(x), want)
    assert_same(component(x), want)
    assert component.key_for(x) == key
    assert len(seen) == 1
    assert isinstance(traced, jax.stages.Traced)
    assert isinstance(lowered, jax.stages.Lowered)
    assert isinstance(compiled, jax.stages.Compiled)
    assert "sine" in lowered.as_text()
    assert_same(lowered.compile()(x), want)
    info = component.cache_info()
    assert (info.misses, info.hits, info.traces, info.compiles, info.entries) == (1, 1, 1, 1, 1) or info.compiles == 2


def test_stages_are_like_jits():
    component, jitted = prejit.component(body), jax.jit(body)
    for args, kwargs in [
        ((SPEC,), {}),
        ((SPEC, 3.0), {}),
        ((SPEC,), {"y": 3.0}),
        ((), {"x": SPEC, "y": SPEC}),
        ((2.0,), {}),
        ((np.ones(3),), {}),
        ((jax.ShapeDtypeStruct((), "float32", weak_type=True),), {}),
    ]:
        got, want = component.eval_shape(*args, **kwargs), jitted.eval_shape(*args, **kwargs)
        assert (got.shape, got.dtype, got.weak_type) == (want.shape, want.dtype, want.weak_type)
        assert component.trace(*args, **kwargs).jaxpr.out_avals == jitted.trace(*args, **kwargs).jaxpr.out_avals
        assert component.compile(*args, **kwargs).out_tree == jitted.lower(*args, **kwargs).compile().out_tree


def test_compiled_takes_calls_as_jits_does():
    component, jitted = prejit.component(body), jax.jit(body)
    x = jnp.arange(3.0)
    for args, kwargs in [((x,), {}), ((x, 3.0), {}), ((x,), {"y": 3.0}), ((), {"x": x, "y": x})]:
        got = component.compile(*args, **kwargs)
        want = jitted.lower(*args, **kwargs).compile()
        assert_same(got(*args, **kwargs), want(*args, **kwargs))
    compiled = component.compile(SPEC)
    for wrong in ((jnp.arange(4.0),), (jnp.arange(3),), (x, x), ()):
        with pytest.raises(TypeError):
            jitted.lower(SPEC).compile()(*wrong)
        with pytest.raises(TypeError):
            compiled(*wrong)


def test_compiled_with_statics_as_jits():
    def scaled(x, n, mode="a"):
        return x * n + len(mode)

    options = {"static_argnums": (1,), "static_argnames": ("n", "mode")}
    x = jnp.arange(3.0)
    got = prejit.component(scaled, **options).compile(x, 2, mode="abc")
    want = jax.jit(scaled, **options).lower(x, 2, mode="abc").compile()
    assert_same(want(x), got(x))


def test_compiled_analysis_and_text():
    compiled = prejit.component(body).compile(SPEC)
    assert compiled.as_text()
    assert compiled.cost_analysis() is not None
    assert compiled.memory_analysis() is not None
    compiled.input_shardings, compiled.output_shardings, compiled.in_tree, compiled.out_info  # noqa: B018


def test_a_compiled_component_serves_a_later_call(store):
    component = prejit.component(body)
    component.compile(SPEC)
    before = prejit.counters()
    component(jnp.arange(3.0))
    after = prejit.counters()
    assert after["compiles"] == before["compiles"]
    assert after["lowerings"] == before["lowerings"]
    store.clear(tier="memory")
    again = prejit.component(body)
    again.compile(SPEC)(jnp.arange(3.0))
    info = again.cache_info()
    assert (info.hits, info.misses, info.compiles, info.lowerings, info.loads, info.entries) == (1, 0, 0, 0, 1, 1)


def test_specs_with_shardings():
    if len(jax.devices()) < 4:
        pytest.skip("needs four devices")
    mesh = jax.make_mesh((4,), ("a",), axis_types=(jax.sharding.AxisType.Auto,), devices=jax.devices()[:4])
    sharding = NamedSharding(mesh, P("a"))
    spec = jax.ShapeDtypeStruct((8,), "float32", sharding=sharding)
    component = prejit.component(lambda x: x * 2)
    x = jax.device_put(jnp.arange(8.0), sharding)
    assert component.key_for(spec) == component.key_for(x)
    assert component.key_for(spec) != component.key_for(jnp.arange(8.0))
    assert component.key_for(spec) != component.key_for(
        jax.ShapeDtypeStruct((8,), "float32", sharding=NamedSharding(mesh, P()))
    )
    compiled = component.compile(spec)
    assert_same(compiled(x), jax.jit(lambda v: v * 2)(x))
    component(x)
    assert component.cache_info().misses == 1


def test_keys_tell_apart_what_jit_tells_apart():
    component = prejit.component(lambda x: x)
    values = [
        1.0,
        1,
        True,
        1j,
        np.float32(1),
        np.int32(1),
        jnp.ones(1),
        jnp.ones((1, 1)),
        jnp.ones(1, "float16"),
        jax.random.key(0),
        jax.random.key(0, impl="rbg"),
        jax.random.key_data(jax.random.key(0)),
        (1.0, 2.0),
        jax.device_put(jnp.ones(1), jax.devices()[0]),
    ]
    keys = [component.key_for(value) for value in values]
    assert len(set(keys)) == len(keys)
    assert len({key.digest for key in keys}) == len(keys)
    assert keys == [prejit.component(lambda x: x).key_for(value) for value in values]


def test_keys_do_not_tell_apart_what_is_the_same_program():
    component = prejit.component(lambda x, y=1.0: x * y)
    assert component.key_for(1.0, 2.0) == component.key_for(x=3.0, y=4.0) == component.key_for(5.0, y=6.0)
    assert component.key_for(np.ones(3, "float32")) == component.key_for(jnp.ones(3)) == component.key_for(SPEC)
    assert component.key_for(np.float64(1)) == component.key_for(np.float32(1))
    assert str(component.key_for(1.0))


def test_a_call_that_cannot_be_stored_has_no_key():
    component = prejit.component(lambda x: jax.debug.print("{}", x))
    with pytest.raises(prejit.errors.KeyingError) as error:
        component.key_for(1.0)
    assert error.value.reason
    assert component.compile(1.0) is not None


def test_counts_are_exact():
    component = prejit.component(lambda x: jnp.sin(x))
    zero = (0, 0, 0, 0, 0, 0, 0, 0)

    def info():
        i = component.cache_info()
        return (i.hits, i.misses, i.bypasses, i.traces, i.lowerings, i.compiles, i.loads, i.entries)

    assert info() == zero
    component(jnp.float32(1))
    assert info() == (0, 1, 0, 1, 1, 1, 0, 1)
    for _ in range(5):
        component(jnp.float32(2))
    assert info() == (0, 1, 0, 1, 1, 1, 0, 1), "the C++ dispatch answers"
    component(1.0)
    assert info() == (0, 2, 0, 2, 2, 2, 0, 2)
    component.cache_clear()
    assert info() == zero
    component(1.0)
    assert info()[0:3] == (1, 0, 0)
    assert info()[4:] == (0, 0, 0, 1)


def test_jits_and_components_in_each_other_are_traced_once():
    counted, seen = counting(lambda x: jnp.sin(x))
    inner = prejit.component(counted)
    outer = prejit.component(lambda x: inner(x) + jax.jit(lambda v: inner(v))(x) + inner(x))
    outer(jnp.float32(1))
    assert len(seen) == 1
    inner(jnp.float32(1))
    assert len(seen) == 1
    jax.jit(lambda x: outer(x) + inner(x))(jnp.float32(1))
    assert len(seen) == 1
    jitted, seen = counting(lambda x: jnp.cos(x))
    inner_jit = jax.jit(jitted)
    for _ in range(2):
        prejit.component(lambda x: inner_jit(x) + inner_jit(x))(jnp.float32(1))
    assert len(seen) == 1


def test_a_cleared_component_asks_the_store_again(store):
    component = prejit.component(body)
    component(1.0)
    store.clear()
    component(1.0)
    assert component.cache_info().misses == 2
    component.cache_clear()
    store.clear(tier="memory")
    component(1.0)
    assert component.cache_info().loads == 1
