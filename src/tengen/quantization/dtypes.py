"""What integers a quantised tensor holds, under MegEngine's names: `QuantDtypeMeta`, NumPy dtypes that carry a scale, and the
conversions of arrays to and from them.

A quantised dtype is a NumPy dtype with metadata, as MegEngine's is; `scale_of` and `zero_of` read it.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from tengen.base.dtype import DType, dtype
from tengen.base.errors import TengenError
from tengen.base.record import NamedTuple

LEAST_SCALE, MOST_SCALE = 2.0**-100, 2.0**100  # between them, codes of 8 bits come back from what they stand for


class QuantizationError(TengenError, ValueError):
    """Something that cannot be quantised as asked: a scale, a zero point, missing calibration."""


class _Meta(NamedTuple):
    name: str
    cname: str | None
    np_dtype_str: str
    qmin: int
    qmax: int
    is_unsigned: bool


class QuantDtypeMeta(_Meta):
    """What integers a quantised tensor holds.

    Args:
        name: its name. cname: MegEngine's name of the dtype, None where it has none. np_dtype_str: the dtype in which they are
        stored. qmin, qmax: the smallest and the largest. is_unsigned: whether there is a zero point; default: whether the dtype
        is unsigned.

    Errors: TypeError where `np_dtype_str` is no text

    >>> from tengen.quantization import QuantDtypeMeta
    >>> QuantDtypeMeta("three", None, "int8", -1, 1).is_unsigned
    False
    """

    __slots__ = ()

    def __new__(cls, name: str, cname: str | None, np_dtype_str: str, qmin: int, qmax: int, is_unsigned: bool | None = None):
        if not isinstance(np_dtype_str, str):
            raise TypeError(f"np_dtype_str={np_dtype_str!r} must be the name of a dtype")
        return super().__new__(
            cls, name, cname, np_dtype_str, qmin, qmax, np_dtype_str[0] == "u" if is_unsigned is None else is_unsigned
        )

    def __copy__(self) -> QuantDtypeMeta:
        return self

    def __deepcopy__(self, memo: Any) -> QuantDtypeMeta:
        return self


# fmt: off
BUILTIN = {m.name: m for m in (
    QuantDtypeMeta("quint8", "Quantized8Asymm", "uint8", 0, 255),
    QuantDtypeMeta("qint8", "QuantizedS8", "int8", -128, 127),
    QuantDtypeMeta("qint8_narrow", "QuantizedS8", "int8", -127, 127),
    QuantDtypeMeta("quint4", "Quantized4Asymm", "uint8", 0, 15),
    QuantDtypeMeta("qint4", "QuantizedS4", "int8", -8, 7),
    QuantDtypeMeta("qint1", "QuantizedS1", "int8", 0, 1),
    QuantDtypeMeta("qint32", "QuantizedS32", "int32", -(2**31), 2**31 - 1),
    QuantDtypeMeta("quint2", None, "uint8", 0, 3),
    QuantDtypeMeta("qint2", None, "int8", -2, 1),
)}
# fmt: on


def meta_of(d: str | QuantDtypeMeta) -> QuantDtypeMeta:
    """The meta of this name, or itself.

    Errors: ValueError for an unknown name
    """
    if isinstance(d, QuantDtypeMeta):
        return d
    if d not in BUILTIN:
        raise ValueError(f"unknown dtype: {d}, only support {', '.join(BUILTIN)}")
    return BUILTIN[d]


def check_scale(scale: Any, what: str = "a scale") -> None:
    """QuantizationError unless every scale is finite, greater than 0, and neither so small nor so large that products leave
    float32."""
    s = np.asarray(scale, np.float64)
    bad = s[~((s >= LEAST_SCALE) & (s <= MOST_SCALE))]
    if bad.size:
        raise QuantizationError(
            f"{what} is {bad.reshape(-1)[0]:g}; help: scales are finite numbers from 2^-100 to 2^100 (tensors that hold NaN, inf or "
            "nothing but zeros have none)"
        )


def check_zero(zero: Any, meta: QuantDtypeMeta) -> None:
    """QuantizationError unless every zero point is an integer that the dtype holds."""
    z = np.asarray(zero, np.float64)
    bad = z[~((z >= meta.qmin) & (z <= meta.qmax) & (z == np.rint(z)))]
    if bad.size:
        wanted = f"an integer within [{meta.qmin}, {meta.qmax}] for {meta.name}"
        raise QuantizationError(f"zero_point should be {wanted}, got {bad.reshape(-1)[0]:g}")


def create_quantized_dtype(dtype_meta: QuantDtypeMeta, scale: float, zp: int | None) -> np.dtype:
    """A NumPy dtype that carries a scale and, if it is unsigned, a zero point.

    Errors: ValueError where the meta has no `cname`, for a zero point of a signed dtype and a missing one of an unsigned,
    and for scales and zero points out of range

    >>> from tengen.core.tensor.dtype import create_quantized_dtype, get_scale, qint8
    >>> get_scale(qint8(0.5))
    0.5
    """
    if dtype_meta.cname is None:
        raise ValueError(f"dtype {dtype_meta.name} without cname attr is not supported.")
    check_scale(scale)
    known: dict[str, Any] = {"name": dtype_meta.cname, "scale": float(scale)}
    if dtype_meta.is_unsigned:
        if zp is None:
            raise ValueError("zero_point should be an integer")
        check_zero(zp, dtype_meta)
        known["zero_point"] = int(zp)
    elif zp is not None:
        raise ValueError(
            f"'{dtype_meta.name}' only supports symmetric quantization, zero_point should be None, but actually got '{zp}'"
        )
    return np.dtype(dtype_meta.np_dtype_str, metadata={"mgb_dtype": known})


def is_quantize(d: Any) -> bool:
    """Whether a NumPy dtype carries a scale."""
    return isinstance(d, np.dtype) and "mgb_dtype" in (d.metadata or {})


def get_scale(d: np.dtype) -> float:
    """The scale of a quantised dtype."""
    return _known(d)["scale"]


def get_zero_point(d: np.dtype) -> int:
    """The zero point of a quantised dtype; 0 where it has none."""
    return _known(d).get("zero_point", 0)


def meta_of_dtype(d: np.dtype) -> QuantDtypeMeta:
    """The meta that a quantised dtype was made of (of those of one name, the widest)."""
    return next(m for m in BUILTIN.values() if m.cname == _known(d)["name"])


def _known(d: Any) -> dict[str, Any]:
    if not is_quantize(d):
        raise ValueError(f"{d!r} is no quantised dtype; help: core.tensor.dtype.qint8(scale) makes one; a tensor's scale is x.qparams.scale")
    return d.metadata["mgb_dtype"]


def get_dtype_bit(dtype_name: str) -> int:
    """The bits that a dtype's name says.

    Errors: ValueError for a name without a number, or with several

    >>> from tengen.core.tensor.dtype import get_dtype_bit
    >>> get_dtype_bit("qint4"), get_dtype_bit("bool")
    (4, 1)
    """
    numbers = re.findall(r"\d+", dtype_name)
    if dtype_name != "bool" and len(numbers) != 1:
        raise ValueError(f"Unsupport dtype name with more than one number, or none: {dtype_name!r}")
    return 1 if dtype_name == "bool" else int(numbers[0])


def is_lowbit(d: Any) -> bool:
    """Whether a dtype is one of MegEngine's of 1, 2 and 4 bits without a scale, which Tengen does not have: False."""
    return False


def is_bfloat16(d: Any) -> bool:
    """Whether a dtype is bfloat16."""
    return _plain(d) is dtype("bfloat16")


def is_differentible_dtype(d: Any) -> bool:
    """Whether tensors of a dtype have gradients."""
    found = _plain(d)
    return found is not None and found.is_float


def _plain(d: Any) -> DType | None:
    return None if is_quantize(d) or isinstance(d, QuantDtypeMeta) else dtype(d)


def quint8(scale: float, zero_point: int) -> np.dtype:
    """A dtype of unsigned integers of 8 bits: scale (q - zero_point)."""
    return create_quantized_dtype(BUILTIN["quint8"], scale, zero_point)


def qint8(scale: float) -> np.dtype:
    """A dtype of integers of 8 bits: scale q."""
    return create_quantized_dtype(BUILTIN["qint8"], scale, None)


def qint32(scale: float) -> np.dtype:
    """A dtype of integers of 32 bits: scale q."""
    return create_quantized_dtype(BUILTIN["qint32"], scale, None)


def quint4(scale: float, zero_point: int) -> np.dtype:
    """A dtype of unsigned integers of 4 bits, stored in 8: scale (q - zero_point)."""
    return create_quantized_dtype(BUILTIN["quint4"], scale, zero_point)


def qint4(scale: float) -> np.dtype:
    """A dtype of integers of 4 bits, stored in 8: scale q."""
    return create_quantized_dtype(BUILTIN["qint4"], scale, None)


def qint1(scale: float) -> np.dtype:
    """A dtype of integers of 1 bit, stored in 8: scale q."""
    return create_quantized_dtype(BUILTIN["qint1"], scale, None)


def _checked(arr: np.ndarray, d: Any, name: str) -> None:
    if not isinstance(arr, np.ndarray):
        raise ValueError("arr parameter should be instance of np.ndarray")
    if not is_quantize(d) or _known(d)["name"] != BUILTIN[name].cname:
        raise ValueError(f"dtype parameter should be a {name} dtype, got {d!r}")


def _to(name: str):
    def convert(arr: np.ndarray, q: np.dtype) -> np.ndarray:
        _checked(arr, q, name)
        m = BUILTIN[name]
        return (np.round(arr / get_scale(q)) + get_zero_point(q)).clip(m.qmin, m.qmax).astype(q)

    convert.__name__ = convert.__qualname__ = f"convert_to_{name}"
    convert.__doc__ = f"An array of numbers as the integers of a `{name}` dtype: rounded, halves to even, and saturated. ValueError for others."
    return convert


def _from(name: str):
    def convert(arr: np.ndarray) -> np.ndarray:
        _checked(arr, getattr(arr, "dtype", None), name)
        return (arr.astype(np.float32) - get_zero_point(arr.dtype)) * np.float32(get_scale(arr.dtype))

    convert.__name__ = convert.__qualname__ = f"convert_from_{name}"
    convert.__doc__ = f"What the integers of an array of a `{name}` dtype stand for, in float32. ValueError for other dtypes."
    return convert


convert_to_quint8, convert_from_quint8 = _to("quint8"), _from("quint8")
convert_to_qint8, convert_from_qint8 = _to("qint8"), _from("qint8")
convert_to_qint32, convert_from_qint32 = _to("qint32"), _from("qint32")
convert_to_quint4, convert_from_quint4 = _to("quint4"), _from("quint4")
convert_to_qint4, convert_from_qint4 = _to("qint4"), _from("qint4")
convert_to_qint1, convert_from_qint1 = _to("qint1"), _from("qint1")
