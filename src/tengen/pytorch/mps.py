"""`torch.mps`, as on a machine without such a device."""

from __future__ import annotations

from tengen.pytorch.accelerator import device_count, empty_cache, is_available, synchronize


def manual_seed(seed: int) -> None:
    """Nothing: the processor's numbers are `torch.manual_seed`'s."""




__all__ = ["device_count", "empty_cache", "is_available", "manual_seed", "synchronize"]
