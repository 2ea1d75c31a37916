"""What the array API standard asks of the array object, beyond what Tensor has for its own sake.

The namespace itself, `tengen.array_api`, stands floors above and is imported when a tensor is first asked for it.
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any

from tengen.base.errors import ArgumentError, DeviceError, ShapeError
from tengen.ops.define import REGISTRY
from tengen.tensor.tensor import Tensor

VERSIONS = ("2021.12", "2022.12", "2023.12", "2024.12")  # of the standard; each has what the ones before it have


def array_namespace(self: Tensor, /, *, api_version: str | None = None) -> ModuleType:
    """The functions of the array API standard, `tengen.array_api`.

    Args: api_version: the version that the caller needs, such as "2024.12"; default: the newest here.
    Errors: ValueError for one that is not here.

    >>> Tensor([1.0]).__array_namespace__().__array_api_version__
    '2024.12'
    """
    if api_version not in (None, *VERSIONS):
        raise ArgumentError(f"__array_namespace__(api_version={api_version!r}): here it is one of {', '.join(VERSIONS)}")
    return importlib.import_module("tengen.array_api")


def to_device(self: Tensor, device: Any, /, *, stream: Any = None) -> Tensor:
    """The tensor on a device, `to` by the array API's name. `stream` must be None: a processor has none.

    Errors: DeviceError for a device that is not here, and for a stream
    """
    if stream is not None:
        raise DeviceError(f"to_device(stream={stream!r}): a processor has no streams; help: pass None")
    return self.to(device)


def matrix_transpose(self: Tensor) -> Tensor:
    """The tensor with its last two axes exchanged."""
    if self.ndim < 2:
        raise ShapeError(f"mT of a tensor of shape {self.shape}: two axes are needed")
    return REGISTRY["swapaxes"](self, -1, -2)


def buffer(self: Tensor, flags: int, /) -> memoryview:
    """A read-only view of the tensor's memory, by Python's buffer protocol (Python 3.12 and newer ask for it)."""
    return memoryview(self.numpy())


PROTOCOL: dict[str, Any] = {
    "__array_namespace__": array_namespace, "__buffer__": buffer, "mT": property(matrix_transpose, doc=matrix_transpose.__doc__),
    "to_device": to_device,
}  # fmt: skip
