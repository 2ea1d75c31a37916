"""Functions of the array API namespace that make arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from tengen.arrays.dtypes import DEFAULTS
from tengen.arrays.rules import array
from tengen.base.device import Device
from tengen.base.dtype import DType, bool_
from tengen.base.errors import DTypeError
from tengen.ops.define import REGISTRY
from tengen.tensor import Tensor
from tengen.tensor.dlpack import from_dlpack

Shape = int | tuple[int, ...]


def _float(dtype: DType | None) -> DType:
    return DEFAULTS["real floating"] if dtype is None else dtype


def _default(value: Any) -> DType:
    """The dtype of a Python number that names none, such as NumPy's float64, which is a float; that of an array without axes."""
    if isinstance(value, Tensor) and not value.ndim:
        return value.dtype
    kinds = {bool: bool_, int: DEFAULTS["integral"], float: DEFAULTS["real floating"], complex: DEFAULTS["complex floating"]}
    for kind, found in kinds.items():
        if isinstance(value, kind):
            return found
    said = value._layout.type if isinstance(value, Tensor) else f"a {type(value).__name__}"
    raise DTypeError(f"a fill value must be a Python number, or an array without axes, got {said}")


def asarray(obj: Any, /, *, dtype: DType | None = None, device: Any = None, copy: bool | None = None) -> Tensor:
    """An array of a number, nested sequences of numbers, a Tensor, or what shows its memory (DLPack, the buffer protocol, NumPy).

    Args: dtype: default: that of the object; of Python's floats float32, of ints int64. copy: True copies; None copies where that is
        needed (a Tensor of the dtype is given back as it is); False never does.
    Errors: ValueError with copy=False where a copy is needed.

    >>> import tengen.array_api as xp
    >>> xp.asarray([1, 2]).dtype, xp.asarray(2.0).dtype
    (int64, float32)
    """
    if device is not None:
        Device.named(device)
    if copy is False and not hasattr(obj, "__dlpack__") and not _has_buffer(obj):
        raise ValueError(f"asarray(copy=False): a {type(obj).__name__} has no memory that an array can show")
    found = obj
    if not isinstance(obj, Tensor):
        found = _shared(obj) if copy is not True else None
        if found is None and copy is False:
            raise ValueError(f"asarray(copy=False): the memory of this {type(obj).__name__} cannot be shared")
        if found is None:
            found = Tensor(np.asarray(obj) if _has_buffer(obj) else obj, dtype=dtype)
    if dtype is not None and found.dtype is not dtype:
        if copy is False:
            raise ValueError(f"asarray(copy=False): {found.dtype} as {dtype} needs a copy")
        return REGISTRY["astype"](found, dtype)
    return Tensor(found) if copy and found is obj else found


def _shared(obj: Any) -> Tensor | None:
    """A tensor over the memory of an object that shows it; None where it shows none, or in a form that no tensor has."""
    if isinstance(obj, np.generic) or not (hasattr(obj, "__dlpack__") or _has_buffer(obj)):
        return None
    try:
        return from_dlpack(obj if hasattr(obj, "__dlpack__") else np.asarray(obj))
    except (BufferError, TypeError):  # bytes in the other order, on another device, of another dtype: the copy says what cannot be
        return None


def _has_buffer(obj: Any) -> bool:
    if isinstance(obj, (bytes, str)):
        return False
    try:
        memoryview(obj)
    except TypeError:
        return False
    return True


def arange(
    start: float, /, stop: float | None = None, step: float = 1, *, dtype: DType | None = None, device: Any = None
) -> Tensor:
    """start, start + step, ... below stop; one number is `stop`. int64 for integers, else float32.

    >>> import tengen.array_api as xp
    >>> xp.arange(2, 8, 3).tolist()
    [2, 5]
    """
    if dtype is None:
        dtype = DEFAULTS["real floating" if any(isinstance(v, float) for v in (start, stop, step)) else "integral"]
    return REGISTRY["arange"](start, stop, step, dtype, device)


def empty(shape: Shape, *, dtype: DType | None = None, device: Any = None) -> Tensor:
    """An array of unspecified values: zeros, so that programs repeat."""
    return REGISTRY["zeros"](shape, _float(dtype), device)


def empty_like(x: Tensor, /, *, dtype: DType | None = None, device: Any = None) -> Tensor:
    """An array of x's shape and dtype, of unspecified values: zeros."""
    return REGISTRY["zeros_like"](array("empty_like", x), dtype, device)


def eye(n_rows: int, n_cols: int | None = None, /, *, k: int = 0, dtype: DType | None = None, device: Any = None) -> Tensor:
    """The matrix with ones on its k-th diagonal."""
    return REGISTRY["eye"](n_rows, n_rows if n_cols is None else n_cols, k, _float(dtype), device)


def full(shape: Shape, fill_value: complex, *, dtype: DType | None = None, device: Any = None) -> Tensor:
    """An array of one number, of its default dtype where none is given. SciPy passes arrays without axes, too."""
    d = _default(fill_value) if dtype is None else dtype
    if isinstance(fill_value, Tensor):
        return full_like(empty(shape, dtype=d, device=device), fill_value)
    return REGISTRY["full"](shape, fill_value, d, device)


def full_like(x: Tensor, /, fill_value: complex, *, dtype: DType | None = None, device: Any = None) -> Tensor:
    """An array of x's shape and dtype that holds one number."""
    _default(fill_value)
    if isinstance(fill_value, Tensor):
        filled = REGISTRY["broadcast_to"](fill_value, array("full_like", x).shape)
        return REGISTRY["astype"](filled, x.dtype if dtype is None else dtype)
    return REGISTRY["full_like"](array("full_like", x), fill_value, dtype, device)


def linspace(
    start: complex, stop: complex, /, num: int, *, dtype: DType | None = None, device: Any = None, endpoint: bool = True
) -> Tensor:
    """`num` evenly spaced numbers from start to stop; with endpoint=False, the first `num` of `num + 1`.

    >>> import tengen.array_api as xp
    >>> xp.linspace(0, 1, 4, endpoint=False).tolist()
    [0.0, 0.25, 0.5, 0.75]
    """
    if not endpoint and num > 0:
        return linspace(start, stop, num + 1, dtype=dtype, device=device)[:num]
    is_complex = isinstance(start, complex) or isinstance(stop, complex)
    d = dtype or DEFAULTS["complex floating" if is_complex else "real floating"]
    if is_complex and not d.is_complex:
        raise DTypeError(f"linspace: {start} and {stop} have no steps of {d}; help: dtype=array_api.complex64")
    return REGISTRY["linspace"](start, stop, num, d, device)


def meshgrid(*arrays: Tensor, indexing: Literal["xy", "ij"] = "xy") -> list[Tensor]:
    """Coordinate grids of vectors: "xy" puts the second vector along the first axis, "ij" keeps the order."""
    for x in arrays:
        array("meshgrid", x)
    return REGISTRY["meshgrid"](*arrays, indexing=indexing)


def ones(shape: Shape, *, dtype: DType | None = None, device: Any = None) -> Tensor:
    """An array of ones."""
    return REGISTRY["ones"](shape, _float(dtype), device)


def ones_like(x: Tensor, /, *, dtype: DType | None = None, device: Any = None) -> Tensor:
    """An array of ones, of x's shape and dtype."""
    return REGISTRY["ones_like"](array("ones_like", x), dtype, device)


def tril(x: Tensor, /, *, k: int = 0) -> Tensor:
    """The lower triangle of the last two axes, up to the k-th diagonal."""
    return REGISTRY["tril"](array("tril", x), k)


def triu(x: Tensor, /, *, k: int = 0) -> Tensor:
    """The upper triangle of the last two axes, from the k-th diagonal on."""
    return REGISTRY["triu"](array("triu", x), k)


def zeros(shape: Shape, *, dtype: DType | None = None, device: Any = None) -> Tensor:
    """An array of zeros."""
    return REGISTRY["zeros"](shape, _float(dtype), device)


def zeros_like(x: Tensor, /, *, dtype: DType | None = None, device: Any = None) -> Tensor:
    """An array of zeros, of x's shape and dtype."""
    return REGISTRY["zeros_like"](array("zeros_like", x), dtype, device)


def broadcast_arrays(*arrays: Tensor) -> list[Tensor]:
    """The arrays in their common shape, as views."""
    shape = np.broadcast_shapes(*(array("broadcast_arrays", x).shape for x in arrays))
    return [REGISTRY["broadcast_to"](x, shape) for x in arrays]


def broadcast_to(x: Tensor, /, shape: Sequence[int]) -> Tensor:
    """x repeated along new and unit axes, as a view."""
    return REGISTRY["broadcast_to"](array("broadcast_to", x), tuple(shape))


__all__ = [
    "arange", "asarray", "broadcast_arrays", "broadcast_to", "empty", "empty_like", "eye", "from_dlpack", "full", "full_like", "linspace",
    "meshgrid", "ones", "ones_like", "tril", "triu", "zeros", "zeros_like",
]  # fmt: skip
