"""The encoding can be read back, so two values can't share a token."""

import struct

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from prejit.key.encoding import array_token, pack, scalar_token

TAGS = st.sampled_from([b"tuple", b"list", b"dict", b"x"])
TREES = st.recursive(
    st.binary(max_size=20).map(lambda body: b"b" + body),
    lambda parts: st.tuples(TAGS, st.lists(parts, max_size=4)),
    max_leaves=20,
)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(min_value=1 << 4090, max_value=1 << 4100),
    st.floats(),
    st.complex_numbers(),
    st.text(),
    st.text(st.characters(categories=["Cs"]), max_size=3),
    st.binary(),
)


def encode(tree):
    if isinstance(tree, bytes):
        return tree
    tag, parts = tree
    return pack(tag, *map(encode, parts))


def decode(token):
    """Read a token by its grammar alone."""
    if token[:1] != b"(":
        return token
    assert token[-1:] == b")"
    tag, _, rest = token[1:-1].partition(b" ")
    parts = []
    while rest:
        length, _, rest = rest.partition(b":")
        parts.append(decode(rest[: int(length)]))
        rest = rest[int(length) + 1 :]  # with the space
    return tag, parts


@given(TREES)
def test_nodes_can_be_read_back(tree):
    assert decode(encode(tree)) == tree


def same(one, other):
    if type(one) is not type(other):
        return False
    if type(one) is float:
        return struct.pack("d", one) == struct.pack("d", other)
    if type(one) is complex:
        return same(one.real, other.real) and same(one.imag, other.imag)
    return one == other


@given(SCALARS, SCALARS)
def test_scalars_share_a_token_only_if_they_are_the_same(one, other):
    assert (scalar_token(one) == scalar_token(other)) == same(one, other)
    assert not scalar_token(one).startswith(b"(")


@given(st.sampled_from([0, 1]).flatmap(lambda n: st.sampled_from([n, bool(n), float(n), -float(n), str(n), b"%d" % n])))
def test_neighbours_are_told_apart(value):
    neighbours = [0, False, 0.0, -0.0, "0", b"0", 1, True, 1.0, -1.0, "1", b"1"]
    assert sum(scalar_token(value) == scalar_token(other) for other in neighbours) == 1


ARRAYS = hnp.arrays(
    dtype=st.one_of(hnp.integer_dtypes(), hnp.floating_dtypes(), hnp.boolean_dtypes(), hnp.complex_number_dtypes()),
    shape=hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
)


@given(ARRAYS)
def test_arrays_count_by_value_not_by_memory(array):
    token = array_token(array)
    native = array.astype(array.dtype.newbyteorder("="))
    assert token == array_token(native) == array_token(array.copy(order="F")) == array_token(array.copy())
    swapped = native.astype(native.dtype.newbyteorder("S"))
    assert token == array_token(swapped)


@given(ARRAYS, ARRAYS)
def test_arrays_of_other_bits_shape_or_dtype_differ(one, other):
    def parts(array):
        little = array.astype(array.dtype.newbyteorder("<"))
        return array.shape, array.dtype.name, little.tobytes()

    assert (array_token(one) == array_token(other)) == (parts(one) == parts(other))
