"""Pooling over any number of spatial axes: reductions over sliding windows, and their adjoints.

N batch, C channels, S spatial extents of the image, P of the output, K of the window.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np

from tengen.base.dtype import int32
from tengen.base.errors import DTypeError, ShapeError
from tengen.ir.types import Dim, TensorType
from tengen.kernels.arg import arg_reduce
from tengen.kernels.axes import memory_order
from tengen.kernels.lowering import Array, contiguous_strides, product
from tengen.kernels.pointwise import copy, pointwise
from tengen.kernels.reduce import reduce
from tengen.kernels.source import At, Elementwise, Leaf, Literal, Source
from tengen.loops.lang import Expr, as_int, cast, const, equal, maximum, minimum, not_equal, select, splat
from tengen.ops.conv import out_extent, per_axis
from tengen.ops.define import Case, primitive, with_epilogue

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
    if min(k) < 1 or min(a["stride"]) < 1 or any(p < 0 or 2 * p > kk for p, kk in zip(a["padding"], k)):
        raise ShapeError(f"kernel_size and stride must be positive, padding at most half the kernel: {a}")
    return a | more


def _infer(x: TensorType, kernel_size, stride, padding, **_) -> TensorType:
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


def _windows(lo, x: Array, out_space, fill, kernel_size, stride, padding) -> Array:
    """The image, with its halo of `fill`, as (N, C, *P, *K)."""
    if any(padding):
        extents = tuple(s + 2 * p for s, p in zip(x.shape[2:], padding))
        t = lo.temp(x.dtype, (*x.shape[:2], *extents), memory_order(x))
        pointwise(lo, [Literal(fill, x.dtype)], [t], "fill")
        offset = t.offset
        for axis, p in enumerate(padding):
            offset = offset + p * t.strides[axis + 2]
        copy(lo, x, Array(t.id, t.dtype, x.shape, t.strides, offset), "pad")
        x = t
    space = x.strides[2:]
    strides = (*x.strides[:2], *(s * st for s, st in zip(space, stride)), *space)
    return Array(x.id, x.dtype, (*x.shape[:2], *out_space, *kernel_size), strides, x.offset)


def _computed(a: Array) -> Source:
    d = a.dtype.compute
    return Leaf(a) if a.dtype is d else Elementwise(lambda v: cast(v, d), [Leaf(a)], a.shape, d)


def _lowest(d):
    return float("-inf") if d.is_float else -(1 << (d.bits - 1)) if d.kind == "i" else 0


@primitive
def max_pool(inp: Tensor, kernel_size, stride=None, padding=0) -> Tensor:
    """The largest element of each window; padding never wins. The gradient goes to the first largest one.

    Shapes: (N, C, *S) -> (N, C, *P), P = (S + 2 padding - kernel_size) // stride + 1; stride is the kernel's size by default
    """


max_pool.canon(_canon)
max_pool.infer(_infer)
max_pool.layout(_layout)


@with_epilogue(max_pool)
def _(lo, ins, outs, epilogue, kernel_size, stride, padding):
    out, n = outs[0], len(kernel_size)
    w = _windows(lo, ins[0], out.shape[2:], _lowest(ins[0].dtype), kernel_size, stride, padding)
    reduce(lo, "max", _computed(w), out, tuple(range(n + 2, 2 * n + 2)), epilogue, name="max_pool")


@max_pool.vjp
def _(g, x, **a):
    return max_pool_grad(g, x, **a)


@primitive
def avg_pool(inp: Tensor, kernel_size, stride=None, padding=0, mode: str = "average_count_exclude_padding") -> Tensor:
    """The mean of each window: over the pixels inside the image, or with mode="average" over all, padding counted as zeros.

    Shapes: (N, C, *S) -> (N, C, *P), P = (S + 2 padding - kernel_size) // stride + 1; stride is the kernel's size by default
    """


@avg_pool.canon
def _(types, kernel_size, stride, padding, mode):
    if mode not in ("average", "average_count_exclude_padding"):
        raise ShapeError(f"mode={mode!r} must be 'average' or 'average_count_exclude_padding'")
    return _canon(types, kernel_size, stride, padding) | {"mode": mode}


@avg_pool.infer
def _(x, **a):
    if not x.dtype.is_float:
        raise DTypeError(f"does not take {x.dtype}; help: cast it with .astype('float32')")
    return _infer(x, **a)


avg_pool.layout(_layout)


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
    out, n = outs[0], len(kernel_size)
    space = ins[0].shape[2:]
    w = _windows(lo, ins[0], out.shape[2:], 0, kernel_size, stride, padding)

    def finish(k, v, at):
        return cast(v / _window_count(at, space, kernel_size, stride, padding, mode, v.dtype), out.dtype)

    reduce(lo, "add", _computed(w), out, tuple(range(n + 2, 2 * n + 2)), finish, name="avg_pool")


@avg_pool.vjp
def _(g, x, **a):
    return avg_pool_grad(g, x, **a)


def _float_grad(g: TensorType):
    if not g.dtype.is_float:
        raise DTypeError(f"a gradient is a float tensor, got {g}")
    return g.dtype


class _Adjoint(Source):
    """For pixel s and window offset k: what the window that has pixel s at offset k gives back, zero where there is none.
    Axes (N, C, *S, *K)."""

    def __init__(self, give, out_space, shape, kernel_size, stride, padding, dtype):
        self.give, self.out_space, self.stride, self.padding = give, out_space, stride, padding
        self.shape, self.dtype, self.n = (*shape, *kernel_size), dtype, len(kernel_size)

    def value(self, k, at):
        n = self.n
        inside: Expr | None = None
        place: list[Dim] = []
        for axis in range(n):
            t = at.coords[2 + axis] + self.padding[axis] - at.coords[2 + n + axis]
            if at.vec in (2 + axis, 2 + n + axis):
                t = at.coord(2 + axis) + self.padding[axis] - at.coord(2 + n + axis)
            t = t if isinstance(t, Expr) else const(t)
            st, extent = self.stride[axis], self.out_space[axis]
            safe = maximum(t, const(0))
            q = safe // st
            last = (extent if isinstance(extent, Expr) else const(extent)) - 1
            ok = (t >= 0) & (q <= last)
            if st > 1:
                ok = ok & equal(safe % st, 0)
            inside = ok if inside is None else inside & ok
            place.append(k.let(minimum(q, last)))
        vec = at.vec if at.vec in (0, 1) else None
        where = At((at.coords[0], at.coords[1], *place), vec, at.count)
        where.count = at.count if where.lanes > 1 else None
        v = self.give(k, where, [at.coord(2 + n + a) for a in range(n)])
        return select(inside, v, const(0, self.dtype))  # type: ignore[arg-type]


def _scatter_windows(lo, out: Array, give, out_space, kernel_size, stride, padding, d, epilogue) -> None:
    n = len(kernel_size)
    source = _Adjoint(give, out_space, out.shape, kernel_size, stride, padding, d)
    reduce(lo, "add", source, out, tuple(range(n + 2, 2 * n + 2)), epilogue, name="unpool")


@primitive
def avg_pool_grad(grad: Tensor, like: Tensor, kernel_size, stride, padding, mode: str) -> Tensor:
    """The gradient of `avg_pool`: each pixel collects its share of every window it is in. Only the type of `like` is used."""


avg_pool_grad.canon(avg_pool.rules["canon"])

avg_pool_grad.infer(_infer_adjoint)
avg_pool_grad.layout(_layout)


@with_epilogue(avg_pool_grad)
def _(lo, ins, outs, epilogue, kernel_size, stride, padding, mode):
    g, out = ins[0], outs[0]
    space, d = out.shape[2:], g.dtype.compute

    def give(k, at, offsets):
        return cast(at.load(k, g), d) / _window_count(at, space, kernel_size, stride, padding, mode, d)

    _scatter_windows(lo, out, give, g.shape[2:], kernel_size, stride, padding, d, epilogue)


@avg_pool_grad.vjp
def _(gg, g, like, **a):
    return avg_pool(gg, **a), None


@primitive
def max_pool_grad(grad: Tensor, inp: Tensor, kernel_size, stride, padding) -> Tensor:
    """The gradient of `max_pool`: each pixel collects the gradients of the windows of which it is the first largest element."""


max_pool_grad.canon(_canon)

max_pool_grad.infer(_infer_adjoint)


@max_pool_grad.layout
def _(arrays, out, **a):
    return memory_order(arrays[1])


def _first_largest(lo, x: Array, g: Array, kernel_size, stride, padding) -> Array:
    """Which position of each window holds the first largest element."""
    n = len(kernel_size)
    order = memory_order(x)
    index = lo.temp(int32, g.shape, order)
    w = _windows(lo, x, g.shape[2:], _lowest(x.dtype), kernel_size, stride, padding)
    arg_reduce(lo, "max", _computed(w), index, tuple(range(n + 2, 2 * n + 2)))
    return index


DIRECT = 16  # pixels of a window, up to which windows that do not overlap are handled in registers


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
    first = Elementwise(winner, [_computed(pixel(x, p)) for p in places], shape, int32)
    grad = _computed(g)
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


@with_epilogue(max_pool_grad)
def _(lo, ins, outs, epilogue, kernel_size, stride, padding):
    g, x, out = ins[0], ins[1], outs[0]
    if stride == kernel_size and not any(padding) and product(kernel_size) <= DIRECT:
        return _unpool_apart(lo, g, x, out, epilogue, kernel_size)
    index = _first_largest(lo, x, g, kernel_size, stride, padding)
    d = g.dtype.compute

    def give(k, at, offsets):
        flat: Expr = const(0)
        for o, size in zip(offsets, kernel_size):
            flat = flat * size + o
        return select(equal(at.load(k, index), cast(flat, int32)), cast(at.load(k, g), d), const(0, d))

    _scatter_windows(lo, out, give, g.shape[2:], kernel_size, stride, padding, d, epilogue)


@max_pool_grad.vjp
def _(gg, g, x, **a):
    return (lambda: max_pool_gather(gg, x, **a)), None


@primitive
def max_pool_gather(values: Tensor, inp: Tensor, kernel_size, stride, padding) -> Tensor:
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
    index = _first_largest(
        lo, x, Array(None, out.dtype, out.shape, contiguous_strides(out.shape)), kernel_size, stride, padding
    )
    w = _windows(lo, v, out.shape[2:], 0, kernel_size, stride, padding)

    class Chosen(Source):
        shape, dtype = w.shape, out.dtype.compute

        def value(self, k, at):
            flat: Expr = const(0)
            for a, size in enumerate(kernel_size):
                flat = flat * size + at.coord(2 + n + a)
                here = At(at.coords[: n + 2], at.vec if at.vec is not None and at.vec < n + 2 else None, at.count)
            here.count = at.count if here.lanes > 1 else None
            hit = equal(here.load(k, index), cast(flat, int32))
            return select(hit, cast(at.load(k, w), self.dtype), const(0, self.dtype))

    reduce(lo, "add", Chosen(), out, tuple(range(n + 2, 2 * n + 2)), name="max_pool_gather")


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
