"""Turn compiled executables into bytes and plain data, and back, without pickle.

The bytes come from the PJRT client's own serializer. Everything around them (which inputs are kept, shardings, layouts)
is described as JSON. `jax.experimental.serialize_executable` is not used: it pickles.
"""

import importlib
import threading
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax._src import compiler, core, pjit
from jax._src.interpreters import mlir, pxla
from jax._src.lib import xla_client as xc
from jax._src.lib.mlir import ir
from jax._src.named_sharding import UnspecifiedValue

from prejit._jax.compilation import was_deserialized
from prejit._jax.running import copied
from prejit._jax.shardings import (
    describe_layout,
    describe_sharding,
    device_index,
    layout_from,
    sharding_from,
)
from prejit.errors import KeyingError

# Custom calls of JAX's own libraries, by prefix, and what must run before an executable that contains one may run in
# a process that has lowered none: a function of a module, or the import alone, which registers the targets. The LAPACK
# function pointers are filled in by such a function, which JAX calls while lowering; without it `linalg.inv` of a
# loaded executable is a segmentation fault (jax issues 28908, 24982).
_HYBRID = ("jaxlib.gpu_solver", "initialize_hybrid_kernels")
_SPARSE = ("jax.experimental.sparse", "")
_INITIALIZERS: dict[str, tuple[str, str]] = {
    "lapack_": ("jaxlib.cpu._lapack", "initialize"),
    "cuhybrid_": _HYBRID,
    "hiphybrid_": _HYBRID,
    "oneapihybrid_": _HYBRID,
    "cpu_csr_": _SPARSE,
    "cusparse_": _SPARSE,
    "hipsparse_": _SPARSE,
}
# Targets that JAX or XLA registers itself, so a process that has jax can run them. Any other target was registered by
# someone else's native code, which a later process may not have loaded: such a program is not stored.
_KNOWN_PREFIXES = (
    "lapack_", "cpu_", "cu_", "cublas", "cusolver", "cusparse", "cudnn", "cufft", "cuhybrid", "hip", "roc", "oneapi",
    "__cublas", "__cudnn", "__gpu", "__onednn", "mhlo.", "stablehlo.", "chlo.", "xla.", "sdy.", "tpu_custom_call",
    "annotate_device_placement", "Sharding", "SPMD", "X64", "TopK", "ApproxTopK", "PartialReduce", "Qr", "Eigh",
    "ProductOfElementaryHouseholderReflectors", "LuDecomposition", "MoveToHost", "MoveToDevice", "LayoutConstraint",
    "shape_assertion", "triton_kernel_call", "blocked_", "PinToDevice", "PinToDeviceSram", "Pin", "Unpin", "cpu.",
)  # fmt: skip
_initialized: set[str] = set()
_initialize_lock = threading.Lock()


def foreign_targets(targets: Sequence[str]) -> list[str]:
    """Return the custom-call targets that neither JAX nor XLA registers."""
    return [target for target in targets if not target.startswith(_KNOWN_PREFIXES)]


def initialize_targets(targets: Sequence[str]) -> None:
    """Run the initializers that the given custom-call targets need; each runs once per process."""
    for prefix, (module, function) in _INITIALIZERS.items():
        if prefix in _initialized or not any(target.startswith(prefix) for target in targets):
            continue
        with _initialize_lock:
            if prefix not in _initialized:
                imported = importlib.import_module(module)
                if function:
                    getattr(imported, function)()
                _initialized.add(prefix)


def custom_call_targets(module: ir.Module) -> list[str]:
    """Return the sorted names of the custom calls in a lowered module."""
    found: set[str] = set()

    def visit(operation: Any) -> Any:
        if operation.name in ("stablehlo.custom_call", "mhlo.custom_call"):
            found.add(ir.StringAttr(operation.attributes["call_target_name"]).value)
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    return sorted(found)


def unusable_donations(lowered: Any, donated: Sequence[bool]) -> list[str]:
    """Return the types of donated inputs that no result can take, of which JAX warned when it lowered.

    Args:
        lowered: The lowered program.
        donated: Which of its inputs are donated.
    """
    if not any(donated):
        return []
    arguments = lowered._lowering.compile_args
    (main,) = [
        operation
        for operation in lowered._lowering.stablehlo().body.operations
        if operation.operation.name == "func.func" and ir.StringAttr(operation.attributes["sym_name"]).value == "main"
    ]
    given: Any = [()] * len(arguments["global_in_avals"])
    if "arg_attrs" in main.attributes:
        given = main.attributes["arg_attrs"]
    kept = sorted(arguments["kept_var_idx"])
    unusable: list[str] = []
    for n, attributes, aval, sharding in zip(
        kept, given, arguments["global_in_avals"], arguments["in_shardings"], strict=True
    ):
        if donated[n] and not any(name in attributes for name in ("tf.aliasing_output", "jax.buffer_donor")):
            unusable.append(str(mlir.sharded_aval(aval, None if isinstance(sharding, UnspecifiedValue) else sharding)))
    return unusable


def why_not_storable(lowered: Any) -> str | None:
    """Say what keeps a lowered program from being stored, or None."""
    arguments = lowered._lowering.compile_args
    for name, reason in (
        ("host_callbacks", "host callback"),
        ("ordered_effects", "ordered effects"),
        ("unordered_effects", "unordered effects"),
        ("keepalive", "host callback"),
        ("mut", "mutable array reference"),
    ):
        if arguments.get(name):
            return reason
    poly = arguments.get("shape_poly_state")
    if poly is not None and poly.uses_dim_vars:
        return "symbolic dimensions"
    if lowered._lowering.const_args:
        return "constants hoisted by jax_use_simplified_jaxpr_constants"
    foreign = foreign_targets(custom_call_targets(lowered._lowering.stablehlo()))
    return f"custom call {foreign[0]!r} is registered by other native code" if foreign else None


def module_bytes(lowered: Any) -> bytes:
    """Return the lowered StableHLO module as MLIR bytecode."""
    return mlir.module_to_bytecode(lowered._lowering.stablehlo())


def module_text(lowered: Any) -> bytes:
    """Return the lowered module as text without locations, constants included."""
    return mlir.module_to_string(lowered._lowering.stablehlo(), enable_debug_info=False).encode()


def _is_specified(intermediate: Any) -> bool:
    sharding = intermediate[0] if isinstance(intermediate, tuple) else intermediate
    return not isinstance(sharding, UnspecifiedValue)


def describe_lowered(lowered: Any, device: Any) -> dict[str, Any]:
    """Return as plain data what compiling the module needs besides the module.

    Args:
        lowered: The lowered program.
        device: Where the call's arguments are.

    Raises:
        KeyingError: A sharding or layout has no description.
    """
    arguments = lowered._lowering.compile_args
    devices = list(lowered._lowering._device_list)
    return {
        "name": lowered._lowering._name,
        "devices": [device_index(d) for d in devices],
        "is_fixed": len(devices) == 1 and devices[0] != device,
        "committed": bool(arguments["committed"]),
        "kept_var_idx": sorted(arguments["kept_var_idx"]),
        "in_shardings": [describe_sharding(s) for s in arguments["in_shardings"]],
        "out_shardings": [describe_sharding(s) for s in arguments["out_shardings"]],
        "in_layouts": [describe_layout(layout) for layout in arguments["in_layouts"]],
        "out_layouts": [describe_layout(layout) for layout in arguments["out_layouts"]],
        "intermediate_shardings": sum(map(_is_specified, arguments.get("intermediate_shardings") or ())),
        "custom_call_targets": custom_call_targets(lowered._lowering.stablehlo()),
    }


def describe_compiled(executable: Any, targets: Sequence[str], device: Any) -> dict[str, Any]:
    """Return as plain data what loading the executable needs besides its bytes.

    Args:
        executable: The executable.
        targets: Its custom calls.
        device: Where the call's arguments are.

    Raises:
        KeyingError: A sharding or layout has no description, or the executable is of a kind that has none.
    """
    unloaded = getattr(executable, "_unloaded_executable", None)
    if unloaded is None:
        raise KeyingError(
            "describing an executable: expected one that holds its own parts, got one of a kind that hides them",
            reason="this backend's executables can't be described",
        )
    return {
        "name": unloaded.name,
        "devices": [device_index(d) for d in unloaded.device_list],
        "is_fixed": len(unloaded.device_list) == 1 and unloaded.device_list[0] != device,
        "committed": bool(unloaded.committed),
        "kept_var_idx": sorted(unloaded.kept_var_idx),
        "in_shardings": [describe_sharding(s) for s in unloaded.input_shardings],
        "out_shardings": [describe_sharding(s) for s in unloaded.output_shardings],
        "in_layouts": [describe_layout(layout) for layout in unloaded.xla_in_layouts],
        "dispatch_layouts": [describe_layout(layout) for layout in unloaded.dispatch_in_layouts],
        "out_layouts": [describe_layout(layout) for layout in unloaded.xla_out_layouts],
        "custom_call_targets": list(targets),
        "placed_results": [n for n, aval in enumerate(unloaded.output_avals) if _has_placement(aval)],
    }


def _has_placement(aval: Any) -> bool:
    return isinstance(aval, core.ShapedArray) and (
        not aval.sharding.mesh.empty or aval.memory_space != jax.memory.Space.Device
    )


def _placed_types(avals: Sequence[Any], shardings: Sequence[Any], places: Sequence[int]) -> list[Any]:
    """Return types of results, at the given places with the mesh and memory of their shardings, as JAX has them."""
    return [
        core.update_aval_with_sharding(aval, sharding) if n in places and isinstance(aval, core.ShapedArray) else aval
        for n, (aval, sharding) in enumerate(zip(avals, shardings, strict=True))
    ]


def is_fresh(executable: Any) -> bool:
    """Say whether XLA compiled an executable here, rather than read it from bytes; only such a one can be stored."""
    return not was_deserialized(executable.xla_executable)


def executable_bytes(executable: Any) -> bytes:
    """Serialize a compiled executable with the PJRT client's own serializer.

    Raises:
        jax.errors.JaxRuntimeError: The backend can't serialize this executable.
    """
    loaded = executable.xla_executable
    return loaded.serialize() if hasattr(loaded, "serialize") else loaded.client.serialize_executable(loaded)


def _placed(meta: dict[str, Any], device: Any) -> list[Any]:
    """Return the devices that an entry runs on.

    A single-device program goes where the call's arguments are, unless it chose its device itself, in its body.
    """
    if len(meta["devices"]) == 1 and not meta["is_fixed"]:
        return [device]
    everything = device.client.devices()
    return [everything[i] for i in meta["devices"]]


def load_executable(data: bytes, meta: dict[str, Any], *, in_avals: Sequence[Any], out_avals: Sequence[Any],
                    debug_info: Any, device: Any, compiler_options: Sequence[tuple[str, Any]] = ()) -> Any:  # fmt: skip
    """Load an executable that another process, or this one, serialized.

    Args:
        data: What `executable_bytes` returned; its digest must have been checked already: this is a native parser.
        meta: What `describe_compiled` returned.
        in_avals: Types of all inputs, unused ones included, hoisted constants first.
        out_avals: Types of the outputs.
        debug_info: Names of the arguments, for error messages.
        device: Where a single-device program is placed.
        compiler_options: What was passed to XLA when it was compiled; loading does not read it.

    Raises:
        jax.errors.JaxRuntimeError: The backend rejects the bytes.
    """
    initialize_targets(meta["custom_call_targets"])
    devices = _placed(meta, device)
    client = device.client
    options = compiler.get_compile_options(
        num_replicas=1,
        num_partitions=len(devices),
        device_assignment=np.array([[d.id for d in devices]]),
        backend=client,
    )
    device_list = xc.DeviceList(tuple(devices))
    kept = set(meta["kept_var_idx"])
    out_shardings = [sharding_from(s, devices) for s in meta["out_shardings"]]
    unloaded = pxla.UnloadedMeshExecutable(
        xla_executable=client.deserialize_executable(data, device_list, options),
        device_list=device_list,
        backend=client,
        input_avals=[a for i, a in enumerate(in_avals) if i in kept],
        input_shardings=[sharding_from(s, devices) for s in meta["in_shardings"]],
        output_avals=_placed_types(out_avals, out_shardings, meta.get("placed_results", ())),
        output_shardings=out_shardings,
        committed=meta["committed"],
        name=meta["name"],
        unordered_effects=[],
        ordered_effects=[],
        keepalive=[],
        host_callbacks=[],
        kept_var_idx=kept,
        mut=None,
        xla_in_layouts=[layout_from(layout) for layout in meta["in_layouts"]],
        dispatch_in_layouts=[layout_from(layout) for layout in meta["dispatch_layouts"]],
        xla_out_layouts=[layout_from(layout) for layout in meta["out_layouts"]],
        all_args_info=pxla.AllArgsInfo(list(in_avals), debug_info),
        pgle_profiler=None,
    )
    return unloaded.load()


def compile_module(data: bytes, meta: dict[str, Any], *, in_avals: Sequence[Any], out_avals: Sequence[Any],
                   debug_info: Any, device: Any, compiler_options: Sequence[tuple[str, Any]] = ()) -> Any:  # fmt: skip
    """Compile a stored StableHLO module: no tracing and no lowering.

    Args and Raises are those of `load_executable`; `data` is what `module_bytes` returned, `meta` what
    `describe_lowered` returned.
    """
    initialize_targets(meta["custom_call_targets"])
    devices = _placed(meta, device)
    kept = set(meta["kept_var_idx"])
    out_shardings = [sharding_from(s, devices) for s in meta["out_shardings"]]
    with mlir.make_ir_context():
        module = ir.Module.parse(data)
        return pxla.UnloadedMeshExecutable.from_hlo(
            meta["name"],
            module,
            [a for i, a in enumerate(in_avals) if i in kept],
            _placed_types(out_avals, out_shardings, range(len(out_avals))),
            tuple(sharding_from(s, devices) for s in meta["in_shardings"]),
            tuple(out_shardings),
            tuple_args=False,
            unordered_effects=[],
            ordered_effects=[],
            host_callbacks=[],
            keepalive=[],
            kept_var_idx=kept,
            backend=device.client,
            device_list=xc.DeviceList(tuple(devices)),
            committed=meta["committed"],
            in_layouts=tuple(layout_from(layout) for layout in meta["in_layouts"]),
            out_layouts=tuple(layout_from(layout) for layout in meta["out_layouts"]),
            compiler_options_kvs=tuple(compiler_options),
            num_devices=len(devices),
            all_args_info=pxla.AllArgsInfo(list(in_avals), debug_info),
            intermediate_shardings=[],
        )


def place_constants(executable: Any, consts: Sequence[Any]) -> tuple[Any, ...]:
    """Put hoisted constants on the executable's devices.

    They are copied first: what the program computes would change, or it would fail, when the user writes to a NumPy
    array or deletes a JAX array, which under `jax.jit` is baked in.
    """
    if not consts:
        return ()
    kept = [n for n in range(len(consts)) if n in executable._kept_var_idx]
    with jax.transfer_guard("allow"):  # the user moves no data here: under `jax.jit` there would be none to move
        taken = [copied(consts[n]) for n in kept]
        placed = dict(zip(kept, executable.shard_const_args(taken), strict=True)) if taken else {}
    # The executable does not take the others, so anything may stand in their place.
    nothing = next(iter(placed.values()), np.zeros((), np.bool_))
    return tuple([placed.get(n, nothing) for n in range(len(consts))])


def as_compiled(executable: Any, const_args: Sequence[Any], traced: Any, call: Any) -> Any:
    """Wrap a loaded executable as JAX's own `jax.stages.Compiled`.

    Args:
        executable: The executable.
        const_args: Hoisted constants on the device.
        traced: The trace that the executable belongs to.
        call: The structure of arguments and keyword arguments as the user spelled them, static ones left out; the flat
            arguments are those of the trace, in its order.
    """
    info = jax.tree_util.tree_unflatten(call, jax.tree_util.tree_leaves(traced.args_info))
    return jax.stages.Compiled(executable, list(const_args), info, traced.out_tree, no_kwargs=False)


def fastpath(executable: Any, out_tree: Any, args_flat: Sequence[Any], out_flat: Sequence[Any],
             const_args: Sequence[Any]) -> Any:  # fmt: skip
    """Return what JAX's C++ dispatch needs to run the executable next time without Python, or None."""
    return pjit._get_fastpath_data(executable, out_tree, args_flat, out_flat, frozenset(), [], None, const_args)


__all__ = [
    "as_compiled",
    "compile_module",
    "custom_call_targets",
    "describe_compiled",
    "describe_lowered",
    "executable_bytes",
    "fastpath",
    "foreign_targets",
    "initialize_targets",
    "is_fresh",
    "load_executable",
    "module_bytes",
    "module_text",
    "place_constants",
    "why_not_storable",
]
