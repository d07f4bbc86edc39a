"""Hits and last use per key, which survive the process and add up over processes.

Every process appends to a journal of its own, so nothing is locked and nothing is lost when two write at once; readers
add the journals up. The alternatives were worse: a counter inside the entry rewrites it at each hit, one shared file
needs a lock, and one side file per entry doubles the files and makes a flush as many writes as there are keys.

A journal is lines of `<digest> <hits> <last use>`. Each append starts with a newline, so a torn one spoils itself only.
Compaction renames old journals, which one compactor alone can do, and publishes their sum in one file that names them
first: between publishing and removing, a reader skips what the sum already holds.
"""

import contextlib
import dataclasses
import os
import threading
import time
from collections.abc import Callable, Collection, Mapping

from prejit.store.entry import is_digest
from prejit.store.files import FileInfo, FileSystem
from prejit.store.forks import renew_after_fork

__all__ = ["Usage", "Use"]

_FLUSH_HITS = 64
_FLUSH_AFTER_S = 2.0
_ROTATE_BYTES = 1024**2
_COMPACT_FILES = 32
# An appender holds its journal open for microseconds; a journal this old has none.
_COMPACT_AGE_S = 60.0
_MOST_PENDING = 100_000
_JOURNAL = ".hits"
_CLAIMED = ".claimed"
_ABSORBED = "absorbed"


@dataclasses.dataclass(frozen=True, slots=True)
class Use:
    """Count the uses of one key.

    Attributes:
        hits: Lookups that were answered, in all processes.
        last_used: Unix time of the last of them, in seconds.

    Example:
        >>> Use(2, 10.0) + Use(1, 30.0)
        Use(hits=3, last_used=30.0)
    """

    hits: int
    last_used: float

    def __add__(self, other: "Use") -> "Use":
        return Use(self.hits + other.hits, max(self.last_used, other.last_used))


_NONE = Use(0, 0.0)


class Usage:
    """Collect uses in memory and flush them to this process's journal; a failing flush is forgotten.

    Args:
        files: The file system.
        directory: Gives the journals' directory for writing (True) or reading (False), or None where that can't be.
        clock: Gives Unix time in seconds.

    **Threads**: any.
    """

    def __init__(
        self, files: FileSystem, directory: Callable[[bool], str | None], clock: Callable[[], float] = time.time
    ) -> None:
        self._files = files
        self._directory = directory
        self._clock = clock
        self._lock = threading.Lock()
        self._start()
        renew_after_fork(self)

    def _start(self) -> None:
        self._pending: dict[str, Use] = {}
        self._new_hits = 0
        self._flushed = time.monotonic()
        self._journal = os.urandom(8).hex()
        self._written_bytes = 0

    def record(self, digest: str) -> None:
        """Count one hit now; flush when enough have come together or enough time has gone by."""
        with self._lock:
            if len(self._pending) >= _MOST_PENDING:  # only where nothing can be flushed
                del self._pending[next(iter(self._pending))]
            self._pending[digest] = self._pending.get(digest, _NONE) + Use(1, self._clock())
            self._new_hits += 1
            is_due = self._new_hits >= _FLUSH_HITS or time.monotonic() - self._flushed >= _FLUSH_AFTER_S
        if is_due:
            self.flush()

    def flush(self) -> bool:
        """Append what is pending to the journal; without a directory it stays pending."""
        directory = self._directory(True)
        with self._lock:
            # Also without a directory: the next try is as far away as after a flush.
            self._new_hits, self._flushed = 0, time.monotonic()
            if directory is None or not self._pending:
                return False
            pending, self._pending = self._pending, {}
            data = ("\n" + "".join(map(_line, pending, pending.values()))).encode()
            if self._written_bytes > _ROTATE_BYTES:
                self._journal, self._written_bytes = os.urandom(8).hex(), 0
            path = f"{directory}/{self._journal}{_JOURNAL}"
            self._written_bytes += len(data)
        with contextlib.suppress(OSError):
            self._files.append(path, data)
            return True
        return False

    def load(self) -> dict[str, Use]:
        """Add up all journals and what is pending here."""
        directory = self._directory(False)
        journals = self._read_all(directory) if directory is not None else {}
        with self._lock:
            return _add_up([*journals.values(), self._pending])

    def compact(self, live: Collection[str]) -> int:
        """Put old journals together, leaving out keys that have no entry any more.

        Args:
            live: Digests that have an entry.

        Returns:
            How many journals went into the sum.
        """
        directory = self._directory(True)
        if directory is None:
            return 0
        now = self._clock()
        leftover = self._remove_absorbed(directory)
        names = [
            info.name
            for info in self._scan(directory)
            if now - info.mtime > _COMPACT_AGE_S and info.name not in leftover | {self._journal + _JOURNAL}
        ]
        if len(names) < _COMPACT_FILES:
            return 0
        token = os.urandom(8).hex()
        for name in names:
            with contextlib.suppress(OSError):
                stem = name.split(".", 1)[0]
                self._files.replace(f"{directory}/{name}", f"{directory}/{stem}.{token}{_CLAIMED}")
        claimed = {
            name: uses for name, uses in self._read_all(directory).items() if name.endswith(f".{token}{_CLAIMED}")
        }
        total = {digest: use for digest, use in _add_up(claimed.values()).items() if digest in live}
        text = f"{_ABSORBED} {' '.join([*claimed, *leftover])}\n" + "".join(map(_line, total, total.values()))
        # Readers know it as a journal only after the rename.
        draft = f"{directory}/{token}.draft"
        try:
            self._files.write_new(draft, text.encode())
            self._files.replace(draft, f"{directory}/{token}{_JOURNAL}")
        except OSError:
            return 0
        self._remove_absorbed(directory)
        return len(claimed)

    def discard(self) -> None:
        """Forget what is pending."""
        with self._lock:
            self._pending = {}

    def after_fork_in_child(self) -> None:
        """Leave what is pending to the parent, and begin another journal."""
        self._lock = threading.Lock()
        self._start()

    def _scan(self, directory: str) -> list[FileInfo]:
        with contextlib.suppress(OSError):
            return [info for info in self._files.scan(directory) if info.name.endswith((_JOURNAL, _CLAIMED))]
        return []

    def _read_raw(self, directory: str) -> dict[str, list[str]]:
        texts: dict[str, list[str]] = {}
        for info in self._scan(directory):
            with contextlib.suppress(OSError):
                data, _ = self._files.read(f"{directory}/{info.name}")
                texts[info.name] = data.decode("ascii", "replace").splitlines()
        return texts

    def _read_all(self, directory: str) -> dict[str, dict[str, Use]]:
        texts = self._read_raw(directory)
        absorbed = _absorbed(texts)
        return {name: _parse(lines) for name, lines in texts.items() if name not in absorbed}

    def _remove_absorbed(self, directory: str) -> set[str]:
        """Remove journals that a sum already holds, and return those that could not be removed."""
        texts = self._read_raw(directory)
        leftover = _absorbed(texts) & texts.keys()
        for name in sorted(leftover):
            with contextlib.suppress(OSError):
                self._files.remove(f"{directory}/{name}")
                leftover.discard(name)
        return leftover


def _line(digest: str, use: Use) -> str:
    return f"{digest} {use.hits} {use.last_used:.3f}\n"


def _absorbed(texts: Mapping[str, list[str]]) -> set[str]:
    found: set[str] = set()
    for lines in texts.values():
        for line in lines:
            if line.startswith(_ABSORBED + " "):
                found.update(line.split()[1:])
    return found


def _parse(lines: list[str]) -> dict[str, Use]:
    uses: dict[str, Use] = {}
    for line in lines:
        parts = line.split(" ")
        if len(parts) != 3 or not is_digest(parts[0]):
            continue
        with contextlib.suppress(ValueError):
            hits, last_used = int(parts[1]), float(parts[2])
            if hits > 0 and 0.0 <= last_used < 1e12:
                uses[parts[0]] = uses.get(parts[0], _NONE) + Use(hits, last_used)
    return uses


def _add_up(parts: "Collection[Mapping[str, Use]]") -> dict[str, Use]:
    total: dict[str, Use] = {}
    for part in parts:
        for digest, use in part.items():
            total[digest] = total.get(digest, _NONE) + use
    return total
