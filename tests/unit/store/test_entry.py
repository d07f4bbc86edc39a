import enum
import hashlib
import math
import struct
import zlib

import msgspec
import numpy as np
import pytest
import zstandard

from prejit.errors import CorruptEntry, EntryTooLarge, UnsupportedFormat
from prejit.store import FORMAT_VERSION, CacheEntry
from prejit.store import entry as format_
from prejit.testing import make_entry

KEY = "ab" * 32


def reframe(
    header: bytes, payloads: bytes = b"", *, version: int = FORMAT_VERSION, file_size: int | None = None
) -> bytes:
    """A file whose digests all agree, around any header."""
    size = format_.PREFIX_BYTES + len(header) + len(payloads) if file_size is None else file_size
    frame = struct.pack("<8sIIQ32s", b"\x89prejit\n", version, len(header), size, hashlib.sha256(header).digest())
    return frame + hashlib.sha256(frame).digest() + header + payloads


def fields(**changes):
    return {
        "key": KEY, "kind": "module", "name": "f", "variant": "", "created": 1.0, "prejit": "0", "ingredients": [],
        "meta": {}, "sections": [],
    } | changes  # fmt: skip


def with_section(codec: str, encoded: bytes, raw_size: int, **changes) -> bytes:
    section = {
        "name": "s", "codec": codec, "size_bytes": len(encoded), "raw_size_bytes": raw_size,
        "sha256": hashlib.sha256(encoded).hexdigest(),
    } | changes  # fmt: skip
    return reframe(msgspec.json.encode(fields(sections=[section])), encoded)


def test_round_trip_of_everything():
    entry = CacheEntry(
        key=KEY,
        kind="executable",
        name="<lambda>",
        variant="vmap(0)",
        created=1.5,
        ingredients=(("identity", "name", "f"), ("environment", "jax", "0.10.2")),
        meta={
            "in_avals": [["float32", [3]]],
            "out_avals": [],
            "n": 2**80,
            "x": -0.0,
            "none": None,
            "t": True,
            "é": "ü",
        },
        sections={"code": b"\0" * 10_000, "empty": b"", "noise": bytes(range(256))},
    )
    again = CacheEntry.from_bytes(entry.to_bytes())
    assert again == entry
    assert math.copysign(1, again.meta["x"]) == -1
    assert again.avals == ([["float32", [3]]], [])
    for view in (bytearray(entry.to_bytes()), memoryview(entry.to_bytes())):
        assert CacheEntry.from_bytes(view) == entry


def test_bytes_follow_from_the_fields():
    sections = {"b": b"2", "a": b"1"}
    first = CacheEntry(key=KEY, kind="plan", name="f", sections=sections)
    second = CacheEntry(key=KEY, kind="plan", name="f", sections=dict(reversed(sections.items())))
    assert first.to_bytes() == second.to_bytes()


def test_meta_becomes_what_its_json_reads_as():
    class Color(enum.IntEnum):
        RED = 1

    entry = CacheEntry(key=KEY, kind="plan", name="f", meta={"t": (1, (2,)), "c": Color.RED, "x": np.float64(0.5)})
    assert entry.meta == {"t": [1, [2]], "c": 1, "x": 0.5}
    assert {type(value) for value in entry.meta.values()} == {list, int, float}
    assert CacheEntry.from_bytes(entry.to_bytes()) == entry


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"key": "xyz"}, ValueError),
        ({"key": KEY.upper()}, ValueError),
        ({"kind": "pickle"}, ValueError),
        ({"created": math.nan}, ValueError),
        ({"meta": {"x": math.inf}}, ValueError),
        ({"meta": {"x": "\ud800"}}, ValueError),
        ({"name": "\ud800"}, ValueError),
        ({"meta": {1: 2}}, TypeError),
        ({"meta": {"x": object()}}, TypeError),
        ({"meta": {"x": b"bytes"}}, TypeError),
        ({"sections": {str(n): b"" for n in range(1025)}}, ValueError),
    ],
)
def test_what_is_no_entry_is_refused_when_made(changes, error):
    with pytest.raises(error):
        CacheEntry(**({"key": KEY, "kind": "plan", "name": "f"} | changes))


def test_nesting_is_bounded():
    deep: list = []
    for _ in range(100):
        deep = [deep]
    with pytest.raises(ValueError, match="levels of nesting"):
        CacheEntry(key=KEY, kind="plan", name="f", meta={"deep": deep})


def test_what_shrinks_is_compressed_and_what_does_not_is_not():
    def codec(data):
        encoded = CacheEntry(key=KEY, kind="module", name="f", sections={"s": data}).to_bytes()
        prefix = format_.decode_prefix(encoded)
        header = format_.decode_header(prefix, encoded[88 : 88 + prefix.header_size_bytes])
        return header.sections[0].codec

    assert codec(b"a" * 10_000) == "zstd"
    assert codec(make_entry(1, size_bytes=10_000).sections["payload"]) == "raw"
    assert codec(b"a" * 10) == "raw"


def test_sizes_are_bounded_when_written(monkeypatch):
    monkeypatch.setattr(format_, "MAX_HEADER_BYTES", 1000)
    with pytest.raises(EntryTooLarge) as caught:
        CacheEntry(key=KEY, kind="plan", name="f", meta={"x": "y" * 2000}).to_bytes()
    assert caught.value.limit_bytes == 1000
    monkeypatch.setattr(format_, "MAX_RAW_BYTES", 10)
    with pytest.raises(EntryTooLarge):
        CacheEntry(key=KEY, kind="plan", name="f", sections={"s": b"x" * 11}).to_bytes()


def test_the_smallest_frame_reads():
    assert CacheEntry.from_bytes(reframe(msgspec.json.encode(fields()))).name == "f"


def test_header_fields_of_a_later_writer_are_skipped():
    assert CacheEntry.from_bytes(reframe(msgspec.json.encode(fields(colour="red")))).name == "f"


def test_a_newer_format_is_told_from_damage():
    newer = reframe(b"\xff binary header of the future", version=FORMAT_VERSION + 1)
    with pytest.raises(UnsupportedFormat) as caught:
        CacheEntry.from_bytes(newer)
    assert (caught.value.version, caught.value.supported) == (FORMAT_VERSION + 1, FORMAT_VERSION)
    flipped = bytearray(make_entry(1).to_bytes())
    flipped[9] ^= 1  # the version, whose digest no longer agrees
    with pytest.raises(CorruptEntry):
        CacheEntry.from_bytes(flipped)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "truncated"),
        (b"\x80\x04pickle" * 100, "magic"),
        (make_entry(1).to_bytes()[:-1], "truncated"),
        (make_entry(1).to_bytes()[:100], "truncated"),
        (make_entry(1).to_bytes() + b"\0", "trailing bytes"),
        (reframe(b"{", file_size=10), "prefix"),
        (reframe(b"{}", version=0), "prefix"),
        (reframe(b"{not json"), "header"),
        (reframe(b"\xff\xfe"), "header"),
        (reframe(b"[]"), "header"),
        (reframe(b'{"meta":' + b"[" * 100_000), "header"),
        (reframe(msgspec.json.encode({"key": KEY})), "header"),
        (reframe(msgspec.json.encode(fields(kind="pickle"))), "header"),
        (reframe(msgspec.json.encode(fields(key="../../x"))), "header"),
        (reframe(msgspec.json.encode(fields(created=0)).replace(b'"created":0', b'"created":1e400')), "header"),
        (reframe(msgspec.json.encode(fields()), b"extra"), "header"),
        (with_section("raw", b"abc", 4), "codec"),
        (with_section("raw", b"abc", -1), "header"),
        (with_section("raw", b"abc", 3, sha256="0" * 64), "section digest"),
        (with_section("lzma", b"abc", 3), "header"),
        (with_section("raw", b"abc", format_.MAX_RAW_BYTES + 1), "too large"),
        (with_section("zlib", zlib.compress(b"a" * 1000), 999), "codec"),
        (with_section("zlib", zlib.compress(b"a" * 1000), 1001), "codec"),
        (with_section("zlib", zlib.compress(b"") + b"x", 0), "codec"),
        (with_section("zlib", b"garbage", 7), "codec"),
        (with_section("zstd", zstandard.compress(b"a" * 1000), 999), "codec"),
        (with_section("zstd", zstandard.compress(b"a" * 1000) + b"x", 1000), "codec"),
        (with_section("zstd", zstandard.compress(b"a" * 100)[:-3], 100), "codec"),
        (with_section("zstd", b"garbage", 7), "codec"),
    ],
)
def test_damage_is_one_error_with_its_reason(data, reason):
    with pytest.raises(CorruptEntry) as caught:
        CacheEntry.from_bytes(data)
    assert caught.value.reason == reason


def test_a_bomb_is_refused_before_it_goes_off(monkeypatch):
    def inflate(*args, **kwargs):
        raise AssertionError("inflated")

    bomb = with_section("zstd", zstandard.compress(bytes(100_000_000)), 10)
    assert len(bomb) < 20_000
    with monkeypatch.context() as patched:
        patched.setattr(format_.zstandard, "ZstdDecompressor", inflate)
        with pytest.raises(CorruptEntry):
            CacheEntry.from_bytes(bomb)
        with pytest.raises(AssertionError, match="inflated"):
            CacheEntry.from_bytes(with_section("zstd", zstandard.compress(bytes(1000)), 1000))


def test_zlib_sections_are_read():
    assert CacheEntry.from_bytes(with_section("zlib", zlib.compress(b"a" * 1000), 1000)).sections == {"s": b"a" * 1000}


def test_an_entry_under_another_key_is_corrupt():
    data = make_entry(1).to_bytes()
    assert CacheEntry.from_bytes(data, expected_key=make_entry(1).key)
    with pytest.raises(CorruptEntry) as caught:
        CacheEntry.from_bytes(data, expected_key=make_entry(2).key)
    assert caught.value.reason == "misplaced"
