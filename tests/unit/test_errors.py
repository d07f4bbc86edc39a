import copy
import errno
import pickle

import pytest

from prejit import errors
from prejit.errors import PrejitError, PrejitWarning, mismatch, summarize

ERRORS = [
    value
    for name in errors.__all__
    if isinstance(value := getattr(errors, name), type) and issubclass(value, PrejitError)
]
WARNINGS = [
    value for name in errors.__all__ if isinstance(value := getattr(errors, name), type) and issubclass(value, Warning)
]
SAMPLE = {
    "name": "max_size", "expected": "an int", "got": "'x'", "reason": "why", "path": "/p", "version": 2, "supported": 1,
    "size_bytes": 11, "limit_bytes": 10, "operation": "publish", "errno": errno.ENOSPC,
}  # fmt: skip


def make(kind):
    return kind("doing: expected a, got b", hint="do c", **{name: SAMPLE[name] for name in kind.field_names})


@pytest.mark.parametrize("kind", ERRORS)
@pytest.mark.parametrize("duplicate", [lambda error: pickle.loads(pickle.dumps(error)), copy.copy, copy.deepcopy])
def test_errors_survive_pickling_with_their_fields(kind, duplicate):
    error = make(kind)
    again = duplicate(error)
    assert type(again) is kind
    assert str(again) == str(error) == "doing: expected a, got b\nhint: do c"
    assert again.fields == error.fields == {name: SAMPLE[name] for name in kind.field_names}
    assert again.code == kind.code


def test_notes_survive_pickling():
    error = make(errors.StoreError)
    error.add_note("while warming up")
    assert pickle.loads(pickle.dumps(error)).__notes__ == ["while warming up"]


def test_codes_are_distinct():
    codes = [kind.code for kind in ERRORS]
    assert len(set(codes)) == len(codes)


def test_every_error_and_warning_is_in_the_drawn_tree():
    for kind in ERRORS + WARNINGS:
        assert kind.__name__ in errors.__doc__


@pytest.mark.parametrize(
    ("kind", "builtin"),
    [
        (errors.ConfigError, ValueError),
        (errors.KeyingError, TypeError),
        (errors.StoreRefused, PermissionError),
        (errors.StoreUnavailable, OSError),
        (errors.CorruptEntry, ValueError),
        (errors.UnsupportedFormat, ValueError),
        (errors.EntryTooLarge, ValueError),
    ],
)
def test_what_users_catch_already_still_catches(kind, builtin):
    with pytest.raises(builtin):
        raise make(kind)


def test_warnings_have_one_root():
    assert all(issubclass(kind, PrejitWarning) for kind in WARNINGS)
    assert issubclass(PrejitWarning, UserWarning)


def test_without_a_hint_the_message_is_one_line():
    assert str(PrejitError("doing: expected a, got b")) == "doing: expected a, got b"


def test_the_grammar():
    assert mismatch("doing", expected="a", got="b", at="args[0]['w']") == "doing: expected a, got b at args[0]['w']"
    assert summarize("abc") == "a\nb\nc"
    assert summarize("abcdefg").splitlines()[-1] == "... and 2 more"
