"""Sorting along an axis, and the first k elements of the sorted order.

    keys = packed keys of the elements                     # a pointwise kernel
    for each piece = some rows:
        for block of LANES * LANES elements of a row:      # LANES runs of LANES elements; lane l of a vector belongs to run l
            sort all runs of the block by a network of vector minimum and maximum
        for pass in 0 .. log2(number of runs), rounded up:
            for pair of neighbouring runs:
                merge the pair, from both ends at once, into the other half of the memory
    out = elements at the sorted positions                 # a pointwise kernel

Long rows of known extent are sorted digit by digit instead (`radix.py`).

For small k (up to MOST_SELECTED_ELEMENTS) the middle part is instead:

    for each piece = some rows:
        best[0 .. k - 1] = the largest int64               # scratch memory, in order
        for element of a row: if element < best[k - 1]: insert it in best

A *packed key* is an int64: the upper half is an integer that is ordered as the element is, the lower half its position in the
row. Packed keys are all different, so every way to sort them is stable, and takes one comparison each. Elements of 64 bits have
key and position in two arrays, which are compared in this order.

Order: as numbers, -0.0 equal to 0.0; NaN is larger than all numbers (so it comes last, or first when descending). Equal
elements keep their order, also when descending. Rows have fewer than 2**32 elements.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tengen.base.dtype import float32, float64, int32, int64
from tengen.kernels.indexing import radix
from tengen.kernels.indexing.gather import TakeAlong, bit_length
from tengen.kernels.lowering import Array, KernelBuilder, Lowering, product
from tengen.kernels.pointwise import pointwise
from tengen.kernels.source import Elementwise, Leaf, Source
from tengen.loops.builder import as_expr
from tengen.loops.lang import (
    LANES,
    Expr,
    Index,
    as_int,
    bitcast,
    cast,
    cdiv,
    const,
    equal,
    fold,
    maximum,
    minimum,
    not_equal,
    ramp,
    select,
    splat,
)
from tengen.loops.statements import Buffer

GREATEST_PACKED = (1 << 63) - 1  # greater than every packed key
SORTED_BLOCK_ELEMENTS = LANES * LANES  # elements whose runs are sorted at a time
MOST_SELECTED_ELEMENTS = 32  # up to so many, the first elements are selected without sorting the others
LOW_WORD = 0xFFFFFFFF  # the half of a packed key that is the position

Item = tuple[Expr, ...]  # (packed key,), or (key, position) of a 64-bit element


def ordered_key(x: Expr, descending: bool) -> Expr:
    """An integer (int32 for elements of up to 32 bits, else int64) that is ordered as `x` is."""
    d = x.dtype
    if d.is_float:
        wide = float64 if d is float64 else float32
        kind = int64 if wide is float64 else int32
        x = cast(x, wide)
        bits = bitcast(select(equal(x, 0.0), const(0.0, wide), x), kind)
        top = (1 << (kind.bits - 1)) - 1
        k = bits ^ ((bits >> (kind.bits - 1)) & top)
        k = select(not_equal(x, x), const(top, kind), k)
    elif d.kind == "u" and d.bits >= 32:
        kind = int64 if d.bits == 64 else int32
        k = bitcast(x, kind) ^ const(-(1 << (kind.bits - 1)), kind)
    else:
        k = cast(x, int64 if d.bits == 64 else int32)
    return ~k if descending else k


class _Packed(Source):
    """The packed key of each element: its ordered key in the upper half of an int64, its position in the lower half."""

    def __init__(self, source: Source, axis: int, descending: bool):
        self.source, self.axis, self.descending = source, axis, descending
        self.shape, self.dtype = source.shape, int64

    def value(self, k, at):
        key = cast(ordered_key(self.source.at(k, at), self.descending), int64)
        return (key << 32) | at.coord(self.axis)


class _Position(Source):
    """The coordinate on an axis."""

    def __init__(self, shape: Sequence[Index], axis: int):
        self.shape, self.dtype, self.axis = tuple(shape), int64, axis

    def value(self, k, at):
        c = at.coord(self.axis)
        return splat(c) if at.lanes > 1 else c


def sort(
    lo: Lowering,
    source: Source,
    values: Array | None,
    indices: Array | None,
    axis: int,
    descending: bool = False,
    name: str = "sort",
) -> None:
    """Launches values = `source` sorted along `axis`, and indices = the position of each of them in `source` (argsort). It is
    stable; the order is described at the top of this file.

    `values` (of the source's dtype, or one to cast to) and `indices` (integers) have the source's shape, or on `axis` a smaller
    extent k: then they are the first k. Either may be None.
    """
    out = values if values is not None else indices
    if out is None:
        return
    n, k_first = as_expr(source.shape[axis]), as_expr(out.shape[axis])
    order = [a for a in range(len(source.shape)) if a != axis] + [axis]
    packed = source.dtype.bits <= 32
    parts: list[Source] = [_Packed(source, axis, descending)]
    if not packed:
        key = Elementwise(lambda x: ordered_key(x, descending), [source], source.shape, int64)
        parts = [key, _Position(source.shape, axis)]
    few = (as_int(k_first) or MOST_SELECTED_ELEMENTS + 1) <= MOST_SELECTED_ELEMENTS
    select_few = packed and few and (as_int(n) is None or as_int(n) > 2 * LANES)
    memory = [_temp(lo, source.shape, order, 1 if select_few else 2) for _ in parts]
    pointwise(lo, parts, memory, f"{name}_keys")
    rows = as_expr(product([source.shape[a] for a in order[:-1]]))
    if select_few:
        shape = tuple(k_first if a == axis else d for a, d in enumerate(source.shape))
        result = [lo.temp(int64, shape, order)]
        _launch_select(lo, memory[0], result[0], rows, n, int(as_int(k_first)), f"{name}_select")
    else:
        if packed and (as_int(n) or 0) >= radix.LEAST_ELEMENTS:
            half: Index = 0
            radix.sort_rows(lo, memory[0], rows, n, f"{name}_rows")
        else:
            half = _passes(n) % 2
            _launch_sort(lo, memory, rows, n, f"{name}_rows")
        result = [replace(a, offset=half * (rows * n), shape=out.shape) for a in memory]
    position: Source = Leaf(result[-1])
    if packed:
        position = Elementwise(lambda v: v & LOW_WORD, [position], out.shape, int64)
    done: list[tuple[Source, Array]] = []
    if values is not None:
        done.append((_as(TakeAlong(source, position, axis), values), values))
    if indices is not None:
        done.append((_as(position, indices), indices))
    pointwise(lo, [s for s, _ in done], [a for _, a in done], f"{name}_out")


def topk(
    lo: Lowering,
    source: Source,
    values: Array | None,
    indices: Array | None,
    axis: int,
    largest: bool = True,
    name: str = "topk",
) -> None:
    """Launches the first k results of `sort` (descending if `largest`), where k is the outputs' extent on `axis`."""
    sort(lo, source, values, indices, axis, largest, name)


def _as(s: Source, out: Array) -> Source:
    return s if s.dtype is out.dtype else Elementwise(lambda v: cast(v, out.dtype), [s], s.shape, out.dtype)


def _temp(lo: Lowering, shape: Sequence[Index], order: Sequence[int], copies: int) -> Array:
    """A temporary for int64 rows, one after another, with room for `copies` of all of them."""
    a = lo.temp(int64, shape, order)
    lo.temps[a.id] = (int64, as_expr(product(shape)) * copies)
    return a


# ---- sorting rows ----------------------------------------------------------------------------------------------------


def _passes(n: Expr) -> Expr:
    """How many times the length of runs, LANES at first, doubles until it is at least n."""
    return as_expr(bit_length(maximum(n - 1, 0) // LANES))


def _launch_sort(lo: Lowering, memory: Sequence[Array], rows: Expr, n: Expr, name: str) -> None:
    """Launches the kernel that sorts all rows of n elements. Each pass merges from one half of the memory into the other, so
    the result is in half number `_passes(n)` mod 2."""
    k = lo.kernel(name)
    buffers = [k.write(a) for a in memory]
    transposed = [k.scratch("turned", int64, SORTED_BLOCK_ELEMENTS) for _ in memory]
    half = k.let(rows * n)
    per = maximum(const(1), 2048 // maximum(const(1), n))
    piece = k.split(cdiv(rows, per))
    with k.loop(piece * per, minimum(piece * per + per, rows), name="row") as r:
        base = k.let(r * n)
        with k.loop(0, n, SORTED_BLOCK_ELEMENTS, name="block") as b:
            _sort_runs(k, buffers, transposed, base + b, minimum(n - b, const(SORTED_BLOCK_ELEMENTS)))
        with k.loop(0, _passes(n), name="pass_") as p:
            width = k.let(const(LANES) << p)
            source, target = k.let(base + p % 2 * half), k.let(base + (p + 1) % 2 * half)
            with k.loop(0, cdiv(n, width * 2), name="pair") as q:
                start = k.let(q * width * 2)
                _merge(k, buffers, source, target, start, minimum(start + width, n), minimum(start + width * 2, n))
    lo.launch(k)


def network(n: int) -> list[tuple[int, int]]:
    """Batcher's odd-even merge sort of n (a power of two) elements, as comparisons (i, j), i < j, in order.

    Source: Batcher, "Sorting networks and their applications", 1968.

    >>> network(2)
    [(0, 1)]
    """
    pairs = []
    p = 1
    while p < n:
        k = p
        while k >= 1:
            for j in range(k % p, n - k, 2 * k):
                for i in range(min(k, n - j - k)):
                    if (i + j) // (2 * p) == (i + j + k) // (2 * p):
                        pairs.append((i + j, i + j + k))
            k //= 2
        p *= 2
    return pairs


def _before(a: Item, b: Item) -> Expr:
    """Whether a comes before b in the sorted order."""
    return a[0] < b[0] if len(a) == 1 else (a[0] < b[0]) | (equal(a[0], b[0]) & (a[1] < b[1]))


def _sort_runs(k: KernelBuilder, buffers: Sequence[Buffer], transposed: Sequence[Buffer], start: Expr, m: Expr) -> None:
    """Sorts each run of 16 of the m elements from index `start` on. In the scratch memory `transposed`, lane l of vector i is
    element i of run l, so one minimum and one maximum of two vectors compare elements of all 16 runs. Elements that do not
    exist are GREATEST_PACKED, so they come last."""
    with k.loop(0, LANES) as i:
        count = k.let(maximum(cdiv(m - i, LANES), 0))
        for b, t in zip(buffers, transposed):
            k.store(t, i * LANES, k.load(b, ramp() * LANES + (start + i), LANES, count, GREATEST_PACKED))
    items: list[Item] = [tuple(k.load(t, i * LANES, LANES) for t in transposed) for i in range(LANES)]
    for i, j in network(LANES):  # items[i], items[j] = the lesser, the greater of them, in each lane
        a, b = items[i], items[j]
        if len(a) == 1:
            items[i], items[j] = (k.let(minimum(a[0], b[0])),), (k.let(maximum(a[0], b[0])),)
        else:
            keep = k.let(_before(a, b))
            items[i] = tuple(k.let(select(keep, x, y)) for x, y in zip(a, b))
            items[j] = tuple(k.let(select(keep, y, x)) for x, y in zip(a, b))
    for i, item in enumerate(items):
        for t, e in zip(transposed, item):
            k.store(t, i * LANES, e)
    with k.loop(0, LANES) as i:
        count = k.let(maximum(cdiv(m - i, LANES), 0))
        for b, t in zip(buffers, transposed):
            k.store(b, ramp() * LANES + (start + i), k.load(t, i * LANES, LANES), count)


def _merge(
    k: KernelBuilder, buffers: Sequence[Buffer], source: Expr, target: Expr, start: Expr, middle: Expr, stop: Expr
) -> None:
    """Merges two sorted runs, start..middle and middle..stop of a row that begins at index `source`, to where `target` begins.

        for t in 0 .. half the elements:
            target[start + t] = the lesser of source[i], source[j];         advance i or j
            target[stop - 1 - t] = the greater of source[u], source[v];     retreat u or v

    The two lines do not depend on each other, so the processor waits for one chain of comparisons while it computes the other.
    """
    start, middle, stop = k.let(start), k.let(middle), k.let(stop)
    i, j = k.var(start, name="i"), k.var(middle, name="j")  # the least element of each run that is not merged yet
    u, v = k.var(middle - 1, name="u"), k.var(stop - 1, name="v")  # and the greatest one
    half = k.let((stop - start) // 2)

    def get(index: Expr) -> Item:
        return tuple(k.load(b, source + index) for b in buffers)

    def put(index: Expr, item: Item) -> None:
        for b, e in zip(buffers, item):
            k.store(b, target + index, e)

    def below(t: Expr) -> None:
        a, b = get(minimum(i.value, middle - 1)), get(minimum(j.value, stop - 1))
        right = k.let((i.value >= middle) | ((j.value < stop) & _before(b, a)))
        put(t, tuple(select(right, y, x) for x, y in zip(a, b)))
        step = k.let(cast(right, int64))
        j.set(j.value + step)
        i.set(i.value + 1 - step)

    def above(t: Expr) -> None:
        a, b = get(maximum(u.value, start)), get(maximum(v.value, middle - 1))
        left = k.let((v.value < middle) | ((u.value >= start) & _before(b, a)))
        put(t, tuple(select(left, x, y) for x, y in zip(a, b)))
        step = k.let(cast(left, int64))
        u.set(u.value - step)
        v.set(v.value - 1 + step)

    with k.loop(0, half, name="t") as t:
        below(start + t)
        above(stop - 1 - t)
    with k.if_((stop - start) % 2 > 0):
        below(start + half)


# ---- the first k -----------------------------------------------------------------------------------------------------


def _launch_select(lo: Lowering, keys: Array, result: Array, rows: Expr, n: Expr, first: int, name: str) -> None:
    """Launches result = the `first` least packed keys of each row, in order. They are a short sorted list in scratch memory;
    few elements of a long row get into it."""
    k = lo.kernel(name)
    x, y = k.read(keys), k.write(result)
    best = k.scratch("best", int64, max(first, 1))
    per = maximum(const(1), 4096 // maximum(const(1), n))
    piece = k.split(cdiv(rows, per))

    def insert(item: Expr) -> None:
        """Inserts a key in the sorted list: each place keeps the lesser of its key and the moving one, and passes the greater
        on to the next place. The last greater one is dropped."""
        moving = k.var(item, name="moving")
        with k.loop(0, first, name="t") as t:
            old = k.load(best, t)
            kept = k.let(minimum(old, moving.value))
            moving.set(maximum(old, moving.value))
            k.store(best, t, kept)

    with k.loop(piece * per, minimum(piece * per + per, rows), name="row") as r:
        with k.loop(0, first, name="t") as t:
            k.store(best, t, const(GREATEST_PACKED))
        worst = k.var(const(GREATEST_PACKED), name="worst")
        for i, count in k.vector_loop(0, n):
            v = k.load(x, r * n + i, LANES, count, GREATEST_PACKED)
            with k.if_(fold("min", v) < worst.value):
                with k.loop(0, LANES if count is None else count, name="l") as l:
                    item = k.load(x, r * n + i + l)
                    with k.if_(item < worst.value):
                        insert(item)
                        worst.set(k.load(best, first - 1))
        with k.loop(0, first, name="t") as t:
            k.store(y, r * first + t, k.load(best, t))
    lo.launch(k)
