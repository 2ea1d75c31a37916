"""dtypes, devices and what is asked about them, under PyTorch's names."""

from __future__ import annotations

from typing import Any

import numpy as np

from tengen.base.device import Device, default_device
from tengen.base.dtype import (
    DType,
    bfloat16,
    complex64,
    complex128,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    promote,
    uint8,
    uint16,
    uint32,
    uint64,
)
from tengen.base.dtype import bool_ as bool
from tengen.base.dtype import dtype as named
from tengen.base.errors import DTypeError
from tengen.device import set_default_device
from tengen.tensor import Parameter, Tensor
from tengen.tensor.sizes import Extents as Size

dtype = DType
half, float, double = float16, float32, float64
short, int, long = int16, int32, int64
cfloat, cdouble = complex64, complex128


class _DeviceNames(type):
    """`torch.device` is called with a name, and asked whether something is one."""

    def __instancecheck__(cls, x: object) -> Any:
        return isinstance(x, Device)

    def __call__(cls, type: Any = "cpu", index: Any = None) -> Device:
        return Device.named(type if index is None else f"{type}:{index}")


class device(metaclass=_DeviceNames):
    """``device("cpu")`` is Tengen's `Device` of that name. Errors: DeviceError for one that is not here, as ``device("cuda")``.

    >>> device("cpu").type, isinstance(device("cpu"), device)
    ('cpu', True)
    """


class _Settings:
    """What `set_default_dtype` says."""

    floats: DType = float32


_settings = _Settings()


def get_default_dtype() -> DType:
    """The dtype of floats that are made without naming one."""
    return _settings.floats


def set_default_dtype(d: Any) -> None:
    """Sets the dtype of floats that are made without naming one: by the functions of this package, and parameters of its layers.

    Errors: DTypeError for a dtype that is none of floats.
    """
    found = named(d)
    if not found.is_float:
        raise DTypeError(f"set_default_dtype({found}): only float16, bfloat16, float32 and float64 are possible")
    _settings.floats = found


def get_default_device() -> Device:
    """The device of tensors that are made without naming one."""
    return default_device()


class _Info:
    def __init__(self, d: DType, of: Any, names: str):
        self.dtype, self.bits = d.name, d.size * 8
        for name in names.split():
            setattr(self, name, of(getattr(self._found(d), name)))

    def _found(self, d: DType) -> Any:
        raise NotImplementedError


class finfo(_Info):
    """The limits of a dtype of floats: bits, eps, max, min, tiny, smallest_normal, resolution.

    >>> finfo(float32).eps == 2.0**-23
    True
    """

    eps: Any
    max: Any
    min: Any
    tiny: Any
    smallest_normal: Any
    resolution: Any

    def __init__(self, type: Any = None):
        d = get_default_dtype() if type is None else named(type)
        if not d.is_inexact:
            raise TypeError(f"finfo: {d} is no dtype of floats; help: iinfo({d})")
        super().__init__(d, lambda v: np.float64(v).item(), "eps max min tiny smallest_normal resolution")

    def _found(self, d: DType) -> Any:
        if d is not bfloat16:
            return np.finfo(d.numpy)
        import ml_dtypes

        return ml_dtypes.finfo(d.numpy)


class iinfo(_Info):
    """The limits of a dtype of integers: bits, max, min."""

    max: Any
    min: Any

    def __init__(self, type: Any):
        if not named(type).is_int:
            raise TypeError(f"iinfo: {named(type)} is no dtype of integers; help: finfo({named(type)})")
        super().__init__(named(type), lambda v: v, "max min")

    def _found(self, d: DType) -> Any:
        return np.iinfo(d.numpy)


def is_tensor(obj: Any) -> Any:
    """Whether it is a tensor."""
    return isinstance(obj, Tensor)


def is_floating_point(input: Tensor) -> Any:
    """Whether the dtype is one of floats."""
    return input.dtype.is_float


def is_complex(input: Tensor) -> Any:
    """Whether the dtype is complex."""
    return input.dtype.is_complex


def is_nonzero(input: Tensor) -> Any:
    """Whether the one element is not 0."""
    return input.item() != 0


def numel(input: Tensor) -> Any:
    """The number of elements."""
    return input.size


def typename(obj: Any) -> str:
    """The name of an object's type, as ``torch.FloatTensor``."""
    if not isinstance(obj, Tensor):
        kind = obj if isinstance(obj, type) else type(obj)
        return f"{kind.__module__}.{kind.__qualname__}"
    return obj.type()


def result_type(tensor1: Any, tensor2: Any) -> DType:
    """The dtype that an operation of both gives."""
    return (tensor1 + tensor2).dtype if not (isinstance(tensor1, Tensor) and isinstance(tensor2, Tensor)) else _common(tensor1, tensor2)


def _common(a: Tensor, b: Tensor) -> DType:
    return promote_types(a.dtype, b.dtype)


def promote_types(type1: Any, type2: Any) -> DType:
    """The dtype that tensors of two dtypes give together."""
    return promote(named(type1), named(type2))


def can_cast(from_: Any, to: Any) -> Any:
    """Whether values may be cast without a change of kind: bool, integer, float, complex."""
    order = {"b": 0, "u": 1, "i": 1, "f": 2, "c": 3}
    a, b = named(from_), named(to)
    return order[a.kind] <= order[b.kind] and not (a.kind == "i" and b.kind == "u")


__all__ = [
    "DType", "Parameter", "Size", "bfloat16", "bool", "can_cast", "cdouble", "cfloat", "complex128", "complex64", "device", "double",
    "dtype", "finfo", "float", "float16", "float32", "float64", "get_default_device", "get_default_dtype", "half", "iinfo", "int", "int16",
    "int32", "int64", "int8", "is_complex", "is_floating_point", "is_nonzero", "is_tensor", "long", "numel", "promote_types",
    "result_type", "set_default_device", "set_default_dtype", "short", "typename", "uint16", "uint32", "uint64", "uint8",
]  # fmt: skip
