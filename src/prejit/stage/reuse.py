"""Two bodies under one key: found by comparing the functions' content, in a process and across processes."""

import hashlib
import types
from collections.abc import Callable
from typing import Any

from prejit.errors import KeyReuse, warn_user
from prejit.key.code import cell_value, code_token, global_value, home_of, reads_of, underlying_function
from prejit.key.encoding import scalar_token, text_token

__all__ = ["content_of", "warn_of_reuse"]


def content_of(function: Callable[..., Any]) -> str | None:
    """Return a digest of a function's body, or None if it has none that can be compared.

    It takes in bytecode, defaults, and the plain values and functions that the body reads. What a body may change, a
    list that it appends to, is left out, or every second process would be warned of.
    """
    body = underlying_function(function)
    if body is None:
        return None
    digest = hashlib.sha256()
    seen: set[types.CodeType] = set()
    remaining = [body]
    while remaining:
        current = remaining.pop()
        if current.__code__ in seen:
            continue
        seen.add(current.__code__)
        digest.update(code_token(current.__code__))
        named = {name: global_value(current, name) for name, _ in reads_of(current.__code__).names}
        for name, value in [*sorted(_inside(current).items()), *sorted(named.items())]:
            digest.update(text_token(name) + (scalar_token(value) or b""))
            if isinstance(value, types.FunctionType) and home_of(value) is None:
                remaining.append(value)
    return digest.hexdigest()


def _inside(function: types.FunctionType) -> dict[str, Any]:
    """Return what a function holds itself: defaults and captured values, by name."""
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    held = {f"captured {name}": cell_value(cell) for name, cell in cells}
    held |= {f"default {n}": value for n, value in enumerate(function.__defaults__ or ())}
    return held | {f"default {name}": value for name, value in (function.__kwdefaults__ or {}).items()}


def warn_of_reuse(key: str, runs: str) -> None:
    """Warn that a key names two functions, at the line of the user's that led here."""
    warn_user(
        f"two functions share the key {key!r} and their bodies, or what these read, differ: {runs} runs for both\n"
        "hint: give one of them another key, or change version= with the body",
        KeyReuse,
    )
