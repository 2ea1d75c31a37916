"""The filter of a Winograd convolution: packed in panels of output channels, transformed before that or not.

In: a filter (O, C, 3, 3). Out: launches that make an array for the products of `winograd.py`; once, where it is used again.
"""

from __future__ import annotations

from collections.abc import Callable

from tengen.base.dtype import DType
from tengen.base.record import record
from tengen.kernels import numerics
from tengen.kernels.contraction.formats import DotFormat
from tengen.kernels.convolution.winograd_transforms import FILTER_TAPS, Transform
from tengen.kernels.lowering import Array, KernelBuilder, Lowering
from tengen.loops.builder import as_expr
from tengen.loops.dots import pair
from tengen.loops.lang import LANES, Expr, Index, as_int, cast, cdiv, const, maximum, minimum, ramp
from tengen.loops.statements import Buffer


@record(frozen=True)
class Filter:
    """Writes the kernel that packs the filter `w` (O, C, 3, 3), or transforms it, into panels of `columns` output channels."""

    lo: Lowering
    w: Array
    t: Transform
    columns: int
    format: DotFormat
    name: str

    @property
    def inputs(self) -> Index:
        """Channels of the image."""
        return self.w.shape[1]

    @property
    def compute(self) -> DType:
        """The dtype that taps are transformed in."""
        return self.format.second

    @property
    def groups(self) -> Index:
        """Channels of the image, or pairs of them, as the products take them."""
        return cdiv(self.inputs, self.format.group)

    @property
    def outputs(self) -> Index:
        """Channels of the result."""
        return self.w.shape[0]

    @property
    def panels(self) -> Index:
        """Panels of the packed filter."""
        return cdiv(self.outputs, self.columns)

    @property
    def several(self) -> bool:
        """Whether a sum over the image's channels may have several chunks."""
        n = as_int(self.inputs)
        return n is None or (n > numerics.CHUNK_TERMS and self.format.total.is_float)

    def made(self, transformed: bool) -> Array:
        """The filter, transformed or packed only; made once for all that read it so."""
        key = ("winograd", self.t.points, not transformed, self.columns, self.format)
        return self.lo.once(self.w, key, self.transform if transformed else self.pack)

    def pack(self) -> Array:
        """The filter as [panel, c, tap, column], zeros past the last column."""
        columns, w = self.columns, self.w
        out = self.lo.temp(self.compute, (self.panels, self.inputs, FILTER_TAPS * FILTER_TAPS, columns))
        k = self.lo.kernel(self.name)
        src, dst = k.read(w), k.write(out)
        blocks = cdiv(self.inputs, LANES)
        piece = k.split(self.panels * blocks)
        panel, start = k.let(piece // blocks), k.let(piece % blocks * LANES)
        stop = minimum(start + LANES, as_expr(self.inputs))
        with k.loop(start, stop, name="c") as c, k.loop(0, columns, LANES, "column") as v:
            tap = self.taps(k, src, panel, c, v)
            with k.loop(0, FILTER_TAPS, name="i") as i, k.loop(0, FILTER_TAPS, name="j") as j:
                k.store(dst, as_expr(out.index((panel, c, i * FILTER_TAPS + j, v))), tap(i, j))
        self.lo.launch(k)
        return out

    def taps(self, k: KernelBuilder, src: Buffer, panel: Expr, c: Expr, v: Expr) -> Callable[[Index, Index], Expr]:
        """A function from row and column of a tap to its values in LANES columns from `v` of a panel, zeros past the last
        column."""
        w, column = self.w, k.let(panel * self.columns + v)
        count = None if as_int(self.outputs % self.columns) == 0 else k.let(maximum(self.outputs - column, 0))
        base = k.let(as_expr(w.offset + column * w.strides[0] + c * w.strides[1]))

        def tap(i: Index, j: Index) -> Expr:
            at = k.let(as_expr(base + i * w.strides[2] + j * w.strides[3]))
            index = at if as_int(w.strides[0]) == 1 else ramp() * w.strides[0] + at
            return cast(k.load(src, index, LANES, count), self.compute)

        return tap

    def middles(self) -> Array:
        """128 times the sum of the taps of each output channel, int32, and more up to whole panels: a result for an image that is 128
        everywhere, which is the middle of the range of results for images of uint8."""
        return self.lo.once(self.w, ("winograd_middles", self.columns, self.format), self._middles)

    def _middles(self) -> Array:
        out = self.lo.temp(self.format.total, (self.panels * self.columns,))
        k = self.lo.kernel(f"{self.name}_middles")
        src, dst, vectors = k.read(self.w), k.write(out), self.columns // LANES
        piece = k.split(self.panels * vectors)
        total = k.var(const(0, self.format.total, LANES), name="total")
        with k.loop(0, self.inputs, name="c") as c:
            tap = self.taps(k, src, k.let(piece // vectors), c, k.let(piece % vectors * LANES))
            for t in range(FILTER_TAPS * FILTER_TAPS):
                total.set(total.value + cast(tap(*divmod(t, FILTER_TAPS)), self.format.total))
        k.store(dst, piece * LANES, total.value * const(128, self.format.total))
        self.lo.launch(k)
        return out

    def transform(self) -> Array:
        """The transformed filter, as [panel, point, c, column], zeros past the last column; groups of c where products take those.
        """
        t, columns, n, group = self.t, self.columns, self.t.points, self.format.group
        depth = self.groups + 1  # one more than there are channels, so that points lie in different cache sets
        out = self.lo.temp(self.format.operand, (self.panels, n * n, depth, columns))
        k = self.lo.kernel(self.name)
        half = k.scratch("half", self.compute, group * FILTER_TAPS * n * LANES)
        src, dst = k.read(self.w), k.write(out)
        blocks = cdiv(self.inputs, LANES)
        piece = k.split(self.panels * blocks)
        panel, start = k.let(piece // blocks), k.let(piece % blocks * LANES)
        stop = minimum(start + LANES, as_expr(self.inputs))
        with k.loop(start, stop, group, name="c") as c, k.loop(0, columns, LANES, "column") as v:
            for part in range(group):  # the last channel, where its group has no second one, stands for that too, and is multiplied by 0
                tap = self.taps(k, src, panel, k.let(minimum(c + part, as_expr(self.inputs - 1))) if part else c, v)
                with k.loop(0, FILTER_TAPS, name="j") as j:
                    for a, value in enumerate(t.weight([tap(i, j) for i in range(FILTER_TAPS)])):
                        k.store(half, j * LANES + (part * n + a) * (FILTER_TAPS * LANES), value)
            with k.loop(0, n, name="a") as a:
                taps = [
                    [k.load(half, ((part * n + a) * FILTER_TAPS + j) * LANES, LANES) for j in range(FILTER_TAPS)] for part in range(group)
                ]
                for e, values in enumerate(zip(*(t.weight(x) for x in taps))):
                    # filter[panel, point (a, e), c, column ..] = row a of W, times the taps [i, j], times column e of W
                    value = values[0] if group == 1 else pair(*values)
                    k.store(dst, as_expr(out.index((panel, a * n + e, c // group, v))), value)
        self.lo.launch(k)
        return out
