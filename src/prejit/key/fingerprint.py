"""Fingerprints of Python values by content: plain data, arrays, classes, and functions with all that they reach.

Functions and classes are numbered in the order in which they are met and encoded one after another, so that cycles end
and a long chain of helpers doesn't nest.
"""

from __future__ import annotations

import collections
import enum
import functools
import types
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import jax
import numpy as np

from prejit._jax import jaxprs
from prejit.errors import KeyingError
from prejit.key import code, instances
from prejit.key.encoding import array_token, class_of, digest_of, pack, scalar_token, text_token
from prejit.key.values import constant_token, value_token

_MAX_DEPTH: Final = 60
_MAX_NODES: Final = 200_000

_FUNCTION_NOISE = frozenset({"__wrapped__", "__name__", "__qualname__", "__doc__", "__module__", "__annotations__"})


def fingerprint(value: Any, path: str = "value") -> str:
    """Digest a value by content and type: equal digests mean values that a trace can't tell apart.

    `1`, `True`, `1.0` and `np.float32(1)` differ, `0.0` and `-0.0` differ, NaN equals itself. The order of a dict's
    keys and of a set's members does not matter. A function is its bytecode without line numbers, its defaults, closure,
    and the globals that it names, followed; one that an installed package ships is its name and that package's version.

    Args:
        value: Anything.
        path: What to call it in an error.

    Returns:
        SHA-256 in hex, the same in every process.

    Raises:
        KeyingError: Something in it has no content of its own (an open file, a lock, a tracer, an object of native
            code), it contains itself, or it is too large. `path` in the error leads there.

    **Threads**: safe; what it reads must not be changed meanwhile.

    Example:
        >>> fingerprint({"a": 1, "b": 2}) == fingerprint({"b": 2, "a": 1}), fingerprint(1) == fingerprint(True)
        (True, False)
    """
    return digest_of(value_content(value, path))


def value_content(value: Any, path: str = "value") -> bytes:
    """Return the canonical bytes that `fingerprint` digests."""
    return _guarded(lambda encoder: encoder.token(value, path), path)


def treedef_token(treedef: Any, path: str = "treedef") -> bytes:
    """Encode a treedef: builtin nodes by kind and keys, registered classes by content and their static data likewise.

    Raises:
        KeyingError: A node's static data has no fingerprint; `path` leads to it.
    """
    return _guarded(lambda encoder: encoder.treedef(treedef, path), path)


def _guarded(encode: Callable[[_Encoder], bytes], path: str) -> bytes:
    encoder = _Encoder()
    try:
        return pack(b"content", encode(encoder), *encoder.drain())
    except RecursionError as error:
        raise _refuse("nested too deeply", path, "more levels than Python's stack holds") from error


def _refuse(reason: str, path: str, got: str) -> KeyingError:
    return KeyingError(
        f"building the key: expected a value with an identity, got {got} at {path}", reason=reason, path=path
    )


def _name(value: object) -> str:
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


class _Encoder:
    """One call of `fingerprint`. Functions and classes wait in a queue; a reference is their number."""

    __slots__ = ("_budget", "_depth", "_numbers", "_open", "_queue")

    def __init__(self, depth: int = 0, budget: list[int] | None = None) -> None:
        self._depth = depth
        self._budget = [_MAX_NODES] if budget is None else budget  # Shared with the encoders of set members and keys.
        self._open: set[int] = set()
        self._numbers: dict[int, int] = {}
        self._queue: list[tuple[Any, str]] = []

    def drain(self) -> list[bytes]:
        """Encode what is waiting, and what that leads to, in order."""
        records: list[bytes] = []
        while len(records) < len(self._queue):
            value, path = self._queue[len(records)]
            records.append(self._class(value, path) if isinstance(value, type) else self._function(value, path))
        return records

    def token(self, value: Any, path: str) -> bytes:
        token = scalar_token(value)
        if token is not None:
            return token
        self._budget[0] -= 1
        if self._budget[0] < 0:
            raise _refuse("too large", path, f"more than {_MAX_NODES:,} parts")
        if self._depth >= _MAX_DEPTH:
            raise _refuse("nested too deeply", path, f"more than {_MAX_DEPTH} levels")
        if id(value) in self._open:
            raise _refuse("contains itself", path, f"a {_name(value)} that contains itself")
        self._open.add(id(value))
        self._depth += 1
        try:
            return self._node(value, path)
        finally:
            self._depth -= 1
            self._open.discard(id(value))

    def _node(self, value: Any, path: str) -> bytes:
        encode = _BY_TYPE.get(class_of(value))
        if encode is not None:
            return encode(self, value, path)
        if isinstance(value, enum.Enum):
            kind = self.token(type(value), f"{path}.__class__")
            return pack(b"enum", kind, text_token(value.name), self.token(value.value, f"{path}.value"))
        if isinstance(value, np.ndarray | np.generic):
            return self._array(value, path)
        if isinstance(value, jaxprs.Tracer):
            raise _refuse("a tracer", path, "a tracer, which has no value yet")
        if isinstance(value, jax.Array):
            return _located(constant_token, value, path)
        if jaxprs.is_extended_dtype(value) or isinstance(value, jax.ShapeDtypeStruct):
            return _located(value_token, value, path)
        if isinstance(value, jax.tree_util.PyTreeDef):
            return self.treedef(value, path)
        named = code.importable_name(value) if callable(value) else None
        if named is not None:
            module, name, shipped = named
            return pack(b"shipped", *map(text_token, (module, name, *shipped)))
        if isinstance(value, type):
            return self._reference(value, path)
        if jaxprs.is_jit(value):
            options = _located(value_token, jaxprs.jit_options(value), path)
            return pack(b"jit", self.token(jaxprs.wrapped(value), f"{path}.__wrapped__"), options)
        if instances.is_component(value):
            # How it is compiled and linked does not change what it computes.
            return pack(b"component", self.token(jaxprs.wrapped(value), f"{path}.__wrapped__"))
        if isinstance(value, np.dtype) or (jaxprs.is_from_jax(class_of(value)) and not hasattr(value, "__dict__")):
            return _located(value_token, value, path)
        if isinstance(value, _PLACEMENT) or jaxprs.plain_literal(value) is not value:
            return _located(value_token, value, path)
        return self._instance(value, path)

    def _alone(self, value: Any, path: str) -> bytes:
        """Encode a member whose place is decided by its token, so that nothing met before may show in it."""
        token = scalar_token(value)
        if token is not None:
            return token
        encoder = _Encoder(self._depth + 1, self._budget)
        return pack(b"alone", encoder.token(value, path), *encoder.drain())

    def _reference(self, value: Any, path: str) -> bytes:
        number = self._numbers.get(id(value))
        if number is None:
            number = self._numbers[id(value)] = len(self._queue)
            self._queue.append((value, path))
        return b"R%d" % number

    def items(self, values: Iterable[Any], path: str) -> list[bytes]:
        return [self.token(value, f"{path}[{index}]") for index, value in enumerate(values)]

    def members(self, values: Iterable[Any], path: str) -> list[bytes]:
        return sorted(self._alone(value, f"{path}{{}}") for value in values)

    def pairs(self, mapping: Mapping[Any, Any], path: str) -> list[bytes]:
        keyed = {self._alone(key, f"{path}.keys()"): key for key in mapping}
        if len(keyed) != len(mapping):
            raise _refuse("keys that look alike", path, "a dict with two keys of the same content")
        tokens: list[bytes] = []
        for token in sorted(keyed):
            key = keyed[token]
            shown = f"[{key!r}]" if isinstance(key, str | int) else "[…]"
            tokens += (token, self.token(mapping[key], path + shown))
        return tokens

    def ordered_pairs(self, mapping: Mapping[Any, Any], path: str) -> list[bytes]:
        return [token for key in mapping for token in (self._alone(key, path), self.token(mapping[key], f"{path}[…]"))]

    def _array(self, value: Any, path: str) -> bytes:
        kind = class_of(value)
        array: np.ndarray[Any, Any] = np.asarray(value)
        if array.dtype.hasobject:
            if array.dtype != np.dtype(object):
                raise _refuse("array of objects in a record", path, "a structured array of Python objects")
            shape = b",".join(b"%d" % n for n in array.shape)
            return pack(b"objects", shape, *self.items(array.ravel().tolist(), path))
        if issubclass(kind, np.ndarray) and kind not in (np.ndarray, np.memmap):
            # A masked array or a user's subclass: what it adds to the numbers is not known here.
            raise _refuse("a subclass of ndarray", path, f"a {_name(value)}")
        return array_token(array, b"npscalar" if issubclass(kind, np.generic) else b"ndarray")

    def treedef(self, treedef: Any, path: str) -> bytes:
        """Encode a treedef, node by node."""
        data = treedef.node_data()
        if data is None:
            return b"*"
        if self._depth >= _MAX_DEPTH * 4:
            raise _refuse("nested too deeply", path, "a tree of too many levels")
        kind, static = data
        self._depth += 1
        children = [self.treedef(child, f"{path}[{i}]") for i, child in enumerate(treedef.children())]
        if kind in (tuple, list, type(None)):
            label, keys = kind.__name__.encode(), b""
        elif kind is dict:
            label, keys = b"dict", pack(b"keys", *[self._alone(key, path) for key in static])
        else:
            label = b"node"
            name = text_token(f"{kind.__module__}.{kind.__qualname__}")
            keys = pack(b"static", name, self.token(static, f"{path}<{kind.__qualname__}>"))
        self._depth -= 1
        return pack(label, keys, *children)

    def function(self, value: types.FunctionType, path: str) -> bytes:
        named = code.importable_name(value)
        if named is not None:
            module, name, shipped = named
            return pack(b"shipped", *map(text_token, (module, name, *shipped)))
        return self._reference(value, path)

    def _function(self, function: types.FunctionType, path: str) -> bytes:
        cells: list[bytes] = []
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            value = code.cell_value(cell)
            cells.append(b"A" if value is code.ABSENT else self.token(value, f"{path}.__closure__[{name!r}]"))
        extra = {name: part for name, part in vars(function).items() if name not in _FUNCTION_NOISE}
        home = code.home_of(function)
        if home is None:
            reads = pack(b"globals", *self._globals(function, path))
        else:
            reads = pack(b"package", *map(text_token, (str(function.__globals__.get("__name__")), *home)))
        return pack(
            b"function",
            code.code_token(function.__code__),
            self.token(function.__defaults__, f"{path}.__defaults__"),
            self.token(function.__kwdefaults__, f"{path}.__kwdefaults__"),
            pack(b"cells", *cells),
            self.token(extra, f"{path}.__dict__"),
            reads,
        )

    def _globals(self, function: types.FunctionType, path: str) -> Iterable[bytes]:
        reads = code.reads_of(function.__code__)
        for module in reads.imports:
            shipped = code.shipped_by(module)
            if shipped is None:
                raise _refuse("an import while it runs", path, f"a function that imports {module!r} when called")
            yield pack(b"import", *map(text_token, (module, *shipped)))
        for name, chains in reads.names:
            value = code.global_value(function, name)
            if value is code.ABSENT:
                yield pack(b"builtin" if code.is_builtin_name(name) else b"unbound", text_token(name))
            elif isinstance(value, types.ModuleType):
                yield pack(b"global", text_token(name), self._module(value, chains, f"{path}.__globals__[{name!r}]"))
            else:
                yield pack(b"global", text_token(name), self.token(value, f"{path}.__globals__[{name!r}]"))

    def _module(self, module: types.ModuleType, chains: Iterable[tuple[str, ...]], path: str) -> bytes:
        shipped = code.shipped_by(module.__name__)
        if shipped is not None:
            parts = [self._rebound(module, chain, path) for chain in chains]
            return pack(b"module", *map(text_token, (module.__name__, *shipped)), *filter(None, parts))
        tokens: list[bytes] = []
        for chain in chains:
            if not chain:
                raise _refuse("a module", path, f"the module {module.__name__!r} passed around as a value")
            value = getattr(module, chain[0], code.ABSENT)
            place = f"{path}.{chain[0]}"
            if value is code.ABSENT:
                token = b"A"
            elif isinstance(value, types.ModuleType):
                token = self._module(value, (chain[1:],), place)
            else:
                token = self.token(value, place)
            tokens += (text_token(chain[0]), token)
        return pack(b"own", *tokens)

    def _rebound(self, module: types.ModuleType, chain: tuple[str, ...], path: str) -> bytes:
        """Encode an attribute of an installed module if someone put their own code there; else the version says it."""
        value: Any = module
        for depth, name in enumerate(chain):
            # Not getattr: it could import a lazy module, and one that isn't imported yet is no difference.
            value = vars(value).get(name, code.ABSENT) if isinstance(value, types.ModuleType) else code.ABSENT
            if value is code.ABSENT:
                break
            origin = code.underlying_function(value)
            if origin is not None and code.home_of(origin) is None:
                place = ".".join((path, *chain[: depth + 1]))
                return pack(b"rebound", text_token(".".join(chain[: depth + 1])), self.token(value, place))
        return b""

    def _class(self, kind: type[Any], path: str) -> bytes:
        parts: list[bytes] = [pack(b"fields", *map(text_token, instances.field_names(kind)))]
        parts += [self.token(base, f"{path}.__bases__") for base in kind.__bases__ if base is not object]
        if type(kind) is not type:
            parts.append(self.token(type(kind), f"{path}.__class__"))
        if issubclass(kind, enum.Enum):
            listed = {name: member.value for name, member in kind.__members__.items()}
            parts.append(self.token(listed, f"{path}.__members__"))
        for name, member in instances.members(kind):
            parts.append(pack(b"member", text_token(name), self._member(member, f"{path}.{name}")))
        return pack(b"class", text_token(kind.__qualname__), *parts)

    def _member(self, member: Any, path: str) -> bytes:
        kind = class_of(member)
        if issubclass(kind, staticmethod | classmethod):
            return pack(b"bound", text_token(kind.__name__), self.token(member.__func__, path))
        if issubclass(kind, property):
            return pack(b"property", *self.items((member.fget, member.fset, member.fdel), path))
        if issubclass(kind, functools.cached_property):
            return pack(b"cachedproperty", self.token(member.func, path))
        return pack(b"slot") if instances.is_slot(member) else self.token(member, path)

    def _instance(self, value: Any, path: str) -> bytes:
        if not instances.has_content(value):
            raise _refuse(f"no content: {_name(value)}", path, f"a {_name(value)}")
        parts = [
            pack(b"attribute", text_token(name), self.token(part, f"{path}.{name}"))
            for name, part in instances.attributes(value).items()
        ]
        kind = self.token(type(value), f"{path}.__class__")
        return pack(b"object", kind, self.token(instances.plain_value(value), path), *parts)


def _located(encode: Callable[[Any], bytes], value: Any, path: str) -> bytes:
    try:
        return encode(value)
    except KeyingError as error:
        raise KeyingError(f"{error.args[0]} at {path}", reason=error.reason, path=path) from error


_Rule = Callable[[_Encoder, Any, str], bytes]


def _method(encoder: _Encoder, value: Any, path: str) -> bytes:
    function = encoder.token(value.__func__, f"{path}.__func__")
    return pack(b"method", function, encoder.token(value.__self__, f"{path}.__self__"))


def _builtin(encoder: _Encoder, value: Any, path: str) -> bytes:
    named = code.importable_name(value)
    if named is not None:
        return pack(b"shipped", *map(text_token, (named[0], named[1], *named[2])))
    owner = value.__self__
    if owner is None or isinstance(owner, types.ModuleType):
        raise _refuse("native code", path, f"the native function {value.__qualname__!r}")
    return pack(b"bound", text_token(value.__name__), encoder.token(owner, f"{path}.__self__"))


def _descriptor(encoder: _Encoder, value: Any, path: str) -> bytes:
    return pack(b"descriptor", text_token(value.__name__), encoder.token(value.__objclass__, f"{path}.__objclass__"))


def _partial(encoder: _Encoder, value: Any, path: str) -> bytes:
    parts = (value.func, value.args, value.keywords)
    return pack(
        b"partial", *[encoder.token(part, f"{path}.{name}") for part, name in zip(parts, _PARTIAL, strict=True)]
    )


def _memo(encoder: _Encoder, value: Any, path: str) -> bytes:
    return pack(b"memo", encoder.token(value.__wrapped__, f"{path}.__wrapped__"))


def _defaultdict(encoder: _Encoder, value: Any, path: str) -> bytes:
    factory = encoder.token(value.default_factory, f"{path}.default_factory")
    return pack(b"defaultdict", factory, *encoder.pairs(value, path))


_PARTIAL = ("func", "args", "keywords")
_PLACEMENT: Any = (
    jax.sharding.Sharding,
    jax.sharding.Mesh,
    jax.sharding.AbstractMesh,
    jax.sharding.PartitionSpec,
    jax.Device,
)

_BY_TYPE: dict[type, _Rule] = {
    tuple: lambda e, v, p: pack(b"tuple", *e.items(v, p)),
    list: lambda e, v, p: pack(b"list", *e.items(v, p)),
    dict: lambda e, v, p: pack(b"dict", *e.pairs(v, p)),
    set: lambda e, v, p: pack(b"set", *e.members(v, p)),
    frozenset: lambda e, v, p: pack(b"frozenset", *e.members(v, p)),
    collections.OrderedDict: lambda e, v, p: pack(b"ordereddict", *e.ordered_pairs(v, p)),
    collections.defaultdict: _defaultdict,
    collections.deque: lambda e, v, p: pack(b"deque", e.token(v.maxlen, p), *e.items(v, p)),
    types.MappingProxyType: lambda e, v, p: pack(b"mappingproxy", *e.pairs(v, p)),
    types.SimpleNamespace: lambda e, v, p: pack(b"namespace", *e.pairs(v.__dict__, p)),
    bytearray: lambda e, v, p: pack(b"bytearray", bytes(v)),
    slice: lambda e, v, p: pack(b"slice", *e.items((v.start, v.stop, v.step), p)),
    range: lambda e, v, p: pack(b"range", *e.items((v.start, v.stop, v.step), p)),
    types.FunctionType: lambda e, v, p: e.function(v, p),
    types.MethodType: _method,
    types.BuiltinFunctionType: _builtin,
    types.WrapperDescriptorType: _descriptor,
    types.MethodDescriptorType: _descriptor,
    types.ClassMethodDescriptorType: _descriptor,
    types.CodeType: lambda e, v, p: code.code_token(v),
    types.ModuleType: lambda e, v, p: e._module(v, ((),), p),  # pyright: ignore[reportPrivateUsage]
    functools.partial: _partial,
    type(functools.lru_cache(lambda: None)): _memo,
}
