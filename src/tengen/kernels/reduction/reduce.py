"""Reductions as kernels: sum, product, minimum, maximum, all, any over some axes of a source.

    for each piece = some rows, or some blocks of neighbouring rows:
        for row of the piece:
            out[row] = finish(fold of the row's elements)              # `fold_along_rows.py`, or `columns.py` for blocks

Where rows are few and long, that would be too few pieces for all threads. Then there are two launches:

    for each piece = (row, chunk):
        partial[chunk, row] = fold of the chunk's elements
    for each piece = some rows:
        out[row] = finish(join of partial[0, row], partial[1, row], ...)

The order of every operation is that of `folding.py`, so no choice here changes a bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tengen.base.dtype import DType, bool_
from tengen.base.errors import VerifyError
from tengen.kernels.axes import memory_order, store_at, unflatten
from tengen.kernels.lowering import Array, KernelBuilder, Lowering, product
from tengen.kernels.machine import L1_SET_BYTES
from tengen.kernels.pointwise import copy, grain
from tengen.kernels.reduction.columns import Columns, columns_width, flat_source
from tengen.kernels.reduction.fold_along_rows import fold_along_row, fold_along_rows
from tengen.kernels.reduction.folding import Fold, Several, State, assign, joint_fold, simple_fold
from tengen.kernels.reduction.frame import Frame, make_frame, settled
from tengen.kernels.source import At, Source, View, broadcast, costs
from tengen.loops.builder import as_expr
from tengen.loops.lang import (
    LANES,
    Expr,
    Index,
    as_int,
    cast,
    cdiv,
    const,
    is_const,
    maximum,
    minimum,
    not_equal,
    select,
    splat,
)

LEAST_PIECES = 32  # pieces: where there would be fewer, the chunks of long rows become pieces of their own
ROWS_ABREAST = 4  # rows that are folded side by side, where enough pieces are left

Finish = Callable[[KernelBuilder, Expr, At], Expr]  # (kernel, reduced value, its place in the output) -> what is stored there


class Reduced(Source):
    """The reduction of `source` along `axes`, which stay with extent 1, as a source. A kernel of `rows.py` computes its value
    once for each row, before anything asks for it.

    Args:
        combine: "add", "mul", "min", "max", "and" or "or".
        source: of a dtype that arithmetic is done in (16-bit floats are cast before).
    """

    def __init__(self, combine: str, source: Source, axes: Sequence[int]):
        self.combine, self.source, self.axes = combine, source, tuple(sorted(axes))
        self.dtype = source.dtype
        self.shape = tuple(1 if i in self.axes else d for i, d in enumerate(source.shape))

    def value(self, k, at):
        if self not in k.given:
            raise VerifyError(f"kernel {k.name}: a reduced value is read outside of its row; help: lower it by rows.rowwise")
        return k.given[self](at)

    def leaves(self):
        return self.source.leaves()

    def rebind(self, arrays):
        if self not in arrays:
            r = Reduced.__new__(Reduced)
            r.combine, r.axes, r.dtype, r.shape = self.combine, self.axes, self.dtype, self.shape
            r.source = self.source.rebind(arrays)
            arrays[self] = r
        return arrays[self]

    def expand(self, shape, done):
        lead = len(shape) - len(self.shape)
        wide = [d for i, d in enumerate(shape) if i - lead not in self.axes]
        if lead == 0 and wide == [d for i, d in enumerate(self.shape) if i not in self.axes]:
            return Spread(self, shape)
        full = [self.source.shape[i - lead] if i - lead in self.axes else d for i, d in enumerate(shape)]
        inner = Reduced(self.combine, broadcast(self.source, full, done), [a + lead for a in self.axes])
        return inner if inner.shape == shape else Spread(inner, shape)


class Spread(Source):
    """A `Reduced` broadcast along its reduced axes: every element of a row has the row's value."""

    def __init__(self, reduced: Reduced, shape: Sequence[Index]):
        self.reduced, self.shape, self.dtype = reduced, tuple(shape), reduced.dtype

    def value(self, k, at):
        return self.reduced.value(k, at)

    def leaves(self):
        return self.reduced.leaves()

    def rebind(self, arrays):
        return Spread(self.reduced.rebind(arrays), self.shape)

    def expand(self, shape, done):
        return self.reduced.expand(shape, done)


def reduce(
    lo: Lowering,
    combine: str,
    source: Source,
    out: Array,
    axes: Sequence[int],
    finish: Finish | None = None,
    then: Callable[[Expr], Expr] | None = None,
    name: str = "reduce",
) -> None:
    """Launches out = all elements of `source` along `axes` combined into one.

    Args:
        combine: "add", "mul", "min", "max", "and" or "or".
        source: of a dtype that arithmetic is done in (cast 16-bit floats before).
        out: has the axes of `source` that are not in `axes`, in order.
        finish: (kernel, reduced value, place in out) -> what is stored there.
        then: reduced value -> what is stored, where the place does not matter (the division of a mean). More axes can be merged
            than with `finish`. Without either, the reduced value is cast to out's dtype.
    Numerics: see `folding.py`. A sum of no elements is +0.0, though sums start from -0.0.
    """

    def value(k: KernelBuilder, state: State, at: At) -> list[Expr]:
        v = state[0]
        if finish is not None:
            return [finish(k, v, at)]
        return [cast(then(v) if then is not None else v, out.dtype)]

    drive(lo, simple_fold(combine, source.dtype), source, [out], axes, value, finish is None, name)


def joint_reduce(lo: Lowering, values: Sequence[Source], outs: Sequence[Array], name: str) -> None:
    """Launches several reductions of one shape along the same axes as one kernel, which reads only once what they share.

    Args:
        values: each an `Elementwise` of one `Reduced`.
        outs: an array for each, with the shape of the value, or without the reduced axes.
    """
    found: list[Reduced] = [v.operands[0] for v in values]
    axes = found[0].axes
    kept = [i for i in range(len(found[0].shape)) if i not in axes]
    outs = [o.permute(kept) if o.ndim == len(found[0].shape) else o for o in outs]
    whole = Several([r.source for r in found])

    def value(k: KernelBuilder, state: State, at: At) -> list[Expr]:
        return [v.fn(s) for v, s in zip(values, state)]

    drive(lo, joint_fold([simple_fold(r.combine, r.dtype) for r in found]), whole, outs, axes, value, True, name)


def drive(
    lo: Lowering,
    f: Fold,
    source: Source,
    outs: Sequence[Array],
    axes: Sequence[int],
    value: Callable[[KernelBuilder, State, At], list[Expr]],
    merge: bool,
    name: str,
    across: int | None = None,
) -> None:
    """Launches the kernels of a fold of `source` along `axes`.

    Args:
        outs: arrays with the axes that are not reduced, in order.
        value: (kernel, final state of a row, place in the outputs) -> what is stored there, for each of the outputs.
        merge: whether kept axes may be merged, so that `value` is not told a place in the original axes.
        across: as `make_frame` takes it.
    """
    if not axes:  # one element for each result: a reduction along a new axis of extent 1
        n = len(source.shape)
        source = View(source, (*source.shape, 1), (*range(n), None), (0,) * (n + 1), (1,) * (n + 1))
        axes = (n,)
    source = _in_order(lo, source, axes, name)
    frame = make_frame([source], outs, axes, merge=merge, across=across)
    work = _Work(f, frame, lo.temp, grain(lo, f"{name} of {source.dtype}", frame.extents, frame.outs))
    k = lo.kernel(name)

    def finish(kk: KernelBuilder, row: Sequence, state: State, vec: bool, count: Expr | None) -> None:
        """Stores what `value` makes of the final state of a row; `vec`: of 16 rows from `row` on, of which `count` exist."""
        at = frame.out_at(row, vec, count)
        state = tuple(kk.let(e) for e in settled(f, frame, state))
        for o, v in zip(frame.outs, value(kk, state, at)):
            store_at(kk, o, at, splat(v) if vec else v)

    (_rows_across if frame.across else _rows_along)(k, work, finish)
    lo.launch(k)
    if not is_const(work.split, False):
        _join_partials(lo, work, finish, name)


def _in_order(lo: Lowering, source: Source, axes: Sequence[int], name: str) -> Source:
    """The source of a fold over an array that is dense along another reduced axis than the last, as all of a channels-last image is,
    over a copy in logical order: squares of it are transposed in registers. Its elements are combined in logical order, so they would be
    gathered one by one, each from another cache line."""
    found = source.leaves()
    array = found[0] if found is not None and len({*found}) == 1 else None
    if array is None or array.shape != source.shape or any(as_int(d) is None for d in array.shape):
        return source  # where extents are open, calls that take long have a program of their own
    last = max((a for a in axes if as_int(array.shape[a]) != 1), default=axes[-1])
    dense = [i for i, (d, st) in enumerate(zip(array.shape, array.strides)) if as_int(st) == 1 and (as_int(d) or 0) >= LANES]
    if not {*dense} & {*axes} or as_int(array.strides[last]) in (0, 1):
        return source
    order = [*(i for i in memory_order(array) if i not in axes), *sorted(axes)]
    there = lo.temp(array.dtype, array.shape, order)
    copy(lo, array, there, f"{name}_in_order")
    return source.rebind({array: there})


class _Work:
    """How a fold is divided into pieces. A *unit* is a row, or with vectors across rows a block of up to `width` neighbouring
    rows. A piece is `per` units, or one chunk of a single unit.

    Attributes:
        columns: extent of the last kept axis with vectors across rows; else 1. outer: extents of the kept axes that units are
            numbered by, beside the blocks. blocks: blocks along `columns`.
        units, rows: how many there are. per: units of a piece.
        abreast: whether the rows of a piece are folded ROWS_ABREAST at a time.
        split: whether each chunk of a unit is a piece of its own. Then `partial` holds the chunks' states as [chunk, row].
        chunk_pieces: pieces of a unit: its chunks if `split`, else 1.

    `abreast` and `split` are conditions that the kernel decides where extents are open, and literals where they are known.
    """

    def __init__(self, f: Fold, frame: Frame, temp: Callable[[DType, tuple], Array], some: int):
        """some: elements of a piece, about."""
        self.f, self.frame, self.grain = f, frame, some
        self._divide_into_units()
        self.abreast = self._rows_abreast()
        size = maximum(const(1), frame.count * minimum(self.columns, const(self.width)))  # elements of a unit
        per = maximum(const(1), some // size)
        if not is_const(self.abreast, False):
            per = select(self.abreast, maximum(const(ROWS_ABREAST), per // ROWS_ABREAST * ROWS_ABREAST), per)
        self.split = _both(frame.chunks > 1, cdiv(self.units, per) < LEAST_PIECES)
        self.per = select(self.split, const(1), per)
        self.chunk_pieces = select(self.split, frame.chunks, const(1))
        self.pieces = cdiv(self.units, self.per) * self.chunk_pieces
        self.rows = as_expr(product(frame.rows))
        self.partial: list[Array] = []
        if not is_const(self.split, False):
            n = select(self.split, frame.chunks * self.rows, const(0))
            self.partial = [temp(s.dtype, (n,)) for s in f.start]

    def _divide_into_units(self) -> None:
        frame, rows = self.frame, self.frame.rows
        self.columns, self.width, self.outer = const(1), 1, rows
        if frame.across:
            self.columns, self.outer = as_expr(rows[-1]), rows[:-1]
            self.width = columns_width([s.dtype.size for s in self.f.start], self.columns, 1, frame.chunks)
            if flat_source(self.f, frame, frame.sources[0]) is not None:
                self.width = as_int(self.columns) or 1
        self.blocks = as_expr(cdiv(self.columns, self.width))
        self.units = as_expr(product(self.outer)) * self.blocks

    def _rows_abreast(self) -> Expr:
        """Whether rows are folded ROWS_ABREAST at a time: elements are cheap numbers, there are rows enough for that, and the
        rows do not begin in the same set of L1, where they would evict each other."""
        source, start = self.frame.sources[0], self.f.start
        if self.frame.across or len(start) > 1 or not source.leaves() or costs(source):
            return const(False, bool_)
        other_sets = not_equal(self.frame.count * start[0].dtype.size % L1_SET_BYTES, 0)
        return _both(self.units >= LEAST_PIECES * ROWS_ABREAST, other_sets)

    def each(self, k: KernelBuilder) -> tuple[Expr, Expr, Expr, Expr]:
        """What this piece computes: its first unit, the unit after its last, its first chunk, the chunk after its last."""
        piece = k.split(self.pieces)
        unit0 = k.let(piece // self.chunk_pieces * self.per)
        chunk0 = k.let(piece % self.chunk_pieces)
        stop = select(self.split, chunk0 + 1, self.frame.chunks)
        return unit0, k.let(minimum(unit0 + self.per, self.units)), chunk0, stop

    def save(self, k: KernelBuilder, chunk: Expr, row: Expr, state: State, count: Expr | None = None) -> None:
        """partial[chunk, row] = state, for one row, or for `count` rows from `row` on."""
        for a, e in zip(self.partial, state):
            k.store(k.write(a), chunk * self.rows + row, e, count)


def _both(a: Expr, b: Expr) -> Expr:
    """a and b. If one of them is a literal, the result is the other, or that literal."""
    for x, y in ((a, b), (b, a)):
        if x.op == "const":
            return y if x.attr else x
    return a & b


def _negate(a: Expr) -> Expr:
    """not a; a literal for a literal."""
    return const(not a.attr, bool_) if a.op == "const" else ~a


def _rows_along(k: KernelBuilder, work: _Work, finish) -> None:
    """Writes a piece whose units are rows, with vectors along them: ROWS_ABREAST rows at a time, then those left over."""
    first, last, chunk0, stop = work.each(k)
    source = work.frame.sources[0]
    whole = first
    if not is_const(work.abreast, False):
        whole = k.let(first + select(work.abreast, last - first, const(0)) // ROWS_ABREAST * ROWS_ABREAST)
        with k.loop(first, whole, ROWS_ABREAST, "units") as unit:
            rows = [unflatten(k, k.let(unit + i), work.outer) for i in range(ROWS_ABREAST)]
            for row, state in zip(rows, fold_along_rows(k, work.f, work.frame, source, rows, (const(0), work.frame.chunks))):
                finish(k, row, state, False, None)
    with k.loop(whole, last, name="unit") as unit:
        row = unflatten(k, unit, work.outer)
        state = fold_along_row(k, work.f, work.frame, source, row, (chunk0, stop))
        with k.if_(work.split):
            work.save(k, chunk0, unit, state)
        with k.if_(_negate(work.split)):
            finish(k, row, state, False, None)


def _rows_across(k: KernelBuilder, work: _Work, finish) -> None:
    """Writes a piece whose units are blocks of rows, with vectors across the rows of a block."""
    columns = Columns(k, work.f, work.frame, work.width, work.frame.sources[0])
    first, last, chunk0, stop = work.each(k)
    with k.loop(first, last, name="unit") as unit:
        outer = k.let(unit // work.blocks)
        row = unflatten(k, outer, work.outer)
        start = k.let(unit % work.blocks * work.width)
        n = k.let(minimum(work.columns - start, work.width))
        columns.run(work.frame.sources[0], row, start, n, (chunk0, stop))
        for j, count in k.vector_loop(0, n, "j"):
            state = columns.get(j)
            with k.if_(work.split):
                work.save(k, chunk0, outer * work.columns + start + j, state, count)
            with k.if_(_negate(work.split)):
                finish(k, (*row, start + j), state, True, count)


def _join_partials(lo: Lowering, work: _Work, finish, name: str) -> None:
    """Launches the second kernel, which joins the states of each row's chunks in order. It has no pieces if rows turn out not
    to be split when it runs."""
    k = lo.kernel(f"{name}_chunks")
    f, frame, rows = work.f, work.frame, work.frame.rows
    n = as_expr(rows[-1]) if rows else const(1)
    outer = as_expr(product(rows[:-1]))
    per = maximum(const(1), work.grain // maximum(const(1), n * frame.chunks))
    piece = k.split(select(work.split, cdiv(outer, per), const(0)))
    with k.loop(piece * per, minimum(piece * per + per, outer), name="row") as r:
        row = unflatten(k, r, rows[:-1])
        if not rows:
            finish(k, row, _join_chunks(k, f, work, const(0), 1, None), False, None)
        else:
            for j, count in k.vector_loop(0, n, "j"):
                finish(k, (*row, j), _join_chunks(k, f, work, r * n + j, 16, count), True, count)
    lo.launch(k)


def _join_chunks(k: KernelBuilder, f: Fold, work: _Work, row: Expr, lanes: int, count: Expr | None) -> State:
    """The state of a row over all chunks; of 16 rows from `row` on if `lanes` is 16."""
    total = [k.var(splat(s) if lanes > 1 else s, name="total") for s in f.start]
    with k.loop(0, work.frame.chunks, name="chunk") as c:  # total[row] = join(total[row], partial[c, row])
        part = tuple(k.load(k.read(a), c * work.rows + row, lanes, count) for a in work.partial)
        assign(k, total, f.join(tuple(t.value for t in total), part))
    return tuple(t.value for t in total)
