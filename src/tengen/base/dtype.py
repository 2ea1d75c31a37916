"""The dtypes of tensors and of kernel values, and the promotion between them.

A `DType` is an interned singleton: compare with `is`. `float16` and `bfloat16` are storage: kernels
load them, compute in float32, and round once when they store. Complex numbers are two floats next to each other: kernels see the
floats.
"""

from __future__ import annotations

import functools
import sys
from typing import Any

import numpy as np

_SWAPPED = ">" if sys.byteorder == "little" else "<"  # begins NumPy's codes of dtypes in the other byte order


class DType:
    """One element type. NumPy takes it wherever it takes a dtype: ``np.zeros(3, x.dtype)``.

    It equals whatever names it (see `dtype`): ``x.dtype == "float32"``, ``x.dtype == np.float32``. As with NumPy's dtypes, not all
    that is equal hashes alike: the hash is that of the name, so look up `name` in a table whose keys are of several kinds.

    Attributes:
        name: NumPy's name, such as ``"float32"``.
        short: the name in printed IR, such as ``"f32"``.
        kind: ``"f"`` float, ``"c"`` complex, ``"i"`` signed, ``"u"`` unsigned, ``"b"`` bool.
        bits: width of a value in a register.
        size: bytes of one element in memory.
    """

    __slots__ = ("name", "short", "kind", "bits", "size")

    def __init__(self, name: str, short: str, kind: str, bits: int):
        self.name, self.short, self.kind, self.bits = name, short, kind, bits
        self.size = max(bits // 8, 1)

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self):
        return (dtype, (self.name,))

    def __eq__(self, other) -> bool:
        if isinstance(other, DType) or not isinstance(other, (str, type, np.dtype)):
            return self is other  # the answer for arrays too, which would compare element by element
        if isinstance(other, np.dtype):
            return other == self.numpy
        try:
            return dtype(other) is self and not (isinstance(other, str) and other.startswith(_SWAPPED))
        except TypeError:
            return False

    def __hash__(self) -> int:
        return hash(self.name)

    @property
    def is_float(self) -> bool:
        return self.kind == "f"

    @property
    def is_complex(self) -> bool:
        return self.kind == "c"

    @property
    def is_floating_point(self) -> bool:
        """PyTorch's name for `is_float`."""
        return self.kind == "f"

    @property
    def is_signed(self) -> bool:
        """Whether there are values below 0."""
        return self.kind in "ifc"

    @property
    def itemsize(self) -> int:
        """Bytes of one element, as NumPy and PyTorch call `size`."""
        return self.size

    @property
    def type(self) -> Any:
        """The class of NumPy's scalars of this dtype, as NumPy calls it: ``x.dtype.type is np.float32``."""
        return self.numpy.type

    @property
    def is_inexact(self) -> bool:
        """Whether it is float or complex: what has gradients."""
        return self.kind in "fc"

    @property
    def is_int(self) -> bool:
        return self.kind in "iu"

    @property
    def numpy(self) -> np.dtype:
        """The NumPy dtype; bfloat16 comes from ml_dtypes."""
        if self is bfloat16:
            import ml_dtypes

            return np.dtype(ml_dtypes.bfloat16)
        return np.dtype(self.name)

    dtype = numpy  # the attribute by which NumPy takes other libraries' dtypes

    @property
    def compute(self) -> DType:
        """The dtype that arithmetic on this storage is done in."""
        return float32 if self is float16 or self is bfloat16 else self

    @property
    def part(self) -> DType:
        """The dtype of the real and of the imaginary part; of what is not complex, itself."""
        return float32 if self is complex64 else float64 if self is complex128 else self


complex128 = DType("complex128", "c128", "c", 128)
complex64 = DType("complex64", "c64", "c", 64)
float64 = DType("float64", "f64", "f", 64)
float32 = DType("float32", "f32", "f", 32)
float16 = DType("float16", "f16", "f", 16)
bfloat16 = DType("bfloat16", "bf16", "f", 16)
int64 = DType("int64", "i64", "i", 64)
int32 = DType("int32", "i32", "i", 32)
int16 = DType("int16", "i16", "i", 16)
int8 = DType("int8", "i8", "i", 8)
uint64 = DType("uint64", "u64", "u", 64)
uint32 = DType("uint32", "u32", "u", 32)
uint16 = DType("uint16", "u16", "u", 16)
uint8 = DType("uint8", "u8", "u", 8)
bool_ = DType("bool", "b1", "b", 1)

ALL = (float64, float32, float16, bfloat16, int64, int32, int16, int8, uint64, uint32, uint16, uint8, bool_)  # of values in kernels
COMPLEX = (complex128, complex64)  # of tensors alone
BY_SHORT = {d.short: d for d in ALL + COMPLEX}  # of printed IR
BY_NAME = {k: d for k, d in BY_SHORT.items() if k not in ("i8", "u8")} | {d.name: d for d in BY_SHORT.values()}  # NumPy's i8 has 8 bytes


_OF_NUMPY: dict[np.dtype, DType] = {}  # those that were asked for: bfloat16's brings a package


def is_quantised(x: Any) -> bool:
    """Whether x is a NumPy dtype that carries a scale, as MegEngine's `qint8(0.1)` does (`tengen.core.tensor.dtype`)."""
    return isinstance(x, np.dtype) and x.metadata is not None and "mgb_dtype" in x.metadata


def dtype(x) -> DType:
    """The `DType` that `x` names: a DType, a name or a code of NumPy's, a NumPy dtype, or Python's float, int, bool, complex.

    Errors:
        TypeError: it names none; None does not either.

    >>> dtype("f32"), dtype("i8"), dtype(np.int8), dtype(bool)
    (float32, int64, int8, bool)
    """
    if isinstance(x, DType):
        return x
    if isinstance(x, np.dtype):
        if x.metadata is not None and is_quantised(x):  # it equals the dtype of its integers
            what = f"a quantised dtype ({dict(x.metadata or {})['mgb_dtype']})"
            raise TypeError(
                f"{what} is taken by Tensor(data, dtype), x.astype and functional.quantized alone; help: {x.name!r} is that of the integers"
            )
        if (found := _OF_NUMPY.get(x)) is not None:  # its name takes NumPy microseconds
            return found
    if isinstance(x, str) and x in BY_NAME:
        return BY_NAME[x]
    if x is float:
        return float32
    if x is int:
        return int64
    if x is bool:
        return bool_
    if x is complex:
        return complex64
    try:
        if x is None:  # NumPy's default, which is not ours
            raise TypeError
        found = BY_NAME[np.dtype(x).name]
        if isinstance(x, np.dtype):
            _OF_NUMPY[x] = found
        return found
    except Exception as e:  # NumPy parses strings: it also raises ValueError, SyntaxError and warnings that are errors
        if isinstance(x, int):
            raise TypeError(f"{x!r} is not a dtype; help: extents are one argument, a tuple, as in zeros((2, 3))") from e
        raise TypeError(f"{x!r} is not a dtype of Tengen; help: one of {', '.join(d.name for d in ALL + COMPLEX)}") from e


@functools.cache
def promote(a: DType, b: DType) -> DType:
    """The dtype of what is computed from arrays of two dtypes: of a float and an integer or bool, the float's, as in MegEngine and
    PyTorch (NumPy gives float64 for int32 and float32); of two floats or two integers NumPy's; of bfloat16 and float16 float32. Beside
    complex numbers: complex128 if either is complex128 or float64, else complex64.

    >>> promote(int8, uint8), promote(int64, float32), promote(bfloat16, int8), promote(bfloat16, float16)
    (int16, float32, bfloat16, float32)
    >>> promote(complex64, float32), promote(complex64, float64), promote(int64, complex64)
    (complex64, complex128, complex64)
    """
    if a is b:
        return a
    if a.is_complex or b.is_complex:
        return complex128 if {a, b} & {complex128, float64} else complex64
    if a.is_float != b.is_float:
        return a if a.is_float else b
    if bfloat16 in (a, b):
        other = b if a is bfloat16 else a
        return float32 if other is float16 else other
    return dtype(np.promote_types(a.numpy, b.numpy))


def promote_scalar(d: DType, value: bool | int | float | complex) -> DType:
    """The dtype of an array of dtype `d` combined with a weak Python scalar (NEP 50).

    >>> promote_scalar(int8, 3), promote_scalar(int8, 1.5), promote_scalar(float16, 2), promote_scalar(float64, 1j)
    (int8, float32, float16, complex128)
    """
    if isinstance(value, bool) or d.is_complex:
        return d
    if isinstance(value, complex):
        return promote(d, complex64)
    if isinstance(value, int):
        return int64 if d is bool_ else d
    return d if d.is_float else float32
