"""`torch.utils.dlpack`: tensors from other libraries and to them, without copies."""

from __future__ import annotations

from typing import Any

from tengen.pytorch.functions.creation import from_dlpack
from tengen.tensor import Tensor


def to_dlpack(tensor: Tensor) -> Any:
    """A capsule of the tensor's memory, for the `from_dlpack` of another library."""
    return tensor.__dlpack__()


__all__ = ["from_dlpack", "to_dlpack"]
