"""Other forms of views: axes added, taken away, exchanged, turned round; diagonals; sliding windows and their transpose.

In and out: tensors of any dtype. Most are shorthands of the four views of `shape.py`, so that graphs stay small.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from tengen import kernels
from tengen.base.errors import AxisError, DTypeError, ShapeError
from tengen.ir.types import Dim, TensorType
from tengen.kernels.source import Leaf, Source
from tengen.loops.builder import as_expr
from tengen.loops.lang import Expr, as_int, cast, const, equal, maximum, minimum, select, splat
from tengen.ops.attributes import Diagonal, Extent, Naturals, OpenDiagonal, Positives, Window
from tengen.ops.define import Case, dispatch, primitive, shorthand
from tengen.ops.shape import normalize_axes, normalize_axis, permute, reshape, slice_grad, stepped, strided_slice

if TYPE_CHECKING:
    from tengen.tensor import Tensor


def _sample(*shape: int):
    return lambda r: (r.uniform(-1, 1, shape),)


@shorthand(functional="tensor", methods="expand_dims")
def expand_dims(inp: Tensor, axis: int | Sequence[int]) -> Tensor:
    """A view with unit axes at these places of the result.

    >>> from tengen import functional as F
    >>> F.expand_dims(F.zeros((3,)), (0, 2)).shape
    (1, 3, 1)
    """
    x = dispatch.tensor(inp)
    axes = (axis,) if isinstance(axis, int) else tuple(axis)
    new = normalize_axes(axes, x.ndim + len(axes))
    old = iter(x.shape)
    return reshape(x, tuple(1 if i in new else next(old) for i in range(x.ndim + len(axes))))


expand_dims.reference(lambda x, axis: np.expand_dims(x, axis))
expand_dims.cases(Case(_sample(3, 4), {"axis": -1}), Case(_sample(3), {"axis": (0, 2)}))


@shorthand(functional="tensor", methods="squeeze")
def squeeze(inp: Tensor, axis: int | Sequence[int] | None = None) -> Tensor:
    """A view without these unit axes (all unit axes by default).

    Errors: ShapeError for an axis of another extent than 1

    >>> from tengen import functional as F
    >>> F.squeeze(F.zeros((1, 3, 1)), 0).shape
    (3, 1)
    """
    x = dispatch.tensor(inp)
    axes = [i for i, d in enumerate(x.shape) if as_int(d) == 1] if axis is None else normalize_axes(axis, x.ndim)
    for a in axes:
        if as_int(x.shape[a]) != 1:
            raise ShapeError(
                f"squeeze({tuple(x.shape)}, axis={axis}): axis {a} has extent {x.shape[a]}; help: only unit axes can go"
            )
    return reshape(x, tuple(d for i, d in enumerate(x.shape) if i not in axes))


squeeze.reference(lambda x, axis=None: np.squeeze(x, axis))
squeeze.cases(Case(_sample(1, 4, 1)), Case(_sample(1, 4, 1), {"axis": -1}))


@shorthand(functional="tensor")
def flatten(inp: Tensor, start_axis: int = 0, end_axis: int = -1) -> Tensor:
    """Axes start_axis .. end_axis as one; a 0-d tensor gets one axis.

    Errors: AxisError where the first axis lies behind the last one
    """
    x = dispatch.tensor(inp)
    if not x.ndim:
        return reshape(x, (1,))
    a, b = normalize_axis(start_axis, x.ndim), normalize_axis(end_axis, x.ndim)
    if a > b:
        raise AxisError(f"flatten({tuple(x.shape)}): axis {start_axis} lies behind axis {end_axis}")
    n: Dim = 1
    for d in x.shape[a : b + 1]:
        n = n * d
    return reshape(x, (*x.shape[:a], n, *x.shape[b + 1 :]))



def _np_flatten(x, start_axis=0, end_axis=-1):
    a, b = start_axis % max(x.ndim, 1), end_axis % max(x.ndim, 1)
    return x.reshape(*x.shape[:a], math.prod(x.shape[a : b + 1]), *x.shape[b + 1 :])


flatten.reference(_np_flatten)
flatten.cases(Case(_sample(2, 3, 4)), Case(_sample(2, 3, 4), {"start_axis": 1}), Case(_sample(2, 3, 4), {"end_axis": 1}))


@shorthand(functional="tensor", methods="swapaxes")
def swapaxes(inp: Tensor, axis1: int, axis2: int) -> Tensor:
    """A view with two axes exchanged."""
    x = dispatch.tensor(inp)
    order = list(range(x.ndim))
    a, b = normalize_axis(axis1, x.ndim), normalize_axis(axis2, x.ndim)
    order[a], order[b] = b, a
    return permute(x, order)


swapaxes.reference(np.swapaxes)
swapaxes.cases(Case(_sample(2, 3, 4), {"axis1": 0, "axis2": -1}))


@shorthand(functional="tensor")
def moveaxis(inp: Tensor, source: int | Sequence[int], destination: int | Sequence[int]) -> Tensor:
    """A view with axes moved to other places; the others keep their order.

    Errors: AxisError for axes that are not as many, or given twice
    """
    x = dispatch.tensor(inp)
    src, dst = (
        [normalize_axis(a, x.ndim) for a in ((v,) if isinstance(v, int) else v)] for v in (source, destination)
    )
    if len(src) != len(dst) or len(set(src)) != len(src) or len(set(dst)) != len(dst):
        raise AxisError(f"moveaxis({tuple(x.shape)}, {source}, {destination}): as many distinct places as axes are needed")
    order = [a for a in range(x.ndim) if a not in src]
    for d, s in sorted(zip(dst, src)):
        order.insert(d, s)
    return permute(x, order)


moveaxis.reference(np.moveaxis)
moveaxis.cases(
    Case(_sample(2, 3, 4), {"source": 0, "destination": -1}), Case(_sample(2, 3, 4), {"source": (0, 1), "destination": (2, 0)})
)


@shorthand(functional="tensor")
def transpose(inp: Tensor, pattern: Sequence[int | Literal['x']] | None = None) -> Tensor:
    """A view with the axes in another order, reversed by default; "x" in the pattern is a new unit axis.

    >>> from tengen import functional as F
    >>> F.transpose(F.zeros((2, 3)), (1, "x", 0)).shape
    (3, 1, 2)
    """
    x = dispatch.tensor(inp)
    pattern = tuple(reversed(range(x.ndim))) if pattern is None else tuple(pattern)
    y = permute(x, [a for a in pattern if a != "x"])
    new = tuple(i for i, a in enumerate(pattern) if a == "x")
    return expand_dims(y, new) if new else y


transpose.reference(lambda x, pattern=None: np.transpose(x, pattern))
transpose.cases(Case(_sample(2, 3, 4)), Case(_sample(2, 3, 4), {"pattern": (2, 0, 1)}))


@shorthand(functional="tensor", methods="flip", aliases={"dims": "axis"})
def flip(inp: Tensor, axis: int | Sequence[int] | None = None) -> Tensor:
    """A view with the order of elements turned round along `axis` (all axes by default).

    >>> from tengen import Tensor, functional as F
    >>> F.flip(Tensor([1, 2, 3])).tolist()
    [3, 2, 1]
    """
    x = dispatch.tensor(inp)
    axes = normalize_axes(axis, x.ndim)
    last = lambda d: max(0, d - 1) if isinstance(d, int) else maximum(d - 1, 0)  # 0 of an axis without elements
    starts = tuple(last(d) if i in axes else 0 for i, d in enumerate(x.shape))
    return strided_slice(x, starts, x.shape, tuple(-1 if i in axes else 1 for i in range(x.ndim)))


flip.reference(lambda x, axis=None: np.flip(x, axis))
flip.cases(Case(_sample(2, 17)), Case(_sample(2, 3, 4), {"axis": (0, -1)}))

# ---- diagonals -------------------------------------------------------------------------------------------------------


def _diagonal_extent(rows: Dim, columns: Dim, offset: Dim) -> Dim:
    below, above = (offset, 0) if offset < 0 else (0, offset)
    if all(isinstance(d, int) for d in (rows, columns, offset)):
        return max(0, min(rows + below, columns - above))
    return maximum(const(0), minimum(as_expr(rows + below), as_expr(columns - above)))


@primitive
def stop_gradient(x: Tensor) -> Tensor:
    """x itself, through which no gradient goes: how the body of a loop or a branch, which is differentiated as a graph, says `detach`."""


@stop_gradient.infer
def _(x):
    return x


@stop_gradient.view
def _(a, out):
    return a


stop_gradient.identity(lambda x, out: True)
stop_gradient.no_vjp("that is its purpose")
stop_gradient.reference(lambda x: x)
stop_gradient.cases(Case(lambda r: (r.uniform(-1, 1, (3, 5)),), grad=False))


@primitive
def last_diagonal(x: Tensor, offset: Diagonal = 0) -> Tensor:
    """The diagonal of the last two axes, as a view: elements (i, i + offset). Shapes: (..., R, C) -> (..., D)."""


@last_diagonal.infer
def _(x, offset):
    if x.ndim < 2:
        raise ShapeError("a diagonal needs two axes")
    return TensorType((*x.shape[:-2], _diagonal_extent(*x.shape[-2:], offset)), x.dtype)


@last_diagonal.view
def _(a, out, offset):
    r, c = a.strides[-2:]
    start = 0 if as_int(out.shape[-1]) == 0 else max(-offset, 0) * r + max(offset, 0) * c
    return replace(a, shape=tuple(out.shape), strides=(*a.strides[:-2], r + c), offset=a.offset + start)


@last_diagonal.vjp
def _(g, x, offset):
    return on_diagonal(g, *x.shape[-2:], offset)


last_diagonal.reference(lambda x, offset=0: np.diagonal(x, offset, -2, -1))
last_diagonal.cases(
    Case(_sample(4, 6)),
    Case(_sample(2, 4, 3), {"offset": -2}),
    Case(_sample(4, 6), {"offset": 3}),
    Case(_sample(2, 3), {"offset": 9}),
)


class _OnDiagonal(Source):
    def __init__(self, source: Source, out: TensorType, offset: Dim):
        self.source, self.shape, self.dtype, self.offset = source, tuple(out.shape), out.dtype, offset

    def value(self, k, at):
        n, extent = len(self.shape), as_expr(self.source.shape[-1])
        if as_int(extent) == 0:
            return const(0, self.dtype, at.lanes)
        row, column = at.coord(n - 2), at.coord(n - 1)
        i = row if self.offset >= 0 else column
        hit = equal(row + self.offset, column)
        inside = k.let(maximum(minimum(i, extent - 1), 0))
        vec = at.vec if at.vec is not None and at.vec < n - 2 else None
        v = self.source.at(k, kernels.indexing.gather.place((*at.coords[: n - 2], inside), vec, at.count))
        hit, v = (splat(hit), splat(v)) if at.lanes > 1 else (hit, v)
        return select(hit, v, const(0, self.dtype))


@primitive
def on_diagonal(x: Tensor, rows: Extent, columns: Extent, offset: OpenDiagonal = 0) -> Tensor:
    """Matrices of zeros with x on the diagonal (i, i + offset). Shapes: (..., D) -> (..., rows, columns)."""


@on_diagonal.infer
def _(x, rows, columns, offset):
    have, want = (x.shape[-1] if x.ndim else -1), _diagonal_extent(rows, columns, offset)
    if isinstance(have, int) and isinstance(want, int) and have != want:
        raise ShapeError(f"the diagonal {offset} of {rows} x {columns} does not have {x.shape[-1:]} elements")
    return TensorType((*x.shape[:-1], rows, columns), x.dtype)


@on_diagonal.source
def _(ins, out, rows, columns, offset):
    return _OnDiagonal(ins[0], out, offset)


@on_diagonal.vjp
def _(g, x, rows, columns, offset):
    return last_diagonal(g, offset)


def _np_on_diagonal(x, rows, columns, offset=0):
    out = np.zeros((*x.shape[:-1], rows, columns), x.dtype)
    i = np.arange(x.shape[-1])
    out[..., i + max(-offset, 0), i + max(offset, 0)] = x
    return out


on_diagonal.reference(_np_on_diagonal)
on_diagonal.cases(
    Case(_sample(3), {"rows": 3, "columns": 20}),
    Case(_sample(2, 3), {"rows": 5, "columns": 4, "offset": -2}),
    Case(_sample(2, 4), {"rows": 4, "columns": 17, "offset": 2}),
)


@shorthand(functional="tensor")
def diagonal(inp: Tensor, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Tensor:
    """The elements (i, i + offset) of two axes, as a new last axis; a view.

    Errors: AxisError for one axis given twice
    """
    x = dispatch.tensor(inp)
    a, b = normalize_axis(axis1, x.ndim), normalize_axis(axis2, x.ndim)
    if a == b:
        raise AxisError(f"diagonal({tuple(x.shape)}): the two axes are both {axis1}")
    return last_diagonal(permute(x, [*(i for i in range(x.ndim) if i not in (a, b)), a, b]), offset)


diagonal.reference(lambda x, offset=0, axis1=0, axis2=1: np.diagonal(x, offset, axis1, axis2))
diagonal.cases(Case(_sample(4, 5)), Case(_sample(4, 2, 5), {"offset": 1, "axis1": 2, "axis2": 0}))


@shorthand(functional="tensor", aliases={"diagonal": "k"})
def diag(inp: Tensor, k: int = 0) -> Tensor:
    """The k-th diagonal of a matrix, or a matrix with the vector `inp` on its k-th diagonal.

    Errors: ShapeError for more than two axes

    >>> from tengen import Tensor, functional as F
    >>> F.diag(Tensor([1, 2])).tolist()
    [[1, 0], [0, 2]]
    """
    x = dispatch.tensor(inp)
    if x.ndim == 2:
        return last_diagonal(x, k)
    if x.ndim != 1:
        raise ShapeError(f"diag({tuple(x.shape)}): a vector or a matrix is expected; help: diagonal takes more axes")
    n = x.shape[0] + abs(k)
    return on_diagonal(x, n, n, k)


diag.reference(lambda x, k=0: np.diag(x, k))
diag.cases(Case(_sample(5)), Case(_sample(5), {"k": -2}), Case(_sample(4, 5), {"k": 1}))

# ---- sliding windows -------------------------------------------------------------------------------------------------


def _pair(v, n: int) -> tuple[int, ...]:
    return (v,) * n if isinstance(v, int) else tuple(v)


def _window_count(d: Dim, k: int, stride: int, dilation: int) -> Dim:
    return (d - (dilation * (k - 1) + 1)) // stride + 1


@primitive
def windows(x: Tensor, kernel_size: Sequence[Extent], stride: Sequence[Window], dilation: Sequence[Window]) -> Tensor:
    """All windows over the last axes, as a view: element (..., *p, *k) is x[..., *(p stride + k dilation)].

    Shapes: (..., *S) -> (..., *P, *K), P = (S - dilation (K - 1) - 1) // stride + 1
    """


@windows.infer
def _windows_type(x, kernel_size, stride, dilation):
    n = len(kernel_size)
    if len(stride) != n or len(dilation) != n or x.ndim < n:
        raise ShapeError(f"kernel_size, stride and dilation need one number for each of the last axes of {x}")
    if any(isinstance(v, int) and v < 1 for v in (*kernel_size, *stride, *dilation)):
        raise ShapeError("kernel_size, stride and dilation must be positive")
    counts = []
    for d, k, s, dil in zip(x.shape[x.ndim - n :], kernel_size, stride, dilation):
        if isinstance(d, int) and isinstance(k, int) and d < dil * (k - 1) + 1:
            raise ShapeError(f"a window of {k} elements with dilation {dil} does not fit {d} elements")
        counts.append(_window_count(d, k, s, dil))
    return TensorType((*x.shape[: x.ndim - n], *counts, *kernel_size), x.dtype)


@windows.view
def _(a, out, kernel_size, stride, dilation):
    lead = a.ndim - len(kernel_size)
    space = a.strides[lead:]
    counts = out.shape[lead : a.ndim]
    strides = (*a.strides[:lead], *stepped(space, stride, counts), *stepped(space, dilation, kernel_size))
    return replace(a, shape=tuple(out.shape), strides=strides)


@windows.vjp
def _(g, x, kernel_size, stride, dilation):
    return windows_grad(g, x.shape[x.ndim - len(kernel_size) :], stride, dilation)


def _np_windows(x, kernel_size, stride, dilation):
    n = len(kernel_size)
    reach = tuple(d * (k - 1) + 1 for k, d in zip(kernel_size, dilation))
    w = np.lib.stride_tricks.sliding_window_view(x, reach, tuple(range(-n, 0)))
    lead = (slice(None),) * (x.ndim - n)
    return w[(*lead, *(slice(None, None, s) for s in stride), *(slice(None, None, d) for d in dilation))]


windows.reference(_np_windows)
windows.cases(
    Case(_sample(2, 3, 7, 9), {"kernel_size": (3, 2), "stride": (2, 3), "dilation": (1, 2)}),
    Case(_sample(33), {"kernel_size": (5,), "stride": (1,), "dilation": (3,)}),
)


class _Landing(Source):
    """For pixel s and window offset k: the element of the window that has s at offset k, zero where there is none."""

    def __init__(self, source: Source, space, stride, dilation, dtype):
        self.source, self.n, self.stride, self.dilation = source, len(stride), stride, dilation
        lead = source.shape[: len(source.shape) - 2 * self.n]
        self.lead, self.dtype = len(lead), dtype
        self.shape = (*lead, *space, *source.shape[len(source.shape) - self.n :])

    def value(self, k, at):
        inside: Expr | None = None
        windows_at, offsets = [], []
        for i in range(self.n):
            s, o = at.coord(self.lead + i), at.coord(self.lead + self.n + i)
            t = s - o * self.dilation[i]
            positive = k.let(maximum(t, 0))
            last = as_expr(self.source.shape[self.lead + i]) - 1
            q = positive // self.stride[i]
            ok = (t >= 0) & (q <= last) & equal(positive % self.stride[i], 0)
            inside = ok if inside is None else inside & ok
            windows_at.append(k.let(minimum(q, last)))
            offsets.append(o)
        vec = at.vec if at.vec is not None and at.vec < self.lead else None
        v = cast(self.source.at(k, kernels.indexing.gather.place((*at.coords[: self.lead], *windows_at, *offsets), vec, at.count)), self.dtype)
        inside, v = (splat(inside), splat(v)) if at.lanes > 1 else (inside, v)
        return select(inside, v, const(0, self.dtype))


@primitive
def windows_grad(grad: Tensor, space: Sequence[Extent], stride: Sequence[Window], dilation: Sequence[Window]) -> Tensor:
    """Each pixel is the sum of its appearances in windows: the transpose of `windows`, and its gradient.

    Shapes: (..., *P, *K) -> (..., *space)
    """


@windows_grad.infer
def _(g, space, stride, dilation):
    n = len(space)
    lead = g.shape[: g.ndim - 2 * n]
    want = _windows_type(TensorType((*lead, *space), g.dtype), g.shape[g.ndim - n :], stride, dilation)
    if any(isinstance(a, int) and isinstance(b, int) and a != b for a, b in zip(want.shape, g.shape)):
        raise ShapeError(f"the windows over {tuple(space)} are {want}")
    if g.dtype.kind == "b":
        raise DTypeError("does not take bool; help: cast it, for example with .astype('int32')")
    return TensorType((*lead, *space), g.dtype)


windows_grad.named(lambda arrays, **attrs: ("stride", "dilation"))


@windows_grad.lower
def _(lo, ins, outs, space, stride, dilation):
    out, n = outs[0], len(space)
    s = _Landing(Leaf(ins[0]), out.shape[out.ndim - n :], stride, dilation, out.dtype.compute)
    kernels.reduction.reduce.reduce(lo, "add", s, out, tuple(range(out.ndim, out.ndim + n)), name="windows_grad")


@windows_grad.vjp
def _(gg, g, space, stride, dilation):
    return windows(gg, g.shape[g.ndim - len(space) :], stride, dilation)


def _np_windows_grad(g, space, stride, dilation):
    n = len(space)
    lead = g.shape[: g.ndim - 2 * n]
    out = np.zeros((*lead, *space), np.result_type(g, np.float64))
    for at in np.ndindex(*g.shape[len(lead) :]):
        pixel = tuple(p * s + k * d for p, k, s, d in zip(at[:n], at[n:], stride, dilation))
        out[(..., *pixel)] += g[(..., *at)]
    return out


windows_grad.reference(_np_windows_grad)
windows_grad.cases(
    Case(_sample(2, 3, 3, 3, 2), {"space": (7, 9), "stride": (2, 3), "dilation": (1, 2)}),
    Case(_sample(21, 5), {"space": (33,), "stride": (1,), "dilation": (3,)}),
)


@shorthand(functional="tensor nn")
def sliding_window(
    inp: Tensor, kernel_size: Positives, padding: Naturals = 0, stride: Positives = 1, dilation: Positives = 1
) -> Tensor:
    """All windows over the last two axes of an image padded with zeros, without copying where there is no padding.

    Shapes: (N, C, H, W) -> (N, C, PH, PW, KH, KW)
    """
    x = dispatch.tensor(inp)
    pads = _pair(padding, 2)
    lead = x.ndim - 2
    if any(pads):
        shape = (*x.shape[:lead], *(d + 2 * p for d, p in zip(x.shape[lead:], pads)))
        x = slice_grad(x, shape, (0,) * lead + pads, (1,) * x.ndim)
    return windows(x, _pair(kernel_size, 2), _pair(stride, 2), _pair(dilation, 2))


sliding_window.reference(
    lambda x, kernel_size, padding=0, stride=1, dilation=1: _np_windows(
        np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding))), (kernel_size,) * 2, (stride,) * 2, (dilation,) * 2
    )
)
sliding_window.cases(Case(_sample(2, 3, 6, 7), {"kernel_size": 3, "padding": 1, "stride": 2}))


@shorthand(functional="tensor nn")
def sliding_window_transpose(
    inp: Tensor, output_size: Extent | Sequence[Extent], kernel_size: Positives, padding: Naturals = 0, stride: Positives = 1,
    dilation: Positives = 1,
) -> Tensor:  # fmt: skip
    """The sum of windows put back in their places: the transpose of `sliding_window`.

    Shapes: (N, C, PH, PW, KH, KW) -> (N, C, *output_size)
    Errors: ShapeError for windows of other extents than kernel_size
    """
    x = dispatch.tensor(inp)
    size, pads, lead = _pair(output_size, 2), _pair(padding, 2), x.ndim - 4
    if tuple(x.shape[lead + 2 :]) != _pair(kernel_size, 2):
        raise ShapeError(f"sliding_window_transpose({tuple(x.shape)}): the windows are not {_pair(kernel_size, 2)}")
    space = tuple(d + 2 * p for d, p in zip(size, pads))
    y = windows_grad(x, space, _pair(stride, 2), _pair(dilation, 2))
    return strided_slice(y, (0,) * lead + pads, (*y.shape[:lead], *size), (1,) * y.ndim) if any(pads) else y


sliding_window_transpose.reference(
    lambda x, output_size, kernel_size, padding=0, stride=1, dilation=1: _np_windows_grad(
        x, tuple(d + 2 * padding for d in output_size), (stride,) * 2, (dilation,) * 2
    )[:, :, padding:-padding, padding:-padding]
)
sliding_window_transpose.cases(
    Case(_sample(2, 3, 3, 4, 3, 3), {"output_size": (6, 7), "kernel_size": 3, "padding": 1, "stride": 2})
)


@shorthand(functional="tensor")
def unfold(
    inp: Tensor, kernel_size: Positives, dilation: Positives = 1, padding: Naturals = 0, stride: Positives = 1
) -> Tensor:
    """The windows of images as columns (im2col). Shapes: (N, C, H, W) -> (N, C KH KW, PH PW).

    Errors: ShapeError for what are no images (N, C, H, W)
    """
    w = sliding_window(inp, kernel_size, padding, stride, dilation)
    if w.ndim != 6:
        raise ShapeError(f"unfold takes images (N, C, H, W), got shape {inp.shape}")
    n, c, ph, pw, kh, kw = w.shape
    return reshape(permute(w, (0, 1, 4, 5, 2, 3)), (n, c * kh * kw, ph * pw))


unfold.reference(
    lambda x, kernel_size, dilation=1, padding=0, stride=1: np.moveaxis(
        _np_windows(
            np.pad(x, ((0, 0), (0, 0), (padding,) * 2, (padding,) * 2)), (kernel_size,) * 2, (stride,) * 2, (dilation,) * 2
        ),
        (4, 5),
        (2, 3),
    ).reshape(x.shape[0], x.shape[1] * kernel_size**2, -1)
)
unfold.cases(Case(_sample(2, 3, 6, 7), {"kernel_size": 3, "padding": 1, "stride": 2}))
