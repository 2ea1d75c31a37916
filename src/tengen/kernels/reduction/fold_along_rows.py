"""Folds along rows: vectors run along the row, and the 16 lanes of a chunk are one vector.

    for chunk of the reduced axes:
        for each row: state[row] = 16 neutral lanes          # a vector register for each row
        for vector i of the chunk:                           # LANES consecutive positions
            for each row: state[row] = step(state[row], source[row, vector i])
        for each row: total[row] = join(total[row], tree of state[row])

In: a `Fold`, a `Frame` whose vectors run along its last reduced axis, and a few rows. Out: code inside a kernel, and the rows'
states. The order of every operation is that of `folding.py`. Several rows are folded side by side for two reasons: in a single
sum each addition waits for the one before, and memory delivers several streams faster than one.

Where several axes are reduced and could not be merged, elements are contiguous only along the last one, in *runs*. A run is
loaded from lane 0 on, and the state is rotated between runs so that each element meets its own lane, i mod 16.
"""

from __future__ import annotations

from collections.abc import Sequence

from tengen.base.dtype import DType
from tengen.kernels import numerics
from tengen.kernels.axes import unflatten
from tengen.kernels.lowering import KernelBuilder
from tengen.kernels.reduction.folding import LANE_UNROLLED_ELEMENTS, Fold, State, assign, spread
from tengen.kernels.reduction.frame import Frame
from tengen.kernels.source import Source, costs
from tengen.loops.builder import as_expr
from tengen.loops.lang import LANES, Expr, Index, as_int, cdiv, const, maximum, minimum, not_equal, ramp, select, splat
from tengen.loops.statements import Buffer

Row = Sequence[Index]  # the coordinates of a row on the kept axes


def fold_along_row(k: KernelBuilder, f: Fold, frame: Frame, source: Source, row: Row, chunks: tuple[Index, Index]) -> State:
    """The state of one row over the chunks `chunks[0] <= c < chunks[1]`."""
    return fold_along_rows(k, f, frame, source, [row], chunks)[0]


def fold_along_rows(
    k: KernelBuilder, f: Fold, frame: Frame, source: Source, rows: Sequence[Row], chunks: tuple[Index, Index]
) -> list[State]:
    """The states of several rows over these chunks. The rows are folded side by side: one vector of each, then the next."""
    if as_int(chunks[0]) == 0 and as_int(chunks[1]) == 1:
        return _chunk(k, f, frame, source, rows, const(0))
    totals = [[k.var(s, name="total") for s in f.start] for _ in rows]
    with k.loop(*chunks, name="chunk") as c:
        for total, part in zip(totals, _chunk(k, f, frame, source, rows, c)):
            assign(k, total, f.join(tuple(t.value for t in total), part))
    return [tuple(t.value for t in total) for total in totals]


def _chunk(k: KernelBuilder, f: Fold, frame: Frame, source: Source, rows: Sequence[Row], c: Expr) -> list[State]:
    """The states of the rows over chunk c alone."""
    states = [[k.var(splat(s), name="lanes") for s in f.start] for _ in rows]
    first = k.let(c * numerics.CHUNK_ELEMENTS)
    last = k.let(minimum(frame.count, first + numerics.CHUNK_ELEMENTS))
    if len(frame.reduced) > 1:
        _runs(k, f, frame, source, rows, states, first, last)
    else:
        long = (as_int(frame.count) or numerics.CHUNK_ELEMENTS) >= LANE_UNROLLED_ELEMENTS * LANES
        if f.regroups and long and not costs(source):
            first = _several(k, f, frame, source, rows, states, first, last)
        for i, count in k.vector_loop(first, last):
            for row, state in zip(rows, states):  # state[row][lane] = step(state[row][lane], source[row, i + lane])
                _vector(k, f, state, source.at(k, frame.at(row, (i,), True, count)), i, count)
    return [tuple(k.let(e) for e in f.across(tuple(s.value for s in state))) for state in states]


def _several(
    k: KernelBuilder,
    f: Fold,
    frame: Frame,
    source: Source,
    rows: Sequence[Row],
    states: Sequence[Sequence],
    first: Expr,
    last: Expr,
) -> Expr:
    """Folds `LANE_UNROLLED_ELEMENTS` vectors of each row at a time, which are combined with each other before they meet the
    state. Returns the position of the first element that is left over."""
    step = LANE_UNROLLED_ELEMENTS * LANES
    whole = k.let(first + (last - first) // step * step)
    with k.loop(first, whole, step) as i:
        places = [i + j * LANES for j in range(LANE_UNROLLED_ELEMENTS)]
        for row, state in zip(rows, states):
            found = [spread(source.at(k, frame.at(row, (p,), True, None))) for p in places]
            # state[row] = join(state[row], join(join(x[0], x[1]), join(x[2], x[3]))), x the vectors of this row
            assign(k, state, f.fold(tuple(s.value for s in state), found, [ramp() + p for p in places]))
    return whole


def _vector(k: KernelBuilder, f: Fold, state: Sequence, x: Expr, position: Expr, count: Expr | None) -> None:
    """Folds a vector of elements, the first of which is at `position`, into the lanes of a row. Lanes from `count` on (None: no
    lane) keep their state."""
    old = tuple(s.value for s in state)
    new = f.step(old, spread(x), ramp() + position)
    if count is not None:
        new = tuple(select(ramp() < splat(count), a, b) for a, b in zip(new, old))
    assign(k, state, new)


def _runs(
    k: KernelBuilder,
    f: Fold,
    frame: Frame,
    source: Source,
    rows: Sequence[Row],
    states: Sequence[Sequence],
    first: Expr,
    last: Expr,
) -> None:
    """Folds the elements at positions first..last where several axes are reduced: run by run along the last of them. Each run
    is prefetched while the one before is folded: runs are too short for the processor's own prefetcher."""
    run = as_expr(frame.inner[-1])
    aligned = (as_int(run) or 1) % LANES == 0
    rotate = _Rotation(k, [s.dtype for s in f.start]) if f.ordered and not aligned else None
    with k.loop(first // run, cdiv(last, run), name="run") as o:
        base = k.let(o * run)
        outer = unflatten(k, o, frame.inner[:-1])
        start, stop = k.let(maximum(first - base, 0)), k.let(minimum(last - base, run))
        after = unflatten(k, k.let(o + 1), frame.inner[:-1])
        next_runs = [_run_starts(k, frame, source, row, after) for row in rows]
        for i, count in k.vector_loop(start, stop):
            for row, state, starts in zip(rows, states, next_runs):
                for buffer, begin in starts:
                    k.prefetch(buffer, begin + i)
                # state[row][lane] = step(state[row][lane], source[row, outer, i + lane])
                _vector(k, f, state, source.at(k, frame.at(row, (*outer, i), True, count)), base + i, count)
        if rotate:
            rotate(states, (stop - start) % LANES)
    if rotate:
        rotate(states, (LANES - (last - first) % LANES) % LANES)


def _run_starts(
    k: KernelBuilder, frame: Frame, source: Source, row: Sequence[Index], outer: Sequence[Index]
) -> list[tuple[Buffer, Expr]]:
    """(buffer, index of an element in it) where the run with the coordinates `outer` begins, for each array that is dense along
    runs."""
    place = frame.at(row, (*outer, 0)).coords
    dense = [a for a in source.leaves() or () if a.ndim == len(place) and as_int(a.strides[frame.reduced[-1]]) == 1]
    return [(k.read(a), k.let(as_expr(a.index(place)))) for a in dict.fromkeys(dense)]


class _Rotation:
    """Rotates vectors: lane j gets what lane (j + n) mod 16 held. The element at position i belongs to lane i mod 16, but a run
    is loaded from lane 0 on. Rotating the state by the run's length after each run makes its lane 0 the one that the next
    run's first element belongs to. It goes through memory: the vector is stored twice, and loaded from element n on."""

    def __init__(self, k: KernelBuilder, dtypes: Sequence[DType]):
        self.k = k
        self.space = [k.scratch("turn", d, 2 * LANES) for d in dtypes]

    def __call__(self, states: Sequence[Sequence], n: Expr) -> None:
        """Rotates all vectors of all states by n lanes."""
        with self.k.if_(not_equal(n, 0)):
            for state in states:
                for b, s in zip(self.space, state):
                    self.k.store(b, 0, s.value)
                    self.k.store(b, LANES, s.value)
                    s.set(self.k.load(b, n, LANES))
