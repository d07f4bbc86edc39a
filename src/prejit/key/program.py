"""The identity of a traced program: a digest of its jaxpr without names, locations or anything of this process."""

from __future__ import annotations

import enum
import functools
import hashlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.sharding import AbstractMesh, Mesh, PartitionSpec, Sharding

from prejit._jax import jaxprs
from prejit.errors import KeyingError
from prejit.key import placement
from prejit.key.encoding import array_token, dtype_token, pack, scalar_token, text_token


@dataclass(frozen=True, slots=True)
class ProgramIdentity:
    """What a traced program is, and a little about what is in it.

    Attributes:
        digest: SHA-256, in hex, of the canonical program.
        nr_eqns: Equations in it, nested ones included; a jaxpr that is called many times counts once.
        primitives: Names of its primitives, sorted.
        custom_calls: Names of the foreign functions it calls through `jax.ffi`, sorted.
    """

    digest: str
    nr_eqns: int
    primitives: tuple[str, ...]
    custom_calls: tuple[str, ...]


def program_digest(closed_jaxpr: Any, *, hoisted_consts: Collection[int] = ()) -> ProgramIdentity:
    """Digest a closed jaxpr so that equal programs, and only they, have equal digests.

    Two traces of one function give one digest whatever the process, `PYTHONHASHSEED`, file and line. Variables are numbered
    in order of appearance; closed-over constants enter by content.

    Args:
        closed_jaxpr: What `jax.make_jaxpr(f)(*specs)` or `jax.jit(f).trace(*specs).jaxpr` gives.
        hoisted_consts: Positions in `closed_jaxpr.consts` that the caller passes as arguments, so only their aval matters.

    Returns:
        The identity of the program.

    Raises:
        KeyingError: Something in it has no content that can be digested: a host callback, a primitive or a lowering rule
            that is not JAX's own, a Python function in an equation's params. The message names the equation. The lowered
            module can be digested instead.

    Example:
        >>> import jax
        >>> one = program_digest(jax.make_jaxpr(lambda x: x + 1)(2.0))
        >>> one.digest == program_digest(jax.make_jaxpr(lambda y: y + 1)(3.0)).digest
        True
    """
    walker = _Walker()
    try:
        token = walker.closed_jaxpr(closed_jaxpr, frozenset(hoisted_consts))
    except RecursionError as error:
        raise KeyingError(
            "digesting the program: expected fewer levels of nested jaxprs, got more than Python's stack holds",
            reason="nested too deeply",
        ) from error
    return ProgramIdentity(
        digest=hashlib.sha256(token).hexdigest(),
        nr_eqns=walker.nr_eqns,
        primitives=tuple(sorted({primitive.name for primitive in walker.primitives})),
        custom_calls=tuple(sorted(walker.custom_calls)),
    )


def value_token(value: Any) -> bytes:
    """Encode one value of the kinds that equations carry: plain data, avals, meshes, shardings, arrays.

    Raises:
        KeyingError: It is of a type that has no canonical encoding; the reason names the type.
    """
    try:
        return _Walker().value(value)
    except _UnknownType as error:
        raise KeyingError(
            f"building the key: expected plain data, got {error.args[0]}", reason=f"a value of type {error.args[0]}"
        ) from None


class _UnknownType(Exception):
    """A param of a type that has no canonical encoding; the equation that holds it turns this into a KeyingError."""


class _Walker:
    """One call of `program_digest`. Memos go by identity and keep what they saw alive, so an identity is not reused."""

    __slots__ = ("_avals", "_contexts", "_jaxprs", "_objects", "custom_calls", "nr_eqns", "primitives")

    def __init__(self) -> None:
        self.nr_eqns = 0
        self.primitives: dict[Any, bytes] = {}
        self.custom_calls: set[str] = set()
        self._avals: dict[int, tuple[Any, bytes]] = {}
        self._contexts: dict[int, tuple[Any, bytes]] = {}
        self._jaxprs: dict[int, tuple[Any, bytes]] = {}
        self._objects: dict[int, tuple[Any, bytes]] = {}

    def closed_jaxpr(self, jaxpr: Any, hoisted: Collection[int] = ()) -> bytes:
        body, consts = jaxprs.open_jaxpr(jaxpr)
        values = [b"H" if i in hoisted else self.constant(const) for i, const in enumerate(consts)]
        return pack(b"closed", self.open_jaxpr(body), *values)

    def open_jaxpr(self, jaxpr: Any) -> bytes:
        seen = self._jaxprs.get(id(jaxpr))
        if seen is None:
            token = b"J" + hashlib.sha256(self._walk(jaxpr)).digest()
            seen = self._jaxprs[id(jaxpr)] = (jaxpr, token)
        return seen[1]

    def _walk(self, jaxpr: Any) -> bytes:
        numbers: dict[Any, bytes] = {}
        parts: list[bytes] = []
        for group in (jaxpr.constvars, jaxpr.invars):
            for var in group:
                numbers[var] = b"v%d;" % len(numbers)
            parts.append(pack(b"vars", *[self.aval(var.aval) for var in group]))
        literal = jaxprs.is_literal
        for eqn in jaxpr.eqns:
            reads = [self.literal(atom) if literal(atom) else numbers[atom] for atom in eqn.invars]
            params = self.params(eqn)
            writes = [self.aval(var.aval) for var in eqn.outvars]
            ctx = self.context(eqn.ctx)
            effects = self.effects(eqn.effects, numbers) if eqn.effects else b""
            parts.append(pack(b"eqn", self.primitives[eqn.primitive], b"".join(reads), params, ctx, effects, *writes))
            for var in eqn.outvars:
                numbers[var] = b"v%d;" % len(numbers)
        self.nr_eqns += len(jaxpr.eqns)
        outs = [self.literal(atom) if literal(atom) else numbers[atom] for atom in jaxpr.outvars]
        parts.append(pack(b"outs", b"".join(outs), self.effects(jaxpr.effects, numbers) if jaxpr.effects else b""))
        return pack(b"jaxpr", *parts)

    def literal(self, atom: Any) -> bytes:
        value = jaxprs.plain_literal(atom.val)
        token = pack(b"literal", scalar_token(value) or self.constant(value), self.aval(atom.aval))
        return b"L%d:%b" % (len(token), token)

    def constant(self, value: Any) -> bytes:
        seen = self._objects.get(id(value))
        if seen is None:
            seen = self._objects[id(value)] = (value, constant_token(value))
        return seen[1]

    def aval(self, aval: Any) -> bytes:
        seen = self._avals.get(id(aval))
        if seen is None:
            try:
                token = self.value(aval)
            except _UnknownType as error:
                raise KeyingError(
                    f"digesting the program: expected variables of a type that JAX defines, got {error.args[0]}",
                    reason=f"a variable whose type holds {error.args[0]}",
                ) from None
            seen = self._avals[id(aval)] = (aval, token)
        return seen[1]

    def context(self, ctx: Any) -> bytes:
        seen = self._contexts.get(id(ctx))
        if seen is None:
            fields = [pack(b"field", text_token(name), self.value(part)) for name, part in jaxprs.context_fields(ctx)]
            # Many equations share a context, so its short digest stands for it.
            seen = self._contexts[id(ctx)] = (ctx, hashlib.sha256(pack(b"ctx", *fields)).digest())
        return seen[1]

    def effects(self, effects: Collection[Any], numbers: Mapping[Any, bytes]) -> bytes:
        tokens: list[bytes] = []
        for effect in effects:
            fields = jaxprs.fields_of(effect)
            if fields is None:
                raise _UnknownType(_type_name(effect))
            parts = [
                pack(b"field", text_token(name), numbers[part] if jaxprs.is_var(part) else self.value(part))
                for name, part in fields
            ]
            tokens.append(pack(b"effect", _type_token(type(effect)), *parts))
        return pack(b"effects", *sorted(tokens))

    def params(self, eqn: Any) -> bytes:
        primitive = eqn.primitive
        if primitive not in self.primitives:
            _check_primitive(primitive)
            self.primitives[primitive] = text_token(primitive.name)
        name = primitive.name
        if name == "ffi_call":
            self.custom_calls.add(str(eqn.params.get("target_name", "")))
        parts: list[bytes] = []
        params = eqn.params
        for param in sorted(params):
            if (name, param) in jaxprs.IGNORED_PARAMS:
                continue
            try:
                token = self.value(params[param])
            except (_UnknownType, KeyingError) as error:
                raise _unkeyable_param(name, param, error) from error
            parts.append(text_token(param))
            parts.append(token)
        return pack(b"params", *parts)

    def value(self, value: Any) -> bytes:
        """Encode what equations carry: plain data, and every type of JAX's that occurs in params, avals and contexts."""
        token = scalar_token(value)
        if token is not None:
            return token
        kind = type(value)
        if kind is tuple or kind is list:
            return pack(b"tuple" if kind is tuple else b"list", *[self.value(part) for part in value])
        encode = _ENCODERS.get(kind)
        if encode is None:
            encode = _encoder_for(kind, value)
        return encode(self, value)


def _check_primitive(primitive: Any) -> None:
    if primitive.name in jaxprs.HOST_CALLBACKS:
        raise KeyingError(
            f"digesting the program: expected no host callback, got one at {primitive.name!r}",
            reason=f"host callback ({primitive.name})",
            path=primitive.name,
        )
    problem = jaxprs.foreign_primitive(primitive)
    if problem:
        raise KeyingError(
            f"digesting the program: expected equations that JAX defines, got {primitive.name!r}: {problem}",
            reason=f"{primitive.name}: {problem}",
            path=primitive.name,
        )


def _unkeyable_param(primitive: str, param: str, error: Exception) -> KeyingError:
    path = f"{primitive}[{param}]"
    if isinstance(error, KeyingError):
        # An equation further in already said where; keep its place and lead there.
        inner = f"{path}.{error.path}" if error.path else path
        return KeyingError(f"{error.args[0]} in {path}", reason=error.reason, path=inner)
    reason = f"a param of type {error.args[0]}"
    return KeyingError(f"digesting the program: expected plain data, got {error.args[0]} at {path}", reason=reason, path=path)


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
            return array_token(np.asarray(value))
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
    if jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key):
        impl = key_impl_token(jaxprs.key_impl(value))
        return pack(b"keys", impl, constant_token(jax.random.key_data(value)))
    try:
        content = np.asarray(value)
    except RuntimeError as error:
        raise KeyingError(
            "building the key: expected an array whose content this process can read, got one on other hosts or deleted",
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
def _type_token(kind: type) -> bytes:
    return text_token(f"{kind.__module__}.{kind.__qualname__}")


def _type_name(value: object) -> str:
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


_Encoder = Callable[[_Walker, Any], bytes]


def _numpy(walker: _Walker, value: Any) -> bytes:
    return walker.constant(value) if isinstance(value, np.ndarray) else constant_token(value)


def _dtype(walker: _Walker, value: Any) -> bytes:
    return dtype_token(value)


def _enum(walker: _Walker, value: enum.Enum) -> bytes:
    return pack(b"enum", _type_token(type(value)), text_token(value.name))


def _jaxpr(walker: _Walker, value: Any) -> bytes:
    return walker.closed_jaxpr(value)


def _array(walker: _Walker, value: Any) -> bytes:
    return walker.constant(value)


def _namedtuple(walker: _Walker, value: tuple[Any, ...]) -> bytes:
    return pack(b"namedtuple", _type_token(type(value)), *[walker.value(part) for part in value])


def _set(walker: _Walker, value: Collection[Any]) -> bytes:
    return pack(b"set", *sorted(walker.value(part) for part in value))


def _dict(walker: _Walker, value: Mapping[Any, Any]) -> bytes:
    items = sorted((walker.value(key), walker.value(part)) for key, part in value.items())
    return pack(b"dict", *[token for item in items for token in item])


def _impl(walker: _Walker, value: Any) -> bytes:
    return key_impl_token(value)


def _placed(token: Callable[[Any], bytes]) -> _Encoder:
    def encode(walker: _Walker, value: Any) -> bytes:
        seen = walker._objects.get(id(value))  # pyright: ignore[reportPrivateUsage]
        if seen is None:
            seen = walker._objects[id(value)] = (value, token(value))  # pyright: ignore[reportPrivateUsage]
        return seen[1]

    return encode


def _fields(walker: _Walker, value: Any) -> bytes:
    fields = jaxprs.fields_of(value)
    if fields is None:
        raise _UnknownType(_type_name(value))
    parts = [pack(b"field", text_token(name), walker.value(part)) for name, part in fields]
    return pack(b"value", _type_token(type(value)), *parts)


def _class(walker: _Walker, value: type) -> bytes:
    if issubclass(value, np.generic):
        return pack(b"scalartype", dtype_token(np.dtype(value)))
    if jaxprs.is_from_jax(value) or value.__module__ == "builtins":
        return pack(b"type", _type_token(value))
    raise _UnknownType(f"the class {value.__qualname__}")


def _treedef(walker: _Walker, value: Any) -> bytes:
    from prejit.key.fingerprint import treedef_token  # It encodes arrays with this module.

    return treedef_token(value)


_RULES: tuple[tuple[Callable[[Any], bool], _Encoder], ...] = (
    (jaxprs.is_jaxpr, _jaxpr),
    (lambda value: isinstance(value, enum.Enum), _enum),
    (lambda value: isinstance(value, np.dtype), _dtype),
    (jaxprs.is_extended_dtype, lambda walker, value: pack(b"extended", *_extended(value))),
    (lambda value: isinstance(value, np.ndarray | np.generic), _numpy),
    (lambda value: isinstance(value, jax.Array) or jaxprs.plain_literal(value) is not value, _array),
    (lambda value: isinstance(value, jaxprs.KeyImpl), _impl),
    (lambda value: isinstance(value, tuple) and hasattr(value, "_fields"), _namedtuple),
    (lambda value: isinstance(value, set | frozenset), _set),
    (lambda value: isinstance(value, Mapping), _dict),
    (lambda value: isinstance(value, Mesh | AbstractMesh), _placed(placement.mesh_token)),
    (lambda value: isinstance(value, PartitionSpec), _placed(placement.spec_token)),
    (lambda value: isinstance(value, Sharding), _placed(placement.sharding_token)),
    (lambda value: isinstance(value, jax.Device), _placed(placement.device_token)),
    (lambda value: isinstance(value, jax.tree_util.PyTreeDef), _treedef),
    (lambda value: isinstance(value, type), _class),
)

_ENCODERS: dict[type, _Encoder] = {}
"""The encoder per exact type, filled as types are met; only for types that JAX, NumPy or Python define, so it is bounded."""


def _extended(dtype: Any) -> list[bytes]:
    impl = jaxprs.dtype_impl(dtype)
    return [text_token(dtype.name)] if impl is None else [text_token(dtype.name), key_impl_token(impl)]


def _encoder_for(kind: type, value: Any) -> _Encoder:
    encode = next((rule for applies, rule in _RULES if applies(value)), _fields)
    if kind.__module__.partition(".")[0] in ("jax", "jaxlib", "numpy", "builtins", "ml_dtypes"):
        _ENCODERS[kind] = encode
    return encode
