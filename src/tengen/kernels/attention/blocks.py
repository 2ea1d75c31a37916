"""What a piece of an attention kernel holds: blocks of its lanes, chunks of rows, and results; how they are filled and stored.

    block:     scratch[tile, feature, lane of the tile] = array[lane, feature]      # transposed in registers, 16 by 16
    chunk:     scratch[row, feature] = array[row, feature]                          # or nothing: read where the array lies
    results:   scratch[lane, feature], zeros at first; at the end array[lane, feature] = factor(lane) * scratch[lane, feature]

A *lane* is a query or a key that the piece computes something for: it is one element of a vector. A *row* is one of the others,
which the piece goes through in chunks. A *feature* is an element of a query, a key or a value. A *group* is one head of one
sequence of the batch: the leading axes of all arrays. Rows of scratch memory are rounded up to whole vectors of features.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from math import gcd

from tengen.base.dtype import DType
from tengen.base.record import record
from tengen.kernels import numerics
from tengen.kernels.attention.sizes import LANE_BLOCK_BYTES, Sizes
from tengen.kernels.axes import unflatten
from tengen.kernels.lowering import Array, KernelBuilder, Lowering, product
from tengen.kernels.machine import L1_SET_BYTES
from tengen.kernels.squares import transpose_square
from tengen.loops.builder import as_expr
from tengen.loops.lang import LANES, Expr, Index, as_int, cast, cdiv, const, minimum, ramp, splat
from tengen.loops.statements import Buffer

MOST_SCORE_TILE_ROWS = 16  # rows of a register tile, at most


@record
class Block:
    """What a piece holds for each of its lanes, in scratch memory: either one tile of lanes after another, each as
    [feature, lane]; or results, as [lane, feature]."""

    buffer: Buffer
    features: int


@record
class Rows:
    """A chunk of the rows of an array: a copy in scratch memory, or the array's own memory.

    Attributes:
        buffer, at, pitch: row i of the chunk begins at element `at` + i * `pitch` of `buffer`.
        count: rows of a chunk, at most.
        exact: whether every chunk has a multiple of a tile's rows, so that a tile never reads past the chunk's end.
        direct: whether rows are read in the array's own memory.
    """

    array: Array
    buffer: Buffer
    pitch: int
    count: int
    exact: bool = True
    direct: bool = False
    at: Expr = const(0)

    @property
    def features(self) -> int:
        """Numbers of a row."""
        n = as_int(self.array.shape[-1])
        assert n is not None
        return n


class Blocks:
    """Begins one kernel whose pieces are (group, block of lanes), or whole groups, and manages the memory of a piece.

    Args:
        groups: the leading extents. lanes: how many lanes a group has. z: the sizes of tiles and blocks.
        dtype: that arithmetic is done in.
        last_first: whether a group's last blocks are the first pieces.
        whole: whether a piece has all lanes of its group, one block after another.

    Attributes:
        g: the coordinates of the piece's group. first, n: the first lane of the current block, and how many lanes it has.
    """

    def __init__(
        self, lo: Lowering, name: str, groups: Sequence[Index], lanes: Index, z: Sizes, dtype: DType, last_first: bool,
        whole: bool,
    ):  # fmt: skip
        self.lo, self.groups, self.z, self.compute, self.whole = lo, groups, z, dtype, whole
        self.lanes = as_expr(lanes)
        self.k: KernelBuilder = lo.kernel(name)
        k = self.k
        if whole:
            self.g = unflatten(k, k.split(product(groups)), groups)
            return
        blocks = as_expr(cdiv(self.lanes, z.lanes))
        piece = k.split(product(groups) * blocks)
        self.g = unflatten(k, k.let(piece // blocks), groups)
        block = piece % blocks
        self._begin_block(k.let((blocks - 1 - block if last_first else block) * z.lanes))

    def _begin_block(self, first: Expr) -> None:
        self.first, self.n = first, self.k.let(minimum(self.lanes - first, self.z.lanes))

    @contextlib.contextmanager
    def blocks(self) -> Iterator[None]:
        """What is written in this context is done for each of the piece's blocks of lanes, in order."""
        if not self.whole:
            yield
            return
        with self.k.loop(0, self.lanes, self.z.lanes, name="block") as first:
            self._begin_block(first)
            yield

    def zero(self) -> Expr:
        """A vector of zeros."""
        return const(0, self.compute, LANES)

    def base(self, a: Array, *coords: Index) -> Expr:
        """The index of the element of `a` at these coordinates in the piece's group."""
        return self.k.let(as_expr(a.index([*self.g, *coords])))

    # ---- for each lane

    def transposed(self, name: str, a: Array) -> Block:
        """The piece's lanes of `a` (..., lane, feature), as a block of tiles [feature, lane]. Where the last tile has more
        lanes than there are, they repeat the last one."""
        k, z, width = self.k, self.z, as_int(a.shape[-1]) or 0
        b, whole = Block(k.scratch(name, self.compute, max(width, 1) * z.lanes), width), width // LANES * LANES
        src, start, last = k.read(a), self.base(a, self.first, 0), k.let(self.n - 1)

        def square(lane: Expr, d: Index, count: int) -> None:
            """Transposes 16 lanes from `lane` on by `count` features from `d` on, in registers; in loops where the number of lanes is
            open."""

            def read(i: Index) -> Expr:
                here = start + minimum(lane + i, last) * a.strides[-2]
                some = None if count == LANES else const(count)
                return cast(k.load(src, vector_index(here, d, a.strides[-1]), LANES, some), self.compute)

            loops = count == LANES and as_int(self.lanes) is None
            xs = [] if loops else [read(i) for i in range(LANES)]
            there = k.let(lane // z.wide * (z.wide * width) + lane % z.wide + d * z.wide)
            write = lambda i, x: k.store(b.buffer, there + i * z.wide, x)  # block[tile, d + i, 16 lanes] = a[16 lanes, d + i]
            if loops:
                return transpose_square(k, self.compute, read, write, seldom=True)
            for i, x in enumerate(k.transpose(xs)[:count]):
                write(i, x)

        with k.loop(0, cdiv(self.n, z.wide) * z.wide, LANES, name="lane") as lane:
            with k.loop(0, whole, LANES, name="d") as d:
                square(lane, d, LANES)
            if whole < width:
                square(lane, whole, width - whole)
        return b

    def results(self, name: str, features: int) -> Block:
        """A block of results [lane, feature], all 0."""
        n = -(-features // LANES) * LANES * self.z.lanes
        b = Block(self.k.scratch(name, self.compute, max(n, 1)), features)
        with self.k.loop(0, n, LANES) as i:
            self.k.store(b.buffer, i, self.zero())
        return b

    def line(self, name: str, value: float) -> Buffer:
        """Scratch memory for one number of each lane, all of them `value`."""
        b = self.k.scratch(name, self.compute, self.z.lanes)
        with self.k.loop(0, self.z.lanes, LANES) as i:
            self.k.store(b, i, const(value, self.compute, LANES))
        return b

    def numbers(self, name: str) -> Buffer:
        """Scratch memory [row, lane] for a number of each row of a chunk and each lane of one tile."""
        return self.k.scratch(name, self.compute, numerics.CHUNK_ROWS * self.z.wide)

    def finish(self, b: Block, a: Array, factor: Callable[[Expr], Expr]) -> None:
        """Stores a block of results: a[lane, feature] = factor(lane) * b[lane, feature] for the piece's lanes, where the lane
        that `factor` is given counts from the block's first."""
        self._finish((b.buffer, const(0)), a, self.first, self.n, factor)

    def finish_sums(self, sums: Array, a: Array, factor: Expr) -> None:
        """Stores a[row, feature] = factor * sums[row, feature] for all rows of the group."""
        self._finish((self.k.read(sums), self.base(sums, 0, 0)), a, const(0), as_expr(a.shape[-2]), lambda _: factor)

    def _finish(self, at: tuple[Buffer, Expr], a: Array, first: Expr, n: Expr, factor: Callable[[Expr], Expr]) -> None:
        """a[first + i, feature] = factor(i) * (row i of the results at `at`: a buffer, and an index in it), for i < n."""
        k, features = self.k, as_int(a.shape[-1]) or 0
        pitch, (src, base) = -(-features // LANES) * LANES, at
        dst, start = k.write(a), self.base(a, first, 0)
        with k.loop(0, n, name="lane") as i:
            here, there, by = k.let(start + i * a.strides[-2]), k.let(base + i * pitch), k.let(splat(factor(i)))
            for d, count in k.vector_loop(0, features, "d"):
                x = k.load(src, there + d, LANES) * by
                k.store(dst, vector_index(here, d, a.strides[-1]), cast(x, a.dtype), count)

    # ---- rows

    def rows(self, name: str, a: Array, count: int = numerics.CHUNK_ROWS) -> Rows:
        """Where chunks of up to `count` rows of `a` (..., row, feature) are read; `copy` makes it the rows that are wanted."""
        there, features = as_int(a.shape[-2]), as_int(a.shape[-1]) or 0
        if self._direct(a):
            together = LANES if LANES % self.z.rows else self.z.rows  # rows that are whole tiles
            exact = there is not None and there % together == 0
            return Rows(a, self.k.read(a), as_int(a.strides[-2]) or 0, count, exact, True)
        pitch = -(-features // LANES) * LANES
        return Rows(a, self.k.scratch(name, self.compute, count * pitch + LANES), pitch, count)

    def _direct(self, a: Array) -> bool:
        """Whether rows of `a` can be read in its own memory: they are whole vectors of the dtype that arithmetic is done in,
        and they do not all begin in a few sets of L1, where they would evict each other."""
        distance, features, size = as_int(a.strides[-2]), as_int(a.shape[-1]) or 0, a.dtype.size
        if a.dtype is not self.compute or as_int(a.strides[-1]) != 1 or distance is None or features % LANES:
            return False
        return gcd(distance * size, L1_SET_BYTES) <= 2 * features * size

    def copy(self, r: Rows, start: Expr, n: Expr) -> None:
        """Makes `r` the n rows of its array from row `start` on. A copy has zeros after the last one."""
        k, a = self.k, r.array
        src, base = k.read(a), self.base(a, start, 0)
        if r.direct:
            r.at = base
            return
        with k.loop(0, n, name="row") as i:
            here, there = k.let(base + i * a.strides[-2]), k.let(i * r.pitch)
            for d, count in k.vector_loop(0, r.features, "d"):  # r[i, vector d] = a[start + i, vector d]
                x = k.load(src, vector_index(here, d, a.strides[-1]), LANES, count)
                k.store(r.buffer, there + d, cast(x, self.compute))
        with k.if_(n < r.count), k.loop(n * r.pitch, r.count * r.pitch, LANES) as i:
            k.store(r.buffer, i, self.zero())

    def sums(self, rows: Index, features: int) -> Array:
        """An array (..., row, feature) of zeros for sums that all blocks of a group add to, in scratch memory if it is small.
        Features are rounded up to whole vectors, rows to whole register tiles."""
        k, pitch = self.k, -(-features // LANES) * LANES
        rows = as_expr(cdiv(rows, MOST_SCORE_TILE_ROWS) * MOST_SCORE_TILE_ROWS)
        known = as_int(rows)
        if known is not None and known * pitch * self.compute.size <= LANE_BLOCK_BYTES:
            a = Array("sums", self.compute, (*self.groups, rows, pitch), (*[0] * len(self.groups), pitch, 1))
            k.local[a.id] = k.scratch("sums", self.compute, known * pitch)
        else:
            a = self.lo.temp(self.compute, (*self.groups, rows, pitch))
        dst, start = k.write(a), self.base(a, 0, 0)
        with k.loop(0, rows * pitch, LANES) as i:
            k.store(dst, start + i, self.zero())
        return a


def vector_index(base: Expr, i: Index, stride: Index) -> Expr:
    """The index of 16 elements that lie `stride` apart: elements i .. i + 15 of a row whose first element has index `base`."""
    return base + i if as_int(stride) == 1 else ramp() * stride + (base + i * stride)
