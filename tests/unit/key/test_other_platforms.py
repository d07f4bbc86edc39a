"""What tells devices of other platforms apart in a key: by simulation, where there is no such device."""

import dataclasses
from typing import Any

import pytest

from prejit.key import environment_ingredients


@dataclasses.dataclass(frozen=True)
class Client:
    platform_version: str = "PJRT C API cuda 12080"
    platform: str = "cuda"
    plugin_attributes: Any = None

    def devices(self):
        return [Device()]


@dataclasses.dataclass(frozen=True)
class Device:
    device_kind: str = "NVIDIA H100 80GB HBM3"
    compute_capability: str = "9.0"
    platform: str = "gpu"
    process_index: int = 0
    id: int = 0
    client: Client = dataclasses.field(default_factory=Client)


def ingredients(device, kind="executable"):
    return environment_ingredients(kind, platform=device.platform, devices=(device,))


@pytest.mark.parametrize(
    "other",
    [
        Device(device_kind="NVIDIA A100-SXM4-80GB"),
        Device(compute_capability="12.1"),
        Device(client=Client(platform_version="PJRT C API cuda 12090")),
        Device(platform="rocm"),
    ],
)
def test_what_makes_an_executable_another_one(other):
    assert ingredients(Device()) != ingredients(other)


def test_which_of_several_equal_devices_it_is_does_not_matter():
    assert ingredients(Device(id=0)) == ingredients(Device(id=3))


def test_a_module_does_not_know_the_device():
    assert ingredients(Device(), "module") == ingredients(Device(compute_capability="12.1"), "module")


def test_no_cpu_feature_is_part_of_a_gpus_key():
    assert not any("cpu" in name for name, _ in ingredients(Device()) if name.startswith("cpu"))
