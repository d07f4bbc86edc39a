"""Describe shardings and layouts as plain data, and rebuild them on the devices of this process.

A description names devices by their index in the client's device list, never by address, host or process. What has no
description raises `KeyingError`, and the program that uses it is not stored.
"""

import base64
from typing import Any

import jax
import numpy as np
from jax._src.layout import AutoLayout, Layout
from jax._src.lib import xla_client as xc
from jax._src.named_sharding import UnspecifiedValue
from jax._src.sharding_impls import GSPMDSharding, make_single_device_sharding
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding

from prejit.errors import KeyingError

Description = dict[str, Any]


def _undescribed(what: str, path: str) -> KeyingError:
    return KeyingError(
        f"describing an executable: expected a placement that is plain data, got {what}", reason=what, path=path
    )


def device_index(device: Any) -> int:
    """Return the place of a device in its client's device list."""
    return [d.id for d in device.client.devices()].index(device.id)


def _spec_entry(entry: Any) -> Any:
    if entry is PartitionSpec.UNCONSTRAINED:
        return {"unconstrained": True}
    if entry is None or isinstance(entry, str):
        return entry
    if isinstance(entry, tuple) and all(isinstance(name, str) for name in entry):
        return list(entry)
    raise _undescribed(f"a partition spec entry of type {type(entry).__name__}", "sharding")


def _describe_spec(spec: Any) -> Description:
    if any(getattr(spec, name, None) for name in ("unreduced", "reduced")):
        raise _undescribed("a partition spec with unreduced or reduced axes", "sharding")
    return {"entries": [_spec_entry(entry) for entry in spec]}


def _spec_from(description: Description) -> PartitionSpec:
    entries = [
        PartitionSpec.UNCONSTRAINED if isinstance(e, dict) else tuple(e) if isinstance(e, list) else e
        for e in description["entries"]
    ]
    return PartitionSpec(*entries)


def describe_sharding(sharding: Any) -> Description:
    """Return plain data from which `sharding_from` rebuilds a sharding.

    Raises:
        KeyingError: The kind of sharding has no description.
    """
    if isinstance(sharding, UnspecifiedValue):
        return {"kind": "unspecified"}
    if isinstance(sharding, SingleDeviceSharding):
        return {"kind": "single", "memory_kind": sharding.memory_kind}
    if isinstance(sharding, NamedSharding) and isinstance(sharding.mesh, Mesh):
        if getattr(sharding, "_logical_device_ids", None) is not None:
            raise _undescribed("a sharding with logical device ids", "sharding")
        mesh = sharding.mesh
        names = mesh.axis_names
        if not all(isinstance(name, str) for name in names):
            raise _undescribed("a mesh whose axis names are not strings", "sharding")
        return {
            "kind": "named",
            "axis_names": list(names),
            "axis_types": [axis_type.name for axis_type in mesh.axis_types],
            "shape": list(mesh.devices.shape),
            "devices": [device_index(d) for d in mesh.devices.flat],
            "spec": _describe_spec(sharding.spec),
            "memory_kind": sharding.memory_kind,
        }
    if isinstance(sharding, GSPMDSharding):
        proto = sharding._hlo_sharding.to_proto().SerializeToString()
        return {
            "kind": "gspmd",
            "devices": [device_index(d) for d in sharding._internal_device_list],
            "proto": base64.b64encode(proto).decode(),
            "memory_kind": sharding.memory_kind,
        }
    raise _undescribed(f"a sharding of type {type(sharding).__name__}", "sharding")


def sharding_from(description: Description, devices: list[Any]) -> Any:
    """Rebuild a sharding.

    Args:
        description: What `describe_sharding` returned.
        devices: The devices that the executable runs on; shardings over one device are placed on the first one.
    """
    kind = description["kind"]
    if kind == "unspecified":
        return UnspecifiedValue()
    memory_kind = description["memory_kind"]
    if kind == "single":
        return make_single_device_sharding(devices[0], memory_kind=memory_kind)
    everything = devices[0].client.devices()
    # A program for one device goes where it is placed now, also where its shardings name a mesh.
    chosen = devices if len(devices) == 1 else [everything[i] for i in description["devices"]]
    if kind == "named":
        mesh = Mesh(
            np.array(chosen, dtype=object).reshape(description["shape"]),
            tuple(description["axis_names"]),
            axis_types=tuple(AxisType[name] for name in description["axis_types"]),
        )
        return NamedSharding(mesh, _spec_from(description["spec"]), memory_kind=memory_kind)
    proto = xc.OpSharding()
    proto.ParseFromString(base64.b64decode(description["proto"]))
    return GSPMDSharding(chosen, proto, memory_kind=memory_kind)


def describe_layout(layout: Any) -> Description | None:
    """Return plain data for a device-local layout; None stays None."""
    if layout is None:
        return None
    if not isinstance(layout, Layout):
        raise _undescribed(f"a layout of type {type(layout).__name__}", "layout")
    tiling = layout.tiling
    return {
        "major_to_minor": [int(i) for i in layout.major_to_minor],
        "tiling": None if tiling is None else [[int(i) for i in tile] for tile in tiling],
        "sub_byte": int(layout.sub_byte_element_size_in_bits),
    }


def layout_from(description: Description | None) -> Any:
    """Rebuild a layout from its description."""
    if description is None:
        return None
    tiling = description["tiling"]
    return Layout(
        tuple(description["major_to_minor"]),
        None if tiling is None else tuple(tuple(tile) for tile in tiling),
        description["sub_byte"],
    )


def placement_token(value: Any) -> str:
    """Return what the placement of one argument adds to a signature, as text.

    An uncommitted array, a NumPy array and a Python scalar add nothing: they go where the computation goes. A committed
    array on one device adds that it is committed and its memory kind, not which device: the executable is placed at
    load. Arrays on several devices add their whole sharding. A layout that is not the default one is added too.

    Raises:
        KeyingError: The sharding has no description.
    """
    sharding = getattr(value, "sharding", None)
    if sharding is None or not getattr(value, "_committed", isinstance(value, jax.ShapeDtypeStruct)):
        return ""
    layout = getattr(getattr(value, "format", None), "layout", None)
    text = "" if layout is None or layout is AutoLayout else _layout_text(layout, value)
    described = describe_sharding(sharding)
    if len(sharding.device_set) == 1:
        described.pop("devices", None)  # which device it is decides where the executable is loaded, not what it is
    return "@" + ",".join(f"{name}={described[name]}" for name in sorted(described)) + text


def _layout_text(layout: Any, value: Any) -> str:
    described = describe_layout(layout)
    assert described is not None
    default_order = described["major_to_minor"] == list(range(np.ndim(value)))
    return "" if default_order and not described["tiling"] else f"!{described['major_to_minor']}{described['tiling']}"
