"""JAX programs that start fast.

The public names; everything else is reached through them. See `ARCHITECTURE.md` for what is where.
"""

from typing import TYPE_CHECKING, Any

from prejit import events as _events
from prejit.component import CacheInfo, Component, component
from prejit.config import Settings, configure, disabled
from prejit.errors import (
    ConfigError,
    KeyingError,
    KeyReuse,
    LinkWarning,
    PrejitError,
    PrejitWarning,
    StoreError,
    StoreWarning,
)
from prejit.events import counters
from prejit.program.decorator import jit
from prejit.program.wrapper import Program
from prejit.stage import hook as _hook

if TYPE_CHECKING:
    from prejit.key import ComponentKey
    from prejit.store import CacheEntry, EntryInfo, Store, get_store, use_store

__version__ = "0.1.0"

__all__ = [
    "CacheEntry",
    "CacheInfo",
    "Component",
    "ComponentKey",
    "ConfigError",
    "EntryInfo",
    "KeyReuse",
    "KeyingError",
    "LinkWarning",
    "PrejitError",
    "PrejitWarning",
    "Program",
    "Settings",
    "Store",
    "StoreError",
    "StoreWarning",
    "component",
    "configure",
    "counters",
    "disabled",
    "get_store",
    "jit",
    "use_store",
]

# Names whose rooms are imported when first asked for: together they cost more than an import may.
_LATER = {
    "CacheEntry": "prejit.store",
    "ComponentKey": "prejit.key",
    "EntryInfo": "prejit.store",
    "Store": "prejit.store",
    "get_store": "prejit.store",
    "use_store": "prejit.store",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'prejit' has no attribute {name!r}")
    import importlib

    value = globals()[name] = getattr(importlib.import_module(_LATER[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


_events.install()
_hook.install()
