"""A traced program has one digest in every process, under every hash seed, wherever its code stands."""

import importlib.util
import json
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from prejit.key import program_digest

ZOO = Path(__file__).with_name("zoo.py")


@pytest.fixture(scope="module")
def zoo():
    spec = importlib.util.spec_from_file_location("key_zoo", ZOO)
    module = importlib.util.module_from_spec(spec)
    sys.modules["key_zoo"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["key_zoo"]


def test_programs_of_the_zoo_all_differ(zoo):
    digests = zoo.digests()
    assert len(digests) >= 40
    assert len(set(digests.values())) == len(digests)


def test_tracing_again_gives_the_same_digest(zoo):
    first = zoo.digests()
    jax.clear_caches()
    assert zoo.digests() == first


@pytest.mark.parametrize("seed", ["0", "4242"])
def test_digests_hold_in_a_fresh_process_with_moved_code(zoo, run_python, tmp_path, seed):
    moved = tmp_path / "elsewhere" / f"moved_{seed}.py"
    moved.parent.mkdir()
    source = ZOO.read_text().split("\n", 1)[1]  # without the docstring
    moved.write_text("\n" * 40 + "# another file, another place\nUNRELATED = [n for n in range(10)]\n" + source)
    code = f"import runpy; runpy.run_path({str(moved)!r}, run_name='__main__')"
    done = run_python(code, env={"PYTHONHASHSEED": seed})
    assert json.loads(done.stdout) == zoo.digests()


def test_names_do_not_matter():
    def one(first):
        def inner(x):
            return jnp.sin(x)

        return jax.jit(inner)(first) + 1

    def another(renamed):
        def different_name(y):
            return jnp.sin(y)

        return jax.jit(different_name)(renamed) + 1

    assert digest(one, 2.0) == digest(another, 2.0)


def test_rules_for_differentiation_do_not_matter_to_the_primal_program():
    def with_rule(scale):
        @jax.custom_vjp
        def fun(x):
            return jnp.sin(x)

        fun.defvjp(lambda x: (jnp.sin(x), x), lambda x, g: (scale * g * jnp.cos(x),))
        return fun

    assert digest(with_rule(1.0), 2.0) == digest(with_rule(2.0), 2.0)
    assert digest(jax.grad(with_rule(1.0)), 2.0) != digest(jax.grad(with_rule(2.0)), 2.0)


def test_policy_of_remat_does_not_matter_until_differentiated():
    def with_policy(policy):
        return jax.checkpoint(lambda x: jnp.sin(jnp.dot(x, x)).sum(), policy=policy)

    x = jnp.ones((3, 3))
    none, dots = jax.checkpoint_policies.nothing_saveable, jax.checkpoint_policies.dots_saveable
    assert digest(with_policy(none), x) == digest(with_policy(dots), x)
    assert digest(jax.grad(with_policy(none)), x) != digest(jax.grad(with_policy(dots)), x)


def test_constants_count_by_content_wherever_they_live():
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    on_device = jnp.asarray(values)
    copy = jnp.asarray(values.copy(order="F"))
    assert digest(lambda x: x + on_device, 1.0) == digest(lambda x: x + copy, 1.0)


def test_hoisted_constants_count_by_aval_only():
    def closed(value):
        const = jnp.full((3,), value)
        return jax.make_jaxpr(lambda x: x + const)(jnp.ones(3))

    one, two = closed(1.0), closed(2.0)
    assert len(one.consts) == 1
    assert program_digest(one).digest != program_digest(two).digest
    assert program_digest(one, hoisted_consts=[0]).digest == program_digest(two, hoisted_consts=[0]).digest
    assert program_digest(one, hoisted_consts=[0]).digest != program_digest(one).digest


def test_a_shared_jaxpr_is_walked_once():
    inner = jax.jit(lambda x: jnp.sin(x) * 2)

    def nest(depth, x):
        fun = inner
        for _ in range(depth):
            fun = jax.jit(lambda y, fun=fun: fun(fun(y)))
        return fun(x)

    identity = program_digest(jax.make_jaxpr(lambda x: nest(40, x))(1.0))  # 2 ** 40 calls
    assert identity.nr_eqns < 200
    assert "sin" in identity.primitives


def test_foreign_functions_are_listed():
    call = jax.ffi.ffi_call("some_target", jax.ShapeDtypeStruct((), jnp.float32))
    assert program_digest(jax.make_jaxpr(lambda x: call(x, n=np.int32(1)))(1.0)).custom_calls == ("some_target",)


def digest(fun, *args):
    return program_digest(jax.make_jaxpr(fun)(*args)).digest
