"""Samples of images between their pixels: sums of four taps (`taps.py`) whose places and weights are computed where they are needed.

Tables of them would be sixteen times as many bytes as there are coordinates of one axis, and more than many a picture.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tengen.base.dtype import int32, int64
from tengen.kernels.indexing.tap_pixels import launch_pixels
from tengen.kernels.indexing.taps import TapSum, beside
from tengen.kernels.lowering import KernelBuilder
from tengen.kernels.source import At, Leaf, Source
from tengen.loops.builder import as_expr
from tengen.loops.lang import Expr, Index, as_int, cast, const, maximum, minimum, select, splat, unary

MOST_INT32_PIXELS = 1 << 30  # of an image and of an axis, whose numbers are computed in int32
FAR_PIXELS = 3  # before an image, and as many less one behind it: what lies farther is outside, as this is


class LinearSamples(TapSum):
    """The images x (N, C, H * W) at the rows `cy` and columns `cx`, both (M or 1, 1, *Q): (M, C, *Q). size: (H, W). zeros: what lies outside
    is 0; else it is the nearest pixel. See the op `linear_samples`."""

    def __init__(
        self, x: Source, image: Source | None, cy: Source, cx: Source, size: Sequence[Index], zeros: bool, images: Index
    ):  # fmt: skip
        super().__init__(x, image, cy, cx, images)
        self.cy, self.cx, self.size, self.leaves_image = cy, cx, size, zeros
        self.taps = 4
        pixels = as_int(size[0] * size[1])
        self.place = int32 if pixels is not None and pixels < MOST_INT32_PIXELS else int64

    def each_tap(self, k: KernelBuilder, at: At) -> Iterator[tuple[Expr, Expr]]:
        rows, columns = (self._along(k, at, c, n) for c, n in zip((self.cy, self.cx), self.size))
        for i, u in rows:
            for j, v in columns:
                index = i * as_expr(self.size[1]) if self.place is int64 else i * (as_int(self.size[1]) or 0)
                index = k.let(index + j)
                if self.leaves_image:
                    index = k.let(select((i < 0) | (j < 0), const(-1, self.place, index.lanes), index))
                yield index, k.let(u * v)

    def _along(self, k: KernelBuilder, at: At, c: Source, n: Index) -> list[tuple[Expr, Expr]]:
        """(place, weight) of the two taps along an axis of n pixels at the coordinates `c`."""
        d = self.tap.dtype
        x = k.let(cast(c.at(k, beside(c, self._tap_at(at, 0))), d))
        wide = (lambda e: splat(e)) if x.lanes > 1 else (lambda e: e)
        zeros = self.leaves_image
        lower, upper = (float(-FAR_PIXELS), FAR_PIXELS - 1) if zeros else (0.0, -1)
        x = k.let(minimum(maximum(x, lower), wide(cast(as_expr(n) + upper, d))))
        first = k.let(unary("floor", x))
        f, i = k.let(x - first), k.let(cast(first, self.place))
        last = wide(cast(as_expr(n) - 1, self.place))

        def inside(i: Expr) -> Expr:
            return select((i < 0) | (i > last), const(-1, self.place, i.lanes), i) if zeros else minimum(maximum(i, 0), last)

        return [(k.let(inside(i)), k.let(1.0 - f)), (k.let(inside(i + 1)), f)]

    def launch(self, lo, final, out, name):
        if not isinstance(self.tap.x, Leaf) or self.tap.image is not None:
            return False
        return launch_pixels(lo, self, self.tap.x.array, final, out, name)
