"""A component under a stack of transformations gives what `jax.jit` gives in its place."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from tests.transforms.table import CASES, assert_same, stacked, summary

import prejit

POLICIES = jax.checkpoint_policies


def loss(g):
    return lambda *args: summary(g(*args))


def _tangents(args):
    def one(leaf):
        if jnp.issubdtype(leaf.dtype, jnp.inexact):
            return jnp.ones_like(leaf)
        return np.zeros(leaf.shape, jax.dtypes.float0)

    return jax.tree.map(one, args)


def eager(g, case):
    return g(*case.args), g(*case.args)


def under_jit(g, case):
    return jax.jit(g)(*case.args)


def vmap(g, case):
    return jax.vmap(g)(*stacked(case.args))


def vmap_in_axes_none(g, case):
    axes = (0, *[None] * (len(case.args) - 1))
    return jax.vmap(g, in_axes=axes)(stacked(case.args[0]), *case.args[1:])


def vmap_out_axes_none(g, case):
    def both(*args):
        return g(*args), g(*case.args)

    return jax.vmap(both, out_axes=(0, None))(*stacked(case.args))


def vmap_of_vmap(g, case):
    return jax.vmap(jax.vmap(g), axis_size=2)(*stacked(stacked(case.args)))


def jit_of_vmap(g, case):
    return jax.jit(jax.vmap(g, out_axes=0))(*stacked(case.args))


def scan_body(g, case):
    return lax.scan(lambda c, xs: (c + 1, g(*xs)), 0, stacked(case.args))


def while_body(g, case):
    def body(state):
        count, total = state
        return count + 1, total + summary(g(*case.args))

    return lax.while_loop(lambda state: state[0] < 2, body, (0, jnp.float32(0)))


def cond_branch(g, case):
    def either(flag, *args):
        return lax.cond(flag, loss(g), lambda *_: jnp.float32(0), *args)

    return either(True, *case.args), jax.jit(either)(False, *case.args), jax.jit(either)(True, *case.args)


def nested_in_itself(g, case):
    wrap = prejit.component if isinstance(g, prejit.Component) else jax.jit
    return wrap(lambda *args: (g(*args), g(*args)))(*case.args)


def make_jaxpr(g, case):
    jaxpr, out = jax.make_jaxpr(g, return_shape=True)(*case.args)
    return [
        jnp.zeros(a.shape, a.dtype) if not jax.dtypes.issubdtype(a.dtype, jax.dtypes.prng_key) else 0
        for a in jaxpr.out_avals
    ], [jnp.int32(bool(getattr(leaf, "weak_type", False))) for leaf in jax.tree.leaves(out)]


def eval_shape(g, case):
    out = jax.eval_shape(g, *case.args)
    return jax.tree.map(lambda leaf: jnp.array([*leaf.shape, bool(leaf.weak_type)], "int32"), out)


FORWARD_ANY = [eager, under_jit, vmap, vmap_in_axes_none, vmap_out_axes_none, vmap_of_vmap, jit_of_vmap, scan_body,
               while_body, cond_branch, nested_in_itself, make_jaxpr, eval_shape]  # fmt: skip


def jvp(g, case):
    return jax.jvp(g, case.args, _tangents(case.args))


def linearize(g, case):
    out, linear = jax.linearize(g, *case.args)
    return out, linear(*_tangents(case.args))


def jacfwd(g, case):
    return jax.jacfwd(loss(g), case.argnums)(*case.args)


def jit_of_jvp(g, case):
    return jax.jit(lambda *args: jax.jvp(loss(g), args, _tangents(args)))(*case.args)


FORWARD_MODE = [jvp, linearize, jacfwd, jit_of_jvp]


def grad(g, case):
    return jax.grad(loss(g), case.argnums)(*case.args)


def value_and_grad_has_aux(g, case):
    def with_aux(*args):
        out = g(*args)
        return summary(out), out

    return jax.jit(jax.value_and_grad(with_aux, case.argnums, has_aux=True))(*case.args)


def vjp(g, case):
    out, pull = jax.vjp(loss(g), *case.args)
    return out, pull(jnp.float32(2))


def grad_of_vmap(g, case):
    return jax.grad(lambda *args: summary(jax.vmap(g)(*args)), case.argnums)(*stacked(case.args))


def vmap_of_grad(g, case):
    return jax.vmap(jax.grad(loss(g), case.argnums))(*stacked(case.args))


def grad_through_scan(g, case):
    def total(*args):
        return lax.scan(lambda c, xs: (c + summary(g(*xs)), None), jnp.float32(0), args)[0]

    return jax.jit(jax.grad(total, case.argnums))(*stacked(case.args))


def grad_through_cond(g, case):
    def total(flag, *args):
        return lax.cond(flag, loss(g), lambda *_: jnp.float32(0), *args)

    return jax.jit(jax.grad(total, tuple(n + 1 for n in case.argnums)))(True, *case.args)


def _checkpointed(policy, name):
    def stack(g, case):
        return jax.grad(jax.checkpoint(loss(g), policy=policy), case.argnums)(*case.args)

    stack.__name__ = name
    return stack


checkpoint = _checkpointed(None, "checkpoint")
checkpoint_dots = _checkpointed(POLICIES.dots_saveable, "checkpoint_dots")
checkpoint_everything = _checkpointed(POLICIES.everything_saveable, "checkpoint_everything")

REVERSE_MODE = [grad, value_and_grad_has_aux, vjp, grad_of_vmap, vmap_of_grad, grad_through_scan, grad_through_cond,
                checkpoint, checkpoint_dots, checkpoint_everything]  # fmt: skip


def jacrev(g, case):
    return jax.jacrev(loss(g), case.argnums)(*case.args)


def hessian(g, case):
    return jax.hessian(loss(g), case.argnums[-1])(*case.args)


SECOND = [jacrev, hessian]

# The kinds of function that meet other rules: the rest is tried on the stacks that users write most.
EVERYWHERE = ("layer", "trees")
USUAL = {"eager", "under_jit", "vmap", "vmap_in_axes_none", "vmap_out_axes_none", "scan_body", "jvp", "grad",
         "value_and_grad_has_aux", "vmap_of_grad", "checkpoint", "eval_shape", "linearize"}  # fmt: skip


def _combinations():
    for name, case in CASES.items():
        stacks = list(FORWARD_ANY)
        if case.is_twice:
            stacks += FORWARD_MODE
        if case.is_reverse:
            stacks += REVERSE_MODE
        if case.is_twice and case.is_reverse:
            stacks += SECOND
        for stack in stacks:
            if name in EVERYWHERE or stack.__name__ in USUAL:
                yield pytest.param(name, stack, id=f"{name}-{stack.__name__}")


@pytest.mark.parametrize(("name", "stack"), list(_combinations()))
def test_a_component_is_an_inner_jit(name, stack):
    case = CASES[name]
    is_exact = name != "layer" or stack in (eager, make_jaxpr, eval_shape)  # Outlined: XLA fuses its code on its own.
    want = stack(jax.jit(case.function), case)
    component = prejit.component(case.function)
    assert_same(stack(component, case), want, is_exact=is_exact)
    # Again, with the store and all caches in memory filled.
    assert_same(stack(component, case), want, is_exact=is_exact)


@pytest.mark.parametrize("name", ["layer", "trees", "custom_vjp", "cond", "keys", "integers", "constants"])
@pytest.mark.parametrize("link", ["inline", "outline", "separate"])
@pytest.mark.parametrize(
    "stack", [under_jit, vmap_out_axes_none, value_and_grad_has_aux, vmap_of_grad, checkpoint_dots, scan_body]
)
def test_every_link_gives_the_same(name, link, stack):
    case = CASES[name]
    want = stack(jax.jit(case.function), case)
    component = prejit.component(case.function, link=link)
    assert_same(stack(component, case), want, is_exact=link == "inline")


@pytest.mark.parametrize(
    "stack", [jvp, linearize, hessian, jacrev, grad_of_vmap, grad_through_scan, vmap_of_vmap, nested_in_itself]
)
@pytest.mark.parametrize("name", ["layer", "elementwise"])
def test_an_outlined_call_under_rarer_stacks(name, stack):
    case = CASES[name]
    want = stack(jax.jit(case.function), case)
    assert_same(stack(prejit.component(case.function, link="outline"), case), want, is_exact=False)


@pytest.mark.parametrize("name", CASES)
def test_eager_calls_from_memory_and_from_the_store_are_bitwise_jit(name, store):
    case = CASES[name]
    want = jax.jit(case.function)(*case.args)
    first = prejit.component(case.function)
    assert_same(first(*case.args), want)
    assert first.cache_info().misses == 1
    store.clear(tier="memory")
    again = prejit.component(case.function)
    assert_same(again(*case.args), want)
    info = again.cache_info()
    assert (info.hits, info.misses, info.compiles, info.lowerings, info.loads) == (1, 0, 0, 0, 1)
