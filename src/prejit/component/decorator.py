"""The decorator: check its arguments, find the component that a key already names, wrap the function."""

import operator
import os
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence, Sized
from typing import Any, Literal, ParamSpec, TypeVar, cast, overload

from prejit._jax import tracing
from prejit.component.core import Core, Options, as_hashable
from prejit.component.wrapper import Component
from prejit.config import Link
from prejit.errors import ConfigError, mismatch

__all__ = ["check_word", "component", "names_of", "numbers_of"]

P = ParamSpec("P")
R = TypeVar("R")
Direct = Literal["off", "auto", "on"]

_LINKS = ("auto", "inline", "outline", "separate")
_DIRECT = ("off", "auto", "on")

_named: "weakref.WeakValueDictionary[tuple[str, str], Core]" = weakref.WeakValueDictionary()
_named_lock = threading.Lock()


def _renew_lock() -> None:
    global _named_lock
    _named_lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)


@overload
def component(fun: Callable[P, R], /) -> Component[P, R]: ...
@overload
def component(
    fun: Callable[P, R],
    /,
    *,
    key: str | None = None,
    version: str | int | None = None,
    static_argnums: int | Sequence[int] | None = None,
    static_argnames: str | Iterable[str] | None = None,
    donate_argnums: int | Sequence[int] | None = None,
    donate_argnames: str | Iterable[str] | None = None,
    deps: Sequence[Any] = (),
    env: str | Sequence[str] = (),
    link: Link = "auto",
    direct: Direct = "auto",
    name: str | None = None,
) -> Component[P, R]: ...
@overload
def component(
    *,
    key: str | None = None,
    version: str | int | None = None,
    static_argnums: int | Sequence[int] | None = None,
    static_argnames: str | Iterable[str] | None = None,
    donate_argnums: int | Sequence[int] | None = None,
    donate_argnames: str | Iterable[str] | None = None,
    deps: Sequence[Any] = (),
    env: str | Sequence[str] = (),
    link: Link = "auto",
    direct: Direct = "auto",
    name: str | None = None,
) -> Callable[[Callable[P, R]], Component[P, R]]: ...
def component(
    fun: Callable[..., Any] | None = None,
    /,
    *,
    key: str | None = None,
    version: str | int | None = None,
    static_argnums: int | Sequence[int] | None = None,
    static_argnames: str | Iterable[str] | None = None,
    donate_argnums: int | Sequence[int] | None = None,
    donate_argnames: str | Iterable[str] | None = None,
    deps: Sequence[Any] = (),
    env: str | Sequence[str] = (),
    link: Link = "auto",
    direct: Direct = "auto",
    name: str | None = None,
) -> Any:
    """Make a function a component: compiled once for each kind of call, kept in the store, loaded ever after.

    It is a drop-in for an inner `jax.jit`: called eagerly it runs its stored executable; under `jax.jit`, `jax.vmap`,
    `jax.grad` and every other transformation it is a call of a jitted function. A missing, damaged or unusable store
    costs a compile, never a result.

    Args:
        fun: The function; decorated directly or through `component(...)`.
        key: An identity that you promise: two functions under one key are one component, and the second body is not
            run. An eager call then needs no trace where the store has its executable; inside another trace, this
            process's body is traced. Without it the identity is the traced program itself.
        version: Part of that identity; change it when the body changes.
        static_argnums: Positions of arguments that are hashable Python values, as for `jax.jit`. They are compared by
            type and exact bits: `0.0` and `-0.0`, `1` and `True` are different values.
        static_argnames: The same by name.
        donate_argnums: Positions of arguments whose buffers may be reused, as for `jax.jit`.
        donate_argnames: The same by name.
        deps: Values, functions or modules that the result depends on besides what is traced; by content.
        env: Names of environment variables that the result depends on; by value.
        link: How the call is placed in a surrounding program: `"inline"` lets XLA inline it, `"outline"` keeps it
            apart, so XLA compiles its code once, `"separate"` asks for an executable of its own, which inside
            `jax.jit` is `"outline"`. `"auto"` takes the setting `link`, and decides by the body where that is
            `"auto"` too.
        direct: Whether a call may be answered without tracing. Accepted; tracing always runs in this version unless
            `key` is given.
        name: Name in listings and logs. Default: the function's.

    Returns:
        A `Component` with the signature of `fun`.

    Raises:
        TypeError: `fun` is not a function that `jax.jit` accepts; the error is JAX's.
        ConfigError: An argument of prejit's own is of the wrong kind, `link` or `direct` is not one of its words, or
            `version` is given without `key`.
        KeyingError: Something in `deps` has no content to compare.

    **Keyed on**: identity, types, weak types and placement of the arguments, donation, static values, JAX's and XLA's
    configuration, versions and the kind of device.
    **Threads**: any; the first calls of several threads compile once.
    **Donates**: what `donate_argnums` and `donate_argnames` say.

    Example:
        >>> import jax.numpy as jnp, prejit
        >>> @prejit.component
        ... def scale(x, factor=2.0):
        ...     return x * factor
        >>> float(scale(jnp.float32(3)))
        6.0
    """
    if fun is None:

        def decorate(function: Callable[..., Any]) -> Any:
            return component(
                function, key=key, version=version, static_argnums=static_argnums, static_argnames=static_argnames,
                donate_argnums=donate_argnums, donate_argnames=donate_argnames, deps=deps, env=env, link=link,
                direct=direct, name=name,
            )  # fmt: skip

        return decorate
    _check_texts(key, version, name)
    check_word("link", link, _LINKS, decorating="a component")
    check_word("direct", direct, _DIRECT, decorating="a component")
    if version is not None and key is None:
        raise ConfigError(
            mismatch("decorating a component with version=", expected="key= beside it", got="no key"),
            name="version",
            expected="key= beside it",
            got="no key",
            hint="give the component a key, or leave version out: without a key the program itself is the identity",
        )
    given: dict[str, Any] = {
        "static_argnums": static_argnums,
        "static_argnames": static_argnames,
        "donate_argnums": donate_argnums,
        "donate_argnames": donate_argnames,
    }
    # JAX's own checks of the function and of the numbers and names, in JAX's words.
    plain = tracing.plain_jit(
        as_hashable(fun), **{name: value for name, value in given.items() if not _is_empty(value)}
    )
    options = Options(
        static_argnums=numbers_of(static_argnums),
        static_argnames=names_of(static_argnames),
        donate_argnums=numbers_of(donate_argnums),
        donate_argnames=names_of(donate_argnames),
        link=link,
        key=key,
        version=None if version is None else str(version),
        deps=tuple([_fingerprint(dep, f"deps[{n}]") for n, dep in enumerate(_sequence("deps", deps))]),
        env=_texts("env", (env,) if isinstance(env, str) else _sequence("env", env)),
    )
    core = Core(fun, plain, options, name) if key is None else _named_core(fun, plain, options, name)
    return Component(fun, core)


def _wrong(what: str, expected: str, value: Any, *, hint: str = "", decorating: str = "a component") -> ConfigError:
    got = repr(value)[:80]
    message = mismatch(f"decorating {decorating} with {what}=", expected=expected, got=got)
    return ConfigError(message, name=what, expected=expected, got=got, hint=hint)


def check_word(what: str, value: Any, words: Sequence[str], *, decorating: str = "a function") -> None:
    """Raise `ConfigError` for an argument that is not one of its words.

    Args:
        what: Name of the argument.
        value: What was given.
        words: What it may be.
        decorating: What is being made, for the message.
    """
    if value not in words:
        *some, last = [repr(word) for word in words]
        expected = "one of " + ", ".join([*some, last])
        hint = f"write {what}= with {', '.join(some)} or {last}, or leave it out"
        raise _wrong(what, expected, value, hint=hint, decorating=decorating)


def _check_texts(key: Any, version: Any, name: Any) -> None:
    if key is not None and not (isinstance(key, str) and key):
        raise _wrong("key", "a text that is not empty", key)
    if version is not None and (isinstance(version, bool) or not isinstance(version, str | int)):
        raise _wrong("version", "a text or a whole number", version)
    if name is not None and not (isinstance(name, str) and name):
        raise _wrong("name", "a text that is not empty", name)


def _sequence(what: str, value: Any) -> tuple[Any, ...]:
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise _wrong(what, "a list or tuple", value)
    return tuple(cast("Iterable[Any]", value))


def _texts(what: str, values: tuple[Any, ...]) -> tuple[str, ...]:
    for value in values:
        if not (isinstance(value, str) and value):
            raise _wrong(what, "names of environment variables", value)
    return values


def _is_empty(value: Any) -> bool:
    return value is None or (isinstance(value, Sized) and not isinstance(value, str) and len(value) == 0)


def numbers_of(value: Any) -> tuple[int, ...]:
    """Return positions of arguments as a tuple."""
    if value is None:
        return ()
    several = cast("Iterable[Any]", value) if isinstance(value, Iterable) else (value,)
    return tuple([operator.index(n) for n in several])


def names_of(value: Any) -> tuple[str, ...]:
    """Return names of arguments as a tuple."""
    if value is None:
        return ()
    return (value,) if isinstance(value, str) else tuple(value)


def _fingerprint(value: Any, path: str) -> str:
    from prejit.key import fingerprint  # 20 ms that a component without deps and key does not pay

    return fingerprint(value, path)


def _named_core(fun: Callable[..., Any], plain: Any, options: Options, name: str | None) -> Core:
    """Return the component that already has this key, warning when its body is another one, or make it."""
    assert options.key is not None
    identity = (options.key, options.version or "")
    with _named_lock:
        first = _named.get(identity)
        if first is None:
            first = _named[identity] = Core(fun, plain, options, name)
            return first
    if first.options != options:
        raise ConfigError(
            mismatch(
                f"decorating a component with key={options.key!r}",
                expected="the arguments of the first component under this key",
                got="others",
            ),
            name="key",
            expected="the arguments of the first component under this key",
            got="others",
            hint="give one of the two another key or version",
        )
    if _is_different(first.function, fun):
        from prejit.stage.reuse import warn_of_reuse

        warn_of_reuse(options.key, f"the first one, {first.name},")
    return first


def _is_different(first: Callable[..., Any], second: Callable[..., Any]) -> bool:
    if first is second:
        return False
    from prejit.stage.reuse import content_of

    content = content_of(first)
    return content is None or content != content_of(second)
