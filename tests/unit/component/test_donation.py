"""Donated buffers go when, and only when, `jax.jit` would let them go."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import prejit

UNUSABLE = "Some donated buffers were not usable"


def add(x, y, z=None):
    return x + y if z is None else x + y + z


CALLS = [
    ("positional", lambda f, x, y: f(x, y)),
    ("keyword", lambda f, x, y: f(x, y=y)),
    ("keywords", lambda f, x, y: f(y=y, x=x)),
    ("three", lambda f, x, y: f(x, y, z=jnp.ones(4))),
]


@pytest.mark.parametrize(
    "options",
    [
        {"donate_argnums": 0},
        {"donate_argnums": 1},
        {"donate_argnames": "x"},
        {"donate_argnames": "y"},
        {"donate_argnums": -2},
        {"donate_argnums": (0,), "donate_argnames": ("y",)},
        {"donate_argnums": (1,), "donate_argnames": ("x",)},
        {"donate_argnums": (2,), "donate_argnames": ("y",)},
        {"donate_argnums": ()},
        {"donate_argnums": (0, 1)},
    ],
)
@pytest.mark.parametrize("call", [call for _, call in CALLS], ids=[name for name, _ in CALLS])
@pytest.mark.filterwarnings(f"ignore:{UNUSABLE}")
def test_the_same_buffers_are_deleted(options, call, store):
    def deleted(f):
        x, y = jnp.arange(4.0), jnp.arange(4.0) + 1
        out = call(f, x, y)
        return x.is_deleted(), y.is_deleted(), out.tolist()

    want = deleted(jax.jit(add, **options))
    component = prejit.component(add, **options)
    assert deleted(component) == want
    assert deleted(component) == want, "the second call is dispatched by C++"
    store.clear(tier="memory")
    assert deleted(prejit.component(add, **options)) == want, "from the store"


def test_a_donated_array_reuses_its_memory():
    x = jnp.arange(1000.0)
    before = x.unsafe_buffer_pointer()
    component = prejit.component(lambda v: v + 1, donate_argnums=0)
    out = component(x)
    assert out.unsafe_buffer_pointer() == before
    assert x.is_deleted()
    with pytest.raises((RuntimeError, ValueError), match="deleted"):
        component(x)


def test_unusable_donation_warns_as_jax_does():
    def messages(f):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            f(jnp.arange(4.0))
        return [(w.category, str(w.message), w.filename) for w in caught]

    body = lambda x: x.sum()  # noqa: E731
    got, want = messages(prejit.component(body, donate_argnums=0)), messages(jax.jit(body, donate_argnums=0))
    assert len(want) == 1
    assert got == want


def test_one_array_donated_twice():
    def outcome(f):
        x = jnp.arange(4.0)
        try:
            f(x, x)
        except Exception as error:  # noqa: BLE001
            return type(error), str(error).split("\n")[0][:60]
        return x.is_deleted()

    options = {"donate_argnums": (0, 1)}
    body = lambda a, b: (a + 1, b + 2)  # noqa: E731
    component = prejit.component(body, **options)
    want = outcome(jax.jit(body, **options))
    assert outcome(component) == want
    assert outcome(component) == want


def test_numpy_arrays_and_scalars_can_be_passed_where_donated():
    component = prejit.component(lambda x: x + 1, donate_argnums=0)
    array = np.arange(4, dtype="float32")
    for _ in range(2):
        assert component(array).tolist() == [1, 2, 3, 4]
        assert float(component(1.0)) == 2.0
    assert array.tolist() == [0, 1, 2, 3]


def test_trees_are_donated_whole():
    component = prejit.component(lambda tree: jax.tree.map(lambda v: v * 2, tree), donate_argnums=0)
    tree = {"a": jnp.ones(3), "b": [jnp.ones(2), None]}
    component(tree)
    assert all(leaf.is_deleted() for leaf in jax.tree.leaves(tree))


def test_donation_with_large_constants():
    """Constants that become arguments come before the donated one, and are never donated."""
    table = np.arange(100_000, dtype="float32")
    component = prejit.component(lambda x: x + table, donate_argnums=0)
    for _ in range(3):
        x = jnp.zeros(100_000)
        assert np.array_equal(component(x), table)
        assert x.is_deleted()
    assert table[5] == 5


def test_donation_is_part_of_the_key():
    spec = jax.ShapeDtypeStruct((4,), "float32")
    body = lambda x: x + 1  # noqa: E731
    assert prejit.component(body).key_for(spec) != prejit.component(body, donate_argnums=0).key_for(spec)


def test_nothing_is_donated_by_looking_ahead():
    component = prejit.component(lambda x: x + 1, donate_argnums=0)
    x = jnp.arange(4.0)
    component.trace(x), component.lower(x), component.compile(x), component.eval_shape(x), component.key_for(x)
    assert not x.is_deleted()
    component.compile(x)(x)
    assert x.is_deleted()


def test_donation_and_statics_together():
    def body(n, x, y, mode="a"):
        return x * n + y + len(mode)

    options = {"static_argnums": (0,), "static_argnames": ("mode",), "donate_argnums": (1,), "donate_argnames": ("y",)}
    for call in (lambda f, x, y: f(2, x, y), lambda f, x, y: f(2, x, y=y, mode="bc"), lambda f, x, y: f(2, x, y=y)):

        def deleted(f, call=call):
            x, y = jnp.arange(4.0), jnp.ones(4)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                out = call(f, x, y)
            return x.is_deleted(), y.is_deleted(), out.tolist()

        assert deleted(prejit.component(body, **options)) == deleted(jax.jit(body, **options))


def test_a_stored_component_warns_like_one_that_is_lowered(store):
    def said(f):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            f(jnp.arange(4.0))
        return [str(one.message) for one in caught]

    want = said(jax.jit(lambda x: x.sum() * 3, donate_argnums=0))
    assert len(want) == 1
    assert want[0].startswith(UNUSABLE)
    for options in ({}, {"key": "three sums"}):
        for _ in range(2):  # compiled, then loaded
            assert said(prejit.component(lambda x: x.sum() * 3, donate_argnums=0, **options)) == want
            store.clear(tier="memory")
            jax.clear_caches()
