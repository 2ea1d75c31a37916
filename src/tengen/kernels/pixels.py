"""Pointwise kernels over pixels: arrays whose innermost axes have few elements, the channels, which lie beside each other in memory.

    for each piece = some rows, or a part of a row:
        for row of the piece:
            for vector i of the row's pixels:
                read every channel of the pixels in vector i
                for each channel c: out[row, vector i, c] = source[row, vector i, c]
            for pixel i of the rest: the same

Vectors along the channels would have three lanes in use. Along the pixels they are full, and what lies at a stride of few elements is
read and written as whole vectors (`codegen/strided.py`), as all channels are read, and written, one right after the other.

Pixels of a turned picture of bytes lie beside each other along another axis than the result's:

    for each piece = about STRIP_ROWS rows of the result:
        for LANES columns at a time, LANES rows of the piece at a time:
            for each operand, column of these:
                before[channel, column, rows] = operand[rows, column, channel]
            after[channel] = before[channel], transposed in registers
            for row of these:
                out[row, columns, channel] = source[row, columns, channel]            # in which `after` stands for the operand

Walked as the result lies, each of its pixels would be read alone, from a row of its own. The last rows of a piece and the last columns
are begun so early that they are LANES: some are then written twice, with the same numbers.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Sequence

from tengen.base.record import record
from tengen.kernels.axes import store_at, unflatten
from tengen.kernels.lowering import Array, KernelBuilder, Lowering, product
from tengen.kernels.source import At, Elementwise, Leaf, Source, invariant_parts, leaves_of
from tengen.kernels.squares import transpose_square
from tengen.loops.builder import as_expr
from tengen.loops.lang import LANES, Expr, Index, as_int, cdiv, const, equal, maximum, minimum, ramp, select, splat
from tengen.loops.statements import Buffer

MOST_CHANNELS = 8  # elements of the innermost axes together, and from one pixel to the next where all are read or written, at most
STRIP_ROWS = 4 * LANES  # rows of a piece, at least where there are so many: their pixels of a column fill whole cache lines
MOST_TURNED_CHANNELS = 4
MOST_READ_ELEMENTS = 4  # elements from one pixel to the next of what is read, at most, unless all between are read, too


def channel_axes(arrays: Sequence[Array], outs: Sequence[Array]) -> int:
    """How many of the innermost axes are the channels of pixels; 0 if `arrays`, which are read, and `outs` are better walked in another
    way. All have one shape, in the order of the first output's memory."""
    shape, found, many = outs[0].shape, 0, 1
    while found < len(shape) - 1 and (d := as_int(shape[-1 - found])) is not None and many * d <= MOST_CHANNELS:
        found, many = found + 1, many * d
    if many < 2 or (as_int(shape[-1 - found]) or LANES) < LANES:
        return 0
    axis = len(shape) - 1 - found
    arrays = list({(a.id, a.offset, a.strides): a for a in arrays}.values())
    if not all(_near(a, axis) or _dense(a, arrays, axis) for a in arrays):
        return 0
    return found if all(_dense(o, outs, axis) for o in outs) else 0


def _near(a: Array, axis: int) -> bool:
    """Whether a pixel lies so near to the next that whole vectors of both and of what lies between are read, of which at least half is used."""
    step = as_int(a.strides[axis])
    if step is None or abs(step) > MOST_CHANNELS:
        return False
    return abs(step) <= max(MOST_READ_ELEMENTS, 2 * len(set(_places(a, axis))))


def _dense(a: Array, arrays: Sequence[Array], axis: int) -> bool:
    """Whether this and others of `arrays` that lie in the same memory fill it between a pixel and the next, each place once."""
    step, places = as_int(a.strides[axis]) or 0, []
    for b in arrays:
        apart = as_int(b.offset - a.offset) if b.id == a.id and b.strides == a.strides else None
        if apart is not None and abs(apart) < step:
            places += [apart + p for p in _places(b, axis)]
    return 0 < step <= MOST_CHANNELS and sorted(places) == list(range(min(places), min(places) + step))


def _places(a: Array, axis: int) -> Iterator[int]:
    """Where the channels of a pixel lie, from the first one on."""
    steps = [[i * (as_int(s) or 0) for i in range(as_int(d) or 0)] for d, s in zip(a.shape[axis + 1 :], a.strides[axis + 1 :])]
    return map(sum, itertools.product(*steps))


def pixelwise(lo: Lowering, sources: Sequence[Source], outs: Sequence[Array], channels: int, name: str, some: int) -> None:
    """Launches one kernel that stores each source in its output, pixel by pixel.

    Args:
        channels: how many axes these are. some: elements of a piece.
    """
    k = lo.kernel(name)
    shape = outs[0].shape
    axis = len(shape) - 1 - channels
    pixels = max(some // (as_int(product(shape[axis + 1 :])) or 1) // LANES, 1) * LANES  # of a piece
    n, lines = as_expr(shape[axis]), as_expr(product(shape[:axis]))
    parts, rows = cdiv(n, pixels), maximum(pixels // maximum(n, 1), 1)
    piece = k.split(cdiv(lines, rows) * parts)
    start, first = k.let(piece % parts * pixels), k.let(piece // parts * rows)
    stop = k.let(minimum(n, start + pixels))
    whole = k.let(start + (stop - start) // LANES * LANES)
    one = as_int(lines) == 1
    with contextlib.nullcontext(const(0)) if one else k.loop(first, minimum(lines, first + rows), name="row") as row:
        writer = _Pixels(k, sources, outs, unflatten(k, row, shape[:axis]), start)
        with k.loop(start, whole, LANES) as i:
            writer.write(i, axis)
        if as_int(n % LANES) != 0:
            with k.loop(whole, stop) as i:
                writer.write(i, None)
    lo.launch(k)


class _Pixels:
    """Writes the statements for pixels of one row. lead: the row's coordinates; first: a pixel that it has."""

    def __init__(self, k: KernelBuilder, sources: Sequence[Source], outs: Sequence[Array], lead: Sequence[Index], first: Expr):
        self.k, self.sources, self.outs, self.lead = k, sources, outs, lead
        shape, axis = outs[0].shape, len(lead)
        self.channels = list(itertools.product(*(range(as_int(d) or 0) for d in shape[axis + 1 :])))
        self.leaves = list(dict.fromkeys(x for s in sources for x in _leaves(s)))
        self.shared = [s for s in self.leaves if all(as_int(x) == 0 for x in s.array.strides[axis + 1 :])]
        self.shared += invariant_parts(sources, range(axis + 1, len(shape)))
        steady = invariant_parts(sources, [axis])
        self.fixed = [{s: k.let(s.at(k, self._at(first, c, None))) for s in steady} for c in self.channels]

    def _at(self, i: Expr, channel: tuple[int, ...], vec: int | None) -> At:
        return At((*self.lead, i, *channel), vec)

    def write(self, i: Expr, vec: int | None) -> None:
        """The pixel i, or where `vec` is their axis LANES pixels from there on."""
        k = self.k
        places = [self._at(i, c, vec) for c in self.channels]
        for at, fixed in zip(places, self.fixed):
            at.memo.update({s: splat(v) if vec is not None else v for s, v in fixed.items()})
        known: dict[tuple[Array, Index], Expr] = {}
        for s in self.leaves:
            for at in places:
                key = s.array, s.array.index(at.coords)
                at.memo[s] = known[key] if key in known else known.setdefault(key, s.at(k, at))
        for s in self.shared:
            value = s.at(k, places[0])
            for at in places[1:]:
                at.memo.setdefault(s, value)
        values = [[s.at(k, at) for s in self.sources] for at in places]
        for j, o in enumerate(self.outs):
            for at, v in zip(places, values):
                store_at(k, o, at, v[j])


def _leaves(s: Source) -> list[Leaf]:
    """The arrays that a source reads, each as often as it does."""
    return [s] if isinstance(s, Leaf) else [x for o in s.operands for x in _leaves(o)] if isinstance(s, Elementwise) else []


# ---- turned pictures ------------------------------------------------------------------------------------------------
@record(frozen=True)
class Turned:
    """Operands of a result whose innermost axes are (columns, channels). rows: the axis along which their pixels lie beside each other."""

    rows: int
    arrays: tuple[Array, ...]


def turned(sources: Sequence[Source], outs: Sequence[Array]) -> Turned | None:
    """What is turned, if that is every operand, in the same way, of bytes, and there are LANES rows and columns of few channels: pixels of
    larger elements are quicker walked as the result lies. The arrays have one shape, in the order of the output's memory, whose
    neighbouring axes are merged."""
    arrays, shape = tuple(dict.fromkeys(leaves_of(sources) or ())), outs[0].shape
    if len(outs) > 1 or not arrays or len(shape) < 3:
        return None
    columns, channels = (as_int(d) or 0 for d in shape[-2:])
    if not 2 <= channels <= MOST_TURNED_CHANNELS or columns < LANES or as_int(outs[0].strides[-2]) != channels:
        return None
    if any(as_int(a.strides[-1]) != 1 or a.dtype.size > 1 for a in arrays) or as_int(outs[0].strides[-1]) != 1:
        return None
    beside = lambda a, i: as_int(a.strides[i]) in (channels, -channels) and (as_int(shape[i]) or 0) >= LANES
    rows = next((i for i in range(len(shape) - 2) if all(beside(a, i) for a in arrays)), None)
    return None if rows is None else Turned(rows, arrays)


def turned_pixels(lo: Lowering, t: Turned, sources: Sequence[Source], out: Array, name: str) -> None:
    """Launches one kernel that stores the source in its output."""
    k, shape = lo.kernel(name), out.shape
    high, wide = as_int(shape[t.rows]) or 0, as_int(shape[-2]) or 0
    outer = [i for i in range(len(shape) - 2) if i != t.rows]
    strips = max(high // STRIP_ROWS, 1)  # the last one has the rest, too
    piece = k.split(as_expr(product([shape[i] for i in outer])) * strips)
    strip = k.let(piece % strips)
    lead = dict(zip(outer, unflatten(k, k.let(piece // strips), [shape[i] for i in outer])))
    first = k.let(strip * STRIP_ROWS)
    stop = k.let(select(equal(strip, strips - 1), const(high), first + STRIP_ROWS))
    squares = [[k.scratch(part, a.dtype, LANES * LANES * shape[-1]) for part in ("before", "after")] for a in t.arrays]
    with k.loop(0, wide, LANES, name="column") as c, k.loop(first, stop, LANES, name="row") as r:
        column, row = k.let(minimum(c, wide - LANES)), k.let(minimum(r, stop - LANES))
        corner: list[Index] = [lead.get(i, row) for i in range(len(shape) - 2)]
        table: dict = {}
        for a, (before, after) in zip(t.arrays, squares):
            _turn(k, a, t.rows, [*corner, column], before, after)
            k.local[after.name] = after
            strides = [0] * (len(shape) - 2) + [1, LANES * LANES]
            strides[t.rows] = LANES
            table[a] = Array(after.name, a.dtype, shape, tuple(strides), 0 - row * LANES - column)
        (source,) = (s.rebind(table) for s in sources)
        with k.loop(0, LANES, name="turned") as j:
            corner[t.rows] = k.let(row + j)
            places = [At((*corner, column, channel), len(shape) - 2) for channel in range(as_int(shape[-1]) or 0)]
            for at, value in zip(places, [k.let(source.at(k, at)) for at in places]):
                store_at(k, out, at, value)
    lo.launch(k)


def _turn(k: KernelBuilder, a: Array, rows: int, corner: Sequence[Index], before: Buffer, after: Buffer) -> None:
    """Writes after[channel, row, column] = a[..., row, ..., column, channel] of LANES rows and columns from `corner` on."""
    src, channels = k.read(a), as_int(a.shape[-1]) or 0
    with k.loop(0, LANES, name="beside") as j:
        start = k.let(as_expr(a.index([*corner[:-1], corner[-1] + j, 0])))
        pixels = [k.load(src, ramp() * a.strides[rows] + (start + c), LANES) for c in range(channels)]
        for c, v in enumerate(pixels):
            k.store(before, (j + c * LANES) * LANES, v)
    for c in range(channels):
        transpose_square(
            k, a.dtype, lambda i, c=c: k.load(before, (i + c * LANES) * LANES, LANES),
            lambda i, v, c=c: k.store(after, (i + c * LANES) * LANES, v),
        )  # fmt: skip
