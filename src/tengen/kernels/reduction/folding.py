"""The engine of reductions: how many elements become one, in an order that no strategy can change.

The reduced axes, flattened in logical order, are cut into chunks of 4096 elements (`numerics.CHUNK_ELEMENTS`):

    for chunk:
        lane[i mod 16] = step(lane[i mod 16], element i)      # for every element of the chunk, in order; 16 virtual lanes
        total = join(total, tree of the 16 lanes)             # by halves: lane i with i + 8, then i + 4, ...
    result = total

Lanes without an element hold the neutral element, which changes no bit. In: a `Fold` (what is combined) and a `Frame` (over
which axes). Out: code inside a kernel. `fold_along_rows.py` has vectors along the row, where the 16 lanes are one vector.
`Columns`, here,
has vectors across rows: LANES neighbouring rows at a time, and of each the 16 lanes in scratch memory.

Read next: `fold_along_rows.py`, `reduce.py` and `rows.py` (kernels made of it), `arg.py` (a fold that remembers positions).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tengen.base.dtype import DType, bool_
from tengen.kernels import numerics
from tengen.kernels.axes import memory_order, merge_axes, unflatten
from tengen.kernels.lowering import Array, KernelBuilder, product
from tengen.kernels.machine import ENOUGH_PIECES
from tengen.kernels.source import At, Elementwise, Leaf, Literal, Source, children, costs
from tengen.loops.builder import as_expr
from tengen.loops.lang import (
    LANES,
    Buffer,
    Expr,
    Index,
    as_int,
    cdiv,
    const,
    equal,
    fold,
    maximum,
    minimum,
    ramp,
    select,
    splat,
)

UNROLLED_ELEMENTS = 64  # elements of a row, at most, that are folded in registers, written out, with vectors across rows
UNROLLED_COSTLY_ELEMENTS = 6  # the same where an element takes much code: a gather, or a mathematical function

PAGE_BYTES = 4096  # bytes of a page of memory
PREFETCHED_ELEMENTS = 3  # how many elements of a row ahead are prefetched, where each lies on a page of its own
LANE_UNROLLED_ELEMENTS = 4  # elements of a lane that are folded at a time
MOST_FLAT_COLUMNS = 24  # columns, at most, of a dense table that is folded as whole vectors: so many accumulators fit registers

State = tuple[Expr, ...]


@dataclass(frozen=True)
class Fold:
    """What a reduction carries from element to element, and how.

    Attributes:
        start: the neutral state, as literals. step: (state, element, its flat position) -> state.
        first: (element, position) -> the state of one element. join: two states, the earlier first -> one.
        across: vector state -> scalar state, by the tree. ordered: whether lanes must hold their own elements (see `rotate`).
        empty: the result of no elements, where it is not `start`. regroups: whether neighbouring elements of a lane may be
            joined before they meet the state, with the same bits.
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
        """The state after some elements of each lane, in order. Where the fold `regroups`, they are joined with each other
        first: a chain of steps would wait for each one's result."""
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
    """The element that changes nothing: -0.0 for sums (x + -0.0 has the bits of x for every x, +0.0 has not), 1, the
    infinities or the last integers, all or no bits."""
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
    """-inf, False, or the least integer."""
    return float("-inf") if dt.is_float else False if dt is bool_ else 0 if dt.kind == "u" else -(1 << (dt.bits - 1))


def highest(dt: DType):
    """inf, True, or the greatest integer."""
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
    """Several folds, each of one number, as one fold whose elements are those of a `Several`."""

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
    """Sources of one shape, asked for together: its value is a tuple."""

    def __init__(self, sources: Sequence[Source]):
        self.sources, self.shape, self.dtype = list(sources), sources[0].shape, sources[0].dtype

    def at(self, k, at):
        return tuple(s.at(k, at) for s in self.sources)

    def leaves(self):
        found = [s.leaves() for s in self.sources]
        return None if None in found else [a for x in found for a in x or ()]

    def rebind(self, arrays):
        return Several([s.rebind(arrays) for s in self.sources])


def spread(x):
    """An element, or a tuple of them, with each scalar in all lanes."""
    return tuple(map(splat, x)) if isinstance(x, tuple) else splat(x)


def both(a: Expr, b: Expr) -> Expr:
    """a and b; a literal where one of them decides."""
    for x, y in ((a, b), (b, a)):
        if x.op == "const":
            return y if x.attr else x
    return a & b


def negate(a: Expr) -> Expr:
    """not a; a literal for a literal."""
    return const(not a.attr, bool_) if a.op == "const" else ~a


@dataclass
class Frame:
    """Sources over one index space, its axes parted into kept and reduced, merged where every array allows.

    Attributes:
        sources: over the new axes. kept: their axes that stay, in the order of walking rows. reduced: in logical order.
        outs: outputs over the kept axes, in the original order where `merged` is false; `out_axes[i]` is the axis of an output
            that kept axis i is. across: whether vectors run along the last kept axis (across rows) rather than the last reduced
            one. gathers: whether they do although neighbouring rows are not dense there.
    """

    sources: list[Source]
    kept: list[int]
    reduced: list[int]
    extents: list[Index]
    outs: list[Array]
    out_axes: list[int]
    across: bool = False
    gathers: bool = False
    wholes: list[Array] = field(default_factory=list)

    @property
    def rows(self) -> list[Index]:
        """Extents of the kept axes."""
        return [self.extents[a] for a in self.kept]

    @property
    def inner(self) -> list[Index]:
        """Extents of the reduced axes."""
        return [self.extents[a] for a in self.reduced]

    @property
    def count(self) -> Expr:
        """The number of reduced elements."""
        return as_expr(product(self.inner))

    @property
    def chunks(self) -> Expr:
        return as_expr(cdiv(self.count, numerics.CHUNK_ELEMENTS))

    def at(self, row: Sequence[Index], position: Sequence[Index], vec: bool = True, count: Expr | None = None) -> At:
        """The place at these kept and reduced coordinates; `vec`: a vector in the frame's direction."""
        coords: list[Index] = [0] * len(self.extents)
        for axis, c in zip([*self.kept, *self.reduced], [*row, *position], strict=True):
            coords[axis] = c
        axis = self.kept[-1] if self.across else self.reduced[-1]
        return At(tuple(coords), axis if vec else None, count)

    def out_at(self, row: Sequence[Index], vec: bool = False, count: Expr | None = None) -> At:
        """The place in the outputs of these kept coordinates; `vec`: a vector along the last kept axis."""
        coords: list[Index] = [0] * len(row)
        for axis, c in zip(self.out_axes, row, strict=True):
            coords[axis] = c
        return At(tuple(coords), self.out_axes[-1] if vec else None, count)


def make_frame(
    sources: Sequence[Source], outs: Sequence[Array], axes: Sequence[int], wholes: Sequence[Array] = (), merge: bool = True
) -> Frame:
    """Parts the axes of `sources` (all of one shape) into `axes` and the others, orders and merges them, and picks a direction.

    `outs` have the other axes, `wholes` have all of them. `merge=False` keeps every kept axis as it is.
    """
    shape = list(max((s.shape for s in sources), key=len))
    reduced = sorted(axes)
    kept = [a for a in range(len(shape)) if a not in reduced]
    leaves: list[Array] | None = []
    for s in sources:
        inner = s.leaves()
        leaves = None if inner is None or leaves is None else leaves + inner
    arrays = [*(leaves or []), *wholes]
    full = [a for a in arrays if a.ndim == len(shape)]
    position = {a: i for i, a in enumerate(kept)}
    if full:
        kept = [kept[i] for i in memory_order(full[0].permute(kept))] if kept else []
    out_axes = [position[a] for a in kept]
    if leaves is None:
        frame = Frame(list(sources), kept, reduced, shape, list(outs), out_axes, wholes=list(wholes))
    else:
        frame = _merge(sources, outs, wholes, leaves, shape, kept, reduced, out_axes, merge)
        full = [a for a in frame.wholes] + [a for s in frame.sources for a in s.leaves() or []]
    _direct(frame, full)
    return frame


def _merge(sources, outs, wholes, leaves, shape, kept, reduced, out_axes, merge) -> Frame:
    arrays = [*leaves, *wholes]
    kept_groups = [[i] for i in range(len(kept))]
    if merge:
        alongside = [a.permute(kept) for a in arrays] + [o.permute(out_axes) for o in outs]
        kept_groups = merge_axes([shape[a] for a in kept], alongside)
    inner_groups = merge_axes([shape[a] for a in reduced], [a.permute(reduced) for a in arrays])
    inner_groups = inner_groups or [[len(reduced) - 1]]
    groups = [[kept[i] for i in g] for g in kept_groups] + [[reduced[i] for i in g] for g in inner_groups]
    extents = tuple(product([shape[i] for i in g]) for g in groups)
    n = len(kept_groups)

    def regroup(a: Array) -> Array:
        return Array(a.id, a.dtype, extents, tuple(a.strides[g[-1]] for g in groups), a.offset)

    def regroup_out(o: Array) -> Array:
        return Array(o.id, o.dtype, extents[:n], tuple(o.strides[out_axes[g[-1]]] for g in kept_groups), o.offset)

    table: dict = {a: regroup(a) for a in leaves}
    done = [s.rebind(table) for s in sources]
    frame = Frame(done, list(range(n)), list(range(n, len(groups))), list(extents), list(outs), out_axes)
    frame.wholes = [regroup(a) for a in wholes]
    if merge:
        frame.outs, frame.out_axes = [regroup_out(o) for o in outs], list(range(n))
    return frame


def _direct(frame: Frame, arrays: Sequence[Array]) -> None:
    """Picks the vector's direction and moves the kept axis that it runs along, if it does, to the end."""
    if not frame.kept:
        return
    last = frame.reduced[-1]
    unit = lambda axis: sum(as_int(a.strides[axis]) == 1 and as_int(a.shape[axis]) != 1 for a in arrays)
    best = max(frame.kept, key=unit)
    wide = [(a, o) for a, o in zip(frame.kept, frame.out_axes) if as_int(frame.extents[a]) != 1]
    stored = [a for a, o in wide if any(as_int(x.strides[o]) == 1 for x in frame.outs)]
    short = (as_int(frame.count) or numerics.CHUNK_ELEMENTS) <= UNROLLED_ELEMENTS
    short = short and (as_int(frame.extents[last]) or LANES) < LANES
    short = short and bool(stored) and not frame.wholes
    if not arrays:  # a source that does not say what it reads: vectors along its last axis
        best = len(frame.extents) - 1
    if short and (not arrays or unit(best) == 0):
        best, frame.gathers = stored[0], True  # rows that do not fill a vector: across them, though they are gathered
    elif best not in frame.kept or (arrays and unit(best) <= unit(last)):
        return
    if (as_int(frame.extents[best]) or LANES) < 6 and (as_int(frame.count) or numerics.CHUNK_ELEMENTS) > LANES:
        return  # most lanes would idle
    i = frame.kept.index(best)
    frame.kept.append(frame.kept.pop(i))
    frame.out_axes.append(frame.out_axes.pop(i))
    frame.across = True


def settled(f: Fold, frame: Frame, state: State) -> State:
    """The final state: as it is, or `empty` where there was nothing to fold."""
    if f.empty is None or as_int(frame.count):
        return state
    return tuple(select(equal(frame.count, 0), e, s) for e, s in zip(f.empty, state))


def assign(k: KernelBuilder, variables: Sequence, values: Sequence[Expr]) -> None:
    """Gives all variables their new values at once."""
    values = [k.let(v) for v in values] if len(values) > 1 else values
    for x, v in zip(variables, values):
        x.set(v)


# ---- the vector across rows ------------------------------------------------------------------------------------------


class Columns:
    """Folds with vectors across rows: a block of up to `width` rows that are neighbours along the frame's last kept axis.

        for chunk:
            for element r of the chunk:
                for vector j of rows:
                    lanes[r mod 16][j] = step(lanes[r mod 16][j], source[r, rows j])
            total[j] = join(total[j], tree of lanes[0..15][j])

    `lanes[l * width + j]` is lane l of row j, and `total[j]` what the chunks so far gave: scratch memory that stays in L1.
    Short rows are folded in registers instead (`unrolled`), and a dense table of few columns as whole vectors (`flat`).
    """

    def __init__(self, k: KernelBuilder, f: Fold, frame: Frame, width: int, source: Source, lanes: list[Buffer] | None = None):
        self.k, self.f, self.frame, self.width = k, f, frame, width
        self.total = [k.scratch("total", s.dtype, -(-width // LANES) * LANES) for s in f.start]
        self.flat = flat_source(f, frame, source) if lanes is None and width % LANES else None  # width: the very columns
        count, dear = as_int(frame.count), costs(source)
        self.several = not frame.gathers and (count or numerics.CHUNK_ELEMENTS) >= LANE_UNROLLED_ELEMENTS * LANES and not dear
        most = min(numerics.CHUNK_ELEMENTS, UNROLLED_COSTLY_ELEMENTS if frame.gathers or dear else UNROLLED_ELEMENTS)
        self.unrolled = (count or most + 1) <= most
        self.unrolled = self.unrolled and not (self.several and _far_apart(frame, source))
        self.lanes = lanes or ([] if self.unrolled else [k.scratch("lanes", s.dtype, LANES * width + LANES) for s in f.start])

    def run(self, source: Source, row: Sequence[Index], start: Expr, n: Expr, chunks: tuple[Index, Index]) -> None:
        """Leaves in `total` the states of the n rows from `start` on, over these chunks."""
        k = self.k
        if self.unrolled:
            for j, count in k.vector_loop(0, n, "j"):
                self._put(self.total, j, self._registers(source, (*row, start + j), count))
            return
        with k.loop(0, n, LANES, "j") as j:
            self._put(self.total, j, tuple(splat(s) for s in self.f.start))
        with k.loop(*chunks, name="chunk") as c:
            with k.loop(0, LANES, name="lane") as l, k.loop(0, n, LANES, "j") as j:
                self._put(self.lanes, l * self.width + j, tuple(splat(s) for s in self.f.start))
            self._accumulate(source, row, start, n, c)
            with k.loop(0, n, LANES, "j") as j:
                state = self._tree([self._get(self.lanes, j + i * self.width) for i in range(LANES)])
                self._put(self.total, j, self.f.join(self._get(self.total, j), state))

    def _get(self, where: list[Buffer], j: Index) -> State:
        return tuple(self.k.load(b, j, LANES) for b in where)

    def _put(self, where: list[Buffer], j: Index, state: State) -> None:
        state = tuple(self.k.let(splat(e)) for e in state)
        for b, e in zip(where, state):
            self.k.store(b, j, e)

    def get(self, j: Index) -> State:
        """The states of rows j .. j + 15 of the block."""
        return self._get(self.total, j)

    def _accumulate(self, source: Source, row: Sequence[Index], start: Expr, n: Expr, c: Expr) -> None:
        k, frame = self.k, self.frame
        first = k.let(c * numerics.CHUNK_ELEMENTS)
        last = k.let(minimum(frame.count, first + numerics.CHUNK_ELEMENTS))
        run = as_expr(frame.inner[-1])
        if self.flat is not None:
            return self._accumulate_flat(self.flat, first, last)

        far = source.leaves() or () if _far_apart(frame, source) else ()
        prefetched = [
            a for a in dict.fromkeys(far) if a.ndim == len(frame.extents) and as_int(a.strides[frame.reduced[-1]]) != 0
        ]

        def element(coords: Sequence[Index], position: Expr) -> None:
            lane = k.let(position % LANES * self.width)
            for j, count in k.vector_loop(0, n, "j"):
                here = frame.at((*row, start + j), coords, True, count)
                for a in prefetched:
                    k.prefetch(k.read(a), as_expr(a.index(here.coords)) + a.strides[frame.reduced[-1]] * PREFETCHED_ELEMENTS)
                x = spread(source.at(k, here))
                self._put(self.lanes, lane + j, self.f.step(self._get(self.lanes, lane + j), x, splat(position)))

        if len(frame.reduced) == 1:
            if self.several:
                first = self._several(source, row, start, n, first, last)
            with k.loop(first, last, name="r") as r:
                element((r,), r)
            return
        with k.loop(first // run, cdiv(last, run), name="run") as o:
            base = k.let(o * run)
            outer = unflatten(k, o, frame.inner[:-1])
            with k.loop(maximum(first - base, 0), minimum(last - base, run), name="r") as r:
                element((*outer, r), k.let(base + r))

    def _several(self, source: Source, row: Sequence[Index], start: Expr, n: Expr, first: Expr, last: Expr) -> Expr:
        """Folds LANE_UNROLLED_ELEMENTS of each lane at a time, so that the lanes are loaded and stored less often; returns the
        position of the first element that is left. The next elements of all lanes are prefetched meanwhile, in the order of
        memory: the processor's prefetcher does not follow as many streams as are read here."""
        k, frame, step = self.k, self.frame, LANE_UNROLLED_ELEMENTS * LANES
        whole = k.let(first + (last - first) // step * step)
        prefetched = _row_by_row(frame, source)
        with k.loop(first, whole, step, "rows") as r, k.loop(0, LANES, name="lane") as l:
            soon = k.let(r + step + l * LANE_UNROLLED_ELEMENTS)
            for j, count in k.vector_loop(0, n, "j"):
                state = self._get(self.lanes, l * self.width + j)
                places = [r + l + i * LANES for i in range(LANE_UNROLLED_ELEMENTS)]
                for a, i in itertools.product(prefetched, range(LANE_UNROLLED_ELEMENTS)):
                    k.prefetch(k.read(a), a.index(frame.at((*row, start + j), (soon + i,)).coords))
                found = [spread(source.at(k, frame.at((*row, start + j), (p,), True, count))) for p in places]
                self._put(self.lanes, l * self.width + j, self.f.fold(state, found, list(map(splat, places))))
        return whole

    def _accumulate_flat(self, source: Source, first: Expr, last: Expr) -> None:
        """A dense table of few columns: 16 rows of it are `width` whole vectors, in the order in which `lanes` lie."""
        k, width = self.k, self.width
        state = [k.var(self._get(self.lanes, v * LANES)[0], name="lanes") for v in range(width)]

        def block(row: Expr, left: Expr | None) -> None:
            for v, s in enumerate(state):
                at = k.let(row * width + v * LANES)
                count = None if left is None else k.let(minimum(maximum(left - v * LANES, 0), LANES))
                x = splat(source.at(k, At((at,), 0, count)))
                (new,) = self.f.step((s.value,), x, ramp())
                s.set(new if count is None else select(ramp() < splat(count), new, s.value))

        whole = k.let(first + (last - first) // LANES * LANES)
        with k.loop(first, whole, LANES, "r") as r:
            block(r, None)
        with k.if_(whole < last):
            block(whole, k.let((last - whole) * width))
        for v, s in enumerate(state):
            self._put(self.lanes, v * LANES, (s.value,))

    def _registers(self, source: Source, row: Sequence[Index], count: Expr | None) -> State:
        """All of a short reduction, written out."""
        shape = [int(as_int(d)) for d in self.frame.inner]  # type: ignore[arg-type]
        return in_registers(
            self.k, self.f, shape, lambda coords: spread(source.at(self.k, self.frame.at(row, coords, True, count)))
        )

    def _tree(self, lanes: list[State]) -> State:
        return tree(self.k, self.f, lanes)


def _far_apart(frame: Frame, source: Source) -> bool:
    """Whether each element of a row lies on a page of its own, so that the processor's prefetcher does not follow them."""
    steps = [as_int(a.strides[frame.reduced[-1]]) for a in source.leaves() or () if a.ndim == len(frame.extents)]
    return len(frame.reduced) == 1 and any(s is not None and abs(s) * source.dtype.size >= PAGE_BYTES for s in steps)


def _row_by_row(frame: Frame, source: Source) -> list[Array]:
    """The arrays that are dense along the rows' axis, and whose consecutive reduced elements lie less than a page apart:
    further apart, prefetched lines would share a few cache sets, and be evicted before they are used."""
    found = [a for a in dict.fromkeys(source.leaves() or ()) if a.ndim == len(frame.extents)]
    steps = {a: as_int(a.strides[frame.reduced[-1]]) or PAGE_BYTES for a in found if as_int(a.strides[frame.kept[-1]]) == 1}
    return [a for a, step in steps.items() if step * a.dtype.size < PAGE_BYTES]


def in_registers(k: KernelBuilder, f: Fold, shape: Sequence[int], element: Callable[[list[int]], Expr]) -> State:
    """The state of a short reduction over `shape`, written out: what does not exist is left out, which changes no bit.
    `element` gives the value at coordinates."""
    lanes: list[State] = []
    for r, coords in enumerate(itertools.product(*map(range, shape))):
        x, position = element(list(coords)), splat(const(r))
        if r < LANES:
            lanes.append(f.first(x, position))
        else:
            lanes[r % LANES] = f.step(lanes[r % LANES], x, position)
    return tree(k, f, lanes) if lanes else tuple(splat(s) for s in f.start)


def tree(k: KernelBuilder, f: Fold, lanes: list[State]) -> State:
    """The fixed tree over up to LANES states."""
    half = LANES // 2
    while half:
        lanes = [
            tuple(k.let(e) for e in f.join(lanes[i], lanes[i + half])) if i + half < len(lanes) else lanes[i]
            for i in range(min(half, len(lanes)))
        ]
        half //= 2
    return lanes[0]


def pure(s: Source) -> bool:
    """Whether the source is made of arrays, numbers and scalar operations alone."""
    return isinstance(s, (Leaf, Literal, Elementwise)) and all(map(pure, children(s)))


def flat_source(f: Fold, frame: Frame, source: Source) -> Source | None:
    """The source as one flat axis, where it is a dense table of a few columns, known, that do not fill vectors; else None."""
    if len(f.start) != 1 or frame.gathers or len(frame.kept) != 1 or len(frame.reduced) != 1:
        return None
    columns, leaves = as_int(frame.extents[frame.kept[0]]), source.leaves()
    if columns is None or columns > MOST_FLAT_COLUMNS or columns % LANES == 0 or not leaves or not pure(source):
        return None
    flat: dict = {}
    for a in leaves:
        if as_int(a.strides[frame.kept[0]]) != 1 or as_int(a.strides[frame.reduced[0]]) != columns:
            return None
        flat[a] = Array(a.id, a.dtype, (product(a.shape),), (1,), a.offset)
    return source.rebind(flat)


def columns_width(sizes: Sequence[int], extent: Index, arrays: int = 1, chunks: Index = 1) -> int:
    """How many rows a block of `Columns` has: the lanes of all states, of so many bytes each, take 16 KiB, and blocks are about
    equal where the extent is known. Where there are ENOUGH_PIECES chunks to share out, lanes take twice as much: fewer
    blocks read longer runs of memory."""
    lane = 2048 if (as_int(chunks) or 1) >= ENOUGH_PIECES else 1024  # bytes of a lane
    width = max(LANES, lane // (sum(sizes) * arrays) // LANES * LANES)
    known = as_int(extent)
    if known is None:
        return width
    each = cdiv(max(known, 1), cdiv(max(known, 1), width))
    return max(LANES, cdiv(each, LANES) * LANES)
