"""What flows between the nodes of an ONNX graph.

- a `Tensor`: computed by kernels.
- a `numpy.ndarray`: known while the network is recorded. Shapes and what is computed of them are known, so that a reshape knows its
  shape; entries may be open extents (dtype object). Strings are known too: no kernel computes with them.
- `Coded`: numbers of fewer than 16 bits that are no integers of NumPy's, float8 and 4-bit ones, as codes in a uint8 Tensor.
- a list: a sequence. A dict: a map, of ai.onnx.ml. None: an input or an optional value that is not there.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tengen.base import extras
from tengen.base.record import record
from tengen.interop.networks.values import as_tensor, ints, known, not_a_tensor, recording, shape_array
from tengen.tensor import Tensor

__all__ = [
    "BITS", "SMALL", "Coded", "Value", "as_array", "as_tensor", "element_type", "ints", "is_coded", "is_text", "known", "not_a_tensor",
    "package", "recording", "shape_array", "value_of",
]  # fmt: skip
BITS = {"int4": 4, "uint4": 4, "float4_e2m1fn": 4, "int2": 2, "uint2": 2}  # of ml_dtypes' dtypes; the others have 8 or more
SMALL = 1 << 16  # elements of known arrays that are computed with while recording


@record(frozen=True)
class Coded:
    """Numbers of a type that kernels do not know. codes: uint8, one number in each. dtype: of ml_dtypes."""

    codes: Tensor
    dtype: np.dtype

    @property
    def shape(self) -> tuple:
        return self.codes.shape


Value = Tensor | np.ndarray | Coded | list | dict | None


def package() -> Any:
    """The package onnx. Errors: ArgumentError where it is not installed, or something else has its name."""
    return extras.package("onnx", "ModelProto", "ONNX files need")


def is_coded(dtype: np.dtype) -> bool:
    """Whether it is a float or integer of at most 8 bits from ml_dtypes."""
    return dtype.type.__module__ == "ml_dtypes" and dtype.name != "bfloat16"


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
    if not isinstance(v, (Tensor, np.ndarray)):
        raise TypeError(not_a_tensor(v))
    return v if isinstance(v, np.ndarray) else v.numpy()


def element_type(v: Value) -> int:
    """The number by which ONNX names the dtype of a value."""
    import onnx

    if is_text(v):
        return onnx.TensorProto.STRING
    if isinstance(v, np.ndarray) and v.dtype == object:
        return onnx.TensorProto.INT64
    if not isinstance(v, (Coded, Tensor, np.ndarray)):
        raise TypeError(not_a_tensor(v))
    return onnx.helper.np_dtype_to_tensor_dtype(v.dtype if isinstance(v, (Coded, np.ndarray)) else v.dtype.numpy)
