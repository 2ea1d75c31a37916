"""Winograd's transforms: of one axis as expressions, and of a tile of an image.

In: pixels, taps or products of an axis; an array with dense channels. Out: the same in the transformed domain, where a product
for each point is what a convolution, or its filter's gradient, needs. Source: Lavin and Gray, arXiv 1509.09308.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field

from tengen.base.dtype import DType
from tengen.base.record import record
from tengen.kernels import numerics
from tengen.kernels.lowering import Array, KernelBuilder
from tengen.loops.builder import as_expr
from tengen.loops.lang import LANES, Expr, Index, as_int, cast, const, fma, maximum, minimum, select, splat
from tengen.loops.statements import Buffer

FILTER_TAPS = 3  # of the filter along an axis
P, Q = numerics.WINOGRAD_POINTS  # of F(4, 3)
READ_CHANNELS = 4 * LANES  # channels of a tile that are read together
Axis = Callable[[Sequence[Expr]], list[Expr]]
Scaled = Callable[[Expr, "Expr | None"], Expr]


@record(frozen=True)
class Transform:
    """F(m, 3): m outputs of a filter of 3 taps from m + 2 products.

    Attributes:
        outputs: m. image, weight, result: m + 2 pixels, 3 taps and m + 2 products transformed along one axis.
        gradient, weight_gradient: the transposes of `result` and `weight`: from m gradients to points, from points to 3 taps; None:
            nobody needs them.
        scaled: what a result is of what `result` makes along both axes, and of the number in the middle of its range (None: 0).
    """

    outputs: int
    image: Axis
    weight: Axis
    result: Axis
    gradient: Axis | None = None
    weight_gradient: Axis | None = None
    scaled: Scaled = lambda y, middle: y

    @property
    def points(self) -> int:
        """Points of an axis: pixels that a tile reads, products that it makes."""
        return self.outputs + FILTER_TAPS - 1


def _image2(d: Sequence[Expr]) -> list[Expr]:
    return [d[0] - d[2], d[2] + d[1], d[2] - d[1], d[3] - d[1]]


def _weight2(g: Sequence[Expr]) -> list[Expr]:
    even, odd = (g[0] + g[2]) * 0.5, g[1] * 0.5
    return [g[0], even + odd, even - odd, g[2]]


def _result2(m: Sequence[Expr]) -> list[Expr]:
    return [m[0] + m[1] + m[2], m[1] - m[2] + m[3]]


def _gradient2(y: Sequence[Expr]) -> list[Expr]:
    return [y[0], y[0] + y[1], y[0] - y[1], y[1]]


def _weight_gradient2(m: Sequence[Expr]) -> list[Expr]:
    even, odd = (m[1] + m[2]) * 0.5, (m[1] - m[2]) * 0.5
    return [m[0] + even, odd, even + m[3]]


def _image4(d: Sequence[Expr]) -> list[Expr]:
    pp, qq = P * P, Q * Q
    even_p, odd_p = fma(d[2], -qq, d[4]), fma(d[1], -qq, d[3])
    even_q, odd_q = fma(d[2], -pp, d[4]), fma(d[1], -pp, d[3])
    zero = fma(fma(d[0], -pp, d[2]), -qq, even_q)
    infinity = fma(odd_q, -qq, fma(d[3], -pp, d[5]))
    return [zero, fma(odd_p, P, even_p), fma(odd_p, -P, even_p), fma(odd_q, Q, even_q), fma(odd_q, -Q, even_q), infinity]


def _weight4(g: Sequence[Expr]) -> list[Expr]:
    pp, qq = P * P, Q * Q
    out = [g[0] * (1 / (pp * qq))]
    for x, scale in ((P, 1 / (2 * pp * (pp - qq))), (Q, 1 / (2 * qq * (qq - pp)))):
        even, odd = fma(g[2], x * x * scale, g[0] * scale), g[1] * (x * scale)
        out += [even + odd, even - odd]
    return [*out, g[2]]


def _result4(m: Sequence[Expr]) -> list[Expr]:
    even_p, odd_p, even_q, odd_q = m[1] + m[2], m[1] - m[2], m[3] + m[4], m[3] - m[4]
    return [m[0] + even_p + even_q, fma(odd_q, Q, odd_p * P), fma(even_q, Q * Q, even_p * (P * P)),
            fma(odd_q, Q * Q * Q, fma(odd_p, P * P * P, m[5]))]  # fmt: skip


def _gradient4(y: Sequence[Expr]) -> list[Expr]:
    out = [y[0]]
    for x in (P, Q):
        even, odd = fma(y[2], x * x, y[0]), fma(y[3], x * x * x, y[1] * x)
        out += [even + odd, even - odd]
    return [*out, y[3]]


def _weight_gradient4(m: Sequence[Expr]) -> list[Expr]:
    pp, qq = P * P, Q * Q
    p, q = 1 / (2 * pp * (pp - qq)), 1 / (2 * qq * (qq - pp))
    even_p, odd_p, even_q, odd_q = m[1] + m[2], m[1] - m[2], m[3] + m[4], m[3] - m[4]
    return [fma(m[0], 1 / (pp * qq), fma(even_p, p, even_q * q)), fma(odd_p, P * p, odd_q * (Q * q)),
            fma(even_p, pp * p, fma(even_q, qq * q, m[5]))]  # fmt: skip


# F(3, 3) and F(4, 3) in integers, at the points 0, 1, -1, 2, infinity and, of F(4, 3), -2, with no fraction anywhere: `_result3` makes 6
# times the results of an axis, `_result4_of_integers` 24 times. Pixels of 8 bits become at most 36 * 255 along both axes, or
# 68 * 255, and taps 49 * 128, or of F(4, 3) 144 * 128, so all are int16; sums of their products are int32, modulo 2^32. Of 36 y, or
# 576 y, modulo 2^32 the 9 is divided off by its inverse. 4 y is itself where |y| < 2^29, which holds for sums of at most
# 9 * MOST_INTEGER_CHANNELS[3] products of 255 by 255. 64 y is where -2^25 <= y < 2^25, for sums of 9 * MOST_INTEGER_CHANNELS[4] products
# of 128 by 128: of uint8 y less 128 times the sum of the filter's taps is such a sum (`Filter.middles`), and of up to MOST_CHANNELS_OF_UINT8
# channels y itself is small enough. So y is exact, whatever the sums did in between.
_TAPS = FILTER_TAPS * FILTER_TAPS
MOST_INTEGER_CHANNELS = {3: ((1 << 29) - 1) // (_TAPS * 255 * 255), 4: ((1 << 25) - 1) // (_TAPS * 128 * 128)}
MOST_CHANNELS_OF_UINT8 = ((1 << 25) - 1) // (_TAPS * 255 * 128)  # whose sums need no middle
INVERSE_OF_9 = 954437177  # modulo 2^32


def _twice(x: Expr) -> Expr:
    return x + x


def _image3(d: Sequence[Expr]) -> list[Expr]:
    two, far = _twice(d[1]), d[3] - d[1]
    return [_twice(d[0] - d[2]) + far, two + (d[2] - d[3]), d[2] + _twice(d[2]) - two - d[3], far, d[4] - d[2] - _twice(far)]


def _weight3(g: Sequence[Expr]) -> list[Expr]:
    even, four = g[0] + g[2], _twice(_twice(g[2]))
    return [g[0], even + g[1], even - g[1], g[0] + _twice(g[1]) + four, g[2]]


def _result3(m: Sequence[Expr]) -> list[Expr]:
    one, two, last = m[1] + _twice(m[1]), _twice(m[3]), m[4] + _twice(m[4])
    return [m[0] + _twice(m[0]) + one + m[2] + m[3], one - m[2] + two, one + m[2] + _twice(two + last)]


def _image4_of_integers(d: Sequence[Expr]) -> list[Expr]:
    far, near = d[4] - d[2], _twice(d[3] - d[1])
    even, odd = d[4] - _twice(_twice(d[2])), d[3] - _twice(_twice(d[1]))
    zero, infinity = _twice(_twice(d[0] - d[2])) + far, d[5] - d[3] - _twice(near)
    return [zero, even + odd, even - odd, far + near, far - near, infinity]


def _weight4_of_integers(g: Sequence[Expr]) -> list[Expr]:
    """The taps' polynomial at the points, times 6, 2, 2, 1, 1 and 12: then `_result4_of_integers` multiplies by powers of two alone."""
    even, two, far, six = g[0] + g[2], _twice(g[1]), g[0] + _twice(_twice(g[2])), lambda x: _twice(x + _twice(x))
    return [six(g[0]), _twice(even + g[1]), _twice(even - g[1]), far + two, far - two, _twice(six(g[2]))]


def _result4_of_integers(m: Sequence[Expr]) -> list[Expr]:
    even, odd, far, near = m[1] + m[2], m[1] - m[2], m[3] + m[4], m[3] - m[4]
    return [m[0] - _twice(even) + far, _twice(near - odd), _twice(_twice(far) - even), _twice(_twice(_twice(near)) - odd + m[5])]


def _divided(bits: int) -> Scaled:
    """A result, of 9 2^bits times it."""

    def scaled(y: Expr, middle: Expr | None) -> Expr:
        y, by = y * const(INVERSE_OF_9, y.dtype), const(bits, y.dtype)
        return y >> by if middle is None else (y - (middle << by) >> by) + middle

    return scaled


TRANSFORMS = {
    2: Transform(2, _image2, _weight2, _result2, _gradient2, _weight_gradient2),
    4: Transform(4, _image4, _weight4, _result4, _gradient4, _weight_gradient4),
}
INTEGER_TRANSFORMS = {
    3: Transform(3, _image3, _weight3, _result3, scaled=_divided(2)),
    4: Transform(4, _image4_of_integers, _weight4_of_integers, _result4_of_integers, scaled=_divided(6)),
}


@record
class TileTransform:
    """Writes the transforms of tiles of an image, one by one, into scratch memory of a kernel.

    Attributes:
        k: the kernel. x: the image (N, C, H, W), channels dense. t: the transform. compute: the dtype it is done in.
        padding: zeros before the image's first pixel; there are as many as are needed after it. gradient: whether x holds
        gradients of outputs, whose tiles are m x m and do not overlap.
    """

    k: KernelBuilder
    x: Array
    t: Transform
    compute: DType
    padding: Sequence[Index] = (0, 0)
    gradient: bool = False
    half: Buffer = field(init=False)

    def __post_init__(self) -> None:
        self.half = self.k.scratch("half", self.compute, self.side * self.t.points * READ_CHANNELS)

    @property
    def side(self) -> int:
        """Pixels of a tile along an axis."""
        return self.t.outputs if self.gradient else self.t.points

    def write(self, tile: Sequence[Index], cs: tuple[Index, Index], dst: Buffer, at: Expr, between: int) -> None:
        """The transform of one tile (image, row and column of it): point (a, e) of channel c goes to
        dst[at + (a points + e) between + c - cs[0]], for the channels cs[0]..cs[1] and on to a whole vector, zeros past the
        last."""
        k, x, n = self.k, self.x, self.side
        image, y, z = tile[0], *(k.let(as_expr(g * self.t.outputs - p)) for g, p in zip(tile[1:], self.padding))
        base = k.let(as_expr(x.offset + image * x.strides[0]))
        inside = k.let((y >= 0) & (y + n <= x.shape[2]) & (z >= 0) & (z + n <= x.shape[3]))
        here = k.let(as_expr(base + y * x.strides[2] + z * x.strides[3]))
        with k.loop(*cs, READ_CHANNELS, name="c") as start:
            stop = k.let(minimum(start + READ_CHANNELS, cs[1]))
            with k.if_(inside):
                self._rows(lambda a, j: (here + a * x.strides[2] + j * x.strides[3], None), (start, stop))
            with k.else_():
                columns = [k.let(minimum(maximum(z + j, 0), x.shape[3] - 1) * x.strides[3] + base) for j in range(n)]
                there = [k.let((z + j >= 0) & (z + j < x.shape[3])) for j in range(n)]

                def pixel(a: Expr, j: int):
                    row = minimum(maximum(y + a, 0), x.shape[2] - 1) * x.strides[2]
                    return row + columns[j], there[j] & (y + a >= 0) & (y + a < x.shape[2])

                self._rows(pixel, (start, stop))
            with k.loop(0, self.t.points, name="e") as e, k.loop(start, stop, LANES, name="c") as c:
                first = k.let(e * (n * READ_CHANNELS) + (c - start))
                d = [k.load(self.half, first + a * READ_CHANNELS, LANES) for a in range(n)]
                place = k.let(e * between + at + (c - cs[0]))
                for a, v in enumerate(self._axis(d)):
                    k.store(dst, place + a * (self.t.points * between), v)

    def _axis(self, values: Sequence[Expr]) -> list[Expr]:
        """The transform of one axis."""
        return self.t.gradient(values) if self.gradient and self.t.gradient else self.t.image(values)

    def _rows(self, pixel: Callable[[Expr, int], tuple[Index, Expr | None]], cs: tuple[Expr, Expr]) -> None:
        """The rows of a tile's channels `cs`, transformed along x, in `half`. `pixel` (row, column): where the pixel lies, and whether
        it is one or a zero around them."""
        k, x = self.k, self.x
        src, whole = k.read(x), (as_int(x.shape[1]) or 1) % LANES == 0
        with k.loop(0, self.side, name="a") as a, k.loop(*cs, LANES, name="c") as c:
            count = None if whole else k.let(x.shape[1] - c)
            d = []
            for j in range(self.side):
                place, there = pixel(a, j)
                v = cast(k.load(src, k.let(as_expr(place + c)), LANES, count), self.compute)
                d.append(v if there is None else k.let(select(splat(k.let(there)), v, splat(const(0, self.compute)))))
            first = k.let(a * READ_CHANNELS + (c - cs[0]))
            for e, v in enumerate(self._axis(d)):
                k.store(self.half, first + e * (self.side * READ_CHANNELS), v)
