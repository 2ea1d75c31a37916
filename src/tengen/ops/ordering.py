"""Running sums and products, sorting, and the k first: thin ops over `kernels/reduction/scan.py` and `kernels/indexing/sort.py`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from tengen import kernels
from tengen.base.dtype import int64, uint64
from tengen.base.errors import DTypeError, ShapeError
from tengen.ir.types import TensorType
from tengen.kernels.lowering import Array
from tengen.kernels.source import Elementwise, Leaf
from tengen.loops.lang import as_int, cast
from tengen.ops.attributes import Extent, Flag
from tengen.ops.define import Case, Op, dispatch, lookup, primitive, shorthand
from tengen.ops.elementwise import add, mul
from tengen.ops.indexing import scatter
from tengen.ops.joining import narrow
from tengen.ops.shape import line_axis, slice_grad
from tengen.ops.views import flip

if TYPE_CHECKING:
    from tengen.tensor import Tensor


@primitive(functional="tensor", methods="cumsum", autocast="high", along_axis=True)
def cumsum(inp: Tensor, axis: int, exclusive: bool = False, reverse: bool = False) -> Tensor:
    """Running sums along `axis`, in order; integers and bools give int64, float16 and bfloat16 add in float32.

    Args: exclusive: without the element itself (the first is 0). reverse: from the end.

    >>> from tengen import Tensor, functional as F
    >>> F.cumsum(Tensor([1, 2, 3]), 0).tolist()
    [1, 3, 6]
    """


@primitive(functional="tensor", autocast="high", along_axis=True)
def cumprod(inp: Tensor, axis: int, exclusive: bool = False, reverse: bool = False) -> Tensor:
    """Running products along `axis`, in order; integers and bools give int64. Arguments as in `cumsum`; exclusive ones start
    at 1.

    Gradient: without division, so zeros are no exception; it takes log2(n) steps
    """


def _lines(arrays: Sequence[Array]) -> list[Array]:
    """0-d arrays as lines of one element."""
    return [a if a.ndim else Array(a.id, a.dtype, (1,), (1,), a.offset) for a in arrays]


def _scan(op: Op, combine: str) -> None:
    @op.canon
    def _(types, axis, exclusive, reverse):
        return {"axis": line_axis(axis, types[0].ndim), "exclusive": exclusive, "reverse": reverse}

    @op.infer
    def _(x, axis, exclusive, reverse):
        return TensorType(x.shape, x.dtype if x.dtype.is_float else uint64 if x.dtype.kind == "u" else int64)

    @op.lower
    def _(lo, ins, outs, axis, exclusive, reverse):
        d = outs[0].dtype.compute
        ins, outs = _lines(ins), _lines(outs)
        s = Leaf(ins[0])
        if s.dtype is not d:
            s = Elementwise(lambda v: cast(v, d), [s], s.shape, d)
        kernels.reduction.scan.scan(lo, combine, s, outs[0], axis, reverse, exclusive, op.name)


_scan(cumsum, "add")
_scan(cumprod, "mul")


@cumsum.vjp
def _(g, x, axis, exclusive, reverse):
    return cumsum(g, axis, exclusive, not reverse)


@cumprod.vjp
def _(g, x, axis, exclusive, reverse):
    if not x.ndim:
        return lookup("zeros_like")(g) if exclusive else g
    if reverse:
        return flip(_cumprod_gradient(flip(g, axis), flip(x, axis), axis, exclusive), axis)
    return _cumprod_gradient(g, x, axis, exclusive)


def _cumprod_gradient(g, x, axis: int, exclusive: bool):
    """The product before i, times r[i] = g[i] + x[i + 1] r[i + 1]. The recurrence is solved by doubling: after s steps, b holds
    what the next s elements give and a the product that leads on."""
    n = x.shape[axis]
    a, b = _shifted(x, axis, 1), _shifted(g, axis, 1) if exclusive else g
    s = 1
    while s < n:
        b = add(b, mul(a, _shifted(b, axis, s)))
        a = mul(a, _shifted(a, axis, s))
        s *= 2
    return mul(cumprod(x, axis, True), b)


def _shifted(x, axis: int, s: int):
    """x moved s places towards the front; zeros follow."""
    n = x.shape[axis]
    s = min(s, n) if isinstance(n, int) else s
    return slice_grad(narrow(x, axis, s, n - s), x.shape, (0,) * x.ndim, (1,) * x.ndim)


@primitive(along_axis=True)
def running_max(inp: Tensor, axis: int) -> Tensor:
    """The largest of the elements so far along `axis`; NaN from the first NaN on. `functional.cummax` has their places and a gradient."""


@primitive(along_axis=True)
def running_min(inp: Tensor, axis: int) -> Tensor:
    """The least of the elements so far along `axis`; NaN from the first NaN on. `functional.cummin` has their places and a gradient."""


def _extremes(op: Op, combine: str) -> None:
    @op.canon
    def _(types, axis):
        return {"axis": line_axis(axis, types[0].ndim)}

    @op.infer
    def _(x, axis):
        if not (x.dtype.is_float or x.dtype.is_int):
            raise DTypeError(f"{op.name} does not take {x.dtype}; help: cast with .astype('int32')")
        return x

    @op.lower
    def _(lo, ins, outs, axis):
        d = outs[0].dtype.compute
        ins, outs = _lines(ins), _lines(outs)
        s = Leaf(ins[0])
        if s.dtype is not d:
            s = Elementwise(lambda v: cast(v, d), [s], s.shape, d)
        kernels.reduction.scan.scan(lo, combine, s, outs[0], axis, name=op.name)

    op.no_vjp("functional.cummax and cummin take the elements at the places that it finds, which has a gradient")


_extremes(running_max, "max")
_extremes(running_min, "min")


def _np_scan(f, start):
    def reference(x, axis, exclusive=False, reverse=False):
        x = np.flip(x, axis) if reverse else x
        y = f(x, axis)
        if exclusive and x.shape[axis]:
            y = np.concatenate([np.full_like(np.take(y, [0], axis), start), np.delete(y, -1, axis)], axis)
        return np.flip(y, axis) if reverse else y

    return reference


for _op, _f in ((running_max, np.maximum), (running_min, np.minimum)):
    _op.reference(lambda x, axis, f=_f: f.accumulate(np.atleast_1d(x), axis))  # NumPy has no accumulation of a scalar
    _op.cases(
        Case(lambda r: (r.uniform(-2, 2, (3, 17)),), {"axis": 1}, grad=False),
        Case(lambda r: (np.where(r.uniform(0, 1, (6, 33)) < 0.1, np.nan, r.uniform(-2, 2, (6, 33))),), {"axis": 0}, grad=False),
        Case(lambda r: (r.integers(-9, 9, (5, 3, 4)),), {"axis": 1}, grad=False),
        Case(lambda r: (r.uniform(-2, 2, (3, 0)),), {"axis": 1}, grad=False),
    )
cumsum.reference(_np_scan(np.cumsum, 0))
cumprod.reference(_np_scan(np.cumprod, 1))
for _op in (cumsum, cumprod):
    _op.cases(
        *(
            Case(lambda r: (r.uniform(-2, 2, (3, 17)),), {"axis": 1, "exclusive": e, "reverse": v})
            for e in (0, 1)
            for v in (0, 1)
        ),
        Case(lambda r: (r.uniform(-2, 2, (6, 33)),), {"axis": 0}),
        Case(lambda r: (r.integers(0, 2, (3, 4)).astype(np.float64),), {"axis": -1}),
        Case(lambda r: (r.uniform(-2, 2, (3, 0)),), {"axis": 1}),
    )

# ---- sorting ---------------------------------------------------------------------------------------------------------


def _canon_axis(types, descending, axis):
    return {"descending": descending, "axis": line_axis(axis, types[0].ndim)}


@primitive(functional="tensor math", methods="sort", along_axis=True, aliases={"stable": ""})
def sort(inp: Tensor, descending: Flag = False, axis: int = -1) -> tuple[Tensor, Tensor]:
    """(values in order along `axis`, the int64 positions they come from). Stable, descending too; NaN counts as largest.

    >>> from tengen import Tensor, functional as F
    >>> values, places = F.sort(Tensor([3, 1, 2]))
    >>> values.tolist(), places.tolist()
    ([1, 2, 3], [1, 2, 0])
    """


sort.canon(_canon_axis)


@sort.infer
def _(x, descending, axis):
    return x, TensorType(x.shape, int64)


@sort.lower
def _(lo, ins, outs, descending, axis):
    ins, outs = _lines(ins), _lines(outs)
    kernels.indexing.sort.sort(lo, Leaf(ins[0]), outs[0], outs[1], axis, descending)


def _from_places(g, x, places, axis: int):
    if not x.ndim:
        return g
    return scatter(lookup("zeros_like")(x, g.dtype), axis, places, g, "add")


@sort.vjp
def _(g, x, *, out, descending, axis):
    return None if g[0] is None else _from_places(g[0], x, out[1], axis)


def _np_argsort(x, descending=False, axis=-1):
    if not descending:
        return np.argsort(x, axis, kind="stable")
    order = np.argsort(np.flip(x, axis), axis, kind="stable")
    return np.flip(x.shape[axis] - 1 - order, axis)


def _np_sort(x, descending=False, axis=-1):
    order = _np_argsort(x, descending, axis)
    return np.take_along_axis(x, order, axis), order


sort.reference(_np_sort)
sort.cases(
    Case(lambda r: (r.permutation(51).reshape(3, 17) / 7,)),
    Case(lambda r: (r.permutation(66).reshape(33, 2) / 7,), {"axis": 0, "descending": True}),
)


@primitive(functional="tensor math", methods="argsort", along_axis=True, aliases={"stable": ""})
def argsort(inp: Tensor, descending: Flag = False, axis: int = -1) -> Tensor:
    """The int64 positions that sort the tensor along `axis`: stable, descending too; NaN counts as largest."""


argsort.canon(_canon_axis)


@argsort.infer
def _(x, descending, axis):
    return TensorType(x.shape, int64)


@argsort.lower
def _(lo, ins, outs, descending, axis):
    ins, outs = _lines(ins), _lines(outs)
    kernels.indexing.sort.sort(lo, Leaf(ins[0]), None, outs[0], axis, descending, "argsort")


argsort.no_vjp("a position is not differentiable")
argsort.reference(_np_argsort)
argsort.cases(
    Case(lambda r: (r.integers(0, 9, (3, 33)),), grad=False),
    Case(lambda r: (r.integers(0, 9, (3, 33)),), {"descending": True}, grad=False),
)


@primitive(along_axis=True)
def k_first(inp: Tensor, k: Extent, descending: Flag = True, axis: int = -1) -> tuple[Tensor, Tensor]:
    """The k largest (smallest, if not descending) elements along `axis` in order, and their int64 positions."""


@k_first.canon
def _(types, k, descending, axis):
    return {"k": k} | _canon_axis(types, descending, axis)


@k_first.infer
def _(x, k, descending, axis):
    n = x.shape[axis] if x.ndim else 1
    if isinstance(n, int) and isinstance(k, int) and (k > n or (not x.ndim and k != 1)):
        raise ShapeError(f"axis {axis} of extent {n} has no {k} elements")
    shape = (*x.shape[:axis], k, *x.shape[axis + 1 :]) if x.ndim else ()
    return TensorType(shape, x.dtype), TensorType(shape, int64)


@k_first.lower
def _(lo, ins, outs, k, descending, axis):
    ins, outs = _lines(ins), _lines(outs)
    if as_int(k) != 0:
        kernels.indexing.sort.topk(lo, Leaf(ins[0]), outs[0], outs[1], axis, descending)


@k_first.vjp
def _(g, x, *, out, k, descending, axis):
    return None if g[0] is None else _from_places(g[0], x, out[1], axis)


def _np_topk(x, k, descending=True, axis=-1):
    values, order = _np_sort(x, descending, axis)
    first = np.arange(k)
    return np.take(values, first, axis), np.take(order, first, axis)


k_first.reference(_np_topk)
k_first.cases(
    Case(lambda r: (r.permutation(51).reshape(3, 17) / 7,), {"k": 4}),
    Case(lambda r: (r.permutation(100).reshape(50, 2) / 7,), {"k": 40, "axis": 0, "descending": False}),
)


@shorthand(functional="tensor math", methods="topk", aliases={"largest": "descending", "sorted": ""})
def topk(inp: Tensor, k: int, descending: Flag = True, kth_only: bool = False, no_sort: bool = False, axis: int = -1):
    """The k largest (smallest, if not descending) elements along `axis` and their positions.

    Args: kth_only: the k-th alone, without its axis. no_sort: any order would do (they are in order all the same).
    Returns: (values, int64 positions)

    >>> from tengen import Tensor, functional as F
    >>> F.topk(Tensor([3.0, 1.0, 2.0]), 2)[0].tolist()
    [3.0, 2.0]
    """
    x = dispatch.tensor(inp)
    a = line_axis(axis, x.ndim)
    values, places = k_first(x, k, descending, a)
    if not kth_only or not x.ndim:
        return values, places
    squeeze = lookup("squeeze")
    return squeeze(narrow(values, a, k - 1, 1), a), squeeze(narrow(places, a, k - 1, 1), a)


@topk.reference
def _(x, k, descending=True, kth_only=False, no_sort=False, axis=-1):
    values, places = _np_topk(x, k, descending, axis)
    return (np.take(values, k - 1, axis), np.take(places, k - 1, axis)) if kth_only else (values, places)
topk.cases(Case(lambda r: (r.permutation(51).reshape(3, 17) / 7,), {"k": 4}))
