"""Canonical bytes: the grammar that every digest in prejit is made from.

A token is either a scalar, whose first byte names its type, or a node `(tag len:part len:part …)`. No scalar starts
with `(` and every part is length-prefixed, so tokens can be read back and two values can't share one by concatenation.
"""

from __future__ import annotations

import functools
import hashlib
import struct
import sys
from collections.abc import Mapping
from typing import Any, cast

import numpy as np


def pack(tag: bytes, *parts: bytes) -> bytes:
    """Join tokens under a tag so that the parts can be told apart again.

    Args:
        tag: Letters only; names what the node is.
        *parts: Any bytes, tokens as a rule.

    Returns:
        The node's token.

    Example:
        >>> pack(b"tuple", b"i1", b"sab")
        b'(tuple 2:i1 3:sab)'
    """
    return b"(" + tag + b"".join([b" %d:%b" % (len(part), part) for part in parts]) + b")"


def class_of(value: object) -> type[Any]:
    """Return `type(value)`, for values of which a type checker knows nothing."""
    return type(value)


def digest_of(token: bytes) -> str:
    """Return the SHA-256 of a token, in hex."""
    return hashlib.sha256(token).hexdigest()


def text_token(value: str) -> bytes:
    """Encode text. Lone surrogates, which Python allows in file names and literals, keep their value."""
    return b"s" + value.encode("utf-8", "surrogatepass")


def scalar_token(value: object) -> bytes | None:
    """Encode a value of exactly a builtin scalar type; floats by their bits, so NaN equals itself and -0.0 is not 0.0.

    Returns:
        The token, or None if `value` is not such a scalar (a subclass is not: it may mean something else).

    Example:
        >>> scalar_token(1), scalar_token(True), scalar_token([])
        (b'i1', b'T', None)
    """
    if type(value) is int:
        # Python refuses to print an int of more than 4,300 digits; hexadecimal has no such limit.
        return b"i%d" % value if value.bit_length() <= 4096 else b"I%x" % value
    if value is None:
        return b"N"
    if value is True:
        return b"T"
    if value is False:
        return b"F"
    if type(value) is str:
        return text_token(value)
    if type(value) is float:
        return b"f" + struct.pack(">d", value)
    if type(value) is bytes:
        return b"b" + value
    if type(value) is complex:
        return b"c" + struct.pack(">dd", value.real, value.imag)
    if value is Ellipsis:
        return b"E"
    if value is NotImplemented:
        return b"M"
    return None


@functools.lru_cache(maxsize=256)
def dtype_token(dtype: np.dtype[Any]) -> bytes:
    """Encode a NumPy dtype by name, never by `dtype.str`, which carries the machine's byte order.

    A structured dtype adds its fields, a subarray dtype its shape.
    """
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        return pack(b"subarray", dtype_token(base), *[b"i%d" % n for n in shape])
    if dtype.fields is not None:
        listed = cast(Mapping[str, Any], dtype.fields)
        fields = [
            pack(b"field", text_token(name), dtype_token(listed[name][0]), b"i%d" % listed[name][1])
            for name in dtype.names or ()
        ]
        return pack(b"struct", b"i%d" % dtype.itemsize, *fields)
    return pack(b"dtype", text_token(dtype.name))


def array_token(array: np.ndarray[Any, Any], tag: bytes = b"ndarray") -> bytes:
    """Encode an array of plain data by shape, dtype name and a digest of its little-endian, C-ordered content.

    Memory layout and byte order don't matter: `a`, `np.asfortranarray(a)` and `a.astype(">f4")` hold the same values.

    Raises:
        TypeError: The dtype holds Python objects, whose content only the caller can judge.
    """
    dtype = array.dtype
    if dtype.hasobject:
        raise TypeError("array of Python objects")
    if dtype.fields is None and (dtype.byteorder == ">" or (dtype.byteorder == "=" and sys.byteorder == "big")):
        array = array.byteswap()
    content = array.tobytes(order="C")
    body = content if len(content) <= 32 else hashlib.sha256(content).digest()
    shape = b",".join([b"%d" % n for n in array.shape])
    return pack(tag, shape, dtype_token(dtype), body)
