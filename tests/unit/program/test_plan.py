"""A plan: registers live from where they are written to where they are read last, and what is reused is dead."""

import copy
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from prejit.program.plan import Call, Layout, Unit

W = np.linspace(-1, 1, 64, dtype="float32").reshape(8, 8)


@jax.jit
def layer(w, x):
    return jnp.tanh(x @ w) + x


def chain(depth=4):
    def program(w, x):
        for _ in range(depth):
            x = layer(w, x)
        return x

    return program


def trained(ws, x):
    def loss(ws):
        y = x
        for w in ws:
            y = layer(w, y)
        return (y * y).mean()

    value, grads = jax.value_and_grad(loss)(ws)
    return value, [w - 0.1 * g for w, g in zip(ws, grads, strict=True)], x


def is_safe(layout, inputs_may_go):
    """Say whether a plan reads only what is there, and reuses only what nobody reads later."""
    alive = set(range(layout.nr_consts + layout.nr_inputs))
    mine = set(inputs_may_go)
    for call in layout.calls:
        unit = layout.units[call.unit]
        if not alive.issuperset(call.reads) or len(unit.donated) != len(call.reads):
            return False
        given = [r for r, is_donated in zip(call.reads, unit.donated, strict=True) if is_donated]
        if any(call.reads.count(r) > 1 or r not in mine for r in given):
            return False
        written = set(range(call.first, call.first + call.nr_results))
        if written & alive or not written.issubset(range(layout.nr_registers)):
            return False
        alive = (alive - set(given)) | written
        mine |= written
        alive -= set(call.frees)
    return alive.issuperset(layout.returns)


def check(layout, given_up=()):
    layout.check()
    assert is_safe(layout, [layout.nr_consts + n for n in given_up])
    last = {}
    for number, call in enumerate(layout.calls):
        for register in (*call.reads, *range(call.first, call.first + call.nr_results)):
            last[register] = number
    held = {*range(layout.nr_consts), *layout.returns}
    for number, call in enumerate(layout.calls):
        assert set(call.frees) == {r for r, n in last.items() if n == number} - held, "each goes at its last use"
    assert len(set(layout.returns)) == len(layout.returns)
    return layout


# Registers and last uses


def test_registers_of_a_chain(layout_of):
    layout = check(layout_of(chain(), W, W))
    assert (layout.nr_consts, layout.nr_inputs, layout.nr_registers) == (0, 2, 6)
    assert [call.reads for call in layout.calls] == [(0, 1), (0, 2), (0, 3), (0, 4)]
    assert [call.frees for call in layout.calls] == [(1,), (2,), (3,), (0, 4)]
    assert layout.returns == (5,)
    assert [call.unit for call in layout.calls] == [0] * 4


@pytest.mark.parametrize("donated", [(), (0,), (1,), (0, 1)])
def test_registers_of_a_training_step(layout_of, donated):
    given_up = [*([0, 1, 2] if 0 in donated else []), *([3] if 1 in donated else [])]
    layout = check(layout_of(trained, [W, W * 2, W * 3], W, donate_argnums=donated), given_up)
    assert len(layout.units) < len(layout.calls)


def test_constants_are_the_first_registers_and_never_freed(layout_of):
    large = np.ones((8, 3000), "float32")

    def program(w, x):
        x = layer(w, layer(w, x))
        return x @ large, large, x

    layout = check(layout_of(program, W, W))
    assert layout.nr_consts == 1
    assert 0 not in {register for call in layout.calls for register in call.frees}
    assert 0 not in layout.returns, "the user gets an array of their own"


def test_results_that_nobody_reads_are_freed_at_once(layout_of):
    def both(w, x):
        return jax.lax.while_loop(lambda s: s[0].sum() < 3, lambda s: (jnp.tanh(s[0] @ w) + 1, s[1] + 1), (x, x))[0]

    layout = check(layout_of(lambda w, x: both(w, both(w, both(w, x))), W, W))
    assert max(call.nr_results for call in layout.calls) <= 2


# Donation


def donated_inputs(layout):
    return {unit.name: unit.donated for unit in layout.units}


def test_dead_values_in_between_are_reused_and_arguments_are_not(layout_of):
    """The first call reads the user's argument, so what all calls share reuses nothing; a step later it may."""
    layout = check(layout_of(chain(4), W, W))
    assert donated_inputs(layout) == {"layer": (False, False)}
    given = check(layout_of(chain(4), W, W, donate_argnums=1), [1])
    assert donated_inputs(given) == {"layer": (False, True)}


def test_a_unit_reuses_only_what_is_dead_after_each_of_its_calls(layout_of):
    def program(w, x):
        a = layer(w, x * 2)
        b = layer(w, a)
        c = layer(w, b)
        return b @ c  # b is read after its layer

    layout = check(layout_of(program, W, W))
    assert donated_inputs(layout)["layer"] == (False, False)

    def other(w, x):
        a = layer(w, x * 2)
        b = layer(w, a)
        return layer(w, b), w.sum()

    assert donated_inputs(check(layout_of(other, W, W)))["layer"] == (False, True)


def test_a_value_that_is_read_twice_by_one_call_is_not_reused(layout_of):
    both = jax.jit(lambda a, b: jnp.tanh(a @ b) + a)

    def program(x):
        y = x * 2
        for _ in range(3):
            y = both(y, y)
        return y

    check(layout_of(program, W))


def test_a_result_of_the_program_is_not_reused(layout_of):
    def program(w, x):
        kept = []
        for _ in range(3):
            x = layer(w, x)
            kept.append(x)
        return kept

    layout = check(layout_of(program, W, W, donate_argnums=(0, 1)), [0, 1])
    assert donated_inputs(layout)["layer"] == (False, False)


def test_an_argument_is_reused_for_a_result_of_its_type_only(layout_of):
    @jax.jit
    def narrow(x):
        return jnp.tanh(x @ W)[:, :4], x.astype("int32") + 1

    def program(x, y):
        return [narrow(x), narrow(y)]

    layout = check(layout_of(program, W, W * 2, donate_argnums=(0, 1)))
    assert not any(any(unit.donated) for unit in layout.units)


def test_donated_arguments_that_jit_would_keep_are_kept(layout_of):
    """One result, two donated arguments of its type: `jax.jit` takes the first, and tells of the other."""

    def program(a, b, c):
        return layer(a, layer(a, b)) + c

    layout = check(layout_of(program, W, W, W, donate_argnums=(0, 1)), [0])
    reused = {
        register
        for call in layout.calls
        for register, is_donated in zip(call.reads, layout.units[call.unit].donated, strict=True)
        if is_donated
    }
    assert 1 not in reused


# As data


def sample(layout_of):
    return layout_of(trained, [W, W * 2], W, donate_argnums=0)


def test_round_trip(layout_of):
    layout = sample(layout_of)
    data = json.loads(json.dumps(layout.to_dict()))
    again = Layout.from_dict(data)
    assert again == layout
    assert hash(again) == hash(layout)
    assert Layout.from_dict(Layout(0, 0, 0, (), (), ()).to_dict()) == Layout(0, 0, 0, (), (), ())


def change(*path, to):
    def edit(data):
        *where, last = path
        for step in where:
            data = data[step]
        if to is None:
            del data[last]
        else:
            data[last] = to

    edit.__name__ = f"{'.'.join(map(str, path))}={to}"
    return edit


NONSENSE = [
    change("units", to=None),
    change("calls", to=None),
    change("returns", to=None),
    change("nr_inputs", to=None),
    change("more", to=1),
    change("units", 0, "digest", to=None),
    change("units", 0, "more", to=1),
    change("units", 0, "donated", to=3),
    change("units", 0, "kind", to="other"),
    change("units", to=[]),
    change("calls", 0, "unit", to=99),
    change("calls", 0, "unit", to=-1),
    change("calls", 0, "unit", to="0"),
    change("calls", 0, "unit", to=0.0),
    change("calls", 0, "reads", to=[99]),
    change("calls", 0, "reads", to=[-1]),
    change("calls", 0, "reads", 0, to="0"),
    change("calls", 0, "reads", to=[]),
    change("calls", 0, "reads", to=[0, 1, 2, 0]),
    change("calls", 0, "frees", to=[0, 1, 2]),
    change("calls", 0, "frees", to=[5000]),
    change("calls", 0, "first", to=0),
    change("calls", 0, "first", to=-1),
    change("calls", 0, "first", to=5000),
    change("calls", 1, "first", to=3),
    change("calls", 0, "nr_results", to=-1),
    change("calls", 0, "nr_results", to=5000),
    change("returns", to=[99]),
    change("returns", to=[-1]),
    change("returns", 0, to=None),
    change("nr_registers", to=0),
    change("nr_registers", to=10**12),
    change("nr_inputs", to=-1),
    change("nr_inputs", to=0),
    change("nr_consts", to=1),
    change("nr_consts", to=-1),
    change("calls", to=[]),
    change("calls", to="text"),
    change("units", to={}),
]


@pytest.mark.parametrize("edit", NONSENSE, ids=lambda edit: edit.__name__)
def test_nonsense_is_refused(layout_of, edit):
    layout = sample(layout_of)
    data = json.loads(json.dumps(layout.to_dict()))
    edit(data)
    if edit.__name__ == "returns.0=None" and len(data["returns"]) >= 1:
        return  # fewer results are a plan, of another program
    with pytest.raises((KeyError, TypeError, ValueError)):
        Layout.from_dict(data)


def unit(donated):
    return Unit("u", "unit", "d", "", donated, 1, 1.0, 1.0)


def plan(*calls, units=((False,), (True,)), returns=(2,), nr_inputs=1, nr_registers=3):
    return Layout(0, nr_inputs, nr_registers, tuple(map(unit, units)), calls, returns)


def test_a_plan_that_reuses_what_is_read_later_is_refused():
    """An executable may write into what it reuses; such a plan would give wrong values."""
    plan(Call(0, (0,), 1, 1, ()), Call(1, (1,), 2, 1, (1,))).check()  # the control
    with pytest.raises(ValueError, match="plan"):
        plan(Call(0, (0,), 1, 1, ()), Call(1, (1,), 2, 1, ()), returns=(1, 2)).check()
    with pytest.raises(ValueError, match="plan"):
        plan(Call(0, (0,), 1, 1, ()), Call(1, (1,), 2, 1, ()), Call(0, (1,), 3, 1, ()), nr_registers=4).check()


def test_a_plan_that_reuses_one_register_twice_is_refused():
    with pytest.raises(ValueError, match="plan"):
        plan(Call(0, (0,), 1, 1, ()), Call(2, (1, 1), 2, 1, (1,)), units=((False,), (True,), (True, True))).check()


def test_a_plan_that_writes_over_a_live_register_is_refused():
    with pytest.raises(ValueError, match="plan"):
        plan(Call(0, (0,), 1, 1, ()), Call(0, (1,), 1, 1, ()), returns=(1,)).check()


numbers = st.one_of(st.integers(-2, 12), st.sampled_from(["0", None, 1.5, True, []]))


@settings(deadline=None, max_examples=300, suppress_health_check=list(HealthCheck), database=None)
@given(st.lists(st.tuples(st.integers(0, 10**6), numbers), min_size=1, max_size=3))
def test_random_edits_are_refused_or_harmless(layout_of, edits):
    """Whatever a plan's data says: it is refused, or runs without reading what is not there."""
    if not _cached:
        _cached.append(json.loads(json.dumps(sample(layout_of).to_dict())))
    data = copy.deepcopy(_cached[0])
    for where, to in edits:
        places = list(_places(data))
        holder, key = places[where % len(places)]
        holder[key] = to
    try:
        layout = Layout.from_dict(data)
    except (KeyError, TypeError, ValueError):
        return
    everything = range(layout.nr_consts + layout.nr_inputs)
    assert is_safe(layout, [n for n in everything if n >= layout.nr_consts])


_cached: list = []


def _places(data):
    items = data.items() if isinstance(data, dict) else enumerate(data)
    for key, value in items:
        if isinstance(value, dict | list):
            yield from _places(value)
        else:
            yield data, key
