"""How LLVM IR spells dtypes, vectors of them and numbers.

In: dtypes and numbers. Out: text. float16 and bfloat16 are held as their bits, i16. Read next: `values.py`.
"""

from __future__ import annotations

import ctypes
import functools
import math
import struct
from collections.abc import Iterable

import numpy as np

from tengen.base.dtype import DType, bfloat16, bool_, float16, float32, float64
from tengen.loops.lang import LANES


def is_storage(dt: DType) -> bool:
    """Whether `dt` is a 16-bit float, which registers hold as its bits."""
    return dt is float16 or dt is bfloat16


def vector(scalar: str, lanes: int) -> str:
    """The LLVM type of `lanes` values of the type `scalar`."""
    return scalar if lanes == 1 else f"<{lanes} x {scalar}>"


def scalar_type(dt: DType) -> str:
    """The LLVM type of one value of `dt` in a register."""
    if dt.kind == "f":
        return "double" if dt is float64 else "float" if dt is float32 else "i16"
    return f"i{dt.bits}"


@functools.cache
def type_of(dt: DType, lanes: int = 1) -> str:
    """The LLVM type of `lanes` values of `dt` in a register."""
    return vector(scalar_type(dt), lanes)


@functools.cache
def mangled(dt: DType, lanes: int = 1) -> str:
    """How an intrinsic's name spells the type."""
    return ("" if lanes == 1 else f"v{lanes}") + ("f" if dt.kind == "f" else "i") + str(dt.bits)


def taken(lanes: Iterable[int]) -> str:
    """The mask of a shuffle that takes these lanes."""
    some = [f"i32 {i}" for i in lanes]
    return f"<{len(some)} x i32> <{', '.join(some)}>"


def _to_odd(value: float) -> float:
    """`value` as a float32, truncated inexact values made odd, so that rounding once more is rounding once."""
    near = ctypes.c_float(value).value
    if near == value or near != near:
        return near
    bits = struct.unpack("<I", struct.pack("<f", near))[0]
    if not bits & 1:
        bits += -1 if abs(near) > abs(value) else 1
    return struct.unpack("<f", struct.pack("<I", bits))[0]


def _storage_bits(dt: DType, value: float) -> int:
    """The bits of a 16-bit float, rounded once to nearest even."""
    if dt is float16:
        with np.errstate(all="ignore"):
            return int(np.float16(value).view(np.int16))
    if value != value:
        return 0x7FC0
    bits = struct.unpack("<I", struct.pack("<f", _to_odd(value)))[0]
    return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16


def literal(dt: DType, value, lanes: int = 1) -> str:
    """A constant operand; floats are rounded to `dt`."""
    if dt is bool_:
        text = "true" if value else "false"
    elif is_storage(dt):
        bits = _storage_bits(dt, float(value))
        text = str(bits - 0x10000 if bits & 0x8000 and bits > 0 else bits)
    elif dt.kind == "f":
        v = ctypes.c_float(value).value if dt is float32 else float(value)
        bits = 0x7FF8 << 48 if math.isnan(v) else struct.unpack("<Q", struct.pack("<d", v))[0]
        text = f"0x{bits:016X}"
    else:
        n = int(value) & ((1 << dt.bits) - 1)
        text = str(n - (1 << dt.bits) if n >> (dt.bits - 1) else n)
    return text if lanes == 1 else f"splat ({scalar_type(dt)} {text})"


def memory_type(dt: DType) -> str:
    """The LLVM type of an element in memory, where a bool is a byte."""
    return "i8" if dt is bool_ else scalar_type(dt)


def vector_memory(dt: DType, lanes: int) -> str:
    """The LLVM type of so many elements beside each other in memory."""
    ty = memory_type(dt)
    return ty if lanes == 1 else f"<{lanes} x {ty}>"


def mangled_memory(dt: DType) -> str:
    """How the names of intrinsics say a vector of memory."""
    ty = memory_type(dt)
    return f"v{LANES}" + {"float": "f32", "double": "f64"}.get(ty, ty)


def int32s(n: int, lanes: int) -> str:
    """An int32 in all lanes."""
    return str(n) if lanes == 1 else f"splat (i32 {n})"
