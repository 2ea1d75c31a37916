"""Ops over the rows that a mask selects, whose number only a run knows: a trace computes all rows and tells the selected ones apart.

In: a mask of shape (N), and x of shape (N, ...). The bits are those of the same op on `x[mask]`: a row of an op that is computed row by row
does not depend on the others; a reduction takes the selected rows in their order, from the first place on, and behind them the neutral
element of its rule of sums (`docs/numerics.md`). How calls on `x[mask]` become these: `tensor/selection.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from tengen.base.dtype import bool_, float32, int64
from tengen.base.errors import ShapeError
from tengen.kernels.lowering import product
from tengen.loops.lang import cast, const, select
from tengen.ops.attributes import Reduction
from tengen.ops.define import Case, Violation, composite, dispatch, elementwise, lookup
from tengen.ops.elementwise import add, astype, div, mul, where
from tengen.ops.indexing import index, searchsorted
from tengen.ops.logic import equal, less_equal, logical_and
from tengen.ops.ordering import cumsum
from tengen.ops.reduce import count, max_, mean, min_, sum_
from tengen.ops.shape import broadcast_to, reshape

if TYPE_CHECKING:
    from tengen.tensor import Tensor

_ONCE = {"sum": sum_, "mean": mean, "max": max_, "min": min_}


@elementwise(kinds="fiub", own=1)
def selected(mask, x):
    """x where the mask is true, else 0: the elements of ``x[mask]`` in their own places. The gradient is that of ``x[mask]``, which is added
    to zeros, so that -0.0 becomes 0.0; what is computed elsewhere, a NaN too, does not reach it."""
    return select(cast(mask, bool_), x, const(0, x.dtype))


@selected.vjp
def _(g, mask, x):
    return None, (lambda: where(mask, add(g, dispatch.scalar(0, g.dtype)), 0))


selected.reference(lambda mask, x: np.where(mask, x, np.zeros((), x.dtype)))
selected.cases(
    Case(lambda r: (r.integers(0, 2, (4, 9)) > 0, r.uniform(-1, 1, (4, 9)))),
    Case(lambda r: (r.integers(0, 2, (5, 1)) > 0, r.uniform(-1, 1, (5, 3)))),
)


def beside(mask: Tensor, x: Tensor) -> Tensor:
    """A mask of rows as one that broadcasts with x."""
    return reshape(mask, (*mask._layout.type.shape, *(1,) * (x.ndim - 1)))


def lowest(x: Tensor, how: str) -> float | int | bool:
    """The number that leaves every maximum ("max") or minimum of x's dtype as it is."""
    sign = -1 if how == "max" else 1
    if x.dtype.is_float:
        return sign * float("inf")
    if x.dtype.kind == "b":
        return sign > 0
    ends = np.iinfo(x.dtype.numpy)
    return int(ends.min if sign < 0 else ends.max)


def _packed(mask: Tensor, x: Tensor, fill: float | int | bool) -> Tensor:
    """The selected rows in their order, from the first place on, and `fill` in the places behind them."""
    counts = cumsum(astype(mask, int64), 0)
    turn = cumsum(lookup("ones_like")(counts), 0)  # 1, 2, ...
    inside = less_equal(turn, sum_(mask))
    rows = index([where(inside, searchsorted(counts, turn), 0)], x, (0,), 0)
    return where(beside(inside, x), rows, dispatch.scalar(fill, x.dtype))


@composite
def reduce_selected(mask: Tensor, x: Tensor, how: Reduction, axes: Sequence[int], keepdims: bool = False) -> Tensor:
    """The sum, mean, largest or smallest element of ``x[mask]`` over `axes`, of which one is axis 0. mask: (N), x: (N, ...). In dtype, bits
    and gradient as the reduction of ``x[mask]``: an empty sum is 0, an empty mean NaN.

    Errors: ShapeError for the largest and the smallest of no rows
    """
    if how in ("max", "min"):
        return _ONCE[how](_packed(mask, x, lowest(x, how)), axes, keepdims)
    d = x.dtype
    wide = d.compute if d.is_float else float32
    y = x if d is wide or (how == "sum" and not d.is_float) else astype(x, wide)  # a sum of half precision is rounded once, at its end
    if how == "sum" and not d.is_float:
        return sum_(where(beside(mask, x), x, dispatch.scalar(0, d)), axes, keepdims)
    total, n = sum_(_packed(mask, y, -0.0), axes, keepdims), sum_(mask)
    total = where(equal(n, 0), dispatch.scalar(0, wide), total)  # -0.0 is what a sum begins with
    made = total if how == "sum" else div(total, astype(_counted(n, x, axes), wide))
    return astype(made, d) if d.is_float and d is not wide else made


def _counted(rows: Tensor, x: Tensor, axes: Sequence[int]) -> Tensor:
    """How many elements are reduced to one."""
    return mul(rows, count(product([x._layout.type.shape[i] for i in axes if i]), int64))


@reduce_selected.check
def _(inputs, how, axes, keepdims):
    mask, x = inputs
    if how in ("max", "min") and mask._layout.type.shape != (0,):
        yield Violation(equal(sum_(mask), 0), ShapeError, f"the {how} of a selection of no rows of {x._layout.type} is not defined")


@reduce_selected.vjp
def _(g, mask, x, *, out, how, axes, keepdims):
    def back(t):
        shape = x._layout.type.shape
        return broadcast_to(t if keepdims else reshape(t, tuple(1 if i in axes else d for i, d in enumerate(shape))), shape)

    def gradient():
        if how in ("sum", "mean"):
            each = g if how == "sum" else div(g, astype(_counted(sum_(mask), x, axes), g.dtype))
            return where(beside(mask, x), back(each), dispatch.scalar(0, g.dtype))
        hit = astype(logical_and(equal(x, back(out)), beside(mask, x)), g.dtype)
        return div(mul(hit, back(g)), sum_(hit, axes, True))

    return None, gradient


def _reference(mask, x, how, axes, keepdims=False):
    rows = x[mask]
    with np.errstate(all="ignore"):
        made = getattr(np, how)(rows, axis=tuple(axes), keepdims=keepdims)
    return made.astype(x.dtype) if how != "sum" and np.issubdtype(x.dtype, np.floating) else made


reduce_selected.reference(_reference)
reduce_selected.cases(
    Case(lambda r: (np.arange(37) % 3 > 0, r.uniform(-1, 1, 37)), {"how": "sum", "axes": (0,)}),
    Case(lambda r: (np.arange(9) % 2 > 0, r.uniform(-1, 1, (9, 5))), {"how": "mean", "axes": (0,)}),
    Case(lambda r: (np.arange(9) % 2 > 0, r.permutation(45).reshape(9, 5) / 45.0), {"how": "max", "axes": (0, 1), "keepdims": True}),
    Case(lambda r: (np.arange(9) % 2 > 0, r.permutation(45).reshape(9, 5) / 45.0), {"how": "min", "axes": (0,)}),
)
