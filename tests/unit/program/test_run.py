"""Arguments and results of linked programs: what `jax.jit` takes and gives."""

import functools
import gc
import threading
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import prejit
from prejit.testing import count_compiles

rng = np.random.default_rng(0)
W = rng.normal(size=(8, 8)).astype("float32")
X = rng.normal(size=(4, 8)).astype("float32")


@jax.jit
def layer(w, x):
    return jnp.tanh(x @ w) + x


def program(w, x):
    for _ in range(3):
        x = layer(w, x)
    return {"x": x, "sum": x.sum(), "w": w}


# Kinds of arguments


@pytest.mark.parametrize("kind", ["jax", "numpy", "mixed", "float64", "fortran", "strided", "readonly", "list"])
def test_arrays(as_jit, kind):
    def make():
        return {
            "jax": lambda: (jnp.array(W), jnp.array(X)),
            "numpy": lambda: (W.copy(), X.copy()),
            "mixed": lambda: (W.copy(), jnp.array(X)),
            "float64": lambda: (W.astype("float64"), X.astype("float64")),
            "fortran": lambda: (np.asfortranarray(W), np.asfortranarray(X)),
            "strided": lambda: (np.repeat(W, 2, 0)[::2], np.repeat(X, 2, 1)[:, ::-2]),
            "readonly": lambda: tuple(np.frombuffer(v.tobytes(), "float32").reshape(v.shape) for v in (W, X)),
            "list": lambda: (W, [list(map(float, row)) for row in X]),
        }[kind]()

    if kind == "list":
        as_jit(lambda w, rows: program(w, jnp.array(rows)), make)
    else:
        as_jit(program, make)


@pytest.mark.parametrize(
    "dtype", ["bfloat16", "float16", "int8", "int32", "uint32", "bool", "complex64", "int4", "float8_e4m3fn"]
)
def test_dtypes(as_jit, dtype):
    def cast(w, x):
        @jax.jit
        def body(w, x):
            y = (x.astype("float32") @ jnp.abs(w.astype("float32"))).astype(dtype)
            return y, y == x

        for _ in range(3):
            x, same = body(w, x)
        return x, same, w

    as_jit(cast, lambda: (jnp.array(W).astype(dtype), jnp.array(X).astype(dtype)))
    as_jit(cast, lambda: (np.asarray(jnp.array(W).astype(dtype)), np.asarray(jnp.array(X).astype(dtype))))


@pytest.mark.parametrize(
    "scalars",
    [(2.5, 3), (True, 3), (2, 3), (2.0, 1j), (np.float32(2), np.int8(3)), (np.float64(2), np.bool_(True)),
     (np.array(2.5), np.array(3)), (2**31 - 1, -(2**31)), (float("nan"), -0.0), (float("inf"), 1e-45)],
)  # fmt: skip
def test_scalars_of_python_and_numpy(as_jit, scalars):
    scale = jax.jit(lambda x, a, b: (jnp.sin(x) * a + b, a * 2, a + b))

    def run(x, a, b):
        for _ in range(3):
            x, twice, total = scale(x, a, b)
        return x, a, b, twice, total, scale(a, b, a), scale(b, a, 2)

    as_jit(run, lambda: (jnp.array(X), *scalars))


def test_integers_that_do_not_fit(as_jit):
    double = jax.jit(lambda x, n: (jnp.sin(x) * n, n * 2))
    as_jit(lambda x, n: double(double(x, n)[0], n), lambda: (X, 2**31))


@pytest.mark.parametrize("shape", [(0, 8), (4, 0), (0, 0)])
def test_arrays_without_elements(as_jit, shape):
    as_jit(program, lambda: (jnp.zeros((shape[1], shape[1])), jnp.zeros(shape)))


def test_numbers_and_weak_types(as_jit):
    scale = jax.jit(lambda a, b: (jnp.sin(a) * b + a, a + 1))

    def run(a, b):
        for _ in range(3):
            a, c = scale(a, b)
        return a, b, c, a * 2, b * 1.0

    weak = jax.jit(lambda: (2.0, 3))
    as_jit(run, lambda: (jnp.float32(2), jnp.float32(3)))
    as_jit(run, lambda: (jnp.asarray(2.0), jnp.asarray(3)))
    as_jit(run, lambda: weak())
    as_jit(run, lambda: (weak()[0], jnp.ones(3, "bfloat16")))
    as_jit(run, lambda: (2.0, 3.0))


@pytest.mark.parametrize("impl", ["threefry2x32", "rbg", "unsafe_rbg"])
@pytest.mark.parametrize("donated", [(), (0,), (0, 1)])
def test_typed_keys(as_jit, impl, donated):
    @jax.jit
    def noisy(key, x):
        key, use = jax.random.split(key)
        return key, x + jax.random.normal(use, x.shape)

    def run(key, x):
        first = key
        for _ in range(3):
            key, x = noisy(key, x)
        return key, x, jax.random.key_data(key), jax.random.fold_in(first, 3)

    as_jit(run, lambda: (jax.random.key(3, impl=impl), jnp.array(X)), donate_argnums=donated)


def test_arrays_of_keys_and_old_keys(as_jit):
    @jax.jit
    def noisy(keys, x):
        return jax.vmap(lambda k: jax.random.normal(k, (8,)))(keys) + x, jax.vmap(jax.random.fold_in, (0, None))(
            keys, 1
        )

    def run(keys, x):
        for _ in range(3):
            x, keys = noisy(keys, x)
        return x, keys, keys[1]

    as_jit(run, lambda: (jax.random.split(jax.random.key(3), 4), jnp.array(X)))
    as_jit(lambda key, x: run(jax.random.split(key, 4), x), lambda: (jax.random.PRNGKey(3), X))
    const = jax.random.split(jax.random.key(1), 5000)
    as_jit(lambda x: (run(const[:4], x), const), lambda: (X,))


def test_trees(as_jit):
    Pair = functools.partial(dict, kind="pair")

    def run(tree, *rest):
        x = tree["x"]
        for w in tree["ws"]:
            x = layer(w, x)
        return Pair(left=x, right=[None, (), tree["none"], {"rest": rest}])

    as_jit(run, lambda: ({"x": X, "ws": (W, W * 2, jnp.array(W)), "none": None}, [], 3, (X,)))
    as_jit(run, lambda: (({"x": X, "ws": [W, W], "none": None},), {}))


def test_results_as_they_are(as_jit):
    big = np.linspace(0, 1, 90000, dtype="float32").reshape(300, 300)
    small, key = jnp.arange(4), jax.random.key(5)

    def run(w, x):
        y = layer(w, layer(w, x))
        return y, y, x, x, w, 1, 2.0, True, 1j, np.float32(3), np.arange(3), None, big, jnp.asarray(big), small, key, {}

    as_jit(run, lambda: (W, X))
    as_jit(run, lambda: (jnp.array(W), jnp.array(X)))


def test_results_are_the_users_own(linked):
    """Deleting or donating what was returned harms nobody: not the constants, not the arguments, not the next call."""
    big = jnp.linspace(0, 1, 90000).reshape(300, 300)

    def run(w, x):
        y = layer(w, layer(w, x))
        return y, x, w, big, y

    step, w, x = linked(run), jnp.array(W), jnp.array(X)
    want = [np.array(leaf) for leaf in step(w, x)]
    for _ in range(2):
        for leaf in step(w, x):
            leaf.delete()
        assert not w.is_deleted()
        assert not x.is_deleted()
        assert not big.is_deleted()
    for got, expected in zip(step(w, x), want, strict=True):
        np.testing.assert_array_equal(got, expected)


def test_constants_may_go(linked):
    big = jnp.linspace(0, 1, 90000).reshape(300, 300)
    step = linked(lambda w, x: layer(w, layer(w, x)) @ big[:8])
    want = np.asarray(step(W, X))
    big.delete()
    np.testing.assert_array_equal(step(W, X), want)


def test_without_arguments(as_jit):
    as_jit(lambda: program(jnp.eye(8), jnp.ones((4, 8))), tuple, is_linked=None)
    as_jit(lambda: (1, 2.0, np.arange(3)), tuple, is_linked=None)


def test_numpy_arguments_that_change_after_the_call(linked):
    step, want = linked(program), np.asarray(jax.jit(program)(W, X)["x"])
    for _ in range(5):
        w, x = W.copy(), X.copy()
        out = step(w, x)
        out = jax.block_until_ready(out)
        w[:], x[:] = 0, 0
        np.testing.assert_allclose(out["x"], want, rtol=1e-5)
        np.testing.assert_array_equal(out["w"], W)


def test_x64(as_jit, linked):
    with jax.enable_x64(True):
        as_jit(program, lambda: (W.astype("float64"), X.astype("float64")))
        as_jit(program, lambda: (W, X.astype("float64")))
        as_jit(lambda w, x, n: (program(w, x * n), n * 2), lambda: (W, X, 2**40))
        as_jit(lambda w, x, n: (program(w, x * n), n * 2), lambda: (W, X, 2.5))
    step, args = linked(lambda w, x, n: (program(w, x), n + 1)), (W.astype("float64"), X, 3.5)
    for is_on in (False, True, False, True):
        with jax.enable_x64(is_on):
            assert step(*args)[0]["x"].dtype == ("float64" if is_on else "float32")
            assert step(*args)[1].dtype == ("float64" if is_on else "float32")


def test_one_program_for_every_kind_of_call(linked):
    """The C++ dispatch tells calls apart as `jax.jit` does; what was found for one never serves another."""
    from tests.transforms.table import assert_same

    def run(w, x):
        return layer(w, layer(w, x)), jnp.sum(x) * 1, x

    calls = [
        (W, X), (jnp.array(W), X), (W, jnp.array(X)), (W[:4, :4], X[:, :4]), (W, X[:1]), (W.astype("float64"), X),
        (W.astype("int32"), X.astype("int32")), (W, 1.5 + np.zeros(8)), (jnp.array(W).astype("bfloat16"), X),
        (W, jnp.array(X).astype("bfloat16")), (np.array(0.5)[None, None], np.ones((1, 1))), (W > 0, X > 0),
    ]  # fmt: skip
    ours, theirs = linked(run), jax.jit(run)
    for _ in range(2):
        for args in calls:
            assert_same(ours(*args), theirs(*args), is_exact=False)


# Registers


def test_dead_values_are_dropped_while_the_program_runs(linked):
    """A value in between lives until its last reader was called: a callback later in the program sees it gone."""
    alive = []

    @jax.jit
    def wide(x):
        return jnp.tanh(jnp.outer(x, x) @ jnp.outer(x, x))

    def run(x):
        sums = []
        for _ in range(4):
            y = wide(x)
            x = y.sum(0)
            jax.experimental.io_callback(count, None, ordered=True)
            sums.append(x)
        return sums

    def count():
        alive.append(sum(a.shape == (96, 96) for a in jax.live_arrays()))

    step = linked(run)
    step(jnp.ones(96))
    jax.effects_barrier()
    assert max(alive) <= 1


def test_arguments_are_not_held(linked):
    step = linked(program)
    for _ in range(2):
        w, x = jnp.array(W), jnp.array(X)
        out = step(w, x)
        dead = [weakref.ref(value) for value in (w, x, *out.values())]
        del w, x, out
        gc.collect()
        assert not any(ref() for ref in dead)


def test_donated_arguments_are_gone_before_the_program_ends(linked):
    x = jnp.array(X)
    step = linked(lambda w, x: program(w, x)["x"], donate_argnums=1)
    for _ in range(2):
        x = step(W, x)
    assert not x.is_deleted()


# The call itself


def test_a_known_call_is_not_traced_compiled_or_looked_up_again(linked):
    step = linked(program)
    args = [(W, X), (jnp.array(W), jnp.array(X)), (W, 2 * X)]
    for one in args:
        step(*one)
    before = step.cache_info()
    with count_compiles() as counts:
        for one in args * 3:
            step(*one)
    assert (counts.traces, counts.lowerings, counts.compiles) == (0, 0, 0)
    assert step.cache_info() == before


def test_each_part_is_compiled_once_and_kept(linked, store):
    step = linked(program)
    with count_compiles() as counts:
        step(W, X)
    parts = len(step.plan(W, X).parts)
    assert counts.compiles == parts + 1, "and the guard"
    kept = [info.name for _, info in store.items() if info.kind == "executable" and info.variant != "eager"]
    assert len(kept) == counts.compiles
    store.clear(tier="memory")
    with count_compiles() as counts:
        linked(lambda w, x: program(w, x))(W, X)
    assert (counts.lowerings, counts.compiles) == (0, 0)


def test_two_programs_share_a_layer(linked, store):
    first = linked(program)
    first(W, X)

    def other(w, x):
        x = layer(w, layer(w, x))
        return jnp.sort(x, axis=0)

    with count_compiles() as counts:
        linked(other)(W, X)
    assert "jit(layer)" not in counts.compiled
    assert counts.compiles == 1


def test_other_constants_are_other_programs(linked):
    for hoisted in (8, 300):
        values = [np.full((hoisted, hoisted), n, "float32") for n in (1, 2, 3)]
        for value in values * 2:
            step = linked(lambda w, x, value=value: layer(w, layer(w, x)).sum() * value[0, 0] + value[:2, :2])
            want = jax.jit(lambda w, x, value=value: layer(w, layer(w, x)).sum() * value[0, 0] + value[:2, :2])(W, X)
            np.testing.assert_allclose(step(W, X), want, rtol=1e-5)


def test_threads_that_call_at_once(linked):
    step, barrier, out = linked(program), threading.Barrier(8), []
    want = np.asarray(jax.jit(program)(W, X)["x"])

    def work(number):
        barrier.wait()
        out.extend((number, np.asarray(step(W, X * (1 if n % 2 else -1))["x"])) for n in range(20))

    with count_compiles() as counts:
        threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(out) == 160
    odd = [value for n, (_, value) in enumerate(out) if np.allclose(value, want, rtol=1e-5)]
    assert len(odd) == 80
    assert counts.compiled.count("jit(layer)") == 1


def test_a_part_that_does_not_compile_makes_the_program_whole(linked, monkeypatch):
    from prejit._jax import pieces

    def broken(*args, **named):
        raise jax.errors.JaxRuntimeError("UNIMPLEMENTED: this part")

    monkeypatch.setattr(pieces, "lower_piece", broken)
    step = linked(program)
    with pytest.warns(prejit.LinkWarning, match="UNIMPLEMENTED: this part"):
        out = step(W, X)
    np.testing.assert_allclose(out["x"], jax.jit(program)(W, X)["x"], rtol=1e-5)
    step(W, X)  # without a warning: it is decided


def test_disabled(linked):
    step = linked(program)
    with prejit.disabled():
        before = prejit.counters()
        out = step(W, X)
        after = prejit.counters()
    assert before["misses"] == after["misses"]
    np.testing.assert_allclose(step(W, X)["x"], out["x"], rtol=1e-5)


def test_ahead_of_time(linked):
    """What `compile` and `warm` made is what a call finds, and what specs say is what arrays are."""
    spec = [jax.ShapeDtypeStruct(v.shape, v.dtype) for v in (W, X)]
    step = linked(program)
    compiled = step.compile(*spec)
    want = jax.jit(program)(W, X)
    for args in [(W, X), (jnp.array(W), jnp.array(X)), (W, jnp.array(X))]:
        np.testing.assert_allclose(compiled(*args)["x"], want["x"], rtol=1e-5)
    with count_compiles() as counts:
        np.testing.assert_allclose(step(W, X)["x"], want["x"], rtol=1e-5)
        np.testing.assert_allclose(step(jnp.array(W), jnp.array(X))["x"], want["x"], rtol=1e-5)
    assert (counts.lowerings, counts.compiles) == (0, 0)
    other = linked(lambda w, x: program(w, x))
    assert other.warm(*spec).result() is None
    with count_compiles() as counts:
        other(W, X)
    assert (counts.lowerings, counts.compiles) == (0, 0)
    for wrong in [(W,), (W, X[:2]), (W, X.astype("int32"))]:
        with pytest.raises(TypeError) as theirs:
            jax.jit(program).lower(*spec).compile()(*wrong)
        with pytest.raises(TypeError) as ours:
            compiled(*wrong)
        assert str(ours.value).splitlines()[0] == str(theirs.value).splitlines()[0]


def test_who_jits_a_function_again_finds_its_trace_under_any_options(linked):
    """JAX's cache of traces does not look at some options: under others than the first the trace is a new one."""
    traced = []

    def draw(x):
        traced.append(jax.config.jax_default_prng_impl)
        return jax.random.normal(jax.random.key(0), (3,)) + x

    values = {}
    for impl in ("rbg", "threefry2x32", "rbg"):
        with jax.default_prng_impl(impl):
            for _ in range(2):
                values.setdefault(impl, set()).add(np.asarray(linked(draw)(1.0)).tobytes())
    assert traced.count("rbg") == 1
    assert {impl: len(seen) for impl, seen in values.items()} == {"rbg": 1, "threefry2x32": 1}
    assert values["rbg"] != values["threefry2x32"]
