"""Copies of images for contractions: channels-last (`image`), and with zeros around and between the pixels (`padded`).

    for each row of the larger image:
        zeros, then a row of pixels, then zeros          # or zeros alone, above and below the image
"""

from __future__ import annotations

from collections.abc import Sequence

from tengen.base.dtype import bool_
from tengen.kernels.axes import unflatten
from tengen.kernels.lowering import Array, Lowering, product
from tengen.kernels.pointwise import PIECE_ELEMENTS, copy, pointwise
from tengen.kernels.source import Literal
from tengen.loops.builder import as_expr
from tengen.loops.lang import LANES, Expr, Index, as_int, cdiv, const, maximum, minimum


def has_rows(x: Array) -> bool:
    """Whether a row of pixels is one run of memory, with channels inside of pixels."""
    return x.strides[-1] == x.shape[1] and x.strides[1] == 1


def with_halo(lo: Lowering, x: Array, out: Array, before: Sequence[Index], name: str = "pad") -> None:
    """out = x at `before` pixels from its first one, zeros elsewhere.

    Shapes: x (N, C, *S), out (N, C, *T) with T >= before + S; both have rows (`has_rows`)
    """
    k = lo.kernel(name)
    outer = (out.shape[0], *out.shape[2:-1])
    run, inner = as_expr(out.shape[-1] * out.shape[1]), as_expr(x.shape[-1] * x.shape[1])
    first = as_expr(before[-1] * x.shape[1])
    rows = as_expr(product(outer))
    some = maximum(const(1), PIECE_ELEMENTS // maximum(run, 1))
    piece = k.split(cdiv(rows, some))
    src, dst = k.read(x), k.write(out)

    def zeros(at, start, stop) -> None:
        for i, count in k.vector_loop(start, stop):
            k.store(dst, at + i, const(0, out.dtype, LANES), count)

    with k.loop(piece * some, minimum(rows, piece * some + some), name="row") as r:
        n, *space = unflatten(k, r, outer)
        at = k.let(as_expr(out.index((n, 0, *space, 0))))
        inside = const(True, bool_)
        pixel = []
        for c, b, d in zip(space, before, x.shape[2:]):
            i = k.let(as_expr(c) - b)
            inside = inside & (i >= 0) & (i < d)
            pixel.append(i)
        inside = k.let(inside)
        with k.if_(inside):
            here = k.let(as_expr(x.index((n, 0, *pixel, 0))))
            zeros(at, 0, first)
            for i, count in k.vector_loop(0, inner):
                k.store(dst, at + first + i, k.load(src, here + i, LANES, count), count)
            zeros(at, first + inner, run)
        with k.else_():
            zeros(at, 0, run)
    lo.launch(k)


def padded(lo: Lowering, x: Array, before: tuple[Index, ...], extents: tuple[Index, ...], step: tuple[int, ...]) -> Array:
    """A channels-last copy of image `x` with its pixels at before + i * step in a larger image of zeros."""
    n = len(extents)
    t = lo.temp(x.dtype, (x.shape[0], x.shape[1], *extents), [0, *range(2, n + 2), 1])
    if all(s == 1 for s in step) and all(isinstance(b, int) and b >= 0 for b in before) and has_rows(x):
        with_halo(lo, x, t, before)
        return t
    pointwise(lo, [Literal(0, x.dtype)], [t], "zero")
    first, count = [], []
    for b, e, s, d in zip(before, extents, step, x.shape[2:]):
        if isinstance(b, int) and b >= 0:
            first.append(0)
            count.append(d)
        else:  # a crop: pixels that fall outside the image are left out
            lo_i = maximum(0 * d + 0, (0 - b + s - 1) // s) if isinstance(d, Expr) else max(0, -(b // s))
            last = (e - 1 - b) // s + 1
            hi = minimum(last, d) if isinstance(last, Expr) or isinstance(d, Expr) else min(last, d)
            first.append(lo_i)
            count.append(hi - lo_i)
    offset = t.offset
    for axis, (b, f, s) in enumerate(zip(before, first, step)):
        offset = offset + (b + f * s) * t.strides[axis + 2]
    shape = (*x.shape[:2], *count)
    inner = Array(t.id, t.dtype, shape, (*t.strides[:2], *(st * s for st, s in zip(t.strides[2:], step))), offset)
    start = x.offset
    for axis, f in enumerate(first):
        start = start + f * x.strides[axis + 2]
    copy(lo, Array(x.id, x.dtype, shape, x.strides, start), inner, "pad")
    return t


def image(lo: Lowering, x: Array) -> Array:
    """The image; where its channels are not dense, a channels-last copy."""
    if as_int(x.strides[1]) == 1 or as_int(x.shape[1]) == 1:
        return x

    def make() -> Array:
        t = lo.temp(x.dtype, x.shape, [0, *range(2, x.ndim), 1])
        copy(lo, x, t, "channels_last")
        return t

    return lo.once(x, "channels_last", make)
