"""One spelling for every call: positional as far as possible, static defaults filled in.

A dynamic argument that is left at its default stays left out: in `jax.jit` it is a constant of the program, on which
Python may branch, and it is one here. A static argument at its default is the same value as the default written out.
"""

import inspect
from collections.abc import Callable, Sequence
from typing import Any, cast

from prejit.signature.statics import Static

__all__ = ["Binder"]

_BY_POSITION = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class Binder:
    """Bind calls of one function.

    Args:
        function: The function; one whose signature can't be read is called as it is spelled.
        static_argnums: Positions of static arguments, as `jax.jit` takes them.
        static_argnames: Names of static arguments.
    """

    __slots__ = ("_defaults", "_names", "_positional_only", "has_statics", "static_names", "static_positions")

    def __init__(self, function: Callable[..., Any], static_argnums: Sequence[int], static_argnames: Sequence[str]):
        parameters = _parameters(function)
        by_position = [p for p in parameters if p.kind in _BY_POSITION]
        self._names = [p.name for p in by_position]
        self._positional_only = sum(p.kind is inspect.Parameter.POSITIONAL_ONLY for p in parameters)
        positions = {n + len(by_position) if n < 0 else n for n in static_argnums}
        # JAX derives the one from the other only when just one is given.
        if static_argnums and not static_argnames:
            names = {self._names[n] for n in positions if self._positional_only <= n < len(self._names)}
        elif static_argnames and not static_argnums:
            names = set(static_argnames)
            positions = {n for n, name in enumerate(self._names) if name in names}
        else:
            names = set(static_argnames)
        self.static_positions = frozenset(positions)
        self.static_names = frozenset(names)
        self.has_statics = bool(positions or names)
        self._defaults = {
            p.name: p.default
            for n, p in enumerate(parameters)
            if p.default is not p.empty and (p.name in names or (n in positions and p.kind in _BY_POSITION))
        }

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the call in its one spelling, with static values wrapped.

        A call that does not fit the signature is returned as it is, so that the function itself raises.
        """
        names = self._names
        if kwargs or (self._defaults and len(args) < len(names)):
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
                if name not in rest and (name not in names or names.index(name) >= len(spelled)):
                    rest[name] = default
            args, kwargs = tuple(spelled), rest
        if self.has_statics:
            args, kwargs = self._wrap(args, kwargs)
        return args, kwargs

    def _wrap(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        spelled = list(args)
        for n in self.static_positions:
            if n < len(spelled):
                spelled[n] = _wrapped(spelled[n])
        if kwargs:
            kwargs = {k: _wrapped(v) if k in self.static_names else v for k, v in kwargs.items()}
        return tuple(spelled), kwargs


def unwrap(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Take the static values out of their wrappers again."""
    plain = tuple([a.value if type(a) is Static else a for a in args])
    return plain, {k: v.value if type(v) is Static else v for k, v in kwargs.items()} if kwargs else kwargs


_MAX_RECENT = 512
_PLAIN = frozenset({int, str, bool, type(None)})
_recent: dict[tuple[Any, Any], Static] = {}


def _wrapped(value: Any) -> Any:
    kind = cast("Any", type(value))
    if kind in _PLAIN:
        # One wrapper for each small plain value: a look-up costs a fifth of making one and of comparing two.
        found = _recent.get((kind, value))
        if found is None:
            if len(_recent) >= _MAX_RECENT:
                _recent.clear()
            found = _recent[kind, value] = Static(value)
        return found
    if kind is Static:
        return value
    try:
        return Static(value)
    except TypeError:
        return value  # JAX refuses it in its own words, naming its type.


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return []
