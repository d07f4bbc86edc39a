"""The identity of a traced program: a digest of its jaxpr without names, locations or anything of this process."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from prejit._jax import jaxprs
from prejit.errors import KeyingError
from prejit.key.encoding import class_of, pack, scalar_token, text_token
from prejit.key.values import UnknownTypeError, ValueEncoder, constant_token, type_name, type_token


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

    Two traces of one function give one digest whatever the process, `PYTHONHASHSEED`, file and line. Variables are
    numbered in order of appearance; closed-over constants enter by content.

    Args:
        closed_jaxpr: What `jax.make_jaxpr(f)(*specs)` or `jax.jit(f).trace(*specs).jaxpr` gives.
        hoisted_consts: Positions in `closed_jaxpr.consts` that the caller passes as arguments: only their aval matters.

    Returns:
        The identity of the program.

    Raises:
        KeyingError: Something in it has no content that can be digested: a host callback, a primitive or a lowering
            rule that is not JAX's own, a Python function in an equation's params. The message names the equation. The
            lowered module can be digested instead.

    Example:
        >>> import jax
        >>> one = program_digest(jax.make_jaxpr(lambda x: x + 1)(2.0))
        >>> one.digest == program_digest(jax.make_jaxpr(lambda y: y + 1)(3.0)).digest
        True
    """
    walker = _Walker()
    token = _token_of(walker, closed_jaxpr, hoisted_consts)
    return ProgramIdentity(
        digest=hashlib.sha256(token).hexdigest(),
        nr_eqns=walker.nr_eqns,
        primitives=tuple(sorted({primitive.name for primitive in walker.primitives})),
        custom_calls=tuple(sorted(walker.custom_calls)),
    )


class ProgramDigester:
    """Digest many programs that share jaxprs, each of which is gone through once.

    What it has seen stays alive with it. **Threads**: one at a time.
    """

    __slots__ = ("_walker",)

    def __init__(self) -> None:
        self._walker = _Walker()

    def digest(self, closed_jaxpr: Any) -> str:
        """Return the digest that `program_digest` would; raises what it does."""
        return hashlib.sha256(_token_of(self._walker, closed_jaxpr, ())).hexdigest()


def _token_of(walker: _Walker, closed_jaxpr: Any, hoisted_consts: Collection[int]) -> bytes:
    try:
        return walker.closed_jaxpr(closed_jaxpr, frozenset(hoisted_consts))
    except UnknownTypeError as error:
        raise KeyingError(
            f"digesting the program: expected effects and contexts that JAX defines, got {error.args[0]}",
            reason=f"an effect or context of type {error.args[0]}",
        ) from None
    except RecursionError as error:
        raise KeyingError(
            "digesting the program: expected fewer levels of nested jaxprs, got more than Python's stack holds",
            reason="nested too deeply",
        ) from error


class _Numbers(dict[Any, bytes]):
    """Variables of one jaxpr, numbered in order of appearance."""

    def __missing__(self, var: Any) -> bytes:
        raise KeyingError(
            f"digesting the program: expected a jaxpr without free variables, got one of {var.aval.str_short()}",
            reason="a jaxpr with free variables",
        )


class _Walker(ValueEncoder):
    """One call of `program_digest`. Memos go by identity and keep what they saw alive, so an identity is not reused."""

    __slots__ = ("_avals", "_contexts", "_jaxprs", "custom_calls", "nr_eqns", "primitives")

    def __init__(self) -> None:
        super().__init__()
        self.nr_eqns = 0
        self.primitives: dict[Any, bytes] = {}
        self.custom_calls: set[str] = set()
        self._avals: dict[int, tuple[Any, bytes]] = {}
        self._contexts: dict[int, tuple[Any, bytes]] = {}
        self._jaxprs: dict[int, tuple[Any, bytes]] = {}

    def jaxpr(self, jaxpr: Any) -> bytes:
        return self.closed_jaxpr(jaxpr)

    def closed_jaxpr(self, jaxpr: Any, hoisted: Collection[int] = ()) -> bytes:
        body, consts = jaxprs.open_jaxpr(jaxpr)
        values = [b"H" if i in hoisted else self.once(constant_token, const) for i, const in enumerate(consts)]
        return pack(b"closed", self.open_jaxpr(body), *values)

    def open_jaxpr(self, jaxpr: Any) -> bytes:
        seen = self._jaxprs.get(id(jaxpr))
        if seen is None:
            token = b"J" + hashlib.sha256(self._walk(jaxpr)).digest()
            seen = self._jaxprs[id(jaxpr)] = (jaxpr, token)
        return seen[1]

    def _walk(self, jaxpr: Any) -> bytes:
        numbers = _Numbers()
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
        token = pack(b"literal", scalar_token(value) or self.once(constant_token, value), self.aval(atom.aval))
        return b"L%d:%b" % (len(token), token)

    def aval(self, aval: Any) -> bytes:
        seen = self._avals.get(id(aval))
        if seen is None:
            try:
                token = self.value(aval)
            except UnknownTypeError as error:
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
                raise UnknownTypeError(type_name(effect))
            parts = [
                pack(b"field", text_token(name), numbers[part] if jaxprs.is_var(part) else self.value(part))
                for name, part in fields
            ]
            tokens.append(pack(b"effect", type_token(class_of(effect)), *parts))
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
            except (UnknownTypeError, KeyingError) as error:
                raise _unkeyable_param(name, param, error) from error
            parts.append(text_token(param))
            parts.append(token)
        return pack(b"params", *parts)


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
    message = f"digesting the program: expected plain data, got {error.args[0]} at {path}"
    return KeyingError(message, reason=f"a param of type {error.args[0]}", path=path)
