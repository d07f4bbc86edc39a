"""Fingerprints and keys over any plain data: stable, sensitive, and the same after a copy."""

import copy
import json

from hypothesis import assume, given
from hypothesis import strategies as st

from prejit.key import ComponentKey, Ingredient, fingerprint

HASHABLE = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(), st.binary())
DATA = st.recursive(
    st.one_of(HASHABLE, st.floats(), st.complex_numbers(), st.just(...)),
    lambda parts: st.one_of(
        st.lists(parts, max_size=4),
        st.lists(parts, max_size=4).map(tuple),
        st.dictionaries(HASHABLE, parts, max_size=4),
        st.sets(HASHABLE, max_size=4),
        st.frozensets(HASHABLE, max_size=4),
    ),
    max_leaves=15,
)


def exact(value):
    """A form in which Python's own equality is as strict as a fingerprint must be."""
    if isinstance(value, dict):
        return dict, frozenset((exact(key), exact(part)) for key, part in value.items())
    if isinstance(value, set | frozenset):
        return type(value), frozenset(map(exact, value))
    if isinstance(value, list | tuple):
        return type(value), tuple(map(exact, value))
    if isinstance(value, float):
        return float, value.hex() if value == value else "nan"
    if isinstance(value, complex):
        return complex, exact(value.real), exact(value.imag)
    return type(value), value


@given(DATA)
def test_a_copy_has_the_same_fingerprint(value):
    assert fingerprint(copy.deepcopy(value)) == fingerprint(value)


@given(DATA, DATA)
def test_equal_fingerprints_mean_the_same_value(one, other):
    if exact(one) != exact(other):
        assert fingerprint(one) != fingerprint(other)


@given(st.dictionaries(HASHABLE, DATA, min_size=2, max_size=6), st.randoms())
def test_order_of_a_dict_does_not_matter(mapping, random):
    items = list(mapping.items())
    random.shuffle(items)
    assert fingerprint(dict(items)) == fingerprint(mapping)


@given(DATA, st.sampled_from([list, tuple]))
def test_one_more_level_is_another_value(value, wrap):
    assert fingerprint(wrap([value])) != fingerprint(value)


NAMES = st.text(max_size=8)
GROUP = st.lists(st.tuples(NAMES, NAMES), max_size=4, unique_by=lambda pair: pair[0])
KEYS = st.builds(ComponentKey, identity=GROUP, signature=GROUP, transforms=GROUP, environment=GROUP)
GROUPS = ("identity", "signature", "transforms", "environment")


@given(KEYS)
def test_keys_survive_json(key):
    back = ComponentKey.from_json(json.loads(json.dumps(key.to_json())))
    assert (back, hash(back), back.digest, str(back)) == (key, hash(key), key.digest, str(key))
    assert key.diff(back) == ()


@given(KEYS, KEYS)
def test_keys_are_equal_exactly_if_all_ingredients_are(one, other):
    alike = all(getattr(one, group) == getattr(other, group) for group in GROUPS)
    assert (one == other) == alike == (one.digest == other.digest) == (not one.diff(other))
    if alike:
        assert hash(one) == hash(other)


@given(KEYS, st.sampled_from(GROUPS), NAMES, NAMES)
def test_diff_finds_a_change(key, group, name, value):
    ingredients = getattr(key, group)
    assume(name not in dict(ingredients))
    other = key.replace(**{group: (*ingredients, Ingredient(name, value))})
    assert [(found.group, found.name, found.ours, found.theirs) for found in key.diff(other)] == [
        (group, name, None, value)
    ]
