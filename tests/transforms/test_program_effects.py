"""Effects and callbacks in linked programs: their order and values, on every call, and what is stored all the same."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import io_callback
from tests.transforms.table import assert_same, floats

import prejit

linked = functools.partial(prejit.jit, link="separate")
NUMBER = jax.ShapeDtypeStruct((), "float32")


@pytest.fixture
def log():
    """Collect what callbacks get, as `(tag, value)`."""
    return []


def note(log, tag, out=None):
    """Make a callback that writes down what it gets."""

    def callback(*values):
        log.append((tag, *[float(np.asarray(value)) for value in values]))
        return out

    return callback


def answering(log, tag):
    """Make one that returns a number too."""
    return note(log, tag, np.float32(len(tag)))


KINDS = {
    "debug": lambda call, x: jax.debug.callback(call, x.sum()),
    "debug_ordered": lambda call, x: jax.debug.callback(call, x.sum(), ordered=True),
    "io": lambda call, x: io_callback(call, NUMBER, x.sum()),
    "io_ordered": lambda call, x: io_callback(call, NUMBER, x.sum(), ordered=True),
    "pure": lambda call, x: jax.pure_callback(call, NUMBER, x.sum()),
}  # of x, through a callback made by `answering`
ORDERED = ("debug_ordered", "io_ordered")


def layer_with(effect=None, call=None):
    @jax.jit
    def layer(w, x):
        y = jnp.tanh(x @ w) + x
        out = None if effect is None else KINDS[effect](call, y)
        return y if out is None else y + out

    return layer


def same_as_jit(program, args, log, **options):
    """Run twice as a linked program and as jax.jit's; return the program and what one run logged."""
    step, logs, want = linked(program, **options), [], None
    theirs = jax.jit(program, **options)
    for call in (theirs, step, step, theirs):
        log.clear()
        out = call(*args)
        jax.block_until_ready(out)
        jax.effects_barrier()
        logs.append(list(log))
        if call is step:
            assert_same(out, want, is_exact=False)
        want = out if call is theirs else want
    return step, logs


def close(one, other):
    assert [entry[0] for entry in one] == [entry[0] for entry in other]
    np.testing.assert_allclose([e[1:] for e in one], [e[1:] for e in other], rtol=1e-5)


W, X = floats(6, 6), floats(4, 6)


@pytest.mark.parametrize("kind", KINDS)
def test_in_units(kind, log):
    layer = layer_with(kind, answering(log, "unit"))

    def program(w, x):
        for _ in range(3):
            x = layer(w, x)
        return x

    step, logs = same_as_jit(program, (W, X), log)
    assert step.plan(W, X).is_linked
    for got in logs:
        close(got, logs[0])
    assert len(logs[0]) == 3


@pytest.mark.parametrize("kind", KINDS)
def test_in_glue(kind, log, store):
    layer = layer_with()

    def program(w, x):
        for n in range(3):
            x = layer(w, x)
            out = KINDS[kind](answering(log, f"glue{n}"), x)
            x = x if out is None else x + out
        return x, x.sum()

    step, logs = same_as_jit(program, (W, X), log)
    for got in logs:
        close(got, logs[0])
    assert [entry[0] for entry in logs[0]] == ["glue0", "glue1", "glue2"]
    # What has no callback in it is stored all the same: the layer, and the sum at the end.
    names = [info.name for _, info in store.items() if info.kind == "executable" and info.variant != "eager"]
    assert names.count("layer") == 1
    assert len(names) >= 2
    assert step.cache_info().bypasses == 3
    store.clear(tier="memory")
    again = linked(program)
    log.clear()
    jax.block_until_ready(again(W, X))
    jax.effects_barrier()
    close(log, logs[0])
    info = again.cache_info()
    assert info.misses == 0
    assert info.compiles == 3, "the three callbacks, which no store can keep"


@pytest.mark.parametrize("kind", ORDERED)
def test_order_is_the_programs_whatever_depends_on_what(kind, log):
    layer, loud = layer_with(), layer_with(kind, answering(log, "unit"))

    def program(w, x):
        a = layer(w, x)
        KINDS[kind](answering(log, "first"), jnp.float32(1))
        b = layer(w, x * 2)
        KINDS[kind](answering(log, "second"), a)
        c = loud(w, b)
        KINDS[kind](answering(log, "third"), x)
        d = loud(w, x)
        KINDS[kind](answering(log, "fourth"), jnp.float32(2))
        return c, layer(w, d)

    _, logs = same_as_jit(program, (W, X), log)
    for got in logs:
        close(got, logs[0])
    assert [tag for tag, _ in logs[1]] == ["first", "second", "unit", "third", "unit", "fourth"]


def test_order_across_calls_of_several_programs(log):
    layer = layer_with()

    def make(tag):
        def program(w, x):
            io_callback(note(log, f"{tag} before"), None, x.sum(), ordered=True)
            y = layer(w, layer(w, x))
            io_callback(note(log, f"{tag} after"), None, y.sum(), ordered=True)
            return y

        return program

    one, two, plain = linked(make("one")), linked(make("two")), jax.jit(make("plain"))
    x = X
    for _ in range(3):
        x = two(W, plain(W, one(W, x))) * 0.5
    jax.effects_barrier()
    tags = [f"{tag} {when}" for tag in ("one", "plain", "two") for when in ("before", "after")]
    assert [entry[0] for entry in log] == tags * 3


@pytest.mark.parametrize("kind", ["debug", "debug_ordered"])
def test_in_a_gradient(kind, log):
    layer = layer_with(kind, answering(log, "unit"))

    def program(w, x):
        def loss(w):
            y = x
            for _ in range(3):
                y = layer(w, y)
            return y.sum()

        return jax.value_and_grad(loss)(w)

    _, logs = same_as_jit(program, (W, X), log)
    for got in logs:
        close(sorted(got), sorted(logs[0]))
    assert len(logs[0]) == 3


def test_equal_units_that_read_other_constants(log):
    """Bodies with callbacks have no digest: what makes two calls equal must hold all that they read."""
    layer = layer_with("debug_ordered", answering(log, "unit"))
    one = np.linspace(-1, 1, 36, dtype="float32").reshape(6, 6)

    def program(x, y):
        return (
            layer(one, x), layer(one * 2, x), layer(one, y), layer(x.T @ x, y), layer(y.T @ y, y), layer(one, x) + 1,
        )  # fmt: skip

    step, logs = same_as_jit(program, (X, X * 2), log)
    assert step.plan(X, X).is_linked
    close(logs[1], logs[0])


def test_equal_units_with_the_same_value_twice(log):
    layer = layer_with("io_ordered", answering(log, "unit"))
    square = floats(6, 6)

    def program(a, b):
        return layer(a, a), layer(a, b), layer(b, b), layer(b, a), layer(a, a)

    _, logs = same_as_jit(program, (square, square * 0.5), log)
    close(logs[1], logs[0])


def test_equal_units_of_which_other_results_are_used(log):
    def body(carry, w):
        jax.debug.callback(note(log, "step"), carry.sum(), ordered=True)
        return jnp.tanh(carry @ w) + carry, carry.mean()

    def program(ws, x):
        a, _ = lax.scan(body, x, ws)
        _, means = lax.scan(body, x, ws)
        b, more = lax.scan(body, a, ws)
        return a, means, b, more

    _, logs = same_as_jit(program, (jnp.stack([W, W * 2, W * 3]), X), log)
    close(logs[1], logs[0])
    assert len(logs[0]) == 9


def test_literals_tell_equal_units_apart(log):
    @jax.jit
    def layer(w, x, s):
        jax.debug.callback(note(log, "unit"), s, ordered=True)
        return jnp.tanh(x @ w) * s

    def program(w, x):
        return [layer(w, x, s) for s in (1.0, -0.0, 0.0, 2.0, 1.0, 16777216.0, 16777217.0, 1e-7)]

    _, logs = same_as_jit(program, (W, X), log)
    close(logs[1], logs[0])


@pytest.mark.parametrize("kind", KINDS)
def test_in_loops_and_branches(kind, log):
    layer = layer_with()

    def program(w, x):
        def body(carry, n):
            out = KINDS[kind](answering(log, "loop"), carry + n)
            return layer(w, carry if out is None else carry + out), carry.sum()

        for _ in range(2):
            x, sums = lax.scan(body, x, jnp.arange(3.0))
            if "ordered" not in kind:  # JAX has none in branches
                x = lax.cond(sums[0] > 0, lambda v: (KINDS[kind](answering(log, "up"), v), v * 2)[1], lambda v: v, x)
            x = layer(w, x)
        return x, sums

    _, logs = same_as_jit(program, (W, X), log)
    for got in logs:
        close(sorted(got), sorted(logs[0]))


def test_what_is_printed(capfd):
    layer = layer_with()

    def program(w, x):
        for n in range(3):
            x = layer(w, x)
            jax.debug.print("layer {n} of {shape}: {total:.3f}", n=n, shape=str(x.shape), total=x.sum(), ordered=True)
        jax.debug.print("at some time: {}", x[0, 0])
        return x

    step, printed = linked(program), []
    for call in (jax.jit(program), step, step):
        jax.block_until_ready(call(W, X))
        jax.effects_barrier()
        lines = capfd.readouterr().out.splitlines()
        printed.append([[line for line in lines if line.startswith(start)] for start in ("layer", "at some time")])
    assert printed[0][0] == printed[1][0] == printed[2][0]
    assert [len(lines) for lines in printed[0]] == [3, 1]
    assert len({tuple(map(len, run)) for run in printed}) == 1


def test_effects_without_results(log):
    layer = layer_with("io_ordered", answering(log, "unit"))

    def program(w, x):
        layer(w, layer(w, x))
        io_callback(note(log, "end"), None, ordered=True)

    step, logs = same_as_jit(program, (W, X), log)
    assert step(W, X) is None
    assert [tag for tag, *_ in logs[1]] == ["unit", "unit", "end"]


def test_unused_callbacks_are_dropped_or_kept_as_by_jit(log):
    layer = layer_with()

    def program(w, x):
        y = layer(w, x)
        jax.pure_callback(answering(log, "pure"), NUMBER, y.sum())
        io_callback(answering(log, "io"), NUMBER, y.sum())
        return layer(w, y)

    _, logs = same_as_jit(program, (W, X), log)
    assert [tag for tag, _ in logs[0]] == [tag for tag, _ in logs[1]] == ["io"]


def test_a_callback_that_raises(log):
    layer = layer_with()

    def bad(value):
        raise ValueError("the user's own")

    for callback in (jax.pure_callback, io_callback):

        def program(w, x, callback=callback):
            y = layer(w, x)
            return layer(w, y) + callback(bad, NUMBER, y.sum())

        for call in (jax.jit(program), linked(program)):
            with pytest.raises(jax.errors.JaxRuntimeError, match="the user's own"):
                jax.block_until_ready(call(W, X))
    # and the next program is not impressed
    assert_same(linked(lambda w, x: layer(w, layer(w, x)))(W, X), layer(W, layer(W, X)), is_exact=False)


def test_typed_keys_next_to_callbacks(log):
    @jax.jit
    def layer(key, w, x):
        key, use = jax.random.split(key)
        jax.debug.callback(lambda data: log.append(data.tolist()), jax.random.key_data(key), ordered=True)
        return key, jnp.tanh(x @ w) + jax.random.normal(use, x.shape)

    def program(key, w, x):
        for _ in range(3):
            key, x = layer(key, w, x)
            io_callback(lambda data: log.append(data.tolist()), None, jax.random.key_data(key), ordered=True)
        return key, x

    _, logs = same_as_jit(program, (jax.random.key(3), W, X), log)
    assert logs[1] == logs[0]
    assert len(logs[0]) == 6


def test_donated_arguments_next_to_callbacks(log):
    layer = layer_with("io_ordered", answering(log, "unit"))

    def program(w, x):
        for _ in range(3):
            x = layer(w, x)
        return x

    want = jax.jit(program)(W, X)
    step = linked(program, donate_argnums=1)
    for _ in range(2):
        x = X + 0
        assert_same(step(W, x), want, is_exact=False)
        assert x.is_deleted()


def test_programs_with_effects_under_transformations(log):
    layer = layer_with("debug", answering(log, "unit"))

    def program(w, x):
        return layer(w, layer(w, x))

    pair = jnp.stack([X, X * 2])
    ways = {
        "of it": lambda jit: jax.jit(jit(program))(W, X),
        "vmap of it": lambda jit: jax.vmap(jit(program), in_axes=(None, 0))(W, pair),
        "gradient of it": lambda jit: jax.grad(lambda *args: jit(program)(*args).sum())(W, X),
        "it of vmap": lambda jit: jit(jax.vmap(program, in_axes=(None, 0)))(W, pair),
    }
    for name, way in ways.items():
        logs = []
        for jit in (jax.jit, linked):
            log.clear()
            jax.block_until_ready(way(jit))
            jax.effects_barrier()
            logs.append(sorted(log))
        assert logs[0], name
        close(logs[1], logs[0])


def test_mutable_arrays():
    layer = layer_with()

    def inside(w, x):
        ref = jax.new_ref(x)
        for _ in range(2):
            ref[...] = layer(w, ref[...])
        return ref[...], layer(w, x)

    assert_same(linked(inside)(W, X), jax.jit(inside)(W, X), is_exact=False)

    def outside(w, ref):
        ref[...] = layer(w, layer(w, ref[...]))
        return ref[...].sum()

    got, want = jax.new_ref(X), jax.new_ref(X)
    step, theirs = linked(outside), jax.jit(outside)
    for _ in range(2):
        assert_same(step(W, got), theirs(W, want), is_exact=False)
        assert_same(got[...], want[...], is_exact=False)


@pytest.mark.parametrize("kind", ["debug", "pure"])
def test_loops_over_one_body_that_calls_back_are_not_mixed_up(kind):
    """Their bodies have no content to compare, and on some versions of JAX are one object."""

    def body(c, v):
        if kind == "debug":
            jax.debug.callback(lambda a: None, c)
        else:
            told = jax.pure_callback(lambda a: np.asarray(a), jax.ShapeDtypeStruct((), "float32"), c)
            return told * 0.5 + (1.0 if v is None else v), None
        return c * 0.5 + (1.0 if v is None else v), None

    def program(x, xs):
        return (
            lax.scan(body, x, xs)[0],
            lax.scan(body, x, xs, reverse=True)[0],
            lax.scan(body, x, None, length=2)[0],
            lax.scan(body, x, None, length=5)[0],
            lax.fori_loop(0, 3, lambda i, c: body(c, None)[0], x),
            lax.fori_loop(0, 4, lambda i, c: body(c, None)[0], x),
        )

    args = jnp.float32(1), jnp.arange(5.0, dtype="float32")
    np.testing.assert_allclose(linked(program)(*args), jax.jit(program)(*args), rtol=1e-6)


def test_equal_calls_of_a_function_that_calls_back_share_an_executable():
    @jax.jit
    def layer(x):
        jax.debug.callback(lambda v: None, x.sum())
        return jnp.tanh(x) * 2

    step = linked(lambda x: layer(layer(layer(x))))
    plan = step.plan(jnp.ones(3))
    assert plan.is_linked
    assert [part.nr_calls for part in plan.parts if part.name == "layer"] == [3]


@pytest.mark.parametrize("link", ["auto", "separate"])
def test_mutable_arrays_made_inside_keep_a_program_in_one_module(link, recwarn):
    @jax.jit
    def update(ref, y):
        ref[...] = jnp.sin(ref[...]) * 2 + y
        return y * 2

    def program(x):
        ref, y = jax.new_ref(x), x
        for _ in range(3):
            y = update(ref, y)
        return ref[...], y

    x = jnp.arange(6.0)
    step = prejit.jit(program, link=link)
    np.testing.assert_array_equal(step(x), jax.jit(program)(x))
    assert step.plan(x).reason == "it writes to a mutable array"
    assert not [one for one in recwarn if issubclass(one.category, prejit.errors.LinkWarning)]
