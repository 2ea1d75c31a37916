"""The parts of a register tile's kernel: how its work is cut, its operands as tiles read them, and where its results go.

In: a problem, its sizes, the kernel. Out: numbers and buffers that are fixed before the kernel's loops are written
(`register_tile.py`): `Work`, `Rows` of `a`, `Columns` of b, `Results`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tengen.kernels.axes import streams
from tengen.kernels.contraction.operands import dense_columns, transposable
from tengen.kernels.contraction.problem import Axis, Problem, partial_sums
from tengen.kernels.contraction.sharing import pieces
from tengen.kernels.contraction.tile import Tile, most_columns
from tengen.kernels.lowering import Array, KernelBuilder, Lowering
from tengen.kernels.machine import Machine
from tengen.loops.lang import LANES, Expr, as_int, cdiv
from tengen.loops.statements import Buffer

# Stretches of a tile's loop over k, each after some prefetches: at least as many as a tile has rows, or a chunk cache lines.
PREFETCH_STRETCHES = 16
LEAST_STRETCH_POSITIONS = 4  # positions of k of a stretch, at least
LEAST_STRETCH_GROUPS = 32  # the same of integers, whose short sums are over before prefetches pay


@dataclass(frozen=True)
class Work:
    """How the work is cut.

    Attributes:
        parts, blocks: a piece is one of so many parts of the panels of columns, by one of so many blocks of the tiles of rows.
        tiles: of rows of a piece at most, where that is known. high: tiles of the blocks of rows that are packed at a time.
        depth: rows of a panel of b (positions of k, or groups of them) in the longest chunk. stretch: positions of k between
            some prefetches and the next ones. one_chunk: whether each sum is one chunk.
    """

    parts: Expr
    blocks: Expr
    tiles: int | None
    high: int
    depth: int
    stretch: int
    one_chunk: bool

    @staticmethod
    def of(p: Problem, t: Tile, target: Machine | None) -> Work:
        """The cut of a problem."""
        parts, blocks = pieces(p, t, target)
        tiles = as_int(cdiv(cdiv(p.rows, t.rows), blocks))
        depth = as_int(p.depth(p.chunks.longest)) or 1
        least = LEAST_STRETCH_POSITIONS if p.format.total.is_float else LEAST_STRETCH_GROUPS
        stretch = max(least, -(-depth // PREFETCH_STRETCHES))
        stretch += -stretch % (2 if p.format.quads else t.schedule.unroll)
        high = min(t.schedule.high, tiles or t.schedule.high)
        return Work(parts, blocks, tiles, high, depth, stretch, as_int(p.chunks.count) == 1)


@dataclass(frozen=True)
class Rows:
    """Operand `a` as tiles read it.

    Attributes:
        buffer: `a` itself, or scratch memory of packed rows. by_row, by_k: elements from one row to the next, and from one
            position of k (or pair of them) to the next. prefetched: whether the next chunk's rows are prefetched where they
            lie; else the rows that are packed next may be.
    """

    buffer: Buffer
    by_row: int
    by_k: int
    prefetched: bool

    @staticmethod
    def of(k: KernelBuilder, p: Problem, t: Tile) -> Rows:
        """The rows of a problem."""
        deep = t.block if t.along_k else as_int(p.depth(p.chunks.longest)) or 1
        # Rows that are dense along k have the elements of a group side by side: they are stored one by one, and read as groups.
        element = p.format.storage if t.along_k else p.packed
        size = t.schedule.high * t.tile_pitch(deep) if t.tiled else deep * t.pitch + LANES
        buffer = k.read(p.a) if t.direct else k.scratch("rows", element, size)
        by_row, by_k = (t.pitch, p.format.group) if t.along_k else (1, t.pitch)
        if t.direct:
            by_row = as_int(p.walk("m", "a").step) or 0
            by_k = by_k if t.along_k else as_int(p.walk("k", "a").step) or 0
        m, one_chunk = p.walk("m", "a"), as_int(p.chunks.count) == 1
        dense = not t.along_k and None not in map(as_int, m.extents[1:]) and as_int(m.step) == 1
        return Rows(buffer, by_row, by_k, dense and (not one_chunk or (t.direct and t.direct_b and len(p.g) > 0)))


@dataclass(frozen=True)
class Columns:
    """Operand b as tiles read it.

    Attributes:
        packed: b packed by a launch before, or None. buffer: else b itself, or scratch memory for the panels that a piece
            packs.
        step: elements from one position of k to the next.
        by_panel: whether the piece packs one panel at a time. transposes: whether it transposes the panel from b as it lies.
        prefetched: whether the next chunk's part of b is prefetched where it lies.
    """

    packed: Array | None
    buffer: Buffer | None
    step: int
    by_panel: bool
    transposes: bool
    prefetched: bool

    @staticmethod
    def of(k: KernelBuilder, p: Problem, t: Tile, work: Work, packed: Array | None, target: Machine | None) -> Columns:
        """The columns of a problem."""
        dense, transposes = dense_columns(p), packed is None and transposable(p)
        by_panel = packed is None and (dense or transposes) and _one_block(p, t, work, transposes)
        panels = as_int(cdiv(cdiv(p.columns, t.columns), work.parts)) or most_columns(p, t, target) // t.columns
        buffer = None
        if t.direct_b:
            buffer = k.read(p.b)
        elif packed is None:
            buffer = k.scratch("panel", p.packed, work.depth * t.columns * (1 if by_panel else panels))
        step = as_int(p.walk("k", "b").step) or 0 if t.direct_b else t.columns
        known = None not in map(as_int, (p.rows, p.columns, p.chunks.positions))
        several = not work.one_chunk and packed is None and known
        return Columns(packed, buffer, step, by_panel, transposes, t.direct_b or (several and dense and not by_panel))


def _one_block(p: Problem, t: Tile, work: Work, transposes: bool) -> bool:
    """Whether a piece that packs its columns of b goes through them once for each chunk, because its rows are one block: then
    it packs one panel at a time, which stays in L1 while it is used."""
    affine = len(p.walk("k", "b").extents) == 1
    whole = (t.direct and t.along_k) or transposes
    return whole and not t.direct_b and affine and work.tiles is not None and work.tiles <= t.schedule.high


@dataclass(frozen=True)
class Results:
    """Where results go.

    Attributes:
        m: the axes of rows whose coordinates the epilogue asks for. stored: those that a store needs. axes: all axes of a
            store.
        partial: where sums live between chunks; None: in out itself.
        straight: whether tiles are stored from registers. stream: whether they are stored past the caches.
    """

    m: Sequence[Axis]
    stored: Sequence[Axis]
    axes: Sequence[Axis]
    partial: Array | None
    straight: bool
    stream: bool

    @staticmethod
    def of(lo: Lowering, p: Problem, t: Tile) -> Results:
        """The results of a problem."""
        m = p.stored_rows
        flat = replace(p, epilogue=None).stored_rows  # where rows of out have one stride, the row's number is its coordinate
        stored = flat if len(flat) < 2 else m
        axes, n, chunks = (*p.g, *stored, *p.n), as_int(p.columns), as_int(p.chunks.count)
        straight = t.exact and bool(p.n) and n is not None and chunks is not None
        stream = straight and chunks == 1 and (n or 0) % LANES == 0 and streams([p.out])
        return Results(m, stored, axes, partial_sums(lo, p, axes), straight, stream)
