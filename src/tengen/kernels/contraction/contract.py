"""`contract`: every product (of matrices, linear layers, convolutions and both their gradients) is one contraction.

    out[g, m, n] = the sum over k of a[g, m, k] * b[g, k, n]           # each of g, m, k, n is any number of axes, any strides

In: two arrays and where their product goes, axes by role. Out: launches of the strategy that fits (see the package's page). The
order of the sum is fixed by `chunks.Chunks`, so every strategy gives the same bits. A long sum with few results is shared among
threads by chunks (`by_chunks`): partial[chunk, m, n] by the same strategies, then out = partial[0] + partial[1] + ...
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction

from tengen.base.dtype import bool_, int8, int32
from tengen.base.record import record
from tengen.kernels import numerics
from tengen.kernels.axes import store_at, unflatten
from tengen.kernels.contraction.channelwise import channelwise, fits
from tengen.kernels.contraction.formats import MATCHED, DotFormat, dot_format
from tengen.kernels.contraction.operands import along_k
from tengen.kernels.contraction.problem import Border, Epilogue, Problem, normalise
from tengen.kernels.contraction.register_tile import register_tile
from tengen.kernels.contraction.transposed_operand import fits_transposed_operand, transposed_operand
from tengen.kernels.contraction.unpacked import fits_unpacked, unpacked
from tengen.kernels.lowering import Array, Lowering, product
from tengen.kernels.machine import registers_of
from tengen.kernels.source import At
from tengen.loops.builder import as_expr
from tengen.loops.lang import LANES, Expr, Index, as_int, cast, cdiv, const, equal, minimum

MOST_SHARED_RESULTS = 1 << 15  # of a sum that is shared by chunks: partial sums are then small beside the operands
LEAST_SHARED_CHUNKS = 16  # of such a sum
LEAST_WAVE_BYTES = 1 << 20  # bytes of partial sums of a wave, at least: fewer stay in a cache without waves
LEAST_MATCHED_TERMS = 128  # of a chunk of matched pairs: of fewer, more do not fit, and rows are turned for few products
MATCHED_GROWTH = Fraction(6, 5)  # terms of whole blocks of matched pairs, over those that there are, at most
ADDED_RESULTS = 512  # results, at least, whose chunks one piece adds


def contract(
    lo: Lowering,
    a: Array,
    b: Array,
    out: Array,
    g: int,
    m: int,
    k: int,
    n: int,
    epilogue: Epilogue | None = None,
    chunk: int | None = None,
    name: str = "contract",
    border: Border | None = None,
    format: DotFormat | None = None,
    zeros: tuple[Index, ...] = (),
) -> None:
    """out[g, m, n] = the sum over k of a[g, m, k] * b[g, k, n].

    Shapes:   a ([g], [m], [k]), b ([g], [k], [n]), out ([g], [m], [n]), where g, m, k, n are the numbers of axes of each
              role, each may be 0; strides are arbitrary (0, negative, overlapping windows), known or not. `a` may have a
              prologue (`Array.prologue`), if out is dense along n
    Dtypes:   a and b of one dtype, not bool; float16 and bfloat16 are computed in float32; integers wrap
    Args:
        epilogue: makes what is stored from the sum (in the dtype computed in), at coordinates of out, a vector or not;
            default: a cast. It may load anything but out.
        chunk: positions of a run in the rule of `Chunks`, if not its 256: changes bits.
        name: of the kernels. border: which elements of `a` lie outside of an image and count as 0 (default: none).
        format: of the products (default: one by one, in the dtype computed in). One that is not `exact` changes bits.
        zeros: offsets in elements: at each of them from every element of out lies one that is set to 0 when that is stored.
    Numerics: see `Chunks`: each chunk of k is accumulated by fma in logical order from zero, chunks are added in order. With
        a `format` of several terms, by its operation for each group from the chunk's first on; zeros complete the last one
    """
    if any(as_int(d) == 0 for d in out.shape):
        return
    if any(as_int(d) == 0 for d in a.shape[g + m :]):  # no terms: nothing is looked at, not the image's border either
        border, format = None, None
    if (q := _in_matched_pairs(lo, a, b, out, (g, m, k, n), epilogue, chunk, name, border, format, zeros)) is not None:
        return register_tile(lo, q)
    shared = g == 0 and chunk is None and not zeros and (format is None or format.group <= 2)
    if shared and (parts := chunk_axes(a.shape[m:], out.shape[:m], out.shape[m:])) is not None:
        return by_chunks(lo, a, b, out, m, n, parts, epilogue, name, border, format)
    p = normalise(a, b, out, g, m, k, n, epilogue, chunk, name, border, format, zeros)
    next(s for s in STRATEGIES if s.fits(lo, p)).launch(lo, p)


def _in_matched_pairs(
    lo: Lowering, a: Array, b: Array, out: Array, axes: tuple[int, int, int, int], epilogue: Epilogue | None, chunk: int | None,
    name: str, border: Border | None, format: DotFormat | None, zeros: tuple[Index, ...],
) -> Problem | None:  # fmt: skip
    """The problem of a `contract` call in pairs of weights that are matched when they are packed; None where it is computed otherwise. That
    takes three instructions for as many products of bytes as take four by pairs of int16, and rows are not widened: where the target multiplies
    no bytes at once and has registers of half a vector, b is a constant of bytes, rows lie along k, and chunks are not short.
    Wider registers are left to pairs of int16: fewer pairs fit in every column of a panel that is as wide as keeps them busy."""
    target = lo.target
    there = target is not None and registers_of(int32.size, target) == 2 and target.computes("dot4s") and target.computes("swizzle")
    pairs = format is not None and format.op == "dot2i" and a.dtype.size == 1 and b.dtype is int8 and b.constant
    if not (there and pairs) or chunk is not None or a.prologue is not None:
        return None
    p = normalise(a, b, out, *axes, epilogue, chunk, name, border, MATCHED, zeros)
    positions = as_int(p.chunks.positions)
    if positions is None or not along_k(p):
        return None
    terms = p.chunks.longest
    filled = -(-terms // MATCHED.terms) * MATCHED.terms
    return p if terms >= LEAST_MATCHED_TERMS and filled <= terms * MATCHED_GROWTH else None


@record(frozen=True)
class Strategy:
    """One way to compute a problem.

    Attributes:
        name: for people. fits: whether it can compute a problem, and should. launch: launches what does.
    """

    name: str
    fits: Callable[[Lowering, Problem], bool]
    launch: Callable[[Lowering, Problem], None]


def _needs_tiles(lo: Lowering, p: Problem) -> bool:
    """Whether something has to be done that the register tile alone can do as it packs or stores."""
    return p.border is not None or p.format.group > 1 or bool(p.zeros) or p.prologue is not None


# The first that fits is taken. Those in the middle read each element of an operand a few times at most, and pack nothing.
STRATEGIES = (
    Strategy("register tile", _needs_tiles, register_tile),
    Strategy("channelwise", lambda lo, p: fits(p), channelwise),
    Strategy("transposed operand", lambda lo, p: fits_transposed_operand(p, lo.target, lo.invariant(p.b)), transposed_operand),
    Strategy("unpacked", lambda lo, p: fits_unpacked(p, lo.target, lo.invariant(p.b)), unpacked),
    Strategy("register tile", lambda lo, p: True, register_tile),
)


def chunk_axes(k: Sequence[Index], m: Sequence[Index], n: Sequence[Index]) -> int | None:
    """How many positions of the last summed axis but one make a chunk, where a sum should be shared among threads by chunks:
    there are many chunks and few results, and every chunk is equally many whole runs of the last axis. Else None."""
    extents = [as_int(d) for d in k]
    rows, columns = as_int(product(m)), as_int(product(n))
    if len(extents) < 2 or None in extents or rows is None or columns is None:
        return None
    if not 0 < extents[-1] < numerics.CHUNK_TERMS:
        return None
    group = numerics.CHUNK_TERMS // extents[-1]
    lines = extents[-2] or 0
    if not lines or lines % group or product(extents[:-2]) * (lines // group) < LEAST_SHARED_CHUNKS:
        return None
    return group if rows * columns <= MOST_SHARED_RESULTS else None


def by_chunks(
    lo: Lowering, a: Array, b: Array, out: Array, m: int, n: int, group: int, epilogue: Epilogue | None, name: str,
    border: Border | None = None, format: DotFormat | None = None,
) -> None:  # fmt: skip
    """Computes the chunks of a contraction as a batch of contractions, and adds them in order by a second kernel. Where partial
    sums are many bytes this is done in waves, each a part of the first summed axis, so that they are added from a cache."""

    k = a.ndim - m

    def cut(x: Array, axis: int) -> tuple[list[Index], list[Index]]:
        """Extents and strides of x with `axis` cut in two: (chunk, position in the chunk)."""
        d, s = x.shape[axis], x.strides[axis]
        return (
            [*x.shape[:axis], d // group, group, *x.shape[axis + 1 :]],
            [*x.strides[:axis], s * group, s, *x.strides[axis + 1 :]],
        )

    def order(first: int, inner: Sequence[int]) -> list[int]:
        return [*range(first, first + k - 1), *inner]

    def chunks_first(x: Array, first: int, order: Sequence[int]) -> Array:
        """The array with its k summed axes, which begin at `first`, cut into chunks, and axes in this `order`: the axes that
        count chunks come first, the two summed axes of a chunk last (of b: before n)."""
        shape, strides = cut(x, first + k - 2)
        return replace(x, shape=tuple(shape[i] for i in order), strides=tuple(strides[i] for i in order))

    transposed_operand = order(m, [*range(m), m + k - 1, m + k])
    left, right = chunks_first(a, m, transposed_operand), chunks_first(b, 0, order(0, [k - 1, k, *range(k + 1, k + 1 + n)]))
    if border is not None:
        axis = m + k - 2
        inner = border.steps[axis]
        steps = (*border.steps[:axis], None if inner is None else (inner[0], inner[1] * group), *border.steps[axis:])
        border = replace(border, steps=tuple(steps[i] for i in transposed_operand))
    batch = left.shape[: k - 1]
    results = _across(out, m) if border is None and a.prologue is None else tuple(range(m + n))
    kept = border is None and epilogue is None and out.dtype is (format or dot_format(a.dtype)).total  # the sum of earlier waves is kept in out
    count = _waves(batch, product(out.shape), out.dtype.size) if kept and not lo.in_loop else 1
    batch = (batch[0] // count, *batch[1:])
    partial = lo.temp((format or dot_format(a.dtype)).total, (*batch, *out.shape), (*range(k - 1), *(k - 1 + i for i in results)))
    with contextlib.nullcontext() if count == 1 else lo.loop(count) as wave:
        if wave is not None:
            left, right = (_part(x, wave, batch[0]) for x in (left, right))
        contract(lo, left, right, partial, k - 1, m, 2, n, None, None, name, border, format)
        add_chunks(lo, partial, product(batch), out, name, results, epilogue, wave)


def _waves(batch: Sequence[Index], results: Index, size: int) -> int:
    """The number of waves: the first axis is cut into the smallest equal parts of LEAST_SHARED_CHUNKS chunks and
    LEAST_WAVE_BYTES bytes of partial sums each, at least."""
    images, each = as_int(batch[0]) or 1, as_int(product(batch[1:])) or 1
    fits = lambda part: part * each >= LEAST_SHARED_CHUNKS and part * each * (as_int(results) or 1) * size >= LEAST_WAVE_BYTES
    return images // min((x for x in range(1, images + 1) if images % x == 0 and fits(x)), default=images)


def _part(x: Array, number: Expr, extent: Index) -> Array:
    """Part `number` of an array, cut along its first axis into parts of `extent` positions."""
    return replace(x, shape=(extent, *x.shape[1:]), offset=x.offset + number * (extent * x.strides[0]))


def _across(out: Array, m: int) -> tuple[int, ...]:
    """The axes of partial sums, outermost in memory first: vectors run along the side (m or n) that leaves fewer lanes empty,
    and as in out where both leave equally many."""
    rows, columns = (as_int(product(x)) or 1 for x in (out.shape[:m], out.shape[m:]))
    vectors = lambda vec, other: -(-vec // LANES) * other
    mine, theirs = tuple(range(m)), tuple(range(m, out.ndim))
    dense = any(as_int(s) == 1 and as_int(d) != 1 for s, d in zip(out.strides[:m], out.shape[:m]))
    down, across = vectors(rows, columns), vectors(columns, rows)
    return (*theirs, *mine) if down < across or (down == across and dense) else (*mine, *theirs)


def add_chunks(
    lo: Lowering, partial: Array, chunks: Index, out: Array, name: str, order: Sequence[int] | None = None,
    epilogue: Epilogue | None = None, wave: Expr | None = None,
) -> None:  # fmt: skip
    """out = partial[0] + partial[1] + ..., in this order.

        for piece = some rows of results:
            sums[row, column] = partial[0, row, column]                # or out + partial[0], in later waves
            for chunk from 1 on:
                sums[row, column] += partial[chunk, row, column]
            out[row, column] = epilogue(sums[row, column])

    Args:
        order: the axes of out from the outermost in the memory of `partial` to the innermost (default: as out has them).
        wave: the number of the wave; after wave 0, out holds the sum of the chunks of earlier waves.
    """
    k = lo.kernel(f"{name}_chunks")
    order = range(out.ndim) if order is None else order
    shape = [out.shape[i] for i in order]
    columns, lines = as_expr(shape[-1]), as_expr(product(shape[:-1]))
    rows = max(1, ADDED_RESULTS // (as_int(columns) or ADDED_RESULTS))
    piece = k.split(cdiv(lines, rows))
    first = k.let(piece * rows)
    count = k.let(minimum(lines - first, rows))
    sums, src = k.scratch("sums", partial.dtype, rows * (as_int(columns) or 0) + LANES), k.read(partial)
    start, size = k.let(partial.offset + first * columns), k.let(count * columns)

    def results() -> Iterator[tuple[Expr, At]]:
        """Loops over the piece's vectors of results; yields where each lies in `sums`, and its place in out."""
        with k.loop(0, count, name="row") as r:
            place = unflatten(k, k.let(first + r), shape[:-1])
            for i, n in k.vector_loop(0, columns, "column"):
                coords: list[Index] = [0] * out.ndim
                for axis, x in zip(order, (*place, i)):
                    coords[axis] = x
                yield k.let(r * columns + i), At(tuple(coords), order[-1], n)

    with k.if_(const(True, bool_) if wave is None else equal(wave, 0)):
        for i, n in k.vector_loop(0, size):
            k.store(sums, i, k.load(src, start + i, LANES, n))
    if wave is not None:
        with k.else_():
            for i, at in results():
                k.store(sums, i, at.load(k, out) + k.load(src, start + i, LANES, at.count))
    with k.loop(1, chunks, name="chunk") as c:
        here = k.let(start + c * lines * columns)
        for i, n in k.vector_loop(0, size):
            k.store(sums, i, k.load(sums, i, LANES) + k.load(src, here + i, LANES, n))
    for i, at in results():
        value = k.load(sums, i, LANES)
        store_at(k, out, at, cast(value, out.dtype) if epilogue is None else epilogue(k, value, at))
    lo.launch(k)
