"""What becomes of donated arguments when nothing is lowered, which is when JAX would say it."""

import warnings
from collections.abc import Sequence
from typing import Any

from prejit._jax import pieces, tracing
from prejit.errors import levels_to_user

__all__ = ["warn_of_unusable", "warn_without_lowering"]


def warn_without_lowering(program: tracing.TracedProgram, nr_devices: int) -> None:
    """Warn of donated arguments that no result can take, for a program on one device that came from the store."""
    if nr_devices > 1 or not any(program.donated) or program.options.keys() - {"keep_unused"}:
        return
    if "keep_unused" in program.options:
        used = [True] * len(program.in_avals)
    else:
        used = pieces.without_dead_code(program.closed_jaxpr)[2]
    _, unusable = tracing.donations(program, used)
    if unusable:
        warn_of_unusable(unusable)


def warn_of_unusable(avals: Sequence[Any]) -> None:
    """Warn, in JAX's words, of donated arguments whose buffers no result can take."""
    warnings.warn(tracing.unusable_text(avals), stacklevel=levels_to_user())
