"""`prejit.jit`: check its arguments as `jax.jit` does, and wrap the function."""

import functools
import warnings
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ParamSpec, TypeVar, overload

from prejit._jax import tracing
from prejit.component.decorator import check_word, names_of, numbers_of
from prejit.config import Link
from prejit.errors import warn_user
from prejit.program.dispatch import JitOptions, ProgramCore
from prejit.program.wrapper import Program

__all__ = ["jit"]

P = ParamSpec("P")
R = TypeVar("R")

_LINKS = ("auto", "inline", "outline", "separate")
_UNSET: Any = object()


@overload
def jit(
    fun: Callable[P, R],
    /,
    *,
    in_shardings: Any = ...,
    out_shardings: Any = ...,
    static_argnums: int | Sequence[int] | None = ...,
    static_argnames: str | Iterable[str] | None = ...,
    donate_argnums: int | Sequence[int] | None = ...,
    donate_argnames: str | Iterable[str] | None = ...,
    keep_unused: bool = ...,
    device: Any = ...,
    backend: str | None = ...,
    inline: Any = ...,
    compiler_options: dict[str, Any] | None = ...,
    link: Link = ...,
) -> Program[P, R]: ...
@overload
def jit(
    *,
    in_shardings: Any = ...,
    out_shardings: Any = ...,
    static_argnums: int | Sequence[int] | None = ...,
    static_argnames: str | Iterable[str] | None = ...,
    donate_argnums: int | Sequence[int] | None = ...,
    donate_argnames: str | Iterable[str] | None = ...,
    keep_unused: bool = ...,
    device: Any = ...,
    backend: str | None = ...,
    inline: Any = ...,
    compiler_options: dict[str, Any] | None = ...,
    link: Link = ...,
) -> Callable[[Callable[P, R]], Program[P, R]]: ...
def jit(
    fun: Any = _UNSET,
    /,
    *,
    in_shardings: Any = _UNSET,
    out_shardings: Any = _UNSET,
    static_argnums: int | Sequence[int] | None = None,
    static_argnames: str | Iterable[str] | None = None,
    donate_argnums: int | Sequence[int] | None = None,
    donate_argnames: str | Iterable[str] | None = None,
    keep_unused: bool = False,
    device: Any = None,
    backend: str | None = None,
    inline: Any = False,
    compiler_options: dict[str, Any] | None = None,
    link: Link = "auto",
) -> Any:
    """Compile a program in parts that are kept and linked; a drop-in for the outermost `jax.jit`.

    The parts that repeat, calls of components and of inner `jax.jit` functions, are compiled once each, in parallel,
    and kept in the store; the program then calls them one after another. An edit to one part compiles that part, and
    two programs share what they have in common. Where that does not pay or can't be done, the program is one module,
    kept in the store as a whole. Under `jax.jit`, `jax.vmap`, `jax.grad` and every other transformation it is what
    `jax.jit` of the function would be.

    Args:
        fun: The function; decorated directly or through `jit(...)`.
        in_shardings: As for `jax.jit`.
        out_shardings: As for `jax.jit`.
        static_argnums: As for `jax.jit`; values are compared by type and exact bits.
        static_argnames: The same by name.
        donate_argnums: As for `jax.jit`.
        donate_argnames: The same by name.
        keep_unused: As for `jax.jit`.
        device: As for `jax.jit`.
        backend: As for `jax.jit`.
        inline: As for `jax.jit`; of meaning only inside another program.
        compiler_options: As for `jax.jit`; they hold for every part.
        link: `"auto"` links where that is estimated to pay, `"separate"` wherever it can be done, `"inline"` and
            `"outline"` make one module, the latter with the repeated parts kept apart for XLA.

    Returns:
        A `Program` with the signature of `fun`.

    Raises:
        TypeError, ValueError: What `jax.jit` raises for these arguments.
        ConfigError: `link` is not one of its words.

    **Keyed on**: the traced program and its parts, types and placement of the arguments, donation, static values, JAX's
    and XLA's configuration, versions and the kind of device.
    **Threads**: any; the first calls of several threads compile once.
    **Effects**: those of the program, in their order.
    **Donates**: what `donate_argnums` and `donate_argnames` say, and values inside that are needed no more.

    Example:
        >>> import jax, jax.numpy as jnp, prejit
        >>> layer = prejit.component(lambda w, x: jnp.tanh(x @ w))
        >>> @prejit.jit
        ... def model(weights, x):
        ...     for w in weights:
        ...         x = layer(w, x)
        ...     return x
        >>> model([jnp.eye(2)] * 3, jnp.ones(2)).shape
        (2,)
    """
    settings: dict[str, Any] = {
        "in_shardings": in_shardings, "out_shardings": out_shardings, "static_argnums": static_argnums,
        "static_argnames": static_argnames, "donate_argnums": donate_argnums, "donate_argnames": donate_argnames,
        "keep_unused": keep_unused, "device": device, "backend": backend, "inline": inline,
        "compiler_options": compiler_options,
    }  # fmt: skip
    if fun is _UNSET:

        def decorate(function: Callable[..., Any]) -> Any:
            given: dict[str, Any] = {name: value for name, value in settings.items() if value is not _UNSET}
            return jit(function, **given, link=link)

        return decorate
    check_word("link", link, _LINKS)
    # `jax.jit` tells an argument that was not given from its default; what is at its default is not given.
    defaults = {"keep_unused": False, "inline": False}
    given = {
        name: value
        for name, value in settings.items()
        if value is not _UNSET
        and not (value is None and name not in ("in_shardings", "out_shardings"))
        and not (name in defaults and value is defaults[name])
    }
    fun = _checked(fun)
    plain = _plain(fun, given)  # JAX's own checks, in JAX's words
    options = JitOptions(
        static_argnums=numbers_of(static_argnums),
        static_argnames=names_of(static_argnames),
        donate_argnums=numbers_of(donate_argnums),
        donate_argnames=names_of(donate_argnames),
        link=link,
        key=None,
        version=None,
        deps=(),
        env=(),
        given=given,
    )
    return Program(fun, ProgramCore(fun, plain, options, None))


def _plain(fun: Any, given: dict[str, Any]) -> Any:
    if not {"device", "backend"} & given.keys():
        return tracing.plain_jit(fun, **given)
    caught: list[warnings.WarningMessage] = []
    try:
        with warnings.catch_warnings(record=True) as caught:  # JAX's warning of them would point at this line
            warnings.simplefilter("always")
            return tracing.plain_jit(fun, **given)
    finally:
        for one in caught:
            warn_user(str(one.message), one.category)


def _checked(fun: Any) -> Any:
    """Return the function, or one that raises when called in place of one that JAX's weak caches can't hold.

    JAX raises the same on a first call, and crashes the process on a second one of some (`np.sin`, 2026-11).
    """
    if not callable(fun) or type(fun) in (staticmethod, classmethod):
        return fun  # JAX says so
    try:
        weakref.ref(fun)
    except TypeError as error:
        message = str(error)

        @functools.wraps(fun, updated=())
        def refuse(*args: Any, **kwargs: Any) -> Any:
            raise TypeError(message)

        return refuse
    return fun
