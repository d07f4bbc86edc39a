"""Those who hold loaded executables outside the bounded cache, and must let go of them when memory is cleared."""

import weakref
from typing import Protocol

__all__ = ["Forgetful", "forget_all", "on_clear"]


class Forgetful(Protocol):
    """Have something to forget."""

    def forget(self) -> None:
        """Drop what is held in memory; it can be had again from the store."""


_users: "weakref.WeakSet[Forgetful]" = weakref.WeakSet()


def on_clear(user: Forgetful) -> None:
    """Call `user.forget()` whenever a store's memory is cleared; the user is held weakly."""
    _users.add(user)


def forget_all() -> None:
    """Make everyone forget."""
    for user in list(_users):
        user.forget()
