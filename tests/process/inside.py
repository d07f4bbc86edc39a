"""What the children of these tests start with: `from inside import *`, then a program that ends in `report(...)`."""

import gc  # noqa: F401
import hashlib
import json
import os
import signal
import sys
import threading  # noqa: F401
import time  # noqa: F401
import warnings
import weakref  # noqa: F401

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding  # noqa: F401
from jax.sharding import PartitionSpec as P  # noqa: F401

import prejit
from prejit.testing import count_compiles

_counting = count_compiles()
seen = _counting.__enter__()  # for the life of the process
said: list[str] = []  # warnings, as their messages

_show = warnings.showwarning


def _remember(message, category, *rest, **named):
    said.append(f"{category.__name__}: {message}")
    _show(message, category, *rest, **named)


warnings.showwarning = _remember


def bits(tree):
    """Type, shape and digest of every leaf, so that two processes can compare results bit by bit."""
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]
    return [f"{a.dtype}{list(a.shape)} {hashlib.sha256(np.ascontiguousarray(a).tobytes()).hexdigest()}" for a in leaves]


def entries(kind="executable", *, eager=False):
    """Keys of a kind of entry in the store; those of eager operations only when asked for."""
    found = prejit.get_store().items()
    return [key for key, info in found if info.kind == kind and (info.variant == "eager") == eager]


def entry_path(key):
    """File of one entry."""
    [path] = prejit.get_store().path.rglob(f"{key}.entry")
    return path


def forget():
    """Drop what is in memory; what is on disk stays."""
    jax.clear_caches()
    prejit.get_store().clear(tier="memory")


class since:
    """Differences of prejit's counters since it was made: `n = since(); ...; n()["compiles"]`."""

    def __init__(self):
        self.before = prejit.counters()

    def __call__(self):
        now = prejit.counters()
        return {name: now[name] - self.before[name] for name in now if not name.endswith("seconds")}


def in_child(work, limit_s=60):
    """Return what a function gives in a forked child; None if the child died, which it does after a while."""
    # JAX's own warning about forking is right in general; what is tested is that our locks do not hang.
    warnings.simplefilter("ignore")
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        signal.alarm(limit_s)
        try:
            os.write(write, json.dumps(work()).encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as file:
        text = file.read()
    os.waitpid(pid, 0)
    return json.loads(text or "null")


def report(**values):
    """Print everything that the test wants to know as the last line."""
    values |= {
        "counters": prejit.counters(),
        "seen": {"traces": seen.traces, "lowerings": seen.lowerings, "compiles": seen.compiles},
        "compiled": seen.compiled,
        "said": said,
    }
    sys.stdout.write("REPORT " + json.dumps(values) + "\n")
    sys.stdout.flush()


PID = os.getpid()
F32 = np.float32
X = np.linspace(-1, 1, 16, dtype=F32)
SPEC = jax.ShapeDtypeStruct((16,), jnp.float32)
