"""Keep an inner call apart for XLA: one function in the module that XLA's call inliner leaves alone.

Every rule of JAX's call primitive hands the parameter `inline` on, so a value there marks the call in all that is
derived from it, and nothing that is nested in the body. JAX 0.11 and later have the value and lower it. On 0.10 the
parameter is a truth value that lowering does not read; there a false value of ours is handed on, and a lowering rule
around JAX's writes the attribute on the call.
"""

import enum
import threading
from collections.abc import Sequence
from typing import Any

import jax
from jax._src import api, core, pjit
from jax._src.interpreters import mlir
from jax._src.lib.mlir import ir

__all__ = ["Mark", "bind_marked", "can_outline", "install", "mark_of", "marked", "unmarked"]


class Mark(enum.Enum):
    """What the parameter `inline` of a call says about where the call is to stand.

    `APART`: kept apart for XLA, as the library decided; `OUTLINE`: the same, as the user asked; `SEPARATE`: an
    executable of its own where there can be one; `INLINE`: part of what is around it.
    """

    APART = "apart"
    OUTLINE = "outline"
    SEPARATE = "separate"
    SEPARATE_PLAIN = "separate, and whole programs inline it"
    INLINE = "inline"

    def __bool__(self) -> bool:
        return False  # on 0.10 the parameter is a truth value

    @property
    def value(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        """What JAX 0.11 and later write on the call."""
        return "xla_late" if self in _APART else "xla_early"


_APART = (Mark.APART, Mark.OUTLINE, Mark.SEPARATE)
_KNOWS_MARKS = hasattr(api, "Inline")
_is_installed = _KNOWS_MARKS


def mark_of(eqn: Any) -> str:
    """Return what a call in a jaxpr is marked as: "separate", "outline", "inline", or an empty string."""
    mark = eqn.params.get("inline")
    if not isinstance(mark, Mark) or mark is Mark.APART:
        return ""
    return "separate" if mark in (Mark.SEPARATE, Mark.SEPARATE_PLAIN) else mark.name.lower()


def marked(eqn: Any) -> Any:
    """Return a call of a jitted function marked as kept apart, or as it is where XLA would not take it so."""
    return eqn.replace(params={**eqn.params, "inline": Mark.OUTLINE}) if _takes(eqn.params["jaxpr"]) else eqn


def unmarked(eqn: Any) -> Any:
    """Return a call without its mark."""
    if not isinstance(eqn.params.get("inline"), Mark):
        return eqn
    return eqn.replace(params={**eqn.params, "inline": api.Inline.AUTO if _KNOWS_MARKS else False})


_lock = threading.Lock()


def can_outline(traced: Any) -> bool:
    """Say whether XLA takes a call of this function apart from its surroundings.

    From JAX 0.11 on it does not always: its partitioner fails on such a call when several devices are involved (a mesh
    in the types, in the body or around the call), and a call with `jax.random.split` in it never finishes compiling on
    CPU (seen with 0.12.0, without prejit too).
    """
    return _takes(traced.jaxpr)


def _takes(closed: Any) -> bool:
    if not _KNOWS_MARKS:
        return True
    if core.get_axis_env().axis_sizes or not jax.sharding.get_abstract_mesh().empty:
        return False
    typed = [aval for aval in (*closed.in_avals, *closed.out_avals) if isinstance(aval, core.ShapedArray)]
    return all(aval.sharding.mesh.empty for aval in typed) and not _is_refused(getattr(closed, "jaxpr", closed))


_REFUSED = ("shard_map", "sharding_constraint", "reshard", "mesh_cast", "pmap", "random_", "threefry", "rng_")


def _is_refused(jaxpr: Any) -> bool:
    for eqn in jaxpr.eqns:
        if eqn.primitive.name.startswith(_REFUSED):
            return True
        for value in eqn.params.values():
            for inner in value if isinstance(value, tuple) else (value,):
                body = getattr(inner, "jaxpr", inner)
                if hasattr(body, "eqns") and _is_refused(body):
                    return True
    return False


def bind_marked(traced: Any, flat: Sequence[Any], mark: Mark) -> Any:
    """Put a traced function into the surrounding trace as a marked call.

    Args:
        traced: What `jax.jit(f).trace(...)` returned, in this same trace.
        flat: The flat arguments.
        mark: Where the call is to stand.

    Returns:
        The result, as `jax.jit(f)` would give it.
    """
    install()
    values = [*traced._consts, *flat]
    out = pjit.jit_p.bind(*values, **{**traced._params, "inline": mark})
    return jax.tree_util.tree_unflatten(traced.out_tree, out)


def install() -> None:
    """Have marked calls lowered as such; again does nothing."""
    global _is_installed
    if _is_installed:
        return
    with _lock:
        if not _is_installed:
            _is_installed = True
            mlir.register_lowering(pjit.jit_p, _marking(mlir._lowerings[pjit.jit_p].rule), cacheable=False)


def _marking(original: Any) -> Any:
    def lower(context: Any, *args: Any, inline: Any, **params: Any) -> Any:
        out = original(context, *args, inline=inline, **params)
        if inline in _APART:
            values, _ = mlir.ir_tree_registry.flatten(out)
            if values:
                _mark(values[0].owner)
        return out

    return lower


def _mark(operation: Any) -> None:
    operation = getattr(operation, "operation", operation)
    if operation.name != "func.call":
        return  # a result of the call that is one of its arguments
    attributes: dict[str, Any] = {"inlineable": ir.StringAttr.get("false")}
    if "mhlo.frontend_attributes" in operation.attributes:
        present = ir.DictAttr(operation.attributes["mhlo.frontend_attributes"])
        attributes = {**{a.name: a.attr for a in present}, **attributes}
    operation.attributes["mhlo.frontend_attributes"] = ir.DictAttr.get(attributes)
