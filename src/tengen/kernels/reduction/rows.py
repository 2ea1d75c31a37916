"""Fused rows: a pointwise kernel whose expressions contain reductions of the row that they are computed for.

    for each piece = some rows, or some blocks of neighbouring rows:
        for row of the piece:                                               # or for some short rows, in each of the two loops inside
            for each `Reduced` in the sources, those that it uses before it:
                value[reduced] = fold of its source over the row            # in a register; across or of short rows: in scratch memory
            for vector i of the row:
                out[row, i] = source[row, i]                                # each `Reduced` in it is replaced by its value

Softmax is ``exp(x - max) / sum(exp(x - max))``: two `Reduced` sources, the second of which uses the first, and one pointwise
output. One kernel computes it while the row is in L1. In: sources that contain `Reduced`, outputs, the reduced axes. Out: one
launch; or, where rows are too few and too long to share among threads, one launch for each reduction and a pointwise one. The
bits are the same.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace

from tengen.base.dtype import DType
from tengen.kernels.axes import store_at, streams, unflatten
from tengen.kernels.lowering import Array, KernelBuilder, Lowering, product
from tengen.kernels.pointwise import grain, pointwise
from tengen.kernels.reduction.columns import Columns, columns_width
from tengen.kernels.reduction.fold_along_rows import fold_along_row
from tengen.kernels.reduction.folding import Fold, simple_fold
from tengen.kernels.reduction.frame import Frame, make_frame, settled
from tengen.kernels.reduction.reduce import Reduced, Spread, reduce
from tengen.kernels.source import At, Elementwise, Leaf, Literal, Source, broadcast, children, costs, invariant_parts
from tengen.loops.builder import as_expr
from tengen.loops.lang import Expr, Index, as_int, const, maximum, minimum, splat

LEAST_FUSED_ROWS = 8  # where rows are known to be fewer, long ones are not fused: there is too little to share out
LONG_ROW_ELEMENTS = 1 << 16  # of such a row at least
SHORT_ROW_ELEMENTS = 384  # of rows, at most, of which SHORT_ROWS have each value computed before the next one
SHORT_ROWS = 8
KEPT_ROW_BYTES = 1 << 15  # bytes of a row, at most, that stay in scratch memory where its results go past the caches


def rowwise(lo: Lowering, sources: Sequence[Source], outs: Sequence[Array], axes: Sequence[int], name: str = "rowwise") -> None:
    """Launches kernels that store each source in its output, and compute every `Reduced` in them once for each row.

    Args:
        sources: of one shape, or with extent 1 on `axes`; every `Reduced` in them reduces `axes`.
        outs: one for each source, of its shape. Those with extent 1 on `axes` have one element for each row.
    Numerics: the bits of separate `reduce` and `pointwise` kernels.
    """
    found = reduced_inside(sources)
    if not found:
        return pointwise(lo, sources, outs, name)
    full = found[0].source.shape
    axes = tuple(sorted(axes))
    fits = all(r.axes == axes and r.source.shape == full for r in found)
    rows = as_int(product([d for i, d in enumerate(full) if i not in axes]))
    length = as_int(product([full[i] for i in axes]))
    if not fits or (rows is not None and length is not None and rows < LEAST_FUSED_ROWS and length >= LONG_ROW_ELEMENTS):
        return _separate(lo, found, sources, outs, name)
    whole = [o.shape == full for o in outs]
    row_outs = [o.permute([i for i in range(o.ndim) if i not in axes]) for o, w in zip(outs, whole) if not w]
    wide = [broadcast(s, full) for s in sources]
    frame = make_frame(wide, row_outs, axes, [o for o, w in zip(outs, whole) if w])
    k = lo.kernel(name)
    work = _Rows(k, frame, reduced_inside(frame.sources), whole, grain(lo, name, frame.extents, outs))
    work.across() if frame.across else work.vectors_along_rows()
    lo.launch(k)


def reduced_inside(sources: Sequence[Source]) -> list[Reduced]:
    """Every `Reduced` in the sources, each after those that it uses."""
    order: list[Reduced] = []
    seen: set[Source] = set()

    def walk(s: Source) -> None:
        if s in seen:
            return
        seen.add(s)
        for c in children(s):
            walk(c)
        if isinstance(s, Reduced):
            order.append(s)

    for s in sources:
        walk(s)
    return order


class _Rows:
    """Writes the fused kernel.

    Attributes:
        found: every `Reduced` in the sources, each after those that it uses.
        whole: (source, output) pairs with an element for each element of a row. single: those with one for each row.
        reads: for each `Reduced` the source that it folds; it may store what it reads (see `_keep_last_operand`).
        stream: whether the outputs in `whole` are stored past the caches.
    """

    def __init__(self, k: KernelBuilder, frame: Frame, found: list[Reduced], whole: list[bool], some: int):
        """whole: for each of the frame's sources, whether its output belongs to `whole`. some: elements of a piece, about."""
        self.grain = some
        self.k, self.frame, self.found = k, frame, found
        wholes, rows = iter(frame.wholes), iter(frame.outs)
        pairs = [(s, next(wholes) if w else next(rows), w) for s, w in zip(frame.sources, whole)]
        self.whole = [(s, o) for s, o, w in pairs if w]
        self.single = [(s, o) for s, o, w in pairs if not w]
        self.reads = {r: r.source for r in found}
        self.stream = streams([o for _, o in self.whole])
        self._keep_last_operand()

    def _keep_last_operand(self) -> None:
        """If the outputs need again what the last reduction reads (the exponentials of a softmax), the fold stores it on its
        way, and the outputs load it instead of computing it a second time. It is stored in the memory of the first output,
        which the results overwrite afterwards, or in scratch memory where outputs are stored past the caches. It has the dtype
        of that memory, so no bit changes."""
        s = self.found[-1].source
        if not self.whole or not isinstance(s, Elementwise) or s.dtype is not self.whole[0][1].dtype or not costs(s):
            return
        out = self.whole[0][1]
        if self.stream:
            length = as_int(self.frame.count)
            if self.frame.across or length is None or length * out.dtype.size > KEPT_ROW_BYTES:
                self.stream = False
            else:
                out = self._scratch_row(out.dtype, length)
        table: dict[Source, Source] = {s: Leaf(out), **{r: r for r in self.found}}
        whole = [(_replaced(x, table), o) for x, o in self.whole]
        # The output may be the memory of an input. Then nothing may be read of an input once the operand is stored.
        for x, _ in [*whole, *self.single]:
            if not _plain(x) or any(as_int(a.strides[i]) != 0 for a in _stored(x) if a != out for i in self.frame.reduced):
                return
        if any(a == out for x, _ in whole for a in _stored(x)):
            self.whole = whole
            self.reads[self.found[-1]] = _Storing(s, out)

    def _scratch_row(self, dtype: DType, length: int) -> Array:
        """Scratch memory for one row, as an array over the frame's axes."""
        row = Array(("row", self.k.name), dtype, tuple(self.frame.extents), (), 0)
        self.k.local[row.id] = self.k.scratch("row", dtype, length)
        strides, step = [0] * row.ndim, 1
        for axis in reversed(self.frame.reduced):
            strides[axis], step = step, step * (as_int(self.frame.extents[axis]) or 0)
        return replace(row, strides=tuple(strides))

    def _next_rows(self) -> list[tuple[Array, Index]]:
        """(array, elements from a row to the next one) for each array that rows are read from and that is dense along rows."""
        last, inner = self.frame.kept[-1], self.frame.reduced[-1]
        found = dict.fromkeys(a for r in self.found for a in r.source.leaves() or ())
        return [(a, a.strides[last]) for a in found if as_int(a.strides[inner]) == 1 and as_int(a.strides[last]) != 0]

    def _fold(self, r: Reduced) -> Fold:
        return simple_fold(r.combine, r.dtype)

    def vectors_along_rows(self) -> None:
        """Writes a kernel that computes one row after another, with vectors along the row."""
        k, frame = self.k, self.frame
        rows = as_expr(product(frame.rows))
        per = maximum(const(1), self.grain // maximum(const(1), frame.count))
        piece = k.split((rows + per - 1) // per)
        first = k.let(piece * per)
        stop, together = k.let(minimum(first + per, rows)), self._rows_together()
        if together == 1:
            with k.loop(first, stop, name="row") as r:
                row = unflatten(k, r, frame.rows)
                for red in self.found:
                    self._give(red, self._folded(red, row))
                self._store_row(row)
        else:
            tables = [k.scratch("values", red.dtype, together) for red in self.found]
            with k.loop(first, stop, together, name="rows") as start:
                end = k.let(minimum(start + together, stop))
                for n in range(len(self.found) + 1):  # the values of each reduction in turn, then the results
                    with k.loop(start, end, name="row") as r:
                        row = unflatten(k, r, frame.rows)
                        for red, table in zip(self.found[:n], tables):
                            self._give(red, k.load(table, r - start, name="row_value"))
                        if n < len(self.found):
                            k.store(tables[n], r - start, self._folded(self.found[n], row))
                        else:
                            self._store_row(row)
        k.given.clear()

    def _rows_together(self) -> int:
        """How many rows have each of their values computed before the next one. Where rows are short and have several values, each of which
        waits for a fold, a division or a root, a processor then finds other rows to work on."""
        length = as_int(self.frame.count)
        short = length is not None and 0 < length <= SHORT_ROW_ELEMENTS
        return SHORT_ROWS if short and len(self.found) > 1 and not self.stream else 1

    def _give(self, red: Reduced, v: Expr) -> None:
        """Lets sources find the value of a reduction of the row that is computed."""
        self.k.given[red] = lambda at: splat(v) if at.lanes > 1 else v

    def _folded(self, red: Reduced, row: Sequence[Index]) -> Expr:
        """The value of a reduction of a row: the fold of source[row, :]."""
        k, frame, f = self.k, self.frame, self._fold(red)
        source = self._with_row_constants([self.reads[red]], frame.at(row, [0] * len(frame.reduced), False))[0]
        if self.stream and red is self.found[-1]:
            source = _PrefetchingNextRow(source, self._next_rows())
        state = fold_along_row(k, f, frame, source, row, (const(0), frame.chunks))
        return k.let(settled(f, frame, state)[0], "row_value")

    def _store_row(self, row: Sequence[Index]) -> None:
        """Stores all results of a row, whose reductions have their values."""
        k, frame = self.k, self.frame
        at = frame.at(row, [0] * len(frame.reduced), False)
        for s, o in self.single:
            store_at(k, o, frame.out_at(row), s.at(k, at))
        whole = list(zip(self._with_row_constants([s for s, _ in self.whole], at), [o for _, o in self.whole]))
        if self.whole:
            self._outer_positions(lambda outer: self._vectors(row, outer, whole))

    def _with_row_constants(self, sources: Sequence[Source], at: At) -> list[Source]:
        """The sources, with each part that has one value for a whole row computed here, once, and not for each vector."""
        found = invariant_parts(sources, self.frame.reduced, (Spread, Reduced))
        table: dict[Source, Source] = {r: r for r in self.found}
        table |= {s: _RowConstant(self.k.let(s.at(self.k, at), "row_value"), s) for s in found}
        return [_replaced(s, table) for s in sources]

    def _outer_positions(self, body: Callable[[list[Index]], None]) -> None:
        """Writes `body(coordinates)` in a loop over all reduced axes but the last."""
        k, outer = self.k, self.frame.inner[:-1]
        if not outer:
            return body([])
        with k.loop(0, product(outer), name="run") as o:
            body(unflatten(k, o, outer))

    def _vectors(self, row: Sequence[Index], outer: Sequence[Index], whole: list) -> None:
        for i, count in self.k.vector_loop(0, self.frame.inner[-1]):  # out[row, outer, vector i] = source[row, outer, vector i]
            self._store_whole(self.frame.at(row, (*outer, i), True, count), whole)

    def _store_whole(self, at, whole: list) -> None:
        values = [s.at(self.k, at) for s, _ in whole]
        for (_, o), v in zip(whole, values):
            store_at(self.k, o, at, v, self.stream)

    def across(self) -> None:
        """Writes a kernel that computes blocks of neighbouring rows, with vectors across them."""
        k, frame = self.k, self.frame
        columns = as_expr(frame.rows[-1])
        width = columns_width([max(r.dtype.size for r in self.found)], columns)
        blocks = (columns + width - 1) // width
        units = as_expr(product(frame.rows[:-1])) * blocks
        per = maximum(const(1), self.grain // maximum(const(1), frame.count * minimum(columns, const(width))))
        lanes: dict = {}
        folds = []
        for r in self.found:
            c = Columns(k, self._fold(r), frame, width, r.source, lanes.get(r.dtype))
            lanes[r.dtype] = c.lanes or None
            folds.append(c)
        piece = k.split((units + per - 1) // per)
        first = k.let(piece * per)
        with k.loop(first, minimum(first + per, units), name="unit") as unit:
            row = unflatten(k, k.let(unit // blocks), frame.rows[:-1])
            start = k.let(unit % blocks * width)
            n = k.let(minimum(columns - start, width))
            for r, c in zip(self.found, folds):
                c.run(self.reads[r], row, start, n, (const(0), frame.chunks))
                k.given[r] = lambda at, c=c: self._total(c, at, start)
            for j, count in k.vector_loop(0, n, "j") if self.single else ():
                at = frame.at((*row, start + j), [0] * len(frame.reduced), True, count)
                for s, o in self.single:
                    store_at(k, o, frame.out_at((*row, start + j), True, count), s.at(k, at))
            if self.whole:
                self._outer_positions(lambda outer: self._blocks(row, outer, start, n))
        k.given.clear()

    def _total(self, c: Columns, at, start: Expr) -> Expr:
        """The values of a reduction for the 16 rows at `at`, in a block that begins with row `start`."""
        j = as_expr(at.coords[self.frame.kept[-1]]) - start
        return self.k.let(settled(c.f, self.frame, c.get(j))[0])

    def _blocks(self, row: Sequence[Index], outer: Sequence[Index], start: Expr, n: Expr) -> None:
        with self.k.loop(0, self.frame.inner[-1], name="r") as r:
            for j, count in self.k.vector_loop(0, n, "j"):  # out[rows j, outer, r] = source[rows j, outer, r]
                self._store_whole(self.frame.at((*row, start + j), (*outer, r), True, count), self.whole)


class _RowConstant(Source):
    """A value that is the same for all elements of a row, and has been computed already."""

    def __init__(self, v: Expr, s: Source):
        self.v, self.shape, self.dtype = v, s.shape, s.dtype

    def value(self, k, at):
        return splat(self.v) if at.lanes > 1 else self.v


class _Storing(Source):
    """A source that stores each of its values in `out` when it is asked for it."""

    def __init__(self, source: Source, out: Array):
        self.source, self.out, self.shape, self.dtype = source, out, source.shape, source.dtype

    def value(self, k, at):
        v = self.source.at(k, at)
        store_at(k, self.out, at, v)
        return v


class _PrefetchingNextRow(Source):
    """A source that prefetches, with each value, what the next row reads at the same position. arrays: see `_Rows._next_rows`.
    While results are stored past the caches nothing is read, so the processor's own prefetcher stops before each row."""

    def __init__(self, source: Source, arrays: Sequence[tuple[Array, Index]]):
        self.source, self.arrays, self.shape, self.dtype = source, arrays, source.shape, source.dtype

    def value(self, k, at):
        for a, step in self.arrays:
            k.prefetch(k.read(a), a.index(at.coords) + step)
        return self.source.at(k, at)


def _plain(s: Source) -> bool:
    """Whether the source is made of arrays, numbers, values of reductions, and arithmetic alone."""
    return isinstance(s, (Leaf, Literal, Spread)) or (isinstance(s, Elementwise) and all(map(_plain, s.operands)))


def _stored(s: Source) -> list[Array]:
    """The arrays that a plain source reads, not counting those that only its reductions read."""
    if isinstance(s, Leaf):
        return [s.array]
    return [a for o in s.operands for a in _stored(o)] if isinstance(s, Elementwise) else []


# ---- without fusion --------------------------------------------------------------------------------------------------


def _separate(lo: Lowering, found: list[Reduced], sources: Sequence[Source], outs: Sequence[Array], name: str) -> None:
    """Launches a kernel for each reduction, with a temporary for its results, then a pointwise kernel for each output shape."""
    table: dict[Source, Source] = {}
    for r in found:
        kept = [i for i in range(len(r.shape)) if i not in r.axes]
        temp = lo.temp(r.dtype, [r.shape[i] for i in kept])
        reduce(lo, r.combine, _replaced(r.source, table), temp, r.axes, name=f"{name}_{r.combine}")
        for a in r.axes:
            temp = temp.unsqueeze(a)
        table[r] = Leaf(temp)
    done = [_replaced(s, table) for s in sources]
    for shape in dict.fromkeys(o.shape for o in outs):
        group = [i for i, o in enumerate(outs) if o.shape == shape]
        pointwise(lo, [done[i] for i in group], [outs[i] for i in group], name)


def _replaced(s: Source, table: dict[Source, Source]) -> Source:
    """The source with each part that is a key of `table` replaced by what stands there. `table` remembers what was made."""
    if s in table:
        return table[s]
    if isinstance(s, Spread):
        new: Source = broadcast(_replaced(s.reduced, table), s.shape)
    else:
        changed = {}
        for key, v in vars(s).items():
            if isinstance(v, Source):
                w = _replaced(v, table)
            elif isinstance(v, (list, tuple)) and any(isinstance(x, Source) for x in v):
                w = [_replaced(x, table) if isinstance(x, Source) else x for x in v]
                w = v if all(a is b for a, b in zip(v, w)) else w
            else:
                continue
            if w is not v:
                changed[key] = w
        new = s
        if changed:
            new = copy.copy(s)
            vars(new).update(changed)
    table[s] = new
    return new
