import contextlib
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import prejit
from prejit import events
from prejit._jax import environment, tracing
from prejit._jax.threads import ThreadState
from prejit.config import override
from prejit.stage import ladder
from prejit.stage.job import TracedJob
from prejit.stage.ladder import Prepared
from prejit.stage.together import prepare_together
from prejit.store import get_store

X = np.arange(4, dtype=np.float32)


class Hooked(TracedJob):
    """A job that calls something when it lowers."""

    hook = staticmethod(lambda: None)

    def lower(self):
        if self.lowered is None:
            self.hook()
        return super().lower()


def job(function, *args, name="piece", hook=None):
    args = args or (X,)
    made = Hooked(tracing.open_traced(jax.jit(function).trace(*args)), list(args), name)
    if hook is not None:
        made.hook = hook
    return made


def many(n, hook=None):
    return [job(lambda x, i=i: jnp.sin(x) * i + i, name=f"piece {i}", hook=hook) for i in range(n)]


@pytest.fixture(autouse=True)
def three_threads():
    """As on a machine with more CPUs than this one may have."""
    with override(compile_threads=3):
        yield


def test_results_are_in_order_and_right():
    n = prejit.counters()
    got = prepare_together(many(7), name="program")
    assert all(isinstance(one, Prepared) for one in got)
    for i, one in enumerate(got):
        np.testing.assert_allclose(one.run([X])[0], np.sin(X) * i + i, rtol=1e-6)
    after = prejit.counters()
    assert {name: after[name] - n[name] for name in ("misses", "compiles", "lowerings", "eager_compiles")} == {
        "misses": 7,
        "compiles": 7,
        "lowerings": 7,
        "eager_compiles": 0,
    }
