import os
import pickle
import sys
import threading
import warnings
from pathlib import Path

import pytest

from prejit import config
from prejit.config import Settings, configure, disabled, is_enabled, override, parse_size, reset, settings
from prejit.errors import ConfigError, PrejitWarning


@pytest.fixture(autouse=True)
def _fresh():
    reset({})
    yield
    reset()


def test_defaults(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    config._default_cache_dir.cache_clear()
    reset({})
    current = settings()
    config._default_cache_dir.cache_clear()
    assert current == Settings(cache_dir=current.cache_dir)
    assert current.cache_dir.name == "prejit"
    assert current.max_size_bytes == 10 * 1024**3
    assert list(tmp_path.iterdir()) == [], "settings make no directory"


def test_argument_precedence_is_context_then_configure_then_environment_then_default(tmp_path):
    reset({"PREJIT_MAX_SIZE": "1MB"})
    assert settings().max_size_bytes == 10**6
    configure(max_size="2MB")
    assert settings().max_size_bytes == 2 * 10**6
    with override(max_size="3MB"):
        assert settings().max_size_bytes == 3 * 10**6
        configure(strict=True)
        assert settings().strict, "what a block does not override is seen through it"
        with override(link="inline"):
            assert (settings().max_size_bytes, settings().link) == (3 * 10**6, "inline")
        assert settings().link == "auto"
    assert settings().max_size_bytes == 2 * 10**6


@pytest.mark.parametrize(
    ("variable", "text", "field", "value"),
    [
        ("PREJIT_CACHE_DIR", "/x/y", "cache_dir", Path("/x/y")),
        ("PREJIT_CACHE_DIR", "", "cache_dir", None),
        ("PREJIT_MAX_SIZE", "500MB", "max_size_bytes", 500 * 10**6),
        ("PREJIT_MAX_SIZE", "none", "max_size_bytes", None),
        ("PREJIT_MEMORY_MAX_SIZE", "1GiB", "memory_max_size_bytes", 1024**3),
        ("PREJIT_DISABLE", "1", "enabled", False),
        ("PREJIT_DISABLE", "0", "enabled", True),
        ("PREJIT_STRICT", "true", "strict", True),
        ("PREJIT_EAGER_CACHE", "0", "eager_cache", False),
        ("PREJIT_READ_ONLY", "1", "read_only", True),
        ("PREJIT_LOCK_TIMEOUT", "1.5", "lock_timeout_s", 1.5),
        ("PREJIT_PROGRESS", "off", "progress", "off"),
        ("PREJIT_HOIST_BYTES", "1024", "hoist_bytes", 1024),
        ("PREJIT_LINK", "separate", "link", "separate"),
        ("PREJIT_COMPILE_THREADS", "3", "compile_threads", 3),
        ("PREJIT_COMPILE_THREADS", "none", "compile_threads", None),
        ("PREJIT_STRICT", "", "strict", False),
    ],
)
def test_environment(variable, text, field, value):
    reset({variable: text})
    assert getattr(settings(), field) == value
    assert is_enabled() == settings().enabled


@pytest.mark.parametrize(
    ("variable", "text", "says"),
    [
        ("PREJIT_MAX_SIZE", "big", "10GiB"),
        ("PREJIT_STRICT", "maybe", "1 or 0"),
        ("PREJIT_DISABLE", "maybe", "1 or 0"),
        ("PREJIT_LOCK_TIMEOUT", "-1", "not negative"),
        ("PREJIT_LOCK_TIMEOUT", "nan", "not negative"),
        ("PREJIT_HOIST_BYTES", "1e3", "whole number"),
        ("PREJIT_LINK", "fast", "'outline'"),
        ("PREJIT_COMPILE_THREADS", "0", "from 1 up"),
        ("PREJIT_COMPILE_THREADS", "-1", "from 1 up"),
        ("PREJIT_COMPILE_THREADS", "many", "from 1 up"),
        ("PREJIT_CASH_DIR", "/x", "PREJIT_CACHE_DIR"),
        ("PREJIT_ZZZZ", "1", "unset it"),
    ],
)
def test_a_wrong_environment_warns_once_and_is_ignored(variable, text, says):
    reset({variable: text})
    with pytest.warns(PrejitWarning, match="(?s)ignoring " + variable) as caught:
        assert settings() == Settings(cache_dir=settings().cache_dir)
    assert says in str(caught[0].message)
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        settings()
    assert is_enabled()


def test_a_wrong_environment_does_not_fail_an_import(run_python):
    done = run_python(
        "import sys, warnings; warnings.simplefilter('error'); import prejit.config;"
        "print('platformdirs' in sys.modules)",
        env={"PREJIT_DISABLE": "maybe", "PREJIT_MAX_SIZE": "big", "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"cash_dir": "/x"}, "hint: did you mean cache_dir?"),
        ({"zzzz": 1}, "expected one of cache_dir, compile_threads, eager_cache"),
        ({"max_size": "ten"}, "got 'ten' at max_size"),
        ({"max_size": -1}, "at max_size"),
        ({"max_size": True}, "at max_size"),
        ({"memory_max_size": None}, "at memory_max_size"),
        ({"strict": 1}, "expected True or False, got 1 at strict"),
        ({"link": "fast"}, "expected one of 'auto', 'inline', 'outline', 'separate', got 'fast' at link"),
        ({"lock_timeout_s": float("inf")}, "finite number of seconds"),
        ({"cache_dir": 7}, "a path, or None"),
        ({"cache_dir": b"/x"}, "a path, or None"),
        ({"cache_dir": "a\0b"}, "a path as text"),
        ({"hoist_bytes": 1.5}, "a whole number"),
        ({"compile_threads": 0}, "a whole number from 1 up, or None"),
        ({"compile_threads": True}, "a whole number from 1 up, or None"),
    ],
)
@pytest.mark.parametrize("change", [configure, lambda **kw: override(**kw).__enter__()])
def test_wrong_options_change_nothing(change, options, says):
    before = settings()
    with pytest.raises(ConfigError) as caught:
        change(read_only=True, **options)
    assert says in str(caught.value)
    assert caught.value.name == next(iter(options))
    assert pickle.loads(pickle.dumps(caught.value)).fields == caught.value.fields
    assert settings() == before


@pytest.mark.parametrize("name", config._OPTIONS)
def test_the_hint_leads_to_where_an_option_is_described(name):
    with pytest.raises(ConfigError) as caught:
        configure(**{name: object()})
    *_, named = caught.value.hint.split()
    field = named if name.endswith("max_size") else name
    described = [line.strip() for line in Settings.__doc__.splitlines()]  # Python 3.13 takes the indentation away
    assert any(line.startswith(f"{field}: ") for line in described)
    assert name in Settings.__doc__


def test_an_empty_directory_is_no_directory():
    for nothing in ("", None):
        configure(cache_dir="/x")
        configure(cache_dir=nothing)
        assert settings().cache_dir is None


def test_a_relative_directory_is_fixed_where_it_was_said(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    configure(cache_dir="here")
    monkeypatch.chdir("/")
    assert settings().cache_dir == tmp_path / "here"
    configure(cache_dir="~/x")
    assert settings().cache_dir == Path.home() / "x"


def test_disabled_counts_for_its_own_thread_and_ends_with_the_block():
    seen = []
    with disabled():
        thread = threading.Thread(target=lambda: seen.append((is_enabled(), settings().enabled)))
        thread.start()
        thread.join()
        assert (is_enabled(), settings().enabled) == (False, False)
        with override(enabled=True):
            assert is_enabled()
        with override(strict=True):
            assert not is_enabled()
    assert seen == [(True, True)]
    assert is_enabled()


def test_disabled_ends_when_the_block_raises():
    with pytest.raises(KeyError), disabled():
        raise KeyError
    assert is_enabled()


def test_configure_enables_and_disables():
    configure(enabled=False)
    assert not is_enabled()
    with override(enabled=True):
        assert is_enabled()
    configure(enabled=True)
    assert is_enabled()


def test_generation_counts_changes():
    before = config.generation()
    configure(strict=True)
    configure(strict=True)
    assert config.generation() == before + 2


@pytest.mark.parametrize("text", ["", "GiB", "-1", "1 2", "1G", "1e3", "0x10", "1.5.2MB", "nan"])
def test_what_is_no_size(text):
    with pytest.raises(ValueError, match="500MB"):
        parse_size(text)


def test_threads_see_whole_settings():
    stop = threading.Event()
    torn = []

    def read():
        while not stop.is_set():
            current = settings()
            if (current.hoist_bytes == 1) != (current.lock_timeout_s == 1.0):
                torn.append(current)

    configure(hoist_bytes=1, lock_timeout_s=1.0)
    thread = threading.Thread(target=read)
    thread.start()
    for _ in range(300):
        configure(hoist_bytes=2, lock_timeout_s=2.0)
        configure(hoist_bytes=1, lock_timeout_s=1.0)
    stop.set()
    thread.join()
    assert torn == []
