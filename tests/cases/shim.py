"""The vocabulary of the case programs, over prejit's public names."""

import collections  # noqa: F401
import dataclasses  # noqa: F401
import functools  # noqa: F401
import os
import pickle  # noqa: F401
import shutil  # noqa: F401
import subprocess
import sys
import tempfile
import threading  # noqa: F401
import time  # noqa: F401
import warnings  # noqa: F401

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=4")

import jax
import jax.numpy as jnp
import numpy as np
from jax import export, lax  # noqa: F401
from jax.sharding import Mesh, NamedSharding  # noqa: F401
from jax.sharding import PartitionSpec as P  # noqa: F401
from ways import component  # noqa: F401

import prejit

SCRATCH = os.environ.get("CASES_SCRATCH") or tempfile.mkdtemp(prefix="case_")
CACHE = os.environ.get("CASES_CACHE", os.path.join(SCRATCH, "cache"))
WAITS = 77  # exit code of a program that stopped at needs_export()
os.environ["CASES_SCRATCH"] = SCRATCH
sys.path.insert(0, SCRATCH)
prejit.configure(cache_dir=CACHE)

one = jnp.float32(1)
x3 = jnp.arange(3.0)


def needs_export():
    """End the program here, as far as it runs now; what follows is about artifacts."""
    if os.environ.get("CASES_PART") != "all":
        sys.stdout.flush()
        sys.exit(WAITS)


def to_artifact(f, *args, vjp_order=0, platforms=None, **kwargs):
    """Bytes of an exported function."""
    return prejit.export(f, *args, vjp_order=vjp_order, platforms=platforms, **kwargs).to_bytes()


def from_artifact(data):
    """A callable from those bytes, without the source."""
    return prejit.PFunction.from_bytes(bytes(data))


def entries():
    """One text per stored executable: '<function name>-<digest>', such as 'jit_f-…' or 'jit__lambda_-…'."""
    found = []
    for key, info in prejit.get_store().items():
        if info.kind == "executable":
            found.append(f"jit_{info.name.replace('<lambda>', '_lambda_')}-{key}")
    return sorted(found)


def files(where=None):
    """Paths of all files of a store, by default of the program's own."""
    return sorted(os.path.join(r, n) for r, _, names in os.walk(CACHE if where is None else where) for n in names)


def entry_files(where=None):
    """Paths of the files of a store that are entries."""
    return [path for path in files(where) if path.endswith(".entry")]


def leftovers(where=None):
    """Drafts, locks and damaged files of a store: what must not be there when nobody is at work."""
    return [path for path in files(where) if not path.endswith(".entry") and f"{os.sep}hits{os.sep}" not in path]


def cleared():
    """Forget what is in memory, keep what is on disk."""
    jax.clear_caches()
    prejit.get_store().clear(tier="memory")


def raises(kind, function):
    """The error that a function raises, which must be of a kind."""
    try:
        function()
    except kind as error:
        return error
    raise AssertionError(f"{kind} not raised")


def w(name, text):
    """Write a file in the scratch directory, from which the programs of a case import."""
    with open(os.path.join(SCRATCH, name), "w") as file:
        file.write(text)


def fresh(source, env=None, n=1, cache=None, check=True):
    """Run code, or a .py file of the scratch directory, in n new processes at once; gives what they print, stripped.

    `fresh.err` and `fresh.rc` are what the last of them wrote to stderr and its exit code.
    """
    body = source
    if source.endswith(".py"):
        path = os.path.join(SCRATCH, source)
        body = f"exec(compile(open({path!r}).read(), {source!r}, 'exec'), globals())"
    environment = {
        **os.environ,
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPATH": os.pathsep.join([os.path.dirname(os.path.abspath(__file__)), os.environ.get("PYTHONPATH", "")]),
        "CASES_CACHE": CACHE if cache is None else cache,
        "CASES_SCRATCH": SCRATCH,
        **(env or {}),
    }
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", f"from shim import *\n{body}"],
            env=environment,
            cwd=SCRATCH,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(n)
    ]
    outs = []
    for process in processes:
        out, fresh.err = process.communicate(timeout=240)
        fresh.rc = process.returncode
        if check and fresh.rc:
            raise RuntimeError(f"child rc={fresh.rc}: {fresh.err.strip()[-2000:]}")
        outs.append(out.strip())
    return outs[0] if n == 1 else outs


def mesh4(name="d"):
    """A mesh of the four devices that every program has."""
    return Mesh(np.array(jax.devices()[:4]), (name,))
