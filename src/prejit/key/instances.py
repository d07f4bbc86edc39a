"""What an instance or a class consists of: attributes and the plain value under a subclass of a builtin."""

from __future__ import annotations

import enum
import types
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any, Final, NamedTuple, cast

from prejit._jax import jaxprs
from prejit.key import code
from prejit.key.encoding import class_of

_GENERATED: Final = frozenset(
    {"__init__", "__eq__", "__repr__", "__hash__", "__setattr__", "__delattr__", "__replace__"}
)
_CLASS_NOISE: Final = frozenset(
    """
    __module__ __qualname__ __doc__ __dict__ __weakref__ __firstlineno__ __static_attributes__ __annotations__
    __annotate__ __annotate_func__ __annotations_cache__ __abstractmethods__ _abc_impl __dataclass_fields__
    __dataclass_params__ __match_args__ __slots__ __parameters__ __orig_bases__ __type_params__ __signature__
    __class_getitem__
    """.split()  # noqa: SIM905
)
_NAMING: Final = frozenset({"__name__", "__qualname__", "__doc__", "__module__", "__annotations__"})


class _Probe(NamedTuple):
    field: int


_SLOT_TYPES: Final[tuple[type[Any], ...]] = (
    types.MemberDescriptorType,
    types.GetSetDescriptorType,
    class_of(vars(_Probe)["field"]),
)

EXTENSIBLE: Final[tuple[type[Any], ...]] = (tuple, OrderedDict, dict, list, set, frozenset, str, int, float, bytes)
"""Builtin types that classes extend. An `OrderedDict` is a `dict` too, so it comes first."""


def is_component(value: object) -> bool:
    """Say whether a value is one of prejit's own wrappers around a function, such as `@prejit.component` makes."""
    return class_of(value).__module__.partition(".")[0] == "prejit" and hasattr(value, "__wrapped__")


def plain_value(value: Any) -> Any:
    """Return the builtin value that an instance of a subclass holds, whatever the subclass overrides.

    Returns:
        The plain value, or None if its class extends no builtin type.
    """
    for base in EXTENSIBLE:
        if isinstance(value, base):
            return _take_out(value, base)
    return None


def _take_out(value: Any, base: Any) -> Any:
    if base is OrderedDict:
        return tuple(_items_of(base, value))
    if base is dict:
        return dict(_items_of(base, value))
    if base is str:
        return str.__str__(value)
    if base is int:
        return int.__int__(value)
    if base is float:
        return float.__float__(value)
    if base is bytes:
        return bytes.__getitem__(value, slice(None))
    return base(base.__iter__(value))


def _items_of(base: Any, value: Any) -> Any:
    return base.items(value)


def has_content(value: Any) -> bool:
    """Say whether an instance is nothing but its attributes and a builtin value, so that its content can be read."""
    kind = class_of(value)
    return isinstance(value, EXTENSIBLE) or code.holds_only_attributes(kind)


def attributes(value: Any) -> dict[str, Any]:
    """Return the attributes of an instance, from its slots and its dictionary, without what only names it."""
    kind = class_of(value)
    state: dict[str, Any] = {slot: getattr(value, slot) for slot in _slots(kind) if hasattr(value, slot)}
    state.update(cast(dict[str, Any], getattr(value, "__dict__", {})))
    left_out = _NAMING | jaxprs.COPIED_ATTRIBUTES if jaxprs.is_from_jax(kind) else _NAMING
    return {name: state[name] for name in sorted(state) if name not in left_out}


def members(kind: type[Any]) -> Iterator[tuple[str, Any]]:
    """Yield the members of a class that say what it does, by name."""
    for name, member in sorted(vars(kind).items()):
        if name not in _CLASS_NOISE and not _is_generated(kind, name, member):
            yield name, member


def field_names(kind: type[Any]) -> tuple[str, ...]:
    """Return the fields of a dataclass or a named tuple, in order; nothing for another class."""
    return tuple(getattr(kind, "__dataclass_fields__", getattr(kind, "_fields", ())))


def is_slot(member: object) -> bool:
    """Say whether a class member is only the place of an attribute."""
    return isinstance(member, _SLOT_TYPES)


def _slots(kind: type[Any]) -> Iterator[str]:
    for base in kind.__mro__:
        slots: Any = vars(base).get("__slots__", ())
        for slot in (slots,) if isinstance(slots, str) else cast(tuple[str, ...], tuple(slots)):
            if slot not in ("__dict__", "__weakref__"):
                is_private = slot.startswith("__") and not slot.endswith("__")
                yield f"_{base.__name__.lstrip('_')}{slot}" if is_private else slot


def _is_generated(kind: type[Any], name: str, member: Any) -> bool:
    """Say whether a member says nothing that the fields don't: what `dataclass` wrote, what `Enum` keeps."""
    if issubclass(kind, enum.Enum):
        return name in kind.__members__ or (name.startswith("_") and not isinstance(member, types.FunctionType))
    if name in _GENERATED and hasattr(kind, "__dataclass_fields__"):
        function = code.underlying_function(member)
        return function is not None and function.__code__.co_filename == "<string>"
    return False
