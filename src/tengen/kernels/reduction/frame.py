"""The index space of a reduction: which axes are reduced, in which order the others are walked, where vectors run.

    for row in the kept axes:                      # `Frame.rows`: their extents, outermost in memory first
        for position in the reduced axes:          # `Frame.inner`: their extents, in logical order
            state[row] = step(state[row], source[row, position])

In: sources of one shape, the axes to reduce, the arrays of results. Out: a `Frame`, in which neighbouring axes that every array
walks as one are merged, so that loops are long. Vectors run along the last reduced axis, or across rows (along the last kept
axis), whichever more arrays are dense along. None of this changes the order in which a row's elements are combined.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from tengen.base.record import record
from tengen.kernels import numerics
from tengen.kernels.axes import memory_order, merge_axes
from tengen.kernels.lowering import Array, product
from tengen.kernels.reduction.folding import UNROLLED_ELEMENTS, Fold, State
from tengen.kernels.source import At, Source, leaves_of
from tengen.loops.builder import as_expr
from tengen.loops.lang import LANES, Expr, Index, as_int, cdiv, equal, select

LEAST_COLUMNS = 6  # neighbouring rows, at least, that are worth a vector across them: with fewer, most lanes would idle


@record
class Frame:
    """Sources over one index space whose axes are divided into kept and reduced ones.

    Attributes:
        sources: over the frame's axes, which are the original ones after merging. extents: of these axes.
        kept: the axes that stay, in the order in which rows are walked, outermost first.
        reduced: the axes that are reduced, in logical order.
        outs: the arrays with one element for each row. They have the kept axes alone, in the original order if axes were not
            merged; axis `out_axes[i]` of an output is axis `kept[i]` of the frame.
        wholes: arrays that have all of the frame's axes.
        across: whether vectors run along the last kept axis (across rows). If not, they run along the last reduced axis.
        gathers: whether vectors run across rows although neighbouring rows are not neighbours in memory there.
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
        """The number of elements of a row."""
        return as_expr(product(self.inner))

    @property
    def chunks(self) -> Expr:
        """The number of chunks of a row."""
        return as_expr(cdiv(self.count, numerics.CHUNK_ELEMENTS))

    def at(self, row: Sequence[Index], position: Sequence[Index], vec: bool = True, count: Expr | None = None) -> At:
        """The place in the sources with these coordinates on the kept and on the reduced axes. `vec`: a vector in the frame's
        direction, of which `count` lanes exist."""
        coords: list[Index] = [0] * len(self.extents)
        for axis, c in zip([*self.kept, *self.reduced], [*row, *position], strict=True):
            coords[axis] = c
        axis = self.kept[-1] if self.across else self.reduced[-1]
        return At(tuple(coords), axis if vec else None, count)

    def out_at(self, row: Sequence[Index], vec: bool = False, count: Expr | None = None) -> At:
        """The place in the outputs with these coordinates on the kept axes. `vec`: a vector along the last kept axis."""
        coords: list[Index] = [0] * len(row)
        for axis, c in zip(self.out_axes, row, strict=True):
            coords[axis] = c
        return At(tuple(coords), self.out_axes[-1] if vec else None, count)


def make_frame(
    sources: Sequence[Source], outs: Sequence[Array], axes: Sequence[int], wholes: Sequence[Array] = (), merge: bool = True,
    across: int | None = None,
) -> Frame:  # fmt: skip
    """The frame of a reduction of `sources` (all of one shape) along `axes`.

    Args:
        outs: arrays with the other axes. wholes: arrays with all axes.
        merge: whether kept axes may be merged; false where whoever uses the frame needs an output's own coordinates.
        across: of sources that do not say what they read, the kept axis along which neighbours are neighbours in memory, if there is one.
    """
    shape = list(max((s.shape for s in sources), key=len))
    reduced = sorted(axes)
    kept = [a for a in range(len(shape)) if a not in reduced]
    leaves = leaves_of(sources)
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
    _choose_direction(frame, full, across if leaves is None else None)
    return frame


def _merge(sources, outs, wholes, leaves, shape, kept, reduced, out_axes, merge) -> Frame:
    """The frame with each group of neighbouring axes that all arrays walk as one replaced by a single axis."""
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


def _choose_direction(frame: Frame, arrays: Sequence[Array], across: int | None) -> None:
    """Decides along which axis vectors run. If it is a kept axis, that becomes the last one."""
    if not frame.kept:
        return
    last = frame.reduced[-1]
    dense = lambda axis: sum(as_int(a.strides[axis]) == 1 and as_int(a.shape[axis]) != 1 for a in arrays)  # how many arrays are
    best = len(frame.extents) - 1 if not arrays else max(frame.kept, key=dense)  # a source that does not say what it reads
    if across is not None:
        best = across
    elif (stored := _stored_densely(frame)) is not None and _shorter_than_a_vector(frame) and (not arrays or dense(best) == 0):
        best, frame.gathers = stored, True
    elif best not in frame.kept or (arrays and dense(best) <= dense(last)):
        return
    if (as_int(frame.extents[best]) or LANES) < LEAST_COLUMNS and (as_int(frame.count) or numerics.CHUNK_ELEMENTS) > LANES:
        return
    i = frame.kept.index(best)
    frame.kept.append(frame.kept.pop(i))
    frame.out_axes.append(frame.out_axes.pop(i))
    frame.across = True


def _shorter_than_a_vector(frame: Frame) -> bool:
    """Whether rows are short, and their last axis does not fill a vector. Then vectors run across rows even if elements have
    to be gathered for that."""
    short = (as_int(frame.count) or numerics.CHUNK_ELEMENTS) <= UNROLLED_ELEMENTS
    short = short and (as_int(frame.extents[frame.reduced[-1]]) or LANES) < LANES
    return short and not frame.wholes


def _stored_densely(frame: Frame) -> int | None:
    """The first kept axis along which an output is dense, or None."""
    wide = [(a, o) for a, o in zip(frame.kept, frame.out_axes) if as_int(frame.extents[a]) != 1]
    return next((a for a, o in wide if any(as_int(x.strides[o]) == 1 for x in frame.outs)), None)


def settled(f: Fold, frame: Frame, state: State) -> State:
    """The final state of a row: `Fold.empty` where the row has no elements, else `state`."""
    if f.empty is None or as_int(frame.count):
        return state
    return tuple(select(equal(frame.count, 0), e, s) for e, s in zip(f.empty, state))
