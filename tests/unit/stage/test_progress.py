import io
import sys
import threading
import time
from contextvars import copy_context

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


def _lines(stream):
    return [line.strip() for line in stream.getvalue().split("\r") if line.strip()]


def test_a_group_says_how_far_it_is_and_what_compiles(quick, monkeypatch):
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    with progress.group("train_step", 3) as group:
        with progress.compiling("layer"), progress.compiling("head"):
            time.sleep(0.2)
        group.one_done()
        time.sleep(0.1)
        with progress.compiling("tail"):
            group.one_done()
            time.sleep(0.2)
    lines = _lines(stream)
    assert "prejit: train_step: 0 of 3 done, compiling layer, 0 s (1 more)" in lines
    assert "prejit: train_step: 1 of 3 done" in lines
    assert lines[-1] == "prejit: train_step: 2 of 3 done, compiling tail, 0 s"
    assert stream.getvalue().endswith("\r"), "the line is wiped"
    assert progress._display.items == []


def test_threads_of_a_group_belong_to_it_and_others_are_a_number(quick, monkeypatch):
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)

    def work(name, seconds):
        with progress.compiling(name):
            time.sleep(seconds)

    other = threading.Thread(target=work, args=("other", 0.4))
    other.start()
    time.sleep(0.1)
    with progress.group("train_step", 1):
        own = threading.Thread(target=copy_context().run, args=(work, "layer", 0.2))
        own.start()
        own.join()
    other.join()
    lines = _lines(stream)
    assert "prejit: train_step: 0 of 1 done, compiling layer, 0 s (1 more)" in lines
    assert lines[-1] == "prejit: compiling other, 0 s", "which goes on by itself"


def test_what_a_group_leaves_behind_is_shown_no_more(quick, monkeypatch):
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    end = threading.Event()

    def work():
        with progress.compiling("first"):
            end.wait(60)
        with progress.compiling("second"):
            time.sleep(0.1)

    with progress.group("train_step", 2):
        thread = threading.Thread(target=copy_context().run, args=(work,))
        thread.start()
        time.sleep(0.2)
    shown_before = stream.getvalue()
    assert "first" in shown_before
    assert shown_before.endswith("\r")
    end.set()
    thread.join()
    assert stream.getvalue() == shown_before


def test_a_short_group_shows_nothing(monkeypatch):
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    with progress.group("train_step", 50) as group:
        for _ in range(50):
            with progress.compiling("quick"):
                group.one_done()
    assert stream.getvalue() == ""


def test_a_group_that_is_not_shown_counts_all_the_same(monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    with progress.group("train_step", 2) as group:
        group.one_done()
    assert (group.nr_done, group.nr_all) == (1, 2)
    assert stream.getvalue() == ""


def test_the_line_is_no_wider_than_the_terminal(quick, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    with progress.group("a" * 30, 12), progress.compiling("b" * 100):
        time.sleep(0.2)
    assert max(map(len, stream.getvalue().split("\r"))) == 39


def test_a_broken_stderr_fails_no_compile(quick, monkeypatch):
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    with progress.group("train_step", 2), progress.compiling("layer"):
        time.sleep(0.1)
        stream.close()
        time.sleep(0.1)


def test_without_more_threads_nothing_is_shown(quick, monkeypatch):
    def start(self):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    assert shown(Terminal(), "on", 0.1, monkeypatch) == ""
