"""Donated arguments go when, and only when, `jax.jit` would let them go; its warnings and errors are the same."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

W = np.linspace(-1, 1, 64, dtype="float32").reshape(8, 8)


@jax.jit
def layer(w, x):
    return jnp.tanh(x @ w) + x


def one_result(a, b, c):
    return layer(a, layer(a, b)) + c


def other_types(a, b, c):
    y = layer(a, layer(a, b))
    return y.reshape(-1), y.astype("int32"), c


def unused(a, b, c):
    return layer(a, layer(a, a))


def returned(a, b, c):
    return a, layer(b, layer(b, b)), c


def returned_twice(a, b, c):
    return a, a, layer(b, layer(b, b)), c, b


def many_results(a, b, c):
    y = layer(a, layer(b, c))
    return y, y.T, y * 2, layer(y, y)


def smaller(a, b, c):
    return layer(a, layer(a, b))[:4, :4], c.sum()


def as_bytes(a, b, c):
    y = layer(a, layer(a, b))
    return y.astype("bfloat16"), jax.lax.bitcast_convert_type(y, "int32"), y.reshape(2, 32)


PROGRAMS = [one_result, other_types, unused, returned, returned_twice, many_results, smaller, as_bytes]
WHICH = [which for n in (1, 2, 3) for which in itertools.combinations(range(3), n)]


def three():
    return jnp.array(W), jnp.array(W * 2), jnp.array(W * 3)


@pytest.mark.parametrize("which", WHICH, ids=str)
@pytest.mark.parametrize("function", PROGRAMS, ids=lambda f: f.__name__)
def test_what_is_deleted_and_said(as_jit, function, which):
    as_jit(function, three, donate_argnums=which)


@pytest.mark.parametrize("which", [(1,), (0, 1), (0, 1, 2)], ids=str)
@pytest.mark.parametrize("function", [unused, one_result], ids=lambda f: f.__name__)
def test_keep_unused(as_jit, function, which):
    as_jit(function, three, donate_argnums=which, keep_unused=True)


def test_by_name_and_by_keyword(as_jit):
    def program(a, b, *, c):
        return layer(a, layer(a, b)), c

    def make():
        a, b, c = three()
        return (a, b), {"c": c}

    as_jit(program, make, donate_argnames=("b", "c"))
    as_jit(program, make, donate_argnums=0, donate_argnames="c")
    as_jit(lambda a, b: layer(a, layer(a, b)), lambda: ((three()[0],), {"b": three()[1]}), donate_argnames="b")


def test_trees_of_arguments(as_jit):
    def step(params, x):
        grads = jax.grad(lambda p: sum((layer(w, layer(w, x)) ** 2).mean() for w in p["ws"]))(params)
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), x

    as_jit(step, lambda: ({"ws": [jnp.array(W), jnp.array(W * 2)], "b": jnp.ones(3)}, jnp.array(W)), donate_argnums=0)


@pytest.mark.parametrize("kind", ["numpy", "scalar", "key"])
def test_arguments_that_have_no_buffer_to_give(as_jit, kind):
    kept = W.copy()
    makers = {
        "numpy": lambda: (jnp.array(W), kept, 1.5),
        "scalar": lambda: (jnp.array(W), jnp.array(W), 1.5),
        "key": lambda: (jnp.array(W), jnp.array(W), jax.random.key(0)),
    }

    def program(a, b, c):
        return layer(a, layer(a, b)), c

    as_jit(program, makers[kind], donate_argnums=(0, 1, 2))
    np.testing.assert_array_equal(kept, W)


@pytest.mark.filterwarnings("ignore:Some donated buffers")
@pytest.mark.parametrize("nbytes", [256, 2**16])
def test_numpy_memory_is_never_written_to(linked, nbytes):
    """JAX takes over an aligned NumPy array without a copy; an executable that reuses it must not write there."""
    side = int((nbytes / 4) ** 0.5)
    memory = np.zeros(side * side * 4 + 64, "uint8")
    start = -memory.ctypes.data % 64
    x = memory[start : start + side * side * 4].view("float32").reshape(side, side)
    x[:] = np.linspace(-1, 1, side * side).reshape(side, side)
    before = x.copy()
    step = linked(lambda w, x: layer(w, layer(w, layer(w, x))), donate_argnums=(0, 1))
    for _ in range(3):
        jax.block_until_ready(step(x, x))
        np.testing.assert_array_equal(x, before)


def test_a_donated_argument_can_be_used_while_it_is_only_a_result(linked):
    step = linked(lambda w, x: layer(w, layer(w, x)), donate_argnums=1)
    x = jnp.array(W)
    for _ in range(4):
        x = step(W, x)
    want = jnp.array(W)
    for _ in range(8):
        want = layer(W, want)
    np.testing.assert_allclose(x, want, rtol=1e-5)


# The same buffer twice


def _same(places):
    def make():
        shared = jnp.array(W)
        return tuple(shared if n in places else jnp.array(W * (n + 2)) for n in range(3))

    return make


@pytest.mark.parametrize("which", [(0,), (1,), (2,), (0, 1), (0, 1, 2)], ids=str)
@pytest.mark.parametrize("places", [(0, 1), (0, 2), (0, 1, 2)], ids=str)
@pytest.mark.parametrize("function", [one_result, unused], ids=lambda f: f.__name__)
def test_one_buffer_for_two_arguments(as_jit, function, places, which):
    as_jit(function, _same(places), calls=1, donate_argnums=which)


def test_one_buffer_for_two_arguments_of_a_known_call(linked):
    step = linked(one_result, donate_argnums=1)
    step(*three())
    shared = jnp.array(W)
    with pytest.raises((ValueError, jax.errors.JaxRuntimeError), match="donate a buffer which is also used"):
        step(shared, shared, jnp.array(W))
    assert not shared.is_deleted(), "nothing ran"
    step(*three())


# Arguments that are gone


def _gone(place, how):
    def make():
        args = three()
        if how == "deleted":
            args[place].delete()
        else:
            jax.jit(lambda v: v + 1, donate_argnums=0)(args[place])
        return args

    return make


@pytest.mark.filterwarnings("ignore:Some donated buffers")
@pytest.mark.parametrize("which", [(), (0,), (1, 2)], ids=str)
@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("function", [one_result, unused, returned], ids=lambda f: f.__name__)
def test_a_deleted_argument(linked, function, place, which):
    theirs, ours = jax.jit(lambda *args: function(*args), donate_argnums=which), linked(function, donate_argnums=which)
    for is_known in (False, True):
        if is_known:
            theirs(*three())
            ours(*three())
        want = got = None
        try:
            theirs(*_gone(place, "deleted")())
        except Exception as error:  # noqa: BLE001
            want = error
        args = _gone(place, "deleted")()
        try:
            ours(*args)
        except Exception as error:  # noqa: BLE001
            got = error
        assert (got is None) == (want is None), (got, want)
        if want is not None:
            assert "deleted" in str(got)
            assert isinstance(got, RuntimeError | ValueError)
            assert [a.is_deleted() for n, a in enumerate(args) if n != place] == [False, False], "nothing ran"
            if type(want) is RuntimeError:
                assert (type(got), str(got)) == (RuntimeError, str(want))


@pytest.mark.filterwarnings("ignore:Some donated buffers")
@pytest.mark.parametrize("which", [(), (0,), (1, 2)], ids=str)
@pytest.mark.parametrize("place", [0, 1])
def test_an_argument_that_was_donated_before(linked, place, which):
    step = linked(one_result, donate_argnums=which)
    for _ in range(2):
        args = _gone(place, "donated")()
        with pytest.raises((RuntimeError, ValueError), match="deleted"):
            step(*args)
        assert [a.is_deleted() for n, a in enumerate(args) if n != place] == [False, False]
        step(*three())


# Moved arguments


def test_arguments_that_are_moved_stay(as_jit):
    devices = jax.devices()

    def away(value, device):
        with jax.default_device(device):
            return jnp.array(value)

    def program(w, x):
        x = layer(w, layer(w, x))
        return x, w * 2

    for make in (
        lambda: (jax.device_put(W, devices[3]), jnp.array(W)),
        lambda: (away(W, devices[3]), jnp.array(W)),
        lambda: (away(W, devices[3]), away(W, devices[2])),
        lambda: (jax.device_put(W, devices[3]), jax.device_put(W * 2, devices[3])),
    ):
        as_jit(program, make, donate_argnums=(0, 1))
