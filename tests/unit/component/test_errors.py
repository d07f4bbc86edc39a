"""Errors are JAX's own: type, message and traceback, cold and again."""

import collections
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import prejit


def test_a_result_that_is_no_array(same_error):
    same_error(lambda x: "text", 1.0)
    same_error(lambda x: {"a": x, "b": object}, 1.0)
    same_error(lambda x: (x, [len]), 1.0)


def test_a_named_function_is_named_in_the_message(same_error):
    def returns_text(x):
        return "text"

    error = same_error(returns_text, 1.0)
    assert "returns_text" in str(error)
    assert "binding.py" not in str(error)
    assert "dispatch.py" not in str(error)


def test_arguments_that_are_no_arrays(same_error):
    same_error(lambda x: x, "text")
    same_error(lambda x: x, object)
    same_error(lambda x: x, {"a": "text"})
    same_error(lambda x: x, ([1.0, len],))
    same_error(lambda x, *, y: x, 1.0, y="text")
    same_error(lambda x: x, np.array(["a", "b"]))
    same_error(lambda x: x, np.array([1, None], dtype=object))
    same_error(lambda x: x, np.zeros(2, dtype=[("a", "f4")]))
    same_error(lambda x: x, np.datetime64("2020-01-01"))
    same_error(lambda x: x, np.array(["2020-01-01"], "M8[D]"))
    same_error(lambda x: x, np.timedelta64(1))
    same_error(lambda x: x, np.str_("a"))
    same_error(lambda x: {"a": x}, {"a": np.void(b"a")})
    same_error(lambda x: x, np.ma.masked_array([1.0, 2.0], [True, False]))
    same_error(lambda x: x, b"bytes")
    same_error(lambda x: x, slice(1))
    same_error(lambda x: x, {1, 2})
    same_error(lambda x: x, jax.ShapeDtypeStruct((2,), "float32"))


def test_a_keyword_argument_that_is_no_array(same_error):
    def scale(x, factor=1.0):
        return x * factor

    same_error(scale, 1.0, factor="text")
    same_error(scale, x="text")


def test_an_error_names_the_argument_as_jax_names_it(same_error):
    def f(first, second):
        return first

    assert "second" in str(same_error(f, 1.0, "text"))
    assert "second" in str(same_error(f, 1.0, {"inner": "text"}))
    assert "first" in str(same_error(f, 2**70, 1.0))


@pytest.mark.parametrize("number", [2**40, -(2**40), 2**70])
def test_integers_that_are_too_large(same_error, number):
    same_error(lambda x: x, number)
    component = prejit.component(lambda x: x + 1)
    assert int(component(1)) == 2
    with pytest.raises(OverflowError) as want:
        jax.jit(lambda x: x + 1)(number)
    with pytest.raises(OverflowError) as got:
        component(number)
    assert str(got.value) == str(want.value)


@pytest.mark.parametrize("array", [np.arange(3, dtype=">f4"), np.arange(3, dtype=">i4"), np.arange(3, dtype=">c8")])
def test_arrays_of_another_byte_order_are_refused_cold_and_warm(array):
    component = prejit.component(lambda x: x * 2)
    for _ in range(2):
        for nested in (lambda f: f(array), lambda f: f({"a": array}), lambda f: f(x=array)):
            with pytest.raises(TypeError) as want:
                nested(jax.jit(lambda x: jax.tree.map(lambda v: v * 2, x)))
            with pytest.raises(TypeError) as got:
                nested(component if nested.__code__.co_consts != ("a",) else prejit.component(lambda x: x))
            assert type(got.value) is type(want.value)
        component(array.astype(array.dtype.newbyteorder("=")))


def test_wrong_numbers_and_names_of_arguments(same_error):
    def two(x, y, *, z=1.0):
        return x + y * z

    same_error(two)
    same_error(two, 1.0)
    same_error(two, 1.0, 2.0, 3.0)
    same_error(two, 1.0, 2.0, w=3.0)
    same_error(two, 1.0, x=2.0)
    same_error(two, 1.0, 2.0, y=2.0)
    same_error(two, y=2.0)
    same_error(two, z=2.0)

    def only_position(x, /, y):
        return x + y

    same_error(only_position, x=1.0, y=2.0)


def test_wrong_arguments_with_statics(same_error):
    def f(x, n, m=2):
        return x * n * m

    for options in (
        {"static_argnums": 1},
        {"static_argnames": "n"},
        {"static_argnums": (1, 2)},
        {"static_argnames": ("n", "m")},
    ):
        same_error(f, 1.0, options=options)
        same_error(f, 1.0, 2, 3, 4, options=options)
        same_error(f, 1.0, 2, x=3, options=options)
        same_error(f, 1.0, 2, n=3, options=options)
        same_error(f, 1.0, 2, k=3, options=options)


def test_static_arguments_that_cannot_be_hashed(same_error):
    same_error(lambda x, n: x, 1.0, [1], options={"static_argnums": 1})
    same_error(lambda x, n: x, 1.0, np.ones(2), options={"static_argnums": 1})
    same_error(lambda x, n: x, 1.0, jnp.ones(2), options={"static_argnums": 1})
    same_error(lambda x, n: x, 1.0, (1, [2]), options={"static_argnums": 1})
    same_error(lambda x, n: x, 1.0, n={"a": 1}, options={"static_argnames": "n"})


def test_a_tracer_as_a_static_argument():
    def run(wrap):
        f = wrap(lambda x, n: x * n, static_argnums=1)
        with pytest.raises(Exception) as raised:  # noqa: PT011
            jax.jit(lambda x: f(1.0, x))(2.0)
        return raised.value

    got, want = run(prejit.component), run(jax.jit)
    assert type(got) is type(want)
    assert isinstance(got, ValueError)
    # The text names a tracer by address.
    assert str(got).split("<")[0] == str(want).split("<")[0]


@pytest.mark.parametrize("value", [3, "text", None, [1], object()])
def test_what_is_no_function(value):
    with pytest.raises(TypeError) as want:
        jax.jit(value)
    if value is not None:
        with pytest.raises(TypeError) as got:
            prejit.component(value)
        assert str(got.value) == str(want.value)


@pytest.mark.filterwarnings("ignore:coroutine")
def test_generators_and_coroutines(same_error):
    def generator(x):
        yield x

    async def coroutine(x):
        return x

    with pytest.raises(TypeError) as want:
        jax.jit(generator)
    with pytest.raises(TypeError) as got:
        prejit.component(generator)
    assert str(got.value) == str(want.value)
    same_error(coroutine, 1.0)


@pytest.mark.parametrize(
    "options",
    [
        {"static_argnums": 5},
        {"static_argnums": -5},
        {"static_argnames": "nope"},
        {"donate_argnums": 7},
        {"donate_argnames": "nope"},
        {"static_argnums": 0, "donate_argnums": 0},
        {"static_argnames": "x", "donate_argnames": "x"},
        {"static_argnums": "x"},
        {"static_argnums": 1.5},
        {"static_argnames": 3},
        {"donate_argnums": "x"},
        {"static_argnames": ("x", 1)},
        {"static_argnums": (0, 0)},
        {"donate_argnums": -1},
        {"static_argnums": np.int64(1)},
        {"static_argnums": [1]},
        {"static_argnames": ["y"]},
        {"static_argnums": None},
        {"static_argnames": None},
        {"donate_argnums": None},
        {"donate_argnames": None},
        {"static_argnums": range(1)},
    ],
)
def test_argument_numbers_and_names_are_checked_as_jax_checks_them(options):
    def f(x, y=2):
        return x * y

    try:
        want = jax.jit(f, **options)
    except Exception as error:  # noqa: BLE001
        with pytest.raises(type(error)) as got:
            prejit.component(f, **options)
        assert str(got.value) == str(error)  # noqa: PT017
    else:
        value = want(1, 3)
        assert float(prejit.component(f, **options)(1, 3)) == float(value)


def test_dictionaries_whose_keys_do_not_compare(same_error):
    same_error(lambda x: x, {1: 1.0, "a": 2.0})
    same_error(lambda x: {1: x, "a": x}, 1.0)


def test_deleted_arrays(same_error):
    x = jnp.arange(3.0)
    x.delete()
    same_error(lambda v: v + 1, x)
    y = jnp.arange(3.0)
    component = prejit.component(lambda v: v + 1)
    component(y)
    y.delete()
    with pytest.raises(RuntimeError, match="deleted"):
        component(y)


def test_arguments_on_different_devices(same_error):
    if len(jax.devices()) < 2:
        pytest.skip("needs two devices")
    x, y = (jax.device_put(jnp.ones(2), d) for d in jax.devices()[:2])
    same_error(lambda a, b: a + b, x, y)
    component = prejit.component(lambda a, b: a + b)
    component(x, x), component(y, y)
    with pytest.raises(ValueError, match="incompatible devices"):
        component(x, y)


def test_python_branching_on_a_tracer(same_error):
    same_error(lambda x: 1 if x > 0 else 2, 1.0)
    same_error(lambda x: float(x), 1.0)
    same_error(lambda x: np.asarray(x), jnp.ones(2))
    same_error(lambda x: [1, 2][x], 1)
    same_error(lambda x: jnp.ones(x), 2)
    same_error(lambda x, n=2: jnp.ones(n), 1.0, n=3)


def test_shape_errors(same_error):
    same_error(lambda x, y: x @ y, jnp.ones((2, 3)), jnp.ones((2, 3)))
    same_error(lambda x, y: x + y, jnp.ones(2), jnp.ones(3))


def _inner(x):
    raise KeyError("mine")


def _outer(x):
    return _inner(x) + 1


def test_an_error_in_the_body_shows_the_users_lines_and_nobody_elses(same_error, frames_of):
    error = same_error(_outer, 1.0)
    assert frames_of(error)[-1] == __file__
    assert not [name for name in frames_of(error) if "/prejit/" in name]


def test_an_error_in_the_body_under_transformations(frames_of):
    component = prejit.component(_outer)
    for call in (
        lambda f: jax.jit(lambda x: f(x))(1.0),
        lambda f: jax.grad(f)(1.0),
        lambda f: jax.vmap(f)(jnp.ones(2)),
        lambda f: f.lower(1.0),
        lambda f: f.trace(1.0),
        lambda f: f.eval_shape(1.0),
    ):
        raised = []
        for f in (component, jax.jit(_outer)):
            with pytest.raises(KeyError) as error:
                call(f)
            raised.append(frames_of(error.value))
        assert raised[0] == raised[1]


def test_an_error_once_leaves_nothing_behind():
    state = {"fails": True}

    def body(x):
        if state["fails"]:
            raise RuntimeError("once")
        return x * 2

    component = prejit.component(body)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="once"):
            component(1.0)
    state["fails"] = False
    assert float(component(1.0)) == 2.0


@pytest.mark.parametrize("mode", ["off", "tracebackhide", "remove_frames", "quiet_remove_frames"])
def test_other_ways_to_filter_tracebacks(mode):
    code = """
import sys, traceback, jax, prejit
jax.config.update("jax_traceback_filtering", sys.argv[1])
def body(x): raise KeyError("mine")
def frames(f):
    try: f(1.0)
    except KeyError:
        frames = traceback.extract_tb(sys.exc_info()[2])
        return [("prejit" in s.filename.split("/"), s.name) for s in frames], traceback.format_exc()
with prejit.use_store(prejit.Store(None)):
    got, text = frames(prejit.component(body))
want, plain = frames(jax.jit(body))
assert got[-1][1] == "body"
if sys.argv[1] in ("remove_frames", "quiet_remove_frames"):
    assert got == want, (got, want)
    assert ("For simplicity" in text) == ("For simplicity" in plain)
if sys.argv[1] == "off":
    assert any(is_ours for is_ours, _ in got)
"""
    done = subprocess.run([sys.executable, "-c", code, mode], capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr


def test_leaked_tracers(same_error):
    leaked = []
    jax.jit(lambda x: leaked.append(x) or x)(1.0)
    same_error(lambda x: x + 1, leaked[0], frames=False)
    same_error(lambda x: x + leaked[0], 1.0, frames=False)
    held = []
    prejit.component(lambda x: held.append(x) or x)(1.0)
    with pytest.raises(jax.errors.UnexpectedTracerError):
        held[0] + 1


def test_checking_leaks():
    with jax.checking_leaks():
        assert float(prejit.component(lambda x: x + 1)(1.0)) == 2.0
        component = prejit.component(lambda x: jnp.sin(x))
        assert float(jax.jit(lambda x: component(x))(0.0)) == 0.0
        assert float(jax.grad(component)(0.0)) == 1.0
        held = []
        with pytest.raises(Exception, match=r"[Ll]eak"):
            prejit.component(lambda x: held.append(x) or x)(1.0)


def test_only_jaxs_errors_at_the_call_never_ours(same_error):
    Point = collections.namedtuple("Point", "x y")
    error = same_error(lambda p: p.x, Point("text", 1.0))
    assert not isinstance(error, prejit.PrejitError)
