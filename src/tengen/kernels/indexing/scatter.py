"""Scatters: stores at computed coordinates. They are the gradients of gathering, advanced indexing and embedding.

    out = base                                             # a pointwise kernel, unless they are the same memory
    for each piece = some rows, or some blocks of OWNED_ELEMENTS neighbouring rows:
        for i in logical order of the indices:
            for row of the piece:                          # a vector of rows where out is dense across them
                j = index[row, i], brought into range
                out[row, j] = op(out[row, j], updates[row, i])

A *row* is everything at one coordinate of the axes that are not indexed. One piece has all of a row, and goes through its
updates in logical order: so the result does not depend on the number of threads, and nothing is atomic. Whether indices are in
range is checked apart (see `gather.check_index`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tengen.base.dtype import int64
from tengen.kernels.axes import memory_order, store_at, unflatten
from tengen.kernels.indexing.gather import in_range, place
from tengen.kernels.lowering import Array, KernelBuilder, Lowering, product
from tengen.kernels.pointwise import PIECE_ELEMENTS, pointwise
from tengen.kernels.reduction.folding import operation
from tengen.kernels.source import At, Elementwise, Leaf, Literal, Source, broadcast
from tengen.loops.builder import as_expr
from tengen.loops.lang import Expr, Index, as_int, cast, cdiv, const, maximum, minimum, splat

OWNED_ELEMENTS = 64  # elements side by side that are updated together

Mode = str  # "set" (the last update stays), "add", "mul", "max", "min"


def scatter(
    lo: Lowering,
    base: Source | None,
    index: Source,
    updates: Source,
    out: Array,
    axis: int,
    mode: Mode = "add",
    name: str = "scatter",
) -> None:
    """Launches out = base; then for i in order along `axis`: out[..., index[..., i, ...], ...] op= updates[..., i, ...].

    Args:
        base: of out's shape; None: zeros.
        index: integers; negative ones count from the end. Its extents on other axes than `axis` are at most out's.
        updates: broadcast to index's shape.
        mode: how an element is updated, see `Mode`. "add" into 16-bit floats adds in float32, and rounds once at the end.
    """
    updates = broadcast(updates, index.shape)
    rest = [a for a in memory_order(out) if a != axis]
    shape = [index.shape[a] for a in rest]

    def at(row: Sequence[Index], i: Expr, vec: int | None, count: Expr | None) -> At:
        """The place with coordinate i on `axis`, and `row` on the other axes; vec: a vector along axis vec of `row`."""
        coords: list[Index] = [i] * out.ndim
        for a, c in zip(rest, row):
            coords[a] = c
        return place(coords, None if vec is None else rest[vec], count)

    def step(k: KernelBuilder, target: Array, row: Sequence[Index], i: Expr, vec: int | None, count: Expr | None) -> None:
        here = at(row, i, vec, count)
        to = k.let(in_range(cast(index.at(k, here), int64), out.shape[axis]))
        _update(k, target, at(row, to, vec, count), updates.at(k, here), mode)

    _rows(lo, base, out, shape, rest, as_expr(index.shape[axis]), step, mode, name)


def index_put(
    lo: Lowering,
    base: Source | None,
    indices: dict[int, Source],
    position: int,
    updates: Source,
    out: Array,
    mode: Mode = "add",
    name: str = "index_put",
) -> None:
    """Launches out = base; then out is updated by `updates` at the elements that `Gather(out, indices, position)` would read,
    in logical order of the indices. Arguments as in `scatter`; `updates` is broadcast to the shape of that gather."""
    b = list(next(iter(indices.values())).shape)
    rest = [a for a in range(out.ndim) if a not in indices]
    n, p = len(b), position
    updates = broadcast(updates, [*(out.shape[a] for a in rest[:p]), *b, *(out.shape[a] for a in rest[p:])])
    ordered = [a for a in memory_order(out) if a not in indices]

    def step(k: KernelBuilder, target: Array, row: Sequence[Index], i: Expr, vec: int | None, count: Expr | None) -> None:
        chosen = unflatten(k, i, b)
        index_at = place(chosen, None, None)
        coords: list[Index] = [0] * out.ndim
        for a, s in indices.items():
            coords[a] = k.let(in_range(cast(s.at(k, index_at), int64), out.shape[a]))
        for a, c in zip(ordered, row):
            coords[a] = c
        kept = [coords[a] for a in rest]
        axis = None if vec is None else ordered[vec]
        from_axis = None if axis is None else rest.index(axis) + (0 if rest.index(axis) < p else n)
        value = updates.at(k, place([*kept[:p], *chosen, *kept[p:]], from_axis, count))
        _update(k, target, place(coords, axis, count), value, mode)

    _rows(lo, base, out, [out.shape[a] for a in ordered], ordered, as_expr(product(b)), step, mode, name)


def _update(k: KernelBuilder, target: Array, at: At, value: Expr, mode: Mode) -> None:
    """target[at] = op(target[at], value), or value alone for "set"."""
    value = cast(splat(value) if at.lanes > 1 else value, target.dtype)
    if mode != "set":
        k.write(target)  # declared as an output first: it is read, too
        value = operation(mode)(at.load(k, target), value)
    store_vector(k, target, at, value)


def store_vector(k: KernelBuilder, a: Array, at: At, value: Expr) -> None:
    """Stores `value` at `at`, where coordinates may be vectors (a scatter)."""
    index = a.index(at.coords)
    if isinstance(index, Expr) and index.lanes > 1 and at.vec is not None:
        coords = [at.coord(i) for i in range(len(at.coords))]
        at = At(tuple(coords), None, at.count)
        index = a.index(coords)
    if isinstance(index, Expr) and index.lanes > 1:
        return k.store(k.write(a), index, splat(value), at.count)
    store_at(k, a, at, value)


def _rows(
    lo: Lowering,
    base: Source | None,
    out: Array,
    shape: Sequence[Index],
    axes: Sequence[int],
    n: Expr,
    step: Callable,
    mode: Mode,
    name: str,
) -> None:
    """Launches the kernels of a scatter: the base, n updates of each row, and for 16-bit floats the rounding of the result.

    Args:
        shape: extents of the rows' axes, which are the axes `axes` of out.
        step: (kernel, target, row, i, axis of the vector in `row` or None, count) writes update i of a row, or of 16 rows.
    """
    target = out
    if mode != "set" and out.dtype.compute is not out.dtype:
        order = memory_order(out)
        target = lo.temp(out.dtype.compute, out.shape, order)
    _fill(lo, base, target, name)
    if all(as_int(d) != 0 for d in [*out.shape, n]):
        _walk(lo, target, shape, axes, n, step, name)
    if target is not out:
        pointwise(lo, [_as(Leaf(target), out)], [out], f"{name}_round")


def _as(s: Source, out: Array) -> Source:
    return s if s.dtype is out.dtype else Elementwise(lambda v: cast(v, out.dtype), [s], s.shape, out.dtype)


def _fill(lo: Lowering, base: Source | None, target: Array, name: str) -> None:
    """Launches target = base, unless they are the same memory already."""
    if isinstance(base, Leaf) and base.array == target:
        return
    start = broadcast(base if base is not None else Literal(0, target.dtype), target.shape)
    pointwise(lo, [_as(start, target)], [target], f"{name}_base")


def _walk(lo: Lowering, target: Array, shape: Sequence[Index], axes: Sequence[int], n: Expr, step: Callable, name: str) -> None:
    """Launches the updates. Vectors run across rows where the target is dense along the last of the rows' axes."""
    k = lo.kernel(name)
    across = bool(axes) and as_int(target.strides[axes[-1]]) == 1 and as_int(shape[-1]) != 1
    if not across:
        rows = as_expr(product(shape))
        per = maximum(const(1), PIECE_ELEMENTS // maximum(const(1), n))
        piece = k.split(cdiv(rows, per))
        with k.loop(piece * per, minimum(piece * per + per, rows), name="row") as r:
            row = unflatten(k, r, shape)
            with k.loop(0, n) as i:
                step(k, target, row, i, None, None)
        return lo.launch(k)
    columns = as_expr(shape[-1])
    blocks = as_expr(cdiv(columns, OWNED_ELEMENTS))
    every = as_expr(product(shape[:-1])) * blocks
    per = maximum(const(1), PIECE_ELEMENTS // maximum(const(1), n * OWNED_ELEMENTS))
    piece = k.split(cdiv(every, per))
    with k.loop(piece * per, minimum(piece * per + per, every), name="block") as block:
        row = unflatten(k, k.let(block // blocks), shape[:-1])
        start = k.let(block % blocks * OWNED_ELEMENTS)
        with k.loop(0, n) as i:
            for j, count in k.vector_loop(start, minimum(columns, start + OWNED_ELEMENTS), "j"):
                step(k, target, (*row, j), i, len(axes) - 1, count)
    lo.launch(k)
