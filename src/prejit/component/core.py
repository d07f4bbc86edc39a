"""What every call of one component shares: the function, its options, and one dispatch for each configuration."""

import dataclasses
import functools
import os
import threading
import weakref
from collections.abc import Callable
from typing import Any, cast

import jax
import numpy as np

from prejit._jax import tracing
from prejit._jax.dispatch import cache_size
from prejit._jax.environment import dispatch_token
from prejit.component.dispatch import Dispatch
from prejit.config import Link
from prejit.events import Tally
from prejit.signature.binding import Binder, unwrap
from prejit.signature.partition import box, has_static_leaves
from prejit.signature.statics import Static
from prejit.stage.listeners import on_clear

__all__ = ["DIRECTLY_TAKEN", "Core", "Options", "as_hashable"]

_MAX_DISPATCHES = 8  # Configurations outside JAX's own trace context; the oldest goes first.
DIRECTLY_TAKEN = frozenset({tracing.ArrayImpl, bool, int, float, complex, Static})


@dataclasses.dataclass(frozen=True, slots=True)
class Options:
    """Hold what the decorator was given, checked."""

    static_argnums: tuple[int, ...]
    static_argnames: tuple[str, ...]
    donate_argnums: tuple[int, ...]
    donate_argnames: tuple[str, ...]
    link: Link
    key: str | None
    version: str | None
    deps: tuple[Any, ...]
    env: tuple[str, ...]

    def donated(self) -> str:
        """Return what is donated, as text."""
        return " ".join(str(which) for which in (*self.donate_argnums, *self.donate_argnames))

    def is_respelling(self) -> bool:
        """Say whether positional and keyword spellings of a call may be made one."""
        return not (self.donate_argnums and self.donate_argnames)

    def is_inferring(self) -> bool:
        """Say whether of what is static by position and by name the one is derived from the other."""
        return True

    def jit_arguments(self) -> dict[str, Any]:
        """Return the options that `jax.jit` takes, without those that were not given: it tells the difference."""
        names = ("static_argnums", "static_argnames", "donate_argnums", "donate_argnames")
        return {name: getattr(self, name) for name in names if getattr(self, name)}


class Core:
    """Hold one component's function, options and dispatches.

    **Threads**: any.
    """

    def __init__(self, function: Callable[..., Any], plain: Any, options: Options, name: str | None) -> None:
        self.function = function
        self.options = options
        self.name = name or _display_name(function)
        self.binder = Binder(
            function,
            options.static_argnums,
            options.static_argnames,
            is_respelling=options.is_respelling(),
            is_inferring=options.is_inferring(),
        )
        self.tally = Tally()
        self.seen_keys: set[str] = set()
        self.is_binding = self.binder.has_statics or bool(options.env)  # calls that take the longer way
        self.plain = plain
        self._dispatches: dict[Any, Dispatch] = {}
        self._lock = threading.Lock()
        # The configuration seen last and its C++ dispatch: one comparison instead of a look-up in most calls.
        self.last: tuple[Any, Any, Dispatch | None] = (None, None, None)
        on_clear(self)
        _cores.add(self)

    def dispatch(self) -> Dispatch:
        """Return the dispatch for the configuration of this thread."""
        return self.entry(self.token())[2]

    def entry(self, token: Any) -> tuple[Any, Any, Dispatch]:
        """Return what `last` now holds for a configuration; the caller keeps it, and the dispatch, while it calls."""
        found = self._dispatches.get(token)
        if found is None:
            with self._lock:
                found = self._dispatches.get(token)
                if found is None:
                    if len(self._dispatches) >= _MAX_DISPATCHES:
                        self._dispatches.pop(next(iter(self._dispatches)))
                    found = self._dispatches[token] = self.make_dispatch()
        self.last = entry = (token, found.call, found)
        return entry

    def make_dispatch(self) -> Dispatch:
        """Make the dispatch for one configuration."""
        return Dispatch(self)

    def forget(self) -> None:
        """Drop everything that is in memory for this component; the next call looks it up again."""
        for dispatch in list(self._dispatches.values()):
            dispatch.forget()

    def start_afresh(self) -> None:
        """Drop the traces too, so that the next call sees the function as it is then."""
        self.forget()
        self._dispatches.clear()
        self.last = (None, None, None)

    def cache_size(self) -> int:
        """Return how many kinds of call the C++ dispatch knows."""
        return sum(cache_size(dispatch.call) for dispatch in list(self._dispatches.values()))

    def explicit_identity(self) -> tuple[tuple[str, str], ...]:
        """Return the ingredients that the user gave."""
        options = self.options
        named = [("key", options.key), ("version", options.version)]
        given = [(name, value) for name, value in named if value is not None]
        given += [(f"dep{n}", dep) for n, dep in enumerate(options.deps)]
        given += [(f"env:{name}", repr(os.environ.get(name))) for name in options.env]
        return tuple(given)

    def takes(self, value: Any) -> bool:
        """Say whether a call with this argument may go straight to the C++ dispatch.

        What may not: arrays of another byte order, on whose bytes a warm C++ dispatch would compute as they are; array
        subclasses such as masked arrays; and leaves that are not arrays.
        """
        if type(value) is np.ndarray:
            return value.dtype.isnative
        return all(
            type(leaf) in DIRECTLY_TAKEN
            or (type(leaf) is np.ndarray and leaf.dtype.isnative)
            or isinstance(leaf, np.generic | jax.Array)
            for leaf in jax.tree_util.tree_leaves(value)
        )

    def call_bound(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a call after giving it its one spelling."""
        bound = self.binder.bind(args, kwargs)
        if bound is None:
            return self.plain(*args, **kwargs)
        args, kwargs = bound
        for value in (*args, *kwargs.values()):
            if type(value) not in DIRECTLY_TAKEN and not self.takes(value):
                return self.call_unusual(args, kwargs)
        token = self.token()
        last = self.last
        if last[0] != token:
            last = self.entry(token)
        try:
            return self.answer(last[1], args, kwargs)
        except ValueError as error:
            if str(error).startswith(_INCOMPARABLE):
                raise_incomparable(error)
            raise

    def answer(self, call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return the result of a call, which the C++ dispatch gives."""
        return call(*args, **kwargs)

    def token(self) -> tuple[Any, ...]:
        """Return the configuration of this thread, with the environment variables that the user named."""
        env = self.options.env
        return (*dispatch_token(), *map(os.environ.get, env)) if env else dispatch_token()

    def normalize(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Put leaves that are not arrays into the tree's structure, where that is allowed."""
        leaves = jax.tree_util.tree_leaves((args, kwargs))
        return box((args, kwargs)) if has_static_leaves(leaves) else (args, kwargs)

    def call_unusual(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a call that the C++ dispatch must not see as it is."""
        leaves = jax.tree_util.tree_leaves((args, kwargs))
        if any(_is_unusual_array(leaf) for leaf in leaves):
            # A fresh jit has seen nothing yet, so it refuses or converts the array as JAX does on a first call.
            return self.dispatch().fresh_jit()(*args, **kwargs)
        if tracing.is_jit_disabled():
            args, kwargs = unwrap(args, kwargs)
            return self.function(*args, **kwargs)
        args, kwargs = self.normalize(args, kwargs)
        dispatch = self.dispatch()  # held while it is called
        return self.answer(dispatch.call, args, kwargs)


_INCOMPARABLE = "Exception raised while checking equality of metadata fields of pytree"


def raise_incomparable(error: ValueError) -> None:
    """Raise, in JAX's words, that the `==` of a static argument failed, if that is what happened."""
    cause = error.__cause__ or error.__context__
    if cause is not None:
        raise ValueError(
            f"static arguments should be comparable using __eq__. The error was:\n{type(cause).__name__}: {cause}"
        ) from cause


def _is_unusual_array(leaf: Any) -> bool:
    kind = cast("Any", type(leaf))
    return issubclass(kind, np.ndarray) and (kind is not np.ndarray or not leaf.dtype.isnative)


def _display_name(function: Callable[..., Any]) -> str:
    inner: Any = function
    while not hasattr(inner, "__name__") and type(inner) is functools.partial:
        inner = cast("Any", inner).func
    name = getattr(inner, "__name__", None)
    return name if isinstance(name, str) else type(inner).__name__


def _is_unweak(function: Any) -> bool:
    return isinstance(function, staticmethod | classmethod)


def as_hashable(function: Any) -> Any:
    """Return the function, or a stand-in where it can't be a key of JAX's weak caches."""
    if not callable(function) or _is_unweak(function):
        return function  # JAX says so
    try:
        hash(function)
        weakref.ref(function)  # one that takes none (np.sin, slots) crashes the process in its second `jax.jit`
    except TypeError:
        return functools.partial(_call, function)
    return function


def _call(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    return function(*args, **kwargs)


def _renew_locks() -> None:
    for core in list(_cores):
        core._lock = threading.Lock()  # pyright: ignore[reportPrivateUsage]


_cores: "weakref.WeakSet[Core]" = weakref.WeakSet()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_locks)
