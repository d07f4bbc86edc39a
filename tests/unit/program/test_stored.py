"""Plans in the store: what a process that has not traced a program links from them."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from prejit.program.stored import link_stored
from prejit.testing import count_compiles

rng = np.random.default_rng(0)
W = rng.normal(size=(8, 8)).astype("float32")
X = rng.normal(size=(4, 8)).astype("float32")


@jax.jit
def layer(w, x):
    return jnp.tanh(x @ w) + x


def program(w, x):
    for _ in range(3):
        x = layer(w, x)
    return {"x": x, "sum": (x.sum(), None), "w": w}


def kept(store):
    """Return the one stored plan."""
    (key,) = [key for key, info in store.items() if info.kind == "plan"]
    return store.get(key)


def bits(tree):
    return [(np.asarray(leaf).tobytes(), leaf.dtype, leaf.weak_type) for leaf in jax.tree.leaves(tree)]


def test_a_stored_plan_runs_without_a_trace(linked, store):
    want, on_device = linked(program)(W, X), jnp.asarray(X)
    store.clear(tier="memory")
    with count_compiles() as counts:
        stored = link_stored(kept(store), [W, X])
        for x in (X, on_device):
            got = stored.run_call((W, x), {})
    assert (counts.traced, counts.lowered, counts.compiled) == ([], [], [])
    assert jax.tree.structure(got) == jax.tree.structure(want)
    assert bits(got) == bits(want)


def test_what_is_given_up_goes(linked, store):
    linked(program, donate_argnums=1)(W, jnp.asarray(X))
    x = jnp.asarray(X)
    link_stored(kept(store), [W, x]).run_call((W, x), {})
    assert x.is_deleted()
    with pytest.raises(RuntimeError, match="deleted"):
        link_stored(kept(store), [W, x]).run_call((W, x), {})


def test_equal_programs_share_a_plan(linked, store):
    linked(program)(W, X)
    linked(lambda w, x: program(w, x))(W, X)
    kept(store)
    assert linked(lambda w, x: program(w, x)["x"])(W, X).shape == X.shape
    assert len([info for _, info in store.items() if info.kind == "plan"]) == 2


def test_an_executable_that_is_gone(linked, store):
    linked(program)(W, X)
    plan = kept(store)
    store.clear()
    with pytest.raises(LookupError):
        link_stored(plan, [W, X])


@pytest.mark.parametrize(
    "edit",
    [
        {"plan_format": 0},
        {"plan_format": None},
        {"layout": {}},
        {"units": []},
        {"used": [True]},
        {"out_types": []},
        {"out_tree": {}},
        {"given_up": ["0"]},
    ],
    ids=str,
)
def test_another_plan_is_refused(linked, store, edit):
    linked(program, donate_argnums=0)(jnp.asarray(W), X)
    plan = kept(store)
    link_stored(plan, [W, X])  # the control
    changed = json.dumps(json.loads(plan.sections["plan"]) | edit).encode()
    with pytest.raises((KeyError, TypeError, ValueError)):
        link_stored(dataclasses.replace(plan, sections={"plan": changed}), [W, X])
    with pytest.raises((KeyError, TypeError, ValueError)):
        link_stored(dataclasses.replace(plan, sections={}), [W, X])
