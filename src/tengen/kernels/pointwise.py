"""Pointwise kernels: each element of an output is the value of its source at the same coordinates.

    for each piece = some planes, or some rows of a plane, or a part of a row:     # about PIECE_ELEMENTS elements
        for plane of the piece, row of the plane:
            for vector i of the row:
                out[plane, row, i] = source[plane, row, i]                         # for each of the outputs

Axes are put in the order in which the first output lies in memory, and neighbouring axes that every array walks as one are
merged. Of the axes that remain, the last one is a row, the last two are a plane.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from tengen.kernels.axes import memory_order, merge_axes, store_at, streams, unflatten
from tengen.kernels.lowering import Array, KernelBuilder, Lowering, contiguous_strides, product
from tengen.kernels.machine import machine, registers_of
from tengen.kernels.pixels import channel_axes, pixelwise, turned, turned_pixels
from tengen.kernels.schedule import Grain
from tengen.kernels.source import (
    At,
    Elementwise,
    Leaf,
    Literal,
    Source,
    View,
    argument_of,
    broadcast,
    costs,
    invariant_parts,
    leaves_of,
    steady_parts,
)
from tengen.kernels.transposing_copy import LEAST_TILED_EXTENT, transposing, transposing_copy
from tengen.loops.builder import as_expr
from tengen.loops.lang import LANES, Expr, Index, as_int, cdiv, const, maximum, minimum, splat

PREFETCHED_BYTES = 8192  # bytes of scattered rows that are prefetched ahead: as many as arrive while memory answers one request
MOST_PREFETCHED_ROWS = 16  # rows ahead that are prefetched, at most
FUNCTION_VECTORS = 8  # vectors of LANES that one evaluation of a mathematical function keeps in registers, with its constants
FUNCTION_REGISTERS = 4  # vector registers, at least, whose operations take turns: each waits for about as many cycles for the one before
PIECE_ELEMENTS = 16384  # elements of a piece, by rule: large beside the cost of claiming a piece, small enough to share evenly


def _merged(a: Array, groups: list[list[int]]) -> Array:
    """The array with each group of neighbouring axes as one axis."""
    shape = tuple(product([a.shape[i] for i in g]) for g in groups)
    return Array(a.id, a.dtype, shape, tuple(a.strides[g[-1]] for g in groups), a.offset)


def simplify(sources: Sequence[Source], outs: Sequence[Array]) -> tuple[list[Source], list[Array], int]:
    """Sources and outputs over as few axes as possible, ordered as the first output lies in memory; and how many of the innermost
    ones are channels (`pixels.py`)."""
    if (leaves := leaves_of(sources)) is None:
        return *_ordered(sources, outs), 0
    order = memory_order(outs[0])
    permuted = {a: a.permute(order) for a in [*leaves, *outs]}
    shape = permuted[outs[0]].shape
    groups = merge_axes(shape, list(permuted.values()))
    table = {a: _merged(p, groups) for a, p in permuted.items()}
    channels = channel_axes([table[a] for a in leaves], [table[a] for a in outs])
    if not channels and _few_across(list(table.values())):
        table = {a: m.permute([*range(m.ndim - 2), m.ndim - 1, m.ndim - 2]) for a, m in table.items()}
    return [s.rebind(table) for s in sources], [table[a] for a in outs], channels


def _few_across(arrays: Sequence[Array]) -> bool:
    """Whether the innermost axis is short (the colours of an image), and the next one is long and some array is dense along it:
    then vectors along that one are full."""
    few, many = (as_int(d) for d in (1, 1, *arrays[0].shape)[-1:-3:-1])
    return (
        few is not None and few < LEAST_TILED_EXTENT and many is not None and many >= LANES
        and any(as_int(a.strides[-2]) == 1 for a in arrays)
    )


def _ordered(sources: Sequence[Source], outs: Sequence[Array]) -> tuple[list[Source], list[Array]]:
    """Sources of any kind and outputs, with the axes in the first output's memory order."""
    order = memory_order(outs[0])
    if order == sorted(order):
        return list(sources), list(outs)
    n = len(order)
    shape = tuple(outs[0].shape[a] for a in order)
    return [View(s, shape, tuple(order), (0,) * n, (1,) * n) for s in sources], [o.permute(order) for o in outs]


def grain(lo: Lowering, name: str, shape: Sequence[Index], outs: Sequence[Array], rule: int | None = None) -> int:
    """How many elements a piece of the kernel `name` over `shape` has: what tuning found, or `rule`, which is PIECE_ELEMENTS by
    default."""

    def problem_key() -> str:
        return f"{name} of {list(shape)} to {'; '.join(f'{o.dtype} {list(o.shape)} by {list(o.strides)}' for o in outs)}"

    return lo.choose(problem_key, Grain(rule or PIECE_ELEMENTS), Grain.fits).elements


def pointwise(
    lo: Lowering, sources: Sequence[Source], outs: Sequence[Array], name: str = "pointwise", stream: bool | None = None,
    elements: int | None = None,
) -> None:  # fmt: skip
    """Launches one kernel that stores each source in its output; all have one shape, to which sources are broadcast.

    Args:
        stream: whether stores go past the caches; by default where outputs are large (`axes.streams`).
        elements: how many a piece has; by default PIECE_ELEMENTS.
    """
    stream = streams(outs) if stream is None else stream
    sources = [broadcast(s, o.shape) for s, o in zip(sources, outs, strict=True)]
    if leaves_of(sources) is None and len(sources) == 1 and (s := argument_of(sources[0])) is not None:
        if s.launch(lo, sources[0], outs[0], name):
            return None
    if leaves_of(sources) is None:
        stored: dict[Source, Source] = {}
        sources = [_stored_apart(lo, s, name, stored) for s in sources]
    across = transposing(sources, outs)
    if across is not None:
        return transposing_copy(lo, across, sources, outs, name)
    sources, outs, channels = simplify(sources, outs)
    shape = outs[0].shape
    if channels:
        return pixelwise(lo, sources, outs, channels, name, grain(lo, name, shape, outs, elements))
    if (turn := turned(sources, outs)) is not None:
        return turned_pixels(lo, turn, sources, outs[0], name)
    k = lo.kernel(name)
    if not shape:
        at = At(())
        values = [s.at(k, at) for s in sources]  # all are read before any is written: an output may lie over an operand of another
        for o, v in zip(outs, values):
            store_at(k, o, at, v)
        return lo.launch(k)
    some, n = grain(lo, name, shape, outs, elements), as_expr(shape[-1])  # elements of a piece, of a row
    distance = _prefetch_distance(sources, shape)
    several = _vectors_abreast(sources, n, lo.target) if distance is None else 1
    if len(shape) == 1:
        start = k.let(k.split(cdiv(n, some)) * some)
        _row(k, sources, outs, (start, k.let(minimum(n, start + some))), [], [], several, stream, None)
        return lo.launch(k)
    _planes(k, sources, outs, some, distance, several, stream)
    lo.launch(k)


def _planes(
    k: KernelBuilder, sources: Sequence[Source], outs: Sequence[Array], some: int, distance: Expr | None, several: int, stream: bool
) -> None:
    """The loops over arrays of two axes and more, whose last two are planes of rows. some: elements of a piece."""
    shape = outs[0].shape
    n = as_expr(shape[-1])
    outer, middle, one = as_expr(product(shape[:-2])), as_expr(shape[-2]), const(1)
    rows = minimum(maximum(one, some // maximum(one, n)), maximum(one, middle))  # rows of a piece
    blocks, parts = cdiv(middle, rows), cdiv(n, some)  # blocks of rows in a plane, parts of a long row
    planes = maximum(one, some // maximum(one, middle * n))  # planes of a piece, where they are small
    piece = k.split(cdiv(outer, planes) * blocks * parts)
    flat = len(shape) == 2  # all is one plane
    plane0 = const(0) if flat else k.let(piece // (blocks * parts) * planes)
    row0 = k.let((piece // parts if flat else piece // parts % blocks) * rows)
    start = k.let(piece % parts * some)
    stop = k.let(minimum(n, start + some))
    ahead = None if distance is None else k.let(distance)
    end = k.let(minimum(row0 + rows, middle))
    constants = invariant_parts(sources, [len(shape) - 1])
    with contextlib.nullcontext(plane0) if flat else k.loop(plane0, minimum(plane0 + planes, outer), name="plane") as plane:
        lead = unflatten(k, plane, shape[:-2])

        def prefetch(row: Expr, i: Expr) -> None:
            for s in sources:
                s.prefetch(k, At((*lead, minimum(row, end - 1), i), len(shape) - 1))

        if ahead is not None:
            with k.loop(row0, row0 + ahead, name="row") as row, k.loop(start, stop, LANES) as i:
                prefetch(row, i)
        with k.loop(row0, end, name="row") as row:
            later = None if ahead is None else partial(prefetch, row + ahead)
            _row(k, sources, outs, (start, stop), [*lead, row], constants, several, stream, later)


def _row(
    k: KernelBuilder, sources: Sequence[Source], outs: Sequence[Array], span: tuple[Expr, Expr], line: list[Index],
    constants: Sequence[Source], several: int, stream: bool, prefetch: Callable[[Expr], None] | None,
) -> None:  # fmt: skip
    """Writes the positions span[0] <= i < span[1] of a row.

    Args:
        line: the row's coordinates on all axes but the last. constants: parts of the sources with one value for the whole row.
        several: vectors that are computed side by side. prefetch: writes the prefetches for a later row at a position, or None.
    """
    first, stop = span
    fixed = {s: splat(k.let(s.at(k, At((*line, first))))) for s in constants}
    steady = steady_parts(sources, k, At((*line, first), len(line)))
    place = lambda i, count=None: At((*line, i), len(line), count, dict(fixed), steady)
    if several > 1:
        step = several * LANES
        whole = k.let(first + (stop - first) // step * step)
        with k.loop(first, whole, step) as i:  # out[line, vector i + 16 j] = source[line, vector i + 16 j] for all j < several
            places = [place(i + j * LANES) for j in range(several)]
            for at, v in zip(places, k.abreast([partial(sources[0].at, k, at) for at in places])):
                store_at(k, outs[0], at, v, stream)
        first = whole
    for i, count in k.vector_loop(first, stop):  # out[line, vector i] = source[line, vector i]
        if prefetch is not None and count is None:
            prefetch(i)
        at = place(i, count)
        values = [s.at(k, at) for s in sources]
        for o, v in zip(outs, values):
            store_at(k, o, at, v, stream)


def _vectors_abreast(sources: Sequence[Source], n: Expr, target) -> int:
    """How many vectors of a row are computed side by side. More than one where the source calls a mathematical function, in
    which each operation waits for the one before; other vectors' operations fill the time. As many as registers hold, or as have
    FUNCTION_REGISTERS together (constants then come from memory), but one where the length of rows is not known: several would take twice
    as long to compile."""
    width, registers, _ = machine(target)
    size = max(4, sources[0].dtype.size)
    several = max(width * registers // (FUNCTION_VECTORS * LANES * size), FUNCTION_REGISTERS // registers_of(size, target))
    long = (as_int(n) or 0) >= several * LANES
    return several if several > 1 and long and len(sources) == 1 and costs(sources[0]) else 1


def _prefetch_distance(sources: Sequence[Source], shape: Sequence[Index]) -> Expr | None:
    """How many rows ahead a row is prefetched, where rows are gathered from scattered addresses; None where they are not."""
    if len(shape) < 2 or not any(s.scattered for s in sources):
        return None
    row = maximum(as_expr(shape[-1]) * sources[0].dtype.size, 1)
    return minimum(maximum(const(PREFETCHED_BYTES) // row, 1), MOST_PREFETCHED_ROWS)


def _stored_apart(lo: Lowering, source: Source, name: str, done: dict[Source, Source]) -> Source:
    """An expression, in which what has a kernel of its own (`Source.apart`), and what is computed from that alone down to the narrowest
    dtype, is read from memory, where a launch has stored it. done: what was made of which part."""
    if source in done:
        return done[source]
    s = argument_of(source)
    if s is not None and s.apart(lo, Array(name, source.dtype, source.shape, contiguous_strides(source.shape))):
        part = _narrowest(source)
        if part not in done:
            t = lo.temp(part.dtype, part.shape)
            pointwise(lo, [part], [t], name)
            done[part] = Leaf(t)
    if source not in done:
        made = source
        if isinstance(source, Elementwise):
            made = replace(source, operands=[_stored_apart(lo, o, name, done) for o in source.operands])
        elif isinstance(source, View):
            made = replace(source, source=_stored_apart(lo, source.source, name, done))
        done[source] = made
    return done[source]


def _narrowest(source: Source) -> Source:
    """Of an expression of one argument the part, without which no more is computed, that has the fewest bytes."""
    parts = [source]
    while isinstance(parts[-1], Elementwise) and len(some := [o for o in parts[-1].operands if not isinstance(o, Literal)]) == 1:
        parts.append(some[0])
    return min(parts, key=lambda x: x.dtype.size)


def stored(lo: Lowering, a: Array) -> Array:
    """An array without a prologue: `a`, or where it has one a temporary, in which a launch stores the prologue's results."""
    if a.prologue is None:
        return a
    t = lo.temp(a.dtype, a.shape, memory_order(a))
    pointwise(lo, [a.prologue.whole], [t], "stored")
    return t


def copy(lo: Lowering, src: Array, dst: Array, name: str = "copy") -> None:
    """Launches dst[...] = src, element by element, with broadcasting."""
    if src.dtype.is_complex:
        return pointwise(lo, [Leaf(a) for a in src.parts()], dst.parts(), name)
    pointwise(lo, [Leaf(src)], [dst], name)


def over_dense(lo: Lowering, ins: Sequence[Array], outs: Sequence[Array], run: Callable[[list[Array], list[Array]], None]) -> None:
    """Runs something on operands and results that are dense in logical order."""
    made = [o if o.is_contiguous() else lo.temp(o.dtype, o.shape) for o in outs]
    run([dense(lo, a) for a in ins], made)
    for a, o in zip(made, outs):
        if a is not o:
            copy(lo, a, o)


def dense(lo: Lowering, a: Array) -> Array:
    """The same elements, one after the other in logical order."""
    if a.is_contiguous():
        return a
    made = lo.temp(a.dtype, a.shape)
    copy(lo, a, made)
    return made
