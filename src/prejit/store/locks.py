"""Claims: one process compiles, the others wait for its entry. Never needed for being right.

A claim is an advisory lock of the operating system on a small file, so it ends with the process that held it. Where
locks don't work (NFS without a lock daemon, FUSE buckets, read-only directories) a claim is given at once and not
owned, and work is done twice at worst. `flock` is called directly: `filelock` keeps the lock file after release and,
where `flock` is missing, falls back to marker files, which outlive a killed owner.
"""

import atexit
import contextlib
import dataclasses
import errno
import os
import time
import weakref
from collections.abc import Generator
from typing import Literal, Protocol

from prejit.store.forks import renew_after_fork

try:
    import fcntl
except ImportError:  # a platform without flock: every claim is given at once
    fcntl = None

__all__ = ["Claim", "FileLocks", "OSLocks", "claim", "no_claim"]

ClaimReason = Literal["owned", "timeout", "unsupported"]

# A waiter looks again quickly at first, because most compiles that are waited for are small.
_FIRST_SLEEP_S = 0.005
_LONGEST_SLEEP_S = 0.1
_CONTENDED = frozenset({errno.EACCES, errno.EAGAIN, errno.EWOULDBLOCK})


@dataclasses.dataclass(frozen=True, slots=True)
class Claim:
    """Tell whether this process is the one that should do the work.

    Attributes:
        owned: Nobody else holds the claim. If not, do the work all the same.
        reason: `owned`; `timeout`: another process held it for too long; `unsupported`: locks don't work there.
        waited_s: Seconds spent waiting. If any, the entry may be in the store by now: look again.

    Example:
        >>> Claim(owned=False, reason="unsupported", waited_s=0.0).owned
        False
    """

    owned: bool
    reason: ClaimReason
    waited_s: float


class FileLocks(Protocol):
    """Lock files without waiting; the seam through which tests take locks away."""

    def acquire(self, path: str) -> int | None:
        """Lock a file, creating it; None while somebody else holds it; `OSError` where that can't be done."""
        ...

    def release(self, handle: int, path: str) -> None:
        """Unlock a file and remove it."""
        ...


class OSLocks:
    """Lock files with `flock`, one descriptor per claim, so threads exclude one another too.

    **Threads**: any. After `os.fork` the parent keeps its locks and the child has none. What a thread still holds when
    the process ends, because it compiles, is let go then.

    Example:
        >>> import tempfile
        >>> locks = OSLocks()
        >>> with tempfile.TemporaryDirectory() as directory:
        ...     handle = locks.acquire(directory + "/x.lock")
        ...     locks.acquire(directory + "/x.lock") is None
        ...     locks.release(handle, directory + "/x.lock")
        ...     os.listdir(directory)
        True
        []
    """

    def __init__(self) -> None:
        self._held: dict[int, str] = {}
        _instances.add(self)
        renew_after_fork(self)

    def acquire(self, path: str) -> int | None:
        """Lock a file, creating it; None while somebody else holds it; `OSError` where that can't be done."""
        if fcntl is None:
            raise OSError(errno.ENOSYS, "no flock on this platform", path)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        locked = False
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The last owner removes the file, so the lock that was got may be on a file that is no longer there.
            locked = _is_at(fd, path)
            if locked:
                self._held[fd] = path
                return fd
            return None
        except OSError as error:
            if error.errno in _CONTENDED:
                return None
            raise
        finally:
            if not locked:
                os.close(fd)

    def release(self, handle: int, path: str) -> None:
        """Unlock a file and remove it."""
        # In a forked child the lock is the parent's; at the end of the process it may be gone already.
        if self._held.pop(handle, None) is None:
            return
        try:
            # While the lock is held, so that nobody removes a file that a new owner has locked.
            with contextlib.suppress(OSError):
                if _is_at(handle, path):
                    os.unlink(path)
        finally:
            os.close(handle)

    def release_all(self) -> None:
        """Unlock and remove everything that is held, since the process ends and nobody else would remove the files."""
        for handle, path in list(self._held.items()):
            with contextlib.suppress(OSError):
                self.release(handle, path)

    def after_fork_in_child(self) -> None:
        """Close the inherited descriptors, so that a lock ends with the parent and not with its children."""
        for fd in self._held:
            with contextlib.suppress(OSError):
                os.close(fd)
        self._held = {}


_instances: "weakref.WeakSet[OSLocks]" = weakref.WeakSet()


@atexit.register
def _release_all() -> None:
    for locks in list(_instances):
        locks.release_all()


def _is_at(fd: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path))
    except FileNotFoundError:
        return False


@contextlib.contextmanager
def claim(locks: FileLocks, path: str, timeout_s: float) -> Generator[Claim]:
    """Hold the claim to one piece of work for a block.

    Args:
        locks: What locks files.
        path: The lock file; its directory exists, or the claim is not owned.
        timeout_s: Longest wait for another owner; afterwards the claim is given and not owned.

    Returns:
        A context manager that gives a `Claim`; it never raises because of the lock.

    **Blocks**: up to `timeout_s`, in short sleeps, so Ctrl-C works.
    """
    start = time.monotonic()
    deadline = start + timeout_s
    sleep_s = _FIRST_SLEEP_S
    handle: int | None = None
    reason: ClaimReason = "owned"
    try:
        while True:
            try:
                handle = locks.acquire(path)
            except OSError:
                reason = "unsupported"
                break
            if handle is not None:
                break
            now = time.monotonic()
            if now >= deadline:
                reason = "timeout"
                break
            time.sleep(min(sleep_s, deadline - now))
            sleep_s = min(sleep_s * 1.5, _LONGEST_SLEEP_S)
        waited_s = time.monotonic() - start if sleep_s > _FIRST_SLEEP_S else 0.0
        yield Claim(owned=handle is not None, reason=reason, waited_s=waited_s)
    finally:
        if handle is not None:
            with contextlib.suppress(OSError):
                locks.release(handle, path)


@contextlib.contextmanager
def no_claim() -> Generator[Claim]:
    """Give a claim that is not owned, where there is nothing to lock."""
    yield Claim(owned=False, reason="unsupported", waited_s=0.0)
