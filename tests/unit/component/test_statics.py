"""Static arguments: every spelling is one call, every value is its own program."""

import dataclasses
import functools
from collections import namedtuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import prejit


@dataclasses.dataclass(frozen=True)
class Config:
    scale: float
    mode: str = "plain"


@dataclasses.dataclass(frozen=True)
class Unhashable:
    items: list


class Loose:
    """Equal to every other one, as a class with a careless `__eq__` is."""

    def __init__(self, value):
        self.value = value

    def __eq__(self, other):
        return isinstance(other, Loose)

    def __hash__(self):
        return 1


Size = namedtuple("Size", "n m")

LOOKALIKES = [
    1,
    True,
    1.0,
    np.float32(1),
    np.int32(1),
    np.bool_(True),
    (1,),
    (True,),
    (1.0,),
    Config(1),
    Config(1.0),
    Config(True),
    Config(1.0, "other"),
    Size(1, 0.0),
    Size(1, -0.0),
    Size(1, False),
    (1, 0.0),
    (1, -0.0),
    "1",
    b"1",
    frozenset({1}),
    frozenset({True}),
    ((1, (2.0,)),),
    ((1, (2,)),),
    1 + 0j,
    complex(1, -0.0),
]


def describe(value):
    """Tell lookalikes apart inside the program."""
    return sum(map(ord, f"{type(value).__name__}{value!r}")) % 10007


@pytest.mark.parametrize("options", [{"static_argnums": 1}, {"static_argnames": "s"}, {"static_argnums": -1}])
def test_values_that_are_equal_but_not_the_same(options):
    component = prejit.component(lambda x, s: x + describe(s), **options)
    for _ in range(2):
        for value in LOOKALIKES:
            assert int(component(0, value)) == describe(value), value
            if options != {"static_argnums": -1}:  # From which JAX derives no name.
                assert int(component(0, s=value)) == describe(value), value
    assert component.cache_info().traces == len(LOOKALIKES)


def test_zeros_of_both_signs_and_nan():
    component = prejit.component(lambda x, s: x / s, static_argnums=1)
    assert np.isposinf(component(1.0, 0.0))
    assert np.isneginf(component(1.0, -0.0))
    assert np.isposinf(component(1.0, 0.0))
    for _ in range(3):
        assert np.isnan(component(1.0, float("nan")))
        assert np.isnan(component(1.0, np.float32("nan")))
    assert component.cache_info().misses + component.cache_info().hits == 4, "a NaN finds its own program"


def test_statics_under_transformations_are_as_exact():
    for link in ("auto", "outline", "inline"):
        component = prejit.component(lambda x, s: x / s, static_argnums=1, link=link)
        for outer in (
            jax.jit,
            lambda f: lambda x: jax.vmap(f)(x[None])[0],
            lambda f: lambda x: jax.jvp(f, (x,), (x,))[0],
        ):
            assert np.isposinf(outer(lambda x, f=component: f(x, 0.0))(jnp.float32(1)))
            assert np.isneginf(outer(lambda x, f=component: f(x, -0.0))(jnp.float32(1)))


def f(x, n=2, /, m=3, *, k=4):
    return x * n * 100 + m * 10 + k


SPELLINGS = [
    ((1.0,), {}),
    ((1.0, 2), {}),
    ((1.0, 2, 3), {}),
    ((1.0,), {"m": 3}),
    ((1.0, 2), {"m": 3, "k": 4}),
    ((1.0,), {"k": 4}),
    ((1.0, 2, 3), {"k": 4}),
    ((1.0,), {"k": 4, "m": 3}),
]


@pytest.mark.parametrize(
    "options",
    [
        {"static_argnums": (1, 2), "static_argnames": "k"},
        {"static_argnums": (1, 2)},
        {"static_argnames": ("m", "k")},
        {"static_argnums": 1, "static_argnames": "k"},
        {"static_argnums": 1, "static_argnames": ("m", "k")},
        {"static_argnums": 2, "static_argnames": "k"},
        {"static_argnums": -1},
        {"static_argnums": (1, -1), "static_argnames": ("k", "m")},
    ],
)
@pytest.mark.parametrize("spelling", SPELLINGS)
def test_every_spelling_gives_what_jit_gives(options, spelling):
    args, kwargs = spelling
    component, jitted = prejit.component(f, **options), jax.jit(f, **options)
    got, want = component(*args, **kwargs), jitted(*args, **kwargs)
    assert (float(got), got.dtype, got.weak_type) == (float(want), want.dtype, want.weak_type)


def test_spellings_of_one_call_are_one_program():
    def f(x, n=2, m=3, *, k=4):
        return x * n * 100 + m * 10 + k

    component = prejit.component(f, static_argnames=("n", "m", "k"))
    for args, kwargs in SPELLINGS:
        component(*args, **kwargs)
    assert component.cache_info().traces == 1
    assert len({component.key_for(*args, **kwargs).digest for args, kwargs in SPELLINGS}) == 1
    # With numbers and names a spelling can mean another thing, so calls stay as they are; the program is still one.
    both = prejit.component(f, static_argnums=(1, 2), static_argnames=("m", "n", "k"))
    assert len({both.key_for(*args, **kwargs).digest for args, kwargs in SPELLINGS}) == 1


@pytest.mark.parametrize(
    "options",
    [
        {"static_argnums": 0, "static_argnames": "n"},
        {"static_argnums": (0,), "static_argnames": ("n", "mode")},
        {"static_argnames": ("mode", "n")},
        {"static_argnums": (0, 2)},
        {"static_argnums": (0, 2), "static_argnames": ("n", "mode")},
    ],
)
def test_numbers_and_names_mixed_and_called_by_keyword(options):
    def body(mode, x, n=2):
        assert isinstance(mode, str), "static"
        assert isinstance(n, int), "static"
        return jnp.ones(n) * x + len(mode)

    component, jitted = prejit.component(body, **options), jax.jit(body, **options)
    calls = [
        (("ab", 1.0), {}),
        (("ab", 1.0), {"n": 3}),
        (("ab",), {"x": 1.0, "n": 3}),
        (("ab", 1.0, 3), {}),
        ((), {"mode": "ab", "x": 1.0, "n": 3}),
        (("ab",), {"x": 1.0}),
    ]
    for args, kwargs in calls:
        try:
            want = jitted(*args, **kwargs)
        except Exception as error:  # noqa: BLE001  # where JAX can't, the component may, or fails alike
            try:
                component(*args, **kwargs)
            except Exception as ours:  # noqa: BLE001
                assert type(ours) is type(error)  # noqa: PT017
            continue
        assert component(*args, **kwargs).tolist() == want.tolist(), (args, kwargs)


def test_objects_that_claim_to_be_equal_share_a_program_as_in_jit():
    a, b = Loose(1), Loose(2)
    component, jitted = (wrap(lambda x, s: x + s.value, static_argnums=1) for wrap in (prejit.component, jax.jit))
    assert [float(component(0.0, s)) for s in (a, b)] == [float(jitted(0.0, s)) for s in (a, b)]


def test_a_dataclass_that_cannot_be_hashed_is_refused_as_jax_refuses_it():
    with pytest.raises(ValueError, match="Non-hashable static arguments") as got:
        prejit.component(lambda x, s: x, static_argnums=1)(1.0, Unhashable([1]))
    with pytest.raises(ValueError, match="Non-hashable static arguments") as want:
        jax.jit(lambda x, s: x, static_argnums=1)(1.0, Unhashable([1]))
    # The rest of the message is a traceback.
    assert str(got.value).splitlines()[0] == str(want.value).splitlines()[0]


def test_functions_as_statics():
    component = prejit.component(lambda x, g: g(x), static_argnums=1)
    assert float(component(2.0, jnp.square)) == 4.0
    assert float(component(2.0, jnp.negative)) == -2.0
    assert float(component(2.0, functools.partial(jnp.power, 3))) == 9.0
    assert float(component(2.0, prejit.component(lambda x: x + 1))) == 3.0
    assert float(component(2.0, lambda x: x + 5)) == 7.0


def test_none_ellipsis_types_and_dtypes_as_statics():
    component = prejit.component(lambda x, s: x + describe(s), static_argnums=1)
    for value in (None, ..., int, jnp.float32, np.dtype("float32"), jnp.dtype("bfloat16"), range(3), slice):
        assert int(component(0, value)) == describe(value)


def test_static_positions_in_varargs():
    def body(x, *rest):
        return x * rest[0] + rest[1]

    component = prejit.component(body, static_argnums=1)
    jitted = jax.jit(body, static_argnums=1)
    assert float(component(2.0, 3, 4.0)) == float(jitted(2.0, 3, 4.0)) == 10.0
    with pytest.raises(TypeError):
        prejit.component(lambda x, *rest: x * [1, 2][rest[0]], static_argnums=2)(1.0, 1, 2)


def test_static_names_in_kwargs():
    def body(x, **kwargs):
        return x * [1, 2, 3][kwargs["n"]] + kwargs.get("y", 0)

    options = {"static_argnames": "n"}
    try:
        jitted = jax.jit(body, **options)
    except ValueError:
        with pytest.raises(ValueError, match="static_argnames"):
            prejit.component(body, **options)
        return
    component = prejit.component(body, **options)
    assert float(component(2.0, n=2, y=1.0)) == float(jitted(2.0, n=2, y=1.0)) == 7.0


def test_a_dynamic_default_stays_a_python_value():
    """As in `jax.jit`: a default that is not passed is a constant on which Python may branch."""

    def body(x, flag=True):
        return x + 1 if flag else x - 1

    assert float(prejit.component(body)(1.0)) == 2.0


def test_a_signature_that_is_not_how_the_function_takes_its_arguments():
    """A wrapper that takes anything, but shows the signature of what it wraps, gets the call as it was spelled."""

    def inner(x, y=1.0):
        return x + y

    @functools.wraps(inner)
    def wrapper(*args, **kwargs):
        return inner(*args, **kwargs) + 100.0 * len(kwargs)

    component, jitted = prejit.component(wrapper), jax.jit(wrapper)
    for args, kwargs in [((1.0, 2.0), {}), ((1.0,), {"y": 2.0}), ((), {"x": 1.0, "y": 2.0}), ((1.0,), {})]:
        assert float(component(*args, **kwargs)) == float(jitted(*args, **kwargs)), (args, kwargs)


def test_keywords_reach_var_keywords_in_the_order_of_the_tree():
    def body(x, **kwargs):
        return [kwargs[k] for k in kwargs], x

    got = prejit.component(body)(1.0, b=2.0, a=3.0)
    want = jax.jit(body)(1.0, b=2.0, a=3.0)
    assert jax.tree.map(float, got) == jax.tree.map(float, want)
