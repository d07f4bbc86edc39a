"""What an entry keeps of its key, for listings and comparisons."""

from prejit.key import ComponentKey

__all__ = ["ingredients_of"]

_GROUPS = ("identity", "signature", "transforms", "environment")


def ingredients_of(key: ComponentKey) -> tuple[tuple[str, str, str], ...]:
    """Return every ingredient as group, name and value."""
    return tuple([(group, name, value) for group in _GROUPS for name, value in getattr(key, group)])
