"""Pointwise kernels over pixels: arrays whose innermost axes have few elements, the channels, which lie beside each other in memory.

    for each piece = some rows, or a part of a row:
        for row of the piece:
            for vector i of the row's pixels:
                read every channel of the pixels in vector i
                for each channel c: out[row, vector i, c] = source[row, vector i, c]
            for pixel i of the rest: the same

Vectors along the channels would have three lanes in use. Along the pixels they are full, and what lies at a stride of few elements is
read and written as whole vectors (`codegen/strided.py`), as all channels are read, and written, one right after the other.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Sequence

from tengen.kernels.axes import store_at, unflatten
from tengen.kernels.lowering import Array, KernelBuilder, Lowering, product
from tengen.kernels.source import At, Elementwise, Leaf, Source, invariant_parts
from tengen.loops.builder import as_expr
from tengen.loops.lang import LANES, Expr, Index, as_int, cdiv, const, maximum, minimum, splat

MOST_CHANNELS = 8  # elements of the innermost axes together, and from one pixel to the next where all are read or written, at most
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
