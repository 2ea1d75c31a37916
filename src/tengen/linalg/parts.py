"""What functions of linear algebra share: arguments as stacks of matrices."""

from __future__ import annotations

from typing import Any

from tengen.base.dtype import promote
from tengen.base.errors import DTypeError, ShapeError
from tengen.ops.define import REGISTRY, dispatch
from tengen.tensor import Tensor

Matrix = Any  # a Tensor, or what makes one


def as_tensor(x: Matrix) -> Tensor:
    """An argument as a Tensor."""
    return dispatch.tensor(x)


def matrices(name: str, x: Matrix, square: bool = False, floats: bool = True) -> Tensor:
    """An argument as matrices; an error that names the function unless it is such (`square`; `floats`: or complex numbers)."""
    x = as_tensor(x)
    if x.ndim < 2:
        raise ShapeError(f"{name}: takes matrices (..., rows, columns), got {x.dtype} of shape {tuple(x.shape)}")
    if square and x.shape[-1] != x.shape[-2]:
        raise ShapeError(f"{name}: takes square matrices (..., n, n), got {x.dtype} of shape {tuple(x.shape)}")
    if floats and not (x.dtype.is_float or x.dtype.is_complex):
        what = f"{name}: takes floats or complex numbers, got {x.dtype} of shape {tuple(x.shape)}"
        raise DTypeError(what + "; help: cast with .astype('float32')")
    return x


def parts(x: Tensor) -> tuple[Tensor, Tensor]:
    """The real and the imaginary parts of complex numbers."""
    return REGISTRY["real_part"](x), REGISTRY["imag_part"](x)


def adjoint(x: Tensor) -> Tensor:
    """The transposed matrices, of complex numbers conjugated."""
    return REGISTRY["conj"](REGISTRY["swapaxes"](x, -1, -2))


def together(*xs: Tensor) -> list[Tensor]:
    """The tensors, all complex where one of them is."""
    if not any(x.dtype.is_complex for x in xs):
        return list(xs)
    d = xs[0].dtype
    for x in xs[1:]:
        d = promote(d, x.dtype)
    return [x if x.dtype is d else REGISTRY["astype"](x, d) for x in xs]
