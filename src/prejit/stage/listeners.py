"""Those who hold loaded executables outside the bounded cache, and must let go of them when memory is cleared."""

import os
import threading
import weakref
from typing import Protocol

__all__ = ["Forgetful", "Users", "forget_all", "on_clear"]


class Forgetful(Protocol):
    """Have something to forget."""

    def forget(self) -> None:
        """Drop what is held in memory; it can be had again from the store."""


_lock = threading.Lock()


def _renew_lock() -> None:
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)


class Users:
    """Hold users weakly, and make them forget.

    **Threads**: any; a set that one thread adds to can't be gone through by another without the lock.
    """

    __slots__ = ("_users",)

    def __init__(self) -> None:
        self._users: weakref.WeakSet[Forgetful] = weakref.WeakSet()

    def add(self, user: Forgetful) -> None:
        """Remember a user for as long as it lives."""
        with _lock:
            self._users.add(user)

    def forget(self) -> None:
        """Make every user forget; no lock is held meanwhile."""
        with _lock:
            users = list(self._users)
        for user in users:
            user.forget()


_everyone = Users()


def on_clear(user: Forgetful) -> None:
    """Call `user.forget()` whenever a store's memory is cleared; the user is held weakly."""
    _everyone.add(user)


def forget_all() -> None:
    """Make everyone forget."""
    _everyone.forget()
