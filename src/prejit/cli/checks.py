"""What `prejit doctor` looks at: each check is a function to findings, and none changes anything but a probe file."""

import errno
import os
import platform
import shutil
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Any, Literal, cast

from packaging.requirements import Requirement

from prejit import config
from prejit.cli.output import format_size
from prejit.store import Store
from prejit.store.files import OSFileSystem
from prejit.store.trust import problem as find_trust_problem

Status = Literal["ok", "note", "wrong"]
_LEAST_FREE_BYTES = 500_000_000
_NO_ROOM = frozenset({errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC)})  # Windows has no quota error
_TELLING_JAX_SETTINGS = ("jax_disable_jit", "jax_debug_nans", "jax_debug_infs", "jax_compilation_cache_dir")


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that a check saw.

    Attributes:
        subject: What was looked at.
        status: `ok`, `note` for what is unusual but allowed, `wrong` for what needs mending.
        seen: What is there.
        hint: One action that mends it; empty when nothing is to be done.
    """

    subject: str
    status: Status
    seen: str
    hint: str = ""


def check_packages() -> Iterator[Finding]:
    """Look at Python and at the installed versions of what prejit depends on."""
    yield Finding("python", "ok", f"{platform.python_version()} on {platform.system()} {platform.machine()}")
    try:
        yield Finding("prejit", "ok", version("prejit"))
        lines = requires("prejit") or ()
    except PackageNotFoundError:
        yield Finding("prejit", "wrong", "imported from a directory, not installed", "pip install prejit")
        return
    for line in lines:
        requirement = Requirement(line)
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        yield _check_package(requirement)


def _check_package(requirement: Requirement) -> Finding:
    name = requirement.name
    fix = f"pip install '{name}{requirement.specifier}'"
    try:
        installed = version(name)
    except PackageNotFoundError:
        return Finding(name, "wrong", "not installed", fix)
    if not requirement.specifier.contains(installed, prereleases=True):
        return Finding(name, "wrong", f"{installed}, expected {requirement.specifier}", fix)
    return Finding(name, "ok", installed)


def check_settings(environment: Mapping[str, str]) -> Iterator[Finding]:
    """Look at `PREJIT_*` variables and at what they come to."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        config.reset(environment)
        settings = config.settings()
    for warning in caught:
        message, _, hint = str(warning.message).partition("\nhint: ")
        yield Finding("setting", "wrong", message, hint)
    names = sorted(name for name in environment if name.startswith("PREJIT_"))
    yield Finding("settings", "ok", ", ".join(names) if names else "defaults; no PREJIT_* variable is set")
    if not settings.enabled:
        yield Finding("enabled", "note", "no: everything is plain jax.jit", "unset PREJIT_DISABLE")


def check_store(settings: config.Settings) -> Iterator[Finding]:
    """Look at the store's directory: its place, its owner and rights, whether it can be written, the room there."""
    path = settings.cache_dir
    if path is None:
        yield Finding("store", "note", "in memory only: nothing outlives the process", "set PREJIT_CACHE_DIR")
        return
    if not path.exists():
        yield from _check_missing_directory(path, settings)
        return
    if not path.is_dir():
        yield Finding("store", "wrong", f"{path} is not a directory", "set PREJIT_CACHE_DIR to a directory")
        return
    reason = find_trust_problem(OSFileSystem().stat(str(path.resolve())))
    if reason:
        yield Finding("store", "wrong", f"{path} is {reason}, so it is not used", _mend_rights(path, reason))
    else:
        yield Finding("store", "ok", f"{path}, written by you only")
        yield from _check_entries(path)
    room = _check_room(path, settings)
    yield _check_writing(path, settings, room)
    yield room


def _check_missing_directory(path: Path, settings: config.Settings) -> Iterator[Finding]:
    parent = next(place for place in path.parents if place.exists())
    if settings.read_only:
        yield Finding("store", "wrong", f"{path} is missing, and is to be read only", "name a directory that is filled")
    elif not os.access(parent, os.W_OK | os.X_OK):
        hint = f"set PREJIT_CACHE_DIR, or make {parent} writable"
        yield Finding("store", "wrong", f"{path} is missing and can't be made in {parent}", hint)
    else:
        yield Finding("store", "ok", f"{path}, made at its first use")
        yield _check_room(parent, settings)


def _mend_rights(path: Path, reason: str) -> str:
    if reason.startswith("owned"):
        return "set PREJIT_CACHE_DIR to a directory of your own"
    return f"chmod go-w {path}"


def _check_entries(path: Path) -> Iterator[Finding]:
    # Headers only: `prejit cache verify` reads everything, which a large store does not do in passing.
    stats = Store(path, read_only=True).stats()
    if stats.unreadable_entries:
        seen = f"{stats.unreadable_entries} of {stats.entries} are damaged or in a newer format"
        yield Finding("store entries", "note", seen, "prejit cache verify")


def _check_writing(path: Path, settings: config.Settings, room: Finding) -> Finding:
    if settings.read_only:
        return Finding("store writing", "note", "read-only by PREJIT_READ_ONLY: nothing new is stored")
    try:
        # The system is asked by writing: permission bits don't know of read-only mounts and full disks.
        with tempfile.NamedTemporaryFile(dir=path, prefix=".doctor-") as probe:
            probe.write(b"probe")
            probe.flush()
    except OSError as error:
        return _refused_writing(path, error, room)
    return Finding("store writing", "ok", "can be written")


def _refused_writing(path: Path, error: OSError, room: Finding) -> Finding:
    if error.errno not in _NO_ROOM:
        hint = f"make {path} writable, set PREJIT_CACHE_DIR, or set PREJIT_READ_ONLY=1 if that is meant"
    elif room.status == "wrong":
        hint = ""  # said there
    else:
        hint = f"look at your quota and at the number of files (df -i {path}), or set PREJIT_CACHE_DIR to another disk"
    return Finding("store writing", "wrong", f"can't write: {error.strerror or error}", hint)


def _check_room(path: Path, settings: config.Settings) -> Finding:
    free_bytes = shutil.disk_usage(path).free
    seen = f"{format_size(free_bytes)} free, store capped at {format_size(settings.max_size_bytes)}"
    if settings.read_only or free_bytes >= _LEAST_FREE_BYTES:
        return Finding("store room", "ok", seen)
    return Finding("store room", "wrong", seen, "free some space, or set PREJIT_CACHE_DIR to another disk")


def check_jax() -> Iterator[Finding]:
    """Import JAX and look at its devices and at settings of it that work against prejit."""
    try:
        import jax

        devices = cast("list[Any]", jax.devices())
    except (ImportError, RuntimeError) as error:
        first_line = (str(error).splitlines() or [type(error).__name__])[0]
        hint = "install the jaxlib or plugin of this platform, or set JAX_PLATFORMS=cpu"
        yield Finding("devices", "wrong", f"JAX has none: {first_line}", hint)
        return
    kinds = sorted({(device.platform, device.device_kind) for device in devices})
    text = ", ".join(f"{platform_name} ({kind})" for platform_name, kind in kinds)
    yield Finding("devices", "ok", f"{len(devices)}: {text}")
    values = {name: getattr(jax.config, name) for name in _TELLING_JAX_SETTINGS}
    if values["jax_disable_jit"]:
        yield Finding("jax_disable_jit", "note", "on: nothing is compiled", "unset JAX_DISABLE_JIT")
    if values["jax_debug_nans"] or values["jax_debug_infs"]:
        hint = "unset JAX_DEBUG_NANS and JAX_DEBUG_INFS"
        yield Finding("jax_debug_nans", "note", "on: components fall back to plain jax.jit", hint)
    if values["jax_compilation_cache_dir"]:
        text = f"JAX keeps one in {values['jax_compilation_cache_dir']}, so prejit leaves eager operations to it"
        hint = "unset jax_compilation_cache_dir (JAX_COMPILATION_CACHE_DIR) and prejit stores them"
        yield Finding("jax's own cache", "note", text, hint)


def run_checks() -> list[Finding]:
    """Run every check, the quick ones first.

    Returns:
        What they found, in the order in which it is shown.
    """
    return [*check_packages(), *check_settings(os.environ), *check_store(config.settings()), *check_jax()]
