"""Settings: argument > context manager > `configure()` > `PREJIT_*` environment > defaults.

The environment is looked at once, when this module is imported, and parsed when the settings are first asked for: a
wrong value there warns and is ignored, so an import never fails because of it. Nothing here creates a directory.
"""

import dataclasses
import functools
import math
import os
import re
import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Literal, TypedDict, Unpack, cast

from prejit.errors import ConfigError, PrejitWarning, mismatch, warn_user

__all__ = [
    "Options",
    "Settings",
    "configure",
    "disabled",
    "generation",
    "is_enabled",
    "override",
    "parse_size",
    "reset",
    "settings",
]

GIB = 1024**3

Progress = Literal["auto", "on", "off"]
Link = Literal["auto", "inline", "outline", "separate"]


@dataclasses.dataclass(frozen=True, slots=True)
class Settings:
    """Hold every setting that is in force at one place in the program.

    Attributes:
        cache_dir: Directory of the disk store; None keeps everything in memory. `PREJIT_CACHE_DIR`; default: `prejit`
            in the user's cache directory.
        max_size_bytes: Cap of the disk store; None is no cap. `max_size` in `configure`, `PREJIT_MAX_SIZE`.
        memory_max_size_bytes: Cap of the memory tier, which always has one. `memory_max_size` in `configure`,
            `PREJIT_MEMORY_MAX_SIZE`.
        enabled: False makes everything plain `jax.jit`. `PREJIT_DISABLE=1`.
        strict: A failing store raises instead of computing without it. `PREJIT_STRICT`.
        eager_cache: JAX's own compilation cache is backed by the store. `PREJIT_EAGER_CACHE`.
        read_only: The disk store is read and never written. `PREJIT_READ_ONLY`.
        lock_timeout_s: Longest wait for another process that compiles the same thing. `PREJIT_LOCK_TIMEOUT`.
        progress: When long compiles show a progress line: `auto` is on a terminal. `PREJIT_PROGRESS`.
        hoist_bytes: Constants larger than this become arguments of the compiled module. `PREJIT_HOIST_BYTES`.
        link: How pieces are linked: `auto`, `inline`, `outline` or `separate`. `PREJIT_LINK`.
        compile_threads: How many pieces of a program compile at once; None is as many as this process may use CPUs.
            `PREJIT_COMPILE_THREADS`.

    Example:
        >>> Settings(cache_dir=None).lock_timeout_s
        600.0
    """

    cache_dir: Path | None
    max_size_bytes: int | None = 10 * GIB
    memory_max_size_bytes: int = GIB
    enabled: bool = True
    strict: bool = False
    eager_cache: bool = True
    read_only: bool = False
    lock_timeout_s: float = 600.0
    progress: Progress = "auto"
    hoist_bytes: int = 65536
    link: Link = "auto"
    compile_threads: int | None = None


class Options(TypedDict, total=False):
    """Name what `configure` and `override` accept."""

    cache_dir: str | os.PathLike[str] | None
    max_size: int | str | None
    memory_max_size: int | str
    enabled: bool
    strict: bool
    eager_cache: bool
    read_only: bool
    lock_timeout_s: float
    progress: Progress
    hoist_bytes: int
    link: Link
    compile_threads: int | None


# -- values -----------------------------------------------------------------------------------------------------------

_UNITS = {"": 1, "b": 1} | {
    f"{prefix}{suffix}": base**power
    for power, prefix in enumerate("kmgtp", start=1)
    for suffix, base in (("b", 1000), ("ib", 1024))
}
_SIZE = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([a-z]*)\s*", re.IGNORECASE)
_SIZE_EXPECTED = "a number of bytes such as 500000000, '500MB' or '10GiB'"
_TRUE = frozenset({"1", "true", "yes", "on"})
_FALSE = frozenset({"0", "false", "no", "off"})


class _BadValueError(ValueError):
    """Carry what would have been accepted from a parser to the message."""


def parse_size(value: int | str) -> int:
    """Read a size in bytes.

    Args:
        value: A count of bytes, or a text with a unit: `kB MB GB TB PB` are powers of 1000, `KiB MiB GiB TiB PiB`
            powers of 1024; letter case does not matter.

    Returns:
        The size in bytes.

    Raises:
        ValueError: The text is not a size; the message says what is.

    Example:
        >>> parse_size("10GiB"), parse_size("500MB"), parse_size("1.5 kB"), parse_size(7)
        (10737418240, 500000000, 1500, 7)
    """
    if isinstance(value, str):
        match = _SIZE.fullmatch(value)
        unit = _UNITS.get(match[2].lower()) if match else None
        if match is None or unit is None:
            raise _BadValueError(_SIZE_EXPECTED)
        return int(match[1]) * unit if match[1].isdecimal() else int(float(match[1]) * unit)
    return _whole(value)


def _whole(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise _BadValueError("a whole number that is not negative")
    return value


def _positive_or_none(value: object) -> int | None:
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
        raise _BadValueError("a whole number from 1 up, or None")
    return value


def _size(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int | str) or (isinstance(value, int) and value < 0):
        raise _BadValueError(_SIZE_EXPECTED)
    return parse_size(value)


def _size_or_none(value: object) -> int | None:
    return None if value is None else _size(value)


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise _BadValueError("True or False")
    return value


def _seconds(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise _BadValueError("a finite number of seconds that is not negative")
    return float(value)


def _directory(value: object) -> Path | None:
    if value is None:
        return None
    if not isinstance(value, str | os.PathLike):
        raise _BadValueError("a path, or None for no directory")
    text = cast("object", os.fspath(cast("os.PathLike[str]", value)))  # a path of bytes gives bytes
    if not isinstance(text, str) or "\0" in text:
        raise _BadValueError("a path as text")
    # Absolute now, so that a later chdir does not move the store.
    return Path(os.path.abspath(os.path.expanduser(text))) if text else None


def _word(*words: str) -> Callable[[object], str]:
    def check(value: object) -> str:
        if not isinstance(value, str) or value not in words:
            raise _BadValueError("one of " + ", ".join(repr(word) for word in words))
        return value

    return check


def _flag_text(text: str) -> bool:
    lowered = text.strip().lower()
    if lowered not in _TRUE | _FALSE:
        raise _BadValueError("1 or 0")
    return lowered in _TRUE


def _inverted_flag_text(text: str) -> bool:
    return not _flag_text(text)


def _whole_text(text: str) -> int:
    if not text.strip().isdecimal():
        raise _BadValueError("a whole number that is not negative")
    return int(text)


def _positive_or_none_text(text: str) -> int | None:
    if text.strip().lower() == "none":
        return None
    return _positive_or_none(int(text) if text.strip().isdecimal() else text)


def _seconds_text(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    return _seconds(value)


def _size_or_none_text(text: str) -> int | None:
    return None if text.strip().lower() == "none" else _size(text)


@dataclasses.dataclass(frozen=True, slots=True)
class _Option:
    """Say where one setting comes from and what it accepts."""

    field: str
    variable: str
    check: Callable[[object], object]
    parse: Callable[[str], object]


_OPTIONS: Mapping[str, _Option] = {
    "cache_dir": _Option("cache_dir", "PREJIT_CACHE_DIR", _directory, _directory),
    "max_size": _Option("max_size_bytes", "PREJIT_MAX_SIZE", _size_or_none, _size_or_none_text),
    "memory_max_size": _Option("memory_max_size_bytes", "PREJIT_MEMORY_MAX_SIZE", _size, _size),
    "enabled": _Option("enabled", "PREJIT_DISABLE", _flag, _inverted_flag_text),
    "strict": _Option("strict", "PREJIT_STRICT", _flag, _flag_text),
    "eager_cache": _Option("eager_cache", "PREJIT_EAGER_CACHE", _flag, _flag_text),
    "read_only": _Option("read_only", "PREJIT_READ_ONLY", _flag, _flag_text),
    "lock_timeout_s": _Option("lock_timeout_s", "PREJIT_LOCK_TIMEOUT", _seconds, _seconds_text),
    "progress": _Option("progress", "PREJIT_PROGRESS", *[_word("auto", "on", "off")] * 2),
    "hoist_bytes": _Option("hoist_bytes", "PREJIT_HOIST_BYTES", _whole, _whole_text),
    "link": _Option("link", "PREJIT_LINK", *[_word("auto", "inline", "outline", "separate")] * 2),
    "compile_threads": _Option("compile_threads", "PREJIT_COMPILE_THREADS", _positive_or_none, _positive_or_none_text),
}
_PREFIX = "PREJIT_"
_VARIABLES = {option.variable: option for option in _OPTIONS.values()}


def _checked(options: Mapping[str, object], doing: str) -> dict[str, object]:
    fields: dict[str, object] = {}
    for name, value in options.items():
        option = _OPTIONS.get(name)
        if option is None:
            import difflib

            names = ", ".join(sorted(_OPTIONS))
            close = difflib.get_close_matches(name, _OPTIONS, n=1)
            raise ConfigError(
                mismatch(doing, expected=f"one of {names}", got=repr(name)),
                name=name,
                expected=names,
                got=name,
                hint=f"did you mean {close[0]}?" if close else "remove it, or update prejit if it is a newer setting",
            )
        try:
            fields[option.field] = option.check(value)
        except _BadValueError as error:
            got = repr(value)[:80]
            raise ConfigError(
                mismatch(doing, expected=str(error), got=got, at=name),
                name=name,
                expected=str(error),
                got=got,
                hint=f"help(prejit.Settings) says what {name} is"
                + (f", there as {option.field}" if option.field != name else ""),
            ) from None
    return fields


# -- state ------------------------------------------------------------------------------------------------------------

_lock = threading.Lock()
_environment: dict[str, str] = {}
_configured: dict[str, object] = {}
_process: Settings | None = None
_generation = 0
_overrides: ContextVar[Mapping[str, object] | None] = ContextVar("prejit_overrides", default=None)

# Read on every dispatch, so the plain case touches two globals and nothing else: 35 ns here, 70 ns once any
# `disabled()` has been entered in this process (2026-12).
_enabled = True
_enabled_differs_by_context = False
_enabled_here: ContextVar[bool | None] = ContextVar("prejit_enabled", default=None)


def is_enabled() -> bool:
    """Tell whether prejit does anything here, at the cost of two global reads.

    **Threads**: any; an override counts for its own context only.

    Example:
        >>> with disabled():
        ...     is_enabled()
        False
    """
    if _enabled_differs_by_context:
        here = _enabled_here.get()
        if here is not None:
            return here
    return _enabled


def generation() -> int:
    """Count the calls of `configure`, so that what was built from older settings can be rebuilt.

    Example:
        >>> before = generation()
        >>> configure(strict=False)
        >>> generation() > before
        True
    """
    return _generation


@functools.cache
def _default_cache_dir() -> Path | None:
    import platformdirs

    path = platformdirs.user_cache_path("prejit", appauthor=False)
    # Without a home directory the path keeps its "~": no place to write is better than a directory of that name.
    return None if str(path).startswith("~") else path.absolute()


def _parse_environment() -> tuple[dict[str, object], list[str]]:
    fields: dict[str, object] = {}
    problems: list[str] = []
    for variable, text in sorted(_environment.items()):
        option = _VARIABLES.get(variable)
        if option is None:
            import difflib

            # The common beginning would make everything close.
            known = [name.removeprefix(_PREFIX) for name in _VARIABLES]
            close = difflib.get_close_matches(variable.removeprefix(_PREFIX), known, n=1)
            hint = f"did you mean {_PREFIX}{close[0]}?" if close else "unset it"
            problems.append(f"ignoring {variable}: it is not a variable that prejit knows\nhint: {hint}")
        elif text.strip() or option.field == "cache_dir":
            try:
                fields[option.field] = option.parse(text)
            except _BadValueError as error:
                problems.append(
                    mismatch(f"ignoring {variable}", expected=str(error), got=repr(text[:80]))
                    + f"\nhint: correct or unset {variable}"
                )
    return fields, problems


def _load() -> Settings:
    """Build the process-wide settings, warning about the environment the first time."""
    global _process, _enabled
    with _lock:
        if _process is not None:
            return _process
        fields, problems = _parse_environment()
        fields |= _configured
        if "cache_dir" not in fields:
            fields["cache_dir"] = _default_cache_dir()
        loaded = Settings(**fields)  # pyright: ignore[reportArgumentType]  # every value went through its check
        _process = loaded
        _enabled = loaded.enabled
    for problem in problems:
        warn_user(problem, PrejitWarning)
    return loaded


def settings() -> Settings:
    """Return the settings in force here.

    **Threads**: any; an override counts for its own context only.

    Example:
        >>> with override(max_size="1GiB"):
        ...     settings().max_size_bytes
        1073741824
    """
    current = _process or _load()
    overrides = _overrides.get()
    return current if overrides is None else dataclasses.replace(current, **overrides)


def configure(**options: Unpack[Options]) -> None:
    """Change settings for the whole process.

    Args:
        **options: See `prejit.Settings`. Sizes are `max_size` and `memory_max_size`, in bytes or as `"10GiB"`;
            `max_size=None` is no cap, memory always has one; `cache_dir=None` or `""` keeps everything in memory.

    Raises:
        ConfigError: A name is unknown (the message lists the known ones and the closest), or a value is of the wrong
            kind (the message says which is right). Nothing is changed then.

    **Effects**: the store is rebuilt at its next use if what it was built from changed.

    Example:
        >>> configure(max_size="20GiB", strict=False)
        >>> settings().max_size_bytes
        21474836480
    """
    global _process, _generation, _enabled
    fields = _checked(cast("Mapping[str, object]", options), "configuring prejit")
    _load()
    with _lock:
        _configured.update(fields)
        current = cast("Settings", _process)
        _process = dataclasses.replace(current, **fields)  # pyright: ignore[reportArgumentType]  # checked
        _enabled = _process.enabled
        _generation += 1


@contextmanager
def override(**options: Unpack[Options]) -> Generator[Settings]:
    """Change settings for a block, in this thread or task only.

    Args:
        **options: As for `configure`.

    Returns:
        A context manager that gives the settings in force inside.

    Raises:
        ConfigError: As for `configure`.

    Example:
        >>> with override(strict=True) as inside:
        ...     inside.strict
        True
    """
    global _enabled_differs_by_context
    fields = _checked(cast("Mapping[str, object]", options), "overriding settings")
    outer = _overrides.get()
    token = _overrides.set({**(outer or {}), **fields})
    enabled_token = None
    if "enabled" in fields:
        _enabled_differs_by_context = True
        enabled_token = _enabled_here.set(bool(fields["enabled"]))
    try:
        yield settings()
    finally:
        if enabled_token is not None:
            _enabled_here.reset(enabled_token)
        _overrides.reset(token)


@contextmanager
def disabled() -> Generator[None]:
    """Make every component and program exactly `jax.jit` for a block.

    Example:
        >>> with disabled():
        ...     settings().enabled
        False
    """
    with override(enabled=False):
        yield


def reset(environment: Mapping[str, str] | None = None) -> None:
    """Forget what was configured and look at the environment again.

    Args:
        environment: What to take instead of `os.environ`.

    Example:
        >>> reset({"PREJIT_MAX_SIZE": "1GiB"})
        >>> settings().max_size_bytes
        1073741824
        >>> reset()
    """
    global _process, _generation, _enabled
    source = os.environ if environment is None else environment
    with _lock:
        _environment.clear()
        _environment.update({name: text for name, text in source.items() if name.startswith(_PREFIX)})
        _configured.clear()
        _process = None
        _generation += 1
        # The one setting that is read before anybody asks for the settings.
        _enabled = _environment.get("PREJIT_DISABLE", "").strip().lower() not in _TRUE


reset()
