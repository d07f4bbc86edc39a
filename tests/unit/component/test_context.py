"""JAX's configuration around a component that is already warm: the result follows it, as `jax.jit`'s does."""

import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.transforms.table import assert_same

import prejit


def test_disable_jit_runs_python():
    seen = []

    def body(x, n):
        seen.append(x)
        return x + n

    component = prejit.component(body, static_argnums=1)
    component(1.0, 2)
    for spelled in (lambda: component(1.0, 2), lambda: component(x=1.0, n=2)):
        with jax.disable_jit():
            seen.clear()
            assert float(spelled()) == 3.0
            assert seen == [1.0], "the argument itself, not a tracer"
            assert type(spelled()) is type(body(1.0, 2))
    with jax.disable_jit():
        assert float(jax.grad(component)(1.0, 2)) == 1.0


def test_disabled_prejit_is_jit():
    component = prejit.component(lambda x: x * 2)
    with prejit.disabled():
        assert float(component(2.0)) == 4.0
        assert float(jax.jit(lambda x: component(x))(2.0)) == 4.0
    assert component.cache_info().misses == 0
    assert prejit.get_store().keys() == []
    component(2.0)
    assert component.cache_info().misses == 1
    with prejit.disabled(), pytest.raises(TypeError):
        component("text")


@pytest.mark.parametrize("mode", ["debug_nans", "debug_infs"])
def test_nans_and_infs_are_found_cold_and_warm(mode):
    bad, good = jnp.float32(0), jnp.float32(2)
    body = (lambda x: jnp.log(x) - jnp.log(x)) if mode == "debug_nans" else (lambda x: jnp.float32(1) / x)
    component = prejit.component(body)
    with getattr(jax, mode)(True):
        assert np.isfinite(component(good))
        for _ in range(2):
            with pytest.raises(FloatingPointError) as got:
                component(bad)
        with pytest.raises(FloatingPointError) as want:
            jax.jit(body)(bad)
        assert str(got.value) == str(want.value)
    assert not np.isfinite(component(bad)), "off: no check"
    with getattr(jax, mode)(True):
        assert np.isfinite(component(good))
        with pytest.raises(FloatingPointError):
            component(bad)
    assert not np.isfinite(component(bad))


def test_x64():
    component, jitted = (wrap(lambda x: x + jnp.arange(3)) for wrap in (prejit.component, jax.jit))
    for value in (np.float64(1), 1.0, 1, np.int64(1), np.ones(3)):
        for on in (False, True, False, True):
            with jax.enable_x64(on):
                assert_same(component(value), jitted(value))
    with jax.enable_x64(True):
        wide = jnp.ones(3)
    assert_same(component(wide), jitted(wide))


def test_x64_inside():
    def body(x):
        with jax.enable_x64(True):
            return jnp.asarray(x, "float64") * 2

    for link in ("auto", "outline"):
        component = prejit.component(body, link=link)
        assert_same(component(1.0), jax.jit(body)(1.0))
        assert_same(jax.jit(lambda x, f=component: f(x))(1.0), jax.jit(lambda x: jax.jit(body)(x))(1.0))


def test_matmul_precision():
    component = prejit.component(lambda x: x @ x)
    x = jnp.ones((2, 2))
    component(x)
    with jax.default_matmul_precision("highest"):
        component(x)
        assert "HIGHEST" in component.lower(x).as_text()
        inside = component.key_for(x)
    assert "HIGHEST" not in component.lower(x).as_text()
    assert component.key_for(x) != inside
    assert component.cache_info().entries == 2


@pytest.mark.parametrize("impl", ["rbg", "unsafe_rbg", "threefry2x32"])
def test_prng_implementation(impl):
    def draw(seed):
        return jax.random.uniform(jax.random.PRNGKey(seed), (3,))

    def draw_key(seed):
        return jax.random.key_data(jax.random.key(seed))

    for body in (draw, draw_key):
        component = prejit.component(body)
        before = np.asarray(component(0))
        with jax.default_prng_impl(impl):
            assert np.array_equal(component(0), body(0))
            assert np.array_equal(jax.jit(lambda s, f=component: f(s))(0), body(0))
        assert np.array_equal(component(0), before)


def test_threefry_partitionable():
    component = prejit.component(lambda s: jax.random.uniform(jax.random.key(s), (4,)))
    before = np.asarray(component(0))
    with jax.threefry_partitionable(not jax.config.jax_threefry_partitionable):
        assert not np.array_equal(component(0), before)
    assert np.array_equal(component(0), before)


def test_strict_promotion_raises_when_warm():
    component = prejit.component(lambda i: jnp.float32(1) + i)
    assert float(component(jnp.int32(1))) == 2.0
    for _ in range(2):
        with jax.numpy_dtype_promotion("strict"), pytest.raises(Exception, match="promotion path"):
            component(jnp.int32(1))
        assert float(component(jnp.int32(1))) == 2.0


def test_rank_promotion_raises_when_warm():
    component = prejit.component(lambda x: x + jnp.ones((2, 3)))
    component(jnp.ones(3))
    with jax.numpy_rank_promotion("raise"), pytest.raises(ValueError, match="rank"):
        component(jnp.ones(3))
    component(jnp.ones(3))


@pytest.mark.parametrize("nested", [False, True])
def test_default_device(nested):
    if len(jax.devices()) < 2:
        pytest.skip("needs two devices")
    component = prejit.component(lambda x: x * 2 + jnp.arange(2.0))
    call = jax.jit(lambda x: component(x)) if nested else component
    for _ in range(2):
        for device in jax.devices()[:2]:
            with jax.default_device(device):
                out = call(1.0)
                assert out.devices() == {device}
                assert not out.committed
    assert call(1.0).devices() == {jax.devices()[0]}


def test_committed_arguments_decide_the_device():
    if len(jax.devices()) < 3:
        pytest.skip("needs three devices")
    component = prejit.component(lambda x, y: x + y)
    for _ in range(2):
        for device in jax.devices()[:3]:
            x = jax.device_put(jnp.ones(2), device)
            for args in ((x, 1.0), (1.0, x), (x, jnp.ones(2)), (np.ones(2, "float32"), x)):
                got, want = component(*args), jax.jit(lambda a, b: a + b)(*args)
                assert_same(got, want)
                assert got.devices() == {device}


def test_constants_follow_the_device():
    if len(jax.devices()) < 2:
        pytest.skip("needs two devices")
    table = np.arange(70_000, dtype="float32")
    component = prejit.component(lambda x: x + table)
    for _ in range(2):
        for device in jax.devices()[:2]:
            out = component(jax.device_put(jnp.float32(1), device))
            assert out.devices() == {device}
            assert np.array_equal(out, table + 1)


def test_threads_with_different_configurations(store):
    component = prejit.component(lambda x: x + jnp.arange(3))
    results, errors = {}, []
    barrier = threading.Barrier(4)

    def run(number):
        try:
            with prejit.use_store(store), jax.enable_x64(number % 2 == 1):
                barrier.wait(60)
                results[number] = [component(np.float64(1)).dtype.name for _ in range(20)]
        except Exception as error:  # noqa: BLE001
            errors.append(error)

    threads = [threading.Thread(target=run, args=(n,)) for n in range(4)]
    [t.start() for t in threads]
    [t.join(120) for t in threads]
    assert errors == []
    assert results == {n: ["float64" if n % 2 else "float32"] * 20 for n in range(4)}


def test_threads_share_one_compile(store):
    component = prejit.component(lambda x: jnp.sin(x) * 3)
    results = []
    barrier = threading.Barrier(8)

    def run():
        with prejit.use_store(store):
            barrier.wait(60)
            results.append(float(component(jnp.float32(1))))

    threads = [threading.Thread(target=run) for _ in range(8)]
    [t.start() for t in threads]
    [t.join(120) for t in threads]
    assert len(results) == 8
    assert len(set(results)) == 1
    info = component.cache_info()
    assert (info.compiles, info.misses, info.traces, info.entries) == (1, 1, 1, 1)


def test_clearing_caches_in_between(store):
    traced = []

    def body(x):
        traced.append(1)
        return jnp.sin(x)

    component = prejit.component(body)
    want = float(component(1.0))
    jax.clear_caches()
    assert float(component(1.0)) == want
    store.clear(tier="memory")
    assert float(component(1.0)) == want
    assert component.cache_info().loads == 1
    store.clear()
    assert float(component(1.0)) == want
    component.cache_clear()
    assert float(component(1.0)) == want
    assert float(jax.jit(lambda x: component(x))(1.0)) == want
    jax.clear_caches()
    assert float(jax.grad(component)(1.0)) == pytest.approx(np.cos(1.0))


def test_another_store_in_a_block_gets_its_own_entry(tmp_path):
    component = prejit.component(lambda x: x * 3)
    other = prejit.Store(tmp_path / "other")
    with prejit.use_store(other):
        assert float(component(1.0)) == 3.0
    assert len(other.keys()) > 0


def test_a_mesh_in_the_context_is_not_forgotten():
    if len(jax.devices()) < 4:
        pytest.skip("needs four devices")
    component = prejit.component(lambda x: jax.lax.with_sharding_constraint(x * 2, jax.sharding.PartitionSpec("a")))
    meshes = [
        jax.make_mesh((n,), ("a",), axis_types=(jax.sharding.AxisType.Auto,), devices=jax.devices()[:n]) for n in (2, 4)
    ]
    for _ in range(2):
        for mesh in meshes:
            with jax.set_mesh(mesh):
                assert len(component(jnp.ones(4)).devices()) == mesh.size
    with pytest.raises(Exception, match="mesh"):
        component(jnp.ones(4))


def test_names_of_scopes_are_no_part_of_the_key():
    component = prejit.component(lambda x: x * 2)
    with jax.named_scope("one"):
        component(1.0)
    component(1.0)
    assert component.cache_info().misses <= 1
