"""Scans: running sums, products, minima and maxima along an axis.

    for each piece = some rows, or one block of neighbouring rows:       # rows: what lies at one coordinate of the other axes
        state[rows] = neutral element
        for i along the axis, in order:
            state[rows] = op(state[rows], source[rows, i])
            out[rows, i] = state[rows]                                   # exclusive: the state before element i

A scan is sequential along its axis, and its bits are those of this loop. Vectors run across neighbouring rows where arrays are
dense there; else rows are computed one element at a time.
"""

from __future__ import annotations

from collections.abc import Sequence

from tengen.kernels.axes import store_at, unflatten
from tengen.kernels.lowering import Array, Lowering, product
from tengen.kernels.pointwise import PIECE_ELEMENTS
from tengen.kernels.reduction.columns import columns_width
from tengen.kernels.reduction.folding import identity, operation
from tengen.kernels.reduction.frame import make_frame
from tengen.kernels.source import Source
from tengen.loops.builder import as_expr
from tengen.loops.lang import LANES, Expr, Index, cast, cdiv, const, equal, maximum, minimum, select, splat


def scan(
    lo: Lowering,
    combine: str,
    source: Source,
    out: Array,
    axis: int,
    reverse: bool = False,
    exclusive: bool = False,
    name: str = "scan",
) -> None:
    """Launches out[..., i, ...] = source[..., 0, ...] combined with ... source[..., i, ...] along `axis`.

    Args:
        combine: "add", "mul", "min" or "max".
        source: of a dtype that arithmetic is done in (16-bit floats are cast before).
        out: of the source's shape; values are cast to its dtype.
        reverse: whether the scan runs from the last element to the first.
        exclusive: whether out[i] leaves out source[i] itself. The first result is then the neutral element (+0.0 for sums).
    """
    frame = make_frame([source], [], [axis], [out], merge=len(source.shape) > 1)
    op, neutral = operation(combine), identity(combine, source.dtype)
    shown = const(0.0, source.dtype) if combine == "add" and source.dtype.is_float else neutral
    src, dst, n = frame.sources[0], frame.wholes[0], as_expr(frame.inner[-1])
    k = lo.kernel(name)

    def step(row: Sequence[Index], i: Expr, state: Expr, vec: bool, count: Expr | None) -> Expr:
        """Stores the result of step i and returns the new state. `vec`: for 16 rows from `row` on, of which `count` exist."""
        at = frame.at(row, (n - 1 - i if reverse else i,), vec, count)
        x = src.at(k, at)
        new = k.let(op(state, splat(x) if vec else x))
        value = select(equal(i, 0), shown, state) if exclusive else new
        store_at(k, dst, at, cast(splat(value) if vec else value, dst.dtype))
        return new

    if not frame.across:
        rows = as_expr(product(frame.rows))
        per = maximum(const(1), PIECE_ELEMENTS // maximum(const(1), n))
        piece = k.split(cdiv(rows, per))
        first = k.let(piece * per)
        with k.loop(first, minimum(first + per, rows), name="row") as r:
            row = unflatten(k, r, frame.rows)
            state = k.var(neutral, name="state")
            with k.loop(0, n) as i:  # state = op(state, source[row, i]); out[row, i] = state
                state.set(step(row, i, state.value, False, None))
        return lo.launch(k)
    columns = as_expr(frame.rows[-1])
    width = columns_width([source.dtype.size], columns)
    blocks = as_expr(cdiv(columns, width))
    units = as_expr(product(frame.rows[:-1])) * blocks
    states = k.scratch("state", source.dtype, width)
    unit = k.split(units)
    row = unflatten(k, k.let(unit // blocks), frame.rows[:-1])
    start = k.let(unit % blocks * width)
    m = k.let(minimum(columns - start, width))
    with k.loop(0, m, LANES, "j") as j:
        k.store(states, j, splat(neutral))
    with k.loop(0, n) as i:
        for j, count in k.vector_loop(0, m, "j"):  # states[j] = op(states[j], source[rows j, i]); out[rows j, i] = states[j]
            k.store(states, j, step((*row, start + j), i, k.load(states, j, LANES), True, count))
    lo.launch(k)
