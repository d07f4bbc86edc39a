"""Leaves that are not arrays, inside registered classes: static by content, on the way in and on the way out.

An equinox module holds activation functions and strings among its leaves; `jax.jit` refuses it. A leaf that is not an
array and sits below a node of a class that someone registered is made part of the tree's structure for the call, if its
content can't change: functions, strings, types, enumerations, frozen dataclasses. In lists, tuples, dictionaries and as
an argument of its own, such a leaf is the mistake that `jax.jit` reports.
"""

import enum
import functools
import types
from collections import OrderedDict, defaultdict
from typing import Any

import jax
import numpy as np

from prejit._jax import tracing
from prejit.signature.statics import exact_token

__all__ = ["box", "has_static_leaves"]

_CONTAINERS = (tuple, list, dict, type(None), OrderedDict, defaultdict)
_SCALARS = (bool, int, float, complex)
_SETTLED = (
    str, bytes, type, enum.Enum, types.FunctionType, types.BuiltinFunctionType, types.MethodDescriptorType,
    types.WrapperDescriptorType, np.ufunc, np.dtype, type(Ellipsis), type(NotImplemented),
)  # fmt: skip


def is_array_like(leaf: Any) -> bool:
    """Say whether JAX takes a leaf as an array."""
    return (
        isinstance(leaf, jax.Array | np.ndarray | np.generic | jax.ShapeDtypeStruct)
        or type(leaf) in _SCALARS
        or hasattr(leaf, "__jax_array__")
        or isinstance(leaf, tracing.Tracer)
    )


class _Structure:
    """The static part of a boxed tree: its treedef, the static leaves and where they go."""

    __slots__ = ("_token", "leaves", "treedef")

    def __init__(self, treedef: Any, leaves: tuple[Any, ...]) -> None:
        self.treedef = treedef
        self.leaves = leaves  # _HOLE where an array goes
        self._token = (treedef, tuple([exact_token(leaf) for leaf in leaves]))

    def __hash__(self) -> int:
        return hash(self._token)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Structure) and self._token == other._token

    def __repr__(self) -> str:
        return f"{self.treedef} with static leaves"


class _Hole:
    def __repr__(self) -> str:
        return "*"


_HOLE = _Hole()


class Boxed:
    """A tree whose arrays are children and whose other leaves are structure; unflattening gives the tree itself."""

    __slots__ = ("arrays", "structure")

    def __init__(self, arrays: list[Any], structure: _Structure) -> None:
        self.arrays = arrays
        self.structure = structure


def _unbox(structure: _Structure, arrays: Any) -> Any:
    remaining = iter(arrays)
    leaves = [next(remaining) if leaf is _HOLE else leaf for leaf in structure.leaves]
    return jax.tree_util.tree_unflatten(structure.treedef, leaves)


jax.tree_util.register_pytree_node(Boxed, lambda boxed: (boxed.arrays, boxed.structure), _unbox)


def _is_settled(leaf: Any) -> bool:
    """Say whether a leaf's content can't change under it, so that equal leaves stay equal."""
    if isinstance(leaf, _SETTLED) or type(leaf).__module__.partition(".")[0] in ("jax", "jaxlib"):
        return True
    if isinstance(leaf, functools.partial):
        return all(map(_is_settled, (leaf.func, *leaf.args, *leaf.keywords.values())))
    if type(leaf) in (tuple, frozenset):
        return all(type(item) in _SCALARS or _is_settled(item) for item in leaf)
    params = getattr(leaf, "__dataclass_params__", None)
    return params is not None and params.frozen and isinstance(exact_token(leaf)[1], tuple)


def has_static_leaves(leaves: list[Any]) -> bool:
    """Say whether any leaf is not an array."""
    return not all(is_array_like(leaf) for leaf in leaves)


def box(tree: Any) -> Any:
    """Replace every subtree of a registered class that holds leaves which are not arrays by a `Boxed`.

    Returns:
        The tree itself where there is nothing to box. Leaves that are a mistake are left in place, for JAX to report.
    """
    return jax.tree_util.tree_map(_box_node, tree, is_leaf=_is_registered_class)


def _is_registered_class(node: Any) -> bool:
    if type(node) in _CONTAINERS or isinstance(node, tuple) or is_array_like(node):
        return False
    return not jax.tree_util.all_leaves([node])


def _box_node(node: Any) -> Any:
    if not _is_registered_class(node):
        return node
    leaves, treedef = tracing.flatten(node)
    if not has_static_leaves(leaves):
        return node
    arrays = [leaf for leaf in leaves if is_array_like(leaf)]
    if not all(is_array_like(leaf) or _is_settled(leaf) for leaf in leaves):
        return node  # a leaf that may change under us can't be told from what it was: JAX reports it
    try:
        structure = _Structure(treedef, tuple([_HOLE if is_array_like(leaf) else leaf for leaf in leaves]))
    except TypeError:
        return node  # a leaf that is not hashable can't be told from another one: JAX reports it
    return Boxed(arrays, structure)
