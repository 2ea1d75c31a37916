"""What flows between the nodes of an ONNX graph.

- a `Tensor`: computed by kernels.
- a `numpy.ndarray`: known while the network is recorded. Shapes and what is computed of them are known, so that a reshape knows its
  shape; entries may be open extents (dtype object). Strings are known too: no kernel computes with them.
- `Coded`: numbers of fewer than 16 bits that are no integers of NumPy's, float8 and 4-bit ones, as codes in a uint8 Tensor.
- a list: a sequence. A dict: a map, of ai.onnx.ml. None: an input or an optional value that is not there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tengen.base.errors import ArgumentError, TraceError
from tengen.tensor import Tensor, tracing

BITS = {"int4": 4, "uint4": 4, "float4_e2m1fn": 4, "int2": 2, "uint2": 2}  # of ml_dtypes' dtypes; the others have 8 or more
SMALL = 1 << 16  # elements of known arrays that are computed with while recording


@dataclass(frozen=True)
class Coded:
    """Numbers of a type that kernels do not know. codes: uint8, one number in each. dtype: of ml_dtypes."""

    codes: Tensor
    dtype: np.dtype

    @property
    def shape(self) -> tuple:
        return self.codes.shape


Value = Tensor | np.ndarray | Coded | list | dict | None


def package() -> Any:
    """The package onnx. Errors: ArgumentError where it is not installed."""
    try:
        import onnx
    except ImportError as e:
        raise ArgumentError(f"ONNX files need the package onnx ({e}); help: pip install 'tengen[onnx]'") from None
    return onnx


def is_coded(dtype: np.dtype) -> bool:
    """Whether it is a float or integer of at most 8 bits from ml_dtypes."""
    return dtype.type.__module__ == "ml_dtypes" and dtype.name != "bfloat16"


def recording() -> bool:
    """Whether calls are recorded, so that no tensor has a value."""
    return tracing.active is not None and tracing.recorder is not None


def is_text(v: Any) -> bool:
    """Whether it is an array of strings."""
    return isinstance(v, np.ndarray) and (
        v.dtype.kind in "US" or (v.dtype == object and any(isinstance(x, str) for x in v.flat))
    )


def value_of(array: np.ndarray) -> Value:
    """What stands for an array that came from outside: from a file or from a caller."""
    if is_coded(array.dtype):
        return Coded(Tensor(array.view(np.uint8)), array.dtype)
    if array.dtype.kind in "USO":
        return array.astype(object)
    return Tensor(np.ascontiguousarray(array).reshape(array.shape))


def as_array(v: Value) -> np.ndarray:
    """The array that a value is, for a caller."""
    if isinstance(v, Coded):
        return v.codes.numpy().view(v.dtype)
    assert isinstance(v, (Tensor, np.ndarray))
    return v if isinstance(v, np.ndarray) else v.numpy()


def as_tensor(v: Value) -> Tensor:
    """The tensor of a value that a kernel reads."""
    if isinstance(v, Tensor):
        return v
    if isinstance(v, np.ndarray) and v.dtype != object:
        return Tensor(v)
    if isinstance(v, np.ndarray):
        try:
            return Tensor(np.array([int(x) for x in v.flat], np.int64).reshape(v.shape))
        except TypeError as e:  # an open extent; or text
            raise TraceError(f"{v.tolist()} is a shape that is open, or text, where a tensor is computed with: {e}") from None
    raise TypeError(f"a tensor is needed, this is {'absent' if v is None else type(v).__name__}")


def known(v: Value) -> np.ndarray:
    """The array of a value that has to be known when the network is recorded: a shape, an axis, a number of groups.

    Errors: TraceError for one that is computed from the network's inputs.
    """
    if isinstance(v, np.ndarray):
        return v
    if isinstance(v, Tensor):
        try:
            return v.numpy()
        except TraceError as e:
            raise TraceError("a value is computed from the inputs, and shapes depend on it; help: to_module runs the network") from e
    raise TypeError(f"a tensor is needed, this is {'absent' if v is None else type(v).__name__}")


def element_type(v: Value) -> int:
    """The number by which ONNX names the dtype of a value."""
    import onnx

    if is_text(v):
        return onnx.TensorProto.STRING
    if isinstance(v, np.ndarray) and v.dtype == object:
        return onnx.TensorProto.INT64
    assert v is not None and not isinstance(v, list)
    return onnx.helper.np_dtype_to_tensor_dtype(v.dtype if isinstance(v, (Coded, np.ndarray)) else v.dtype.numpy)


def ints(v: Value) -> list:
    """The entries of a known vector of integers, or of a scalar: Python ints, or open extents."""
    return [x if not isinstance(x, (int, np.integer, float, np.floating)) else int(x) for x in known(v).reshape(-1).tolist()]


def shape_array(shape: Any) -> np.ndarray:
    """A shape as the known vector that ONNX's Shape gives: int64, or objects where extents are open."""
    entries = list(shape)
    if all(isinstance(e, int) and type(e) is int for e in entries):
        return np.array(entries, np.int64)
    found = np.empty(len(entries), object)
    found[:] = entries
    return found
