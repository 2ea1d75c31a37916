"""Sources with computed coordinates: gathering, padding, one-hot, ranges, binary search; and strategies that join and pad.

They are sources, so the loop nest is that of whoever asks for their values. For a pointwise kernel that stores a `Gather`:

    for row, i, vector of columns of the result:
        j = index[i], brought into 0 .. extent - 1
        out[row, i, columns] = source[row, j, columns]       # an index that varies along the vector gathers 16 elements

Every index is brought into range inside of the kernel, so that no read is out of bounds whatever the indices are. `check_index`
computes whether an index was out of range, so that the op can raise an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tengen.base.dtype import DType, bool_, float64, int64
from tengen.kernels.lowering import Array, KernelBuilder, Lowering, product
from tengen.kernels.pixels import MOST_CHANNELS
from tengen.kernels.pointwise import pointwise
from tengen.kernels.reduction.reduce import reduce
from tengen.kernels.source import At, Elementwise, Leaf, Literal, Source, View, broadcast
from tengen.loops.builder import as_expr
from tengen.loops.lang import Expr, Index, as_int, bitcast, cast, const, equal, fma, maximum, minimum, select, splat

FAR_TABLE_BYTES = 1 << 24  # bytes of a table from which on its rows are prefetched: a smaller one may lie in a cache


def in_range(i: Expr, extent: Index) -> Expr:
    """An index (int64; negative ones count from the end) as a position in [0, extent). An index that is out of range becomes
    the first or the last position."""
    n = as_expr(extent)
    return maximum(minimum(select(i < 0, i + n, i), n - 1), 0)


def place(coords: Sequence[Index], vec: int | None, count: Expr | None) -> At:
    """The place with these coordinates. `count` is dropped where none of them is a vector, as then there is one lane."""
    at = At(tuple(coords), vec, count)
    if at.lanes == 1:
        at.count = None
    return at


def _value(k: KernelBuilder, s: Source, outer: At, inner: At) -> Expr:
    """The value of `s` at `inner`, as a vector if `outer` is asked for one."""
    v = s.at(k, inner)
    return splat(v) if outer.lanes > 1 else v


class Gather(Source):
    """`source` read at computed indices on some of its axes (NumPy's advanced indexing; `take`; embedding).

    Args:
        indices: axis of the source -> a source of integers; all have one shape B (broadcast them before). Negative ones count
            from the end.
        position: how many of the source's other axes come before B's axes in the result.
    """

    def __init__(self, source: Source, indices: dict[int, Source], position: int):
        self.source, self.position = source, position
        self.axes, self.indices = list(indices), list(indices.values())
        self.rest = [a for a in range(len(source.shape)) if a not in indices]
        self.index_shape = self.indices[0].shape
        kept = [source.shape[a] for a in self.rest]
        self.shape = (*kept[:position], *self.index_shape, *kept[position:])
        self.dtype = source.dtype

    def value(self, k, at):
        return _value(k, self.source, at, self._inner(k, at))

    @property
    def scattered(self):
        if not isinstance(self.source, Leaf) or not self.rest or as_int(self.source.array.strides[self.rest[-1]]) != 1:
            return False
        n = as_int(product(self.source.shape))
        return n is None or n * self.dtype.size >= FAR_TABLE_BYTES

    def prefetch(self, k, at):
        inner = self._inner(k, at)
        index = self.source.array.index(inner.coords)
        if inner.vec is not None and inner.vec == self.rest[-1] and as_expr(index).lanes == 1:
            k.prefetch(k.read(self.source.array), index)

    def _inner(self, k: KernelBuilder, at: At) -> At:
        """The place in the source."""
        b, p = len(self.index_shape), self.position
        inside = at.vec is not None and p <= at.vec < p + b
        index_at = place(at.coords[p : p + b], at.vec - p if inside else None, at.count)
        coords: list[Index] = [0] * len(self.source.shape)
        for axis, s in zip(self.axes, self.indices):
            coords[axis] = in_range(cast(s.at(k, index_at), int64), self.source.shape[axis])
        vec = None
        for i, axis in enumerate(self.rest):
            j = i if i < p else i + b
            coords[axis] = at.coords[j]
            vec = axis if j == at.vec else vec
        return place(coords, vec, at.count)


def take(source: Source, index: Source, axis: int) -> Gather:
    """source[..., index, ...], indexed on `axis`, which the index's axes replace."""
    return Gather(source, {axis: index}, axis)


class TakeAlong(Source):
    """out[..., i, ...] = source[..., index[..., i, ...], ...] along `axis` (NumPy's take_along_axis, PyTorch's gather). The
    other extents of `index` are at most those of `source`."""

    def __init__(self, source: Source, index: Source, axis: int):
        self.source, self.index, self.axis = source, index, axis
        self.shape, self.dtype = index.shape, source.dtype

    def value(self, k, at):
        i = in_range(cast(self.index.at(k, at), int64), self.source.shape[self.axis])
        coords: list[Index] = list(at.coords)
        coords[self.axis] = i
        vec = at.vec if at.vec != self.axis else None
        return _value(k, self.source, at, place(coords, vec, at.count))


class Iota(Source):
    """start + step * (the coordinate on `axis`), computed in `dtype`. Floats: the coordinate is rounded, then one fma."""

    def __init__(self, shape: Sequence[Index], dtype: DType, axis: int = 0, start: float | int = 0, step: float | int = 1):
        self.shape, self.dtype, self.axis, self.start, self.step = tuple(shape), dtype, axis, start, step

    def value(self, k, at):
        d = self.dtype.compute
        i = cast(at.coord(self.axis), d)
        v = fma(i, const(self.step, d), const(self.start, d)) if d.is_float else i * self.step + self.start
        return cast(splat(v) if at.lanes > 1 else v, self.dtype)


class OneHot(Source):
    """1 where the coordinate on the last axis, which is new, equals the index; else 0. An index outside [0, depth) gives a row
    of zeros."""

    def __init__(self, index: Source, depth: Index, dtype: DType):
        self.index, self.dtype = index, dtype
        self.shape = (*index.shape, depth)

    def value(self, k, at):
        last = len(self.shape) - 1
        v = self.index.at(k, place(at.coords[:-1], at.vec if at.vec != last else None, at.count))
        hit = equal(cast(v, int64), at.coord(last))
        hit = splat(hit) if at.lanes > 1 else hit
        return select(hit, const(1, self.dtype), const(0, self.dtype))


class Pad(Source):
    """`source` with `widths[i] = (before, after)` more elements on axis i.

    Args:
        mode: what the new elements are: "constant": `value`; "edge" or "replicate": the nearest element; "reflect": the
            elements mirrored at the edge element, which is not repeated (widths are less than the extent); "circular": the
            elements from the other end.
    """

    def __init__(self, source: Source, widths: Sequence[tuple[Index, Index]], mode: str = "constant", value: float | int = 0):
        self.source, self.widths, self.mode, self.fill = source, tuple(widths), mode, value
        self.shape = tuple(a + d + b for d, (a, b) in zip(source.shape, self.widths))
        self.dtype = source.dtype

    def _inner(self, c: Expr, extent: Expr) -> Expr:
        """The coordinate in the source whose element stands at the padded coordinate c, which is 0 at the source's first
        element and negative before it."""
        if self.mode == "reflect":
            c = select(c < 0, 0 - c, c)
            c = select(c >= extent, (extent - 1) * 2 - c, c)
        elif self.mode == "circular":
            c = select(c < 0, c + extent, c)
            c = select(c >= extent, c - extent, c)
        return maximum(minimum(c, extent - 1), 0)

    def value(self, k, at):
        coords: list[Index] = list(at.coords)
        vec, outside = at.vec, None
        for axis, (before, after) in enumerate(self.widths):
            if as_int(before) == 0 and as_int(after) == 0:
                continue
            extent = as_expr(self.source.shape[axis])
            c = at.coord(axis) - before
            if self.mode == "constant":
                out = (c < 0) | (c >= extent)
                outside = out if outside is None else outside | out
            coords[axis] = k.let(self._inner(c, extent))
            vec = None if axis == vec else vec
        v = _value(k, self.source, at, place(coords, vec, at.count))
        return v if outside is None else select(outside, const(self.fill, self.dtype), v)


# ---- strategies ------------------------------------------------------------------------------------------------------


def window(a: Array, starts: Sequence[Index], shape: Sequence[Index]) -> Array:
    """The part of `a` that begins at the coordinates `starts` and has this shape."""
    return replace(a, shape=tuple(shape), offset=a.index(starts))


def _part(s: Source, starts: Sequence[Index], shape: Sequence[Index]) -> Source:
    """The same of a source."""
    n = len(shape)
    return View(s, tuple(shape), tuple(range(n)), tuple(starts), (1,) * n)


def concat(lo: Lowering, sources: Sequence[Source], out: Array, axis: int, name: str = "concat") -> None:
    """Launches out = the sources one after another along `axis`: one pointwise kernel for each, which stores it in its part of
    the output. Few sources of one element along the axis are one kernel, which computes once what several of them need, and writes all
    that lies between two elements of the first one."""
    starts: list[Index] = [0] * out.ndim
    parts = []
    for s in sources:
        if as_int(s.shape[axis]) != 0:
            parts.append((s, window(out, starts, s.shape)))
            starts[axis] = starts[axis] + s.shape[axis]
    if one_each([s.shape for s, _ in parts], axis) and (as_int(out.strides[axis]) == 1 or not all(isinstance(s, Leaf) for s, _ in parts)):
        return pointwise(lo, [s for s, _ in parts], [o for _, o in parts], name)
    for s, o in parts:
        pointwise(lo, [s], [o], name)


def one_each(shapes: Sequence[Sequence[Index]], axis: int) -> bool:
    """Whether arrays of these shapes are several, but few, with one element each along an axis."""
    return 1 < len(shapes) <= MOST_CHANNELS and all(as_int(shape[axis]) == 1 for shape in shapes)


def pad(
    lo: Lowering,
    source: Source,
    out: Array,
    widths: Sequence[tuple[Index, Index]],
    mode: str = "constant",
    value: float | int = 0,
    name: str = "pad",
) -> None:
    """Launches out = `source` padded (see `Pad`): one kernel copies the source, and one for each border stores the new
    elements, so that none of them tests where it is."""
    padded = Pad(source, widths, mode, value)
    before = [a for a, _ in widths]
    pointwise(lo, [source], [window(out, before, source.shape)], name)
    for axis, (lower, upper) in enumerate(widths):
        for extent, start in ((lower, 0), (upper, lower + source.shape[axis])):
            if as_int(extent) == 0:
                continue
            # On axes before this one the inside alone, as their borders are stored already; on axes after it everything.
            starts = [*before[:axis], start, *([0] * (out.ndim - axis - 1))]
            shape = [*source.shape[:axis], extent, *out.shape[axis + 1 :]]
            s = broadcast(Literal(value, out.dtype), shape) if mode == "constant" else _part(padded, starts, shape)
            pointwise(lo, [s], [window(out, starts, shape)], f"{name}_border")


def check_index(lo: Lowering, index: Source, extent: Index, flag: Array, name: str = "check_index") -> None:
    """Launches flag (one element, bool or integer) = whether any index is outside [-extent, extent)."""
    n = as_expr(extent)

    def out_of_range(v: Expr) -> Expr:
        i = cast(v, int64)
        return (i < 0 - n) | (i >= n)

    outside = Elementwise(out_of_range, [index], index.shape, bool_)
    target = replace(flag, shape=(), strides=())
    reduce(lo, "or", outside, target, tuple(range(len(index.shape))), then=lambda v: v, name=name)


class SearchSorted(Source):
    """For each value the first position on the last axis of `table` (in ascending order) at which it can be inserted so that
    the order holds; with `right` the last such position, after equal elements. NaN counts as larger than all numbers.

        low, high = 0, n                                     # a vector of both: 16 searches at a time
        repeat bit_length(n) times:
            middle = (low + high) / 2
            where low < high: low = middle + 1 if table[middle] belongs before the value, else high = middle

    Shapes: table (n) with any values, or (..., n) with values (..., m). Result: int64 of the values' shape.
    """

    def __init__(self, table: Source, values: Source, right: bool = False):
        self.table, self.values, self.right = table, values, right
        self.shape, self.dtype = values.shape, int64

    def value(self, k, at):
        x = self.values.at(k, at)
        wide = (lambda e: splat(e)) if at.lanes > 1 else (lambda e: e)
        n = as_expr(self.table.shape[-1])
        low = k.var(wide(const(0)), name="low")
        high = k.var(wide(n), name="high")
        lead = len(self.table.shape) - 1
        vec = at.vec if at.vec is not None and at.vec < lead else None
        with k.loop(0, bit_length(n), name="halving"):
            open_ = k.let(low.value < high.value)
            middle = k.let((low.value + high.value) >> 1)
            inside = k.let(maximum(minimum(middle, n - 1), 0))
            y = _value(k, self.table, at, place((*at.coords[:lead], inside), vec, at.count))
            after = k.let(open_ & self._before(y, x))
            a = k.let(select(after, middle + 1, low.value))
            b = k.let(select(open_ & ~after, middle, high.value))
            low.set(a)
            high.set(b)
        return k.let(low.value)

    def _before(self, y: Expr, x: Expr) -> Expr:
        """Whether element y belongs before the value x."""
        return ~_less(x, y) if self.right else _less(y, x)


def _less(a: Expr, b: Expr) -> Expr:
    """a < b, if NaN counts as larger than all numbers."""
    if not a.dtype.is_float:
        return a < b
    number = equal(a, a)
    return (a < b) | (number & ~equal(b, b))


def bit_length(n: Expr) -> Expr:
    """The number of bits of n >= 0: after so many halvings, n + 1 possibilities are one."""
    if (known := as_int(n)) is not None:
        return const(known.bit_length())
    exponent = (bitcast(cast(n, float64), int64) >> 52) - 1022  # of n as a float64, which is exact
    return maximum(exponent, 0)
