"""Pairs of bfloat16 or int16, the operands of `dot2` and `dot2i`: how a contraction packs them.

    pair[k // 2] = (element[k], element[k + 1])      # for k even, counted from the beginning of a chunk

The last element of an odd chunk is paired with zero, in both operands. Where a copy runs along k, elements are stored one after
another as they are stored, and read as pairs (`pad_rows` adds the zero); where it runs across k, `by_position` joins the two elements.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Union

from tengen.base.dtype import uint32
from tengen.kernels.contraction.problem import Problem
from tengen.kernels.contraction.tile import Tile
from tengen.kernels.lowering import KernelBuilder
from tengen.loops.lang import LANES, Expr, Index, as_int, bitcast, cast, const, equal, maximum, pair, ramp, select
from tengen.loops.statements import Buffer

Range = tuple[Expr, Expr]
Put = Callable[[Index, Index, Union[Expr, None]], None]  # (where to, where from, how many lanes to load; None: all)
SIXTEEN = const(16, uint32)


def widened(x: Expr) -> Expr:
    """An element, a bfloat16 or int16, as the first of a pair whose second is zero."""
    return cast(bitcast(x, "uint16"), uint32)


def by_position(
    k: KernelBuilder, p: Problem, span: Range, origin: Expr, source: tuple[Buffer, Index, Index], dst: Buffer,
    visit: Callable[[Expr, Expr, Put], None], partly: bool = False,
) -> None:  # fmt: skip
    """Visits the positions of k in `span`, in order: (position, row, put). Rows are counted from `origin`; `put` copies LANES
    elements of the row's positions, which may be two.

    Args:
        source: a buffer, and how far positions and lanes are apart in it. partly: store no more lanes than are loaded.
    """
    (first, last), (src, step, along) = span, source

    def load(at: Index, count: Expr | None) -> Expr:
        return k.load(src, at if as_int(along) == 1 else ramp() * along + at, LANES, count)

    def putting(value: Callable[[Index, Index, Expr | None], Expr]) -> Put:
        return lambda to, at, count: k.store(dst, to, value(to, at, count), count if partly else None)

    if p.format.group == 1:
        with k.loop(first, last) as i:
            visit(i, i - origin, putting(lambda to, at, count: cast(load(at, count), p.compute)))
        return
    rounded = lambda at, count: cast(load(at, count), p.format.storage)
    odd = k.let((first - origin) % 2)
    with k.if_(equal(odd, 1) if as_int(odd) == 0 else equal(odd, 1) & (first < last)):
        second = lambda to, at, count: k.load(dst, to, LANES) | widened(rounded(at, count)) << SIXTEEN
        visit(first, k.let((first - origin) // 2), putting(second))
    begin = k.let(first + odd)
    whole = k.let(begin + maximum(last - begin, 0) // 2 * 2)
    with k.loop(begin, whole, 2) as i:
        visit(i, k.let((i - origin) // 2), putting(lambda to, at, count: pair(rounded(at, count), rounded(at + step, count))))
    with k.if_(whole < last):
        visit(whole, k.let((whole - origin) // 2), putting(lambda to, at, count: widened(rounded(at, count))))


def joined(k: KernelBuilder, dst: Buffer, at: Expr, x: Expr, odd: Expr) -> Expr:
    """`x` as the first elements of pairs or, where `odd`, as the second of those in `dst`."""
    low = k.let(widened(x))
    return select(odd, k.load(dst, at, LANES) | low << SIXTEEN, low)


def pad_rows(k: KernelBuilder, p: Problem, t: Tile, ms: Range, ks: Range, dst: Buffer) -> None:
    """Zeros past the last position of rows that were copied along k, where there is an odd number of positions."""
    if not p.whole_groups:
        with k.if_(equal((ks[1] - ks[0]) % 2, 1)), k.loop(*ms, name="row") as r:
            k.store(dst, (r - ms[0]) * t.pitch + (ks[1] - ks[0]), const(0, p.format.storage))
