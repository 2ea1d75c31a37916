"""`torch.xpu`, as on a machine without such a device."""

from __future__ import annotations

from tengen.pytorch.accelerator import device_count, empty_cache, is_available, synchronize


def manual_seed(seed: int) -> None:
    """Nothing: the processor's numbers are `torch.manual_seed`'s."""


def manual_seed_all(seed: int) -> None:
    """Nothing, as `manual_seed`."""


__all__ = ["device_count", "empty_cache", "is_available", "manual_seed", "manual_seed_all", "synchronize"]
