"""More configurations than a component remembers, in several threads at once."""

import threading

import jax
import jax.numpy as jnp

import prejit
from prejit.component import core


def test_a_configuration_that_is_forgotten_while_it_is_called(monkeypatch):
    monkeypatch.setattr(core, "_MAX_DISPATCHES", 1)
    component = prejit.component(lambda x: x * 2 + jax.random.uniform(jax.random.PRNGKey(0)) * 0)
    failed: list[BaseException] = []
    start = threading.Barrier(4)

    def work(impl):
        try:
            start.wait(30)
            for n in range(12):
                with jax.default_prng_impl(impl):
                    assert float(component(jnp.float32(n))) == 2.0 * n
        except BaseException as error:  # noqa: BLE001  # told to the test's own thread
            failed.append(error)

    threads = [threading.Thread(target=work, args=(impl,)) for impl in ("rbg", "threefry2x32") * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not failed
