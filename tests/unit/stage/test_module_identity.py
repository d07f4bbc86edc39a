"""Programs whose jaxpr can't be digested are told apart by their module and all that its text leaves out."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import Primitive
from jax.interpreters import mlir

import prejit


@pytest.fixture(scope="module")
def twice():
    """A primitive that is not JAX's own, so that no jaxpr shows what it computes."""
    primitive = Primitive("test_module_identity_twice")
    primitive.def_abstract_eval(lambda aval: jax.typeof(jax.ShapeDtypeStruct(aval.shape, aval.dtype)))
    primitive.def_impl(lambda x: x * 2)
    mlir.register_lowering(primitive, mlir.lower_fun(lambda x: x * 2, multiple_results=False))
    return primitive.bind


def test_which_arguments_are_used(twice):
    x, y = jnp.arange(4.0), jnp.arange(4.0) + 100
    first, second = prejit.component(lambda x, y: twice(x)), prejit.component(lambda x, y: twice(y))
    np.testing.assert_array_equal(first(x, y), x * 2)
    np.testing.assert_array_equal(second(x, y), y * 2)
    assert first.key_for(x, y) != second.key_for(x, y)
    assert first.key_for(x, y).get("identity", "module") is not None, "the test needs the fall-back"


def test_weak_types_of_results(twice):
    x = jnp.arange(4.0)
    strong, weak = prejit.component(lambda x: (twice(x), np.float32(2))), prejit.component(lambda x: (twice(x), 2.0))
    assert not strong(x)[1].weak_type
    assert weak(x)[1].weak_type


def test_types_that_a_module_does_not_show(twice):
    key = jax.random.key(0)
    raw = prejit.component(lambda x: (twice(x), jax.random.key_data(key)))
    typed = prejit.component(lambda x: (twice(x), key))
    assert raw(jnp.arange(4.0))[1].dtype == jnp.uint32
    assert jnp.issubdtype(typed(jnp.arange(4.0))[1].dtype, jax.dtypes.prng_key)


def test_the_same_program_is_found_again(twice):
    x = jnp.arange(4.0)
    assert prejit.component(lambda x: twice(x) + 1).key_for(x) == prejit.component(lambda y: twice(y) + 1).key_for(x)
