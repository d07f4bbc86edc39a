"""The decorator's own arguments: identity, names, dependencies; and what can be decorated."""

import copy
import functools
import gc
import inspect
import pickle
import weakref

import jax
import jax.numpy as jnp
import pytest

import prejit
from prejit.errors import ConfigError, KeyingError


@prejit.component
def module_level(x, y=2.0):
    """Say something."""
    return x * y


def test_two_bodies_under_one_key_warn_and_the_first_runs():
    first = prejit.component(lambda x: x + 1, key="deco/reuse")
    with pytest.warns(prejit.KeyReuse, match="deco/reuse") as caught:
        second = prejit.component(lambda x: x + 2, key="deco/reuse")
    assert caught[0].filename == __file__

    with pytest.warns(prejit.KeyReuse) as caught:

        @prejit.component(key="deco/reuse")
        def third(x):
            return x + 3

    assert caught[0].filename == __file__
    assert float(third(1.0)) == 2.0
    assert float(second(1.0)) == float(first(1.0)) == 2.0
    assert first.cache_info() == second.cache_info()
    assert first.cache_info().traces == 1


def test_the_same_body_under_one_key_does_not_warn():
    def make():
        return prejit.component(lambda x: x * 3, key="deco/same")

    a, b = make(), make()
    assert float(a(1.0)) == float(b(1.0)) == 3.0
    assert a.cache_info().traces == 1


def test_another_version_is_another_component():
    one = prejit.component(lambda x: x + 1, key="deco/version", version=1)
    two = prejit.component(lambda x: x + 2, key="deco/version", version=2)
    assert [float(one(1.0)), float(two(1.0))] == [2.0, 3.0]
    assert one.key_for(1.0) != two.key_for(1.0)
    same = prejit.component(lambda x: x + 1, key="deco/version", version="1")
    assert float(same(1.0)) == 2.0


@pytest.mark.parametrize("options", [{"static_argnums": 0}, {"link": "inline"}, {"donate_argnums": 0}, {"deps": (1,)}])
def test_other_options_under_one_key_are_an_error(options):
    first = prejit.component(lambda x: x, key="deco/options")
    with pytest.raises(ConfigError, match="deco/options"):
        prejit.component(lambda x: x, key="deco/options", **options)
    assert first is not None


@pytest.mark.parametrize("options", [{"link": "nope"}, {"link": 3}, {"direct": "nope"}, {"version": 1}])
def test_wrong_words_are_config_errors(options):
    [(name, value)] = options.items()
    with pytest.raises(ConfigError, match=f"decorating a component with {name}=") as caught:
        prejit.component(lambda x: x, **options)
    assert caught.value.name == name
    assert caught.value.expected
    assert caught.value.got == ("no key" if name == "version" else repr(value))
    assert caught.value.hint


def test_a_wrong_word_for_a_program_is_not_told_of_a_component():
    with pytest.raises(ConfigError) as caught:
        prejit.jit(lambda x: x, link="fast")
    assert str(caught.value) == (
        "decorating a function with link=: expected one of 'auto', 'inline', 'outline', 'separate', got 'fast'\n"
        "hint: write link= with 'auto', 'inline', 'outline' or 'separate', or leave it out"
    )
    assert caught.value.fields["name"] == "link"


def test_a_key_that_nobody_holds_is_free_again():
    component = prejit.component(lambda x: x + 1, key="deco/free")
    component(1.0)
    del component
    gc.collect()
    again = prejit.component(lambda x: x + 2, key="deco/free")
    assert float(again(1.0)) in (2.0, 3.0), "the promise is the user's"


def test_dependencies_are_part_of_the_key():
    def make(deps):
        return prejit.component(lambda x: x + 1, deps=deps).key_for(1.0)

    assert make(()) != make((1,))
    assert make((1,)) != make((1.0,))
    assert make((True,)) != make((1,))
    assert make(("a", 1)) != make((1, "a"))
    assert make((jnp.arange(3),)) == make((jnp.arange(3),))
    assert make((jnp.arange(3),)) != make((jnp.arange(4),))
    with pytest.raises(KeyingError, match=r"deps\[1\]"):
        prejit.component(lambda x: x, deps=(1, iter([])))


def test_environment_variables_are_part_of_the_key(monkeypatch):
    component = prejit.component(lambda x: x + 1, env=("DECO_MODE",))
    monkeypatch.delenv("DECO_MODE", raising=False)
    unset = component.key_for(1.0)
    monkeypatch.setenv("DECO_MODE", "")
    empty = component.key_for(1.0)
    monkeypatch.setenv("DECO_MODE", "None")
    assert len({unset, empty, component.key_for(1.0)}) == 3


def test_the_wrapper_looks_like_the_function():
    function = module_level.__wrapped__
    assert module_level.__name__ == "module_level"
    assert module_level.__doc__ == "Say something."
    assert module_level.__module__ == function.__module__
    assert inspect.signature(module_level) == inspect.signature(function)
    assert repr(module_level) == "<prejit.component module_level>"
    assert "other" in repr(prejit.component(function, name="other"))
    jitted = jax.jit(function)
    for name in ("__name__", "__qualname__", "__doc__", "__module__", "__annotations__"):
        assert getattr(module_level, name) == getattr(jitted, name) or name == "__annotations__"
    assert callable(module_level)
    assert hash(module_level) == hash(module_level)


def test_the_name_shows_in_the_store():
    prejit.component(lambda x: x + 1, name="my_name")(1.0)
    assert "my_name" in {info.name for _, info in prejit.get_store().items()}


def test_copies_are_the_component_itself():
    assert copy.copy(module_level) is module_level
    assert copy.deepcopy({"f": module_level})["f"] is module_level
    local = prejit.component(lambda x: x)
    assert copy.deepcopy([local])[0] is local


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_pickles_by_reference(protocol):
    local = prejit.component(lambda x: x)
    with pytest.raises((pickle.PicklingError, AttributeError)):
        pickle.dumps(local, protocol)
    if __name__ in __import__("sys").modules:
        assert pickle.loads(pickle.dumps(module_level, protocol)) is module_level


class Model:
    scale = 3.0

    def __init__(self, bias):
        self.bias = bias

    @functools.partial(prejit.component, static_argnums=0)
    def method(self, x):
        return x * self.scale + self.bias

    @staticmethod
    @prejit.component
    def fixed(x):
        return x + 1

    @classmethod
    @functools.partial(prejit.component, static_argnums=0)
    def of_class(cls, x):
        return x * cls.scale

    def plain(self, x):
        return x - self.bias

    def __call__(self, x):
        return x * self.bias


@jax.tree_util.register_pytree_node_class
class Tree:
    def __init__(self, w):
        self.w = w

    @prejit.component
    def method(self, x, y=1.0):
        return self.w * x + y

    def tree_flatten(self):
        return (self.w,), None

    @classmethod
    def tree_unflatten(cls, _, children):
        return cls(*children)


def test_methods():
    a, b = Model(1.0), Model(2.0)
    assert [float(m.method(2.0)) for m in (a, b, a)] == [7.0, 8.0, 7.0]
    assert float(Model.method(a, 2.0)) == 7.0
    assert float(a.fixed(1.0)) == float(Model.fixed(1.0)) == 2.0
    assert float(a.of_class(2.0)) == float(Model.of_class(2.0)) == 6.0
    assert float(jax.jit(a.method)(2.0)) == 7.0
    assert float(jax.grad(a.method)(2.0)) == 3.0
    tree = Tree(jnp.float32(3))
    assert float(tree.method(2.0)) == 7.0
    assert float(tree.method(2.0, y=2.0)) == 8.0
    assert float(jax.grad(lambda t: t.method(2.0))(tree).w) == 2.0


def test_bound_methods_partials_and_callable_objects():
    a, b = Model(1.0), Model(2.0)
    assert [float(prejit.component(m.plain)(5.0)) for m in (a, b)] == [4.0, 3.0]
    assert [float(prejit.component(m)(5.0)) for m in (a, b)] == [5.0, 10.0]
    assert float(prejit.component(jax.tree_util.Partial(jnp.add, 1))(2.0)) == 3.0
    partial = functools.partial(lambda x, lr, decay=1.0: x - lr * decay, lr=0.5)
    for component in (prejit.component(partial), prejit.component(functools.partial(partial, decay=2.0))):
        assert float(component(1.0)) == float(component.__wrapped__(1.0))
        assert "partial" not in repr(component) or True
    assert float(prejit.component(partial)(1.0, decay=2.0)) == 0.0
    assert float(prejit.component(functools.partial(lambda x, n: jnp.ones(n) * x, n=3))(2.0)[2]) == 2.0
    with pytest.raises(TypeError):
        prejit.component(functools.partial(lambda x, y: x, 1.0))(1.0, 2.0)


def test_builtins_ufuncs_classes_and_jitted_functions():
    assert float(prejit.component(jnp.sin)(0.0)) == 0.0
    assert float(prejit.component(jnp.add)(1.0, 2.0)) == 3.0
    assert float(prejit.component(jax.jit(lambda x: x * 2))(2.0)) == 4.0
    assert float(prejit.component(prejit.component(lambda x: x * 2))(2.0)) == 4.0
    assert float(prejit.component(abs)(-2.0)) == 2.0
    assert float(prejit.component(jax.vmap(lambda x: x * 2))(jnp.ones(2))[0]) == 2.0
    assert float(prejit.component(jax.grad(lambda x: x * x))(3.0)) == 6.0


def test_recursion():
    countdown = prejit.component(lambda x, n: x if n == 0 else countdown(x + 1, n - 1), static_argnums=1)
    assert float(countdown(0.0, 4)) == 4.0


def test_components_in_a_loop_are_their_own_and_go_away():
    made = []
    for i in range(5):
        component = prejit.component(lambda x, i=i: x + i)
        assert float(component(0.0)) == i
        assert float(jax.jit(lambda x, f=component: f(x))(0.0)) == i
        made.append(weakref.ref(component._core))
    del component
    jax.clear_caches()
    gc.collect()
    assert [ref() for ref in made] == [None] * 5


def test_components_go_away_without_clearing_anything():
    made = []
    for i in range(5):
        component = prejit.component(lambda x, i=i: x + i)
        component(0.0)
        made.append(weakref.ref(component._core))
    del component
    gc.collect()
    assert [ref() for ref in made] == [None] * 5


def test_globals_that_change_between_two_components():
    state = {"k": 2.0}

    def body(x):
        return x * state["k"]

    first = prejit.component(body)
    assert float(first(3.0)) == 6.0
    state["k"] = 5.0
    assert float(prejit.component(body)(3.0)) == 15.0, "a new component of the same function traces anew"
    assert float(first(3.0)) == 6.0
