"""Components under a key of the user's: what a later process finds without tracing, and what it must not find."""

import collections
import operator
import os
import sys
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import prejit


def later(function, *args, **options):
    """Call a new component of the function as a later process would: nothing of the earlier one is in memory."""
    prejit.get_store().clear(tier="memory")
    component = prejit.component(function, **options)
    return component, component(*args)


def test_a_later_process_does_not_trace():
    runs = []

    def body(x, y):
        runs.append(1)
        return {"sum": x + y["b"], "rest": [x, None, (y["b"],)]}

    args = jnp.arange(3.0), {"b": 2.0}
    component, first = later(body, *args, key="keyed/plain", version=1)
    del component  # which two components of one key would share
    component, second = later(body, *args, key="keyed/plain", version=1)
    assert runs == [1]
    assert jax.tree.structure(first) == jax.tree.structure(second)
    assert component.cache_info().traces == 0
    assert component.cache_info().loads == 1
    _, third = later(body, *args, key="keyed/plain", version=2)
    assert runs == [1, 1]
    np.testing.assert_array_equal(third["sum"], first["sum"])


@pytest.fixture
def module(monkeypatch):
    """A module that classes can be imported from by name, as a user's would be."""
    made = types.ModuleType("test_keyed_classes")
    monkeypatch.setitem(sys.modules, made.__name__, made)
    return made


def pair_of(module, kind, fields):
    if kind == "namedtuple":
        made = collections.namedtuple("Pair", fields, module=module.__name__)
    else:
        made = type(
            "Pair", (), {"__module__": module.__name__, "__init__": lambda s, a, b: s.__dict__.update(a=a, b=b)}
        )
        flat = lambda s: [(jax.tree_util.GetAttrKey(f), getattr(s, f)) for f in fields]  # noqa: E731
        plain = lambda s: ([getattr(s, f) for f in fields], None)  # noqa: E731
        make = lambda _, leaves: made(**dict(zip(fields, leaves, strict=True)))  # noqa: E731
        if kind == "with names":
            jax.tree_util.register_pytree_with_keys(made, lambda s: (flat(s), None), make)
        else:
            jax.tree_util.register_pytree_node(made, plain, make)
    module.Pair = made
    return made


@pytest.mark.parametrize("kind", ["namedtuple", "with names", "without names"])
@pytest.mark.filterwarnings("ignore::prejit.KeyReuse")
def test_fields_that_change_places(kind, module):
    x = jnp.arange(3.0)
    for fields in (["a", "b"], ["b", "a"]):
        pair = pair_of(module, kind, fields)
        _, difference = later(lambda p: p.a - p.b, pair(a=x, b=10 * x), key=f"keyed/in {kind}")
        np.testing.assert_array_equal(difference, -9 * x)
        _, made = later(lambda x, pair=pair: pair(a=x, b=10 * x), x, key=f"keyed/out {kind}")
        np.testing.assert_array_equal(made.a, x)
        np.testing.assert_array_equal(made.b, 10 * x)


def test_environment_variables_are_looked_at_on_every_call(monkeypatch):
    monkeypatch.setenv("TEST_KEYED_FACTOR", "2")
    component = prejit.component(lambda x: x * float(os.environ["TEST_KEYED_FACTOR"]), env=("TEST_KEYED_FACTOR",))
    assert float(component(1.0)) == 2.0
    monkeypatch.setenv("TEST_KEYED_FACTOR", "5")
    assert float(component(1.0)) == 5.0


@pytest.mark.parametrize("make", [lambda: operator.methodcaller("sum"), lambda: Slotted(2.0)], ids=["caller", "slots"])
def test_callables_that_take_no_weak_reference(make):
    function = make()
    for _ in range(3):
        assert float(prejit.component(function)(jnp.float32(0))) == 0.0


class Slotted:
    __slots__ = ("factor",)

    def __init__(self, factor):
        self.factor = factor

    def __call__(self, x):
        return x * self.factor


def test_one_environment_variable_as_a_text(monkeypatch):
    monkeypatch.setenv("TEST_KEYED_FACTOR", "2")

    def make():
        return prejit.component(lambda x: x * float(os.environ["TEST_KEYED_FACTOR"]), key="e", env="TEST_KEYED_FACTOR")

    assert float(make()(1.0)) == 2.0
    prejit.get_store().clear(tier="memory")
    monkeypatch.setenv("TEST_KEYED_FACTOR", "5")
    assert float(make()(1.0)) == 5.0


@pytest.mark.parametrize(
    "options",
    [{"key": 5}, {"key": ""}, {"key": "k", "version": 1.5}, {"deps": 3}, {"env": [3]}, {"env": 3}, {"name": 3}],
)
def test_arguments_of_the_wrong_kind(options):
    (what,) = set(options) - {"key"} or {"key"}
    with pytest.raises(prejit.ConfigError, match=f"{what}="):
        prejit.component(lambda x: x, **options)
