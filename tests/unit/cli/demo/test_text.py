import itertools

import numpy as np
import pytest

from prejit.cli.demo import text


def test_text_is_ascii_and_the_same_each_time():
    read = text.read_text(50_000)
    assert read.dtype == np.uint8
    assert len(read) == 50_000
    assert read.max() < text.VOCABULARY
    assert np.array_equal(read, text.read_text(50_000))


def test_a_python_without_sources_is_told_plainly(tmp_path, monkeypatch):
    monkeypatch.setattr(text.sysconfig, "get_paths", lambda: {"stdlib": str(tmp_path)})
    with pytest.raises(FileNotFoundError, match=r"expected \*\.py files"):
        text.read_text(100)


def test_batches_are_runs_of_the_text_and_the_same_each_time():
    letters = np.arange(100, dtype=np.uint8)
    draws = [list(itertools.islice(text.draw_batches(letters, batch=3, context=8), 4)) for _ in range(2)]
    for one, other in zip(*draws, strict=True):
        assert one.shape == (3, 9)
        assert one.dtype == np.int32
        assert np.array_equal(one, other)
        assert np.array_equal(np.diff(one, axis=1), np.ones((3, 8)))
