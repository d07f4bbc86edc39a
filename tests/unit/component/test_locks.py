"""No lock of ours is held while a component traces or lowers: another one can do both meanwhile."""

import threading

import jax.numpy as jnp
from jax.extend.core import Primitive
from jax.interpreters import mlir

import prejit

TIMEOUT_S = 120


def waiting_for(other_is_done: threading.Event, reached: threading.Event) -> bool:
    reached.set()
    return other_is_done.wait(TIMEOUT_S)


def run_both(slow, quick):
    """Start the slow call, make the quick one while the slow one waits inside, and return both results."""
    outs = {}
    thread = threading.Thread(target=lambda: outs.setdefault("slow", slow()))
    thread.start()
    outs["quick"] = quick()
    thread.join(TIMEOUT_S)
    return outs


def test_a_component_compiles_while_another_traces():
    done, reached, in_time = threading.Event(), threading.Event(), []

    @prejit.component
    def slow(x):
        in_time.append(waiting_for(done, reached))
        return x + 1

    def quick():
        assert reached.wait(TIMEOUT_S)
        out = float(prejit.component(lambda x: x * 3)(2.0))
        done.set()
        return out

    assert run_both(lambda: float(slow(1.0)), quick) == {"slow": 2.0, "quick": 6.0}
    assert in_time == [True]


def test_a_component_compiles_while_another_lowers():
    done, reached, in_time = threading.Event(), threading.Event(), []
    primitive = Primitive("test_locks_waits")
    primitive.def_abstract_eval(lambda aval: aval)

    def lower(context, x):
        in_time.append(waiting_for(done, reached))
        return [x]

    mlir.register_lowering(primitive, lower)
    slow = prejit.component(lambda x: primitive.bind(x) + 1)

    def quick():
        assert reached.wait(TIMEOUT_S)
        out = float(prejit.component(lambda x: x * 3)(2.0))
        done.set()
        return out

    assert run_both(lambda: float(slow(jnp.float32(1))), quick) == {"slow": 2.0, "quick": 6.0}
    assert all(in_time)
