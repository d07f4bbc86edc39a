"""Static values, compared by type and exact bits.

`jax.jit` compares static arguments with `==`, so `0.0` and `-0.0` share a program and NaN never finds its own. Here
types are part of values, also inside tuples, frozen sets, named tuples and frozen dataclasses.
"""

import dataclasses
import functools
import struct
from typing import Any, cast

import jax
import numpy as np

__all__ = ["Static", "exact_token"]

_PLAIN = (int, str, bool, bytes, type(None))


def exact_token(value: Any) -> Any:
    """Return something hashable that is equal for two values only if they are the same value of the same type.

    Raises:
        TypeError: The value, or something in it, is not hashable.
    """
    kind = cast("Any", type(value))
    if kind in _PLAIN:
        return kind, value
    if kind is float:
        return kind, struct.pack("d", value)
    if kind is complex:
        return kind, struct.pack("dd", value.real, value.imag)
    if isinstance(value, np.generic):
        return kind, value.dtype, value.tobytes()
    if issubclass(kind, tuple) and kind.__eq__ is tuple.__eq__ and not getattr(value, "__dict__", None):
        return kind, tuple([exact_token(item) for item in cast("tuple[Any, ...]", value)])
    if kind is frozenset:
        return kind, frozenset([exact_token(item) for item in value])
    if dataclasses.is_dataclass(value) and _has_generated_equality(cast("Any", kind)):
        fields = [getattr(value, field.name) for field in dataclasses.fields(value) if field.compare]
        return kind, tuple([exact_token(field) for field in fields])
    hash(value)
    return kind, value


@functools.lru_cache(maxsize=256)
def _has_generated_equality(kind: type) -> bool:
    """Say whether a frozen dataclass compares by its fields, as generated, and not in a way of its own."""
    params = getattr(kind, "__dataclass_params__", None)
    own = getattr(kind.__dict__.get("__eq__"), "__code__", None)
    if params is None or own is None or not (params.eq and params.frozen):
        return False
    names = [field.name for field in dataclasses.fields(kind) if field.compare]
    generated = dataclasses.make_dataclass("Reference", names, frozen=True).__eq__.__code__
    return (own.co_code, own.co_names) == (generated.co_code, generated.co_names)


class Static:
    """Wrap a static value so that JAX's caches tell it from every other value.

    It is a tree without leaves, so it is part of a call's structure wherever it stands among the arguments, and JAX
    needs no list of static arguments, which it would compare with `==`.

    Raises:
        TypeError: The value is not hashable.
    """

    __slots__ = ("_hash", "token", "value")

    def __init__(self, value: Any) -> None:
        self.value = value
        self.token = exact_token(value)
        self._hash = hash(self.token)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Static) and self.token == other.token)

    def __repr__(self) -> str:
        return repr(self.value)


jax.tree_util.register_pytree_node(Static, lambda static: ((), static), lambda static, _: static)
