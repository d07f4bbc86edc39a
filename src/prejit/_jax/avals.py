"""Types of values as plain data, and back."""

from typing import Any

import numpy as np
from jax._src import core, dtypes

from prejit.errors import KeyingError

__all__ = ["aval_from", "describe_aval"]


def describe_aval(aval: Any) -> dict[str, Any]:
    """Return plain data from which `aval_from` rebuilds a type.

    Raises:
        KeyingError: The type holds a mesh, a memory space or a dtype that has no description here.
    """
    if type(aval) is not core.ShapedArray:
        raise _undescribed(f"a {type(aval).__name__}")
    plain = core.ShapedArray(aval.shape, aval.dtype, weak_type=aval.weak_type)
    if aval != plain or not all(isinstance(n, int) for n in aval.shape):
        raise _undescribed("a type with a mesh, a memory space or a symbolic dimension")
    if not isinstance(aval.dtype, np.dtype):
        raise _undescribed(f"dtype {aval.dtype}")
    return {"dtype": aval.dtype.name, "shape": list(aval.shape), "weak_type": bool(aval.weak_type)}


def aval_from(description: dict[str, Any]) -> Any:
    """Rebuild a type from its description."""
    dtype = dtypes.dtype(description["dtype"])
    return core.ShapedArray(tuple(description["shape"]), dtype, weak_type=description["weak_type"])


def _undescribed(what: str) -> KeyingError:
    return KeyingError(f"describing a type: expected shape, dtype and weak type, got {what}", reason=what)
