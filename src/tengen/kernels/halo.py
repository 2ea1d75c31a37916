"""A channels-last image with zeros around it, in one pass: each row of pixels is a run of memory, copied between two runs of zeros."""

from __future__ import annotations

from collections.abc import Sequence

from tengen.base.dtype import bool_
from tengen.kernels.axes import unflatten
from tengen.kernels.lowering import Array, Lowering, product
from tengen.kernels.pointwise import GRAIN
from tengen.loops.builder import as_expr
from tengen.loops.lang import LANES, Index, cdiv, const, maximum, minimum


def has_rows(x: Array) -> bool:
    """Whether the pixels of a row lie one after the other, channels inside."""
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
    some = maximum(const(1), GRAIN // maximum(run, 1))
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
