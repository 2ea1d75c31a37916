"""`torch.cuda`, as on a machine without a GPU."""

from __future__ import annotations

from typing import Any

from tengen.base.errors import DeviceError
from tengen.pytorch.cuda import amp

OutOfMemoryError = MemoryError


def is_available() -> bool:
    """False: there is no GPU that Tengen computes on."""
    return False


def device_count() -> int:
    """0."""
    return 0


def is_initialized() -> bool:
    """False."""
    return False


def is_bf16_supported(*args: Any) -> bool:
    """False."""
    return False


def empty_cache() -> None:
    """Nothing: there is no memory of a GPU."""


def manual_seed(seed: int) -> None:
    """Nothing, as in PyTorch without a GPU."""


def manual_seed_all(seed: int) -> None:
    """Nothing, as in PyTorch without a GPU."""


def memory_allocated(device: Any = None) -> int:
    """0."""
    return 0


def max_memory_allocated(device: Any = None) -> int:
    """0."""
    return 0


def memory_reserved(device: Any = None) -> int:
    """0."""
    return 0


def max_memory_reserved(device: Any = None) -> int:
    """0."""
    return 0


def memory_stats(device: Any = None) -> dict[str, int]:
    """Nothing is known: {}."""
    return {}


def ipc_collect() -> None:
    """Nothing."""


def reset_peak_memory_stats(device: Any = None) -> None:
    """Nothing."""


def _missing(what: str) -> DeviceError:
    return DeviceError(f"torch.cuda.{what}: there is no GPU here; help: ask torch.cuda.is_available() first")


def synchronize(device: Any = None) -> None:
    """Errors: DeviceError, as there is no GPU."""
    raise _missing("synchronize()")


def current_device() -> int:
    """Errors: DeviceError, as there is no GPU."""
    raise _missing("current_device()")


def set_device(device: Any) -> None:
    """Errors: DeviceError, as there is no GPU."""
    raise _missing("set_device()")


def get_device_name(device: Any = None) -> str:
    """Errors: DeviceError, as there is no GPU."""
    raise _missing("get_device_name()")


def get_device_capability(device: Any = None) -> Any:
    """Errors: DeviceError, as there is no GPU."""
    raise _missing("get_device_capability()")


class Event:
    """An event of a GPU. Errors: DeviceError, as there is none."""

    def __init__(self, *args: Any, **how: Any):
        raise DeviceError("torch.cuda.Event: there is no GPU here; help: time.perf_counter(): a result is there when its call returns")


class Stream:
    """A stream of a GPU. Errors: DeviceError, as there is none."""

    def __init__(self, *args: Any, **how: Any):
        raise _missing("Stream")


def get_device_properties(device: Any = None) -> Any:
    """Errors: DeviceError, as there is no GPU."""
    raise _missing("get_device_properties()")


__all__ = [
    "Event", "OutOfMemoryError", "Stream", "amp", "current_device", "device_count", "empty_cache", "get_device_capability", "get_device_name",
    "get_device_properties", "ipc_collect", "is_available", "is_bf16_supported", "is_initialized", "manual_seed", "manual_seed_all",
    "max_memory_allocated", "max_memory_reserved", "memory_allocated", "memory_reserved", "memory_stats",
    "reset_peak_memory_stats", "set_device", "synchronize",
]  # fmt: skip
