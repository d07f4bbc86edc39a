"""Take a jaxpr apart into equations, make jaxprs of some of them, and lower each on its own."""

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax._src import core, dtypes
from jax._src import mesh as mesh_lib
from jax._src.interpreters import mlir, pxla
from jax._src.interpreters import partial_eval as pe
from jax._src.named_sharding import UNSPECIFIED, UnspecifiedValue
from jax._src.state.types import AbstractRef

from prejit._jax.jaxprs import (
    HOST_CALLBACKS,
    JAXPR_CLASSES,
    context_fields,
    is_jaxpr,
    is_literal,
    is_unspecified,
    open_jaxpr,
    plain_literal,
)

__all__ = [
    "LoweredPiece",
    "alone",
    "aval_bytes",
    "bodies_of",
    "call_identity",
    "close",
    "flattened",
    "has_host_code",
    "inlinable_body",
    "is_dropped",
    "is_inexact",
    "is_library_code",
    "is_placed_inside",
    "is_plain_boundary",
    "jit_body",
    "jit_params",
    "literals_of",
    "lower_piece",
    "makes_refs",
    "new_var",
    "nr_bytes",
    "origin_of",
    "params_identity",
    "physical_aval",
    "reading_consts",
    "result_handler",
    "same_type",
    "with_equations",
    "without_consts",
    "without_dead_code",
]


# 0.12 has one class for open and closed jaxprs.
_CLOSED: Callable[..., Any] = getattr(core, "ClosedJaxpr", core.Jaxpr)


def without_dead_code(closed_jaxpr: Any) -> tuple[Any, list[Any], list[bool]]:
    """Leave out the equations that nothing needs.

    Returns:
        An open jaxpr whose first inputs are the constants and whose inputs are all there, used or not; the constants;
        and which of the other inputs are used.
    """
    jaxpr, consts = open_jaxpr(closed_jaxpr)
    everything = pe.convert_constvars_jaxpr(jaxpr)
    alive, _ = pe.dce_jaxpr(everything, [True] * len(everything.outvars), True)
    if alive is closed_jaxpr:
        alive = alive.replace(eqns=list(alive.eqns))  # who keeps it must not keep the trace alive
    read = {atom for eqn in alive.eqns for atom in eqn.invars if not is_literal(atom)}
    read.update(atom for atom in alive.outvars if not is_literal(atom))
    return alive, consts, [var in read for var in alive.invars[len(consts) :]]


def new_var(like: Any) -> Any:
    """Make a variable of the type of another one."""
    return core.Var(like.aval)


def is_dropped(var: Any) -> bool:
    """Say whether an equation's output is thrown away."""
    return isinstance(var, core.DropVar)


def same_type(one: Any, other: Any) -> bool:
    """Say whether two types have one shape and dtype, so that a buffer of the one can hold the other."""
    return one.shape == other.shape and one.dtype == other.dtype


def is_inexact(dtype: Any) -> bool:
    """Say whether a dtype is a floating-point or complex one."""
    return dtype is not None and dtypes.issubdtype(dtype, np.inexact)


def physical_aval(aval: Any) -> Any:
    """Return the type of the buffer behind a value, which for typed PRNG keys is an array of integers."""
    return core.physical_aval(aval)


def is_plain_boundary(aval: Any) -> bool:
    """Say whether a value of this type can be handed from one executable to another as one buffer on one device."""
    return (
        type(aval) is core.ShapedArray
        and aval.dtype != dtypes.float0
        and all(isinstance(n, int) for n in aval.shape)
        and aval.sharding.mesh.empty
        and aval.memory_space == jax.memory.Space.Device
    )


def bodies_of(eqn: Any) -> list[Any]:
    """Return the jaxprs, open or closed, among an equation's params."""
    found: list[Any] = []
    for value in eqn.params.values():
        kind = type(value)
        if kind in JAXPR_CLASSES:
            found.append(value)
        elif kind is tuple or kind is list:
            found += [part for part in value if type(part) in JAXPR_CLASSES]
    return found


def _is_jit(eqn: Any) -> bool:
    return eqn.primitive.name in ("jit", "pjit")


def _distinct_bodies(jaxpr: Any, inside: Callable[[Any], Sequence[Any]]) -> Iterator[Any]:
    """Yield a jaxpr and those that its equations hold, open and each once; `inside` picks an equation's."""
    seen: set[int] = set()
    remaining = [jaxpr]
    while remaining:
        body = open_jaxpr(remaining.pop())[0]
        if id(body) not in seen:
            seen.add(id(body))
            yield body
            for eqn in body.eqns:
                remaining += inside(eqn)


def makes_refs(jaxpr: Any) -> bool:
    """Say whether a jaxpr, or a function that it calls, makes a mutable array."""
    bodies = _distinct_bodies(jaxpr, lambda eqn: [eqn.params["jaxpr"]] if _is_jit(eqn) else [])
    return any(isinstance(var.aval, AbstractRef) for body in bodies for eqn in body.eqns for var in eqn.outvars)


def is_placed_inside(jaxpr: Any) -> bool:
    """Say whether equations of a jaxpr ask for a device, a mesh or a memory; then they say where all of it runs."""
    return any(_is_placed(eqn) for body in _distinct_bodies(jaxpr, bodies_of) for eqn in body.eqns)


def _is_placed(eqn: Any) -> bool:
    params = eqn.params
    if _is_jit(eqn):
        given = (*params["in_shardings"], *params["out_shardings"])
        layouts = (*params["in_layouts"], *params["out_layouts"])
        return not all(map(is_unspecified, given)) or any(layout is not None for layout in layouts)
    if eqn.primitive.name == "device_put":
        return any(device is not None for device in params["devices"])
    return eqn.primitive.name in _PLACING


_PLACING = frozenset({"sharding_constraint", "shard_map", "reshard", "mesh_cast", "xla_pmap", "layout_constraint"})


def jit_body(eqn: Any) -> Any:
    """Return the closed jaxpr of a call of a jitted function that has no placement of its own; else None."""
    return inlinable_body(eqn) if _is_jit(eqn) else None


def jit_params(eqn: Any, closed_jaxpr: Any) -> dict[str, Any]:
    """Return the params of a call of another body with the same inputs."""
    nr_results = len(closed_jaxpr.out_avals)
    return {
        **eqn.params,
        "jaxpr": closed_jaxpr,
        "out_shardings": (UNSPECIFIED,) * nr_results,
        "out_layouts": (None,) * nr_results,
    }


def without_consts(closed_jaxpr: Any) -> Any:
    """Return a closed jaxpr whose constants are its first inputs."""
    jaxpr, _ = open_jaxpr(closed_jaxpr)
    return _CLOSED(pe.convert_constvars_jaxpr(jaxpr), [])


def reading_consts(eqn: Any, closed_jaxpr: Any, constvars: Sequence[Any]) -> Any:
    """Return a call of a jitted function that reads its constants, with the body that `without_consts` returned."""
    nr_consts = len(constvars)
    params = {
        **eqn.params,
        "jaxpr": closed_jaxpr,
        "in_shardings": (*(UNSPECIFIED,) * nr_consts, *eqn.params["in_shardings"]),
        "in_layouts": (*(None,) * nr_consts, *eqn.params["in_layouts"]),
        "donated_invars": (*(False,) * nr_consts, *eqn.params["donated_invars"]),
    }
    return eqn.replace(params=params, invars=[*constvars, *eqn.invars])


def params_identity(eqn: Any) -> Any:
    """Return something hashable that two equations share only if their params are the same, told by identity."""
    if not _is_jit(eqn):
        return id(eqn.params)
    return tuple([(name, id(value) if name == "jaxpr" else value) for name, value in sorted(eqn.params.items())])


def call_identity(eqn: Any) -> Hashable | None:
    """Return something that two calls of jitted functions share only if they differ in nothing but what they read.

    Returns:
        None for another equation, and for a call whose params can't be compared.
    """
    if not _is_jit(eqn):
        return None
    identity = (eqn.primitive, params_identity(eqn), tuple(context_fields(eqn.ctx)))
    try:
        hash(identity)
    except TypeError:
        return None
    return identity


def flattened(jaxpr: Any) -> tuple[list[Any], list[Any]]:
    """Return the equations and results of an open jaxpr with the bodies of its calls in the calls' place."""
    eqns: list[Any] = []

    def walk(current: Any, env: dict[Any, Any], depth: int) -> list[Any]:
        def read(atom: Any) -> Any:
            return atom if is_literal(atom) else env.get(atom, atom)

        for eqn in current.eqns:
            reads = [read(atom) for atom in eqn.invars]
            body = inlinable_body(eqn)
            inner, consts = (None, []) if body is None else open_jaxpr(body)
            if inner is not None and not consts:
                results = walk(inner, dict(zip(inner.invars, reads, strict=True)), depth + 1)
                env.update(zip(eqn.outvars, results, strict=True))
                continue
            writes = eqn.outvars
            if depth:  # the same body may be here a second time
                writes = [var if is_dropped(var) else new_var(var) for var in eqn.outvars]
                env.update(zip(eqn.outvars, writes, strict=True))
            eqns.append(eqn.replace(invars=reads, outvars=writes))
        return [read(atom) for atom in current.outvars]

    return eqns, walk(jaxpr, {}, 0)


def nr_bytes(var: Any) -> int:
    """Return the size of a variable's value in bytes."""
    return aval_bytes(var.aval)


def aval_bytes(aval: Any) -> int:
    """Return the size of a value of a type in bytes."""
    physical = core.physical_aval(aval)
    return math.prod(physical.shape) * physical.dtype.itemsize if hasattr(physical, "dtype") else 0


_PACKAGE = str(Path(jax.__file__).parent)


def origin_of(jaxpr: Any) -> str:
    """Return the name and place of the function that a jaxpr, or the one it is a derivative of, was traced from."""
    debug_info = getattr(open_jaxpr(jaxpr)[0], "debug_info", None)
    return str(getattr(debug_info, "func_src_info", ""))


def is_library_code(origin: str) -> bool:
    """Say whether a function is JAX's own, by what `origin_of` returned."""
    return _PACKAGE in origin


def literals_of(eqn: Any) -> tuple[Any, ...]:
    """Return the values written into an equation's inputs, and None for what it reads; hashable."""
    return tuple([_literal_token(atom) if is_literal(atom) else None for atom in eqn.invars])


def _literal_token(atom: Any) -> tuple[Any, ...]:
    value = np.asarray(plain_literal(atom.val))
    return (type(atom.val), value.dtype, value.tobytes(), atom.aval)


def alone(eqn: Any) -> Any:
    """Return a closed jaxpr of one equation, which reads a variable of its own for each input that is not a literal."""
    reads = [atom if is_literal(atom) else new_var(atom) for atom in eqn.invars]
    writes = [var for var in eqn.outvars if not is_dropped(var)]
    return close([atom for atom in reads if not is_literal(atom)], writes, [eqn.replace(invars=reads)], "alone")


def inlinable_body(eqn: Any) -> Any:
    """Return the closed jaxpr that an equation calls, if its equations can stand in the equation's place; else None."""
    params = eqn.params
    if _is_jit(eqn):
        plain = (
            all(isinstance(s, UnspecifiedValue) for s in (*params["in_shardings"], *params["out_shardings"]))
            and all(layout is None for layout in (*params["in_layouts"], *params["out_layouts"]))
            and params["ctx_mesh"].empty
            and not any(params["donated_invars"])
        )
        return params["jaxpr"] if plain else None
    if eqn.primitive.name in ("closed_call", "custom_jvp_call", "custom_vjp_call", "core_call"):
        body = params.get("call_jaxpr", params.get("fun_jaxpr"))
        return body if is_jaxpr(body) and len(open_jaxpr(body)[0].invars) == len(eqn.invars) else None
    return None


def has_host_code(eqn: Any, known: dict[int, tuple[Any, bool]] | None = None) -> bool:
    """Say whether an equation has an effect or runs Python of this process, itself or in a body.

    Args:
        eqn: The equation.
        known: What was found out about bodies already, by identity, with the body to keep it alive; it grows.
    """
    if eqn.effects or eqn.primitive.name in HOST_CALLBACKS:
        return True
    bodies = bodies_of(eqn)
    if not bodies:
        return False
    known = {} if known is None else known
    for body in bodies:
        found = known.get(id(body))
        if found is None:
            inside = any(has_host_code(inner, known) for inner in open_jaxpr(body)[0].eqns)
            found = known[id(body)] = (body, inside)
        if found[1]:
            return True
    return False


def close(
    invars: Sequence[Any],
    outvars: Sequence[Any],
    eqns: Sequence[Any],
    name: str,
    consts: Mapping[Any, Any] | None = None,
) -> Any:
    """Make a closed jaxpr; `consts` are its constants by variable."""
    constvars = list(consts or ())
    debug_info = core.DebugInfo("jit", name, tuple([f"x{n}" for n in range(len(invars))]), None)
    effects = pe.make_jaxpr_effects(constvars, invars, outvars, eqns)
    jaxpr = core.Jaxpr(constvars, list(invars), list(outvars), list(eqns), effects, debug_info.with_unknown_names())
    return _CLOSED(jaxpr, list((consts or {}).values()))


def with_equations(closed_jaxpr: Any, eqns: Sequence[Any]) -> Any:
    """Return a closed jaxpr with other equations between the same inputs and results."""
    jaxpr, consts = open_jaxpr(closed_jaxpr)
    return _CLOSED(jaxpr.replace(eqns=list(eqns)), consts)


class LoweredPiece:
    """A lowered piece, with the parts of `jax.stages.Lowered` that this library reads."""

    __slots__ = ("_lowering",)

    def __init__(self, lowering: Any) -> None:
        self._lowering = lowering

    def compile(self) -> "CompiledPiece":
        """Compile; the executable is the result's `_executable`."""
        return CompiledPiece(self._lowering.compile())


class CompiledPiece:
    """A compiled piece, as `jax.stages.Compiled` holds it."""

    __slots__ = ("_executable",)

    def __init__(self, executable: Any) -> None:
        self._executable = executable


def lower_piece(
    closed_jaxpr: Any, donated: Sequence[bool], name: str, device: Any, compiler_options: Iterable[tuple[str, Any]] = ()
) -> LoweredPiece:
    """Lower a closed jaxpr for one device, all of whose inputs and outputs are uncommitted there."""
    nr_inputs, nr_outputs = len(closed_jaxpr.in_avals), len(closed_jaxpr.out_avals)
    with jax.default_device(device):
        lowering = pxla.lower_sharding_computation(
            closed_jaxpr,
            "jit",
            name,
            (UNSPECIFIED,) * nr_inputs,
            (UNSPECIFIED,) * nr_outputs,
            (None,) * nr_inputs,
            (None,) * nr_outputs,
            tuple(donated),
            keep_unused=False,
            context_mesh=mesh_lib.empty_concrete_mesh,
            compiler_options_kvs=tuple(compiler_options),
            lowering_platforms=None,
            lowering_parameters=mlir.LoweringParameters(),
            pgle_profiler=None,
        )
    return LoweredPiece(lowering)


def result_handler(aval: Any, sharding: Any, *, is_committed: bool) -> Any:
    """Return what turns the buffer of one output into the array that a user gets."""
    handler: Callable[..., Any] = pxla.global_aval_to_result_handler
    return handler(aval, sharding, is_committed)
