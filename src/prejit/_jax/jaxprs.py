"""What a jaxpr holds that no public name reaches: avals' fields, equation contexts, and who defined a primitive."""

from __future__ import annotations

import dataclasses
import functools
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import numpy as np
from jax import lax
from jax._src import api, core, dtypes, effects
from jax._src.interpreters import mlir
from jax._src.layout import AutoLayout, Format, Layout
from jax._src.linear_util import DebugInfo
from jax._src.literals import TypedComplex, TypedFloat, TypedInt, TypedNdArray
from jax._src.mesh import AbstractDevice
from jax._src.named_sharding import UNSPECIFIED, UnspecifiedValue
from jax._src.random.prng import PRNGImpl
from jax._src.sharding_impls import GSPMDSharding
from jax._src.source_info_util import SourceInfo
from jax._src.state.types import AbstractRef

Atom = core.Var | core.Literal
"""What an equation reads."""

Tracer = core.Tracer
"""What stands for a value while a function is traced."""

KeyImpl = PRNGImpl
"""The functions behind a kind of PRNG key."""

# 0.12 has one class for open and closed jaxprs.
JAXPR_CLASSES: tuple[type, ...] = (core.Jaxpr, getattr(core, "ClosedJaxpr", core.Jaxpr))

JAX_PACKAGES = ("jax", "jaxlib")

IGNORED_PARAMS: Mapping[tuple[str, str], str] = {
    ("jit", "name"): "names a function in the module; XLA keeps it as metadata",
    ("pjit", "name"): "names a function in the module; XLA keeps it as metadata",
    ("core_call", "name"): "names a function in the module",
    ("closed_call", "name"): "names a function in the module",
    ("remat_call", "name"): "names a function in the module",
    ("custom_jvp_call", "name"): "names a function in the module",
    ("custom_vjp_call", "name"): "names a function in the module",
    ("custom_jvp_call", "jvp_jaxpr_fun"): "runs when differentiated; the derivative then is a jaxpr of its own",
    ("custom_jvp_call", "jvp_jaxpr_thunk"): "runs when differentiated",
    ("custom_vjp_call", "fwd_jaxpr_thunk"): "runs when differentiated",
    ("custom_vjp_call", "bwd"): "runs when differentiated",
    ("custom_vjp_call", "out_trees"): "read by the backward rule only",
    ("remat2", "policy"): "chooses residuals when differentiated; lowering does not read it",
    ("checkpoint", "policy"): "chooses residuals when differentiated; lowering does not read it",
}
"""Equation params that do not change what the program computes, with the reason."""

HOST_CALLBACKS = frozenset(
    {
        "pure_callback",
        "io_callback",
        "debug_callback",
        "debug_print",
        "outside_call",
        "python_callback",
        "inspect_sharding",
    }
)
"""Primitives that run a Python function of this process."""


def is_literal(atom: object) -> bool:
    """Say whether an equation's input is a value written into the jaxpr."""
    return isinstance(atom, core.Literal)


def is_unspecified(value: object) -> bool:
    """Say whether a sharding is the marker for "left to the compiler"."""
    return isinstance(value, UnspecifiedValue)


def logical_device_ids(sharding: Any) -> tuple[int, ...] | None:
    """Return the order of devices that a sharding over a mesh asks for, or None if it is the mesh's own."""
    order = getattr(sharding, "_logical_device_ids", None)
    return None if order is None else tuple(int(n) for n in order)


def hlo_sharding(sharding: Any) -> tuple[bytes, list[Any]] | None:
    """Return the compiler's description and the devices of a sharding without a mesh, or None for another kind."""
    if not isinstance(sharding, GSPMDSharding):
        return None
    described: Any = sharding
    return described._hlo_sharding.to_proto().SerializeToString(), list(described._device_assignment)


COPIED_ATTRIBUTES = frozenset({"_jit_info", "__signature__"})
"""Attributes that `functools.wraps` copies from a jitted function onto a wrapper of JAX's; they hold a file name."""

_PJIT = type(api.jit(lambda: None))
_SOURCE_FIELDS = frozenset({"fun_sourceinfo", "fun_signature"})


def is_jit(value: object) -> bool:
    """Say whether a value is what `jax.jit` returns."""
    return isinstance(value, _PJIT)


def wrapped(function: Any) -> Any:
    """Return the Python function under a jitted or otherwise wrapped one."""
    return function.__wrapped__


def jit_options(function: Any) -> tuple[Any, ...]:
    """Return the arguments that a jitted function was made with, in a fixed order; empty if it does not keep them."""
    info = getattr(function, "_jit_info", None)
    if info is None:
        return ()
    return tuple((name, getattr(info, name)) for name in info._fields if name not in _SOURCE_FIELDS)


def is_source_info(value: object) -> bool:
    """Say whether a value only tells where code stands or what its arguments are called."""
    return isinstance(value, DebugInfo | SourceInfo)


def is_var(value: object) -> bool:
    """Say whether a value is a jaxpr's variable."""
    return isinstance(value, core.Var)


def is_extended_dtype(value: object) -> bool:
    """Say whether a value is a dtype that only JAX knows, such as that of typed PRNG keys."""
    return isinstance(value, dtypes.ExtendedDType)


def dtype_impl(dtype: Any) -> Any:
    """Return the PRNG implementation behind an extended dtype, or None if it is for something else."""
    impl = getattr(dtype, "_impl", None)
    return impl if isinstance(impl, PRNGImpl) else None


def is_typed_key(array: Any) -> bool:
    """Say whether an array holds typed PRNG keys."""
    return dtype_impl(array.dtype) is not None


def key_impl(keys: Any) -> Any:
    """Return the PRNG implementation of an array of typed keys."""
    return keys.dtype._impl


def is_jaxpr(value: object) -> bool:
    """Say whether a value is a jaxpr, closed or open (0.12 has one class for both)."""
    return isinstance(value, JAXPR_CLASSES)


def is_from_jax(kind: type) -> bool:
    """Say whether a class is defined by JAX or jaxlib."""
    return kind.__module__.partition(".")[0] in JAX_PACKAGES


def open_jaxpr(jaxpr: Any) -> tuple[Any, list[Any]]:
    """Split a jaxpr into its open form and its constants, which for an open jaxpr are an empty list."""
    if isinstance(jaxpr, core.Jaxpr):
        return jaxpr, list(getattr(jaxpr, "consts", ()))
    return jaxpr.jaxpr, list(jaxpr.consts)


def slots_of(value: object, leave_out: frozenset[str] = frozenset()) -> Iterator[tuple[str, Any]]:
    """Yield the slots of a value and what they hold, by name, over all its base classes."""
    names = {slot for base in type(value).__mro__ for slot in getattr(base, "__slots__", ())}
    for name in sorted(names - leave_out - {"__weakref__", "__dict__"}):
        yield name, getattr(value, name, None)


_AVAL_CACHES = frozenset({"_stripped_weak_type"})
_CONTEXT_UNUSED = frozenset({"configs"})


def context_fields(ctx: Any) -> Iterator[tuple[str, Any]]:
    """Yield what an equation was recorded under: compute type, threefry mode, mesh, XLA metadata, whatever JAX adds."""
    return slots_of(ctx, _CONTEXT_UNUSED)


def fields_of(value: object) -> list[tuple[str, Any]] | None:
    """Return the named parts that make up one of JAX's own value types, or None if it isn't one that is known.

    Classes that JAX interns have slots and no equality of their own, so only their parts are stable.
    """
    kind = type(value)
    if isinstance(value, core.ShapedArray):
        return list(slots_of(value, _AVAL_CACHES))
    if isinstance(value, core.ManualAxisType):
        return list(slots_of(value))
    if isinstance(value, jax.ShapeDtypeStruct):
        names = ("shape", "dtype", "weak_type", "sharding", "manual_axis_type", "memory_space", "is_ref")
        return [(name, getattr(value, name, None)) for name in names]
    if isinstance(value, core.AxisEnv):
        return list(slots_of(value))
    if isinstance(value, lax.Tolerance):
        return _attributes(value)
    if kind.__name__ == "XlaMetadata" and is_from_jax(kind):
        return [("val", getattr(value, "val", None))]
    if isinstance(value, AbstractDevice):
        return [("device_kind", value.device_kind), ("num_cores", value.num_cores), ("platform", value.platform)]
    if isinstance(value, Layout):
        return [
            ("major_to_minor", value.major_to_minor),
            ("tiling", value.tiling),
            ("sub_byte_element_size_in_bits", value.sub_byte_element_size_in_bits),
        ]
    if isinstance(value, Format):
        return [("layout", value.layout), ("sharding", value.sharding)]
    if value is AutoLayout or value is UNSPECIFIED or isinstance(value, core.AbstractToken):
        return []
    if isinstance(value, AbstractRef):
        return [(name, part) for name, part in _attributes(value) if not name.startswith("__")]
    if isinstance(value, effects.Effect) and is_from_jax(kind):
        return _attributes(value)
    if is_hijax_primitive(value):
        names = ("in_avals", "out_aval", "params", "effects")
        return [(name, getattr(value, name)) for name in names]
    if kind.__module__ == "jax._src.flattree":
        return [
            (name, part) for name, part in _attributes(value) if name in ("elts", "keys", "vals", "xs", "_tree", "val")
        ]
    if is_from_jax(kind) and dataclasses.is_dataclass(kind):
        return [(field.name, getattr(value, field.name)) for field in dataclasses.fields(kind)]
    return None


def _attributes(value: object) -> list[tuple[str, Any]]:
    found = dict(slots_of(value))
    found.update(getattr(value, "__dict__", {}))
    return sorted(found.items())


def is_hijax_primitive(value: object) -> bool:
    """Say whether a value is one of JAX's own primitives over whole pytrees (0.12), such as `jnp.nonzero`."""
    bases = type(value).__mro__
    return is_from_jax(type(value)) and any(
        base.__name__ in ("HiPrim", "VJPHiPrimitive") and base.__module__ == "jax._src.hijax" for base in bases
    )


def plain_literal(value: Any) -> Any:
    """Turn JAX's typed Python scalars and arrays into plain ones; their dtype is in the literal's aval."""
    if isinstance(value, TypedInt):
        return int(value)
    if isinstance(value, TypedFloat):
        return float(value)
    if isinstance(value, TypedComplex):
        return complex(value)
    if isinstance(value, TypedNdArray):
        return np.asarray(value)
    return value


def impl_functions(impl: PRNGImpl) -> Iterator[Any]:
    """Yield the functions that a kind of PRNG key is made of."""
    return (part for part in impl if callable(part))


_scanned_modules: set[str] = set()
_jax_primitives: set[core.Primitive] = set()
_trusted_rules: dict[core.Primitive, tuple[Any, ...]] = {}


def foreign_primitive(primitive: core.Primitive) -> str:
    """Say why an equation of this primitive doesn't show all of what it computes; an empty string if it does.

    JAX's own primitives mean what their version of JAX lowers them to. For any other, and for one whose lowering rule
    was replaced, the rule is code that no jaxpr shows.
    """
    if primitive not in _jax_primitives:
        _scan()
        if primitive not in _jax_primitives:
            return "its primitive is not JAX's own, so an edit to its lowering rule would not be seen"
    rules = _lowering_rules(primitive)
    known = _trusted_rules.get(primitive)
    if known is not None and len(known) == len(rules) and all(a is b for a, b in zip(known, rules, strict=True)):
        return ""
    for rule in rules:
        if not is_jax_function(rule):
            return "its lowering rule was replaced by code that is not JAX's own"
    _trusted_rules[primitive] = rules
    return ""


def _lowering_rules(primitive: core.Primitive) -> tuple[Any, ...]:
    tables = (mlir._lowerings, *mlir._platform_specific_lowerings.values())
    return tuple([table[primitive].rule for table in tables if primitive in table])


def _scan() -> None:
    # By identity and only in modules not seen before: 600 modules take 5 ms once, and JAX imports some of its own late.
    for name, module in list(sys.modules.items()):
        if name in _scanned_modules or name.partition(".")[0] not in JAX_PACKAGES:
            continue
        if getattr(getattr(module, "__spec__", None), "_initializing", False):
            continue  # Another thread is importing it; its primitives may not be there yet.
        _scanned_modules.add(name)
        _jax_primitives.update(member for member in list(vars(module).values()) if isinstance(member, core.Primitive))


_OUTLINE = "prejit._jax.outline"  # wraps JAX's rule for calls and is part of the format version of our keys


def is_jax_function(function: Any, depth: int = 6) -> bool:
    """Say whether a function, and the functions that it was built from, are JAX's own.

    `functools.wraps` copies `__module__`, so the place is read from the function's globals. `mlir.lower_fun` and
    partials hide the function that matters in a closure cell or an argument.
    """
    if depth == 0:
        return False
    if isinstance(function, functools.partial):
        inner = [function.func, *function.args, *function.keywords.values()]  # pyright: ignore[reportUnknownMemberType]
        return all(is_jax_function(part, depth - 1) for part in inner if callable(part))
    if isinstance(function, types.MethodType):
        return is_jax_function(function.__func__, depth - 1)
    if isinstance(function, types.FunctionType):
        home = str(function.__globals__.get("__name__", ""))
        if home.partition(".")[0] not in (*JAX_PACKAGES, "functools") and home != _OUTLINE:
            return False
        return all(is_jax_function(part, depth - 1) for part in _cell_functions(function))
    if isinstance(function, type):
        return is_from_jax(function)
    wrapped = getattr(function, "__wrapped__", None)
    if wrapped is not None and not isinstance(function, types.BuiltinFunctionType):
        return is_jax_function(wrapped, depth - 1)
    home = getattr(function, "__module__", None) or type(function).__module__
    return home.partition(".")[0] in (*JAX_PACKAGES, "builtins", "operator", "_operator", "numpy", "math", "functools")


def _cell_functions(function: types.FunctionType) -> Iterator[Callable[..., Any]]:
    for cell in function.__closure__ or ():
        try:
            content = cell.cell_contents
        except ValueError:
            continue
        if isinstance(content, types.FunctionType | types.MethodType | functools.partial) or hasattr(
            content, "__wrapped__"
        ):
            yield content
