"""Products of matrices. All go through the one contraction generator (`kernels/contraction/contract.py`)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, get_args

import numpy as np

from tengen import kernels
from tengen.base.dtype import DType, float32, promote
from tengen.base.errors import DTypeError, ShapeError
from tengen.ir.types import TensorType
from tengen.kernels import contraction
from tengen.kernels.lowering import Array, Lowering, product
from tengen.kernels.source import At, Elementwise, Leaf, moved
from tengen.loops.lang import cast
from tengen.ops.attributes import Precision
from tengen.ops.define import Case, broadcast_shapes, composite, primitive, same_axes, same_extent
from tengen.ops.elementwise import add
from tengen.ops.reduce import sum_to
from tengen.ops.shape import reshape

if TYPE_CHECKING:
    from tengen.tensor import Tensor


def in_dtype(lo: Lowering, a: Array, d: DType) -> Array:
    """The array, cast into a temporary where its dtype is another."""
    if a.dtype is d:
        return a
    t = lo.temp(d, a.shape)
    kernels.pointwise.pointwise(lo, [Elementwise(lambda v: cast(cast(v, a.dtype.compute), d), [Leaf(a)], a.shape, d)], [t], "cast")
    return t


PRECISIONS = get_args(Precision)


def chosen_precision(asked: str, *types: TensorType | None) -> str:
    """The precision of products of these operands, from what is asked for: only of those computed in float32 there is a choice."""
    found = types[0].dtype
    for t in types[1:]:
        found = promote(found, t.dtype)
    return asked if found.kind == "f" and found.compute is float32 else "highest"


@primitive(methods="matmul", operator="matmul", autocast="low", older={"precision": "highest"}, whole_batch=True)
def matmul(
    inp1: Tensor, inp2: Tensor, transpose_a: bool = False, transpose_b: bool = False, precision: Precision = "highest"
) -> Tensor:
    """Matrix product over the last two axes; leading axes broadcast. A 1-D operand is a row (first) or a column (second), whose
    axis disappears from the result, as in NumPy.

    Shapes:   (..., M, K), (..., K, N) -> (..., M, N); with transpose_a the first is (..., K, M), with transpose_b the second
    (..., N, K)
    Dtypes:   promoted; float16 and bfloat16 accumulate in float32; integers wrap
    Args:
        precision: "highest"; "bfloat16" rounds float operands to bfloat16 and sums two products at a time as the instructions of
            processors do that have them (`loops.dots.dot2`). Float64 and integers are computed as always.
    Numerics: accumulated by fma in the order of k inside chunks, see `kernels/contraction/contract.py`; the same bits for any batch
    and threads, and any target

    >>> from tengen import Tensor, functional as F
    >>> F.matmul(Tensor([[1.0, 2.0]]), Tensor([[3.0], [4.0]])).tolist()
    [[11.0]]
    """


def matrix_extents(t: TensorType, first: bool, transposed: bool) -> tuple[tuple, object, object]:
    """(leading extents, rows, columns) of an operand."""
    if t.ndim == 0:
        raise ShapeError("an operand is 0-d; help: use * for a product with a number")
    if t.ndim == 1:
        return ((), 1, t.shape[0]) if first else ((), t.shape[0], 1)
    r, c = t.shape[-2:]
    return (t.shape[:-2], c, r) if transposed else (t.shape[:-2], r, c)


@matmul.canon
def _(types, precision, **attrs):
    return attrs | {"precision": chosen_precision(precision, *types)}


@matmul.parts
def _(types, transpose_a, **attrs):
    x, y = types
    lead = max(x.ndim, y.ndim) - 2
    if min(x.ndim, y.ndim) < 2:
        return [[None] * x.ndim, [None] * y.ndim]
    shape = broadcast_shapes(x.shape[:-2], y.shape[:-2])
    rows = [None, lead] if transpose_a else [lead, None]
    return [[*same_axes(x.shape[:-2], shape), *rows], [*same_axes(y.shape[:-2], shape), None, None]]


@matmul.infer
def _(x, y, transpose_a, transpose_b, precision):
    (ba, m, k), (bb, k2, n) = matrix_extents(x, True, transpose_a), matrix_extents(y, False, transpose_b)
    if not same_extent(k, k2, "inner extents"):
        hint = "; help: transpose_b=True contracts the last axis of both" if y.ndim > 1 and y.shape[-1] == k else ""
        raise ShapeError(f"the inner extents {k} and {k2} differ{hint}")
    if x.dtype.kind == "b" or y.dtype.kind == "b":
        raise DTypeError("does not take bool; help: cast it with .astype('int32') or .astype('float32')")
    tail = [m] * (x.ndim > 1) + [n] * (y.ndim > 1)
    return TensorType([*broadcast_shapes(ba, bb), *tail], promote(x.dtype, y.dtype))


@matmul.epilogue
def _(lo, ins, outs, epilogue, transpose_a, transpose_b, precision):
    out = outs[0]
    x, y = (in_dtype(lo, a, promote(ins[0].dtype, ins[1].dtype)) for a in ins)
    x_axes, y_axes = x.ndim, y.ndim
    if x.ndim == 1:
        x, out = x.unsqueeze(0), out.unsqueeze(out.ndim - (y_axes > 1))
    elif transpose_a:
        x = x.permute([*range(x.ndim - 2), x.ndim - 1, x.ndim - 2])
    if y_axes == 1:
        y, out = y.unsqueeze(1), out.unsqueeze(out.ndim)
    elif transpose_b:
        y = y.permute([*range(y.ndim - 2), y.ndim - 1, y.ndim - 2])
    if epilogue is not None and (x_axes == 1 or y_axes == 1):
        drop = {out.ndim - 2} if x_axes == 1 else set()
        drop |= {out.ndim - 1} if y_axes == 1 else set()
        epilogue = moved(epilogue, partial(_dropping, [i for i in range(out.ndim) if i not in drop]))
    format = contraction.formats.dot_format(x.dtype, precision)
    lead, more = out.ndim - 2, {"epilogue": epilogue, "name": "matmul", "format": format}
    x = x.expand((*out.shape[:-2], *x.shape[-2:]))
    if y.ndim == 2:  # one matrix for all: the leading axes are rows
        return contraction.contract.contract(lo, x, y, out, g=0, m=lead + 1, k=1, n=1, **more)
    y = y.expand((*out.shape[:-2], *y.shape[-2:]))
    return contraction.contract.contract(lo, x, y, out, g=lead, m=1, k=1, n=1, **more)


def _dropping(keep: Sequence[int], at: At) -> At:
    """A place, without the axes that the result does not have."""
    if at.vec is not None and at.vec not in keep:
        raise ValueError("a vector along an axis that the result does not have")
    vec = None if at.vec is None else keep.index(at.vec)
    return At(tuple(at.coords[i] for i in keep), vec, at.count)


@matmul.vjp
def _(g, x, y, transpose_a, transpose_b, precision):
    if x.ndim == 1 or y.ndim == 1:
        rows = reshape(x, (1, x.shape[0])) if x.ndim == 1 else x
        columns = reshape(y, (y.shape[0], 1)) if y.ndim == 1 else y
        lead = g.shape[: len(g.shape) - (x.ndim > 1) - (y.ndim > 1)]
        m = g.shape[len(lead)] if x.ndim > 1 else 1
        n = g.shape[-1] if y.ndim > 1 else 1
        gx, gy = _product_gradients(
            reshape(g, (*lead, m, n)), rows, columns, transpose_a and x.ndim > 1, transpose_b and y.ndim > 1, precision
        )

        def vector(of, like):
            return lambda: reshape(_sum_lead(of(), 2), like.shape) if like.ndim == 1 else of()

        return vector(gx, x), vector(gy, y)
    return _product_gradients(g, x, y, transpose_a, transpose_b, precision)


def _sum_lead(g, ndim: int):
    return sum_to(g, g.shape[-ndim:])


def _product_gradients(g, x, y, ta: bool, tb: bool, precision: str):
    def gx():
        return matmul(y, g, tb, True, precision) if ta else matmul(g, y, False, not tb, precision)

    def gy():
        a, h = x, g
        if y.ndim == 2 and x.ndim > 2 and not ta:  # one long sum instead of a batch of products that are then added
            a, h = (reshape(t, (product(t.shape[:-1]), t.shape[-1])) for t in (x, g))
        return matmul(h, a, True, ta, precision) if tb else matmul(a, h, not ta, False, precision)

    return gx, gy


matmul.reference(
    lambda x, y, transpose_a=False, transpose_b=False, precision="highest": np.matmul(
        np.swapaxes(x, -1, -2) if transpose_a and x.ndim > 1 else x, np.swapaxes(y, -1, -2) if transpose_b and y.ndim > 1 else y
    )
)
matmul.cases(
    Case(lambda r: (r.uniform(-1, 1, (3, 5)), r.uniform(-1, 1, (5, 4)))),
    Case(lambda r: (r.uniform(-1, 1, (5, 3)), r.uniform(-1, 1, (4, 5))), {"transpose_a": True, "transpose_b": True}),
    Case(lambda r: (r.uniform(-1, 1, (2, 1, 3, 5)), r.uniform(-1, 1, (4, 5, 2)))),
    Case(lambda r: (r.uniform(-1, 1, (2, 3, 5)), r.uniform(-1, 1, (5, 17)))),
    Case(lambda r: (r.uniform(-1, 1, (5,)), r.uniform(-1, 1, (5, 2)))),
    Case(lambda r: (r.uniform(-1, 1, (3, 5)), r.uniform(-1, 1, (5,)))),
    Case(lambda r: (r.uniform(-1, 1, (5,)), r.uniform(-1, 1, (5,)))),
)


@composite(autocast="low")
def linear(inp: Tensor, weight: Tensor, bias: Tensor | None = None, precision: Precision = "highest") -> Tensor:
    """inp @ weight.T + bias.

    Shapes: (..., in), (out, in), (out,) or None -> (..., out)
    Args:
        precision: of the product, as of `matmul`.
    """
    y = matmul(inp, weight, False, True, precision)
    return y if bias is None else add(y, bias)


linear.reference(lambda x, w, b=None, precision="highest": x @ w.T + (0 if b is None else b))
linear.cases(Case(lambda r: (r.uniform(-1, 1, (3, 5)), r.uniform(-1, 1, (4, 5)), r.uniform(-1, 1, (4,)))))
matmul.cases(
    Case(lambda r: (r.uniform(-1, 1, (0, 5)), r.uniform(-1, 1, (5, 4)))),
    Case(lambda r: (r.uniform(-1, 1, (3, 0)), r.uniform(-1, 1, (0, 4)))),
    Case(lambda r: (r.uniform(-1, 1, (1, 1)), r.uniform(-1, 1, (1, 1)))),
    Case(lambda r: (r.uniform(-1, 1, (2, 5, 3)), r.uniform(-1, 1, (2, 5, 4))), {"transpose_a": True}),
    Case(lambda r: (r.uniform(-1, 1, (5,)), r.uniform(-1, 1, (3, 5, 2)))),
    Case(lambda r: (r.uniform(-1, 1, (2, 3, 5)), r.uniform(-1, 1, (5,)))),
    Case(lambda r: (r.uniform(-1, 1, (2, 3, 4, 5)), r.uniform(-1, 1, (7, 5))), {"transpose_b": True}),
    Case(lambda r: (r.integers(-9, 9, (3, 5)) * 1.0, r.integers(-9, 9, (5, 20)) * 1.0), {"precision": "bfloat16"}, grad=False),
)
linear.cases(
    Case(lambda r: (r.uniform(-1, 1, (2, 3, 5)), r.uniform(-1, 1, (4, 5)), None)),
    Case(lambda r: (r.uniform(-1, 1, (5,)), r.uniform(-1, 1, (4, 5)), r.uniform(-1, 1, (4,)))),
)
