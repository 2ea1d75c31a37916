"""Convolutions of few channels of integers of 8 bits: a run of a window along a row is multiplied in groups, two or four at a time.

    for ky, plane:                                               # one plane where channels lie inside of pixels, else each channel
        for group of neighbouring elements of the run:           # kx and c, or kx alone; past its end weights are zeros
            acc[result j][v] = dot(acc[result j][v], strip[ky, group from j * stride on], filter[panel, ky, plane, group, vector v])

A run begins at any element of the strip, from where a group is loaded as it lies; so nothing is copied for each position of a
window. Sums are exact, so this has the bits of products one by one. See `few_channels.py` for the loops around it.
"""

from __future__ import annotations

from functools import reduce
from operator import or_

from tengen.base.dtype import uint32
from tengen.kernels.contraction.formats import BIAS_IN_BYTES, DotFormat
from tengen.kernels.contraction.groups import widened
from tengen.kernels.contraction.problem import Epilogue
from tengen.kernels.convolution.few_channels import StripConvolution, Window
from tengen.kernels.lowering import Array, Lowering
from tengen.loops.builder import as_expr
from tengen.loops.lang import LANES, Expr, as_int, bitcast, cast, cdiv, const, maximum, minimum, ramp, splat


def convolve(
    lo: Lowering, x: Array, w: Array, out: Array, shape: Window, epilogue: Epilogue | None, format: DotFormat
) -> None:  # fmt: skip
    """What `few_channels.convolve` computes, for integers of 8 bits in groups; windows without dilation along rows."""
    if not any(as_int(d) == 0 for d in out.shape):
        _InGroups(lo, x, w, out, shape, epilogue, format).launch()


class _InGroups(StripConvolution):
    format: DotFormat

    def pack(self, x: Array, w: Array) -> Array:
        """The filter as [panel, a row that sums begin with and (ky, plane, group), column]: groups of elements."""
        self.inside = as_int(x.strides[3]) == self.w.channels  # channels inside of a pixel
        self.biased = self.format.biases(x.dtype)
        (_, kw), c = self.w.kernel, self.w.channels
        self.run, self.planes = (kw * c, 1) if self.inside else (kw, c)
        self.groups = -(-self.run // self.format.group)
        how = ("strips in groups", w.shape, w.strides, self.inside, self.biased, self.s.vectors, self.format)
        return self.lo.once(w, how, lambda: self._pack(w))

    def _pack(self, w: Array) -> Array:
        lo, f, (kh, _), columns = self.lo, self.format, self.w.kernel, self.s.vectors * LANES
        panels = as_expr(cdiv(w.shape[0], columns))
        out = lo.temp(uint32, (panels, 1 + kh * self.planes * self.groups, columns))
        k = lo.kernel("conv_pack_groups")
        panel = k.split(panels)
        src, dst = k.read(w), k.write(out)
        with k.loop(0, columns, LANES, name="v") as v:
            first = k.let(panel * columns + v)
            left = k.let(maximum(minimum(as_expr(w.shape[0]) - first, LANES), 0))
            total = k.var(const(0, f.total, LANES), name="total")
            with k.loop(0, kh, name="y") as y, k.loop(0, self.planes, name="plane") as plane:

                def weight(t: int) -> Expr:
                    """Element `t` of the run, alone in its place in the group."""
                    x, c = divmod(t, self.w.channels) if self.inside else (t, plane)
                    here = k.let(as_expr(w.index((first, c, y, x))))
                    value = cast(k.load(src, ramp() * w.strides[0] + here, LANES, left), f.second)
                    return widened(value) << const(t % f.group * f.storage.bits, uint32)

                for g in range(self.groups):
                    some = range(g * f.group, min((g + 1) * f.group, self.run))
                    value = k.let(reduce(or_, [weight(t) for t in some]))
                    k.store(dst, out.index((panel, 1 + (y * self.planes + plane) * self.groups + g, v)), value)
                    if self.biased:
                        total.set(f.multiply_add(const(BIAS_IN_BYTES, uint32, LANES), value, total.value))
            k.store(dst, out.index((panel, 0, v)), bitcast(const(0, f.total, LANES) - total.value, uint32))
        lo.launch(k)
        return out

    def begin(self, panel: Expr) -> list[Expr]:
        """See `StripConvolution.begin`."""
        if not self.biased:
            return super().begin(panel)
        k, at = self.k, [self.packed.index((panel, 0, v * LANES)) for v in range(self.s.vectors)]
        return [k.let(bitcast(k.load(k.read(self.packed), i, LANES), self.format.total)) for i in at]

    def add(self, panel: Expr, at: Expr, acc: list[list]) -> None:
        """See `StripConvolution.add`."""
        k, s, f, (kh, _), vectors = self.k, self.strip, self.format, self.w.kernel, range(self.s.vectors)
        filters, step = k.read(self.packed), self.s.vectors * LANES
        with k.loop(0, kh, name="ky") as ky, k.loop(0, self.planes, name="plane") as plane:
            here = k.let(at + ky * (self.w.dilation[0] * s.row) + plane * s.channel)
            there = k.let(as_expr(self.packed.index((panel, 1 + (ky * self.planes + plane) * self.groups, 0))))
            with k.loop(0, self.groups, name="group") as g:
                bs = [k.load(filters, there + g * step + v * LANES, LANES) for v in vectors]
                for j, row in enumerate(acc):
                    a = splat(k.load_group(s.buffer, here + g * f.group + j * self.w.stride[1] * s.pixel))
                    for b, total in zip(bs, row):
                        total.set(f.multiply_add(a, b, total.value))
