"""One spelling for every call: positional as far as possible, static defaults filled in.

A dynamic argument that is left at its default stays left out: in `jax.jit` it is a constant of the program, on which
Python may branch, and it is one here. A static argument at its default is the same value as the default written out.

A call keeps its own spelling where another one could mean something else: when the function's signature is not how it
takes its arguments (a wrapper with `*args, **kwargs`), and when numbers and names are both given for what is static or
donated, so that an argument may be static by position and dynamic by name.
"""

import inspect
from collections.abc import Callable, Sequence
from typing import Any, cast

from prejit.signature.statics import Static

__all__ = ["Binder", "unwrap", "without_statics"]

_BY_POSITION = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class Binder:
    """Bind calls of one function.

    Args:
        function: The function.
        static_argnums: Positions of static arguments, as `jax.jit` takes them.
        static_argnames: Names of static arguments.
        is_respelling: False where the caller knows that a call must keep its spelling.
        is_inferring: False where numbers and names were both given, of which one may be empty.
    """

    __slots__ = ("_defaults", "_is_respelling", "_names", "_positional_only", "_static_names", "_static_numbers",
                 "has_statics")  # fmt: skip

    def __init__(self, function: Callable[..., Any], static_argnums: Sequence[int], static_argnames: Sequence[str],
                 *, is_respelling: bool = True, is_inferring: bool = True) -> None:  # fmt: skip
        numbers, names = set(static_argnums), set(static_argnames)
        # Reading a signature is much of what it costs to jit a function that was jitted before.
        declared = _parameters(function, follow_wrapped=True) if is_respelling or numbers or names else []
        self._is_respelling = (
            is_respelling
            and not (numbers and names)
            and all(n >= 0 for n in numbers)
            and _shape(declared) == _shape(_parameters(function, follow_wrapped=False))
        )
        # As JAX does: the one is derived from the other when just one is given.
        by_either = [(n, p) for n, p in enumerate(declared) if p.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]
        if not is_inferring:
            pass
        elif numbers and not names:
            names = {p.name for n, p in by_either if n in numbers}
        elif names and not numbers:
            numbers = {n for n, p in by_either if p.name in names}
        self._static_numbers = tuple(sorted(numbers))
        self._static_names = frozenset(names)
        self.has_statics = bool(numbers or names)
        by_position = [p for p in declared if p.kind in _BY_POSITION]
        self._names = [p.name for p in by_position]
        self._positional_only = sum(p.kind is inspect.Parameter.POSITIONAL_ONLY for p in declared)
        self._defaults = {
            p.name: p.default
            for n, p in enumerate(declared)
            if p.default is not p.empty and (p.name in names or (n in numbers and p.kind in _BY_POSITION))
        }

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        """Return the call in its one spelling, with static values wrapped.

        A call that does not fit the signature is returned as it is, so that the function itself raises.

        Returns:
            Arguments and keyword arguments; None when a static value is not hashable, which is for JAX to report.
        """
        if self._is_respelling and (kwargs or self._defaults):
            args, kwargs = self._respelled(args, kwargs)
        return self.wrap(args, kwargs)

    def wrap(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        """Return the call as it is spelled, with static values wrapped; None when one of them is not hashable."""
        if not self.has_statics:
            return args, kwargs
        try:
            return self._wrapped(args, kwargs)
        except TypeError:
            return None

    def _respelled(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        names = self._names
        spelled, rest = list(args), dict(kwargs)
        while (n := len(spelled)) < len(names):
            name = names[n]
            if n >= self._positional_only and name in rest:
                spelled.append(rest.pop(name))
            elif name in self._defaults and name not in rest:
                spelled.append(self._defaults[name])
            else:
                break
        for name, default in self._defaults.items():
            place = names.index(name) if name in names else len(names)
            if name not in rest and place >= len(spelled) and place >= self._positional_only:
                rest[name] = default
        return tuple(spelled), rest

    def _wrapped(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        spelled = list(args)
        size = len(spelled)
        for n in self._static_numbers:
            if -size <= n < size:
                spelled[n] = wrapped(spelled[n])
        if kwargs:
            kwargs = {k: wrapped(v) if k in self._static_names else v for k, v in kwargs.items()}
        return tuple(spelled), kwargs


def unwrap(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Take the static values out of their wrappers again."""
    plain = tuple([a.value if type(a) is Static else a for a in args])
    return plain, {k: v.value if type(v) is Static else v for k, v in kwargs.items()} if kwargs else kwargs


def without_statics(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Leave the wrapped static values out, as a compiled stage takes its call."""
    return tuple([a for a in args if type(a) is not Static]), {k: v for k, v in kwargs.items() if type(v) is not Static}


_MAX_RECENT = 512
_PLAIN = frozenset({int, str, bool, type(None)})
_recent: dict[tuple[Any, Any], Static] = {}


def wrapped(value: Any) -> Static:
    """Return a static value in its wrapper; raises TypeError if it is not hashable."""
    kind = cast("Any", type(value))
    if kind in _PLAIN:
        # One wrapper for each small plain value: a look-up costs a fifth of making one and of comparing two.
        found = _recent.get((kind, value))
        if found is None:
            if len(_recent) >= _MAX_RECENT:
                _recent.clear()
            found = _recent[kind, value] = Static(value)
        return found
    return value if kind is Static else Static(value)


def _shape(parameters: list[inspect.Parameter]) -> list[tuple[str, Any]]:
    return [(p.name, p.kind) for p in parameters]  # without the defaults, which may be arrays


def _parameters(function: Callable[..., Any], *, follow_wrapped: bool) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(function, follow_wrapped=follow_wrapped).parameters.values())
    except (TypeError, ValueError):
        return []
