"""Tree structures as plain data, and back: for results whose function is not traced again.

Containers of Python, named tuples, and registered classes that can be imported by name. The static data of a node
must be plain data. What was written is checked after reading: the rebuilt structure must describe itself in the same
way.
"""

import sys
from collections import OrderedDict, defaultdict
from typing import Any, cast

import jax

from prejit._jax.trees import make_tree
from prejit.errors import KeyingError

__all__ = ["describe_tree", "leaf_paths", "tree_from"]

_SCALARS = (str, int, bool, type(None))
_BUILTIN: dict[Any, str] = {dict: "dict", list: "list", tuple: "tuple", OrderedDict: "OrderedDict"}
_KINDS = {name: kind for kind, name in _BUILTIN.items()}


def describe_tree(treedef: Any) -> Any:
    """Return plain data from which `tree_from` rebuilds a structure.

    Raises:
        KeyingError: A node is of a class that can't be imported by name, or has static data that is not plain.
    """
    data = treedef.node_data()
    if data is None:
        return "*" if treedef.num_leaves else "None"
    kind: Any = data[0]
    static: Any = data[1]
    children = [describe_tree(child) for child in treedef.children()]
    if kind is type(None):
        return "None"
    if kind in _BUILTIN:
        keys = None if kind in (list, tuple) else [_plain(key) for key in static]
        return {"kind": _BUILTIN[kind], "static": keys, "children": children}
    if kind is defaultdict:
        raise _undescribed("a defaultdict, whose factory is a function")
    if _is_named_tuple(kind):
        return {"kind": "namedtuple", "class": _importable(kind), "static": None, "children": children}
    return {"kind": "class", "class": _importable(kind), "static": _plain(static), "children": children}


def leaf_paths(treedef: Any) -> list[str]:
    """Return how each leaf is reached, by the names that classes give their fields.

    A structure names its classes and not their fields, so this is what tells that two fields have changed places.

    Raises:
        KeyingError: A class gives its fields no names.
    """
    marked = jax.tree_util.tree_unflatten(treedef, range(treedef.num_leaves))
    found: list[str] = []
    reached = cast("list[tuple[tuple[Any, ...], Any]]", jax.tree_util.tree_flatten_with_path(marked)[0])
    for path, _ in reached:
        if any(isinstance(entry, jax.tree_util.FlattenedIndexKey) for entry in path):
            raise _undescribed("a class registered without names for its fields")
        found.append(jax.tree_util.keystr(path))
    return found


def tree_from(description: Any) -> Any:
    """Rebuild a structure.

    Raises:
        KeyingError: A class is no longer there, or its structure is another one now.
    """
    treedef = _build(description)
    if describe_tree(treedef) != description:
        raise _undescribed("a structure that was rebuilt differently")
    return treedef


def _is_named_tuple(kind: Any) -> bool:
    return issubclass(kind, tuple) and hasattr(cast("Any", kind), "_fields")


def _build(description: Any) -> Any:
    structure = cast("Any", jax.tree_util.tree_structure)
    if description == "*":
        return structure(0)
    if description == "None":
        return structure(None)
    kind: Any = _KINDS.get(description["kind"])
    static = description["static"]
    if kind is None:
        kind = _imported(description["class"])
        static = kind if description["kind"] == "namedtuple" else _from_plain(static)
    elif static is not None:
        keys = [_from_plain(key) for key in static]
        static = tuple(keys) if kind is OrderedDict else keys
    return make_tree(kind, static, [_build(child) for child in description["children"]])


def _plain(value: Any) -> Any:
    """Return static data as JSON: scalars as they are, tuples, lists and dictionaries under their name."""
    if type(value) in _SCALARS:
        return value
    if type(value) is float:
        return {"float": value.hex()}
    if type(value) in (tuple, list):
        return {type(value).__name__: [_plain(item) for item in value]}
    if type(value) is dict:
        items = cast("dict[Any, Any]", value).items()
        return {"dict": [[_plain(key), _plain(item)] for key, item in items]}
    raise _undescribed(f"static data of type {type(value).__name__}")


def _from_plain(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    ((kind, content),) = cast("dict[str, Any]", value).items()
    if kind == "float":
        return float.fromhex(content)
    if kind == "dict":
        return {_from_plain(key): _from_plain(item) for key, item in content}
    items = [_from_plain(item) for item in content]
    return tuple(items) if kind == "tuple" else items


def _importable(kind: type) -> list[str]:
    name = [kind.__module__, kind.__qualname__]
    if _find(name) is not kind:
        raise _undescribed(f"class {kind.__qualname__}, which can't be imported by name")
    return name


def _imported(name: list[str]) -> type:
    found = _find(name)
    if found is None:
        raise _undescribed(f"class {name[1]}, which is not there any more")
    return found


def _find(name: list[str]) -> Any:
    # Never imports: a class whose module this process has not imported has no instance to give back.
    found: Any = sys.modules.get(name[0])
    for part in name[1].split("."):
        found = getattr(found, part, None)
    return found


def _undescribed(what: str) -> KeyingError:
    return KeyingError(f"describing a result's structure: expected classes and plain data, got {what}", reason=what)
