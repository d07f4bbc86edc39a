"""What Python functions and modules do: bytecode without lines, names read, who ships them."""

from __future__ import annotations

import builtins
import dis
import functools
import importlib.metadata
import platform
import sys
import types
from collections.abc import Iterator
from pathlib import PurePath
from typing import Any, NamedTuple, cast

from prejit.key.encoding import class_of, pack, scalar_token, text_token

_HAS_DOCSTRING = 0x4000000  # CO_HAS_DOCSTRING, new in 3.13; older versions have no such flag.
_READS = ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS")
_ATTRIBUTES = ("LOAD_ATTR", "LOAD_METHOD")
ABSENT = object()
"""Stands for a name that is not bound."""


class Shipped(NamedTuple):
    """Code that came in an installed package, whose version says what it is.

    Attributes:
        package: Name of the distribution, or `python` for the standard library.
        version: Its version.
    """

    package: str
    version: str


@functools.lru_cache(maxsize=1024)
def shipped_by(module_name: str) -> Shipped | None:
    """Return the installed package that a module came in, or None for the user's own code and editable installs."""
    top = module_name.partition(".")[0]
    if top == "prejit":
        return Shipped("prejit", "")  # The format version in every key speaks for it.
    if top in sys.stdlib_module_names:
        return Shipped("python", platform.python_version())
    module = sys.modules.get(top)
    if module is None or top == "__main__":
        return None
    places = [getattr(module, "__file__", None) or "", *getattr(module, "__path__", ())]
    if not any({"site-packages", "dist-packages"} & set(PurePath(place).parts) for place in places):
        return None
    for package in (top, *_distributions().get(top, ())):
        try:
            return Shipped(package, importlib.metadata.version(package))
        except importlib.metadata.PackageNotFoundError:
            continue
    return None


@functools.cache
def _distributions() -> dict[str, list[str]]:
    # Reads every installed package's list of files, 0.1 s and more: only where the import name is not the package's.
    return dict(importlib.metadata.packages_distributions())


def importable_name(value: Any) -> tuple[str, str, Shipped] | None:
    """Return module, name and package of a value that an installed package binds under its own name, else None.

    The binding is checked, so a function that was replaced is not taken for the one that was shipped.
    """
    module_name = getattr(value, "__module__", None) or type(value).__module__
    name = getattr(value, "__qualname__", None) or getattr(value, "__name__", None)
    if not isinstance(module_name, str) or not isinstance(name, str):
        return None
    shipped = shipped_by(module_name)
    if shipped is None:
        return None
    found: Any = sys.modules.get(module_name)
    for part in name.split("."):
        found = getattr(found, part, ABSENT)
    return (module_name, name, shipped) if found is value else None


def home_of(function: types.FunctionType) -> Shipped | None:
    """Return the package that a function was defined in, by its globals, which `functools.wraps` does not copy."""
    return shipped_by(str(function.__globals__.get("__name__", "")))


def code_token(code: types.CodeType) -> bytes:
    """Encode what a code object does: not where it stands, what it is called, or how its locals are named.

    Bytecode differs between Python versions, so two versions never share a token.
    """
    consts: list[bytes] = []
    flags = code.co_flags
    for index, const in enumerate(code.co_consts):
        if index == 0 and isinstance(const, str) and not _reads_const(code, 0):
            # A docstring. Nothing in the code reads it.
            flags &= ~_HAS_DOCSTRING
            consts.append(b"N")
        else:
            consts.append(_const_token(const))
    nr_params = code.co_argcount + code.co_kwonlyargcount
    nr_params += bool(flags & 0x04) + bool(flags & 0x08)  # *args and **kwargs
    numbers = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_nlocals, flags)
    return pack(
        b"code",
        text_token(sys.implementation.cache_tag or ""),
        code.co_code,
        code.co_exceptiontable,
        b",".join(b"%d" % number for number in numbers),
        pack(b"consts", *consts),
        pack(b"names", *map(text_token, code.co_names)),
        pack(b"params", *map(text_token, code.co_varnames[:nr_params])),
        b"%d,%d" % (len(code.co_cellvars), len(code.co_freevars)),
    )


def _const_token(const: Any) -> bytes:
    token = scalar_token(const)
    if token is not None:
        return token
    if isinstance(const, types.CodeType):
        return code_token(const)
    if isinstance(const, frozenset):
        return pack(b"frozenset", *sorted(map(_const_token, cast(frozenset[Any], const))))
    if isinstance(const, slice):
        return pack(b"slice", *[_const_token(part) for part in cast(Any, (const.start, const.stop, const.step))])
    return pack(b"tuple", *map(_const_token, const))


def _reads_const(code: types.CodeType, index: int) -> bool:
    return any(instruction.arg == index and "CONST" in instruction.opname for instruction in dis.get_instructions(code))


class Reads(NamedTuple):
    """What a function's code reads by name.

    Attributes:
        names: Global names, each with the chains of attributes that are read from it, sorted. An empty chain is the
            object itself being used.
        imports: Modules that it imports while it runs, sorted.
    """

    names: tuple[tuple[str, tuple[tuple[str, ...], ...]], ...]
    imports: tuple[str, ...]


@functools.lru_cache(maxsize=4096)
def reads_of(code: types.CodeType) -> Reads:
    """List the globals that a code object, and the functions defined in it, read."""
    names: dict[str, set[tuple[str, ...]]] = {}
    imports: set[str] = set()
    for name, chain in _scan(code, imports):
        names.setdefault(name, set()).add(chain)
    return Reads(tuple((name, tuple(sorted(names[name]))) for name in sorted(names)), tuple(sorted(imports)))


def _scan(code: types.CodeType, imports: set[str]) -> Iterator[tuple[str, tuple[str, ...]]]:
    name: str | None = None
    chain: list[str] = []
    for instruction in dis.get_instructions(code):
        if name is not None and instruction.opname in _ATTRIBUTES:
            chain.append(str(instruction.argval))
            continue
        if name is not None:
            yield name, tuple(chain)
        name, chain = None, []
        if instruction.opname in _READS:
            name = str(instruction.argval)
        elif instruction.opname == "IMPORT_NAME":
            imports.add(str(instruction.argval))
    if name is not None:
        yield name, tuple(chain)
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            yield from _scan(const, imports)


def global_value(function: types.FunctionType, name: str) -> Any:
    """Return what a global name is bound to for a function, `ABSENT` if to nothing or to one of Python's builtins."""
    return function.__globals__.get(name, ABSENT)


def is_builtin_name(name: str) -> bool:
    """Say whether Python itself binds a name."""
    return hasattr(builtins, name)


def underlying_function(value: Any) -> types.FunctionType | None:
    """Return the Python function at the bottom of wrappers, methods and partials, or None if there is none."""
    for _ in range(20):
        if isinstance(value, types.FunctionType):
            return value
        kind = class_of(value)
        if issubclass(kind, types.MethodType | staticmethod | classmethod):
            value = value.__func__
        elif issubclass(kind, functools.partial):
            value = value.func
        else:
            value = getattr(value, "__wrapped__", None)
    return None


def holds_only_attributes(kind: type) -> bool:
    """Say whether instances of a class are nothing but their attributes: no hidden state that native code keeps.

    Each class on the way to `object` must account for all the memory that it adds by its slots, `__dict__` and weak
    references. A lock, a file or an array of another library has more.
    """
    word = object.__basicsize__ // 2
    while kind is not object:
        base = kind.__base__ or object
        slots = kind.__dict__.get("__slots__", ())
        names = (slots,) if isinstance(slots, str) else tuple(slots)
        words = len([name for name in names if name not in ("__dict__", "__weakref__")])
        words += kind.__dictoffset__ > 0 and base.__dictoffset__ == 0
        words += kind.__weakrefoffset__ > 0 and base.__weakrefoffset__ == 0
        if kind.__itemsize__ or kind.__basicsize__ - base.__basicsize__ != words * word:
            return False
        kind = base
    return True


def cell_value(cell: types.CellType) -> Any:
    """Return what a closure cell holds, `ABSENT` if it is still empty."""
    try:
        return cell.cell_contents
    except ValueError:
        return ABSENT
