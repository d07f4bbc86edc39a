"""Types of values as short text, for people and for keys."""

from typing import Any

__all__ = ["aval_text"]

_SHORT = {"float": "f", "bfloat": "bf", "int": "i", "uint": "u", "complex": "c"}


def aval_text(aval: Any) -> str:
    """Return a type as JAX's users write it: `f32[2,64]`, with `~` when it is weak.

    Example:
        >>> import jax
        >>> aval_text(jax.ShapeDtypeStruct((2, 3), "float32"))
        'f32[2,3]'
    """
    dtype = getattr(aval, "dtype", None)
    if dtype is None:
        return type(aval).__name__
    shape = ",".join(str(n) for n in aval.shape)
    return f"{_dtype_text(dtype)}[{shape}]{'~' if getattr(aval, 'weak_type', False) else ''}"


def _dtype_text(dtype: Any) -> str:
    name = str(
        getattr(dtype, "name", dtype)
    )  # a ShapeDtypeStruct or aval has a dtype object, typed keys have their own
    head = name.rstrip("0123456789")
    return _SHORT[head] + name[len(head) :] if head in _SHORT and name != head else name
