"""The environment group of a key: versions, platform, devices, options, flags, meshes."""

from __future__ import annotations

import enum
import functools
import json
import os
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import jax

from prejit._jax import environment as around
from prejit.errors import KeyingError
from prejit.key.component_key import FORMAT, Ingredient
from prejit.key.cpu import cpu_features, cpu_model
from prejit.key.encoding import digest_of
from prejit.key.options import COMPILE_ONLY, IGNORED_FLAGS, IRRELEVANT, MATTERS
from prejit.key.placement import device_index, mesh_token
from prejit.key.values import value_token

Kind = Literal["executable", "module"]

_CACHE_SIZE = 64
_cache: dict[Any, tuple[Ingredient, ...]] = {}
_lock = threading.Lock()
_names: tuple[int, tuple[str, ...]] = (-1, ())


def environment_ingredients(
    kind: Kind,
    *,
    platform: str,
    devices: Sequence[Any],
    compiler_options: Mapping[str, Any] | None = None,
) -> tuple[Ingredient, ...]:
    """Return what the calling thread's surroundings contribute to a key.

    Args:
        kind: `executable` for machine code; `module` for portable code, which needs neither the CPU nor XLA's flags.
        platform: What it is for, such as `cpu`.
        devices: The devices of its assignment, in order.
        compiler_options: What is passed to XLA for this compile only.

    Returns:
        Ingredients in a fixed order. JAX options appear only where they differ from the usual value.

    Raises:
        KeyingError: A user context of JAX's, a compiler option or a default device holds something without an identity.

    **Threads**: options and meshes are those of the calling thread. Cached per state: about 15 us when nothing changed.
    """
    names = _relevant_names()
    values = around.option_values(names)
    options = _options_key(compiler_options)
    mesh = around.concrete_mesh()
    context = around.trace_context()
    if around.has_user_context(context):
        # JAX compares contexts with ==, by which 0 is False; a key must not.
        return tuple(_ingredients(kind, platform, devices, options, dict(zip(names, values, strict=True)), mesh))
    state = (kind, platform, tuple(devices), options, names, values, tuple(map(type, values)), context, mesh)
    found = _cache.get(state)
    if found is None:
        found = tuple(_ingredients(kind, platform, devices, options, dict(zip(names, values, strict=True)), mesh))
        with _lock:
            while len(_cache) >= _CACHE_SIZE:
                del _cache[next(iter(_cache))]
            _cache[state] = found
    return found


def _relevant_names() -> tuple[str, ...]:
    global _names
    count, names = _names
    if count != around.nr_options():
        everything = around.option_names()
        names = tuple(sorted(name for name in everything if name not in IRRELEVANT))
        _names = (len(everything), names)
    return names


def _options_key(options: Mapping[str, Any] | None) -> tuple[tuple[str, str], ...]:
    return tuple(
        sorted((str(name), _option_text(f"compiler option {name}", value)) for name, value in (options or {}).items())
    )


def _ingredients(
    kind: Kind,
    platform: str,
    devices: Sequence[Any],
    compiler_options: tuple[tuple[str, str], ...],
    options: Mapping[str, Any],
    mesh: Any,
) -> Iterator[Ingredient]:
    jax_version, jaxlib_version = around.versions()
    yield Ingredient("prejit", f"format {FORMAT}")
    # Two ingredients per kind, so that a module's can later say the export compatibility window instead.
    yield Ingredient(f"{kind}.jax", jax_version)
    yield Ingredient(f"{kind}.jaxlib", jaxlib_version)
    yield Ingredient("platform", platform)
    yield Ingredient("nr_devices", str(len(devices)))
    if kind == "executable":
        yield from _target(platform, devices)
        yield from _flags()
        for name, value in compiler_options:
            yield Ingredient(f"compiler_option.{name}", value)
    usual = {**MATTERS, **(COMPILE_ONLY if kind == "executable" else {})}
    for name in sorted(options):
        if kind == "module" and name in COMPILE_ONLY:
            continue
        text = _option_text(name, options[name])
        if text != usual.get(name):
            yield Ingredient(f"option.{name}", text)
    yield from _contexts(mesh)


def _target(platform: str, devices: Sequence[Any]) -> Iterator[Ingredient]:
    kinds = sorted({str(device.device_kind) for device in devices})
    yield Ingredient("device_kind", ", ".join(kinds))
    if devices:
        version, plugin = around.backend_version(devices[0])
        yield Ingredient("platform_version", version)
        if plugin:
            yield Ingredient("plugin", plugin)
    capabilities = sorted({around.compute_capability(device) for device in devices} - {""})
    if capabilities:
        yield Ingredient("compute_capability", ", ".join(capabilities))
    # XLA's GPU and TPU executables hold host code only for the calls around kernels; the CPU's is all host code.
    if platform == "cpu":
        yield Ingredient("cpu_model", cpu_model())
        yield Ingredient("cpu_features", cpu_features())


def _flags() -> Iterator[Ingredient]:
    yield Ingredient("xla_options", _effective_options())
    for variable in ("XLA_FLAGS", "LIBTPU_INIT_ARGS"):
        for name, value in _flag_snapshot(variable):
            yield Ingredient(f"{variable}.{name}", value)


@functools.cache
def _effective_options() -> str:
    return digest_of(around.effective_debug_options())


@functools.cache
def _flag_snapshot(variable: str) -> tuple[tuple[str, str], ...]:
    # The backend is up when this is first called, so XLA has read the variable, and will not read it again.
    return parse_flags(os.environ.get(variable, ""))


def parse_flags(text: str) -> tuple[tuple[str, str], ...]:
    """Split a flags variable into flags that matter, sorted; of a flag given twice the last one counts.

    Args:
        text: Such as `--xla_cpu_enable_fast_math=true --xla_dump_to=/tmp`. A text that does not start with `-` names a
            file of flags, as XLA takes it; what XLA made of it is an ingredient of its own, so it gives nothing here.

    Returns:
        Pairs of name and value. A flag without a value is `true`, as XLA reads it.

    Example:
        >>> parse_flags("--xla_b=2 --xla_a --xla_dump_to=/tmp --xla_b=3")
        (('xla_a', 'true'), ('xla_b', '3'))
    """
    flags: dict[str, str] = {}
    if text.lstrip().startswith("-"):
        for name, value in re.findall(r"""--?([\w.-]+)(=(?:"[^"]*"|'[^']*'|\S*))?""", text):
            flags[name] = value[1:].strip("\"'") if value else "true"
    return tuple(sorted((name, value) for name, value in flags.items() if not _is_ignored(name)))


def _is_ignored(name: str) -> bool:
    return name in IGNORED_FLAGS or name.startswith("xla_dump_")


def _option_text(name: str, value: Any) -> str:
    if value is None or type(value) in (bool, int, float, str):
        return json.dumps(value)
    if isinstance(value, enum.Enum):
        return f"{type(value).__qualname__}.{value.name}"
    if isinstance(value, jax.Device):
        return f"{value.platform}:{device_index(value)}"
    return _digest_text(name, value)


def _digest_text(name: str, value: Any) -> str:
    try:
        return digest_of(value_token(value))
    except KeyingError as error:
        raise KeyingError(
            f"building the environment of the key: expected plain data, got {type(value).__qualname__} at {name}",
            reason=f"{name}: {error.reason}",
            path=name,
        ) from error


def _contexts(mesh: Any) -> Iterator[Ingredient]:
    if mesh is not None:
        yield Ingredient("mesh.concrete", digest_of(mesh_token(mesh)))
    ambient = jax.sharding.get_abstract_mesh()
    if not ambient.empty:
        yield Ingredient("mesh.ambient", digest_of(mesh_token(ambient)))
    # User contexts all have one name, so they are told apart by the order in which they were made.
    seen: dict[str, int] = {}
    for name, value in around.contexts():
        seen[name] = seen.get(name, -1) + 1
        if name == "abstract_mesh_context_manager" or _is_at_rest(name, value):
            continue
        label = f"context.{name}.{seen[name]}" if seen[name] else f"context.{name}"
        yield Ingredient(label, _digest_text(label, value))


def _is_at_rest(name: str, value: Any) -> bool:
    """Say whether a context has the value that it has outside any `with`, so that making it does not change keys."""
    if value is None or name == "user_context":
        return value is None
    if name.startswith("pallas_"):
        return value is False  # Pallas makes some when it is first imported (0.12).
    if around.axis_env_is_empty(value) or getattr(value, "name", None) == "AUTO":
        return True
    return isinstance(value, tuple | frozenset) and not value
