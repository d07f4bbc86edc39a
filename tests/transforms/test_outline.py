"""What a component's call looks like in the program around it: kept apart for XLA, or not."""

import re

import jax
import jax.numpy as jnp
import pytest
from tests.transforms.table import CASES, assert_same

import prejit

LAYER = CASES["layer"]


def small(x):
    return jnp.sin(x) * 2


def outlined_calls(text):
    """Count the calls in a module's text that XLA must not inline."""
    marks = ('inlineable = "false"', 'inlineable = "xla_late"')  # JAX 0.11 and later say it in a new word.
    return sum("call @" in line and any(mark in line for mark in marks) for line in text.splitlines())


def layers(g, count):
    def loss(x, w):
        for _ in range(count):
            x = g(x, w)
        return jnp.sum(x * x)

    return loss


def normalized(x):
    mean = jnp.mean(x, axis=-1, keepdims=True)
    spread = jnp.mean((x - mean) ** 2, axis=-1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(spread + 1e-5)


def transformer_layer(x, w):
    """Add to what comes in, and normalize it by mean and variance: what XLA fuses again and again."""
    x = x + jax.nn.softmax(normalized(x) @ w["in"]) @ w["out"]
    return x + jnp.tanh(normalized(x) @ w["in"]) @ w["out"]


@pytest.mark.parametrize("link", ["outline", "separate"])
def test_a_large_body_is_a_marked_call_once_for_each_call(link):
    layer = prejit.component(LAYER.function, link=link)
    text = jax.jit(layers(layer, 3)).lower(*LAYER.args).as_text()
    assert outlined_calls(text) == 3
    assert len(re.findall(r"func.func private @layer\b", text)) == 1, "one function, called three times"


def test_the_marks_stay_on_forward_and_backward_calls():
    layer = prejit.component(LAYER.function, link="outline")
    text = jax.jit(jax.grad(layers(layer, 3))).lower(*LAYER.args).as_text()
    assert outlined_calls(text) == 6


@pytest.mark.parametrize("transform", [jax.vmap, lambda f: jax.jit(f), jax.checkpoint])
def test_the_marks_stay_under_other_transforms(transform):
    component = prejit.component(small, link="outline")
    text = jax.jit(transform(component)).lower(jnp.ones((2, 3))).as_text()
    assert outlined_calls(text) == 1


def test_inline_marks_nothing():
    layer = prejit.component(LAYER.function, link="inline")
    for program in (layers(layer, 2), jax.grad(layers(layer, 2))):
        assert outlined_calls(jax.jit(program).lower(*LAYER.args).as_text()) == 0


def test_auto_keeps_a_transformer_layer_apart_and_leaves_a_large_body_of_another_shape_whole(monkeypatch):
    assert jax.device_count() > 1
    several = prejit.component(transformer_layer)
    assert outlined_calls(jax.jit(layers(several, 3)).lower(*LAYER.args).as_text()) == 0, "a cut stops propagation"
    monkeypatch.setattr(jax, "device_count", lambda: 1)
    layer = prejit.component(transformer_layer)
    assert outlined_calls(jax.jit(layers(layer, 3)).lower(*LAYER.args).as_text()) == 3
    assert outlined_calls(jax.jit(jax.grad(layers(layer, 3))).lower(*LAYER.args).as_text()) == 6

    def long(x):
        for _ in range(40):
            x = jnp.sin(x) * 2
        return x

    chain = prejit.component(long)
    assert outlined_calls(jax.jit(lambda x: chain(x) + 1).lower(1.0).as_text()) == 0


def test_auto_leaves_a_small_body_alone():
    text = jax.jit(lambda x: prejit.component(small)(x) + 1).lower(1.0).as_text()
    assert outlined_calls(text) == 0


def test_the_setting_decides_where_the_decorator_does_not():
    component = prejit.component(small)
    with prejit.config.override(link="outline"):
        assert outlined_calls(jax.jit(lambda x: component(x)).lower(1.0).as_text()) == 1
        pinned = prejit.component(small, link="inline")
        assert outlined_calls(jax.jit(lambda x: pinned(x)).lower(1.0).as_text()) == 0


@pytest.mark.parametrize("grads", [False, True])
def test_calls_nested_in_the_body_are_not_kept_apart(grads):
    """A `softmax` inside would lose its fusion with what is around it."""

    def body(x):
        return jnp.sum(jax.nn.softmax(jax.nn.relu(x)) * jax.jit(jnp.tanh)(x))

    component = prejit.component(body, link="outline")
    program = jax.grad(component) if grads else component
    text = jax.jit(lambda x: program(x)).lower(jnp.ones(3)).as_text()
    assert "@softmax" in text or "@relu" in text, "the test would show nothing without nested calls"
    assert outlined_calls(text) == (2 if grads else 1)


def test_a_component_in_a_component_is_kept_apart_as_it_asks():
    inner = prejit.component(small, link="outline")
    outer = prejit.component(lambda x: inner(x) + inner(x * 2), link="outline")
    text = jax.jit(lambda x: outer(x)).lower(1.0).as_text()
    assert outlined_calls(text) == 3


def test_eager_operations_around_an_outlined_call_are_not_marked():
    component = prejit.component(small, link="outline")

    def program(x):
        y = component(x)
        return jax.jit(jnp.cos)(y) + jax.nn.relu(y)

    text = jax.jit(program).lower(jnp.ones(2)).as_text()
    assert outlined_calls(text) == 1


def test_gradients_of_outlined_layers_are_those_of_jit():
    want = jax.jit(jax.value_and_grad(layers(jax.jit(transformer_layer), 3), (0, 1)))(*LAYER.args)
    for link in ("outline", "inline", "auto", "separate"):
        layer = prejit.component(transformer_layer, link=link)
        got = jax.jit(jax.value_and_grad(layers(layer, 3), (0, 1)))(*LAYER.args)
        assert_same(got, want, is_exact=False)
        unjitted = jax.value_and_grad(layers(layer, 3), (0, 1))(*LAYER.args)
        assert_same(unjitted, want, is_exact=False)


def test_users_metadata_around_a_call_is_kept():
    from jax.experimental.xla_metadata import set_xla_metadata

    component = prejit.component(small, link="outline")

    def program(x):
        with set_xla_metadata(mine="yes"):
            return component(x)

    text = jax.jit(program).lower(1.0).as_text()
    assert 'mine = "yes"' in text
    assert outlined_calls(text) == 1
    assert float(jax.jit(program)(1.0)) == pytest.approx(float(small(1.0)))


def test_one_program_traces_a_body_once_however_often_it_calls():
    traced = []

    def body(x):
        traced.append(1)
        return jnp.sin(x)

    for link in ("outline", "inline", "auto"):
        traced.clear()
        component = prejit.component(body, link=link)
        jax.jit(lambda x, f=component: f(f(f(x)))).lower(jnp.ones(3))
        assert len(traced) == 1, link
