"""Every error and warning that prejit raises, in one tree.

::

    PrejitError (Exception)
    ├── ConfigError (ValueError)            a setting that does not exist or has a wrong value
    ├── KeyingError (TypeError)             something that can't be part of a key
    └── StoreError                          a failing store; raised only when the store is strict
        ├── CorruptEntry (ValueError)       bytes that are not the entry that was written
        ├── UnsupportedFormat (ValueError)  an intact entry in a newer format; another prejit can read it
        ├── EntryTooLarge (ValueError)      an entry above the store's cap or the format's limits
        ├── StoreRefused (PermissionError)  a directory or file that another user could have written
        └── StoreUnavailable (OSError)      a file-system operation that failed

    PrejitWarning (UserWarning)
    ├── StoreWarning                        the store can't be used; computing goes on without it
    ├── KeyReuse                            one explicit key, two different functions
    └── LinkWarning                         a part of a program did not compile; the program is one module

Every error pickles, has a stable `code` and typed fields, and says: what failed, what was expected, what came
instead and where, then one hint. Fields are plain values, so an error crosses the wire as its code and fields.
"""

import contextlib
import inspect
import warnings
from collections.abc import Generator, Iterable
from contextvars import ContextVar
from typing import ClassVar

__all__ = [
    "ConfigError",
    "CorruptEntry",
    "EntryTooLarge",
    "KeyReuse",
    "KeyingError",
    "LinkWarning",
    "PrejitError",
    "PrejitWarning",
    "StoreError",
    "StoreRefused",
    "StoreUnavailable",
    "StoreWarning",
    "UnsupportedFormat",
    "holding_warnings",
    "mismatch",
    "summarize",
    "warn_user",
]

_SHOWN = 5


def mismatch(what: str, *, expected: object, got: object, at: str = "") -> str:
    """Write one line of the message grammar.

    Args:
        what: What failed, as a phrase without a final stop.
        expected: What would have been right.
        got: What was there instead; never a whole array.
        at: Where, as a path such as `args[0]['w']`; left out when empty.

    Returns:
        `<what>: expected <expected>, got <got> at <at>`.

    Example:
        >>> mismatch("reading the setting", expected="a bool", got="'maybe'", at="PREJIT_STRICT")
        "reading the setting: expected a bool, got 'maybe' at PREJIT_STRICT"
    """
    return f"{what}: expected {expected}, got {got}" + (f" at {at}" if at else "")


def summarize(lines: Iterable[str]) -> str:
    """Join mismatches, five at most, then a count of the rest.

    Example:
        >>> print(summarize(str(n) for n in range(7)))
        0
        1
        2
        3
        4
        ... and 2 more
    """
    kept = list(lines)
    shown = kept[:_SHOWN]
    if len(kept) > _SHOWN:
        shown.append(f"... and {len(kept) - _SHOWN} more")
    return "\n".join(shown)


_OURS = ("prejit", "jax", "jaxlib")


def levels_to_user() -> int:
    """Count the frames from the function that warns to the first one of a user's, for `stacklevel`.

    Example:
        >>> mine = {"__name__": "mine", "levels_to_user": levels_to_user}
        >>> eval("levels_to_user()", mine)
        1
    """
    frame = inspect.currentframe()
    levels = 0  # the function that asks is level 1
    while frame is not None and str(frame.f_globals.get("__name__", "")).partition(".")[0] in _OURS:
        levels, frame = levels + 1, frame.f_back
    return max(levels, 1)


_held: ContextVar[list[tuple[str, type[Warning]]] | None] = ContextVar("held_warnings", default=None)


def warn_user(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the line of the user's that led here; in a thread of ours, hand the warning to who waits for it."""
    held = _held.get()
    if held is None:
        warnings.warn(message, category, stacklevel=levels_to_user())
    else:
        held.append((message, category))


@contextlib.contextmanager
def holding_warnings(held: list[tuple[str, type[Warning]]]) -> Generator[None]:
    """Put what `warn_user` gets into a list, in this context."""
    token = _held.set(held)
    try:
        yield
    finally:
        _held.reset(token)


def _rebuild(cls: "type[PrejitError]", message: str, hint: str, fields: dict[str, object]) -> "PrejitError":
    return cls(message, hint=hint, **fields)


class PrejitError(Exception):
    r"""Be caught where any failure of prejit itself is handled.

    Attributes:
        code: Stable name of the class, for programs and for the wire.
        message: What failed, without the hint.
        hint: One action that helps, or an empty string.

    Example:
        >>> str(PrejitError("loading the pack: expected a file, got a directory at /tmp", hint="name a file"))
        'loading the pack: expected a file, got a directory at /tmp\nhint: name a file'
    """

    code: ClassVar[str] = "error"
    field_names: ClassVar[tuple[str, ...]] = ()

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    @property
    def fields(self) -> dict[str, object]:
        """The typed fields of this error by name."""
        return {name: getattr(self, name) for name in self.field_names}

    def __str__(self) -> str:
        return f"{self.message}\nhint: {self.hint}" if self.hint else self.message

    def __reduce__(self) -> tuple[object, ...]:
        notes = getattr(self, "__notes__", None)
        state = {"__notes__": notes} if notes else None
        return _rebuild, (type(self), self.message, self.hint, self.fields), state


class ConfigError(PrejitError, ValueError):
    """Report a setting that does not exist or whose value can't be used.

    Attributes:
        name: The setting, as it was written.
        expected: What would have been accepted.
        got: What was given, shortened.

    Example:
        >>> ConfigError("configuring prejit: expected an int, got 'x' at max_size", name="max_size").name
        'max_size'
    """

    code: ClassVar[str] = "config"
    field_names: ClassVar[tuple[str, ...]] = ("name", "expected", "got")

    def __init__(self, message: str, *, name: str = "", expected: str = "", got: str = "", hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.name = name
        self.expected = expected
        self.got = got


class KeyingError(PrejitError, TypeError):
    """Report something that has no stable identity and so can't be part of a key.

    Attributes:
        reason: Why it has none.
        path: Where it was met, such as `args[0].activation`.

    Example:
        >>> KeyingError("building the key: expected plain data, got a socket", reason="no content", path="args[1]").path
        'args[1]'
    """

    code: ClassVar[str] = "keying"
    field_names: ClassVar[tuple[str, ...]] = ("reason", "path")

    def __init__(self, message: str, *, reason: str = "", path: str = "", hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.reason = reason
        self.path = path


class StoreError(PrejitError):
    """Report a store that failed. Only a strict store raises it; any other counts it and computes.

    Attributes:
        path: The file or directory, or an empty string for bytes that came from nowhere in particular.

    Example:
        >>> StoreError("writing the entry: expected room, got none", path="/cache").path
        '/cache'
    """

    code: ClassVar[str] = "store"
    field_names: ClassVar[tuple[str, ...]] = ("path",)

    def __init__(self, message: str, *, path: str = "", hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.path = path


class CorruptEntry(StoreError, ValueError):
    """Report bytes that are not the entry that was written: torn, flipped, foreign or misplaced.

    Attributes:
        path: The file, if there is one.
        reason: Which check failed.

    Example:
        >>> CorruptEntry("reading an entry: expected 10 bytes, got 9", reason="truncated").reason
        'truncated'
    """

    code: ClassVar[str] = "store.corrupt"
    field_names: ClassVar[tuple[str, ...]] = ("path", "reason")

    def __init__(self, message: str, *, path: str = "", reason: str = "", hint: str = "") -> None:
        super().__init__(message, path=path, hint=hint)
        self.reason = reason


class UnsupportedFormat(StoreError, ValueError):
    """Report an intact entry whose format this prejit can't read. It is a miss and is never deleted.

    Attributes:
        path: The file, if there is one.
        version: The format version that the entry states.
        supported: The newest version that this prejit reads.

    Example:
        >>> UnsupportedFormat("reading an entry: expected format 1, got 2", version=2, supported=1).version
        2
    """

    code: ClassVar[str] = "store.format"
    field_names: ClassVar[tuple[str, ...]] = ("path", "version", "supported")

    def __init__(self, message: str, *, path: str = "", version: int = 0, supported: int = 0, hint: str = "") -> None:
        super().__init__(message, path=path, hint=hint)
        self.version = version
        self.supported = supported


class EntryTooLarge(StoreError, ValueError):
    """Report an entry that is larger than the store may become, or than the format allows.

    Attributes:
        path: The file that it would have been.
        size_bytes: Its size.
        limit_bytes: The cap.

    Example:
        >>> EntryTooLarge("storing an entry: expected at most 10 bytes, got 11", size_bytes=11, limit_bytes=10).code
        'store.too_large'
    """

    code: ClassVar[str] = "store.too_large"
    field_names: ClassVar[tuple[str, ...]] = ("path", "size_bytes", "limit_bytes")

    def __init__(
        self, message: str, *, path: str = "", size_bytes: int = 0, limit_bytes: int = 0, hint: str = ""
    ) -> None:
        super().__init__(message, path=path, hint=hint)
        self.size_bytes = size_bytes
        self.limit_bytes = limit_bytes


class StoreRefused(StoreError, PermissionError):
    """Report a directory or file that is not trusted, because somebody else could have written it.

    Attributes:
        path: The directory or file.
        reason: Who could have written it.

    Example:
        >>> isinstance(StoreRefused("opening the store", path="/cache", reason="owned by uid 7"), PermissionError)
        True
    """

    code: ClassVar[str] = "store.refused"
    field_names: ClassVar[tuple[str, ...]] = ("path", "reason")

    def __init__(self, message: str, *, path: str = "", reason: str = "", hint: str = "") -> None:
        super().__init__(message, path=path, hint=hint)
        self.reason = reason


class StoreUnavailable(StoreError, OSError):
    """Report a file-system operation of the store that failed.

    Attributes:
        path: The file or directory.
        operation: What was tried, such as `publish`.
        errno: The system's error number, or None.

    Example:
        >>> import errno
        >>> StoreUnavailable("publishing an entry", operation="publish", errno=errno.ENOSPC).errno == errno.ENOSPC
        True
    """

    code: ClassVar[str] = "store.unavailable"
    field_names: ClassVar[tuple[str, ...]] = ("path", "operation", "errno")

    def __init__(
        self, message: str, *, path: str = "", operation: str = "", errno: int | None = None, hint: str = ""
    ) -> None:
        super().__init__(message, path=path, hint=hint)
        self.operation = operation
        self.errno = errno


class PrejitWarning(UserWarning):
    """Be filtered where all of prejit's warnings are handled.

    Example:
        >>> import warnings
        >>> with warnings.catch_warnings():
        ...     warnings.simplefilter("error", PrejitWarning)  # as a test suite may want it
        ...     try:
        ...         warnings.warn("the store is full", StoreWarning)
        ...     except PrejitWarning as warning:
        ...         print(type(warning).__name__)
        StoreWarning
    """


class StoreWarning(PrejitWarning):
    """Say, once per store, that it can't be used and what to do. Computing goes on.

    Example:
        >>> import warnings, prejit
        >>> with warnings.catch_warnings(record=True) as caught, prejit.use_store(prejit.Store("/dev/null/store")):
        ...     warnings.simplefilter("always")
        ...     float(prejit.component(lambda x: x * 2)(1.0))
        2.0
        >>> [warning.category.__name__ for warning in caught]
        ['StoreWarning']
    """


class KeyReuse(PrejitWarning):
    """Say that two functions with different code were given one explicit key.

    Example:
        >>> import warnings, prejit
        >>> first = prejit.component(lambda x: x + 1, key="example/step")
        >>> with warnings.catch_warnings(record=True) as caught:
        ...     warnings.simplefilter("always")
        ...     second = prejit.component(lambda x: x + 2, key="example/step")
        >>> caught[0].category is KeyReuse, float(second(1.0))  # one key, one component
        (True, 2.0)
    """


class LinkWarning(PrejitWarning):
    """Say that a part of a program could not be compiled on its own, so that the program is one module.

    Example:
        >>> import warnings, prejit
        >>> with warnings.catch_warnings():
        ...     warnings.simplefilter("error", LinkWarning)  # where one module would take too long to compile
        ...     float(prejit.jit(lambda x: x * 2)(1.0))
        2.0
    """
