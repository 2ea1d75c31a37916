"""Packing rows of `a` that reach over the border of an image: what lies outside is zeros, and no image with a halo is made.

    move:  for each position of the outer side:                 # rows where packed rows are dense along k, else positions of k
               offsets[position], pixels[axis][position] = where it lies in memory, and in the image
    copy:  for each run of the inner side, dense in memory:     # channels, with the pixels of a row where these are dense too
               for each position of the outer side:
                   packed[...] = zeros before the image, the elements inside, zeros after it

In: a `Problem` with a `Border`. Out: packed rows in scratch memory, as `packing.copy_rows` makes them.
"""

from __future__ import annotations

from tengen.base.dtype import bool_, int64
from tengen.kernels.axes import unflatten
from tengen.kernels.contraction.groups import joined, pad_rows
from tengen.kernels.contraction.prefetch import line_vectors
from tengen.kernels.contraction.problem import Axis, Border, Problem, extents
from tengen.kernels.contraction.tile import MOST_PIECE_BLOCKS, Tile
from tengen.kernels.lowering import KernelBuilder
from tengen.loops.builder import as_expr
from tengen.loops.lang import LANES, Expr, Index, as_int, cast, cdiv, const, maximum, minimum, ramp, select
from tengen.loops.statements import Buffer

Range = tuple[Expr, Expr]


class BorderRows:
    """Copies rows in one kernel: `move` once for each piece and chunk, `copy` for each block of rows."""

    def __init__(self, k: KernelBuilder, p: Problem, t: Tile, border: Border):
        self.k, self.p, self.t, self.border = k, p, t, border
        self.part: Expr | None = None  # which of its group what is copied is
        self.outer, self.inner = (p.m, p.k) if t.along_k else (p.k, p.m)
        most = t.block * MOST_PIECE_BLOCKS if t.along_k else p.chunks.longest
        self.offsets = k.scratch("offsets", int64, most)
        self.pixels = [k.scratch("pixels", int64, most) for _ in border.space]
        self.start: Expr = const(0)
        self._split()

    def _split(self) -> None:
        """Parts the inner axes into those walked run by run and a run: channels, together with the pixels of a row where these
        are dense. `clipped` is the spatial axis that the run moves along, `scale` its elements for a pixel."""
        rest, run = list(self.inner), list[Axis]()
        self.clipped: int | None = None
        self.scale: Index = 1
        self.step: Index = 0
        if rest and rest[-1].pixel is None:
            run = [rest.pop()]
            self.scale, self.step = run[0].extent, run[0].a
        if rest and rest[-1].pixel is not None and as_int(rest[-1].pixel[1]) == 1:
            if not run or rest[-1].a == run[0].extent * run[0].a:
                self.clipped, self.step = rest[-1].pixel[0], self.step if run else rest[-1].a
                run.insert(0, rest.pop())
        self.rest = rest
        self.run = as_expr(1)
        for x in run:
            self.run = self.run * x.extent

    def move(self, g: list[Index], base: Expr, span: Range) -> None:
        """Fills the tables for the flat positions `span` of the outer side, counting as an odometer does."""
        k, n = self.k, extents(self.outer)
        first = list(self.border.first)
        for c, x in zip(g, self.p.g):
            if x.pixel is not None:
                first[x.pixel[0]] = first[x.pixel[0]] + c * x.pixel[1]
        self.start = span[0]
        now = [k.var(as_expr(c)) for c in unflatten(k, span[0], n)]
        with k.loop(*span) as r:
            at, pixel = base, list(first)
            for c, x in zip(now, self.outer):
                at = at + c.value * x.a
                if x.pixel is not None:
                    pixel[x.pixel[0]] = pixel[x.pixel[0]] + c.value * x.pixel[1]
            k.store(self.offsets, r - span[0], at)
            for table, y in zip(self.pixels, pixel):
                k.store(table, r - span[0], as_expr(y))
            carry: Expr = const(1)
            for c, d in reversed(list(zip(now, n))):
                up = k.let(c.value + carry)
                over = k.let(up >= d)
                c.set(select(over, const(0), up))
                carry = k.let(select(over, const(1), const(0)))

    def copy(self, ms: Range, ks: Range, dst: Buffer) -> None:
        """Rows `ms`, positions `ks`, to scratch memory with the tile's pitch."""
        k, (outer, inner) = self.k, (ms, ks) if self.t.along_k else (ks, ms)
        with k.loop(k.let(inner[0] // self.run), k.let(cdiv(inner[1], self.run)), name="run") as q:
            first = k.let(q * self.run)
            span = k.let(maximum(inner[0] - first, 0)), k.let(minimum(inner[1] - first, self.run))
            at: Expr = const(0)
            moved: list[Index] = [0] * len(self.pixels)
            for c, x in zip(unflatten(k, q, extents(self.rest)), self.rest):
                at = at + c * x.a
                if x.pixel is not None:
                    moved[x.pixel[0]] = moved[x.pixel[0]] + c * x.pixel[1]
            at, moved = k.let(at), [k.let(as_expr(m)) for m in moved]
            with k.loop(*outer, name="row") as r:
                row, group = r - outer[0], self.p.format.group
                self.part = k.let(row % group) if group > 1 and not self.t.along_k else None
                if self.part is not None:
                    row = row // group
                there = k.let(row * self.t.pitch + (first - inner[0]))
                self._run(r, at, moved, span, dst, there)
        if self.t.along_k:
            pad_rows(k, self.p, self.t, ms, ks, dst)

    def _run(self, r: Expr, at: Expr, moved: list[Index], span: Range, dst: Buffer, there: Expr) -> None:
        """One run of one outer position: its elements `span`, those outside of the image zeros."""
        k, i = self.k, r - self.start
        here = k.let(k.load(self.offsets, i) + at)
        inside, low, high = const(True, bool_), span[0], span[1]
        for axis, (table, m, space) in enumerate(zip(self.pixels, moved, self.border.space)):
            pixel = k.let(k.load(table, i) + m)
            if axis == self.clipped:
                low = k.let(maximum(low, 0 - pixel * self.scale))
                high = k.let(minimum(high, (space - pixel) * self.scale))
            else:
                inside = inside & (pixel >= 0) & (pixel < space)
        inside = k.let(inside)
        with k.if_(inside & (low <= span[0]) & (high >= span[1])):
            self._elements(here, span, dst, there, line_vectors(dst.dtype) if self.t.along_k else 1)
        with k.else_():
            low = k.let(select(inside, minimum(low, span[1]), span[1]))
            high = k.let(maximum(high, low) if self.clipped is not None else span[1])
            self._elements(None, (span[0], low), dst, there)
            self._elements(here, (low, high), dst, there)
            self._elements(None, (high, span[1]), dst, there)

    def _elements(self, here: Expr | None, span: Range, dst: Buffer, there: Expr, several: int = 1) -> None:
        """Elements from `here` on, or zeros, `several` vectors at a time. Along k, vectors may write past the end: what lies there is
        written later."""
        k, p = self.k, self.p
        for i, count in k.vector_loop(*span, several=several):
            stored = dst.dtype if self.part is None else p.format.storage
            x = const(0, p.a.dtype if p.biased else stored, LANES)
            if here is not None:
                index = here + i if as_int(self.step) == 1 else ramp() * self.step + (here + i * self.step)
                x = k.load(k.read(p.a), index, LANES, count)
            x = p.stored(x, "a") if p.biased else cast(x, stored)
            if self.part is not None:
                x = joined(k, p, dst, there + i, x, self.part)
            # along k: packed[row r][k i ..] = window[r, i ..]; along m: packed[k r][row i ..] = window[i .., r]
            k.store(dst, there + i, x, None if self.t.along_k else count)
