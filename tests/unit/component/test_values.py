"""What goes in and comes out: dtypes, weak types, layouts, keys, leaves that are no arrays, aliases, nothing at all."""

import collections
import dataclasses
import enum

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.transforms.table import assert_same

import prejit


class Level(enum.IntEnum):
    LOW = 1


class Wrapped:
    """An object that gives an array."""

    def __init__(self, value):
        self.value = value

    def __jax_array__(self):
        return jnp.asarray(self.value)


SCALARS = [
    1,
    True,
    1.5,
    2j,
    np.float32(1),
    np.float64(1),
    np.int8(1),
    np.bool_(True),
    np.uint32(7),
    np.complex64(1j),
    np.array(3),
    jnp.bfloat16(2),
    jnp.float32(1),
    jnp.asarray(1.0),
    jnp.asarray(1),
    np.float16(2),
    np.array(2.5, "float16"),
    -0.0,
    float("nan"),
    float("inf"),
    2**31 - 1,
    -(2**31),
]


def test_scalars_weak_and_strong():
    def body(x):
        return x + x, x, (x * jnp.ones(2, "float16") if not jnp.iscomplexobj(x) else x)

    component, jitted = prejit.component(body), jax.jit(body)
    for _ in range(3):
        for scalar in SCALARS:
            assert_same(component(scalar), jitted(scalar))


def test_arrays_of_every_dtype_and_order():
    def body(x):
        return x, x.T, x.reshape(-1)[:1]

    component, jitted = prejit.component(body), jax.jit(body)
    base = np.arange(6).reshape(2, 3)
    for dtype in (
        "bool",
        "int8",
        "int16",
        "uint8",
        "uint16",
        "uint32",
        "float16",
        "complex64",
        jnp.bfloat16,
        "int4",
        "uint4",
        jnp.float8_e4m3fn,
        "float64",
        "int64",
        "complex128",
    ):
        array = base.astype(jnp.dtype(dtype))
        for variant in (
            array,
            np.asfortranarray(array),
            array[::-1],
            array[:, ::-2],
            np.lib.stride_tricks.as_strided(array),
            array[:0],
        ):
            assert_same(component(variant), jitted(variant))
            assert_same(component(variant), jitted(variant))
    frozen = base.astype("float32")
    frozen.flags.writeable = False
    assert_same(component(frozen), jitted(frozen))


def test_numpy_arguments_are_not_kept():
    component = prejit.component(lambda x: x)
    array = np.ones(64, "float32")
    out = component(array)
    array[:] = 5
    assert np.array_equal(out, jax.jit(lambda x: x)(np.ones(64, "float32")))
    assert float(component(array)[0]) == 5


def test_numpy_constants_are_taken_as_they_were():
    """As in `jax.jit`, where a constant is part of the program."""
    for size in (4, 100_000):
        table = np.ones(size, "float32")
        component = prejit.component(lambda x, t=table: x + t)
        closing = prejit.component(lambda x: x + table)  # noqa: B023
        assert float(component(1.0)[-1]) == float(closing(1.0)[-1]) == 2.0
        table[:] = 7
        assert float(component(1.0)[-1]) == float(closing(1.0)[-1]) == 2.0, size


def test_large_constants_everywhere():
    table = jnp.arange(100_000, dtype="float32")
    host = np.arange(100_000, dtype="int32")

    def body(x):
        return (x * table).sum() + host[-1], table[3], host[2:4]

    for link in ("auto", "outline", "inline"):
        component = prejit.component(body, link=link)
        assert_same(component(jnp.float32(2)), jax.jit(body)(jnp.float32(2)))
        assert_same(component(jnp.float32(2)), jax.jit(body)(jnp.float32(2)))
        got = jax.grad(lambda x, f=component: f(x)[0])(2.0)
        assert_same(got, jax.grad(lambda x: jax.jit(body)(x)[0])(2.0), is_exact=False)
        assert_same(jax.vmap(component)(jnp.ones(2)), jax.vmap(jax.jit(body))(jnp.ones(2)), is_exact=False)
        compiled = component.compile(jax.ShapeDtypeStruct((), "float32"))
        assert_same(compiled(jnp.float32(2)), jax.jit(body)(jnp.float32(2)))


def test_objects_that_give_arrays():
    component, jitted = prejit.component(lambda x: x), jax.jit(lambda x: x)
    for value in (Wrapped(2.0), Level.LOW, {"a": Wrapped([1.0, 2.0])}):
        try:
            want = jitted(value)
        except (TypeError, ValueError) as error:
            with pytest.raises(type(error)):
                component(value)
        else:
            assert_same(component(value), want)
            assert_same(component(value), want)


@pytest.mark.parametrize("impl", ["threefry2x32", "rbg"])
def test_typed_and_raw_keys(impl):
    def body(key, tree):
        a, b = jax.random.split(key)
        return a, jax.random.normal(b, (2,)), tree

    component, jitted = prejit.component(body), jax.jit(body)
    for key in (jax.random.key(1, impl=impl), jax.random.PRNGKey(1, impl=impl)):
        for tree in ((key,), {"k": jax.random.split(jax.random.key(2, impl=impl), 3)}, None):
            with jax.default_prng_impl(impl):  # A raw key says nothing about its kind.
                for _ in range(2):
                    assert_same(component(key, tree), jitted(key, tree))
    donating = prejit.component(lambda k: jax.random.fold_in(k, 1), donate_argnums=0)
    for _ in range(2):
        key = jax.random.key(1, impl=impl)
        assert_same(donating(key), jax.random.fold_in(jax.random.key(1, impl=impl), 1))
        assert key.is_deleted()


def test_keys_of_two_kinds_are_not_mixed_up():
    component = prejit.component(lambda k: jax.random.bits(k))
    for _ in range(2):
        for impl in ("threefry2x32", "rbg", "unsafe_rbg"):
            key = jax.random.key(5, impl=impl)
            assert int(component(key)) == int(jax.random.bits(key))


def test_nothing_in_and_nothing_out():
    empty = [((), {}), (({},), {}), ((None,), {}), (([], ()), {}), ((), {"x": None})]
    for args, kwargs in empty:
        component = prejit.component(lambda *a, **k: None)
        for _ in range(2):
            assert component(*args, **kwargs) is None
        component = prejit.component(lambda *a, **k: (jnp.arange(3), {}))
        for _ in range(2):
            assert_same(component(*args, **kwargs), jax.jit(lambda: (jnp.arange(3), {}))())
    component = prejit.component(lambda x, y: x)
    for _ in range(2):
        assert_same(component(1.0, jnp.ones(3)), jax.jit(lambda x, y: x)(1.0, jnp.ones(3)))
    assert prejit.component(lambda x: ())(1.0) == ()


def test_outputs_that_are_inputs_are_as_jits():
    x = jnp.arange(300.0)

    def pointers(f):
        a, b, c = f(x)
        return [v.unsafe_buffer_pointer() == x.unsafe_buffer_pointer() for v in (a, b, c)], a is x, a is b

    component, jitted = (wrap(lambda v: (v, v, v + 0)) for wrap in (prejit.component, jax.jit))
    for _ in range(3):
        assert pointers(component) == pointers(jitted)
    assert not x.is_deleted()


def test_python_results():
    body = lambda x: (1, 2.0, True, 3j, np.float32(4), np.arange(3), x)  # noqa: E731
    component, jitted = prejit.component(body), jax.jit(body)
    for _ in range(2):
        assert_same(component(1), jitted(1))


Point = collections.namedtuple("Point", "x y")


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Model:
    w: jax.Array
    act: object = dataclasses.field(metadata={"static": True}, default=jnp.tanh)


def test_trees_of_every_kind():
    trees = [
        {"b": 1.0, "a": [1, (2.0, None)]},
        Point(1.0, {"z": ()}),
        collections.OrderedDict(z=1.0, a=2.0),
        collections.defaultdict(list, {"k": 1.0}),
        Model(jnp.ones(2)),
        {1: 1.0, 2: 2.0},
        {(1, 2): 3.0},
        [[], {}, 1.0],
    ]
    component, jitted = prejit.component(lambda t: t), jax.jit(lambda t: t)
    for _ in range(2):
        for tree in trees:
            got = component(tree)
            assert type(got) is type(tree)
            assert_same(got, jitted(tree))


class Holder:
    """A registered class with leaves that are no arrays."""

    def __init__(self, w, act, label):
        self.w, self.act, self.label = w, act, label


jax.tree_util.register_pytree_node(Holder, lambda h: ((h.w, h.act, h.label), None), lambda _, c: Holder(*c))


def test_leaves_of_registered_classes_that_are_no_arrays():
    def body(holder, x):
        return Holder(holder.w * 2, holder.act, holder.label + "!"), holder.act(holder.w * x)

    for link in ("auto", "outline"):
        component = prejit.component(body, link=link)
        for _ in range(2):
            for act in (jnp.tanh, jnp.negative):
                new, y = component(Holder(jnp.ones(2), act, "a"), 2.0)
                assert isinstance(new, Holder)
                assert (new.act, new.label) == (act, "a!")
                assert np.allclose(y, act(2.0))
                assert new.w.tolist() == [2.0, 2.0]
        assert component.cache_info().misses + component.cache_info().hits == 2
        grads = jax.grad(lambda w, f=component: f(Holder(w, jnp.tanh, "a"), 2.0)[1].sum())(jnp.ones(2))
        assert np.allclose(grads, 2 * (1 - np.tanh(2.0) ** 2))
        outs = jax.jit(lambda w, f=component: f(Holder(w, jnp.tanh, "b"), 2.0)[0].w)(jnp.ones(2))
        assert outs.tolist() == [2.0, 2.0]
        with jax.disable_jit():
            new, _ = component(Holder(jnp.ones(2), jnp.tanh, "a"), 2.0)
            assert isinstance(new, Holder)
            assert new.label == "a!"


def test_the_same_leaf_in_a_plain_container_is_a_mistake(same_error):
    same_error(lambda d: d["w"], {"w": 1.0, "act": jnp.tanh})
    same_error(lambda d: d[0], [1.0, "label"])
    same_error(lambda p: p.x, Point(1.0, "label"))
    same_error(lambda x: {"w": x, "act": jnp.tanh}, 1.0)


def test_lookalike_static_leaves_are_their_own_programs():
    component = prejit.component(lambda h: h.w / h.label if isinstance(h.label, str) is False else h.w)
    assert float(prejit.component(lambda h: jnp.float32(len(repr(h.label))))(Holder(1.0, None, "ab"))) == 4.0
    describe = prejit.component(lambda h: jnp.float32(len(h.label)))
    assert [float(describe(Holder(1.0, jnp.sin, text))) for text in ("a", "bcd", "")] == [1.0, 3.0, 0.0]
    assert float(component(Holder(4.0, None, 2.0))) == 2.0


def test_equinox_modules():
    eqx = pytest.importorskip("equinox")
    mlp = eqx.nn.MLP(2, 2, 4, 1, key=jax.random.key(0))
    want = mlp(jnp.ones(2))
    for link in ("auto", "outline"):
        component = prejit.component(lambda m, x: m(x), link=link)
        assert np.allclose(component(mlp, jnp.ones(2)), want)
        assert np.allclose(component(mlp, jnp.ones(2)), want)
        assert component.cache_info().misses + component.cache_info().hits == 1
        grads = eqx.filter_grad(lambda m, f=component: f(m, jnp.ones(2)).sum())(mlp)
        wanted = eqx.filter_grad(lambda m: m(jnp.ones(2)).sum())(mlp)
        assert all(
            np.allclose(g, w, rtol=1e-4) for g, w in zip(jax.tree.leaves(grads), jax.tree.leaves(wanted), strict=True)
        )
    direct = prejit.component(mlp)
    assert np.allclose(direct(jnp.ones(2)), want)
    assert np.allclose(direct(jnp.ones(2)), want)
    doubled = prejit.component(lambda m: jax.tree.map(lambda v: v * 2 if eqx.is_array(v) else v, m))(mlp)
    assert doubled.activation is mlp.activation
    assert np.allclose(doubled.layers[0].weight, mlp.layers[0].weight * 2)


def test_results_are_asynchronous_and_ready_after_waiting():
    component = prejit.component(lambda x: x @ x)
    out = component(jnp.ones((64, 64)))
    assert isinstance(out, jax.Array)
    assert float(out.block_until_ready()[0, 0]) == 64.0


def test_references():
    def body(ref, x):
        ref[...] += x
        return x * 2

    def run(f):
        ref = jax.new_ref(jnp.zeros(2))
        outs = [f(ref, jnp.ones(2)).tolist() for _ in range(3)]
        return outs, ref[...].tolist()

    assert run(prejit.component(body)) == run(jax.jit(body))


def test_callbacks_run_on_every_call_and_say_why_they_are_not_kept(capfd):
    from jax.experimental import io_callback

    seen = []
    spec = jax.ShapeDtypeStruct((), "float32")
    bodies = [
        lambda x: jax.pure_callback(lambda v: (seen.append(1), np.float32(v) * 2)[1], spec, x),
        lambda x: io_callback(lambda v: (seen.append(1), np.float32(v) * 2)[1], spec, x),
        lambda x: io_callback(lambda v: (seen.append(1), np.float32(v) * 2)[1], spec, x, ordered=True),
        lambda x: (jax.debug.callback(lambda v: seen.append(1), x), x * 2)[1],
        lambda x: (jax.debug.callback(lambda v: seen.append(1), x, ordered=True), x * 2)[1],
        lambda x: (jax.debug.print("seen {x}", x=x), x * 2)[1],
    ]
    for number, body in enumerate(bodies):
        seen.clear()
        lookups = []
        stop = prejit.events.subscribe(lookups.append)
        component = prejit.component(body)
        for _ in range(3):
            assert float(component(jnp.float32(2))) == 4.0
        jax.effects_barrier()
        stop()
        if number < 5:
            assert len(seen) == 3
        else:
            assert capfd.readouterr().out.count("seen 2.0") == 3
        info = component.cache_info()
        assert (info.bypasses, info.misses, info.hits, info.compiles, info.entries) == (1, 0, 0, 1, 0), number
        reasons = [event.reason for event in lookups if event.outcome == "bypass" and not event.is_eager]
        assert len(reasons) == 1
        assert "effect" in reasons[0] or "callback" in reasons[0]
    assert prejit.get_store().keys() == []
