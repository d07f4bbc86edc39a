"""What around a program changes its trace or its compile: JAX's options and contexts, XLA's flags, the backend.

Option values are those of the calling thread, since `jax.enable_x64(...)` and the like are local to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import jaxlib.version
from jax._src import config, core, mesh
from jax._src.lib import xla_client  # pyright: ignore[reportPrivateImportUsage]

_START = "read when a backend is created, not by a trace"
_CHECKS = "turns an error of JAX's own checks off; what passes both ways is the same program"
_KERNELS = "chooses a kernel for one platform, once per process"
_COMPILE = "read when XLA compiles, so what was compiled before keeps running"

DISPATCH_OPTIONS: tuple[str, ...] = (
    "jax_bcoo_cusparse_lowering",
    "jax_debug_infs",
    "jax_debug_nans",
    "jax_default_prng_impl",
    "jax_enable_custom_prng",
    "jax_experimental_unsafe_xla_runtime_errors",
    "jax_high_dynamic_range_gumbel",
    "jax_legacy_prng_key",
    "jax_mutable_array_checks",
)
"""Options that change what a call gives and that JAX's C++ dispatch does not look at (jax issue 40609)."""

SETTLED_OPTIONS: Mapping[str, str] = {
    "jax_compiler_enable_remat_pass": _COMPILE,
    "jax_cpu_collectives_implementation": _START,
    "jax_disable_bwd_checks": _CHECKS,
    "jax_disable_most_optimizations": _COMPILE,
    "jax_disable_vmap_shmap_error": _CHECKS,
    "jax_disallow_mesh_context_manager": _CHECKS,
    "jax_exec_time_optimization_effort": _COMPILE,
    "jax_export_calling_convention_version": "read by jax.export only",
    "jax_export_ignore_forward_compatibility": "read by jax.export only",
    "jax_memory_fitting_effort": _COMPILE,
    "jax_memory_fitting_level": _COMPILE,
    "jax_mock_gpu_topology": _START,
    "jax_mosaic_allow_hlo": _KERNELS,
    "jax_mosaic_unzip_debug_locations": _KERNELS,
    "jax_optimization_level": _COMPILE,
    "jax_pallas_auto_assign_collective_ids": _KERNELS,
    "jax_pallas_auto_assign_collective_ids_limit": _KERNELS,
    "jax_pallas_poison_buffers": _KERNELS,
    "jax_pgle_aggregation_percentile": _COMPILE,
    "jax_pjrt_client_create_options": _START,
    "jax_ragged_dot_use_ragged_dot_instruction": _KERNELS,
    "jax_refs_to_pins": _KERNELS,
    "jax_serialization_version": "read by jax.export only",
    "jax_sort_devices_by_process_index": _START,
    "jax_use_magma": _KERNELS,
    "jax_use_rgv3": _KERNELS,
    "mock_num_gpu_processes": _START,
}
"""Options in a key at which calls of what is in memory do not look again, as in `jax.jit`; with the reason."""


def versions() -> tuple[str, str]:
    """Return the versions of jax and jaxlib."""
    return jax.__version__, jaxlib.version.__version__


def option_names() -> tuple[str, ...]:
    """Return the names of all options in JAX's registry. Modules that are imported late add some."""
    return tuple(_holders())


def option_values(names: tuple[str, ...]) -> tuple[Any, ...]:
    """Read options as the calling thread sees them."""
    holders = _holders()
    return tuple([holders[name].value for name in names])


def nr_options() -> int:
    """Return how many options there are; a changed count means that names must be read again."""
    return len(_holders())


def trace_context() -> Any:
    """Return JAX's own record of what a trace on this thread depends on: hashable, about 0.2 us."""
    return config.trace_context()


def trace_context_names() -> tuple[str, ...]:
    """Return what the parts of `trace_context` are called; empty if this JAX does not say."""
    try:
        return tuple(config.trace_context_names())
    except NotImplementedError:
        return ()


def contexts() -> Iterator[tuple[str, Any]]:
    """Yield the parts of the trace context that are not options: meshes, compute type, named axes, user contexts."""
    options = _holders()
    for name, value in zip(trace_context_names(), trace_context(), strict=False):
        if name not in options:
            yield name, value


_user_positions: tuple[int, tuple[int, ...]] = (-1, ())


def has_user_context(context: Any) -> bool:
    """Say whether a trace context holds a value that the user put there with `jax.make_user_context`."""
    global _user_positions
    length, positions = _user_positions
    if length != len(context):
        names = trace_context_names()
        positions = tuple([i for i, name in enumerate(names) if name == "user_context"])
        _user_positions = (len(context), positions)
    return any(context[i] is not None for i in positions)


def concrete_mesh() -> Any:
    """Return the mesh of devices that `jax.set_mesh` put in place on this thread, or None."""
    ambient: Any = mesh.get_concrete_mesh()
    return None if ambient is None or ambient.empty else ambient


def axis_env_is_empty(value: Any) -> bool:
    """Say whether no named axis is in scope, given the `axis_env_state` part of the trace context."""
    return isinstance(value, core.AxisEnv) and not value.axis_sizes and not value.spmd_axis_names


# The fields that JAX's own cache key leaves out too (jax/_src/cache_key.py): where to dump, how, and where tools lie.
_DUMP_FIELDS: tuple[tuple[str, Any], ...] = (
    ("xla_force_host_platform_device_count", 0),
    ("xla_dump_to", ""),
    ("xla_dump_hlo_module_re", ""),
    ("xla_dump_hlo_pass_re", ""),
    ("xla_dump_hlo_pipeline_re", ""),
    ("xla_dump_hlo_as_text", False),
    ("xla_dump_hlo_as_long_text", False),
    ("xla_dump_hlo_as_proto", False),
    ("xla_dump_hlo_as_dot", False),
    ("xla_dump_hlo_as_url", False),
    ("xla_dump_hlo_as_html", False),
    ("xla_dump_fusion_visualization", False),
    ("xla_dump_hlo_snapshots", False),
    ("xla_dump_max_hlo_modules", 0),
    ("xla_dump_module_metadata", False),
    ("xla_dump_compress_protos", False),
    ("xla_dump_disable_metadata", False),
    ("xla_detailed_logging", False),
    ("xla_enable_dumping", False),
    ("xla_gpu_dump_autotune_logs_to", ""),
    ("xla_gpu_dump_autotune_results_to", ""),
    ("xla_gpu_experimental_autotune_cache_mode", 0),
    ("xla_gpu_cuda_data_dir", ""),
    ("xla_gpu_per_fusion_autotune_cache_dir", ""),
    ("xla_gpu_kernel_cache_file", ""),
)


def effective_debug_options() -> bytes:
    """Return XLA's options as it parsed them, with those that only dump or log cleared.

    XLA reads `XLA_FLAGS` once, so a later change to the variable has no effect; this is what does have one.
    """
    options = xla_client.CompileOptions()
    debug = options.executable_build_options.debug_options
    for name, cleared in _DUMP_FIELDS:
        if hasattr(debug, name):
            try:
                setattr(debug, name, cleared)
            except TypeError:
                continue  # An enumeration on some versions; it then stays in, and the worst case is a miss.
    return options.SerializeAsString()


def backend_version(device: Any) -> tuple[str, str]:
    """Return the platform version and the PJRT plugin's version of the backend that a device belongs to."""
    client = device.client
    attributes: dict[str, Any] = dict(getattr(client, "plugin_attributes", None) or {})
    plugin = ",".join(f"{name}={attributes[name]}" for name in sorted(attributes) if name.endswith("version"))
    return str(client.platform_version), plugin


def compute_capability(device: Any) -> str:
    """Return a GPU's compute capability, or an empty string for a device that has none."""
    return str(getattr(device, "compute_capability", ""))


def _make_reader(names: tuple[str, ...]) -> Callable[[], tuple[Any, ...]]:
    """Build a function that reads options as fast as Python can: one attribute per option, no loop.

    Args:
        names: Options in the registry.

    Returns:
        A function without arguments that returns the options' values, for the calling thread. About 35 ns per option.
    """
    holders = _holders()
    scope = {f"h{i}": holders[name] for i, name in enumerate(names)}
    reads = "".join(f"h{i}.value, " for i in range(len(names)))
    # A loop or an attrgetter over the holders takes twice as long (measured 2026-11 on 0.10.2 and 0.12), on every call.
    return eval(f"lambda: ({reads})", scope)


def _is_registered(name: str) -> bool:
    return name in _holders()


def _holders() -> dict[str, Any]:
    registry: Any = jax.config
    return registry._value_holders


dispatch_token: Callable[[], tuple[Any, ...]] = _make_reader(tuple(filter(_is_registered, DISPATCH_OPTIONS)))
"""Return the values of `DISPATCH_OPTIONS` on this thread: hashable, to compare on every call. About 0.3 us."""
