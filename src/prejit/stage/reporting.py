"""The store's troubles, counted with everything else."""

from collections.abc import Mapping

from prejit import events
from prejit.store import set_event_hook

__all__ = ["report_store"]


def report_store() -> None:
    """Count the failures of stores from now on; doing it again changes nothing."""
    set_event_hook(_on_store_event)


def _on_store_event(name: str, key: str, fields: Mapping[str, object], /) -> None:
    if name == "store.error":
        events.count("store_errors")
    if name in ("store.error", "store.corrupt", "store.refused", "store.reject"):
        events.logger.debug("%s %s %s", name, key[:12], dict(fields))
