"""Who could have written a file that is about to be run.

A stored executable is native code, so loading it is running it. A directory is refused when another user than root
owns it or when its group or others can write to it, and so is every single file, by the descriptor that it was read
from. Directories above the store are not examined: shared scratch space that a group can write to is common, and
whoever swaps the store's directory there can put in it only files that he owns, which are refused one by one. What is
written is readable to him then; it is never run. Access lists beyond the permission bits are not examined either.
"""

import os
import stat

from prejit.errors import StoreRefused, mismatch
from prejit.store.files import FileInfo

__all__ = ["check_directory", "problem", "subdirectory_mode"]

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
PRIVATE_MODE = 0o700


def problem(info: FileInfo) -> str:
    """Say who else could have written this, or nothing.

    Args:
        info: Description of a file or directory.

    Returns:
        A phrase such as `owned by user 1001`, or an empty string when only this user and root could have.

    Example:
        >>> problem(FileInfo("d", 0, 0.0, 0o40777, os.getuid(), 1, True))
        'writable by others'
    """
    if info.uid < 0:
        return ""
    if info.uid not in (0, os.getuid()):
        return f"owned by user {info.uid}"
    if info.mode & stat.S_IWOTH:
        return "writable by others"
    if info.mode & stat.S_IWGRP:
        return "writable by its group"
    return ""


def check_directory(path: str, info: FileInfo) -> None:
    """Refuse a directory that somebody else could have filled.

    Args:
        path: The directory, with links resolved.
        info: Its description.

    Raises:
        StoreRefused: Somebody could have; the hint is the command that helps.
    """
    reason = problem(info)
    if not reason:
        return
    if info.mode & _OTHERS_WRITE and not reason.startswith("owned"):
        hint = f"chmod go-w {path}"
    else:
        hint = f"choose a directory of your own, e.g. PREJIT_CACHE_DIR=~/.cache/prejit, or chown {os.getuid()} {path}"
    raise StoreRefused(
        mismatch("opening the store", expected="a directory that only you or root can write", got=reason, at=path),
        path=path,
        reason=reason,
        hint=hint,
    )


def subdirectory_mode(root: FileInfo) -> int:
    """Choose the mode of a directory inside the store: as readable as its root, writable by its owner only.

    Example:
        >>> oct(subdirectory_mode(FileInfo("d", 0, 0.0, 0o40775, 0, 1, True)))
        '0o755'
    """
    return PRIVATE_MODE | (root.mode & 0o755)
