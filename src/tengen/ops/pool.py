"""Pooling over any number of spatial axes: reductions over sliding windows, and their adjoints.

N batch, C channels, S spatial extents of the image, P of the output, K of the window.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np

from tengen.base.dtype import int8, int32
from tengen.base.errors import DTypeError, ShapeError
from tengen.ir.types import TensorType
from tengen.kernels.axes import memory_order
from tengen.kernels.lowering import Array, product
from tengen.kernels.pointwise import pointwise
from tengen.kernels.reduction.arg import NOWHERE, arg_fold
from tengen.kernels.reduction.folding import UNROLLED_ELEMENTS, lowest, simple_fold
from tengen.kernels.reduction.windows import Geometry, Windows, fold_holders, fold_windows
from tengen.kernels.source import At, Elementwise, Leaf, Literal, Source
from tengen.loops.lang import Expr, as_int, cast, const, equal, maximum, minimum, not_equal, select, splat
from tengen.ops.attributes import Mode, Naturals, WindowSizes
from tengen.ops.conv_parts import out_extent, per_axis
from tengen.ops.define import Case, primitive

if TYPE_CHECKING:
    from tengen.tensor import Tensor


def _canon(types, kernel_size, stride, padding, **more):
    n = types[0].ndim - 2
    if n < 1:
        raise ShapeError(f"pooling needs an image of at least 3 axes (batch, channels, space), got {types[0]}")
    k = per_axis(kernel_size, n, "kernel_size")
    a = {
        "kernel_size": k,
        "stride": k if stride is None else per_axis(stride, n, "stride"),
        "padding": per_axis(padding, n, "padding"),
    }
    if any(p and 2 * p > kk for p, kk in zip(a["padding"], k)):
        raise ShapeError(f"padding must be at most half the kernel: {a}")
    return a | more


def _infer(x: TensorType, kernel_size, stride, padding, **_) -> TensorType:
    if x.ndim != len(kernel_size) + 2:
        raise ShapeError(f"windows {kernel_size} do not fit {x}; help: an image has axes for batch, channels and space")
    if not x.dtype.is_float and not x.dtype.is_int:
        raise DTypeError(f"does not take {x.dtype}")
    space = [out_extent(s, k, st, p, 1) for s, k, st, p in zip(x.shape[2:], kernel_size, stride, padding)]
    return TensorType([*x.shape[:2], *space], x.dtype)


def _infer_adjoint(g: TensorType, x: TensorType, **a) -> TensorType:
    """For a gradient of a pooling's output and the pooling's input, of which it has the shape."""
    _check_same(g, _infer(x, **a).shape)
    return TensorType(x.shape, _float_grad(g))


def _check_same(g: TensorType, shape) -> None:
    if g.ndim != len(shape) or any(isinstance(a, int) and isinstance(b, int) and a != b for a, b in zip(g.shape, shape)):
        raise ShapeError(f"the first tensor is {g}, its shape must be {tuple(shape)}")


def _layout(arrays, out, **attrs):
    return memory_order(arrays[0])


def _large_windows(arrays, kernel_size, stride, padding, **more) -> tuple[str, ...]:
    """Eager programs take the size of windows at run time where loops go over their pixels: then all sizes share a program."""
    return () if product(kernel_size) <= UNROLLED_ELEMENTS else ("kernel_size", "stride")


def _large_windows_apart(arrays, kernel_size, stride, padding, **more) -> tuple[str, ...]:
    """The same for gradients, where each pixel is in one window."""
    return _large_windows(arrays, kernel_size, stride, padding) if stride == kernel_size and not any(padding) else ()


def _geometry(image: Array, pooled: Array, kernel_size, stride, padding) -> Geometry:
    return Geometry(tuple(image.shape[2:]), tuple(pooled.shape[2:]), kernel_size, stride, padding)


def _computed(s: Source) -> Source:
    d = s.dtype.compute
    return s if s.dtype is d else Elementwise(lambda v: cast(v, d), [s], s.shape, d)


def _stored(out: Array, epilogue=None):
    """What makes values of out's dtype from those that are computed."""
    return (lambda k, v, at: cast(v, out.dtype)) if epilogue is None else epilogue


@primitive
def max_pool(inp: Tensor, kernel_size: WindowSizes, stride: WindowSizes | None = None, padding: Naturals = 0) -> Tensor:
    """The largest element of each window; padding never wins. The gradient goes to the first largest one.

    Shapes: (N, C, *S) -> (N, C, *P), P = (S + 2 padding - kernel_size) // stride + 1; stride is the kernel's size by default
    """


max_pool.canon(_canon)
max_pool.infer(_infer)
max_pool.layout(_layout)
max_pool.named(_large_windows)
max_pool.parts(lambda types, **attrs: [[0, *[None] * (types[0].ndim - 1)]])


@max_pool.epilogue
def _(lo, ins, outs, epilogue, kernel_size, stride, padding):
    x, out = ins[0], outs[0]
    geometry = _geometry(x, out, kernel_size, stride, padding)
    w = _computed(Windows(x, geometry, lowest(x.dtype)))
    fold_windows(lo, simple_fold("max", w.dtype), w, out, _stored(out, epilogue), "max_pool", geometry.side_by_side(x, out))


@max_pool.vjp
def _(g, x, **a):
    return max_pool_grad(g, x, **a)


@primitive
def avg_pool(
    inp: Tensor, kernel_size: WindowSizes, stride: WindowSizes | None = None, padding: Naturals = 0,
    mode: Mode = "average_count_exclude_padding",
) -> Tensor:  # fmt: skip
    """The mean of each window: over the pixels inside the image, or with mode="average" over all, padding counted as zeros.

    Shapes: (N, C, *S) -> (N, C, *P), P = (S + 2 padding - kernel_size) // stride + 1; stride is the kernel's size by default
    """


@avg_pool.canon
def _canon_avg(types, kernel_size, stride, padding, mode):
    return _canon(types, kernel_size, stride, padding) | {"mode": mode}


@avg_pool.infer
def _(x, **a):
    if not x.dtype.is_float:
        raise DTypeError(f"does not take {x.dtype}; help: cast it with .astype('float32')")
    return _infer(x, **a)


avg_pool.layout(_layout)
avg_pool.named(_large_windows)
avg_pool.parts(lambda types, **attrs: [[0, *[None] * (types[0].ndim - 1)]])


def _window_count(at: At, space, kernel_size, stride, padding, mode: str, d) -> Expr:
    """How many pixels the window at these output coordinates averages."""
    n: Expr = const(1)
    for axis, (s, k, st, p) in enumerate(zip(space, kernel_size, stride, padding)):
        if mode == "average" or p == 0:
            n = n * k
            continue
        first = at.coord(axis + 2) * st - p
        end = minimum(first + k, s if isinstance(s, Expr) else const(s))
        n = (end - maximum(first, const(0))) * n
    return cast(n, d)


@avg_pool.lower
def _(lo, ins, outs, kernel_size, stride, padding, mode):
    x, out = ins[0], outs[0]
    geometry = _geometry(x, out, kernel_size, stride, padding)
    w = _computed(Windows(x, geometry, 0))

    def finish(k, v, at):
        return cast(v / _window_count(at, x.shape[2:], kernel_size, stride, padding, mode, v.dtype), out.dtype)

    fold_windows(lo, simple_fold("add", w.dtype), w, out, finish, "avg_pool", geometry.side_by_side(x, out))


@avg_pool.vjp
def _(g, x, **a):
    return avg_pool_grad(g, x, **a)


def _float_grad(g: TensorType):
    if not g.dtype.is_float:
        raise DTypeError(f"a gradient is a float tensor, got {g}")
    return g.dtype


@primitive
def avg_pool_grad(
    grad: Tensor, like: Tensor, kernel_size: WindowSizes, stride: WindowSizes | None, padding: Naturals, mode: Mode
) -> Tensor:
    """The gradient of `avg_pool`: each pixel collects its share of every window it is in. Only the type of `like` is used."""


avg_pool_grad.canon(_canon_avg)

avg_pool_grad.infer(_infer_adjoint)
avg_pool_grad.layout(_layout)
avg_pool_grad.named(_large_windows_apart)


@avg_pool_grad.epilogue
def _(lo, ins, outs, epilogue, kernel_size, stride, padding, mode):
    g, out = ins[0], outs[0]
    space, d = out.shape[2:], g.dtype.compute

    def give(k, at, offsets):
        return cast(at.load(k, g), d) / _window_count(at, space, kernel_size, stride, padding, mode, d)

    geometry = _geometry(out, g, kernel_size, stride, padding)
    fold_holders(lo, simple_fold("add", d), give, geometry, d, out, _stored(out, epilogue), "avg_pool_grad")


@avg_pool_grad.vjp
def _(gg, g, like, **a):
    return avg_pool(gg, **a), None


@primitive
def max_pool_grad(grad: Tensor, inp: Tensor, kernel_size: WindowSizes, stride: WindowSizes | None, padding: Naturals) -> Tensor:
    """The gradient of `max_pool`: each pixel collects the gradients of the windows of which it is the first largest element."""


max_pool_grad.canon(_canon)

max_pool_grad.infer(_infer_adjoint)
max_pool_grad.named(_large_windows_apart)


@max_pool_grad.layout
def _(arrays, out, **a):
    return memory_order(arrays[1])


def _first_largest(lo, x: Array, g: Array, kernel_size, stride, padding) -> Array:
    """Which position of each window of `x` holds the first largest element, in memory as `x` lies."""
    size = product(kernel_size)
    index = lo.temp(int8 if (as_int(size) or 128) < 128 else int32, g.shape, memory_order(x))
    geometry = _geometry(x, g, kernel_size, stride, padding)
    w = _computed(Windows(x, geometry, lowest(x.dtype)))

    def inside(k, v, at):
        """The position; that of the first pixel in the image where no element beats what padding is taken for."""
        first: Expr = const(0)
        for axis, (size, st, p) in enumerate(zip(kernel_size, stride, padding), 2):
            first = first * size + (maximum(p - at.coord(axis) * st, 0) if p else 0)
        found = select(equal(v, NOWHERE), const(0), v)
        return cast(maximum(found, first) if any(padding) else found, index.dtype)

    fold_windows(lo, arg_fold("max", w.dtype), w, index, inside, "argmax", geometry.side_by_side(x, index))
    return index


def _position(offsets, kernel_size, dtype) -> Expr:
    """The flat position in a window of these offsets."""
    flat: Expr = const(0)
    for o, size in zip(offsets, kernel_size):
        flat = flat * size + o
    return cast(flat, dtype)


MOST_WINDOW_PIXELS = 16  # pixels of a window, up to which windows that do not overlap are handled in registers


def _unpool_apart(lo, g: Array, x: Array, out: Array, epilogue, kernel_size) -> None:
    """Windows that touch but do not overlap: each gives its gradient to one of its own pixels, in one pass over the image."""
    n, d = len(kernel_size), g.dtype.compute
    space = g.shape[2:]
    places = list(itertools.product(*(range(k) for k in kernel_size)))

    def pixel(a: Array, place) -> Array:
        """Of every window, the pixel at `place`, as an image of the output's size."""
        offset = a.offset
        for p, st in zip(place, a.strides[2:]):
            offset = offset + p * st
        strides = (*a.strides[:2], *(st * k for st, k in zip(a.strides[2:], kernel_size)))
        return Array(a.id, a.dtype, (*a.shape[:2], *space), strides, offset)

    def winner(*values: Expr) -> Expr:
        best, index = values[0], splat(const(0, int32)) if values[0].lanes > 1 else const(0, int32)
        for i, v in enumerate(values[1:], 1):
            beats = v > best
            if v.dtype.is_float:
                beats = beats | (not_equal(v, v) & equal(best, best))
            best, index = select(beats, v, best), select(beats, const(i, int32), index)
        return index

    shape = pixel(x, places[0]).shape
    first = Elementwise(winner, [_computed(Leaf(pixel(x, p))) for p in places], shape, int32)
    grad = _computed(Leaf(g))
    sources: list[Source] = []
    for i, place in enumerate(places):
        s: Source = Elementwise(lambda w, v, i=i: select(equal(w, i), v, const(0, d)), [first, grad], shape, d)
        s = s if epilogue is None else _Through(s, epilogue, place, kernel_size, out.dtype)
        sources.append(s if s.dtype is out.dtype else Elementwise(lambda v: cast(v, out.dtype), [s], shape, out.dtype))
    pointwise(lo, sources, [pixel(out, p) for p in places], "unpool")
    for axis in range(n):  # pixels past the last whole window
        covered = space[axis] * kernel_size[axis]
        rest = out.shape[axis + 2] - covered
        if as_int(rest) == 0:
            continue
        border = list(out.shape)
        border[axis + 2] = rest
        edge = Array(out.id, out.dtype, tuple(border), out.strides, out.offset + covered * out.strides[axis + 2])
        zero: Source = Literal(0, d, edge.shape)
        if epilogue is not None:
            zero = _Through(zero, epilogue, tuple(covered if a == axis else 0 for a in range(n)), (1,) * n, out.dtype)
        pointwise(lo, [zero if zero.dtype is out.dtype else Literal(0, out.dtype)], [edge], "unpool_border")


class _Through(Source):
    """A value sent through an epilogue at its place in the image: coordinate c of the source is pixel c * step + start."""

    def __init__(self, source: Source, epilogue, start, step, dtype):
        self.source, self.epilogue, self.start, self.step = source, epilogue, start, step
        self.shape, self.dtype = source.shape, dtype

    def value(self, k, at):
        coords: list = list(at.coords[:2])
        vec = at.vec
        for axis, (a, s) in enumerate(zip(self.start, self.step), 2):
            stepped = axis == at.vec and s != 1
            coords.append((at.coord(axis) if stepped else at.coords[axis]) * s + a)
            vec = None if stepped else vec
        return self.epilogue(k, self.source.at(k, at), At(tuple(coords), vec, at.count))


@max_pool_grad.epilogue
def _(lo, ins, outs, epilogue, kernel_size, stride, padding):
    g, x, out = ins[0], ins[1], outs[0]
    pixels = as_int(product(kernel_size))
    if stride == kernel_size and not any(padding) and pixels is not None and pixels <= MOST_WINDOW_PIXELS:
        return _unpool_apart(lo, g, x, out, epilogue, kernel_size)
    index = _first_largest(lo, x, g, kernel_size, stride, padding)
    d = g.dtype.compute

    def give(k, at, offsets):
        chosen = equal(at.load(k, index), _position(offsets, kernel_size, index.dtype))
        return select(chosen, cast(at.load(k, g), d), const(0, d))

    geometry = _geometry(x, g, kernel_size, stride, padding)
    fold_holders(lo, simple_fold("add", d), give, geometry, d, out, _stored(out, epilogue), "max_pool_grad")


@max_pool_grad.vjp
def _(gg, g, x, **a):
    return (lambda: max_pool_gather(gg, x, **a)), None


@primitive
def max_pool_gather(values: Tensor, inp: Tensor, kernel_size: WindowSizes, stride: WindowSizes | None, padding: Naturals) -> Tensor:
    """Of each window, the element of `values` where `inp` is first largest: what `max_pool_grad` is the transpose of."""


max_pool_gather.canon(_canon)


@max_pool_gather.infer
def _(v, x, **a):
    _check_same(v, x.shape)
    return TensorType(_infer(x, **a).shape, _float_grad(v))


@max_pool_gather.lower
def _(lo, ins, outs, kernel_size, stride, padding):
    v, x, out = ins[0], ins[1], outs[0]
    n = len(kernel_size)
    index = _first_largest(lo, x, out, kernel_size, stride, padding)
    values = Windows(v, _geometry(x, out, kernel_size, stride, padding), 0)

    class Chosen(Source):
        shape, dtype = values.shape, out.dtype.compute

        def value(self, k, at):
            flat = _position([at.coord(2 + n + a) for a in range(n)], kernel_size, index.dtype)
            here = At(at.coords[: n + 2], at.vec if at.vec is not None and at.vec < n + 2 else None, at.count)
            here.count = at.count if here.lanes > 1 else None
            return select(equal(here.load(k, index), flat), cast(values.at(k, at), self.dtype), const(0, self.dtype))

    fold_windows(lo, simple_fold("add", out.dtype.compute), Chosen(), out, _stored(out), "max_pool_gather")


@max_pool_gather.vjp
def _(g, v, x, **a):
    return (lambda: max_pool_grad(g, x, **a)), None


# ---- references and samples ------------------------------------------------------------------------------------------------


def _np_windows(x, kernel_size, stride, padding):
    """Yields (position of the window, the part of the image inside it, offset of each pixel in the window) with all of N and
    C."""
    n = x.ndim - 2
    k, padding = per_axis(kernel_size, n, "kernel_size"), per_axis(padding, n, "padding")
    stride = k if stride is None else per_axis(stride, n, "stride")
    out = [(s + 2 * p - kk) // st + 1 for s, kk, st, p in zip(x.shape[2:], k, stride, padding)]
    for at in itertools.product(*map(range, out)):
        first = [i * s - p for i, s, p in zip(at, stride, padding)]
        yield (
            (..., *at),
            (..., *(slice(max(f, 0), min(f + kk, s)) for f, kk, s in zip(first, k, x.shape[2:]))),
            out,
            int(np.prod(k)),
        )


def _np_pool(x, kernel_size, stride, padding, value):
    y = None
    for at, inside, out, size in _np_windows(x, kernel_size, stride, padding):
        y = np.zeros((*x.shape[:2], *out), x.dtype) if y is None else y
        y[at] = value(x[inside].reshape(*x.shape[:2], -1), size)
    return y


def _np_avg(mode):
    return lambda v, size: v.sum(-1) / (size if mode == "average" else v.shape[-1])


def _np_avg_grad(g, like, kernel_size, stride, padding, mode):
    r = np.zeros(like.shape, g.dtype)
    for at, inside, _, size in _np_windows(like, kernel_size, stride, padding):
        count = size if mode == "average" else like[inside][0, 0].size
        r[inside] += (g[at] / count)[(..., *(None,) * (like.ndim - 2))]
    return r


def _np_first_largest(x, kernel_size, stride, padding):
    """Yields (position of the window with its n and c, the pixel of the image that is its first largest)."""
    for at, inside, _, _ in _np_windows(x, kernel_size, stride, padding):
        for nc in np.ndindex(*x.shape[:2]):
            w = x[nc][inside]
            best = np.unravel_index(w.argmax(), w.shape)
            yield (*nc, *at[1:]), (*nc, *(i + s.start for i, s in zip(best, inside[1:])))


def _np_max_grad(g, x, kernel_size, stride, padding):
    r = np.zeros(x.shape, g.dtype)
    for window, pixel in _np_first_largest(x, kernel_size, stride, padding):
        r[pixel] += g[window]
    return r


def _np_max_gather(v, x, kernel_size, stride, padding):
    r = np.zeros(_np_pool(x, kernel_size, stride, padding, lambda w, _: w.max(-1)).shape, v.dtype)
    for window, pixel in _np_first_largest(x, kernel_size, stride, padding):
        r[window] = v[pixel]
    return r


def _distinct(*shapes):
    """Values that are well apart, so that finite differences do not change which one is largest."""
    return lambda r: tuple(r.permutation(np.arange(np.prod(s, dtype=int)) * 0.125 - 3).reshape(s) for s in shapes)


_PLAIN = {"kernel_size": 2, "stride": None, "padding": 0}
_OVERLAP = {"kernel_size": (3, 2), "stride": (2, 1), "padding": (1, 0)}
_GAPS = {"kernel_size": 2, "stride": 3, "padding": 0}
max_pool.reference(
    lambda x, kernel_size, stride=None, padding=0: _np_pool(x, kernel_size, stride, padding, lambda v, _: v.max(-1))
)
avg_pool.reference(lambda x, kernel_size, stride=None, padding=0, mode="average_count_exclude_padding":
                   _np_pool(x, kernel_size, stride, padding, _np_avg(mode)))  # fmt: skip
for _op in (max_pool, avg_pool):
    _op.cases(
        Case(_distinct((2, 3, 6, 4)), _PLAIN),
        Case(_distinct((2, 5, 7, 5)), _OVERLAP),
        Case(_distinct((1, 17, 9)), _GAPS),
        Case(_distinct((1, 2, 4, 4, 4)), {"kernel_size": 3, "stride": 1, "padding": 1}),
        Case(_distinct((1, 1, 1, 1)), {"kernel_size": 1}),
    )
avg_pool.cases(Case(_distinct((2, 5, 7, 5)), _OVERLAP | {"mode": "average"}))
avg_pool_grad.reference(_np_avg_grad)
avg_pool_grad.cases(
    Case(
        _distinct((2, 3, 3, 2), (2, 3, 6, 4)), {"kernel_size": (2, 2), "stride": (2, 2), "padding": (0, 0), "mode": "average"}
    ),
    Case(_distinct((2, 5, 4, 4), (2, 5, 7, 5)), _OVERLAP | {"mode": "average_count_exclude_padding"}),
)
max_pool_grad.reference(_np_max_grad)
max_pool_gather.reference(_np_max_gather)
max_pool_grad.cases(
    Case(_distinct((2, 3, 3, 2), (2, 3, 6, 4)), {"kernel_size": (2, 2), "stride": (2, 2), "padding": (0, 0)}),
    Case(_distinct((2, 5, 4, 4), (2, 5, 7, 5)), _OVERLAP),
)
max_pool_gather.cases(
    Case(_distinct((2, 3, 6, 4), (2, 3, 6, 4)), {"kernel_size": (2, 2), "stride": (2, 2), "padding": (0, 0)}),
    Case(_distinct((2, 5, 7, 5), (2, 5, 7, 5)), _OVERLAP),
)
