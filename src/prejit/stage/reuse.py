"""Two bodies under one key: found by comparing the functions' content, in a process and across processes."""

import inspect
import os
import warnings
from collections.abc import Callable
from typing import Any

from prejit.errors import KeyingError, KeyReuse
from prejit.key import fingerprint

__all__ = ["content_of", "warn_of_reuse"]

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


def content_of(function: Callable[..., Any]) -> str | None:
    """Return a digest of a function's content, or None if it has none that can be compared."""
    try:
        return fingerprint(function, "function")
    except KeyingError:
        return None


def warn_of_reuse(key: str, runs: str) -> None:
    """Warn that a key names two functions, at the line of the user's that led here."""
    warnings.warn(
        f"two functions share the key {key!r} and their bodies, or what these read, differ: {runs} runs for both\n"
        "hint: give one of them another key, or change version= with the body",
        KeyReuse,
        stacklevel=_levels_to_user(),
    )


def _levels_to_user() -> int:
    frame = inspect.currentframe()
    levels = 0  # `warn_of_reuse`, which asks, is level 1
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        levels, frame = levels + 1, frame.f_back
    return levels
