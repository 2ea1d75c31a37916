"""What symmetric eigenproblems and singular values share: an iteration of sweeps over a small band, whose rotations are kept and then
applied to the vectors; and the order and signs of the results.

    while the band of some matrix has not converged, an iteration of the program:
        a kernel makes up to SWEEPS_KEPT sweeps of each matrix, and keeps their rotations: a piece is a matrix
        a kernel applies them to the rows of a matrix of vectors: a piece is LANES columns, which stay in the cache

The band is kept in float64, for matrices of float32 as well. A sweep rotates the rows first, first + 1; ...; last - 1, last in order:
    row i = c row i + s row i + 1;  row i + 1 = c row i + 1 - s row i
How many sweeps are kept at a time changes no bit.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence

from tengen.base.dtype import DType, bool_, float64, int64
from tengen.base.record import record
from tengen.kernels import numerics
from tengen.kernels.linalg.stacks import power_of_two
from tengen.kernels.lowering import Array, KernelBuilder, Lowering
from tengen.kernels.pointwise import pointwise
from tengen.kernels.source import At, Source
from tengen.loops.builder import Variable, as_expr
from tengen.loops.lang import (
    LANES,
    Expr,
    Index,
    cast,
    cdiv,
    const,
    equal,
    fma,
    fold,
    maximum,
    minimum,
    not_equal,
    ramp,
    select,
    splat,
    unary,
)
from tengen.loops.statements import Buffer

SWEEPS_KEPT = 16  # sweeps of a matrix whose rotations are kept until they are applied together
TINY = 2.0**-450  # of a rotation's operands, which are at most about 1: what is less is 0, so that squares do not underflow
UNFINISHED, KEPT = 0, 1  # what the state of a matrix holds: the last place of the band that has not converged; kept sweeps


@record(frozen=True)
class Band:
    """The bands of a stack of matrices.

    Attributes:
        n: places. d, e: (count, n) float64, the diagonal and what is beside it. scale: (count,) float64, by what the results are
            multiplied; NaN for a matrix with elements that are not finite, whose results are NaN. state: (count, 2) int64. heads:
            (count, SWEEPS_KEPT, 2) int64, the first and last place of each kept sweep. turns: for each matrix of vectors the cosines and
            sines (count, SWEEPS_KEPT, n, 2).
        dtype: of the matrices.
    """

    count: Expr
    n: Expr
    d: Array
    e: Array
    scale: Array
    state: Array
    heads: Array
    turns: Sequence[Array]
    dtype: DType

    def eps(self) -> float:
        """The distance of 1 to the next number, of the matrices' dtype."""
        return 2.0**-52 if self.dtype is float64 else 2.0**-23


def band(lo: Lowering, count: Index, n: Index, d: DType, vectors: int) -> Band:
    """Memory for bands, with rotations for so many matrices of vectors."""
    t = lo.temp
    turns = [t(d, (count, SWEEPS_KEPT, n, 2)) for _ in range(vectors)]
    return Band(
        as_expr(count), as_expr(n), t(float64, (count, n)), t(float64, (count, n)), t(float64, (count,)), t(int64, (count, 2)),
        t(int64, (count, SWEEPS_KEPT, 2)), turns, d,
    )  # fmt: skip


def scale_down(k: KernelBuilder, y: Buffer, base: Expr, size: Expr) -> tuple[Expr, Expr]:
    """Divides `size` numbers by a power of two so that the largest is between 1 and 2; returns (that power, whether all are finite)."""
    most = k.var(const(0, y.dtype, LANES), name="most")
    for i, count in k.vector_loop(0, size, "i"):
        most.set(maximum(most.value, abs(k.load(y, base + i, LANES, count))))
    largest = k.let(fold("max", most.value))
    finite = k.let(largest < math.inf)
    unit = k.let(select(finite, power_of_two(largest), const(1, y.dtype)))
    for i, count in k.vector_loop(0, size, "i"):
        k.store(y, base + i, k.load(y, base + i, LANES, count) / splat(unit), count)
    return unit, finite


def hypot(f: Expr, g: Expr) -> Expr:
    """sqrt(f f + g g), of numbers that are not too small or large."""
    return unary("sqrt", fma(f, f, g * g))


def signed(size: Expr, like: Expr) -> Expr:
    """The number of this magnitude with the sign of another; + for 0."""
    return select(like < 0.0, -size, size)


class Sweeper:
    """A kernel that makes sweeps: the band of the piece's matrix."""

    def __init__(self, lo: Lowering, of: Band, name: str):
        self.k = k = lo.kernel(name)
        self.of = of
        self.b = k.split(of.count)
        self.row = k.let(self.b * of.n)
        self.d_memory, self.e_memory = k.write(of.d), k.write(of.e)
        self.state, self.heads = k.write(of.state), k.write(of.heads)
        self.turns = [k.write(t) for t in of.turns]
        self.last: Variable
        self.kept: Variable

    def d(self, i: Expr) -> Expr:
        return self.k.load(self.d_memory, self.row + i)

    def e(self, i: Expr) -> Expr:
        return self.k.load(self.e_memory, self.row + i)

    def set_d(self, i: Expr, value: Expr) -> None:
        self.k.store(self.d_memory, self.row + i, value)

    def set_e(self, i: Expr, value: Expr) -> None:
        self.k.store(self.e_memory, self.row + i, value)

    def keep(self, of: int, i: Expr, c: Expr, s: Expr) -> None:
        """Keeps the rotation of rows i, i + 1 of a matrix of vectors."""
        if not self.turns:
            return
        at = self.k.let(((self.b * SWEEPS_KEPT + self.kept.value) * self.of.n + i) * 2)
        d = self.of.dtype
        self.k.store(self.turns[of], at, cast(c, d))
        self.k.store(self.turns[of], at + 1, cast(s, d))

    @contextlib.contextmanager
    def sweeps(self, negligible) -> Iterator[tuple[Expr, Expr]]:
        """What is written in this context is a sweep; yields its first and last place. negligible(i): whether what is beside the
        diagonal between i and i + 1 counts as 0."""
        k = self.k
        self.last = k.var(k.load(self.state, self.b * 2 + UNFINISHED), name="last")
        self.kept = k.var(const(0), name="kept")
        with k.loop(0, self.of.n + SWEEPS_KEPT, name="trip"), k.if_((self.last.value > 0) & (self.kept.value < SWEEPS_KEPT)):
            first, last = k.var(const(0), name="first"), k.let(self.last.value + 0)
            with k.loop(0, last, name="i") as i:
                first.set(select(negligible(i), i + 1, first.value))
            start = k.let(first.value + 0)
            with k.if_(equal(start, last)):
                self.last.set(last - 1)
            with k.else_():
                yield start, last
                head = k.let((self.b * SWEEPS_KEPT + self.kept.value) * 2)
                k.store(self.heads, head, start)
                k.store(self.heads, head + 1, last)
                self.kept.set(self.kept.value + 1)
        k.store(self.state, self.b * 2 + UNFINISHED, self.last.value)
        k.store(self.state, self.b * 2 + KEPT, self.kept.value)


class Panels:
    """Matrices of vectors that sweeps rotate, one vector in each row: (count, rows, columns), stored as panels of LANES columns, one
    after the other, so that the rows of a panel are neighbours in memory."""

    def __init__(self, lo: Lowering, source: Array):
        """Launches the copy of the transposed matrices `source` (count, columns, rows)."""
        self.count, self.columns, self.rows = (as_expr(n) for n in source.shape)
        self.chunks = cdiv(self.columns, LANES)
        self.memory = lo.temp(source.dtype, (self.count, self.chunks, self.rows, LANES))
        pointwise(lo, [_InPanels(source, self.memory.shape)], [self.memory], "to_panels")

    def row(self, b: Expr, chunk: Expr, i: Expr) -> Expr:
        """Where the part of row i of matrix b in a panel begins."""
        return ((b * self.chunks + chunk) * self.rows + i) * LANES


class _InPanels(Source):
    """The elements of panels; behind the last column that one's."""

    def __init__(self, source: Array, shape: Sequence[Index]):
        self.source, self.shape, self.dtype = source, tuple(shape), source.dtype

    def value(self, k, at):
        column = minimum(at.coords[1] * LANES + at.coord(3), as_expr(self.source.shape[1]) - 1)
        return At((at.coords[0], column, at.coords[2])).load(k, self.source)


def iterate(lo: Lowering, of: Band, write, vectors: Sequence[Panels]) -> None:
    """Launches sweeps until all bands have converged, and what they do to vectors.

    Args:
        write: launches a kernel of sweeps. vectors: with at least n rows; one for each of the band's turns.
    """
    flag = lo.temp(bool_, (1,))
    limit = cdiv(of.n * numerics.MOST_SWEEPS, SWEEPS_KEPT) + 1
    with lo.while_loop(limit=limit) as loop:
        k = lo.kernel("unfinished")
        k.split(1)
        x, y = k.read(of.state), k.write(flag)
        some = k.var(const(0), name="some")
        with k.loop(0, of.count, name="b") as b:
            some.set(maximum(some.value, k.load(x, b * 2 + UNFINISHED)))
        k.store(y, 0, some.value > 0)
        lo.launch(k)
        loop.holds(flag)
        write()
        for v, turns in zip(vectors, of.turns):
            _rotate(lo, of, v, turns)


def _rotate(lo: Lowering, of: Band, vectors: Panels, turns: Array) -> None:
    """Launches the kept sweeps on rows of vectors. The row that a sweep carries on stays in registers."""
    k = lo.kernel("rotate")
    piece = k.split(of.count * vectors.chunks)
    b, chunk = k.let(piece // vectors.chunks), k.let(piece % vectors.chunks)
    state, heads, x, y = k.read(of.state), k.read(of.heads), k.read(turns), k.write(vectors.memory)
    base = k.let(vectors.row(b, chunk, const(0)))
    with k.loop(0, k.load(state, b * 2 + KEPT), name="sweep") as sweep:
        at = k.let(b * SWEEPS_KEPT + sweep)
        start, stop = k.load(heads, at * 2), k.load(heads, at * 2 + 1)
        carried = k.var(k.load(y, base + start * LANES, LANES), name="row")
        with k.loop(start, stop, name="i") as i:
            c, s = (splat(k.load(x, (at * of.n + i) * 2 + part)) for part in range(2))
            below = k.load(y, base + (i + 1) * LANES, LANES)
            k.store(y, base + i * LANES, fma(c, carried.value, s * below))
            carried.set(fma(-s, carried.value, c * below))
        k.store(y, base + stop * LANES, carried.value)
    lo.launch(k)


def finish(lo: Lowering, of: Band, values: Array, descending: bool) -> Array:
    """Launches the values in order: the diagonal of the bands, times their scale, in `values` (count, n), dense. Returns the places
    (count, n) int64 that they come from. Equal ones keep their order. NaN for what has not converged."""
    order = lo.temp(int64, (of.count, of.n))
    k = lo.kernel("order_values")
    b = k.split(of.count)
    d, scale, state, y, places = k.read(of.d), k.read(of.scale), k.read(of.state), k.write(values), k.write(order)
    row, last = k.let(b * of.n), k.load(state, b * 2 + UNFINISHED)
    factor = k.load(scale, b)
    factor = k.let(select(last > 0, const(math.nan, float64), factor))
    size = (lambda x: -abs(x)) if descending else (lambda x: x)
    with k.loop(0, of.n, name="i") as i:
        own = k.let(size(k.load(d, row + i)))
        rank = k.var(const(0), name="rank")
        with k.loop(0, of.n, name="j") as j:
            other = k.let(size(k.load(d, row + j)))
            rank.set(rank.value + cast((other < own) | (equal(other, own) & (j < i)), int64))
        at = k.let(row + rank.value)
        k.store(places, at, i)
        k.store(y, values.offset + at, cast((-own if descending else own) * factor, values.dtype))
    lo.launch(k)
    return order


def order_vectors(lo: Lowering, of: Band, order: Array, sources: Sequence[Panels], outs: Sequence[Array]) -> None:
    """Launches outs[j][i] = the row sources[j][order[i]] with its sign, or NaN where the matrix's values are.

    The sign of a row of the first source, and of the same row of the others: its first element that is at least half as large as its
    largest one is positive. A row of the second source has in addition the sign of the diagonal, so that singular values are not
    negative. Rows at and behind n keep their place.
    """
    k = lo.kernel("order_vectors")
    most = sources[0].rows
    piece = k.split(of.count * most)
    b, i = k.let(piece // most), k.let(piece % most)
    places, state, scale, d = k.read(order), k.read(of.state), k.read(of.scale), k.read(of.d)
    inside = k.let(i < of.n)
    held = k.let(minimum(i, of.n - 1))
    source = k.let(select(inside, k.load(places, b * of.n + held), i))
    bad = (k.load(state, b * 2 + UNFINISHED) > 0) | not_equal(k.load(scale, b), k.load(scale, b))
    dtype = of.dtype
    factor = k.let(select(bad, const(math.nan, dtype), const(1, dtype)))
    negative = k.let(k.load(d, b * of.n + minimum(source, of.n - 1)) < 0.0)
    for j, (panels, y) in enumerate(zip(sources, outs)):
        x, out = k.read(panels.memory), k.write(y)
        target = k.let((b * panels.rows + i) * panels.columns + y.offset)
        get = lambda c, panels=panels, x=x: k.load(x, panels.row(b, c // LANES, source), LANES)
        if j == 0:  # it has the most rows
            factor = k.let(factor * _sign(k, get, panels.columns, dtype))
        with k.if_(i < panels.rows):
            own = k.let(select(negative, -factor, factor)) if j else factor
            with k.loop(0, panels.columns, LANES, name="c") as c:
                k.store(out, target + c, get(c) * splat(own), minimum(panels.columns - c, LANES))
    lo.launch(k)


def _sign(k: KernelBuilder, get: Callable[[Expr], Expr], n: Expr, d: DType) -> Expr:
    """-1 if the first of n elements that is at least half as large as the largest one is negative, else 1."""
    most = k.var(const(0, d, LANES), name="most")
    with k.loop(0, n, LANES, name="i") as i:
        most.set(maximum(most.value, abs(get(i))))
    half = k.let(fold("max", most.value) * 0.5)
    first = k.var(splat(n), name="first")
    negative = k.var(const(0, int64, LANES), name="negative")
    with k.loop(0, n, LANES, name="i") as i:
        x = get(i)
        place = k.let(ramp() + splat(i))
        better = k.let((abs(x) >= splat(half)) & (place < first.value))
        first.set(select(better, place, first.value))
        negative.set(select(better, cast(x < 0.0, int64), negative.value))
    least = k.let(fold("min", first.value))
    chosen = fold("max", select(equal(first.value, splat(least)), negative.value, const(0, int64, LANES)))
    return k.let(select(chosen > 0, const(-1, d), const(1, d)))
