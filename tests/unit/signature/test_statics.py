import dataclasses
import math
from collections import namedtuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prejit.signature.statics import Static, exact_token

Pair = namedtuple("Pair", "a b")


@dataclasses.dataclass(frozen=True)
class Frozen:
    a: object
    b: object = dataclasses.field(default=None, compare=False)


plain = st.one_of(
    st.integers(),
    st.booleans(),
    st.floats(),
    st.complex_numbers(),
    st.text(max_size=3),
    st.binary(max_size=3),
    st.none(),
    st.sampled_from([np.float32(1), np.float64(1), np.int8(1), np.float32("nan"), np.float32(-0.0), np.bool_(True)]),
)
values = st.recursive(
    plain,
    lambda inner: st.one_of(
        st.tuples(inner),
        st.tuples(inner, inner),
        st.builds(Pair, inner, inner),
        st.frozensets(plain, max_size=2),
        st.builds(Frozen, inner),
    ),
    max_leaves=4,
)


def same(a, b):
    """Say independently of the library whether two values are the same value of the same type."""
    if type(a) is not type(b):
        return False
    if isinstance(a, float):
        return (math.isnan(a) and math.isnan(b)) or (a == b and math.copysign(1, a) == math.copysign(1, b))
    if isinstance(a, complex):
        return same(a.real, b.real) and same(a.imag, b.imag)
    if isinstance(a, np.generic):
        return a.tobytes() == b.tobytes()
    if isinstance(a, tuple):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, frozenset):
        return len(a) == len(b) and all(any(same(x, y) for y in b) for x in a)
    if isinstance(a, Frozen):
        return same(a.a, b.a)
    return a == b


@given(values, values)
def test_statics_are_equal_exactly_if_they_are_the_same_value(a, b):
    assert (Static(a) == Static(b)) == same(a, b)
    if same(a, b):
        assert hash(Static(a)) == hash(Static(b))


@given(values)
def test_a_static_is_equal_to_itself_and_to_nothing_else(value):
    assert Static(value) == Static(value)
    assert Static(value) != value
    assert {Static(value): 1}[Static(value)] == 1
    assert repr(Static(value)) == repr(value)


@pytest.mark.parametrize(
    "value", [[], {}, set(), (1, []), Frozen([1]), Pair({}, 1), np.ones(2), frozenset({1}) and ([],)]
)
def test_what_cannot_be_hashed_is_a_type_error(value):
    with pytest.raises(TypeError):
        Static(value)
    with pytest.raises(TypeError):
        exact_token(value)


def test_fields_that_do_not_compare_do_not_count():
    assert Static(Frozen(1, 2)) == Static(Frozen(1, 3))
    assert Static(Frozen(1.0)) != Static(Frozen(1))


def test_a_class_with_its_own_equality_keeps_it():
    @dataclasses.dataclass(frozen=True)
    class Own:
        a: int
        b: int

        def __eq__(self, other):
            return isinstance(other, Own) and self.a == other.a

        def __hash__(self):
            return hash(self.a)

    assert Static(Own(1, 2)) == Static(Own(1, 3))
    assert Static(Own(1, 2)) != Static(Own(2, 2))
