"""Reductions and products of matrices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tengen.base.errors import ShapeError
from tengen.functional.export import export
from tengen.ops.calls import all_with_line
from tengen.ops.contract import matmul as _matmul
from tengen.ops.define import REGISTRY
from tengen.ops.reduce import max_, min_, sum_
from tengen.tensor import Tensor

if TYPE_CHECKING:
    from tengen.functional.math_ops import *  # noqa: F403  (a generated stub of the ops that stand here)

_sum, _max, _min = sum_.call, max_.call, min_.call


def matmul(
    inp1: Tensor, inp2: Tensor, transpose_a: bool = False, transpose_b: bool = False, compute_mode: str = "default"
) -> Tensor:
    """Matrix product over the last two axes; leading axes broadcast. `compute_mode` is accepted for MegEngine's sake:
    accumulation is
    always in float32 or better.

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
        return op["sqrt"](_sum(inp * inp, axis, keepdims))
    if ord == float("inf"):
        return _max(size, axis, keepdims)
    if ord == float("-inf"):
        return _min(size, axis, keepdims)
    if ord == 0:
        return _sum(op["astype"](op["not_equal"](inp, 0), inp.dtype), axis, keepdims)
    if ord == 1:
        return _sum(size, axis, keepdims)
    return op["pow"](_sum(op["pow"](size, float(ord)), axis, keepdims), 1.0 / ord)


def normalize(inp: Tensor, ord: float | None = None, axis: int | Sequence[int] | None = None, eps: float = 1e-12) -> Tensor:
    """inp divided by its norm along `axis`, which is taken to be at least eps."""
    return inp / REGISTRY["maximum"](norm(inp, ord, axis, True), eps)


__all__ = ["dot", "matmul", "norm", "normalize", *export(globals(), "math")]
all_with_line(globals(), __all__)
