"""A product whose columns come in parts that are finished together: the gates of a recurrent cell.

In: a matrix, and one whose columns are several parts of as many units. Out: for each row and vector of units, the sums of every part
go to a function that stores what it makes of them; they never go to memory. A tile is some rows by one vector of units, a vector
of columns from each part. The order of the sums is that of every contraction (`chunks.Chunks`), and so are the bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tengen.kernels.chunks import RUN, Chunks
from tengen.kernels.lowering import Array, KernelBuilder, Lowering
from tengen.kernels.problem import multiply_add
from tengen.kernels.source import At
from tengen.kernels.tile import PIECES, Machine, machine
from tengen.loops.builder import as_expr
from tengen.loops.lang import LANES, Buffer, Expr, as_int, cast, cdiv, const, minimum, ramp, splat

Finish = Callable[[KernelBuilder, Sequence[Expr], At], None]  # from the sums of each part at (row, units) to what is stored

LEAST_ROWS = 4  # of a tile: with fewer, too much is loaded for what is multiplied


def rows_of_tile(parts: int, b: Array, target: Machine | None) -> int:
    """How many rows the registers hold sums of, for all parts; 0 where a product by parts of its own is better: they are too few,
    or vectors of units are not filled."""
    bytes_, registers, _ = machine(target)
    depth, columns = (as_int(d) for d in b.shape)
    if depth is None or columns is None or columns < parts * LANES:
        return 0
    each = parts * max(1, LANES * b.dtype.compute.size // bytes_)
    rows = (registers - each - 1) // each
    return rows if rows >= LEAST_ROWS else 0


def product_by_parts(lo: Lowering, a: Array, b: Array, parts: int, finish: Finish, name: str) -> None:
    """finish(sums of part 0, sums of part 1, ...) where the sums are those of a @ b.

    Shapes: a (N, K), b (K, parts * H); N may be open
    Args:
        finish: called with the sums, in the dtype computed in, and their place (row, unit), a vector along units. It stores, to
            buffers that nobody reads of where others are written.
    """
    _Kernel(lo, a, b, parts, finish, name).launch()


class _Kernel:
    """Writes the kernel of one product."""

    def __init__(self, lo: Lowering, a: Array, b: Array, parts: int, finish: Finish, name: str):
        self.lo, self.a, self.parts, self.finish = lo, a, parts, finish
        self.dtype, self.width = a.dtype.compute, parts * LANES
        self.rows, self.units, self.depth = as_expr(a.shape[0]), (as_int(b.shape[1]) or 0) // parts, as_int(b.shape[0]) or 0
        self.panels = -(-self.units // LANES)
        self.packed = lo.once(b, ("parts", parts, b.shape, b.strides, self.dtype), lambda: self.pack(b, name))
        self.high = rows_of_tile(parts, b, lo.target)
        known = as_int(self.rows)  # tiles of even heights: the first `tall` have one row more
        tiles = None if known is None else max(1, -(-known // self.high))
        if known and tiles:
            self.high = -(-known // tiles)
        self.tall = None if known is None or tiles is None else known - tiles * (self.high - 1)
        self.k = lo.kernel(name)
        self.sums = self.k.scratch("sums", self.dtype, self.high * self.width)

    def pack(self, b: Array, name: str) -> Array:
        """b as [vector of units, k, part, unit], zeros past the last unit."""
        out = self.lo.temp(self.dtype, (self.panels, self.depth, self.parts, LANES))
        k = self.lo.kernel(f"{name}_pack")
        blocks = -(-self.depth // RUN)
        piece = k.split(self.panels * blocks)
        panel, start = k.let(piece // blocks), k.let(piece % blocks * RUN)
        src, dst, step = k.read(b), k.write(out), b.strides[1]
        left = None if self.units % LANES == 0 else self.units - panel * LANES
        with k.loop(start, minimum(start + RUN, self.depth)) as i:
            for part in range(self.parts):
                here = k.let(as_expr(b.index((i, part * self.units + panel * LANES))))
                x = k.load(src, here if as_int(step) == 1 else ramp() * step + here, LANES, left)
                k.store(dst, out.index((panel, i, part, 0)), cast(x, self.dtype))
        self.lo.launch(k)
        return out

    def launch(self) -> None:
        """Writes and launches it: a piece is a vector of units, and all rows or a block of them."""
        k = self.k
        tiles = as_expr(cdiv(self.rows, self.high))
        blocks = minimum(as_expr(-(-PIECES // self.panels)), tiles)
        piece = k.split(self.panels * blocks)
        panel, block = k.let(piece // blocks), k.let(piece % blocks)
        self.unit = k.let(panel * LANES)
        self.b, self.at = k.read(self.packed), k.let(as_expr(self.packed.index((panel, 0, 0, 0))))
        with k.loop(k.let(block * tiles // blocks), k.let((block + 1) * tiles // blocks), name="tile") as tile:
            if self.tall is None or self.tall == as_int(tiles):
                self.tile(k.let(tile * self.high), self.high)
            else:
                with k.if_(tile < self.tall):
                    self.tile(k.let(tile * self.high), self.high)
                with k.else_():
                    self.tile(k.let(tile * (self.high - 1) + self.tall), self.high - 1)
        self.lo.launch(k)

    def tile(self, row: Expr, high: int) -> None:
        """The sums of some rows, chunk by chunk, and what is made of them. Where there are fewer rows, the last is read instead."""
        k, chunks = self.k, Chunks((self.depth,))
        rows: Buffer = k.read(self.a)
        count = k.let(minimum(self.rows - row, high))
        exact = self.tall is not None
        starts = [k.let(as_expr(self.a.index((row + (j if exact else minimum(count - 1, j)), 0)))) for j in range(high)]
        for c in range(as_int(chunks.count) or 1):
            first, stop = (as_int(x) or 0 for x in chunks.bounds(c))
            acc = [[k.var(const(0, self.dtype, LANES), name="acc") for _ in range(self.parts)] for _ in range(high)]
            with k.loop(first, stop, name="k") as i:
                here = k.let(self.at + i * self.width)
                bs = [k.load(self.b, here + v * LANES, LANES) for v in range(self.parts)]
                for start, sums in zip(starts, acc):
                    x = splat(cast(k.load(rows, start + i * self.a.strides[1]), self.dtype))
                    for total, y in zip(sums, bs):
                        total.set(multiply_add(x, y, total.value))
            for n, total in enumerate(total for sums in acc for total in sums):
                earlier = None if c == 0 else k.load(self.sums, n * LANES, LANES)
                k.store(self.sums, n * LANES, total.value if earlier is None else earlier + total.value)
        with k.loop(0, count, name="row") as j:
            values = [k.load(self.sums, j * self.width + v * LANES, LANES) for v in range(self.parts)]
            left = None if self.units % LANES == 0 else self.units - self.unit
            self.finish(k, values, At((k.let(row + j), self.unit), 1, left))
