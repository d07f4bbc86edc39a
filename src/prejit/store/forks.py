"""What must be renewed in the child after `os.fork`: locks that another thread held, descriptors, statistics."""

import contextlib
import os
import weakref
from typing import Protocol

__all__ = ["ForkAware", "renew_after_fork"]


class ForkAware(Protocol):
    """Renew whatever a forked child can't share with its parent."""

    def after_fork_in_child(self) -> None:
        """Be called in the child, before anything else runs there."""
        ...


_objects: "weakref.WeakSet[ForkAware]" = weakref.WeakSet()


def renew_after_fork(target: ForkAware) -> None:
    """Have a weakly held object renewed in every forked child."""
    _objects.add(target)


def _after_fork_in_child() -> None:
    # Another thread may have been adding at the moment of the fork; the set is still readable, if one object short.
    with contextlib.suppress(RuntimeError):
        for target in list(_objects):
            target.after_fork_in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
