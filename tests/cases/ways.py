"""What the case programs call `component`: a component, a program, or a program that is linked wherever it can be."""

import functools
import os

import jax

import prejit

__all__ = ["component"]

WAY = os.environ.get("CASES_WAY", "component")  # component | program | linked | jax


def component(fun, *, name=None, **options):
    """Wrap a function in the way of this process; `name` is the one of its entries."""
    if WAY == "component":
        return prejit.component(fun, name=name, **options)
    if name is not None:
        fun.__name__ = name
    if WAY == "program":
        return prejit.jit(fun, **options)
    if WAY == "jax":
        return jax.jit(fun, **options)
    part = prejit.component(fun, link="separate", **options)

    @functools.wraps(fun)
    def two_parts(*args, **kwargs):
        return _hand_on(part(*args, **kwargs))

    return prejit.jit(two_parts, link="separate", **options)


if WAY == "linked":
    # One part alone is not linked: a second one, which changes nothing, follows each.
    _hand_on = prejit.component(lambda out: jax.tree.map(jax.lax.optimization_barrier, out), link="separate")
    jax.jit = functools.partial(prejit.jit, link="separate")

    def _compiled(transformation):
        """Return the transformation with its result a program, so that what a case does eagerly is linked too."""

        @functools.wraps(transformation)
        def transformed(*args, **kwargs):
            return prejit.jit(transformation(*args, **kwargs), link="separate")

        return transformed

    for _name in ("vmap", "grad", "value_and_grad", "hessian"):
        setattr(jax, _name, _compiled(getattr(jax, _name)))
