"""The demo's data: the source of Python's standard library, which every machine that runs this has."""

import sysconfig
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

VOCABULARY = 128
"""ASCII; every other character becomes a question mark."""


def read_text(limit_bytes: int) -> npt.NDArray[np.uint8]:
    """Read standard library modules in order of name until there is enough.

    Args:
        limit_bytes: Where to stop; the last module is cut there.

    Returns:
        ASCII codes, uint8[n] with n at most `limit_bytes`.

    Raises:
        FileNotFoundError: The standard library has no source files here (a zipped or stripped Python).
    """
    folder = Path(sysconfig.get_paths()["stdlib"])
    pieces: list[bytes] = []
    size_bytes = 0
    for path in sorted(folder.glob("*.py")):
        piece = path.read_text(encoding="utf-8", errors="replace").encode("ascii", errors="replace")
        pieces.append(piece)
        size_bytes += len(piece)
        if size_bytes >= limit_bytes:
            break
    if not size_bytes:
        raise FileNotFoundError(f"reading text to train on: expected *.py files in {folder}, found none")
    return np.frombuffer(b"".join(pieces)[:limit_bytes], dtype=np.uint8)


def draw_batches(text: npt.NDArray[np.uint8], *, batch: int, context: int) -> Iterator[npt.NDArray[np.int32]]:
    """Yield endless training batches, the same ones in every process.

    Args:
        text: ASCII codes, uint8[n] with n above `context`.
        batch: Examples in each batch.
        context: Characters that the model reads per example.

    Yields:
        Characters and, one further, what follows them: int32[batch, context + 1].
    """
    random = np.random.default_rng(0)
    offsets = np.arange(context + 1)
    while True:
        starts = random.integers(0, len(text) - context, size=(batch, 1))
        yield text[starts + offsets].astype(np.int32)
