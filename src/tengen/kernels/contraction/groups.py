"""Groups of terms, the operands of `dot2`, `dot2i`, `dot4i` and `dot4u`: how a contraction packs them.

    group[k // n] = (element[k], ..., element[k + n - 1])      # for k in steps of n, counted from the beginning of a chunk

The last elements of a chunk that are no whole group have zeros behind them, in both operands; of integers, where the other
operand's zeros are enough, anything. Where a copy runs along k, elements are stored one after another as they are stored, and
read as groups (`pad_rows` adds the zeros); where it runs across k, `by_position` joins the elements of a group.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from operator import or_
from typing import Union

from tengen.base.dtype import uint32
from tengen.kernels.contraction.problem import Problem
from tengen.kernels.contraction.tile import Tile
from tengen.kernels.lowering import KernelBuilder
from tengen.loops.dots import pair
from tengen.loops.lang import LANES, Expr, Index, as_int, bitcast, cast, const, equal, maximum, minimum, ramp, select
from tengen.loops.statements import Buffer

Range = tuple[Expr, Expr]
Put = Callable[[Index, Index, Union[Expr, None]], None]  # (where to, where from, how many lanes to load; None: all)
SIXTEEN = const(16, uint32)


def widened(x: Expr) -> Expr:
    """An element as the first of a group whose others are zero."""
    return cast(bitcast(x, f"uint{x.dtype.bits}"), uint32)


def by_position(
    k: KernelBuilder, p: Problem, span: Range, origin: Expr, source: tuple[Buffer, Index, Index], dst: Buffer,
    visit: Callable[[Expr, Expr, Put], None], partly: bool = False,
) -> None:  # fmt: skip
    """Visits the positions of k in `span`, in order: (position, row, put). Rows are counted from `origin`; `put` copies LANES
    elements of the row's positions, which may be several.

    Args:
        source: a buffer, and how far positions and lanes are apart in it. partly: of rows of `a`: store no more lanes than are
            loaded.
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
    rounded = lambda at, count: p.stored(load(at, count), "a" if partly else "b")
    if p.format.group > 2:
        return _by_group(k, p, span, origin, step, rounded, putting, dst, visit)
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


def _by_group(
    k: KernelBuilder, p: Problem, span: Range, origin: Expr, step: Index, rounded: Callable[[Index, Expr | None], Expr],
    putting: Callable[[Callable], Put], dst: Buffer, visit: Callable[[Expr, Expr, Put], None],
) -> None:  # fmt: skip
    """`by_position` for groups of more than two: whole ones at once, and the parts of others, at the ends of `span`, one by one."""
    (first, last), group, bits = span, p.format.group, p.format.storage.bits

    def parts(start: Expr, stop: Expr) -> None:
        with k.loop(start, stop, name="part") as i:
            part = k.let((i - origin) % group)
            put = putting(lambda to, at, count: joined(k, p, dst, to, rounded(at, count), part))
            visit(i, k.let((i - origin) // group), put)

    def whole(to: Index, at: Index, count: Expr | None) -> Expr:
        return reduce(or_, (widened(rounded(at + j * step, count)) << const(j * bits, uint32) for j in range(group)))

    begin = k.let(minimum(last, first + (group - (first - origin) % group) % group))
    end = k.let(begin + (last - begin) // group * group)
    parts(first, begin)
    with k.loop(begin, end, group) as i:
        visit(i, k.let((i - origin) // group), putting(whole))
    parts(end, last)


def joined(k: KernelBuilder, p: Problem, dst: Buffer, at: Expr, x: Expr, part: Expr) -> Expr:
    """`x` as the elements number `part` of groups, with those before it, which are in `dst`."""
    x = k.let(widened(x) << cast(part * x.dtype.bits, uint32))
    return select(equal(part, 0), x, k.load(dst, at, LANES) | x)


def pad_rows(k: KernelBuilder, p: Problem, t: Tile, ms: Range, ks: Range, dst: Buffer) -> None:
    """Zeros past the last position of rows that were copied along k, where there is an odd number of positions."""
    if not p.whole_groups and p.compute.is_float:
        with k.if_(equal((ks[1] - ks[0]) % 2, 1)), k.loop(*ms, name="row") as r:
            k.store(dst, (r - ms[0]) * t.pitch + (ks[1] - ks[0]), const(0, p.format.storage))
