"""Canonical tokens for what equations carry: plain data, arrays, and JAX's own value types."""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable, Collection, Mapping
from typing import Any, cast

import jax
import numpy as np
from jax.sharding import AbstractMesh, Mesh, PartitionSpec, Sharding

from prejit._jax import jaxprs
from prejit.errors import KeyingError
from prejit.key import placement
from prejit.key.encoding import array_token, class_of, dtype_token, pack, scalar_token, text_token


class UnknownTypeError(TypeError):
    """A param of a type that has no canonical encoding; the equation that holds it turns this into a KeyingError."""


def value_token(value: Any) -> bytes:
    """Encode one value of the kinds that equations carry: plain data, avals, meshes, shardings, arrays.

    Raises:
        KeyingError: It is of a type that has no canonical encoding; the reason names the type.
    """
    try:
        return ValueEncoder().value(value)
    except UnknownTypeError as error:
        raise KeyingError(
            f"building the key: expected plain data, got {error.args[0]}", reason=f"a value of type {error.args[0]}"
        ) from None


class ValueEncoder:
    """Encode values with a memo by identity, which keeps what it saw alive so that an identity is not reused."""

    __slots__ = ("_seen",)

    def __init__(self) -> None:
        self._seen: dict[int, tuple[Any, bytes]] = {}

    def jaxpr(self, jaxpr: Any) -> bytes:
        """Encode a jaxpr; only the encoder of programs can."""
        raise UnknownTypeError(type_name(jaxpr))

    def once(self, encode: Callable[[Any], bytes], value: Any) -> bytes:
        """Encode an object, or return what was found when it was met before."""
        seen = self._seen.get(id(value))
        if seen is None:
            seen = self._seen[id(value)] = (value, encode(value))
        return seen[1]

    def value(self, value: object) -> bytes:
        """Encode what equations carry: plain data, and JAX's own types that occur in params, avals and contexts."""
        token = scalar_token(value)
        if token is not None:
            return token
        kind = type(value)
        if kind is tuple or kind is list:
            parts: Any = value
            return pack(b"tuple" if kind is tuple else b"list", *[self.value(part) for part in parts])
        encode = _RULE_OF_TYPE.get(kind)
        if encode is None:
            encode = _rule_for(kind, value)
        return encode(self, value)


def constant_token(value: Any) -> bytes:
    """Encode an array or a NumPy or Python scalar by its content and weak type.

    Raises:
        KeyingError: Its content can't be read here: it is on other hosts, deleted, or is not an array at all.
    """
    token = scalar_token(value)
    if token is not None:
        return token
    if isinstance(value, np.ndarray | np.generic):
        try:
            return array_token(np.asarray(cast(Any, value)))
        except TypeError as error:
            raise KeyingError(
                "building the key: expected an array of numbers, got one of Python objects", reason="array of objects"
            ) from error
    if not isinstance(value, jax.Array):
        plain = jaxprs.plain_literal(value)
        if plain is not value:
            return constant_token(plain)
        raise KeyingError(
            f"building the key: expected an array, got {type(value).__qualname__}",
            reason=f"a constant of type {type(value).__qualname__}",
        )
    if jaxprs.is_typed_key(value):
        impl = key_impl_token(jaxprs.key_impl(value))
        return pack(b"keys", impl, constant_token(jax.random.key_data(value)))
    try:
        content = np.asarray(value)
    except RuntimeError as error:
        raise KeyingError(
            "building the key: expected an array that this process can read, got one on other hosts or deleted",
            reason="a constant that can't be read here",
        ) from error
    return pack(b"array", array_token(content), b"T" if value.weak_type else b"F")


def key_impl_token(impl: Any) -> bytes:
    """Encode a PRNG implementation by name, tag and key shape.

    Raises:
        KeyingError: Its functions are not JAX's own, so its name does not say what it does.
    """
    if not all(jaxprs.is_jax_function(function) for function in jaxprs.impl_functions(impl)):
        raise KeyingError(
            f"building the key: expected one of JAX's PRNG implementations, got {impl.name!r}",
            reason=f"the PRNG implementation {impl.name!r} is not JAX's own",
        )
    return pack(b"prng", text_token(impl.name), text_token(impl.tag), *[b"i%d" % n for n in impl.key_shape])


@functools.lru_cache(maxsize=512)
def type_token(kind: type[Any]) -> bytes:
    """Encode a class by module and name."""
    return text_token(f"{kind.__module__}.{kind.__qualname__}")


def type_name(value: object) -> str:
    """Return what to call a value's class in a message."""
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


_Rule = Callable[[ValueEncoder, Any], bytes]


def _numpy(encoder: ValueEncoder, value: Any) -> bytes:
    return encoder.once(constant_token, value) if isinstance(value, np.ndarray) else constant_token(value)


def _dtype(encoder: ValueEncoder, value: Any) -> bytes:
    return dtype_token(value)


def _enum(encoder: ValueEncoder, value: enum.Enum) -> bytes:
    return pack(b"enum", type_token(class_of(value)), text_token(value.name))


def _jaxpr(encoder: ValueEncoder, value: Any) -> bytes:
    return encoder.jaxpr(value)


def _array(encoder: ValueEncoder, value: Any) -> bytes:
    return encoder.once(constant_token, value)


def _namedtuple(encoder: ValueEncoder, value: tuple[Any, ...]) -> bytes:
    return pack(b"namedtuple", type_token(class_of(value)), *[encoder.value(part) for part in value])


def _set(encoder: ValueEncoder, value: Collection[Any]) -> bytes:
    return pack(b"set", *sorted(encoder.value(part) for part in value))


def _dict(encoder: ValueEncoder, value: Mapping[Any, Any]) -> bytes:
    items = sorted((encoder.value(key), encoder.value(part)) for key, part in value.items())
    return pack(b"dict", *[token for item in items for token in item])


def _impl(encoder: ValueEncoder, value: Any) -> bytes:
    return key_impl_token(value)


def _placed(token: Callable[[Any], bytes]) -> _Rule:
    return lambda encoder, value: encoder.once(token, value)


def _fields(encoder: ValueEncoder, value: Any) -> bytes:
    fields = jaxprs.fields_of(value)
    if fields is None:
        raise UnknownTypeError(type_name(value))
    parts = [pack(b"field", text_token(name), encoder.value(part)) for name, part in fields]
    return pack(b"value", type_token(class_of(value)), *parts)


def _class(encoder: ValueEncoder, value: type[Any]) -> bytes:
    if issubclass(value, np.generic):
        return pack(b"scalartype", dtype_token(np.dtype(cast(Any, value))))
    if jaxprs.is_from_jax(value) or value.__module__ == "builtins":
        return pack(b"type", type_token(value))
    raise UnknownTypeError(f"the class {value.__qualname__}")


def _treedef(encoder: ValueEncoder, value: Any) -> bytes:
    from prejit.key.fingerprint import treedef_token  # It encodes arrays with this module.

    return treedef_token(value)


_RULES: tuple[tuple[Callable[[Any], bool], _Rule], ...] = (
    (jaxprs.is_jaxpr, _jaxpr),
    (jaxprs.is_source_info, lambda encoder, value: pack(b"source")),
    (lambda value: isinstance(value, enum.Enum), _enum),
    (lambda value: isinstance(value, np.dtype), _dtype),
    (jaxprs.is_extended_dtype, lambda encoder, value: pack(b"extended", *_extended(value))),
    (lambda value: isinstance(value, np.ndarray | np.generic), _numpy),
    (lambda value: isinstance(value, jax.Array) or jaxprs.plain_literal(value) is not value, _array),
    (lambda value: isinstance(value, jaxprs.KeyImpl), _impl),
    (lambda value: issubclass(class_of(value), tuple) and hasattr(class_of(value), "_fields"), _namedtuple),
    (lambda value: isinstance(value, set | frozenset), _set),
    (lambda value: isinstance(value, Mapping), _dict),
    (lambda value: isinstance(value, Mesh | AbstractMesh), _placed(placement.mesh_token)),
    (lambda value: isinstance(value, PartitionSpec), _placed(placement.spec_token)),
    (lambda value: isinstance(value, Sharding), _placed(placement.sharding_token)),
    (lambda value: isinstance(value, jax.Device), _placed(placement.device_token)),
    (lambda value: isinstance(value, jax.tree_util.PyTreeDef), _treedef),
    (lambda value: isinstance(value, type), _class),
)

_RULE_OF_TYPE: dict[type, _Rule] = {}
"""The encoder per exact type, filled as types are met; bounded, since only JAX's, NumPy's and Python's types enter."""


def _extended(dtype: Any) -> list[bytes]:
    impl = jaxprs.dtype_impl(dtype)
    return [text_token(dtype.name)] if impl is None else [text_token(dtype.name), key_impl_token(impl)]


def _rule_for(kind: type, value: Any) -> _Rule:
    encode = next((rule for applies, rule in _RULES if applies(value)), _fields)
    if kind.__module__.partition(".")[0] in ("jax", "jaxlib", "numpy", "builtins", "ml_dtypes"):
        _RULE_OF_TYPE[kind] = encode
    return encode
