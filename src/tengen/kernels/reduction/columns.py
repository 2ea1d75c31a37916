"""Folds with vectors across rows: LANES neighbouring rows fill a vector, and each of a row's 16 lanes is a vector of its own.

    for block of `width` neighbouring rows:                    # neighbours along the frame's last kept axis
        for chunk of the reduced axes:
            for position r of the chunk, in order:
                for vector j of the block's rows:
                    lanes[r mod 16][j] = step(lanes[r mod 16][j], source[r, rows j])      # one load of 16 neighbours
            for vector j: total[j] = join(total[j], tree of lanes[0..15][j])

This is the way to sum the columns of a matrix that is stored row by row. The lanes of a block are scratch memory that stays in
L1. Two cases have less code: short rows, whose elements are written out and folded in registers (`unrolled`), and matrices of
few columns, 16 rows of which are whole vectors in memory (`flat`). The order of every operation is that of `folding.py`.

In: a `Fold`, a `Frame` with `across`. Out: code inside a kernel, and the rows' states in scratch memory.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from tengen.kernels import numerics
from tengen.kernels.axes import unflatten
from tengen.kernels.lowering import Array, KernelBuilder, product
from tengen.kernels.machine import ENOUGH_PIECES, PAGE_BYTES
from tengen.kernels.reduction.folding import (
    LANE_UNROLLED_ELEMENTS,
    UNROLLED_COSTLY_ELEMENTS,
    UNROLLED_ELEMENTS,
    Fold,
    State,
    in_registers,
    spread,
    tree,
)
from tengen.kernels.reduction.frame import Frame
from tengen.kernels.source import At, Elementwise, Leaf, Literal, Source, children, costs
from tengen.loops.builder import as_expr
from tengen.loops.lang import LANES, Expr, Index, as_int, cdiv, maximum, minimum, ramp, select, splat
from tengen.loops.statements import Buffer

PREFETCHED_ELEMENTS = 3  # how many elements of a row ahead are prefetched, where each lies on a page of its own
MOST_FLAT_COLUMNS = 24  # columns, at most, of a dense table that is folded as whole vectors: so many accumulators fit registers


class Columns:
    """Folds blocks of up to `width` rows that are neighbours along the frame's last kept axis.

    Attributes:
        total: scratch memory, one buffer for each part of the state. `total[j]` is the state of row j over the chunks so far.
        lanes: scratch memory likewise: `lanes[l * width + j]` is lane l of row j in the current chunk. Empty if `unrolled`.
        flat: the source along one flat axis, if 16 rows of it are `width` whole vectors in memory; else None.
        unrolled: whether rows are so short that all their elements are written out and folded in registers.
        several: whether LANE_UNROLLED_ELEMENTS elements of each lane are folded at a time.

    `lanes` may be given: scratch memory of another `Columns` of the same width and dtypes, which is not used at the same time.
    """

    def __init__(self, k: KernelBuilder, f: Fold, frame: Frame, width: int, source: Source, lanes: list[Buffer] | None = None):
        self.k, self.f, self.frame, self.width = k, f, frame, width
        self.total = [k.scratch("total", s.dtype, -(-width // LANES) * LANES) for s in f.start]
        self.flat = flat_source(f, frame, source) if lanes is None and width % LANES else None  # then width = the columns
        self.several = self._folds_several(source)
        self.unrolled = self._fits_registers(source)
        self.lanes = lanes or ([] if self.unrolled else [k.scratch("lanes", s.dtype, LANES * width + LANES) for s in f.start])

    def _folds_several(self, source: Source) -> bool:
        """Whether rows are long enough, and elements cheap enough, to fold LANE_UNROLLED_ELEMENTS of them at a time."""
        long = (as_int(self.frame.count) or numerics.CHUNK_ELEMENTS) >= LANE_UNROLLED_ELEMENTS * LANES
        return not self.frame.gathers and long and not costs(source)

    def _fits_registers(self, source: Source) -> bool:
        """Whether all elements of a row are written out: their number is known and small, smaller still where an element takes
        much code. Elements on pages of their own are rather folded several at a time, with prefetches."""
        most = UNROLLED_COSTLY_ELEMENTS if self.frame.gathers or costs(source) else UNROLLED_ELEMENTS
        most = min(numerics.CHUNK_ELEMENTS, most)
        return (as_int(self.frame.count) or most + 1) <= most and not (self.several and _far_apart(self.frame, source))

    def run(self, source: Source, row: Sequence[Index], start: Expr, n: Expr, chunks: tuple[Index, Index]) -> None:
        """Leaves in `total` the states of n rows over the chunks `chunks[0] <= c < chunks[1]`: those with the coordinates `row`
        on all kept axes but the last, and `start`, `start` + 1, ... on that."""
        k = self.k
        if self.unrolled:
            for j, count in k.vector_loop(0, n, "j"):
                self._put(self.total, j, self._registers(source, (*row, start + j), count))
            return
        with k.loop(0, n, LANES, "j") as j:
            self._put(self.total, j, tuple(splat(s) for s in self.f.start))
        with k.loop(*chunks, name="chunk") as c:
            with k.loop(0, LANES, name="lane") as l, k.loop(0, n, LANES, "j") as j:
                self._put(self.lanes, l * self.width + j, tuple(splat(s) for s in self.f.start))
            self._accumulate(source, row, start, n, c)
            with k.loop(0, n, LANES, "j") as j:  # total[j] = join(total[j], tree of lanes[0..15][j]), 16 rows at a time
                state = tree(k, self.f, [self._get(self.lanes, j + i * self.width) for i in range(LANES)])
                self._put(self.total, j, self.f.join(self._get(self.total, j), state))

    def get(self, j: Index) -> State:
        """The states of rows j .. j + 15 of the block that `run` has folded last."""
        return self._get(self.total, j)

    def _get(self, where: list[Buffer], j: Index) -> State:
        return tuple(self.k.load(b, j, LANES) for b in where)

    def _put(self, where: list[Buffer], j: Index, state: State) -> None:
        state = tuple(self.k.let(splat(e)) for e in state)
        for b, e in zip(where, state):
            self.k.store(b, j, e)

    def _accumulate(self, source: Source, row: Sequence[Index], start: Expr, n: Expr, c: Expr) -> None:
        """Folds the elements of chunk c into the lanes of n rows."""
        k, frame = self.k, self.frame
        first = k.let(c * numerics.CHUNK_ELEMENTS)
        last = k.let(minimum(frame.count, first + numerics.CHUNK_ELEMENTS))
        run = as_expr(frame.inner[-1])
        if self.flat is not None:
            return self._accumulate_flat(self.flat, first, last)
        prefetched = self._prefetched(source)

        def element(coords: Sequence[Index], position: Expr) -> None:
            lane = k.let(position % LANES * self.width)
            for j, count in k.vector_loop(0, n, "j"):  # lanes[r mod 16][j] = step(lanes[r mod 16][j], source[r, rows j])
                here = frame.at((*row, start + j), coords, True, count)
                for a in prefetched:
                    k.prefetch(k.read(a), as_expr(a.index(here.coords)) + a.strides[frame.reduced[-1]] * PREFETCHED_ELEMENTS)
                x = spread(source.at(k, here))
                self._put(self.lanes, lane + j, self.f.step(self._get(self.lanes, lane + j), x, splat(position)))

        if len(frame.reduced) == 1:
            if self.several:
                first = self._accumulate_several(source, row, start, n, first, last)
            with k.loop(first, last, name="r") as r:
                element((r,), r)
            return
        with k.loop(first // run, cdiv(last, run), name="run") as o:  # several reduced axes: one run along the last at a time
            base = k.let(o * run)
            outer = unflatten(k, o, frame.inner[:-1])
            with k.loop(maximum(first - base, 0), minimum(last - base, run), name="r") as r:
                element((*outer, r), k.let(base + r))

    def _prefetched(self, source: Source) -> list[Array]:
        """The arrays whose elements are prefetched one by one: those that have a page for each element of a row."""
        far = source.leaves() or () if _far_apart(self.frame, source) else ()
        reduced, axes = self.frame.reduced[-1], len(self.frame.extents)
        return [a for a in dict.fromkeys(far) if a.ndim == axes and as_int(a.strides[reduced]) != 0]

    def _accumulate_several(self, source: Source, row: Sequence[Index], start: Expr, n: Expr, first: Expr, last: Expr) -> Expr:
        """Folds LANE_UNROLLED_ELEMENTS elements of each lane at a time, so that lanes are loaded and stored less often. Returns
        the position of the first element that is left over.

            for r in steps of LANE_UNROLLED_ELEMENTS * 16 elements:
                for lane l:
                    for vector j of rows:
                        lanes[l][j] = fold(lanes[l][j], elements r + l, r + l + 16, ... of rows j)

        Meanwhile the elements of the next r are prefetched in the order in which they lie in memory, because the processor's
        prefetcher does not follow as many streams as are read here."""
        k, frame, step = self.k, self.frame, LANE_UNROLLED_ELEMENTS * LANES
        whole = k.let(first + (last - first) // step * step)
        prefetched = _prefetched_row_by_row(frame, source)
        with k.loop(first, whole, step, "rows") as r, k.loop(0, LANES, name="lane") as l:
            soon = k.let(r + step + l * LANE_UNROLLED_ELEMENTS)
            for j, count in k.vector_loop(0, n, "j"):
                state = self._get(self.lanes, l * self.width + j)
                places = [r + l + i * LANES for i in range(LANE_UNROLLED_ELEMENTS)]
                for a, i in itertools.product(prefetched, range(LANE_UNROLLED_ELEMENTS)):
                    k.prefetch(k.read(a), a.index(frame.at((*row, start + j), (soon + i,)).coords))
                found = [spread(source.at(k, frame.at((*row, start + j), (p,), True, count))) for p in places]
                self._put(self.lanes, l * self.width + j, self.f.fold(state, found, list(map(splat, places))))
        return whole

    def _accumulate_flat(self, source: Source, first: Expr, last: Expr) -> None:
        """Folds a dense table of `width` columns: 16 rows of it are `width` whole vectors, whose elements lie in the order in
        which `lanes` has them. All lanes are registers meanwhile."""
        k, width = self.k, self.width
        state = [k.var(self._get(self.lanes, v * LANES)[0], name="lanes") for v in range(width)]

        def block(row: Expr, left: Expr | None) -> None:
            """16 rows from `row` on: state[v] = step(state[v], vector v of them). left: elements that exist; None: all."""
            for v, s in enumerate(state):
                at = k.let(row * width + v * LANES)
                count = None if left is None else k.let(minimum(maximum(left - v * LANES, 0), LANES))
                x = splat(source.at(k, At((at,), 0, count)))
                (new,) = self.f.step((s.value,), x, ramp())
                s.set(new if count is None else select(ramp() < splat(count), new, s.value))

        whole = k.let(first + (last - first) // LANES * LANES)
        with k.loop(first, whole, LANES, "r") as r:
            block(r, None)
        with k.if_(whole < last):
            block(whole, k.let((last - whole) * width))
        for v, s in enumerate(state):
            self._put(self.lanes, v * LANES, (s.value,))

    def _registers(self, source: Source, row: Sequence[Index], count: Expr | None) -> State:
        """The states of 16 short rows from `row` on, their elements written out one by one."""
        shape = [int(as_int(d)) for d in self.frame.inner]
        return in_registers(
            self.k, self.f, shape, lambda coords: spread(source.at(self.k, self.frame.at(row, coords, True, count)))
        )


def _far_apart(frame: Frame, source: Source) -> bool:
    """Whether each element of a row lies on a page of its own, where the processor's prefetcher does not follow."""
    steps = [as_int(a.strides[frame.reduced[-1]]) for a in source.leaves() or () if a.ndim == len(frame.extents)]
    return len(frame.reduced) == 1 and any(s is not None and abs(s) * source.dtype.size >= PAGE_BYTES for s in steps)


def _prefetched_row_by_row(frame: Frame, source: Source) -> list[Array]:
    """The arrays that are dense along the rows' axis, and whose consecutive reduced elements lie less than a page apart.
    Further apart, the prefetched lines would share a few cache sets, and be evicted before they are used."""
    found = [a for a in dict.fromkeys(source.leaves() or ()) if a.ndim == len(frame.extents)]
    steps = {a: as_int(a.strides[frame.reduced[-1]]) or PAGE_BYTES for a in found if as_int(a.strides[frame.kept[-1]]) == 1}
    return [a for a, step in steps.items() if step * a.dtype.size < PAGE_BYTES]


def pure(s: Source) -> bool:
    """Whether the source is made of arrays, numbers and scalar operations alone."""
    return isinstance(s, (Leaf, Literal, Elementwise)) and all(map(pure, children(s)))


def flat_source(f: Fold, frame: Frame, source: Source) -> Source | None:
    """The source as one flat axis, where it is a dense table of a few columns (their number is known) that do not fill vectors;
    else None."""
    if len(f.start) != 1 or frame.gathers or len(frame.kept) != 1 or len(frame.reduced) != 1:
        return None
    columns, leaves = as_int(frame.extents[frame.kept[0]]), source.leaves()
    if columns is None or columns > MOST_FLAT_COLUMNS or columns % LANES == 0 or not leaves or not pure(source):
        return None
    flat: dict = {}
    for a in leaves:
        if as_int(a.strides[frame.kept[0]]) != 1 or as_int(a.strides[frame.reduced[0]]) != columns:
            return None
        flat[a] = Array(a.id, a.dtype, (product(a.shape),), (1,), a.offset)
    return source.rebind(flat)


def columns_width(sizes: Sequence[int], extent: Index, arrays: int = 1, chunks: Index = 1) -> int:
    """How many rows a block of `Columns` has: a multiple of LANES, such that the lanes of all parts of the state take about
    16 KiB. Where the number of rows is known, all blocks have about the same. Where there are `ENOUGH_PIECES` chunks to share
    among threads, lanes take twice as much: fewer blocks read longer runs of memory.

    Args:
        sizes: bytes of each part of the state. extent: how many rows there are. arrays: folds that have lanes at the same time.
    """
    lane = 2048 if (as_int(chunks) or 1) >= ENOUGH_PIECES else 1024  # bytes of one of the 16 lanes
    width = max(LANES, lane // (sum(sizes) * arrays) // LANES * LANES)
    known = as_int(extent)
    if known is None:
        return width
    each = cdiv(max(known, 1), cdiv(max(known, 1), width))
    return max(LANES, cdiv(each, LANES) * LANES)
