import io
import sys
import time

import pytest

from prejit import config
from prejit.stage import progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(progress, "_DELAY_S", 0.02)
    monkeypatch.setattr(progress, "_PERIOD_S", 0.02)


def shown(stream, setting, seconds, monkeypatch):
    monkeypatch.setattr(sys, "stderr", stream)
    with config.override(progress=setting), progress.compiling("my_layer"):
        time.sleep(seconds)
    return stream.getvalue() if stream is not None else ""


@pytest.mark.parametrize(
    ("stream", "setting", "is_shown"),
    [
        (Terminal, "auto", True),
        (io.StringIO, "auto", False),
        (io.StringIO, "on", True),
        (Terminal, "off", False),
        (Terminal, "on", True),
    ],
)
def test_a_long_compile_is_shown_where_it_should_be(stream, setting, is_shown, quick, monkeypatch):
    text = shown(stream(), setting, 0.3, monkeypatch)
    assert ("compiling my_layer" in text) == is_shown
    if is_shown:
        assert text.endswith("\r"), "the line is wiped"
        assert "\n" not in text


def test_a_short_compile_shows_nothing(monkeypatch):
    assert shown(Terminal(), "on", 0.0, monkeypatch) == ""


def test_no_stderr_at_all(monkeypatch):
    assert shown(None, "auto", 0.0, monkeypatch) == ""


def _fail_later():
    time.sleep(0.2)
    raise KeyError


def test_the_line_goes_when_the_compile_fails(quick, monkeypatch):
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    with pytest.raises(KeyError), progress.compiling("failing"):
        _fail_later()
    assert stream.getvalue().endswith("\r")
    assert progress._display.items == []


def test_others_are_a_number_on_the_line(quick, monkeypatch):
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    with progress.compiling("first"), progress.compiling("second"):
        time.sleep(0.3)
    assert "compiling first" in stream.getvalue()
    assert "(1 more)" in stream.getvalue()
