"""Positions of extrema: argmax and argmin, as a fold that carries a value and its position.

The result is one number by definition (the first NaN, else the first of the largest elements), so no order matters.
"""

from __future__ import annotations

from collections.abc import Sequence

from tengen.base.dtype import DType
from tengen.kernels.lowering import Array, Lowering
from tengen.kernels.reduction.folding import Fold, State, highest, lowest
from tengen.kernels.reduction.reduce import drive
from tengen.kernels.source import Source
from tengen.loops.lang import Expr, cast, const, equal, fold, not_equal, select, splat

NOWHERE = (1 << 63) - 1  # the position of a state that has met no element better than the worst one there is


def arg_fold(which: str, dt: DType) -> Fold:
    """The fold whose state is (best value, position); `which` is "max" or "min"."""
    worst = lowest(dt) if which == "max" else highest(dt)

    def beats(a: Expr, b: Expr) -> Expr:
        wins = a > b if which == "max" else a < b
        return wins | (not_equal(a, a) & equal(b, b)) if dt.is_float else wins

    def pick(take: Expr, a: State, b: State) -> State:
        return tuple(select(take, y, x) for x, y in zip(a, b))

    def join(a: State, b: State) -> State:
        tie = ~beats(a[0], b[0]) & (b[1] < a[1])
        return pick(beats(b[0], a[0]) | tie, a, b)

    def across(s: State) -> State:
        best = fold(which, s[0])
        hit = equal(s[0], splat(best))
        if dt.is_float:
            hit = hit | (not_equal(s[0], s[0]) & splat(not_equal(best, best)))
        return best, fold("min", select(hit, s[1], splat(const(NOWHERE))))

    return Fold(
        (const(worst, dt), const(NOWHERE)),
        lambda s, x, pos: pick(beats(x, s[0]), s, (x, pos)),
        lambda x, pos: (x, pos),
        join,
        across,
        ordered=False,
    )


def arg_reduce(lo: Lowering, which: str, source: Source, out: Array, axes: Sequence[int], name: str = "") -> None:
    """out = the position, in the flattened `axes`, of the largest ("max") or smallest ("min") element.

    The first of equal elements wins; a NaN wins over all, the first one over later ones. `source` has a dtype that is computed
    in; `out` is of an integer dtype and has the axes of `source` that are not in `axes`.
    """

    def value(k, state, at):
        position = select(equal(state[1], NOWHERE), const(0), state[1])  # nothing beat the worst value: all are equal
        return [cast(position, out.dtype)]

    drive(lo, arg_fold(which, source.dtype), source, [out], axes, value, True, name or f"arg{which}")
