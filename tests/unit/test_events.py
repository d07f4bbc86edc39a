import logging
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import monitoring

import prejit
from prejit import events
from prejit.events import Lookup, Tally


@pytest.fixture
def lookups(tmp_path):
    seen = []
    stop = events.subscribe(seen.append)
    with prejit.use_store(prejit.Store(tmp_path / "store")):
        yield seen
    stop()


def test_counters_agree_with_jaxs_own_events(lookups):
    names = {
        "/jax/core/compile/jaxpr_trace_duration": "traces",
        "/jax/core/compile/jaxpr_to_mlir_module_duration": "lowerings",
        "/jax/core/compile/backend_compile_duration": "compiles",
    }
    seen = dict.fromkeys(names.values(), 0)
    active = True

    def listen(event, seconds, **_):
        if active and event in names:
            seen[names[event]] += 1

    monitoring.register_event_duration_secs_listener(listen)
    before = prejit.counters()
    component = prejit.component(lambda x: jnp.sin(x) * 2)
    component(np.float32(1))
    jax.jit(lambda x: component(x) + 1)(np.float32(1))
    jax.jit(lambda x: jnp.cos(x) - 7)(np.float32(1))
    after = prejit.counters()
    active = False
    assert {name: after[name] - before[name] for name in seen} == seen
    assert seen["compiles"] == 3


def test_a_load_is_no_compile(lookups, tmp_path):
    with prejit.use_store(prejit.Store(tmp_path / "two")) as store:
        prejit.component(lambda x: x * 5)(jnp.float32(1))
        store.clear(tier="memory")
        before = prejit.counters()
        prejit.component(lambda x: x * 5)(jnp.float32(1))
        after = prejit.counters()
    assert after["compiles"] == before["compiles"]
    assert after["loads"] == before["loads"] + 1
    assert after["hits"] == before["hits"] + 1


def test_every_lookup_is_an_event(lookups):
    component = prejit.component(lambda x: x * 3, name="named")
    component(jnp.float32(1))
    component(jnp.float32(1))
    prejit.get_store().clear(tier="memory")
    component(jnp.float32(1))
    prejit.component(lambda x: jax.debug.print("", ordered=True), name="noisy")(1.0)
    mine = [(event.name, event.outcome) for event in lookups if not event.is_eager]
    assert mine == [("named", "miss"), ("named", "hit"), ("noisy", "bypass")]
    assert all(event.digest for event in lookups if event.outcome in ("hit", "miss"))
    assert [event.reason for event in lookups if event.outcome == "bypass"] != [""]
    assert lookups[0].digest == component.key_for(jnp.float32(1)).digest


def test_plain_jit_is_counted_apart(lookups):
    before = prejit.counters()
    jax.jit(lambda x: jnp.sin(x) * 17)(np.ones(3, "float32"))
    middle = prejit.counters()
    assert middle["eager_misses"] > before["eager_misses"]
    assert middle["misses"] == before["misses"]
    prejit.get_store().clear(tier="memory")
    jax.clear_caches()
    jax.jit(lambda x: jnp.sin(x) * 17)(np.ones(3, "float32"))
    after = prejit.counters()
    assert after["eager_hits"] > middle["eager_hits"]
    assert after["eager_loads"] > middle["eager_loads"]
    assert after["compiles"] == middle["compiles"]


def test_nothing_is_printed_unless_logging_is_set_up(lookups, capfd, caplog):
    prejit.component(lambda x: x * 9)(jnp.float32(1))
    assert capfd.readouterr() == ("", "")
    with caplog.at_level(logging.DEBUG, logger="prejit"):
        prejit.component(lambda x: x * 11, name="logged")(jnp.float32(1))
    assert any("logged: miss" in record.getMessage() for record in caplog.records)
    assert all(record.levelno == logging.DEBUG for record in caplog.records)


@pytest.mark.parametrize("outcome", ["hit", "miss", "bypass", "stale", "corrupt", "refused"])
def test_each_outcome_has_its_counter(outcome):
    name = {"hit": "hits", "miss": "misses", "bypass": "bypasses"}.get(outcome, outcome)
    before = prejit.counters()
    tally = Tally()
    with events.attributed_to(tally):
        events.record_lookup(Lookup("f", "", outcome))
    after = prejit.counters()
    assert {key for key in after if after[key] != before[key]} == {name}
    assert tally.get(name) == 1
    with events.attributed_to(tally):
        events.record_lookup(Lookup("f", "", outcome, is_eager=True))
    assert tally.get(name) == 1, "what does not pass through a component is not counted for it"


def test_a_subscription_ends():
    seen = []
    stop = events.subscribe(seen.append)
    events.record_lookup(Lookup("f", "", "hit"))
    stop()
    stop()
    events.record_lookup(Lookup("f", "", "hit"))
    assert len(seen) == 1


def test_attribution_is_innermost_and_ends_with_the_block():
    outer, inner = Tally(), Tally()
    with events.attributed_to(outer):
        events.count("x")
        with events.attributed_to(inner):
            events.count("x", 2)
        events.count("x")
    events.count("x")
    assert (outer.get("x"), inner.get("x")) == (2, 2)


def test_tallies_count_from_many_threads():
    tally = Tally()
    threads = [threading.Thread(target=lambda: [tally.add("n") for _ in range(500)]) for _ in range(8)]
    [thread.start() for thread in threads]
    [thread.join(60) for thread in threads]
    assert tally.get("n") == 4000
    assert tally.snapshot() == {"n": 4000}
    tally.clear()
    assert tally.get("n") == 0


def test_marks_of_own_compiles_nest():
    assert not events.is_own_compile()
    with events.own_compile():
        with events.own_compile():
            pass
        assert events.is_own_compile()
    assert not events.is_own_compile()
