"""`torch.cpu`: the processor, under the names that PyTorch's packages of devices have."""

from __future__ import annotations

from typing import Any


def is_available() -> bool:
    """True."""
    return True


def device_count() -> int:
    """1: the processor with all of its cores."""
    return 1


def current_device() -> str:
    """ "cpu"."""
    return "cpu"


def set_device(device: Any) -> None:
    """Nothing: there is one."""


def synchronize(device: Any = None) -> None:
    """Nothing: a result is there when its call returns."""


__all__ = ["current_device", "device_count", "is_available", "set_device", "synchronize"]
