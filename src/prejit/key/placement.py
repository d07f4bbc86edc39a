"""Canonical tokens for devices, meshes and shardings.

A device is its position among the devices of its platform, as JAX orders them: the same program on another host, or in
a process that got other device ids, has the same key.
"""

from __future__ import annotations

from typing import Any, cast

import jax
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding, PartitionSpec, Sharding, SingleDeviceSharding

from prejit._jax import jaxprs
from prejit.errors import KeyingError
from prejit.key.encoding import pack, scalar_token, text_token


def device_index(device: Any) -> int:
    """Return a device's position among its platform's devices.

    Raises:
        KeyingError: The device isn't one of the running backend's, as a device of a described topology isn't.
    """
    try:
        return jax.devices(device.platform).index(device)
    except (ValueError, RuntimeError) as error:
        raise KeyingError(
            f"building the key: expected a device of the running backend, got {device.device_kind!r} from elsewhere",
            reason="a device that is not among jax.devices()",
        ) from error


def device_token(device: Any) -> bytes:
    """Encode a device as its platform and its position among that platform's devices."""
    return pack(b"device", text_token(device.platform), b"i%d" % device_index(device))


def mesh_token(mesh: Mesh | AbstractMesh) -> bytes:
    """Encode a mesh: axis names, sizes and types, and its devices if it has any."""
    names = pack(b"names", *[_axis_token(name) for name in mesh.axis_names])
    sizes = pack(b"sizes", *[b"i%d" % size for size in mesh.axis_sizes])
    types = pack(b"types", *[_axis_type_token(kind) for kind in mesh.axis_types or ()])
    if isinstance(mesh, Mesh):
        devices = [] if mesh.empty else [device_token(device) for device in cast(Any, mesh.devices).flat]
        return pack(b"mesh", names, sizes, types, *devices)
    target = b"N"
    if mesh.abstract_device is not None:
        parts: list[Any] = [part for _, part in jaxprs.fields_of(mesh.abstract_device) or ()]
        target = pack(b"target", *[scalar_token(part) or b"" for part in parts])
    return pack(b"abstractmesh", names, sizes, types, target)


def spec_token(spec: PartitionSpec) -> bytes:
    """Encode a partition spec, with the axes it leaves unreduced or reduced."""
    entries = pack(b"entries", *[_entry_token(entry) for entry in spec.partitions])
    if not spec.unreduced and not spec.reduced:
        return pack(b"spec", entries)
    kind = getattr(spec, "unreduced_kind", None)  # 0.12: sum, max or min.
    marks = [_entry_token(spec.unreduced), _entry_token(spec.reduced), b"N" if kind is None else text_token(kind.name)]
    return pack(b"spec", entries, *marks)


def sharding_token(sharding: Sharding | Any) -> bytes:
    """Encode a sharding of any kind that JAX defines, with its memory kind.

    Raises:
        KeyingError: It is of a kind that is not known here, or holds a device from elsewhere.
    """
    if isinstance(sharding, NamedSharding):
        order = jaxprs.logical_device_ids(sharding)
        ids = b"N" if order is None else pack(b"order", *[b"i%d" % n for n in order])
        memory = scalar_token(sharding.memory_kind) or b"N"
        return pack(b"named", mesh_token(sharding.mesh), spec_token(sharding.spec), memory, ids)
    if isinstance(sharding, SingleDeviceSharding):
        (device,) = cast(set[Any], sharding.device_set)
        return pack(b"single", device_token(device), scalar_token(sharding.memory_kind) or b"N")
    if jaxprs.is_unspecified(sharding):
        return pack(b"unspecified")
    described = jaxprs.hlo_sharding(sharding)
    if described is not None:
        proto, devices = described
        memory = scalar_token(sharding.memory_kind) or b"N"
        return pack(b"hlosharding", proto, memory, *map(device_token, devices))
    raise KeyingError(
        f"building the key: expected a sharding that JAX defines, got {type(sharding).__qualname__}",
        reason=f"a sharding of unknown kind {type(sharding).__qualname__}",
    )


def _axis_token(name: object) -> bytes:
    if isinstance(name, tuple):
        return pack(b"axes", *map(_axis_token, cast(tuple[Any, ...], name)))
    token = scalar_token(name)
    if token is None:
        raise KeyingError(
            f"building the key: expected a mesh axis named by text, got {type(name).__qualname__}",
            reason="a mesh axis that is not named by text",
        )
    return token


def _axis_type_token(kind: AxisType) -> bytes:
    return text_token(kind.name)


def _entry_token(entry: object) -> bytes:
    if entry is PartitionSpec.UNCONSTRAINED:
        return pack(b"unconstrained")
    if isinstance(entry, set | frozenset):
        return pack(b"set", *sorted(map(_axis_token, cast(frozenset[Any], entry))))
    return _axis_token(entry)
