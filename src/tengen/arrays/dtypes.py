"""Data types of the array API namespace: what they are, what casts and promotions there are."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tengen.arrays.rules import DTYPES, array, common, scalar
from tengen.base.device import HERE, Device, default_device
from tengen.base.dtype import DType, complex64, float32, int64, promote_scalar
from tengen.base.errors import DTypeError
from tengen.base.record import record
from tengen.ops.define import REGISTRY
from tengen.tensor import Tensor

KINDS = {
    "bool": "b", "signed integer": "i", "unsigned integer": "u", "integral": "iu", "real floating": "f", "complex floating": "c",
    "numeric": "iufc",
}  # fmt: skip
DEFAULTS = {"real floating": float32, "complex floating": complex64, "integral": int64, "indexing": int64}


def _dtype(name: str, d: Any) -> DType:
    if not isinstance(d, DType):
        raise DTypeError(f"{name}: {d!r} is not a dtype of this namespace; help: array_api.float32 and so on")
    return d


def _of(name: str, x: Any) -> DType:
    return x.dtype if isinstance(x, Tensor) else _dtype(name, x)


def astype(x: Tensor, dtype: DType, /, *, copy: bool = True, device: Any = None) -> Tensor:
    """x in another dtype: floats become integers by truncation, anything becomes bool by x != 0.

    Args: copy: False gives x itself where it has the dtype. Errors: DTypeError for complex numbers as real ones.

    >>> import tengen.array_api as xp
    >>> xp.astype(xp.asarray([1.5, 0.0]), xp.bool).tolist()
    [True, False]
    """
    array("astype", x)
    _dtype("astype", dtype)
    if x.dtype.kind == "c" and dtype.kind != "c":
        raise DTypeError(f"astype: the standard casts no {x.dtype} to {dtype}; help: array_api.real")
    if device is not None:
        x.to(device)
    if x.dtype is dtype:
        return REGISTRY["copy"](x) if copy else x
    return REGISTRY["astype"](x, dtype)


def can_cast(from_: DType | Tensor, to: DType, /) -> bool:
    """Whether the first dtype promotes to the second, by the standard's tables."""
    a, b = _of("can_cast", from_), _dtype("can_cast", to)
    try:
        return common("can_cast", a, b) is b
    except DTypeError:
        return False


@record(frozen=True)
class FloatInfo:
    """What `finfo` gives: limits of a float dtype as Python floats (of a complex one, those of its parts)."""

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: DType


@record(frozen=True)
class IntegerInfo:
    """What `iinfo` gives: limits of an integer dtype."""

    bits: int
    max: int
    min: int
    dtype: DType


def finfo(type: DType | Tensor, /) -> FloatInfo:
    """The limits of a float dtype, or of the parts of a complex one."""
    d = _of("finfo", type)
    if d.kind not in "fc":
        raise DTypeError(f"finfo: {d} is no float dtype; help: iinfo")
    own = d.part
    found = np.finfo(own.numpy)
    largest, eps = float(found.max), float(found.eps)
    return FloatInfo(own.bits, eps, largest, -largest, float(found.smallest_normal), own)


def iinfo(type: DType | Tensor, /) -> IntegerInfo:
    """The limits of an integer dtype."""
    d = _of("iinfo", type)
    if not d.is_int:
        raise DTypeError(f"iinfo: {d} is no integer dtype; help: finfo")
    signed = d.kind == "i"
    return IntegerInfo(d.bits, (1 << (d.bits - signed)) - 1, -(1 << (d.bits - 1)) if signed else 0, d)


def isdtype(dtype: DType, kind: DType | str | tuple[DType | str, ...]) -> bool:
    """Whether a dtype is another one, or of a kind: "bool", "signed integer", "unsigned integer", "integral", "real floating",
    "complex floating", "numeric"; or any of a tuple of those.

    >>> import tengen.array_api as xp
    >>> xp.isdtype(xp.int8, "integral"), xp.isdtype(xp.int8, ("bool", xp.int16))
    (True, False)
    """
    _dtype("isdtype", dtype)
    if isinstance(kind, tuple):
        if any(isinstance(k, tuple) for k in kind):
            raise DTypeError(f"isdtype: {kind!r} holds a tuple in a tuple")
        return any([isdtype(dtype, k) for k in kind])
    if isinstance(kind, str):
        if kind not in KINDS:
            raise ValueError(f"isdtype: {kind!r} is no kind; help: one of {', '.join(KINDS)}")
        return dtype.kind in KINDS[kind]
    return dtype is _dtype("isdtype", kind)


def result_type(*arrays_and_dtypes: Tensor | DType | complex) -> DType:
    """What arrays, dtypes and Python numbers promote to. Errors: DTypeError where the standard's tables have no entry.

    >>> import tengen.array_api as xp
    >>> xp.result_type(xp.int8, xp.uint8), xp.result_type(xp.float32, 1)
    (int16, float32)
    """
    numbers = [v for v in arrays_and_dtypes if type(v) in (bool, int, float, complex)]
    dtypes = [_of("result_type", v) for v in arrays_and_dtypes if type(v) not in (bool, int, float, complex)]
    if not dtypes:
        raise ValueError("result_type: needs an array or a dtype")
    found = common("result_type", *dtypes)
    for v in numbers:
        scalar("result_type", v, found)
        found = promote_scalar(found, v)
    return found


class Info:
    """What the namespace has: devices, dtypes, defaults, and what its arrays can."""

    def capabilities(self) -> dict[str, Any]:
        """Masks as indices and shapes that depend on values are there, outside of traces; at most 64 axes, as NumPy's views."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}

    def default_device(self) -> Device:
        """The device of arrays that are made without naming one."""
        return default_device()

    def devices(self) -> list[Device]:
        """The devices of this machine."""
        return list(HERE)

    def default_dtypes(self, *, device: Any = None) -> dict[str, DType]:
        """The dtypes of what is made without naming one: float32, complex64, int64."""
        Device.named(device)
        return dict(DEFAULTS)

    def dtypes(self, *, device: Any = None, kind: str | tuple[str, ...] | None = None) -> dict[str, DType]:
        """The dtypes of a kind (see `isdtype`), or of several, by name. float16 and bfloat16 are not the standard's."""
        Device.named(device)
        kinds = kind if isinstance(kind, tuple) else (*KINDS,) if kind is None else (kind,)
        return {d.name: d for d in DTYPES if isdtype(d, kinds)}


def __array_namespace_info__() -> Info:
    """What the namespace has: an `Info`."""
    return Info()


e, pi, inf, nan, newaxis = math.e, math.pi, math.inf, math.nan, None

__all__ = [
    "__array_namespace_info__", "astype", "can_cast", "e", "finfo", "iinfo", "inf", "isdtype", "nan", "newaxis", "pi", "result_type",
]  # fmt: skip
