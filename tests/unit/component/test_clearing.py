"""What `cache_clear` forgets, and statics that only look equal."""

import math

import jax.numpy as jnp
import pytest

import prejit


def test_cache_clear_traces_again():
    factor = [1.0]
    component = prejit.component(lambda x: x + factor[0])
    assert float(component(1.0)) == 2.0
    factor[0] = 5.0
    component.cache_clear()
    assert float(component(1.0)) == 6.0
    assert component.cache_info().traces == 1


class Spec(tuple):  # noqa: SLOT001  # the attribute is the point
    """A tuple with something besides its items, which its equality knows of."""

    def __new__(cls, items, mode):
        made = super().__new__(cls, items)
        made.mode = mode
        return made

    def __eq__(self, other):
        return tuple.__eq__(self, other) and self.mode == other.mode

    def __hash__(self):
        return hash((tuple(self), self.mode))


@pytest.mark.parametrize(("one", "other", "read"), [
    (Spec((1,), 2.0), Spec((1,), 3.0), lambda s: s.mode),
    (float("nan"), -float("nan"), lambda s: math.copysign(1.0, s)),
])  # fmt: skip
def test_statics_that_look_equal(one, other, read):
    component = prejit.component(lambda s, x: x * read(s), static_argnums=0)
    assert float(component(one, jnp.float32(2))) == 2 * read(one)
    assert float(component(other, jnp.float32(2))) == 2 * read(other)
