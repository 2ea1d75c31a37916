"""The border to NumPy: arrays become buffers with a layout, and buffers are seen as arrays.

In and out: plain data, `np.ndarray`, and what a tensor is made of; `tensor.py` puts tensors around it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tengen.base.device import Device, cpu
from tengen.base.dtype import DType, dtype
from tengen.base.errors import DTypeError, ShapeError
from tengen.compiler.plans import Layout
from tengen.runtime import native


def as_array(data: Any, d: Any = None) -> np.ndarray:
    """Numbers, nested sequences and arrays as an array; Python floats give float32 where no dtype is asked for, and complex numbers
    complex64."""
    if data is None:
        raise TypeError("Tensor() needs data; help: Tensor(0.0), or functional.zeros(shape)")
    weak = not isinstance(data, (np.ndarray, np.generic)) and not hasattr(data, "__array__")
    try:
        a = np.asarray(data)
    except ValueError as e:
        if "inhomogeneous" not in str(e):
            raise
        raise ShapeError("Tensor(): the nested sequences have different lengths; help: rows must be equally long; pad them") from None
    if a.dtype.kind in "OUS" and a.size:
        what = f"an object, as a {type(a.flat[0]).__name__}" if a.dtype.kind == "O" else "text"
        raise DTypeError(f"Tensor(): among the data is {what}; help: numbers, nested sequences of numbers, or arrays of numbers")
    if d is not None:
        return a.astype(dtype(d).numpy)
    if weak and a.dtype in (np.float64, np.complex128):
        return a.astype(np.float32 if a.dtype == np.float64 else np.complex64)
    return a


def dense(a: np.ndarray) -> tuple[np.ndarray, DType]:
    """The array's values in C order and this machine's byte order, and their dtype."""
    a = np.ascontiguousarray(a) if a.ndim else np.asarray(a)
    d = dtype(a.dtype)
    return a if a.dtype.isnative else a.astype(a.dtype.newbyteorder("=")), d


def new_buffer(a: np.ndarray, device: Device = cpu) -> Any:
    """A buffer on a device with a copy of a dense array's values."""
    if device is cpu and a.dtype.kind != "V":  # which says what NumPy's protocol of buffers does not know, as bfloat16
        return native.copied(a)
    data = (native if device is cpu else native.pool_of(device)).new_buffer(a.nbytes)
    if a.nbytes:
        native.write(data, a)
    return data


def buffer_over(a: np.ndarray) -> Any:
    """A buffer over a dense array's own memory, which it keeps alive; who writes it makes a copy first. Where elements do not
    lie at multiples of their size, it has memory of its own."""
    if a.dtype.kind != "V":
        return native.over(a)
    return native.wrap(a.ctypes.data, a) if a.nbytes and a.flags.aligned else new_buffer(a)


class _Writable:
    """What NumPy asks for a writable array over a buffer that nothing else holds."""

    __slots__ = ("__array_interface__", "owner")

    def __init__(self, data: Any, nbytes: int):
        self.owner = data
        self.__array_interface__ = {"version": 3, "shape": (nbytes,), "typestr": "|u1", "data": (native.address(data), False)}


def empty_row(n: int, d: Any) -> np.ndarray:
    """An array of n elements of a NumPy dtype, whose values are not set, in memory of the pool. The pool has the pages of the arrays that went
    before, of 2 MiB each; `np.empty` of a large array gets pages that the system fills with zeros, which takes longer than to copy it."""
    d = np.dtype(d)
    nbytes = n * d.itemsize
    return np.asarray(_Writable(native.new_buffer(nbytes), nbytes)).view(d) if nbytes else np.empty(n, d)


class BufferMemory:
    """What NumPy asks for an array over a buffer."""

    __slots__ = ("__array_interface__", "owner")

    def __init__(self, data: Any, layout: Layout):
        self.owner = data
        self.__array_interface__ = {**(layout.interface or _interface(layout)), "data": (native.address(data), True)}


def _interface(layout: Layout) -> dict[str, Any]:
    """What NumPy asks for arrays of a layout, but for the address."""
    raw = np.dtype(np.uint16) if layout.dtype.name == "bfloat16" else layout.dtype.numpy
    strides = None if layout.contiguous else tuple(s * layout.dtype.size for s in layout.strides)
    layout.interface = {"version": 3, "shape": layout.shape, "typestr": raw.str, "strides": strides}
    return layout.interface


def array_over(data: Any, layout: Layout) -> np.ndarray:
    """A read-only array over a buffer, which it keeps alive."""
    if layout.size == 0:
        return np.empty(layout.shape, layout.dtype.numpy)
    a = np.asarray(BufferMemory(data, layout))
    return a.view(layout.dtype.numpy) if layout.dtype.name == "bfloat16" else a


def stays(a: np.ndarray) -> bool:
    """Whether nobody can change the array's values: it is a read-only view of a tensor's own memory, which is written in place only while
    nothing else holds it."""
    at: Any = a
    while isinstance(at, np.ndarray) and not at.flags.writeable:
        at = at.base
    return isinstance(at, BufferMemory) and not native.borrowed(at.owner)


def scalar_array(value: bool | int | float | complex, d: DType) -> np.ndarray:
    """A number as a 0-d array; OverflowError for an integer that the dtype cannot hold."""
    if d.kind in "iu" and not isinstance(value, bool):
        low, high = (0, (1 << d.bits) - 1) if d.kind == "u" else (-(1 << (d.bits - 1)), (1 << (d.bits - 1)) - 1)
        if not low <= value <= high:
            raise OverflowError(f"Python integer {value} is out of bounds for {d}")
    return np.asarray(value, d.numpy)
