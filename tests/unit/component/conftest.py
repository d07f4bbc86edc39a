"""Eight devices, and a store of its own for every test."""

import re

import jax
import pytest

import prejit


@pytest.fixture(autouse=True)
def store(tmp_path):
    """Use a fresh store, in memory and on disk, for one test."""
    with prejit.use_store(prejit.Store(tmp_path / "store")) as fresh:
        yield fresh


def _text(error):
    """Return a message without addresses."""
    return re.sub(r"0x[0-9a-f]+", "0x", str(error))


def _frames(error):
    names, trace = [], error.__traceback__
    while trace is not None:
        names.append(trace.tb_frame.f_code.co_filename)
        trace = trace.tb_next
    return names


@pytest.fixture
def same_error():
    """Check that a component raises what `jax.jit` does: `same_error(function, *args, **kwargs)`, cold and again.

    Options of the decorator go in as `options={...}`; types, messages and the files in the traceback are compared.
    """

    def check(function, *args, options=None, frames=True, **kwargs):
        options = options or {}
        with pytest.raises(Exception) as want:  # noqa: PT011  # whatever JAX raises
            jax.jit(function, **options)(*args, **kwargs)
        try:
            component = prejit.component(function, **options)
        except Exception as error:  # noqa: BLE001
            pytest.fail(f"the decorator raised {error!r}, the call should raise {want.value!r}")
        for _ in range(2):
            with pytest.raises(type(want.value)) as got:
                component(*args, **kwargs)
            assert type(got.value) is type(want.value)
            assert _text(got.value) == _text(want.value)
            if frames:
                assert _frames(got.value) == _frames(want.value)
        return got.value

    return check


@pytest.fixture
def frames_of():
    """Return the file of every frame in an error's traceback."""
    return _frames
