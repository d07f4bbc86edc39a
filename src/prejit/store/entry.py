"""The entry: what the store holds under one key, and its bytes.

The grammar, the version history and the rules of evolution are in `docs/spec/entry.md`. The one invariant: no JSON
parser and no decompressor sees a byte before its SHA-256 was compared.
"""

import dataclasses
import functools
import hashlib
import math
import struct
import zlib
from collections.abc import Mapping
from typing import Literal, cast, get_args

import msgspec
import zstandard

from prejit.errors import CorruptEntry, EntryTooLarge, UnsupportedFormat, mismatch

__all__ = [
    "FORMAT_VERSION",
    "MAX_HEADER_BYTES",
    "MAX_RAW_BYTES",
    "PREFIX_BYTES",
    "CacheEntry",
    "Header",
    "Kind",
    "Prefix",
    "decode_header",
    "decode_prefix",
    "is_digest",
]

Kind = Literal["trace", "module", "executable", "plan", "manifest"]
Codec = Literal["raw", "zlib", "zstd"]

MAGIC = b"\x89prejit\n"
FORMAT_VERSION = 1
MAX_HEADER_BYTES = 16 * 1024**2
MAX_RAW_BYTES = 8 * 1024**3
MAX_SECTIONS = 1024
MAX_DEPTH = 64

_FRAME = struct.Struct("<8sIIQ32s")
_DIGEST_BYTES = 32
PREFIX_BYTES = _FRAME.size + _DIGEST_BYTES

_KINDS = frozenset(get_args(Kind))
_HEX = frozenset("0123456789abcdef")
# A section must shrink by a tenth to be worth decompressing at every start.
_WORTHWHILE = 0.9
_SMALLEST_COMPRESSED = 256
_ZSTD_LEVEL = 3


def is_digest(text: object) -> bool:
    """Tell whether this is a key's digest: 64 lower-case hexadecimal digits.

    Example:
        >>> is_digest("ab" * 32), is_digest("AB" * 32), is_digest("../etc/passwd")
        (True, False, False)
    """
    return isinstance(text, str) and len(text) == 64 and _HEX.issuperset(text)


class SectionHeader(msgspec.Struct, frozen=True):
    """Describe one section as it lies in the file."""

    name: str
    codec: Codec
    size_bytes: int
    raw_size_bytes: int
    sha256: str


class Header(msgspec.Struct, frozen=True):
    """Hold the header of one entry; fields that a later writer adds are skipped."""

    key: str
    kind: Kind
    name: str
    variant: str
    created: float
    prejit: str
    ingredients: tuple[tuple[str, str, str], ...]
    meta: dict[str, object]
    sections: tuple[SectionHeader, ...]


_decode_header = msgspec.json.Decoder(Header).decode
_encode = msgspec.json.Encoder(order="sorted").encode


@dataclasses.dataclass(frozen=True, slots=True)
class Prefix:
    """Hold the fixed-width start of one entry, which is the same in every format version."""

    version: int
    header_size_bytes: int
    file_size_bytes: int
    header_sha256: bytes


@dataclasses.dataclass(frozen=True, slots=True)
class CacheEntry:
    """Hold what the store keeps under one key.

    Attributes:
        key: Digest of the key: 64 lower-case hexadecimal digits.
        kind: `trace`, `module`, `executable`, `plan` or `manifest`.
        name: Name of the function, for people; may be `<lambda>`.
        variant: Which derived form of the function this is; empty for the function itself.
        created: Unix time in seconds at which it was made.
        ingredients: The named parts of the key as (group, name, value), for `explain`.
        meta: JSON data that depends on the kind. Tuples become lists, so that an entry equals its decoded bytes.
        sections: The payloads by name.

    Raises:
        ValueError: A field has the right type and a wrong value.
        TypeError: A field has a wrong type, or `meta` is not JSON data.

    Example:
        >>> entry = CacheEntry(key="ab" * 32, kind="module", name="f", sections={"mlir": b"ML"})
        >>> CacheEntry.from_bytes(entry.to_bytes()) == entry
        True
    """

    key: str
    kind: Kind
    name: str
    variant: str = ""
    created: float = 0.0
    ingredients: tuple[tuple[str, str, str], ...] = ()
    meta: dict[str, object] = dataclasses.field(default_factory=dict[str, object], hash=False)
    sections: dict[str, bytes] = dataclasses.field(default_factory=dict[str, bytes], hash=False, repr=False)

    def __post_init__(self) -> None:
        if not is_digest(self.key):
            raise ValueError(mismatch("making an entry", expected="64 hex digits", got=repr(self.key)[:80], at="key"))
        if self.kind not in _KINDS:
            expected = "one of " + ", ".join(sorted(_KINDS))
            raise ValueError(mismatch("making an entry", expected=expected, got=repr(self.kind)[:80], at="kind"))
        if not math.isfinite(self.created):
            raise ValueError(mismatch("making an entry", expected="a finite time", got=self.created, at="created"))
        set_field = object.__setattr__
        set_field(self, "created", float(self.created))
        set_field(self, "ingredients", tuple((str(g), str(n), str(v)) for g, n, v in self.ingredients))
        for text in (self.name, self.variant, *(part for row in self.ingredients for part in row)):
            _plain(text, "name")
        set_field(self, "meta", _plain(dict(self.meta), "meta"))
        set_field(self, "sections", {name: bytes(data) for name, data in sorted(self.sections.items())})
        if len(self.sections) > MAX_SECTIONS:
            raise ValueError(f"making an entry: expected at most {MAX_SECTIONS} sections, got {len(self.sections)}")

    @property
    def avals(self) -> tuple[list[object], list[object]]:
        """The abstract values of the inputs and of the outputs, as `meta` describes them."""
        inside = cast("list[object]", self.meta.get("in_avals", []))
        return inside, cast("list[object]", self.meta.get("out_avals", []))

    @property
    def size_bytes(self) -> int:
        """Bytes that the payloads take in memory."""
        return sum(map(len, self.sections.values()))

    def to_bytes(self) -> bytes:
        """Encode this entry.

        Returns:
            The bytes of the entry's file.

        Raises:
            EntryTooLarge: The header or the sections are above the format's limits.

        Example:
            >>> CacheEntry(key="0" * 64, kind="plan", name="f").to_bytes()[1:7]
            b'prejit'
        """
        raw_bytes = self.size_bytes
        if raw_bytes > MAX_RAW_BYTES:
            raise _too_large("sections", raw_bytes, MAX_RAW_BYTES)
        headers: list[SectionHeader] = []
        payloads: list[bytes] = []
        for name, data in self.sections.items():
            codec, encoded = _compress(data)
            digest = hashlib.sha256(encoded).hexdigest()
            headers.append(SectionHeader(name, codec, len(encoded), len(data), digest))
            payloads.append(encoded)
        header = _encode(
            Header(
                key=self.key,
                kind=self.kind,
                name=self.name,
                variant=self.variant,
                created=self.created,
                prejit=_writer(),
                ingredients=self.ingredients,
                meta=self.meta,
                sections=tuple(headers),
            )
        )
        if len(header) > MAX_HEADER_BYTES:
            raise _too_large("header", len(header), MAX_HEADER_BYTES)
        file_size = PREFIX_BYTES + len(header) + sum(map(len, payloads))
        frame = _FRAME.pack(MAGIC, FORMAT_VERSION, len(header), file_size, hashlib.sha256(header).digest())
        return b"".join([frame, hashlib.sha256(frame).digest(), header, *payloads])

    @classmethod
    def from_bytes(cls, data: bytes | bytearray | memoryview, *, expected_key: str | None = None) -> "CacheEntry":
        """Decode an entry, checking every digest before anything is parsed.

        Args:
            data: The bytes of an entry's file.
            expected_key: The key under which it was found.

        Returns:
            The entry that was written.

        Raises:
            CorruptEntry: These are not the bytes that were written, or they belong to another key; `reason` says
                which check failed.
            UnsupportedFormat: The entry is intact and in a newer format.

        Example:
            >>> CacheEntry.from_bytes(b"garbage")
            Traceback (most recent call last):
            ...
            prejit.errors.CorruptEntry: reading an entry: expected at least 88 bytes, got 7
        """
        view = memoryview(data).cast("B")
        prefix = decode_prefix(view)
        if prefix.file_size_bytes != len(view):
            reason = "truncated" if len(view) < prefix.file_size_bytes else "trailing bytes"
            raise _corrupt(f"{prefix.file_size_bytes} bytes", len(view), reason)
        offset = PREFIX_BYTES + prefix.header_size_bytes
        header = decode_header(prefix, view[PREFIX_BYTES:offset], expected_key=expected_key)
        sections: dict[str, bytes] = {}
        for section in header.sections:
            sections[section.name] = _decompress(section, view[offset : offset + section.size_bytes])
            offset += section.size_bytes
        try:
            return cls(
                key=header.key,
                kind=header.kind,
                name=header.name,
                variant=header.variant,
                created=header.created,
                ingredients=header.ingredients,
                meta=header.meta,
                sections=sections,
            )
        except (TypeError, ValueError) as error:
            raise _corrupt("an entry's fields", error, "header") from None


def decode_prefix(data: bytes | memoryview) -> Prefix:
    """Decode the fixed-width start of an entry.

    Raises:
        CorruptEntry: The magic, the digest or a length is wrong.
        UnsupportedFormat: The start is intact and states a newer format version.
    """
    if len(data) < PREFIX_BYTES:
        raise _corrupt(f"at least {PREFIX_BYTES} bytes", len(data), "truncated")
    frame = bytes(data[: _FRAME.size])
    if not frame.startswith(MAGIC):
        raise _corrupt("the magic of an entry", repr(frame[: len(MAGIC)]), "magic")
    if hashlib.sha256(frame).digest() != bytes(data[_FRAME.size : PREFIX_BYTES]):
        raise _corrupt("an intact prefix", "another digest", "prefix digest")
    _, version, header_size, file_size, header_sha256 = cast("tuple[bytes, int, int, int, bytes]", _FRAME.unpack(frame))
    if version > FORMAT_VERSION:
        raise UnsupportedFormat(
            mismatch("reading an entry", expected=f"format version {FORMAT_VERSION} or older", got=version),
            version=version,
            supported=FORMAT_VERSION,
            hint="update prejit, or leave the entry to the newer prejit that wrote it",
        )
    if version < 1 or header_size > MAX_HEADER_BYTES or file_size < PREFIX_BYTES + header_size:
        raise _corrupt("a prefix within the format's limits", (version, header_size, file_size), "prefix")
    return Prefix(version, header_size, file_size, header_sha256)


def decode_header(prefix: Prefix, data: bytes | memoryview, *, expected_key: str | None = None) -> Header:
    """Decode an entry's header, without its payloads.

    Args:
        prefix: What `decode_prefix` gave.
        data: Exactly the bytes of the header.
        expected_key: The key under which the entry was found.

    Raises:
        CorruptEntry: The digest, the JSON, a length or the key is wrong.
    """
    if len(data) != prefix.header_size_bytes:
        raise _corrupt(f"a header of {prefix.header_size_bytes} bytes", len(data), "truncated")
    if hashlib.sha256(data).digest() != prefix.header_sha256:
        raise _corrupt("an intact header", "another digest", "header digest")
    try:
        header = _decode_header(data)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise _corrupt("a header", error, "header") from None
    sections = header.sections
    sizes = [section.size_bytes for section in sections]
    raw_sizes = [section.raw_size_bytes for section in sections]
    if min(sizes, default=0) < 0 or min(raw_sizes, default=0) < 0 or len(sections) > MAX_SECTIONS:
        raise _corrupt("lengths within the format's limits", "other lengths", "header")
    if PREFIX_BYTES + prefix.header_size_bytes + sum(sizes) != prefix.file_size_bytes:
        raise _corrupt("sections that fill the file", sum(sizes), "header")
    if sum(raw_sizes) > MAX_RAW_BYTES:
        raise _corrupt(f"at most {MAX_RAW_BYTES} bytes after decompression", sum(raw_sizes), "too large")
    if len({section.name for section in sections}) != len(sections):
        raise _corrupt("distinct section names", "a repeated one", "header")
    if expected_key is not None and header.key != expected_key:
        raise _corrupt(f"the entry of {expected_key}", f"the one of {header.key[:64]}", "misplaced")
    return header


def _compress(data: bytes) -> tuple[Codec, bytes]:
    if len(data) >= _SMALLEST_COMPRESSED:
        encoded = zstandard.ZstdCompressor(level=_ZSTD_LEVEL, write_content_size=True).compress(data)
        if len(encoded) < len(data) * _WORTHWHILE:
            return "zstd", encoded
    return "raw", data


def _decompress(section: SectionHeader, encoded: memoryview) -> bytes:
    if hashlib.sha256(encoded).hexdigest() != section.sha256:
        raise _corrupt("an intact section", "another digest", "section digest")
    raw_size = section.raw_size_bytes
    try:
        data = _inflate(section.codec, encoded, raw_size)
    except (zlib.error, zstandard.ZstdError, ValueError, MemoryError) as error:
        raise _corrupt(f"a {section.codec} section", error, "codec") from None
    if len(data) != raw_size:
        raise _corrupt(f"a section of {raw_size} bytes", len(data), "codec")
    return data


def _inflate(codec: Codec, encoded: memoryview, raw_size: int) -> bytes:
    """Undo a codec, never taking more memory than the header promised."""
    match codec:
        case "raw":
            return bytes(encoded)
        case "zlib":
            inflater = zlib.decompressobj()
            # One byte more than promised shows a stream that is too long; zero would mean no bound at all.
            data = inflater.decompress(encoded, raw_size + 1)
            if not inflater.eof or inflater.unused_data:
                raise ValueError("more than one whole stream")
            return data
        case "zstd":
            # zstandard trusts the size in the frame over any bound passed to it, so it is compared first.
            if zstandard.get_frame_parameters(encoded).content_size != raw_size:
                raise ValueError("a frame of another size")
            return zstandard.ZstdDecompressor().decompress(encoded, allow_extra_data=False)


def _plain(value: object, at: str, depth: int = 0) -> object:
    """Copy JSON data, making tuples lists and refusing what JSON would change or lose."""
    match value:
        case None | bool():
            return value
        # Subclasses (numpy.float64, enumerations) become plain values, as they would by way of the file.
        case int():
            return int(value)
        case str():
            value.encode()  # a lone surrogate has no UTF-8: UnicodeEncodeError is a ValueError
            return str.__str__(value)
        case float():
            if not math.isfinite(value):
                raise ValueError(mismatch("making an entry", expected="a finite number", got=value, at=at))
            return float(value)
        case dict() | list() | tuple() if depth >= MAX_DEPTH:
            raise ValueError(f"making an entry: expected at most {MAX_DEPTH} levels of nesting at {at[:80]}")
        case dict():
            items = cast("Mapping[object, object]", value)
            plain: dict[str, object] = {}
            for key, item in items.items():
                if not isinstance(key, str):
                    raise TypeError(mismatch("making an entry", expected="str keys", got=type(key).__name__, at=at))
                key.encode()
                plain[key] = _plain(item, f"{at}[{key!r}]", depth + 1)
            return plain
        case list() | tuple():
            rows = cast("list[object]", value)
            return [_plain(item, f"{at}[{index}]", depth + 1) for index, item in enumerate(rows)]
        case _:
            raise TypeError(mismatch("making an entry", expected="JSON data", got=type(value).__name__, at=at))


@functools.cache
def _writer() -> str:
    # Imported here: reading distributions' metadata costs 10 ms and only a writer needs it.
    from importlib import metadata

    try:
        return metadata.version("prejit")
    except metadata.PackageNotFoundError:
        return "unknown"


def _corrupt(expected: str, got: object, reason: str) -> CorruptEntry:
    return CorruptEntry(mismatch("reading an entry", expected=expected, got=str(got)[:200]), reason=reason)


def _too_large(what: str, size_bytes: int, limit_bytes: int) -> EntryTooLarge:
    return EntryTooLarge(
        mismatch("encoding an entry", expected=f"at most {limit_bytes} bytes", got=size_bytes, at=what),
        size_bytes=size_bytes,
        limit_bytes=limit_bytes,
        hint="keep it in pieces, or leave it out of the store",
    )
