"""What functions of linear algebra share: arguments as stacks of matrices."""

from __future__ import annotations

from typing import Any

from tengen.base.errors import DTypeError, ShapeError
from tengen.ops.define import dispatch
from tengen.tensor import Tensor

Matrix = Any  # a Tensor, or what makes one


def stack_of(x: Matrix) -> Tensor:
    """An argument as a Tensor."""
    return dispatch.tensor(x)


def matrices(name: str, x: Matrix, square: bool = False, floats: bool = True) -> Tensor:
    """An argument as matrices; an error that names the function unless it is such (`square`, `floats`)."""
    x = stack_of(x)
    if x.ndim < 2:
        raise ShapeError(f"{name}: takes matrices (..., rows, columns), got {x.dtype} of shape {tuple(x.shape)}")
    if square and x.shape[-1] != x.shape[-2]:
        raise ShapeError(f"{name}: takes square matrices (..., n, n), got {x.dtype} of shape {tuple(x.shape)}")
    if floats and not x.dtype.is_float:
        raise DTypeError(f"{name}: takes floats, got {x.dtype} of shape {tuple(x.shape)}; help: cast with .astype('float32')")
    return x
