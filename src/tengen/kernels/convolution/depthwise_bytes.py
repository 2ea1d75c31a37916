"""Depthwise convolutions of integers of 8 bits: some rows of a column of the filter are one dot product, four of bytes, or two of int16.

    for tile of neighbouring results, LANES channels c:                 # pieces and rows: see `depthwise.py`
        for group of up to four (two) rows of the filter:
            column[x] = the elements of these rows at pixel x, in each lane      # for all columns that the tile reads
            for position tx of the filter along a row:
                acc[i] = dot(acc[i], column[i * sx + tx], weights[group, tx])

A column is joined once and used by all results that read it, so that a filter of 3x3 takes three (six) dot products and about one
joining of three vectors for each result. Sums are exact, so this has the bits of products one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import or_

from tengen.base.dtype import bool_, int32, uint32
from tengen.kernels.contraction.formats import BIAS_IN_BYTES, DotFormat
from tengen.kernels.contraction.groups import widened
from tengen.kernels.convolution.depthwise import Phase, StencilKernel, Tap
from tengen.kernels.lowering import Array, Lowering
from tengen.kernels.machine import machine
from tengen.loops.builder import as_expr
from tengen.loops.lang import LANES, Expr, as_int, bitcast, cast, cdiv, const, maximum, minimum, select


def fits(lo: Lowering, image: Array, out: Array, format: DotFormat) -> bool:
    """Whether four bytes, or two int16, are multiplied at a time, also where they differ from lane to lane, and rows and columns are known."""
    quick = format.group > 1 and format.total is int32 and (lo.target is None or lo.target.computes(format.op, at_once=True))
    quick = quick and (format.group == 4 or machine(lo.target)[0] > int32.size)
    return quick and None not in map(as_int, (*image.shape[2:], *out.shape[2:]))


def depthwise_bytes(
    lo: Lowering, src: Array, weights: Array, out: Array, phase: Phase, step: tuple[int, int], epilogue, format: DotFormat
) -> None:
    """What `depthwise.stencil` computes, for one phase and integers of 8 bits.

    Shapes: src (N, C, H, W), out (N, C, P, Q), dense along C; weights (T, C), dense, int8
    """
    if any(as_int(d) == 0 for d in out.shape):
        return
    groups = _groups(phase.taps, format.group)
    packed = _packed(lo, weights, list(groups.values()), format)
    _Bytes(lo, src, packed, out, epilogue, step, groups, format).write([phase])


Group = tuple[tuple[int, ...], int]  # rows of the filter, by where they lie below the result, and a column


def _groups(taps: Sequence[Tap], size: int) -> dict[Group, list[Tap]]:
    """Taps by group: those of up to `size` rows of one column."""
    rows = sorted({t.y for t in taps})
    found: dict[Group, list[Tap]] = {}
    for first in range(0, len(rows), size):
        some = tuple(rows[first : first + size])
        for x in sorted({t.x for t in taps}):
            found[some, x] = sorted((t for t in taps if t.y in some and t.x == x), key=lambda t: t.y)
    return found


def _joined(format: DotFormat, parts: Sequence[Expr]) -> Expr:
    """A group of elements, as they are stored; those that are missing are zeros."""
    bits = format.storage.bits
    return reduce(or_, (widened(x) << const(bits * j, uint32) if j else widened(x) for j, x in enumerate(parts)))


def _packed(lo: Lowering, w: Array, groups: Sequence[Sequence[Tap]], format: DotFormat) -> Array:
    """The weights as (1 + groups, C) of groups. The first row is what sums begin with where 128 is added to pixels, or taken off."""
    channels = w.shape[1]

    def make() -> Array:
        t = lo.temp(uint32, (len(groups) + 1, channels))
        k = lo.kernel("depthwise_groups")
        c = k.let(k.split(cdiv(channels, LANES)) * LANES)
        count, src, dst = k.let(minimum(as_expr(channels - c), LANES)), k.read(w), k.write(t)
        total = const(0, format.total, LANES)
        for q, taps in enumerate(groups):
            value = k.let(_joined(format, [cast(k.load(src, w.index((tap.weight, c)), LANES, count), format.second) for tap in taps]))
            k.store(dst, t.index((q + 1, c)), value, count)
            total = k.let(format.multiply_add(const(BIAS_IN_BYTES, uint32, LANES), value, total))
        k.store(dst, t.index((0, c)), bitcast(const(0, format.total, LANES) - total, uint32), count)
        lo.launch(k)
        return t

    how = ("depthwise_groups", format, tuple(tuple(t.weight for t in taps) for taps in groups))
    return lo.once(w, how, make)


class _Bytes(StencilKernel):
    def __init__(self, lo: Lowering, src: Array, weights: Array, out: Array, epilogue, step, groups: dict[Group, list[Tap]], format):
        super().__init__(lo, src, weights, out, epilogue, step, (1, 1), "depthwise", format.total)
        self.groups, self.format, self.biased = groups, format, format.biases(src.dtype)
        self.element = src.dtype if self.biased else format.storage  # of a group

    def tile(self, p: Phase, y: Expr, x: Expr, n: int, known: int | None = None) -> None:
        """See `StencilKernel.tile`."""
        k, wide, sx = self.k, as_int(self.src.shape[3]) or 0, self.step_in[1]
        outside = lambda column: known is not None and not 0 <= known * sx + column < wide
        for c, count in self.each_channel():
            self.prefetch(p, y, x, n, c)
            weight = lambda q, c=c, count=count: k.load(k.read(self.weights), self.weights.index((q, c)), LANES, count)
            begin = bitcast(weight(0), self.compute) if self.biased else const(0, self.compute, LANES)
            acc = [k.var(begin, name="acc") for _ in range(n)]
            for rows in dict.fromkeys(rows for rows, _ in self.groups):
                taps = [(column, weight(q + 1)) for q, (some, column) in enumerate(self.groups) if some == rows]
                self.rows(rows, taps, acc, y, x, c, count, outside)
            for i, v in enumerate(acc):
                self.store(p, v.value, y, x + i, c, count)

    def rows(self, rows: Sequence[int], taps, acc: list, y: Expr, x: Expr, c: Expr, count: Expr | None, outside) -> None:
        """Adds the products of one group of rows; those that the image does not have are zeros."""
        k, (sy, sx), src, last = self.k, self.step_in, self.k.read(self.src), as_expr(self.src.shape[2] - 1)
        numbers = [k.let(y * sy + row) for row in rows]
        there = [k.let(self.within(number, 2)) for number in numbers]

        def add(complete: bool) -> None:
            seen: dict[int, Expr] = {}
            lines = [number if complete else minimum(maximum(number, 0), last) for number in numbers]
            bases = [k.let(self.at(line, x * sx, c)) for line in lines]

            def column(at: int) -> Expr:
                if outside(at):
                    return const(BIAS_IN_BYTES if self.biased else 0, uint32, LANES)
                zero, parts = const(0, self.src.dtype, LANES), []
                for base, flag in zip(bases, there):
                    v = k.load(src, base + at * self.src.strides[3], LANES, count)
                    parts.append(cast(v if complete else select(flag, v, zero), self.element))
                value = _joined(self.format, parts)
                return k.let(value ^ const(BIAS_IN_BYTES, uint32, LANES) if self.biased else value)

            sums = [a.value for a in acc]
            for i in range(len(acc)):
                for tx, w in taps:
                    at = i * sx + tx
                    if at not in seen:
                        seen[at] = column(at)
                    sums[i] = k.let(self.format.multiply_add(seen[at], w, sums[i]))
            for a, v in zip(acc, sums):
                a.set(v)

        every: Expr = const(True, bool_)
        for flag in there:
            every = every & flag
        with k.if_(k.let(every)):
            add(True)
        with k.else_():
            add(False)


