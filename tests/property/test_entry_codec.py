"""Whatever happens to an entry's bytes: it reads as what was written, or not at all."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prejit.errors import CorruptEntry, UnsupportedFormat
from prejit.store import CacheEntry
from prejit.testing import make_entry

texts = st.text(st.characters(codec="utf-8"), max_size=20)
plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=20,
)
entries = st.builds(
    CacheEntry,
    key=st.binary(min_size=32, max_size=32).map(bytes.hex),
    kind=st.sampled_from(["trace", "module", "executable", "plan", "manifest"]),
    name=texts,
    variant=texts,
    created=st.floats(allow_nan=False, allow_infinity=False),
    ingredients=st.lists(st.tuples(texts, texts, texts), max_size=4).map(tuple),
    meta=st.dictionaries(texts, plain, max_size=4),
    sections=st.dictionaries(texts, st.binary(max_size=600) | st.binary(max_size=4).map(lambda b: b * 500), max_size=4),
)


@given(entries)
def test_an_entry_reads_as_what_was_written(entry):
    data = entry.to_bytes()
    again = CacheEntry.from_bytes(data, expected_key=entry.key)
    assert again == entry
    assert again.to_bytes() == data
    assert repr(again.meta) == repr(CacheEntry.from_bytes(again.to_bytes()).meta)


def test_every_flipped_bit_is_refused():
    data = make_entry(1, size_bytes=40).to_bytes()
    for position in range(len(data) * 8):
        flipped = bytearray(data)
        flipped[position // 8] ^= 1 << position % 8
        with pytest.raises(CorruptEntry):
            CacheEntry.from_bytes(flipped)


def test_every_prefix_is_refused():
    data = make_entry(1, size_bytes=40).to_bytes()
    for size_bytes in range(len(data)):
        with pytest.raises(CorruptEntry):
            CacheEntry.from_bytes(data[:size_bytes])


@given(st.binary(max_size=300), st.booleans())
def test_other_bytes_are_refused(data, with_magic):
    with pytest.raises((CorruptEntry, UnsupportedFormat)):
        CacheEntry.from_bytes(b"\x89prejit\n" + data if with_magic else data)


@given(entries, st.data())
@settings(max_examples=50)
def test_changed_bytes_are_refused(entry, data):
    encoded = bytearray(entry.to_bytes())
    start = data.draw(st.integers(0, len(encoded) - 1))
    patch = data.draw(st.binary(min_size=1, max_size=20))
    changed = bytes(encoded[:start]) + patch + bytes(encoded[start + len(patch) :])
    if changed != encoded:
        with pytest.raises(CorruptEntry):
            CacheEntry.from_bytes(changed)
