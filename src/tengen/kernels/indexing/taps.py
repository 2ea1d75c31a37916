"""Sampling: each result is a weighted sum of a few elements of an image, its taps, whose places are computed.

Interpolation, warping and aligned regions differ in where taps lie and what they weigh, which ops compute before; here is what
they share. Images are floats, or integers of up to 16 bits, which become floats as they are read. `TapSum` is a source, so the loop
nest is that of whoever asks for its values:

    for m, c, q, vector of q:
        v = weight[m, 0, q] * x[m, c, index[m, 0, q]]
        for t = 1, 2, ...: v = fma(weight[m, t, q], x[m, c, index[m, t, q]], v)
        out[m, c, q] = v

Where vectors go along channels, the index and the weight of each tap are loaded once for all channels of a pixel. Where these are few,
kernels of their own have rows in the lanes, if all have the same taps (`_rows`), or pixels (`tap_pixels.py`).
The value is linear in the image and in the weights. `scatter_taps` computes the gradient of the image, `TapProducts` summed over
channels is that of the weights. Their own gradients are these three again.

An index below 0 is a tap outside of the image: it counts as 0, whatever its weight. One beyond the last element reads the last.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from tengen.base.dtype import DType, int64
from tengen.kernels.axes import memory_order, store_at
from tengen.kernels.indexing.gather import in_range, place
from tengen.kernels.indexing.scatter import OWNED_ELEMENTS
from tengen.kernels.indexing.tap_pixels import launch_pixels
from tengen.kernels.lowering import Array, KernelBuilder, Lowering, product
from tengen.kernels.pointwise import pointwise
from tengen.kernels.source import At, Elementwise, Leaf, Literal, Source, broadcast
from tengen.kernels.squares import transpose_square
from tengen.loops.builder import as_expr
from tengen.loops.lang import (
    LANES,
    Expr,
    Index,
    as_int,
    cast,
    cdiv,
    const,
    equal,
    fma,
    maximum,
    minimum,
    select,
    splat,
)

MOST_TURNED_BYTES = 256 << 10  # of LANES rows of an image that lie transposed in scratch memory
UNROLLED_TAPS = 24  # taps that are written out one after the other; a loop goes through more


class _Tap(Source):
    """x[image[m], c, index[m, t, q]] at (m, c, t, q), as a number of `dtype`; 0 for an index below 0.

    Shapes: x (N, C, P); image (M) or None: m itself; index (M or 1, T, *Q), T and M of axes 0 and 1. Result: (M, C, T, *Q).
    """

    def __init__(self, x: Source, image: Source | None, index: Source, images: Index, dtype: DType):
        self.x, self.image, self.index, self.dtype = x, image, index, dtype
        self.shape = (images, x.shape[1], *index.shape[1:])

    def where(self, k: KernelBuilder, at: At, i: Expr) -> tuple[Index, Expr, Expr]:
        """(image, place in it, whether it is outside) of a tap with the index `i`, whatever its channel is."""
        i, m = k.let(cast(i, int64)), at.coord(0)
        if self.image is not None:
            of = place((at.coords[0],), 0 if at.vec == 0 else None, at.count)
            m = k.let(in_range(cast(self.image.at(k, of), int64), self.x.shape[0]))
        return m, k.let(maximum(minimum(i, as_expr(self.x.shape[2]) - 1), 0)), i < 0

    def read(self, k: KernelBuilder, at: At, where: tuple[Index, Expr, Expr | None]) -> Expr:
        """The tap at `at`, of which `where` is known; whether it is outside may be None: its weight says it."""
        m, inside, outside = where
        here = place((m, at.coords[1], inside), 1 if at.vec == 1 else None, at.count)
        wide = (lambda e: splat(e)) if at.lanes > 1 else (lambda e: e)
        v = wide(cast(self.x.at(k, here), self.dtype))
        return v if outside is None else select(wide(outside), const(0, self.dtype, v.lanes), v)

    def value(self, k, at):
        return self.read(k, at, self.where(k, at, self.index.at(k, beside(self.index, at))))


def beside(s: Source, at: At) -> At:
    """The place (m, t, *q) in `s`, of shape (M or 1, T, *Q), for the place (m, c, t, *q)."""
    vec = None if at.vec in (None, 1) else 0 if at.vec == 0 else at.vec - 1
    alone = as_int(s.shape[0]) == 1
    return place((0 if alone else at.coords[0], *at.coords[2:]), None if alone and vec == 0 else vec, at.count)


class TapSum(Source):
    """The weighted sum of taps, see the top of this file. Shapes as in `_Tap`; weight (M or 1, T, *Q). Result: (M, C, *Q) of the weights'
    dtype, which is x's unless that is one of integers."""

    leaves_image = True  # whether a tap may be outside of the image

    def __init__(self, x: Source, image: Source | None, index: Source, weight: Source, images: Index):
        self.weight, self.dtype = weight, weight.dtype
        self.tap = _Tap(x, image, index, images, self.dtype.compute)
        self.shape = (*self.tap.shape[:2], *index.shape[2:])
        self.taps = index.shape[1]

    def steady(self, k, at):
        """Along channels: where the taps lie, and their weights."""
        n = as_int(self.taps)
        if at.vec != 1 or n is None or n > UNROLLED_TAPS:
            return {}
        return {self._key(at): list(self._few(k, at))}

    def value(self, k, at):
        d, n = self.tap.dtype, as_int(self.taps)
        if n is not None and n <= UNROLLED_TAPS:
            total = const(0, d, at.lanes)
            for t, known in enumerate(at.steady.get(self._key(at)) or self._few(k, at)):
                v, w = self._tap(k, at, t, known)
                total = k.let(fma(w, v, total) if t else w * v)
            return cast(total, self.dtype)
        v, w = self._tap(k, at, 0)
        sum_ = k.var(k.let(w * v), name="sum")
        with k.loop(1, self.taps, name="tap") as t:
            v, w = self._tap(k, at, t)
            sum_.set(k.let(fma(w, v, sum_.value)))
        return cast(k.let(sum_.value), self.dtype)

    def rows_beside(self, k: KernelBuilder, q: Expr, channels: int) -> list[Expr]:
        """The sums of all channels for the result q, of the first LANES rows. Where taps lie and what they weigh is loaded once."""
        places, n, d = [At((0, c, q), 0) for c in range(channels)], as_int(self.taps), self.tap.dtype

        def terms(t: Index) -> list[tuple[Expr, Expr]]:
            known = self._known(k, places[0], t)
            return [self._tap(k, at, t, known) for at in places]

        if n is not None and n <= UNROLLED_TAPS:
            totals = [const(0, d, LANES)] * channels
            for t in range(n):
                totals = [k.let(fma(w, v, total) if t else w * v) for (v, w), total in zip(terms(t), totals)]
            return [k.let(cast(x, self.dtype)) for x in totals]
        sums = [k.var(k.let(w * v), name="sum") for v, w in terms(0)]
        with k.loop(1, self.taps, name="tap") as t:
            for sum_, (v, w) in zip(sums, terms(t)):
                sum_.set(k.let(fma(w, v, sum_.value)))
        return [k.let(cast(x.value, self.dtype)) for x in sums]

    def launch(self, lo, final, out, name):
        x = self.tap.x.array if isinstance(self.tap.x, Leaf) else None
        if x is None or self.tap.image is not None:
            return False
        if _rows_fit(lo, self, x, out):
            _rows(lo, self, x, final, out, name)
            return True
        return launch_pixels(lo, self, x, final, out, name)

    def _key(self, at: At) -> tuple:
        return (self, at.coords[0], *at.coords[2:])

    def _tap_at(self, at: At, t: Index) -> At:
        """The place of tap t."""
        vec = at.vec if at.vec is None or at.vec < 2 else at.vec + 1
        return place((*at.coords[:2], t, *at.coords[2:]), vec, at.count)

    def tap_at(self, k: KernelBuilder, at: At, t: Index) -> tuple[Expr, Expr]:
        """(index, weight) of tap t of the result at `at`."""
        there = self._tap_at(at, t)
        i = self.tap.index.at(k, beside(self.tap.index, there))
        return i, k.let(cast(self.weight.at(k, beside(self.weight, there)), self.tap.dtype))

    def each_tap(self, k: KernelBuilder, at: At) -> Iterator[tuple[Expr, Expr]]:
        """The same of all taps, whose number is known, one after the other."""
        return (self.tap_at(k, at, t) for t in range(as_int(self.taps) or 0))

    def _few(self, k: KernelBuilder, at: At) -> Iterator[tuple]:
        """Where each tap lies, and its weight."""
        return (self._located(k, at, t, i, w) for t, (i, w) in enumerate(self.each_tap(k, at)))

    def _known(self, k: KernelBuilder, at: At, t: Index) -> tuple:
        """The same of tap t."""
        return self._located(k, at, t, *self.tap_at(k, at, t))

    def _located(self, k: KernelBuilder, at: At, t: Index, i: Expr, w: Expr) -> tuple:
        """The same of tap t, whose index and weight are known. An integer without sign times the weight's zero is what 0 times the weight is,
        with its sign: where one weight is for all lanes, it says for them that a tap is outside."""
        m, inside, outside = self.tap.where(k, self._tap_at(at, t), i)
        if self.tap.x.dtype.kind == "u" and w.lanes == 1 and outside.lanes == 1:
            return (m, inside, None), k.let(select(outside, w * 0.0, w))
        return (m, inside, outside), w

    def _tap(self, k: KernelBuilder, at: At, t: Index, known: tuple | None = None) -> tuple[Expr, Expr]:
        """Tap t and its weight."""
        where, w = known or self._known(k, at, t)
        return self.tap.read(k, self._tap_at(at, t), where), splat(w) if at.lanes > 1 else w


def _rows_fit(lo: Lowering, s: TapSum, x: Array, out: Array) -> bool:
    """Whether the lanes of a vector are better rows (axis 0 of the image) than the few channels, or the pixels, of one: there are as many,
    a row and its result are dense, all have the same taps, and LANES rows fit a processor's L2."""
    rows, channels, pixels, results = (as_int(d) for d in (*x.shape, product(out.shape[2:])))
    if lo.target is None or not lo.target.hosts or None in (rows, channels, pixels, results) or len(out.shape) != 3:
        return False
    dense = all(as_int(a.strides[2]) == channels and (channels == 1 or as_int(a.strides[1]) == 1) for a in (x, out))
    alone = all(as_int(part.shape[0]) == 1 for part in (s.tap.index, s.weight))
    small = 0 < channels < LANES and channels * pixels * LANES * x.dtype.size <= MOST_TURNED_BYTES
    return dense and alone and small and rows >= LANES and results >= LANES and x.dtype.size <= 4


def _rows(lo: Lowering, s: TapSum, x: Array, final: Source, out: Array, name: str) -> None:
    """Launches out = `final`, a function of `s`, with rows in the lanes:

        for each piece = LANES rows of the image:
            turned[p, c, lanes] = x[rows, c, p]                      # squares, transposed in registers
            for LANES results q at a time:
                for each of them, and each channel c:
                    made[q, c, lanes] = final of the sum over t of weight[t, q] * turned[index[t, q], c, lanes]
                out[rows, c, q] = made[q, c, lanes]                  # transposed again
    """
    k = lo.kernel(name)
    rows, channels, pixels, results = (as_int(d) or 0 for d in (*x.shape, out.shape[2]))
    first = k.let(k.split(cdiv(rows, LANES)) * LANES)
    many = k.let(minimum(const(rows) - first, LANES))
    turned = k.scratch("turned", x.dtype, cdiv(pixels * channels, LANES) * LANES * LANES)
    start = lambda j: k.let(minimum(first + j, rows - 1) * x.strides[0] + x.offset)  # past the last row: that one again
    for i, count in k.vector_loop(0, pixels * channels, "column"):
        read = lambda j, i=i, count=count: k.load(k.read(x), start(j) + i, LANES, count)
        transpose_square(k, x.dtype, read, lambda j, v, i=i: k.store(turned, (i + j) * LANES, v), count is not None)
    k.local["turned"] = turned
    there = Array("turned", x.dtype, x.shape, (1, LANES, LANES * channels))
    inner = TapSum(Leaf(there), None, s.tap.index, s.weight, rows)
    made = k.scratch("made", out.dtype, LANES * LANES * channels)
    lines = k.scratch("lines", out.dtype, LANES * LANES * channels)
    for block, some in k.vector_loop(0, results, "block"):
        with k.loop(0, LANES if some is None else some, name="q") as q:
            for c, v in enumerate(inner.rows_beside(k, k.let(block + q), channels)):
                at = At((0, c, block + q), 0)
                at.memo[s] = v
                k.store(made, (q * channels + c) * LANES, final.at(k, at))
        for part in range(channels):
            read = lambda j, part=part: k.load(made, (j + part * LANES) * LANES, LANES)
            write = lambda j, v, part=part: k.store(lines, (j * channels + part) * LANES, v)
            transpose_square(k, out.dtype, read, write, some is not None)
        end = LANES * channels if some is None else some * channels
        with k.loop(0, many, name="row") as row:
            to = k.let((first + row) * out.strides[0] + block * channels + out.offset)
            for part in range(channels):
                left = None if some is None else end - part * LANES
                k.store(k.write(out), to + part * LANES, k.load(lines, (row * channels + part) * LANES, LANES), left)
    lo.launch(k)


class TapProducts(Source):
    """g[m, c, *q] times the tap (m, c, t, *q) of x, in the dtype that is computed with: summed over c, the gradient of a weight."""

    def __init__(self, x: Source, image: Source | None, index: Source, g: Source, images: Index):
        self.tap, self.g = _Tap(x, image, index, images, x.dtype.compute), g
        self.shape, self.dtype = self.tap.shape, self.tap.dtype

    def value(self, k, at):
        vec = None if at.vec == 2 else at.vec if at.vec is None or at.vec < 2 else at.vec - 1
        g = cast(self.g.at(k, place((*at.coords[:2], *at.coords[3:]), vec, at.count)), self.dtype)
        return self.tap.at(k, at) * (splat(g) if at.lanes > 1 else g)


def scatter_taps(
    lo: Lowering, image: Source | None, index: Source, weight: Source, g: Source, out: Array, name: str = "scatter_taps"
) -> None:
    """Launches out = zeros; then, in order of (m, q, t), out[image[m], c, index[m, t, q]] = fma(weight[m, t, q], g[m, c, q], itself).

    A piece owns one image and one channel, or OWNED_ELEMENTS channels where out is dense along them, and goes through all taps in
    order: the bits do not depend on who runs it. 16-bit floats are added in float32, and rounded once at the end.
    """
    target = out
    if out.dtype.compute is not out.dtype:
        target = lo.temp(out.dtype.compute, out.shape, memory_order(out))
    pointwise(lo, [broadcast(Literal(0, target.dtype), target.shape)], [target], f"{name}_base")
    if all(as_int(d) != 0 for d in [*out.shape, *index.shape, g.shape[0]]):
        _walk(lo, image, index, weight, g, target, name)
    if target is not out:
        pointwise(lo, [Elementwise(lambda v: cast(v, out.dtype), [Leaf(target)], out.shape, out.dtype)], [out], f"{name}_round")


def _walk(
    lo: Lowering, image: Source | None, index: Source, weight: Source, g: Source, target: Array, name: str
) -> None:
    """Launches the updates of `scatter_taps`."""
    k = lo.kernel(name)
    channels = as_expr(target.shape[1])
    dense = as_int(target.strides[1]) == 1 and as_int(channels) != 1
    width = OWNED_ELEMENTS if dense else 1
    blocks = as_expr(cdiv(channels, width))
    piece = k.split(as_expr(target.shape[0]) * blocks)
    n, first = k.let(piece // blocks), k.let(piece % blocks * width)

    def update(m: Index, q: Sequence[Expr], t: Expr) -> None:
        there = At((m, 0, t, *q))
        i = k.let(cast(index.at(k, beside(index, there)), int64))
        with k.if_(i >= 0):
            to = k.let(minimum(i, as_expr(target.shape[2]) - 1))
            w = k.let(cast(weight.at(k, beside(weight, there)), target.dtype))
            if not dense:
                return add(At((n, first, to)), At((m, first, *q)), w)
            for c, count in k.vector_loop(first, minimum(channels, first + width), "c"):
                add(At((n, c, to), 1, count), At((m, c, *q), 1, count), w)

    def add(at: At, of: At, w: Expr) -> None:
        v = cast(g.at(k, of), target.dtype)
        k.write(target)  # declared as an output first: it is read, too
        old = at.load(k, target)
        wide = (lambda e: splat(e)) if at.lanes > 1 else (lambda e: e)
        store_at(k, target, at, fma(wide(w), wide(v), old))

    def taps(m: Index) -> None:
        with contextlib.ExitStack() as loops:
            q = [loops.enter_context(k.loop(0, d, name="q")) for d in index.shape[2:]]
            t = loops.enter_context(k.loop(0, index.shape[1], name="tap"))
            update(m, q, t)

    if image is None:
        taps(n)
    else:
        with k.loop(0, g.shape[0], name="m") as m:
            of = k.let(in_range(cast(image.at(k, At((m,))), int64), target.shape[0]))
            with k.if_(equal(of, n)):
                taps(m)
    lo.launch(k)
