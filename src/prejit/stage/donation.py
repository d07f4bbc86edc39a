"""What becomes of donated arguments when nothing is lowered, which is when JAX would say it."""

from collections.abc import Sequence
from typing import Any

from prejit._jax import tracing
from prejit.errors import warn_user

__all__ = ["warn_of_unusable"]


def warn_of_unusable(avals: Sequence[Any]) -> None:
    """Warn, in JAX's words, of donated arguments whose buffers no result can take."""
    warn_user(tracing.unusable_text(avals))
