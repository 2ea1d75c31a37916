"""`torch.accelerator`, as on a machine without one: programs that ask it for their device compute on the processor.

>>> from tengen.pytorch import accelerator
>>> accelerator.current_accelerator().type if accelerator.is_available() else "cpu"
'cpu'
"""

from __future__ import annotations

from typing import Any


def is_available() -> bool:
    """False: Tengen computes on the processor."""
    return False


def current_accelerator(check_available: bool = False) -> Any:
    """None."""
    return None


def device_count() -> int:
    """0."""
    return 0


def empty_cache() -> None:
    """Nothing: there is no memory of an accelerator."""


def synchronize(device: Any = None) -> None:
    """Nothing: a result is there when its call returns."""


__all__ = ["current_accelerator", "device_count", "empty_cache", "is_available", "synchronize"]
