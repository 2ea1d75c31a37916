"""The order in which a reduction combines its elements, which no strategy can change, and what it combines them with.

The reduced axes, flattened in logical order, are cut into chunks of 4096 (`numerics.CHUNK_ELEMENTS`) elements. For each result:

    total = neutral element
    for chunk of the elements:
        lane[0..15] = neutral element                         # 16 partial results
        for i in the chunk, in order:
            lane[i mod 16] = step(lane[i mod 16], element i)
        total = join(total, tree of the 16 lanes)             # by halves: lane j with lane j + 8, then j + 4, j + 2, j + 1

Lanes that no element falls into keep the neutral element, which changes no bit. A `Fold` says what `step`, `join` and the tree
compute; a `Frame` (`frame.py`) says which axes are reduced, and along which axis vectors run. Two files write this loop nest:
`fold_along_rows.py` has vectors along the reduced axis, so that the 16 lanes are one vector; `columns.py` has vectors across
rows, so that each lane is a vector of its own, one result in each of its elements.

Words: a *row* is all elements that are reduced to one result; its *position* is the element's number in the flattened reduced
axes. Read next: `frame.py`, `fold_along_rows.py`, `columns.py`, then `reduce.py` (the kernels).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from tengen.base.dtype import DType, bool_
from tengen.base.record import record
from tengen.kernels.lowering import KernelBuilder
from tengen.kernels.source import Source, leaves_of
from tengen.loops.lang import LANES, Expr, const, fold, maximum, minimum, splat

UNROLLED_ELEMENTS = 64  # elements of a row, at most, that are folded in registers, written out, with vectors across rows
UNROLLED_COSTLY_ELEMENTS = 6  # the same where an element takes much code: a gather, or a mathematical function
LANE_UNROLLED_ELEMENTS = 4  # elements of a lane that are folded at a time

State = tuple[Expr, ...]


@record(frozen=True)
class Fold:
    """What a reduction combines its elements with. Its *state* is a tuple of values: one number for a sum, a value and its
    position for an argmax.

    Attributes:
        start: the state before the first element, as literals that change no bit of what they are combined with.
        step: (state, element, position of the element) -> the state after that element.
        first: (element, its position) -> the state of that element alone.
        join: (state of earlier elements, state of later ones) -> the state of both.
        across: a state of 16 lanes -> the state of one lane, by the fixed tree.
        ordered: whether element i must be combined in lane i mod 16. If not, any lane gives the same bits.
        empty: the result where there are no elements, if that is not `start`.
        regroups: whether `join` is associative to the bit, so that neighbouring elements of a lane may be combined with each
            other before they are combined with the state.
    """

    start: State
    step: Callable[[State, Expr, Expr], State]
    first: Callable[[Expr, Expr], State]
    join: Callable[[State, State], State]
    across: Callable[[State], State]
    ordered: bool = True
    empty: State | None = None
    regroups: bool = False

    def fold(self, state: State, elements: Sequence, positions: Sequence[Expr]) -> State:
        """The state after several elements of each lane, in order. Where the fold `regroups`, the elements are combined with
        each other first, as a tree: one step after another would be a chain in which each waits for the result before."""
        if not self.regroups or len(elements) == 1:
            for x, position in zip(elements, positions):
                state = self.step(state, x, position)
            return state
        parts = [self.first(x, position) for x, position in zip(elements, positions)]
        while len(parts) > 1:
            parts = [self.join(*parts[i : i + 2]) if i + 1 < len(parts) else parts[i] for i in range(0, len(parts), 2)]
        return self.join(state, parts[0])


_JOIN: dict[str, Callable[[Expr, Expr], Expr]] = {
    "add": lambda a, b: a + b,
    "mul": lambda a, b: a * b,
    "min": minimum,
    "max": maximum,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
}


def identity(combine: str, dt: DType) -> Expr:
    """The neutral element of an operation, which changes no bit of what it is combined with: -0.0 for sums (x + -0.0 has the
    bits of x for every x, x + +0.0 turns -0.0 into +0.0), 1 for products, the infinities or the extreme integers for minimum
    and maximum, all bits set for "and", none for "or"."""
    if combine == "add":
        return const(-0.0 if dt.is_float else 0, dt)
    if combine == "mul":
        return const(1, dt)
    if combine in ("and", "or"):
        return const(False if combine == "or" else (True if dt is bool_ else -1), dt)
    return const(lowest(dt) if combine == "max" else highest(dt), dt)


def operation(combine: str) -> Callable[[Expr, Expr], Expr]:
    """The function of two operands that `combine` names."""
    return _JOIN[combine]


def lowest(dt: DType):
    """The least value of a dtype: -inf, False, or the least integer."""
    return float("-inf") if dt.is_float else False if dt is bool_ else 0 if dt.kind == "u" else -(1 << (dt.bits - 1))


def highest(dt: DType):
    """The greatest value of a dtype: inf, True, or the greatest integer."""
    return float("inf") if dt.is_float else True if dt is bool_ else (1 << (dt.bits - (dt.kind == "i"))) - 1


def simple_fold(combine: str, dt: DType) -> Fold:
    """The fold of one operation: "add", "mul", "min", "max", "and" or "or" on values of `dt`. A sum of nothing is +0.0."""
    op = _JOIN[combine]
    return Fold(
        (identity(combine, dt),),
        lambda s, x, pos: (op(s[0], x),),
        lambda x, pos: (x,),
        lambda a, b: (op(a[0], b[0]),),
        lambda s: (fold(combine, s[0]),),
        empty=(const(0.0, dt),) if combine == "add" and dt.is_float else None,
        regroups=combine in ("min", "max", "and", "or") or not dt.is_float,
    )


def joint_fold(folds: Sequence[Fold]) -> Fold:
    """Several folds whose state is one number each, as one fold. Its elements are tuples, the values of a `Several`; its state
    has one number for each of the folds."""

    def parts(rule: str, *args) -> State:
        return tuple(x for i, f in enumerate(folds) for x in getattr(f, rule)(*(a[i] for a in args)))

    split = lambda s: [(x,) for x in s]
    return Fold(
        tuple(f.start[0] for f in folds),
        lambda s, x, pos: parts("step", split(s), x, [pos] * len(folds)),
        lambda x, pos: parts("first", x, [pos] * len(folds)),
        lambda a, b: parts("join", split(a), split(b)),
        lambda s: parts("across", split(s)),
        empty=tuple((f.empty or f.start)[0] for f in folds),
    )


class Several(Source):
    """Several sources of one shape as one source whose value is the tuple of theirs. Only a `joint_fold` can take it."""

    def __init__(self, sources: Sequence[Source]):
        self.sources, self.shape, self.dtype = list(sources), sources[0].shape, sources[0].dtype

    def at(self, k, at):
        return tuple(s.at(k, at) for s in self.sources)

    def leaves(self):
        return leaves_of(self.sources)

    def rebind(self, arrays):
        return Several([s.rebind(arrays) for s in self.sources])


def spread(x):
    """A scalar as a vector with that number in all lanes; the same for each member of a tuple. Vectors stay as they are."""
    return tuple(map(splat, x)) if isinstance(x, tuple) else splat(x)


def assign(k: KernelBuilder, variables: Sequence, values: Sequence[Expr]) -> None:
    """Gives the variables their new values. All values are computed before the first variable changes, as they may depend on
    the old ones."""
    values = [k.let(v) for v in values] if len(values) > 1 else values
    for x, v in zip(variables, values):
        x.set(v)


def in_registers(k: KernelBuilder, f: Fold, shape: Sequence[int], element: Callable[[list[int]], Expr]) -> State:
    """The state of a reduction over `shape`, known and short, without a loop: every element is a statement of its own.
    `element` gives the value at coordinates in `shape`. Lanes without elements are left out, which changes no bit."""
    lanes: list[State] = []
    for r, coords in enumerate(itertools.product(*map(range, shape))):
        x, position = element(list(coords)), splat(const(r))
        if r < LANES:
            lanes.append(f.first(x, position))
        else:
            lanes[r % LANES] = f.step(lanes[r % LANES], x, position)
    return tree(k, f, lanes) if lanes else tuple(splat(s) for s in f.start)


def tree(k: KernelBuilder, f: Fold, lanes: list[State]) -> State:
    """The states of up to 16 lanes joined into one, by halves: lane j with lane j + 8, then j + 4, j + 2, j + 1."""
    half = LANES // 2
    while half:
        lanes = [
            tuple(k.let(e) for e in f.join(lanes[i], lanes[i + half])) if i + half < len(lanes) else lanes[i]
            for i in range(min(half, len(lanes)))
        ]
        half //= 2
    return lanes[0]
