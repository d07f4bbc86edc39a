"""Components next to the rest of JAX: meshes, collectives, custom rules, checks, export, captured tracers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.ad_checkpoint import checkpoint_name
from jax.experimental import checkify
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from tests.transforms.table import assert_same

import prejit

LINKS = ["auto", "outline", "inline"]


@pytest.fixture
def mesh():
    if len(jax.devices()) < 8:
        pytest.skip("needs 8 devices; another test made the backend first")
    return Mesh(np.array(jax.devices()[:8]).reshape(4, 2), ("a", "b"))


def body(x):
    return jnp.sin(x) * 2 + 1


def with_psum(x):
    return jnp.sin(x) / lax.psum(jnp.cos(x), "a")


@pytest.fixture(params=["component", *LINKS])
def wrap(request):
    """Make a component in one of the ways that must all look like `jax.jit`."""
    if request.param == "component":
        return prejit.component
    return lambda f, **named: prejit.component(f, link=request.param, **named)


def test_inside_shard_map(wrap, mesh):
    def program(g):
        mapped = jax.shard_map(lambda x: g(x), mesh=mesh, in_specs=P("a"), out_specs=P("a"))
        x = jnp.arange(8.0)
        return mapped(x), jax.jit(mapped)(x), jax.grad(lambda v: mapped(v).sum())(x)

    assert_same(program(wrap(with_psum)), program(jax.jit(with_psum)), is_exact=False)


def test_shard_map_inside(wrap, mesh):
    def mapped(x):
        return jax.shard_map(with_psum, mesh=mesh, in_specs=P("a"), out_specs=P("a"))(x)

    def program(g):
        x = jnp.arange(8.0)
        return g(x), jax.jit(lambda v: g(v) * 2)(x), jax.grad(lambda v: g(v).sum())(x), g(x)

    assert_same(program(wrap(mapped)), program(jax.jit(mapped)), is_exact=False)


def test_named_axis_of_vmap(wrap):
    def program(g):
        x = jnp.arange(4.0)
        return (
            jax.vmap(g, axis_name="a")(x),
            jax.jit(jax.vmap(g, axis_name="a"))(x),
            jax.vmap(jax.grad(g), axis_name="a")(x),
        )

    assert_same(program(wrap(with_psum)), program(jax.jit(with_psum)), is_exact=False)


def test_an_unbound_axis_is_the_same_error_after_it_was_bound(wrap):
    component = wrap(with_psum)
    jax.vmap(component, axis_name="a")(jnp.arange(4.0))
    with pytest.raises(NameError) as want:
        jax.jit(with_psum)(1.0)
    for _ in range(2):
        with pytest.raises(NameError) as got:
            component(1.0)
        assert str(got.value) == str(want.value)


def test_axis_sizes_are_not_mixed_up(wrap):
    component = wrap(lambda x: x * lax.axis_size("a"))
    assert jax.vmap(component, axis_name="a")(jnp.ones(3)).tolist() == [3.0] * 3
    assert jax.vmap(component, axis_name="a")(jnp.ones(4)).tolist() == [4.0] * 4


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_pmap(wrap, mesh):
    x = jnp.arange(4.0)
    got = jax.pmap(wrap(with_psum), axis_name="a", devices=jax.devices()[:4])(x)
    want = jax.pmap(jax.jit(with_psum), axis_name="a", devices=jax.devices()[:4])(x)
    np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=1e-6)


@pytest.mark.parametrize("spec", [P("a"), P("b"), P(("a", "b")), P()])
def test_sharded_arguments(mesh, spec):
    x = jax.device_put(jnp.arange(16.0).reshape(8, 2), NamedSharding(mesh, spec))
    component, jitted = prejit.component(body), jax.jit(body)
    for _ in range(2):
        assert_same(component(x), jitted(x))
    assert component.cache_info().misses == 1
    assert_same(jax.jit(lambda v: component(v) + 1)(x), jax.jit(lambda v: jitted(v) + 1)(x))


def test_another_sharding_is_another_program_and_loads_right(mesh, store):
    shardings = [NamedSharding(mesh, spec) for spec in (P("a"), P(None, "b"), P())]
    for _ in range(2):
        component = prejit.component(lambda x: x @ x.T)
        for sharding in shardings:
            x = jax.device_put(jnp.arange(32.0).reshape(8, 4), sharding)
            assert_same(component(x), jax.jit(lambda v: v @ v.T)(x))
        store.clear(tier="memory")
    assert component.cache_info().hits == 3


def test_constraints_inside(mesh, wrap):
    def constrained(x):
        y = lax.with_sharding_constraint(jnp.sin(x), NamedSharding(mesh, P("a")))
        return y * 2

    x = jnp.arange(8.0)
    component, jitted = wrap(constrained), jax.jit(constrained)
    for _ in range(2):
        assert_same(component(x), jitted(x))
        assert_same(jax.jit(lambda v: component(v))(x), jax.jit(lambda v: jitted(v))(x))


def test_explicit_mesh_axes(wrap):
    if len(jax.devices()) < 4:
        pytest.skip("needs 4 devices")
    explicit = jax.make_mesh((4,), ("a",), axis_types=(jax.sharding.AxisType.Explicit,), devices=jax.devices()[:4])
    component, jitted = wrap(body), jax.jit(body)
    with jax.set_mesh(explicit):
        x = jax.device_put(jnp.arange(8.0), NamedSharding(explicit, P("a")))
        for g in (lambda v: component(v), lambda v: jax.jit(lambda u: component(u))(v)):
            got, want = g(x), jitted(x)
            assert_same(got, want)
            assert jax.typeof(got) == jax.typeof(want)
    assert_same(component(jnp.ones(8)), jitted(jnp.ones(8)))


@pytest.mark.parametrize("link", LINKS)
def test_linear_transpose(link):
    matrix = jnp.arange(6.0).reshape(2, 3)
    linear = lambda x: matrix @ x  # noqa: E731
    spec = jax.ShapeDtypeStruct((3,), "float32")
    got = jax.linear_transpose(prejit.component(linear, link=link), spec)(jnp.ones(2))
    assert_same(got, jax.linear_transpose(jax.jit(linear), spec)(jnp.ones(2)))


@pytest.mark.parametrize("link", LINKS)
def test_float0_and_allow_int(link):
    f = lambda x, i: x * i  # noqa: E731
    component = prejit.component(f, link=link)
    for g in (component, jax.jit(f)):
        grads = jax.grad(g, (0, 1), allow_int=True)(2.0, 3)
        assert grads[1].dtype == jax.dtypes.float0
        with pytest.raises(TypeError, match="grad requires real- or complex-valued inputs"):
            jax.grad(g, 1)(2.0, 3)


@pytest.mark.parametrize("link", LINKS)
def test_custom_rules_around(link):
    component = prejit.component(body, link=link)

    @jax.custom_vjp
    def around(x):
        return component(x)

    around.defvjp(lambda x: (component(x), x), lambda x, g: (component(g) * x,))

    @jax.custom_jvp
    def forward(x):
        return component(x)

    forward.defjvp(lambda p, t: (component(*p), component(*p) * t[0]))
    x = jnp.float32(0.3)
    np.testing.assert_allclose(jax.grad(around)(x), body(1.0) * x, rtol=1e-6)
    np.testing.assert_allclose(jax.grad(forward)(x), body(x), rtol=1e-6)
    np.testing.assert_allclose(
        jax.grad(jax.grad(forward))(x), jax.grad(jax.grad(lambda v: jax.jit(forward)(v)))(x), rtol=1e-6
    )


@pytest.mark.parametrize("link", LINKS)
def test_a_tracer_of_an_outer_trace_is_captured(link):
    def program(wrap):
        def outer(x):
            return wrap(lambda y: y * x + jnp.sin(x))(2.0)

        return (
            jax.jit(outer)(3.0),
            jax.grad(outer)(3.0),
            jax.vmap(outer)(jnp.arange(3.0)),
            jax.jit(jax.grad(jax.grad(outer)))(3.0),
        )

    assert_same(program(lambda f: prejit.component(f, link=link)), program(jax.jit), is_exact=False)


@pytest.mark.parametrize("link", LINKS)
def test_checks_inside_are_not_lost(link):
    def checked(x):
        checkify.check(x > 0, "must be positive, got {x}", x=x)
        return jnp.log(x)

    component = prejit.component(checked, link=link)
    error, _ = checkify.checkify(lambda x: component(x))(jnp.float32(-1))
    assert "must be positive" in str(error.get())
    error, out = jax.jit(checkify.checkify(lambda x: component(x)))(jnp.float32(2))
    assert error.get() is None
    assert float(out) == pytest.approx(float(np.log(2)))
    with pytest.raises(ValueError, match="checkify") as want:
        jax.jit(checked)(jnp.float32(1))
    with pytest.raises(ValueError, match="checkify") as got:
        component(jnp.float32(1))
    assert str(got.value) == str(want.value)


@pytest.mark.parametrize("link", LINKS)
def test_export_of_a_program_with_a_component(link):
    from jax import export

    component = prejit.component(body, link=link)
    exported = export.export(jax.jit(lambda x: component(x) + 1))(jax.ShapeDtypeStruct((3,), "float32"))
    x = jnp.arange(3.0)
    np.testing.assert_allclose(exported.call(x), body(x) + 1, rtol=1e-6)


@pytest.mark.parametrize("link", LINKS)
def test_symbolic_shapes(link):
    from jax import export

    component = prejit.component(lambda x: jnp.sin(x) * x.shape[0], link=link)
    n = export.symbolic_shape("n")[0]
    exported = export.export(jax.jit(lambda x: component(x)))(jax.ShapeDtypeStruct((n,), "float32"))
    for size in (2, 5):
        x = jnp.arange(float(size))
        np.testing.assert_allclose(exported.call(x), jnp.sin(x) * size, rtol=1e-6)


@pytest.mark.parametrize("link", LINKS)
def test_saved_residuals_are_those_of_jit(link):
    def policy_body(x):
        y = checkpoint_name(jnp.sin(x), "mine")
        return jnp.cos(y @ y)

    def residuals(g):
        saved = jax.checkpoint(lambda x: g(x).sum(), policy=jax.checkpoint_policies.save_only_these_names("mine"))
        pull = jax.vjp(saved, jnp.ones((3, 3)))[1]
        return sorted(str(jnp.shape(leaf)) for leaf in jax.tree.leaves(pull))

    assert residuals(prejit.component(policy_body, link=link)) == residuals(jax.jit(policy_body))


def test_compile_time_evaluation():
    component = prejit.component(body)

    def program(x):
        with jax.ensure_compile_time_eval():
            known = float(component(jnp.float32(2)))
        return x * known

    assert float(jax.jit(program)(1.0)) == float(component(jnp.float32(2)))


def test_a_concrete_call_inside_a_trace_joins_it_as_jit_does():
    component = prejit.component(body)

    def program(x, g):
        return isinstance(g(jnp.float32(2)), jax.core.Tracer), x

    seen = []
    jax.jit(lambda x: seen.append(program(x, component)[0]) or x)(1.0)
    jax.jit(lambda x: seen.append(program(x, jax.jit(body))[0]) or x)(1.0)
    assert seen[0] == seen[1]


@pytest.mark.parametrize("link", LINKS)
def test_callbacks_and_debug_prints_inside_a_program(link, capfd):
    seen = []

    def noisy(x):
        jax.debug.callback(lambda v: seen.append(float(v)), x)
        return jax.pure_callback(lambda v: np.asarray(v) * 2, jax.ShapeDtypeStruct((), "float32"), x)

    component = prejit.component(noisy, link=link)
    assert float(jax.jit(lambda x: component(x) + component(x + 1))(jnp.float32(1))) == 6.0
    jax.effects_barrier()
    assert sorted(seen) == [1.0, 2.0]


@pytest.mark.parametrize("link", LINKS)
def test_ordered_effects_keep_their_order(link):
    from jax.experimental import io_callback

    seen = []

    def noisy(x):
        io_callback(lambda v: seen.append(float(v)), None, x, ordered=True)
        return x + 1

    component = prejit.component(noisy, link=link)

    def program(x):
        for _ in range(4):
            x = component(x)
        return x

    jax.jit(program)(jnp.float32(0)).block_until_ready()
    jax.effects_barrier()
    assert seen == [0.0, 1.0, 2.0, 3.0]
    jaxpr = jax.make_jaxpr(program)(jnp.float32(0))
    assert {type(e).__name__ for e in jaxpr.effects} == {
        type(e).__name__ for e in jax.make_jaxpr(jax.jit(noisy))(1.0).effects
    }
    seen.clear()
    jax.lax.fori_loop(0, 3, lambda _, x: component(x), jnp.float32(5))
    jax.effects_barrier()
    assert seen == [5.0, 6.0, 7.0]


@pytest.mark.parametrize("link", LINKS)
def test_donation_inside_a_program_is_ignored_as_for_jit(link):
    component = prejit.component(body, donate_argnums=0, link=link)
    x = jnp.arange(3.0)
    got = jax.jit(lambda v: component(v) + v)(x)
    assert_same(got, jax.jit(lambda v: jax.jit(body, donate_argnums=0)(v) + v)(x), is_exact=False)
    assert not x.is_deleted()


@pytest.mark.parametrize("link", LINKS)
def test_references_inside_a_program(link):
    def bump(ref, x):
        ref[...] += x
        return ref[...] * 2

    def program(g):
        def run(x):
            ref = jax.new_ref(x)
            out = g(ref, x)
            return out, ref[...]

        return jax.jit(run)(jnp.arange(3.0))

    assert_same(program(prejit.component(bump, link=link)), program(jax.jit(bump)), is_exact=False)
