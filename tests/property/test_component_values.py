"""Random trees of random arrays through a component: what `jax.jit` gives, bit for bit."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.transforms.table import assert_same

import prejit

DTYPES = ["bool", "int8", "uint32", "int32", "float16", "float32", "complex64", jnp.bfloat16]


@pytest.fixture(autouse=True, scope="module")
def store(tmp_path_factory):
    with prejit.use_store(prejit.Store(tmp_path_factory.mktemp("store"))) as fresh:
        yield fresh


@st.composite
def arrays(draw):
    dtype = jnp.dtype(draw(st.sampled_from(DTYPES)))
    shape = tuple(draw(st.lists(st.integers(0, 3), max_size=3)))
    count = int(np.prod(shape))
    numbers = draw(st.lists(st.integers(-3, 100), min_size=count, max_size=count))
    array = np.array(numbers, "int64").reshape(shape).astype(dtype)
    kind = draw(st.sampled_from(["numpy", "jax", "fortran", "generic"]))
    if kind == "fortran":
        return np.asfortranarray(array)
    if kind == "generic" and shape == ():
        return array[()]
    return jnp.asarray(array) if kind == "jax" else array


scalars = st.one_of(
    st.integers(-(2**31), 2**31 - 1), st.booleans(), st.floats(width=32), st.complex_numbers(max_magnitude=10)
)
trees = st.recursive(
    st.one_of(arrays(), scalars, st.none()),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.tuples(inner, inner), st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
    ),
    max_leaves=4,
)


def identity(tree):
    return tree


def mixed(tree):
    leaves = jax.tree.leaves(tree)
    return {
        "twice": jax.tree.map(lambda v: jnp.add(v, v), tree),
        "first": leaves[:1],
        "count": len(leaves),
        "sums": [jnp.sum(v) for v in leaves],
    }


kept = {name: (prejit.component(f), jax.jit(f)) for name, f in (("identity", identity), ("mixed", mixed))}
FEW = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck), database=None)


@FEW
@given(trees, st.sampled_from(list(kept)))
def test_random_trees(tree, name):
    component, jitted = kept[name]
    want = jitted(tree)
    assert_same(component(tree), want)
    assert_same(component(tree), want)


@FEW
@given(trees)
def test_random_trees_from_the_store(tree):
    want = jax.jit(mixed)(tree)
    prejit.component(mixed)(tree)
    prejit.get_store().clear(tier="memory")
    again = prejit.component(mixed)
    assert_same(again(tree), want)
    assert again.cache_info().compiles == 0


@FEW
@given(trees)
def test_random_trees_in_a_program(tree):
    component, jitted = kept["mixed"]
    assert_same(jax.jit(lambda t: component(t))(tree), jax.jit(lambda t: jitted(t))(tree))
    got, want = jax.eval_shape(component, tree), jax.eval_shape(jitted, tree)
    assert jax.tree.structure(got) == jax.tree.structure(want)
    assert [(g.shape, g.dtype, g.weak_type) for g in jax.tree.leaves(got)] == [
        (w.shape, w.dtype, w.weak_type) for w in jax.tree.leaves(want)
    ]


@FEW
@given(st.lists(trees, min_size=2, max_size=3))
def test_keys_are_equal_only_if_jit_sees_one_program(options):
    component = kept["mixed"][0]
    for a in options:
        for b in options:
            if component.key_for(a) == component.key_for(b):
                assert str(jax.make_jaxpr(mixed)(a)) == str(jax.make_jaxpr(mixed)(b))
