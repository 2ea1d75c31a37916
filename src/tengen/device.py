"""`tengen.device`: which devices there are, which one tensors are made on, and what its memory pool holds. MegEngine's names.

In: kinds and names of devices in MegEngine's or PyTorch's spelling. Out: `Device`s, numbers, bytes.
"""

from __future__ import annotations

import re
from typing import Any

from tengen.base.device import HERE, KINDS, Device
from tengen.base.device import default_device as get_default_device
from tengen.base.device import set_default_device as _set_default
from tengen.base.errors import DeviceError
from tengen.runtime import native

__all__ = [
    "Device", "coalesce_free_memory", "get_allocated_memory", "get_default_device", "get_device_count", "get_max_allocated_memory",
    "get_reserved_memory", "is_atlas_available", "is_cambricon_available", "is_cuda_available", "is_rocm_available",
    "set_default_device", "what_is_xpu",
]  # fmt: skip


def set_default_device(device: Any) -> None:
    """Sets the device of tensors that are made without naming one. "multithread4:0" sets the number of threads too, as
    `tengen.set_threads` does.

    Errors: DeviceError for a device that is not here.
    """
    _set_default(device)
    threads = re.match(r"multithread(\d+)", str(device))
    if threads:
        native.set_threads(int(threads[1]))


def get_device_count(device_type: str) -> int:
    """How many devices of a kind there are: "cpu" (1, whatever its number of cores), "gpu", "cuda", "rocm", "cambricon",
    "atlas", or "xpu", the best kind of this machine.

    Errors: DeviceError for another kind.
    """
    if device_type not in KINDS:
        raise DeviceError(f"{device_type!r} is no kind of device; help: one of {', '.join(KINDS)}")
    return sum(d.kind == KINDS[device_type] for d in HERE)


def is_cuda_available() -> bool:
    """Whether there is an NVIDIA GPU that Tengen has programs for."""
    return get_device_count("cuda") > 0


def is_rocm_available() -> bool:
    """Whether there is an AMD GPU that Tengen has programs for."""
    return get_device_count("rocm") > 0


def is_cambricon_available() -> bool:
    """Whether there is a Cambricon device that Tengen has programs for."""
    return get_device_count("cambricon") > 0


def is_atlas_available() -> bool:
    """Whether there is an Atlas device that Tengen has programs for."""
    return get_device_count("atlas") > 0


def what_is_xpu() -> str:
    """The kind of device that "xpu" means on this machine: the best one."""
    return Device.named("xpu").kind


def get_allocated_memory(device: Any = None) -> int:
    """Bytes of the blocks of a device's pool that tensors hold. Default: the default device."""
    return _statistics(device).in_use


def get_reserved_memory(device: Any = None) -> int:
    """Bytes that a device's pool has of the system: what tensors hold, and what is kept for the next ones."""
    figures = _statistics(device)
    return figures.in_use + figures.cached


def get_max_allocated_memory(device: Any = None) -> int:
    """The most bytes that tensors have ever held at once."""
    return _statistics(device).peak


def coalesce_free_memory() -> None:
    """Gives back to the system what the pools keep for the next tensors."""
    for d in HERE:
        native.pool_of(d).trim()


def _statistics(device: Any) -> Any:
    return native.pool_of(Device.named(device)).statistics()
