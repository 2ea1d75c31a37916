"""Reductions and products of matrices."""

from __future__ import annotations

from collections.abc import Sequence

from tengen.base.errors import ShapeError
from tengen.ops.calls import all_with_line
from tengen.ops.contract import matmul as _matmul
from tengen.ops.define import REGISTRY
from tengen.ops.reduce import all_, any_, argmax, argmin, max_, mean, min_, prod, std, sum_, var
from tengen.tensor import Tensor

sum, mean, prod, max, min, var, std = sum_.call, mean.call, prod.call, max_.call, min_.call, var.call, std.call
argmax, argmin, all, any = argmax.call, argmin.call, all_.call, any_.call


def matmul(
    inp1: Tensor, inp2: Tensor, transpose_a: bool = False, transpose_b: bool = False, compute_mode: str = "default"
) -> Tensor:
    """Matrix product over the last two axes; leading axes broadcast. `compute_mode` is accepted for MegEngine's sake:
    accumulation is always in float32 or better.

    >>> from tengen import Tensor, functional as F
    >>> F.matmul(Tensor([[1.0, 2.0]]), Tensor([[3.0], [4.0]])).tolist()
    [[11.0]]
    """
    return _matmul(inp1, inp2, transpose_a, transpose_b)


def dot(inp1: Tensor, inp2: Tensor) -> Tensor:
    """The inner product of two 1-D tensors, a 0-d tensor.

    >>> from tengen import Tensor, functional as F
    >>> F.dot(Tensor([1.0, 2.0]), Tensor([3.0, 4.0])).item()
    11.0
    """
    if inp1.ndim != 1 or inp2.ndim != 1:
        raise ShapeError(f"dot({inp1.shape}, {inp2.shape}): both must have one axis; help: matmul takes more")
    return _matmul(inp1, inp2)


def norm(inp: Tensor, ord: float | None = None, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
    """The p-norm along `axis`: ord None or 2 Euclidean, 1, inf, -inf, 0 (count of non-zeros), or any p.

    >>> from tengen import Tensor, functional as F
    >>> F.norm(Tensor([3.0, 4.0])).item()
    5.0
    """
    op = REGISTRY
    size = op["abs"](inp)
    if ord is None or ord == 2:
        return op["sqrt"](sum(inp * inp, axis, keepdims))
    if ord == float("inf"):
        return max(size, axis, keepdims)
    if ord == float("-inf"):
        return min(size, axis, keepdims)
    if ord == 0:
        return sum(op["astype"](op["not_equal"](inp, 0), inp.dtype), axis, keepdims)
    if ord == 1:
        return sum(size, axis, keepdims)
    return op["pow"](sum(op["pow"](size, float(ord)), axis, keepdims), 1.0 / ord)


def normalize(inp: Tensor, ord: float | None = None, axis: int | Sequence[int] | None = None, eps: float = 1e-12) -> Tensor:
    """inp divided by its norm along `axis`, which is taken to be at least eps."""
    return inp / REGISTRY["maximum"](norm(inp, ord, axis, True), eps)


__all__ = [
    "all",
    "any",
    "argmax",
    "argmin",
    "dot",
    "matmul",
    "max",
    "mean",
    "min",
    "norm",
    "normalize",
    "prod",
    "std",
    "sum",
    "var",
]
all_with_line(globals(), __all__)
