"""The binder against `inspect.signature.bind`: one spelling for each call, and never another meaning."""

import functools
import inspect

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prejit.signature.binding import Binder, unwrap
from prejit.signature.statics import Static

KINDS = ["/", "plain", "*args", "kw", "**kwargs"]


@st.composite
def functions(draw):
    """Draw a function that returns what it received, by name."""
    before = draw(st.integers(0, 2))
    plain = draw(st.integers(0, 3))
    keyword = draw(st.integers(0, 2))
    var_args, var_kwargs = draw(st.booleans()), draw(st.booleans())
    first_default = draw(st.integers(0, before + plain))
    names = [f"p{n}" for n in range(before)] + [f"q{n}" for n in range(plain)]
    shown = [f"{name}={100 + n}" if n >= first_default else name for n, name in enumerate(names)]
    if before:
        shown.insert(before, "/")
    if var_args:
        shown.append("*rest")
    elif keyword:
        shown.append("*")
    shown += [f"k{n}={200 + n}" if draw(st.booleans()) else f"k{n}" for n in range(keyword)]
    if var_kwargs:
        shown.append("**more")
    namespace = {}
    exec(f"def f({', '.join(shown)}): return dict(locals())", namespace)
    return namespace["f"], names, [f"k{n}" for n in range(keyword)], before


@st.composite
def calls(draw):
    function, names, keywords, before = draw(functions())
    everything = list(range(len(names)))
    numbers = draw(st.lists(st.sampled_from(everything), unique=True)) if everything else []
    choices = names[before:] + keywords
    static_names = draw(st.lists(st.sampled_from(choices), unique=True)) if choices else []
    by_position = draw(st.integers(0, len(names) + 1))
    args = tuple(range(by_position))
    others = draw(st.lists(st.sampled_from([*names[before:], *keywords, "unknown"]), unique=True, max_size=4))
    kwargs = {name: 10 + n for n, name in enumerate(others)}
    return function, tuple(numbers), tuple(static_names), args, kwargs


def outcome(function, args, kwargs):
    try:
        return function(*args, **kwargs)
    except TypeError:
        return TypeError


@given(calls())
def test_binding_keeps_the_meaning(call):
    function, numbers, names, args, kwargs = call
    binder = Binder(function, numbers, names)
    bound = unwrap(*binder.bind(args, kwargs))
    assert outcome(function, *bound) == outcome(function, args, kwargs)


@given(calls())
def test_binding_is_idempotent_in_effect(call):
    function, numbers, names, args, kwargs = call
    binder = Binder(function, numbers, names)
    once = binder.bind(args, kwargs)
    if outcome(function, args, kwargs) is not TypeError:
        assert binder.bind(*once) == once


@given(calls(), st.data())
def test_every_spelling_of_a_call_binds_alike(call, data):
    function, numbers, names, args, kwargs = call
    if numbers and names:
        return  # Then a spelling can mean another thing in JAX, and each stays as it is.
    try:
        bound = inspect.signature(function).bind(*args, **kwargs)
    except TypeError:
        return
    if any(name in bound.arguments for name in ("rest", "more")):
        return
    parameters = inspect.signature(function).parameters
    positional, keyword, by_position = [], {}, True
    for name, value in bound.arguments.items():
        kind = parameters[name].kind
        by_position = by_position and kind is not kind.KEYWORD_ONLY
        is_next = by_position and list(parameters).index(name) == len(positional)
        if kind is kind.POSITIONAL_ONLY or (is_next and data.draw(st.booleans())):
            positional.append(value)
        else:
            by_position = False
            keyword[name] = value
    keyword = dict(data.draw(st.permutations(list(keyword.items()))))
    binder = Binder(function, numbers, names)
    assert binder.bind(tuple(positional), keyword) == binder.bind(args, kwargs)


@given(calls())
def test_nothing_is_wrapped_where_nothing_is_static(call):
    function, _, _, args, kwargs = call
    got_args, got_kwargs = Binder(function, (), ()).bind(args, kwargs)
    assert not [value for value in (*got_args, *got_kwargs.values()) if type(value) is Static]


def test_defaults_of_statics_are_filled_in_and_others_are_not():
    def f(x, n=2, m=3, *, k=4):
        return x

    binder = Binder(f, (), ("n", "k"))
    assert (
        binder.bind((0,), {})
        == binder.bind((0, 2), {})
        == binder.bind((0,), {"k": 4, "n": 2})
        == binder.bind((0,), {"n": 2})
    )
    assert unwrap(*binder.bind((0,), {})) == ((0, 2), {"k": 4})
    assert Binder(f, (), ()).bind((0,), {}) == ((0,), {})


def test_partials_and_methods_and_functions_without_signature():
    def f(a, b, c=3):
        return a, b, c

    assert Binder(functools.partial(f, 1), (), ()).bind((), {"b": 2}) == ((2,), {})
    assert unwrap(*Binder(functools.partial(f, b=1), (), ("c",)).bind((0,), {}))[0] == (0,)

    class Thing:
        def method(self, x, y=1):
            return x, y

    assert Binder(Thing().method, (), ()).bind((), {"x": 5}) == ((5,), {})
    assert Binder(dict.fromkeys, (), ()).bind((1,), {}) == ((1,), {})
    assert Binder(max, (), ()).bind((1, 2), {"key": 3}) == ((1, 2), {"key": 3})


@pytest.mark.parametrize("number", [-1, -2])
def test_negative_numbers_count_from_the_end(number):
    def f(x, n, m):
        return x

    args, _ = Binder(f, (number,), ()).bind((1, 2, 3), {})
    assert [type(value) is Static for value in args] == [False, number == -2, number == -1]


def test_a_name_in_both_places_is_left_for_python_to_refuse():
    def f(x, y=1):
        return x

    args, kwargs = Binder(f, (1,), ()).bind((1, 2), {"y": 3})
    with pytest.raises(TypeError, match="multiple values"):
        f(*unwrap(args, kwargs)[0], **unwrap(args, kwargs)[1])
