"""What every test stands on: no cache or setting of the user's, and fresh interpreters that are always reaped."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

# Before prejit or JAX is imported, for both read the environment then.
_FOREIGN = ("PREJIT_", "JAX_COMPILATION_CACHE", "JAX_PERSISTENT_CACHE", "JAX_ENABLE_COMPILATION_CACHE")
for _name in [name for name in os.environ if name.startswith(_FOREIGN)]:
    del os.environ[_name]
_cache_dir = tempfile.mkdtemp(prefix="prejit-tests-")
os.environ["PREJIT_CACHE_DIR"] = _cache_dir
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax  # noqa: E402  # after the environment is cleared

# Several devices for tests that run in this process. Here, before any test module is imported: some make arrays then.
# Not through XLA_FLAGS, which every process that a test starts would inherit.
jax.config.update("jax_num_cpu_devices", 8)

ROOT = Path(__file__).parents[1]


def pytest_configure(config):
    # Here and not in pyproject.toml, where pytest would import prejit before this file has cleared the environment.
    config.addinivalue_line("filterwarnings", "error::prejit.errors.PrejitWarning")


def pytest_unconfigure():
    shutil.rmtree(_cache_dir, ignore_errors=True)


@pytest.fixture
def store_dir(tmp_path):
    """Let this process use an empty store for one test; returns its directory."""
    from prejit import config

    path = tmp_path / "store"
    config.configure(cache_dir=path)
    yield path
    config.reset()


@pytest.fixture
def run_python(tmp_path):
    """Run code in a fresh interpreter: `run_python(code, *args, env={...}, check=True)` -> CompletedProcess.

    The process uses the store under `tmp_path / "store"`, which all calls in one test share, and is killed with its
    children when it takes longer than `timeout_s`.
    """

    def run(code, *args, env=None, check=True, timeout_s=240):
        environment = os.environ | {"PREJIT_CACHE_DIR": str(tmp_path / "store")} | (env or {})
        process = subprocess.Popen(
            [sys.executable, "-c", code, *map(str, args)],
            env={name: text for name, text in environment.items() if text is not None},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
            start_new_session=True,
        )
        try:
            out, err = process.communicate(timeout=timeout_s)
        finally:
            _end_group(process)
        done = subprocess.CompletedProcess(process.args, process.returncode, out, err)
        if check and done.returncode != 0:
            pytest.fail(f"expected exit code 0, got {done.returncode}\n{done.stdout}\n{done.stderr}")
        return done

    return run


def _end_group(process):
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
