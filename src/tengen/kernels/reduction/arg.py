"""Positions of extrema: argmax and argmin, as a fold whose state is (best value so far, its position).

    best, position = worst value of the dtype, NOWHERE
    for i in the row, in any order:
        if element i beats best, or equals it at a smaller i:
            best, position = element i, i
    out[row] = position

The kernel is that of any reduction (`reduce.drive`). The result is defined as the position of the first NaN, or else of the
first of the largest (smallest) elements. It does not depend on the order in which elements are combined.
"""

from __future__ import annotations

from collections.abc import Sequence

from tengen.base.dtype import DType
from tengen.kernels.lowering import Array, Lowering
from tengen.kernels.reduction.folding import Fold, State, highest, lowest
from tengen.kernels.reduction.reduce import drive
from tengen.kernels.source import Source
from tengen.loops.lang import Expr, cast, const, equal, fold, not_equal, select, splat

NOWHERE = (1 << 63) - 1  # the position before any element: larger than that of every element, so that a tie goes to the element


def arg_fold(which: str, dt: DType) -> Fold:
    """The fold whose state is (best value, its position). `which` is "max" or "min"."""
    worst = lowest(dt) if which == "max" else highest(dt)

    def beats(a: Expr, b: Expr) -> Expr:
        """Whether a is better than b. A NaN beats every number and no NaN."""
        wins = a > b if which == "max" else a < b
        return wins | (not_equal(a, a) & equal(b, b)) if dt.is_float else wins

    def pick(take: Expr, a: State, b: State) -> State:
        """b where `take`, else a."""
        return tuple(select(take, y, x) for x, y in zip(a, b))

    def join(a: State, b: State) -> State:
        """The better of two states; of equally good ones that with the smaller position."""
        tie = ~beats(a[0], b[0]) & (b[1] < a[1])
        return pick(beats(b[0], a[0]) | tie, a, b)

    def across(s: State) -> State:
        """The best value of the 16 lanes, and the smallest position among the lanes that hold it."""
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
        position = select(equal(state[1], NOWHERE), const(0), state[1])  # no element beat the worst value: all equal it
        return [cast(position, out.dtype)]

    drive(lo, arg_fold(which, source.dtype), source, [out], axes, value, True, name or f"arg{which}")
