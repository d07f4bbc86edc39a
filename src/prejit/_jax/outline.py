"""Keep an inner call apart for XLA: one function in the module that XLA's call inliner leaves alone.

JAX 0.11 and later say it with a parameter of the call. On 0.10 it is a frontend attribute on the call equation. There,
rules that derive the call's gradient run with that attribute in the ambient context, and calls nested in the body (a
`softmax`, a `relu`) would inherit it and lose their fusion, so those get the opposite attribute written on them.
"""

import weakref
from collections.abc import Sequence
from typing import Any

import jax
from jax._src import api, core, pjit
from jax.experimental.xla_metadata import set_xla_metadata

_INLINE = getattr(getattr(api, "Inline", None), "XLA_LATE", None)
_ATTRIBUTE = "inlineable"
_marked: "weakref.WeakKeyDictionary[Any, Any]" = weakref.WeakKeyDictionary()


def bind_outlined(traced: Any, flat: Sequence[Any]) -> Any:
    """Put a traced function into the surrounding trace as a call that XLA does not inline.

    Args:
        traced: What `jax.jit(f).trace(...)` returned, in this same trace.
        flat: The flat arguments.

    Returns:
        The result, as `jax.jit(f)` would give it.
    """
    params = dict(traced._params)
    values = [*traced._consts, *flat]
    if _INLINE is not None:
        out = pjit.jit_p.bind(*values, **{**params, "inline": _INLINE})
    else:
        params["jaxpr"] = _mark_inner_calls(params["jaxpr"])
        with set_xla_metadata(**{_ATTRIBUTE: "false"}):
            out = pjit.jit_p.bind(*values, **params)
    return jax.tree_util.tree_unflatten(traced.out_tree, out)


def _mark_inner_calls(closed: Any) -> Any:
    """Return the same program with every call inside it marked as free to be inlined; one result per jaxpr."""
    found = _marked.get(closed)
    if found is None:
        jaxpr = _rewrite(closed.jaxpr)
        found = closed if jaxpr is closed.jaxpr else closed.replace(jaxpr=jaxpr)
        _marked[closed] = found if found is not closed else _Same
    return closed if found is _Same else found


class _Same:
    """Stand for "the jaxpr itself": as its own value it would keep its key alive."""


def _rewrite(jaxpr: Any) -> Any:
    eqns, changed = [], False
    for eqn in jaxpr.eqns:
        params = {name: _rewrite_param(value) for name, value in eqn.params.items()}
        is_new = any(params[name] is not eqn.params[name] for name in params)
        if eqn.primitive is pjit.jit_p and not (eqn.ctx.xla_metadata or {}).get(_ATTRIBUTE):
            eqn = eqn.replace(params=params, ctx=_context_with(eqn.ctx))
            changed = True
        elif is_new:
            eqn = eqn.replace(params=params)
            changed = True
        eqns.append(eqn)
    return jaxpr.replace(eqns=eqns) if changed else jaxpr


def _rewrite_param(value: Any) -> Any:
    if isinstance(value, jax.extend.core.ClosedJaxpr):
        return _mark_inner_calls(value)
    if isinstance(value, tuple) and any(isinstance(item, jax.extend.core.ClosedJaxpr) for item in value):
        return tuple(_rewrite_param(item) for item in value)
    return value


def _context_with(context: Any) -> Any:
    with context.manager, set_xla_metadata(**{_ATTRIBUTE: "true"}):
        return core.JaxprEqnContext()
