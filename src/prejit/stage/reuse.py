"""Two bodies under one key: found by comparing the functions' content, in a process and across processes."""

import warnings
from collections.abc import Callable
from typing import Any

from prejit.errors import KeyingError, KeyReuse
from prejit.key import fingerprint

__all__ = ["content_of", "warn_of_reuse"]


def content_of(function: Callable[..., Any]) -> str | None:
    """Return a digest of a function's content, or None if it has none that can be compared."""
    try:
        return fingerprint(function, "function")
    except KeyingError:
        return None


def warn_of_reuse(key: str, runs: str, stacklevel: int) -> None:
    """Warn that a key names two functions."""
    warnings.warn(
        f"two functions share the key {key!r} and their bodies differ: {runs} runs for both\n"
        "hint: give one of them another key, or change version= with the body",
        KeyReuse,
        stacklevel=stacklevel,
    )
