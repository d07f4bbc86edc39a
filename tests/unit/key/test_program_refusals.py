"""What a jaxpr does not show has no digest: the caller then digests the lowered module instead."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import io_callback
from jax.extend.core import Primitive
from jax.interpreters import mlir

from prejit._jax import jaxprs
from prejit.errors import KeyingError
from prejit.key import program_digest


def trace(fun, *args):
    return jax.make_jaxpr(fun)(*args)


def debug(x):
    jax.debug.print("{}", x)
    return x


@pytest.mark.parametrize(
    "fun",
    [
        lambda x: jax.pure_callback(np.sin, x, x),
        lambda x: io_callback(np.sin, x, x),
        debug,
        jax.jit(lambda x: lax.cond(x > 0, debug, jnp.cos, x)),
    ],
)
def test_host_callbacks_are_refused(fun):
    with pytest.raises(KeyingError) as error:
        program_digest(trace(fun, jnp.float32(1)))
    assert error.value.reason.startswith("host callback")


def test_the_path_leads_through_nested_programs():
    with pytest.raises(KeyingError) as error:
        program_digest(trace(jax.jit(lambda x: jax.pure_callback(np.sin, x, x)), jnp.float32(1)))
    assert error.value.path.endswith("[jaxpr].pure_callback")


@pytest.fixture
def own_primitive():
    primitive = Primitive("sin")  # A known name does not help.
    primitive.def_abstract_eval(lambda x: x)
    mlir.register_lowering(primitive, mlir.lower_fun(lambda x: x * 2, multiple_results=False))
    return primitive


def test_a_primitive_that_is_not_of_jax_is_refused(own_primitive):
    with pytest.raises(KeyingError, match="lowering rule"):
        program_digest(trace(own_primitive.bind, jnp.float32(1)))


@pytest.mark.parametrize("hidden", ["plain", "partial", "lower_fun", "wraps"])
def test_a_replaced_lowering_rule_is_refused_and_a_restored_one_is_not(hidden):
    jaxpr = trace(lax.cos, jnp.float32(1))
    expected = program_digest(jaxpr).digest
    entry = jaxprs.mlir._lowerings[lax.cos_p]

    def mine(ctx, x, **params):
        return entry.rule(ctx, x, **params)

    rule = {
        "plain": mine,
        "partial": functools.partial(mine),
        "lower_fun": mlir.lower_fun(lambda x, **_: x, multiple_results=False),
        "wraps": functools.wraps(entry.rule)(mine),
    }[hidden]
    jaxprs.mlir._lowerings[lax.cos_p] = type(entry)(rule, entry.inline)
    try:
        with pytest.raises(KeyingError, match="replaced"):
            program_digest(jaxpr)
    finally:
        jaxprs.mlir._lowerings[lax.cos_p] = entry
    assert program_digest(jaxpr).digest == expected


def test_a_rule_for_one_platform_counts_too():
    jaxpr = trace(lax.tan, jnp.float32(1))
    program_digest(jaxpr)
    table = jaxprs.mlir._platform_specific_lowerings["cpu"]
    before = table.get(lax.tan_p)
    mlir.register_lowering(lax.tan_p, lambda ctx, x, **_: [x], platform="cpu")
    try:
        with pytest.raises(KeyingError, match="replaced"):
            program_digest(jaxpr)
    finally:
        if before is None:
            del table[lax.tan_p]
        else:
            table[lax.tan_p] = before


def test_every_primitive_that_jax_lowers_is_known_and_its_own():
    jaxprs._scan()
    tables = [jaxprs.mlir._lowerings, *jaxprs.mlir._platform_specific_lowerings.values()]
    shipped = {primitive for table in tables for primitive in table if primitive in jaxprs._jax_primitives}
    assert len(shipped) > 200
    assert [primitive.name for primitive in shipped if jaxprs.foreign_primitive(primitive)] == []


def test_python_functions_in_params_are_refused():
    from jax.experimental.custom_partitioning import custom_partitioning

    @custom_partitioning
    def fun(x):
        return x * 2

    fun.def_partition(
        infer_sharding_from_operands=lambda mesh, args, result: args[0].sharding,
        partition=lambda mesh, args, result: (mesh, lambda x: x * 2, args[0].sharding, [args[0].sharding]),
        sharding_rule="i -> i",
    )
    with pytest.raises(KeyingError) as error:
        program_digest(trace(fun, jnp.ones(4)))
    assert "custom_partitioning[" in str(error.value)


def test_a_constant_that_was_deleted_is_refused():
    const = jnp.arange(3.0)
    jaxpr = trace(lambda x: x + const, jnp.ones(3))
    const.delete()
    with pytest.raises(KeyingError):
        program_digest(jaxpr)


def test_a_key_implementation_that_is_not_of_jax_is_refused():
    impl = jax.random.key(0).dtype._impl
    mine = impl._replace(seed=lambda seed: impl.seed(seed))
    from prejit.key.values import key_impl_token

    key_impl_token(impl)
    with pytest.raises(KeyingError):
        key_impl_token(mine)
