"""Reductions as kernels: sum, product, minimum, maximum, all, any over some axes of a source.

    for each piece = some rows:                            # or blocks of rows, with vectors across them
        for row:
            out[row] = value(fold of the row's elements)
    where rows are few and long:
    for each piece = (row, chunk):  partial[chunk, row] = fold of the chunk
    for each piece = some rows:     out[row] = value(partial[0, row] joined with partial[1, row], ...)    # a second launch

The order of every operation is that of `folding.py`, so no choice here changes a bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tengen.base.dtype import DType, bool_
from tengen.base.errors import VerifyError
from tengen.kernels.axes import store_at, unflatten
from tengen.kernels.lowering import Array, KernelBuilder, Lowering, product
from tengen.kernels.machine import L1_SET_BYTES
from tengen.kernels.pointwise import grain
from tengen.kernels.reduction.fold_along_rows import fold_along_row, fold_along_rows
from tengen.kernels.reduction.folding import (
    Columns,
    Fold,
    Frame,
    Several,
    State,
    assign,
    both,
    columns_width,
    flat_source,
    joint_fold,
    make_frame,
    negate,
    settled,
    simple_fold,
)
from tengen.kernels.source import At, Source, View, broadcast, costs
from tengen.loops.builder import as_expr
from tengen.loops.lang import Expr, Index, as_int, cast, cdiv, const, is_const, maximum, minimum, not_equal, select, splat

LEAST_PIECES = 32  # pieces: where there would be fewer, the chunks of long rows become pieces of their own
ROWS_ABREAST = 4  # rows that are folded side by side, where enough pieces are left

Finish = Callable[[KernelBuilder, Expr, At], Expr]


class Reduced(Source):
    """The combination of `source` along `axes`, which stay with extent 1: a source whose value a kernel of `rows.py` computes
    once per row, before it is asked for.

    Args: combine: "add", "mul", "min", "max", "and", "or". source: of a dtype that is computed in.
    """

    def __init__(self, combine: str, source: Source, axes: Sequence[int]):
        self.combine, self.source, self.axes = combine, source, tuple(sorted(axes))
        self.dtype = source.dtype
        self.shape = tuple(1 if i in self.axes else d for i, d in enumerate(source.shape))

    def value(self, k, at):
        if self not in k.given:
            raise VerifyError(f"kernel {k.name}: a reduced value outside of its row; help: lower it by rows.rowwise")
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

    def expand(self, shape):
        lead = len(shape) - len(self.shape)
        wide = [d for i, d in enumerate(shape) if i - lead not in self.axes]
        if lead == 0 and wide == [d for i, d in enumerate(self.shape) if i not in self.axes]:
            return Spread(self, shape)
        full = [self.source.shape[i - lead] if i - lead in self.axes else d for i, d in enumerate(shape)]
        inner = Reduced(self.combine, broadcast(self.source, full), [a + lead for a in self.axes])
        return inner if inner.shape == shape else Spread(inner, shape)


class Spread(Source):
    """A `Reduced` seen with its row's shape."""

    def __init__(self, reduced: Reduced, shape: Sequence[Index]):
        self.reduced, self.shape, self.dtype = reduced, tuple(shape), reduced.dtype

    def value(self, k, at):
        return self.reduced.value(k, at)

    def leaves(self):
        return self.reduced.leaves()

    def rebind(self, arrays):
        return Spread(self.reduced.rebind(arrays), self.shape)

    def expand(self, shape):
        return self.reduced.expand(shape)


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
    """out = all elements of `source` along `axes` combined into one.

    Args:
        combine: "add", "mul", "min", "max", "and", "or". source: of a dtype that is computed in (cast 16-bit floats first).
        out: has the axes of `source` that are not in `axes`, in order.
        finish: (kernel, reduced value, place in out) -> value of out's dtype. then: the same where the place does not matter
            (the division of a mean); it allows more axes to be merged. Default: a cast to out's dtype.
    Numerics: see `folding.py`. A sum of no elements is +0.0, though sums start from -0.0.
    """

    def value(k: KernelBuilder, state: State, at: At) -> list[Expr]:
        v = state[0]
        if finish is not None:
            return [finish(k, v, at)]
        return [cast(then(v) if then is not None else v, out.dtype)]

    drive(lo, simple_fold(combine, source.dtype), source, [out], axes, value, finish is None, name)


def reduce_together(lo: Lowering, values: Sequence[Source], outs: Sequence[Array], name: str) -> None:
    """Several reductions of one shape along the same axes as one kernel, which reads what they share once.

    Args:
        values: each an `Elementwise` of one `Reduced`. outs: of their shapes, or without the reduced axes.
    """
    found: list[Reduced] = [v.operands[0] for v in values]  # type: ignore[attr-defined]
    axes = found[0].axes
    kept = [i for i in range(len(found[0].shape)) if i not in axes]
    outs = [o.permute(kept) if o.ndim == len(found[0].shape) else o for o in outs]
    whole = Several([r.source for r in found])

    def value(k: KernelBuilder, state: State, at: At) -> list[Expr]:
        return [v.fn(s) for v, s in zip(values, state)]  # type: ignore[attr-defined]

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
) -> None:
    """Launches the kernels of a fold; `value` makes each output's value of the final state."""
    if not axes:
        n = len(source.shape)
        source = View(source, (*source.shape, 1), (*range(n), None), (0,) * (n + 1), (1,) * (n + 1))
        axes = (n,)
    frame = make_frame([source], outs, axes, merge=merge)
    work = _Work(f, frame, lo.temp, grain(lo, f"{name} of {source.dtype}", frame.extents, frame.outs))
    k = lo.kernel(name)

    def finish(kk: KernelBuilder, row: Sequence, state: State, vec: bool, count: Expr | None) -> None:
        at = frame.out_at(row, vec, count)
        state = tuple(kk.let(e) for e in settled(f, frame, state))
        for o, v in zip(frame.outs, value(kk, state, at)):
            store_at(kk, o, at, splat(v) if vec else v)

    (_rows_across if frame.across else _rows_along)(k, work, finish)
    lo.launch(k)
    if not (work.split.op == "const" and not work.split.attr):
        _combine(lo, work, finish, name)


class _Work:
    """How a fold is cut into pieces.

    Attributes:
        width: rows of a block, with vectors across rows; else 1. units: rows, or blocks of rows. per: units of a piece.
        split: whether each chunk of a unit is a piece; then `partial` holds the chunks' states as [chunk, row].
        abreast: whether the rows of a piece are folded `ROWS_ABREAST` at a time.
    """

    def __init__(self, f: Fold, frame: Frame, temp: Callable[[DType, tuple], Array], some: int):
        self.f, self.frame, self.grain = f, frame, some
        rows = frame.rows
        self.columns = as_expr(rows[-1]) if frame.across else const(1)
        self.width = columns_width([s.dtype.size for s in f.start], self.columns, 1, frame.chunks) if frame.across else 1
        if frame.across and flat_source(f, frame, frame.sources[0]) is not None:
            self.width = as_int(self.columns) or 1
        self.outer = rows[:-1] if frame.across else rows
        self.blocks = as_expr(cdiv(self.columns, self.width))
        self.units = as_expr(product(self.outer)) * self.blocks
        size = maximum(const(1), frame.count * minimum(self.columns, const(self.width)))
        per = maximum(const(1), some // size)
        self.abreast = const(False, bool_)
        if not frame.across and len(f.start) == 1 and frame.sources[0].leaves() and not costs(frame.sources[0]):
            apart = not_equal(frame.count * f.start[0].dtype.size % L1_SET_BYTES, 0)  # else rows share cache sets of L1
            self.abreast = both(self.units >= LEAST_PIECES * ROWS_ABREAST, apart)
            per = select(self.abreast, maximum(const(ROWS_ABREAST), per // ROWS_ABREAST * ROWS_ABREAST), per)
        few = both(frame.chunks > 1, cdiv(self.units, per) < LEAST_PIECES)
        self.split = few
        self.per = select(few, const(1), per)
        self.chunk_pieces = select(few, frame.chunks, const(1))
        self.pieces = cdiv(self.units, self.per) * self.chunk_pieces
        self.rows = as_expr(product(rows))
        self.partial: list[Array] = []
        if not (few.op == "const" and not few.attr):
            n = select(few, frame.chunks * self.rows, const(0))
            self.partial = [temp(s.dtype, (n,)) for s in f.start]

    def each(self, k: KernelBuilder) -> tuple[Expr, Expr, Expr, Expr]:
        """The units of this piece and its range of chunks: first unit, end, first chunk, end."""
        piece = k.split(self.pieces)
        unit0 = k.let(piece // self.chunk_pieces * self.per)
        chunk0 = k.let(piece % self.chunk_pieces)
        stop = select(self.split, chunk0 + 1, self.frame.chunks)
        return unit0, k.let(minimum(unit0 + self.per, self.units)), chunk0, stop

    def save(self, k: KernelBuilder, chunk: Expr, row: Expr, state: State, count: Expr | None = None) -> None:
        for a, e in zip(self.partial, state):
            k.store(k.write(a), chunk * self.rows + row, e, count)


def _rows_along(k: KernelBuilder, work: _Work, finish) -> None:
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
        with k.if_(negate(work.split)):
            finish(k, row, state, False, None)


def _rows_across(k: KernelBuilder, work: _Work, finish) -> None:
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
            with k.if_(negate(work.split)):
                finish(k, (*row, start + j), state, True, count)


def _combine(lo: Lowering, work: _Work, finish, name: str) -> None:
    """The second kernel: joins each row's chunks in order. It has no pieces where rows turn out not to be split."""
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
    total = [k.var(splat(s) if lanes > 1 else s, name="total") for s in f.start]
    with k.loop(0, work.frame.chunks, name="chunk") as c:
        part = tuple(k.load(k.read(a), c * work.rows + row, lanes, count) for a in work.partial)
        assign(k, total, f.join(tuple(t.value for t in total), part))
    return tuple(t.value for t in total)
