"""Tensors from and to other libraries, over the same memory. `Tensor` has the protocol itself: `torch.from_dlpack(tensor)`."""

from __future__ import annotations

from typing import Any

from tengen.tensor import Tensor
from tengen.tensor.dlpack import from_dlpack as _from_dlpack

__all__ = ["from_dlpack", "to_dlpack"]


def to_dlpack(tensor: Tensor, stream: Any = None) -> Any:
    """A DLPack capsule over a tensor's memory, for libraries that take one; it can be used once. stream: None, for the processor."""
    return tensor.__dlpack__(stream=stream)


class _Capsule:
    """What hands a capsule to whoever asks by the protocol."""

    def __init__(self, capsule: Any):
        self.capsule = capsule

    def __dlpack__(self, **options: Any) -> Any:
        return self.capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)  # the processor, which alone can hand out memory that is read here


def from_dlpack(ext_tensor: Any, stream: Any = None) -> Tensor:
    """A tensor over the memory of another library's: an object with ``__dlpack__``, or a capsule of one on the processor.

    >>> import numpy as np
    >>> from_dlpack(np.array([1.0, 2.0])).tolist(), from_dlpack(to_dlpack(Tensor([3.0]))).tolist()
    ([1.0, 2.0], [3.0])
    """
    return _from_dlpack(ext_tensor if hasattr(ext_tensor, "__dlpack__") else _Capsule(ext_tensor))
