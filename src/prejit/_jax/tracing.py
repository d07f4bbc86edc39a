"""What the library needs from JAX's tracing: who is tracing, what a call looks like, what a trace produced."""

import contextlib
import copy
import math
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax._src import api, core, dispatch, pjit, source_info_util, traceback_util, util
from jax._src import config as jax_config
from jax._src.array import ArrayImpl
from jax._src.interpreters import mlir
from jax._src.named_sharding import UnspecifiedValue
from jax._src.state.types import RefEffect
from jax.sharding import SingleDeviceSharding

api_boundary = traceback_util.api_boundary
"""Decorate a function so that frames of JAX and of registered files below it are left out of tracebacks."""

# The frames of the rooms that a call passes through are left out of tracebacks, as JAX does with its own. What runs a
# user's program (cli, testing) is not.
_PACKAGE = Path(__file__).parents[1]
for _room in ("_jax", "component", "config.py", "events.py", "key", "program", "signature", "stage", "store"):
    traceback_util.register_exclusion(str(_PACKAGE / _room))
    source_info_util.register_exclusion(str(_PACKAGE / _room))


@api_boundary
def _reraise(error: Exception) -> None:
    raise error


def hide_frames(error: Exception) -> None:
    """Leave frames of JAX and of registered files out of an exception's traceback, as `api_boundary` does.

    For a function that must not pay for a decorator: call it in `except` and then `raise` without an operand.
    """
    try:
        _reraise(error)
    except Exception:  # noqa: BLE001  # it is the error itself, now with its frames filtered
        traceback = error.__traceback__
        error.__traceback__ = None if traceback is None else traceback.tb_next  # without this function's own frame


plain_jit: Callable[..., Any] = api.jit
"""JAX's own, whatever `jax.jit` is by now: a program may have put `prejit.jit` there."""


@util.cache(trace_context_in_key=False)
def epoch() -> object:
    """Return an object that is another one after `jax.clear_caches`."""
    return object()


Tracer = core.Tracer
trace_context: Callable[[], Any] = jax_config.trace_context
call_type: Callable[[Any], Any] = pjit.convert_to_metaty
"""Describe one argument as dispatch sees it: aval, sharding, layout, committed or not; hashable."""


def announce_miss() -> None:
    """Tell JAX's test listener, if there is one, what its own miss handler tells it."""
    util.test_event("jit_cpp_cache_miss")


def check_argument(value: Any) -> None:
    """Raise TypeError for a value that is no array and for a spec that stands for one."""
    dispatch.check_arg(value)
    if isinstance(value, jax.ShapeDtypeStruct):
        raise TypeError("expected an array, got a ShapeDtypeStruct")


def is_top_level() -> bool:
    """Say whether no trace is under way in this thread."""
    return core.trace_state_clean()


def is_jit_disabled() -> bool:
    """Say whether `jax.disable_jit` is in force."""
    return bool(jax_config.disable_jit.value)


def needs_plain_jit() -> bool:
    """Say whether a mode is on that only JAX's own path honours: NaN and Inf checks, key reuse, no execution, PGLE."""
    return bool(
        jax_config.debug_nans.value
        or jax_config.debug_infs.value
        or jax_config.debug_key_reuse.value
        or jax_config.no_execution.value
        or jax_config.enable_pgle.value
    )


@dataclass(frozen=True, slots=True)
class TracedProgram:
    """A trace, with its parts under one name on every JAX version.

    Attributes:
        traced: JAX's own `jax.stages.Traced`.
        closed_jaxpr: The closed jaxpr.
        consts: Its constants, in order.
        in_avals: Types of its inputs, in order.
        out_avals: Types of its outputs.
        donated: Which inputs are donated.
        debug_info: Names of the arguments, for messages.
        effects: Its effects.
        is_capturing: True when the function closes over values of a trace that is under way, or leaked from one.
        is_high: True when it holds values that only a trace has, such as boxes.
        name: Name of the function in the module.
        options: Arguments of `jax.jit` that are not at their default and change what is compiled, by name.
        compiler_options: What is passed to XLA for this program.
    """

    traced: Any
    closed_jaxpr: Any
    consts: tuple[Any, ...]
    in_avals: tuple[Any, ...]
    out_avals: tuple[Any, ...]
    donated: tuple[bool, ...]
    debug_info: Any
    effects: tuple[Any, ...]
    is_capturing: bool
    is_high: bool
    name: str
    options: dict[str, tuple[Any, ...]]
    compiler_options: tuple[tuple[str, Any], ...]


def open_traced(traced: Any) -> TracedProgram:
    """Take apart what `jax.jit(f).trace(...)` returned."""
    closed = traced.jaxpr
    debug_info = getattr(closed, "debug_info", None)
    if debug_info is None:
        debug_info = closed.jaxpr.debug_info
    return TracedProgram(
        traced=traced,
        closed_jaxpr=closed,
        consts=tuple(closed.consts),
        in_avals=tuple(closed.in_avals),
        out_avals=tuple(closed.out_avals),
        donated=tuple(traced._params["donated_invars"]),
        debug_info=debug_info,
        effects=tuple(closed.effects),
        is_capturing=bool(traced._consts),
        is_high=bool(getattr(closed, "jaxpr", closed).is_high),
        name=str(traced._params["name"]),
        options=_options_of(traced._params),
        compiler_options=tuple(traced._params["compiler_options_kvs"]),
    )


def _options_of(params: dict[str, Any]) -> dict[str, tuple[Any, ...]]:
    found: dict[str, tuple[Any, ...]] = {}
    for name in ("in_shardings", "out_shardings"):
        if not all(isinstance(sharding, UnspecifiedValue) for sharding in params[name]):
            found[name] = tuple(params[name])
    for name in ("in_layouts", "out_layouts"):
        if any(layout is not None for layout in params[name]):
            found[name] = tuple(params[name])
    if params["keep_unused"]:
        found["keep_unused"] = (True,)
    if not params["ctx_mesh"].empty:
        found["mesh"] = (params["ctx_mesh"],)
    return found


def with_jaxpr(traced: Any, closed_jaxpr: Any) -> Any:
    """Return a trace with another jaxpr of the same inputs and results in its place."""
    other = copy.copy(traced)
    other._params = {**traced._params, "jaxpr": closed_jaxpr}
    if hasattr(other, "_lojax"):  # what it made of its jaxpr already
        other._lojax = None
    return other


def lower_with_arguments(program: TracedProgram, hoisted: Sequence[int], flat: Sequence[Any]) -> Any:
    """Lower a traced program with some of its constants as leading arguments.

    Args:
        program: The traced program.
        hoisted: Positions of the constants that become arguments, in order.
        flat: The flat arguments or their specs.

    Returns:
        A `jax.stages.Lowered` that takes the hoisted constants and then the flat arguments.
    """
    jaxpr = getattr(program.closed_jaxpr, "jaxpr", program.closed_jaxpr)
    position = {index: place for place, index in enumerate(hoisted)}

    def hoisting(*values: Any) -> Any:
        consts = [values[position[i]] if i in position else const for i, const in enumerate(program.consts)]
        return core.eval_jaxpr(jaxpr, consts, *values[len(hoisted) :])

    hoisting.__name__ = hoisting.__qualname__ = program.name
    donated = tuple(len(hoisted) + i for i, is_donated in enumerate(program.donated) if is_donated)
    # By type only: where a constant happens to be has no say in where a program runs.
    types = [aval_of(program.consts[i]) for i in hoisted]
    specs = [jax.ShapeDtypeStruct(t.shape, t.dtype, weak_type=t.weak_type) for t in types]
    return plain_jit(hoisting, donate_argnums=donated).lower(*specs, *flat)


def flatten(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> tuple[list[Any], Any]:
    """Return the leaves of a tree and its structure."""
    return jax.tree_util.tree_flatten(tree, is_leaf)


def unnamed_arguments(name: str, number: int) -> Any:
    """Return what error messages call the arguments of a program that was not traced here."""
    return core.DebugInfo("jit", name, tuple([f"argument {n}" for n in range(number)]), None)


def hoistable_bytes(const: Any) -> int:
    """Return the size of a constant that can be an argument; 0 for no array and for one on several devices."""
    sharding = getattr(const, "sharding", None)
    if sharding is not None and len(sharding.device_set) > 1:
        return 0
    return int(getattr(const, "nbytes", 0))


def aval_of(value: Any) -> Any:
    """Return the type of a concrete value."""
    return core.shaped_abstractify(value)


def devices_of(flat: Sequence[Any]) -> list[Any]:
    """Return the devices that a call's committed arguments fix, in order, or an empty list if none does."""
    for value in flat:
        sharding = getattr(value, "sharding", None)
        if sharding is None or isinstance(value, Tracer):
            continue
        if getattr(value, "_committed", isinstance(value, jax.ShapeDtypeStruct)) and hasattr(sharding, "device_set"):
            return list(getattr(sharding, "_device_assignment", None) or sharding.device_set)
    return []


def devices_of_option(program: TracedProgram, name: str) -> list[tuple[Any, ...]]:
    """Return the devices that `in_shardings` or `out_shardings` ask for: distinct tuples, in order."""
    return _devices_of_shardings(program.options.get(name, ()))


def devices_inside(jaxpr: Any) -> list[tuple[Any, ...]]:
    """Return the devices that equations of a jaxpr ask for: distinct tuples, in order."""
    return _devices_of_shardings([sharding for sharding, _ in dispatch.get_intermediate_shardings(jaxpr)])


def _devices_of_shardings(shardings: Sequence[Any]) -> list[tuple[Any, ...]]:
    found: dict[tuple[Any, ...], None] = {}
    for sharding in shardings:
        with contextlib.suppress(AttributeError, RuntimeError, ValueError):  # unspecified, or over an abstract mesh
            found[tuple(sharding._device_assignment)] = None
    return list(found)


def is_plainly_placed(value: Any) -> bool:
    """Say whether an argument is no array yet, or a whole one on one device, in its usual memory and layout."""
    sharding = getattr(value, "sharding", None)
    if sharding is None:
        return True
    layout = getattr(getattr(value, "format", None), "layout", None)
    return (
        isinstance(sharding, SingleDeviceSharding)
        and sharding.memory_kind in (None, "device", "unpinned_host")
        and (layout is None or list(layout.major_to_minor) == list(range(np.ndim(value))))
    )


def is_spread(value: Any) -> bool:
    """Say whether a constant is an array on several devices."""
    return len(getattr(getattr(value, "sharding", None), "device_set", ())) > 1


def is_ref_effect(effect: Any) -> bool:
    """Say whether an effect is a read or a write of a mutable array."""
    return isinstance(effect, RefEffect)


def donations(program: TracedProgram, used: Sequence[bool]) -> tuple[list[int], list[Any]]:
    """Say what becomes of donated arguments, by the rule that JAX follows when it lowers a module for one device.

    An argument's buffer goes to a result of the same shape and dtype, else to one of the same number of elements.

    Args:
        program: The program.
        used: Which inputs anything depends on; JAX leaves the others out of the module.

    Returns:
        Positions of the arguments that the caller loses, and types of those that no result can take.
    """
    donated = [n for n, (gives, is_used) in enumerate(zip(program.donated, used, strict=True)) if gives and is_used]
    outs = [(aval.shape, aval.dtype) for aval in program.out_avals]
    lost: list[int] = []
    for n in list(donated):
        aval = program.in_avals[n]
        if (aval.shape, aval.dtype) in outs:
            outs.remove((aval.shape, aval.dtype))
            donated.remove(n)
            lost.append(n)
    sizes = [math.prod(shape) for shape, _ in outs]
    for n in list(donated):
        size = math.prod(program.in_avals[n].shape)
        if size in sizes:
            sizes.remove(size)
            donated.remove(n)
            lost.append(n)
    return sorted(lost), [program.in_avals[n] for n in donated]


def _donation_hint() -> str:
    """Return the sentence that this version of JAX adds to its warning of unusable donations."""
    remaining = [mlir.lower_jaxpr_to_module.__code__]
    while remaining:
        for const in remaining.pop().co_consts:
            if isinstance(const, str) and const.startswith("See an explanation at"):
                return const
            if isinstance(const, types.CodeType):
                remaining.append(const)
    return "See an explanation at https://docs.jax.dev/en/latest/faq.html#buffer-donation."


def unusable_text(avals: Sequence[Any]) -> str:
    """Return JAX's words about donated arguments whose buffers no result can take."""
    return f"Some donated buffers were not usable: {', '.join(str(aval) for aval in avals)}.\n{_donation_hint()}"


def has_mixed_devices(flat: Sequence[Any]) -> bool:
    """Say whether committed arguments ask for different devices, which JAX refuses when it lowers."""
    asked = {
        tuple(d.id for d in value.sharding._device_assignment)
        for value in flat
        if isinstance(value, jax.Array) and not isinstance(value, Tracer) and getattr(value, "_committed", False)
    }
    return len(asked) > 1


def default_device() -> Any:
    """Return the device that uncommitted computations go to in this thread."""
    chosen = jax.config.jax_default_device
    if chosen is None:
        return jax.local_devices()[0]
    return jax.local_devices(backend=chosen)[0] if isinstance(chosen, str) else chosen


__all__ = [
    "ArrayImpl",
    "TracedProgram",
    "Tracer",
    "announce_miss",
    "api_boundary",
    "aval_of",
    "call_type",
    "check_argument",
    "default_device",
    "devices_inside",
    "devices_of",
    "devices_of_option",
    "donations",
    "epoch",
    "flatten",
    "has_mixed_devices",
    "hide_frames",
    "hoistable_bytes",
    "is_jit_disabled",
    "is_plainly_placed",
    "is_ref_effect",
    "is_spread",
    "is_top_level",
    "lower_with_arguments",
    "needs_plain_jit",
    "open_traced",
    "plain_jit",
    "trace_context",
    "unnamed_arguments",
    "unusable_text",
    "with_jaxpr",
]
