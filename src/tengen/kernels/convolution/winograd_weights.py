"""Winograd's gradient of a 3x3 filter: the sum over tiles of image and output gradients, in the transformed domain.

    for each piece = (run of tiles, block of input channels, block of output channels):
        for some tiles of the run:                                             # `numerics.SUMMED_TILES` of them
            image[point, tile, c], gradient[point, tile, o] = transforms of both
            for point:
                sums[point, c, o] += the sum over these tiles of image[point, tile, c] * gradient[point, tile, o]
    out[o, c, 3, 3] = transform of the runs' sums, added in order              # by the piece, if there is one run

In: an image and the gradients of the outputs, both with dense channels; where the filter's gradient goes. Out: one launch, or a
second one that adds the runs. It is the transpose of `winograd.py`: the same points, the same tiles.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tengen.base.record import record
from tengen.kernels import numerics
from tengen.kernels.axes import store_at, unflatten
from tengen.kernels.contraction.chunks import unrolled_loop
from tengen.kernels.contraction.problem import multiply_add
from tengen.kernels.convolution.winograd_transforms import FILTER_TAPS, TRANSFORMS, TileTransform, Transform
from tengen.kernels.lowering import Array, KernelBuilder, Lowering
from tengen.kernels.machine import Machine, machine, registers_of
from tengen.kernels.source import At
from tengen.loops.builder import as_expr
from tengen.loops.lang import LANES, Expr, Index, as_int, cast, cdiv, const, equal, maximum, minimum
from tengen.loops.statements import Buffer

UNROLLED_TILES = 4  # tiles in the body of the loop over tiles, where the number of tiles is known


def winograd_weights(lo: Lowering, x: Array, g: Array, out: Array, outputs: int, padding: tuple[int, int], name: str) -> None:
    """out[o, c, i, j] = the sum over n, y, x of x[n, c, y + i - padding, x + j - padding] * g[n, o, y, x], with zeros around.

    Shapes:   x (N, C, H, W), g (N, O, P, Q), out (O, C, 3, 3) of any strides
    Args:
        outputs: 2 or 4, of a tile along an axis: changes bits. name: of the kernels.
    Numerics: image and gradients are transformed along x, then along y, the result along y, then along x. Tiles are counted
        image by image, row by row, and cut into runs of equal length (a multiple of SUMMED_TILES; the last is shorter):
        GRADIENT_RUNS over the pairs of blocks of channels, at most an image's tiles over GRADIENT_RUN_TILES, at least one. In a
        run, each SUMMED_TILES tiles are summed by fma from zero, and the sums added in order; the runs are added in order.
        These constants are of `kernels/numerics.py`.
    """
    if any(as_int(d) == 0 for d in out.shape):
        return
    _Weights(lo, x, g, out, TRANSFORMS[outputs], padding, name).launch()


def _blocks(channels: Index) -> Index:
    return cdiv(channels, numerics.BLOCK_CHANNELS)


@record(frozen=True)
class _Runs:
    """How the tiles of all images are cut into runs, each of which is summed alone. It decides bits.

    Attributes:
        tiles: of all images. summed: those that are summed from zero. count: runs. length: tiles of a run.
    """

    tiles: Expr
    summed: int
    count: Expr
    length: Expr

    @staticmethod
    def of(grid: Sequence[Index], outputs: int, pairs: Index) -> _Runs:
        """The runs of a grid (images, rows and columns of tiles), for so many pairs of blocks of channels."""
        tiles, summed = as_expr(grid[0] * grid[1] * grid[2]), numerics.SUMMED_TILES[outputs]
        most = maximum(as_expr(numerics.GRADIENT_RUNS // pairs), 1)
        of_image = as_expr(grid[1] * grid[2]) // numerics.GRADIENT_RUN_TILES
        count = const(1) if as_int(most) == 1 else maximum(minimum(of_image, most), 1)
        return _Runs(tiles, summed, count, as_expr(cdiv(cdiv(tiles, count), summed) * summed))


@record(frozen=True)
class _Sizes:
    """The register tile of sums, and the scratch memory of a piece. They change no bit.

    Attributes:
        rows, vectors: the tile has `rows` input channels by `vectors` vectors of LANES output channels. wide, broad: input and
            output channels of a block, in whole vectors. image, gradient, sums: elements from one point to the next, of the
            image's tiles, of the gradients' tiles, and of the sums.
    """

    rows: int
    vectors: int
    wide: int
    broad: int
    image: int
    gradient: int
    sums: int

    @staticmethod
    def of(c: int | None, o: int | None, summed: int, size: int, target: Machine | None) -> _Sizes:
        """The sizes for C and O channels, as far as they are known, `summed` tiles at a time, and elements of `size` bytes."""
        _, registers, _ = machine(target)
        each = registers_of(size, target)
        vectors = 2 if each == 1 and (o is None or o > LANES) else 1
        most = max(1, (registers - vectors * each - 1) // (vectors * each))
        rows = 1 << min(most, LANES // 2).bit_length() - 1  # so many divide a vector
        step = vectors * LANES
        wide = min(numerics.BLOCK_CHANNELS, -(-(c or numerics.BLOCK_CHANNELS) // LANES) * LANES)
        broad = min(numerics.BLOCK_CHANNELS, -(-(o or numerics.BLOCK_CHANNELS) // step) * step)
        return _Sizes(rows, vectors, wide, broad, summed * wide + LANES, summed * broad + LANES, wide * broad + LANES)


class _Weights:
    """Writes the kernels of one gradient.

    Attributes:
        c, o: input and output channels. grid: images, rows and columns of tiles. runs, sizes: how the work is cut.
        points: of a tile, along both axes.
    """

    def __init__(self, lo: Lowering, x: Array, g: Array, out: Array, t: Transform, padding: tuple[int, int], name: str):
        self.lo, self.x, self.g, self.out, self.t, self.padding, self.name = lo, x, g, out, t, padding, name
        c, o = out.shape[1], out.shape[0]
        self.c, self.o, self.compute, self.points = c, o, out.dtype.compute, t.points**2
        self.grid = (g.shape[0], *(cdiv(d, t.outputs) for d in g.shape[2:]))
        self.runs = _Runs.of(self.grid, t.outputs, _blocks(c) * _blocks(o))
        self.sizes = _Sizes.of(as_int(c), as_int(o), self.runs.summed, self.compute.size, lo.target)

    def launch(self) -> None:
        """Writes and launches the kernels."""
        k, dt = self.lo.kernel(self.name), self.compute
        down, across, sums = _blocks(self.c), _blocks(self.o), self.points * self.sizes.sums
        count = self.runs.count
        whole, channels = as_int(count) == 1, None not in (as_int(down), as_int(across))
        piece = k.split(count * down * across)
        run, part = k.let(piece // (down * across)), k.let(piece % (down * across))
        c, o = k.let(part // across * numerics.BLOCK_CHANNELS), k.let(part % across * numerics.BLOCK_CHANNELS)
        if channels and not whole:
            partial = self.lo.temp(dt, (count, down * across, sums))
            self.sum(k, run, c, o, k.write(partial), k.let(as_expr(partial.index((run, part, 0)))))
            self.lo.launch(k)
            return self.add(partial, const(1))
        total = k.scratch("sums", dt, sums)
        self.sum(k, run, c, o, total, const(0))
        single = k.let(equal(count, 1))
        with k.if_(single):
            self.back(k, c, o, lambda i: k.load(total, i, LANES))
        if whole:
            return self.lo.launch(k)
        several = minimum(count - 1, 1)  # 0 where there is one run, which needs no more memory and no second launch
        partial = self.lo.temp(dt, (several * count, down * across, sums))
        with k.else_():
            at, dst = k.let(as_expr(partial.index((run, part, 0)))), k.write(partial)
            with k.loop(0, sums, LANES, name="i") as i:
                k.store(dst, at + i, k.load(total, i, LANES))
        self.lo.launch(k)
        self.add(partial, several)

    # ---- the sums

    def sum(self, k: KernelBuilder, run: Expr, c: Expr, o: Expr, total: Buffer, at: Expr) -> None:
        """The sums of a run of tiles for a block of channels, as [point, c, o] in `total` from `at` on."""
        dt, n = self.compute, self.points
        images, gradients, sums = self.sizes.image, self.sizes.gradient, self.sizes.sums
        image, gradient = k.scratch("image", dt, n * images), k.scratch("gradient", dt, n * gradients)
        x = TileTransform(k, self.x, self.t, dt, self.padding)
        g = TileTransform(k, self.g, self.t, dt, gradient=True)
        cs = (c, k.let(minimum(c + numerics.BLOCK_CHANNELS, self.c)))
        os = (o, k.let(minimum(o + numerics.BLOCK_CHANNELS, self.o)))
        begin = k.let(run * self.runs.length)
        end = k.let(minimum(begin + self.runs.length, self.runs.tiles))
        with k.loop(begin, end, self.runs.summed, name="first") as first:
            count = k.let(minimum(end - first, self.runs.summed))
            with k.loop(0, count, name="tile") as i:
                tile = unflatten(k, k.let(first + i), self.grid)
                x.write(tile, cs, image, k.let(i * self.sizes.wide), images)
                g.write(tile, os, gradient, k.let(i * self.sizes.broad), gradients)
            begins = k.let(equal(first, begin))
            rows = k.let(cdiv(cs[1] - c, LANES) * LANES)
            columns = k.let(cdiv(os[1] - o, self.sizes.vectors * LANES) * (self.sizes.vectors * LANES))
            with k.loop(0, n, name="point") as z, k.loop(0, rows, self.sizes.rows, name="r") as r:
                with k.loop(0, columns, self.sizes.vectors * LANES, name="v") as v:
                    a, b = k.let(z * images + r), k.let(z * gradients + v)
                    to = k.let(at + z * sums + r * self.sizes.broad + v)
                    self.store_tile(k, self.register_tile(k, image, a, gradient, b, count), total, to, begins)
        with k.if_(k.let(begin >= end)):  # a run of no tiles
            with k.loop(0, n * sums // LANES, name="i") as i:
                k.store(total, at + i * LANES, const(0, dt, LANES))

    def register_tile(
        self, k: KernelBuilder, image: Buffer, a: Expr, gradient: Buffer, b: Expr, count: Expr
    ) -> list[list[Expr]]:
        """`rows` input channels by `vectors` of output channels of one point, summed over `count` tiles."""
        zeros = lambda: [k.var(const(0, self.compute, LANES), name="acc") for _ in range(self.sizes.vectors)]
        acc = [zeros() for _ in range(self.sizes.rows)]

        def step(i: Expr) -> None:
            here, there = k.let(a + i * self.sizes.wide), k.let(b + i * self.sizes.broad)
            ys = [k.load(gradient, there + v * LANES, LANES) for v in range(self.sizes.vectors)]
            for r, row in enumerate(acc):
                value = k.load(image, here + r)
                for y, total in zip(ys, row):
                    total.set(multiply_add(value, y, total.value))  # acc[c r][v] += image[tile, c r] * gradient[tile, o v]

        tiles = as_int(self.runs.tiles)
        unrolled_loop(k, 0, count, 1 if tiles is None else UNROLLED_TILES, step, "tile", (tiles or 1) % UNROLLED_TILES == 0)
        return [[total.value for total in row] for row in acc]

    def store_tile(self, k: KernelBuilder, acc: list[list[Expr]], total: Buffer, to: Expr, begins: Expr) -> None:
        """Stores a register tile to `total` from `to` on; where not `begins`, adds it to what is there."""
        places = [(r, v) for r in range(self.sizes.rows) for v in range(self.sizes.vectors)]
        with k.if_(begins):
            for r, v in places:
                k.store(total, to + (r * self.sizes.broad + v * LANES), acc[r][v])
        with k.else_():
            for r, v in places:
                at = to + (r * self.sizes.broad + v * LANES)
                k.store(total, at, k.load(total, at, LANES) + acc[r][v])

    # ---- the result

    def add(self, partial: Array, several: Expr) -> None:
        """Adds the runs in order, and transforms back; nothing where `several` is 0."""
        k = self.lo.kernel(f"{self.name}_runs")
        across = _blocks(self.o)
        piece = k.split(several * _blocks(self.c) * across * self.sizes.wide)
        part, row = k.let(piece // self.sizes.wide), k.let(piece % self.sizes.wide)
        src = k.read(partial)

        def load(i: Expr) -> Expr:
            total = k.var(k.load(src, k.let(as_expr(partial.index((0, part, i)))), LANES), name="total")
            with k.loop(1, self.runs.count, name="run") as run:
                total.set(total.value + k.load(src, k.let(as_expr(partial.index((run, part, i)))), LANES))
            return total.value

        self.back(k, k.let(part // across * numerics.BLOCK_CHANNELS), k.let(part % across * numerics.BLOCK_CHANNELS), load, row)
        self.lo.launch(k)

    def back(self, k: KernelBuilder, c: Expr, o: Expr, load: Callable[[Expr], Expr], row: Expr | None = None) -> None:
        """Transforms the sums of a block (of one of its input channels) back: `load` gives a vector of them."""
        n, sums = self.t.points, self.sizes.sums
        half = k.scratch("taps", self.compute, FILTER_TAPS * n * LANES)
        first = const(0) if row is None else row
        block = numerics.BLOCK_CHANNELS
        rows = k.let(minimum(self.c - c, block if row is None else minimum(row + 1, block)))
        with k.loop(first, rows, name="r") as r, k.loop(0, k.let(minimum(self.o - o, block)), LANES, name="v") as v:
            at = k.let(r * self.sizes.broad + v)
            with k.loop(0, n, name="e") as e:
                for i, value in enumerate(self.t.weight_gradient([load(k.let((a * n + e) * sums + at)) for a in range(n)])):
                    k.store(half, e * LANES + i * (n * LANES), value)
            count = None if as_int(self.o % LANES) == 0 else k.let(maximum(self.o - (o + v), 0))
            with k.loop(0, FILTER_TAPS, name="i") as i:
                points = [k.load(half, i * (n * LANES) + e * LANES, LANES) for e in range(n)]
                for j, value in enumerate(self.t.weight_gradient(points)):
                    place = At((k.let(o + v), k.let(c + r), i, const(j)), 0, count)
                    store_at(k, self.out, place, cast(value, self.out.dtype))
