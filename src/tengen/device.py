"""`tengen.device`: which devices there are, which one tensors are made on, and what its memory pool holds. MegEngine's names.

In: kinds and names of devices in MegEngine's or PyTorch's spelling. Out: `Device`s, numbers, bytes.
"""

from __future__ import annotations

import re
from typing import Any

from tengen.base.device import HERE, KINDS, Device
from tengen.base.device import default_device as get_default_device
from tengen.base.device import set_default_device as _set_default
from tengen.base.errors import DeviceError, UsageWarning, warn_once
from tengen.runtime import native
from tengen.runtime.memory import machine_memory

__all__ = [
    "Device", "coalesce_free_memory", "get_allocated_memory", "get_default_device", "get_device_count", "get_max_allocated_memory",
    "get_max_reserved_memory", "get_cuda_compute_capability", "get_cuda_device_property", "get_cuda_driver_version", "get_cuda_version",
    "get_cudnn_version", "get_mem_status_bytes", "get_reserved_memory", "get_tensorrt_version", "is_atlas_available", "is_cambricon_available",
    "is_cuda_available", "is_rocm_available", "reset_max_memory_stats", "set_default_device", "set_prealloc_config", "what_is_xpu",
]  # fmt: skip


def set_default_device(device: Any = "xpux") -> None:
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


def get_max_reserved_memory(device: Any = None) -> int:
    """The most bytes that a device's pool has ever had of the system: what tensors held, and what was kept for the next ones."""
    return _statistics(device).peak_reserved


def reset_max_memory_stats(device: Any = None) -> None:
    """Lets `get_max_allocated_memory` and `get_max_reserved_memory` begin anew, with what is held and kept now."""
    native.pool_of(Device.named(device)).reset_peak()


def get_mem_status_bytes(device: Any = None) -> tuple[int, int]:
    """(total, free): the bytes of a device's memory, and how many of them a process could still take. Of the processor: the
    machine's memory as Linux counts it, at most what this process's cgroup allows.

    >>> total, free = get_mem_status_bytes()
    >>> 0 < free < total
    True
    """
    Device.named(device)
    machine = machine_memory()
    return machine.total, machine.free


def get_cuda_version() -> None:
    """The version of CUDA that Tengen was built with, as MegEngine's 11040: None, for it was built with none."""


def get_cuda_driver_version() -> None:
    """The version of the CUDA driver that Tengen uses: None, for it uses none."""


def get_cudnn_version() -> None:
    """The version of cuDNN that Tengen was built with: None, for it was built with none."""


def get_tensorrt_version() -> None:
    """The version of TensorRT that Tengen was built with: None, for it was built with none."""


def get_cuda_compute_capability(device: int, device_type: Any = "cuda") -> int:
    """The compute capability of a GPU, as 86. Errors: DeviceError where there is no such GPU."""
    raise DeviceError(f"there is no device 'cuda:{device}'; devices here: {', '.join(map(str, HERE))}")


def get_cuda_device_property(device: int, device_type: Any = "cuda") -> Any:
    """The properties of a GPU. Errors: DeviceError where there is no such GPU."""
    return get_cuda_compute_capability(device)


def set_prealloc_config(
    alignment: int = 1, min_req: int = 32 << 20, max_overhead: int = 0, growth_factor: float = 2.0, device_type: Any = "cuda"
) -> None:
    """Accepted, with a `UsageWarning`: how MegEngine's pool of a GPU takes memory ahead. The pool of the processor takes what
    tensors need."""
    warn_once(f"set_prealloc_config(): it is for a pool of {device_type!r}, and there is none; help: leave it out", UsageWarning)


def coalesce_free_memory() -> None:
    """Gives back to the system what the pools keep for the next tensors."""
    for d in HERE:
        native.pool_of(d).trim()


def _statistics(device: Any) -> Any:
    return native.pool_of(Device.named(device)).statistics()
