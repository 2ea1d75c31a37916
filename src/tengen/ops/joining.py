"""Joining, cutting, repeating and padding tensors.

Concatenation and padding write each part straight into its window of the output; the others are shorthands of them and of
views.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from tengen.base.dtype import promote
from tengen.base.errors import ArgumentError, ShapeError
from tengen.ir.types import Dim, TensorType
from tengen.kernels.axes import memory_order
from tengen.kernels.indexing import gather
from tengen.kernels.source import Elementwise, Leaf
from tengen.loops.lang import Expr, as_int, cast, equal, unguarded
from tengen.ops.attributes import Extent, Offset
from tengen.ops.define import Case, differ, dispatch, lookup, primitive, same_extent, shorthand
from tengen.ops.elementwise import add
from tengen.ops.shape import broadcast_to, normalize_axis, reshape, slice_grad, strided_slice
from tengen.ops.views import expand_dims, flip

if TYPE_CHECKING:
    from tengen.tensor import Tensor


def narrow(x: Tensor, axis: int, start: Dim, size: Dim) -> Tensor:
    """x[start : start + size] along one axis; a view."""
    n = x.ndim
    starts = tuple(start if i == axis else 0 for i in range(n))
    return strided_slice(x, starts, tuple(size if i == axis else d for i, d in enumerate(x.shape)), (1,) * n)


@primitive(functional="tensor", aliases={"device": ""})
def concat(inps: list[Tensor], axis: int = 0) -> Tensor:
    """The tensors one after another along `axis`; dtypes are promoted.

    >>> from tengen import Tensor, functional as F
    >>> F.concat([Tensor([1, 2]), Tensor([3])]).tolist()
    [1, 2, 3]
    """


@concat.canon
def _(types, axis):
    if not types:
        raise ShapeError("concat of no tensors has no shape")
    if not types[0].ndim:
        raise ShapeError("concat: 0-d tensors have no axis; help: use stack")
    return {"axis": normalize_axis(axis, types[0].ndim)}


@concat.infer
def _(*types, axis):
    first, total, d = types[0], types[0].shape[axis], types[0].dtype
    for i, t in enumerate(types[1:], 1):
        same = t.ndim == first.ndim and all(same_extent(a, b) for j, (a, b) in enumerate(zip(t.shape, first.shape)) if j != axis)
        if not same:
            raise ShapeError(f"tensor {i} has shape {t.shape}, the first {first.shape}; help: all axes but {axis} must agree")
        total, d = total + t.shape[axis], promote(d, t.dtype)
    return TensorType((*first.shape[:axis], total, *first.shape[axis + 1 :]), d)


concat.identity(lambda x, out, axis: True)  # of equal types: nothing else has elements


@concat.layout
def _(arrays, out, axis):
    longest = lambda a: math.inf if (n := as_int(a.shape[axis])) is None else n
    return memory_order(max(arrays, key=longest))  # the others take less time to turn, or are a value spread out


@concat.lower_values
def _(lo, ins, outs, axis):
    d = outs[0].dtype
    sources = [s if s.dtype is d else Elementwise(lambda v: cast(v, d), [s], s.shape, d) for s in ins]
    gather.concat(lo, sources, outs[0], axis)


@concat.read_over
def _(types, axis):
    """Of what is one kernel: else each operand is computed by itself."""
    return types[0].shape if gather.one_each([t.shape for t in types], axis) else None


@concat.vjp
def _(g, *inputs, axis):
    out, start = [], 0
    for x in inputs:
        out.append(lambda x=x, start=start: narrow(g, axis, start, x.shape[axis]))
        start = start + x.shape[axis]
    return tuple(out)


concat.reference(lambda xs, axis=0: np.concatenate(xs, axis))
concat.cases(
    Case(lambda r: ([r.uniform(-1, 1, (2, 5)), r.uniform(-1, 1, (1, 5)), r.uniform(-1, 1, (0, 5))],)),
    Case(lambda r: ([r.uniform(-1, 1, (3, 17)), r.uniform(-1, 1, (3, 16))],), {"axis": -1}),
    Case(lambda r: ([r.uniform(-1, 1, (3, 2, 4)), r.uniform(-1, 1, (3, 3, 4))],), {"axis": 1}),
)


@shorthand(functional="tensor", aliases={"device": ""})
def stack(inps: list[Tensor], axis: int = 0) -> Tensor:
    """Tensors of one shape along a new axis.

    Errors: ShapeError for tensors of different shapes, or none
    """
    xs = [dispatch.tensor(x) for x in inps]
    for i, x in enumerate(xs):
        if x.ndim != xs[0].ndim or any(map(differ, map(unguarded, x.shape), map(unguarded, xs[0].shape))):
            raise ShapeError(f"stack: tensor {i} has shape {tuple(x.shape)}, the first {tuple(xs[0].shape)}")
    a = normalize_axis(axis, xs[0].ndim + 1) if xs else 0
    return concat([expand_dims(x, a) for x in xs], a)


stack.reference(lambda xs, axis=0: np.stack(xs, axis))
stack.cases(
    Case(lambda r: ([r.uniform(-1, 1, (2, 5)), r.uniform(-1, 1, (2, 5))],)),
    Case(lambda r: ([r.uniform(-1, 1, (2, 5)), r.uniform(-1, 1, (2, 5))],), {"axis": -1}),
)


def divides(parts: int, n: Dim) -> bool:
    """Whether so many parts of an extent can be equal; of an open extent the numbers of the call at hand answer."""
    rest = unguarded(n % parts)
    return bool(equal(rest, 0)) if as_int(rest) is None else as_int(rest) == 0


def even_parts(n: Dim, parts: int) -> list[Dim]:
    """The extents of so many parts of n elements, which differ by at most 1; the longer ones come first.

    >>> even_parts(8, 3)
    [3, 3, 2]
    """
    return [n // parts] * parts if divides(parts, n) else [(n + parts - 1 - i) // parts for i in range(parts)]


@shorthand(functional="tensor")
def split(inp: Tensor, nsplits_or_sections: int | Sequence[Offset], axis: int = 0) -> list[Tensor]:
    """So many parts (a number), or the parts between these positions (a list), as views. Where the axis cannot be cut in equal parts,
    the first ones have one element more.

    Errors: ShapeError for more parts than there are elements, and for positions that fall

    >>> from tengen import functional as F
    >>> [p.tolist() for p in F.split(F.arange(5), 2)]
    [[0.0, 1.0, 2.0], [3.0, 4.0]]
    >>> [p.tolist() for p in F.split(F.arange(5), [2, 4])]
    [[0.0, 1.0], [2.0, 3.0], [4.0]]
    """
    x = dispatch.tensor(inp)
    a = normalize_axis(axis, x.ndim)
    n = x.shape[a]
    if isinstance(nsplits_or_sections, int):
        parts = nsplits_or_sections
        if parts < 1 or 0 < n < parts:
            raise ShapeError(f"split({tuple(x.shape)}): {n} elements of axis {a} cannot be cut in {parts} parts")
        if as_int(n) is None and divides(parts, n):  # a reshape says that there is no rest
            x = reshape(x, (*x.shape[:a], n // parts * parts, *x.shape[a + 1 :]))
        bounds = [0, *accumulate(even_parts(n, parts))]
    else:
        if as_int(n) is None:  # as slices of an open axis, these are not clipped
            cuts = [b + n if isinstance(b, int) and b < 0 else b for b in nsplits_or_sections]
            return [narrow(x, a, lo, hi - lo) for lo, hi in pairwise([0, *cuts, n])]
        bounds = [0, *(min(max(b + n if b < 0 else b, 0), n) for b in nsplits_or_sections), n]
        if bounds != sorted(bounds):
            what = f"split({tuple(x.shape)}): the positions {list(nsplits_or_sections)} along axis {a}, which has {n} elements, fall"
            raise ShapeError(f"{what}; help: positions at which the parts begin; x.split(sizes) takes the parts' sizes")
    return [narrow(x, a, lo, hi - lo) for lo, hi in pairwise(bounds)]


split.reference(lambda x, nsplits_or_sections, axis=0: np.split(x, nsplits_or_sections, axis))
split.cases(
    Case(lambda r: (r.uniform(-1, 1, (6, 5)),), {"nsplits_or_sections": 3}),
    Case(lambda r: (r.uniform(-1, 1, (3, 17)),), {"nsplits_or_sections": [2, 2, 9], "axis": -1}),
)

# ---- repeating -------------------------------------------------------------------------------------------------------


@shorthand(functional="tensor", methods="tile")
def tile(inp: Tensor, reps: Extent | Sequence[Extent]) -> Tensor:
    """The whole tensor repeated along each axis, as NumPy's tile.

    Errors: ShapeError for negative repeats

    >>> from tengen import Tensor, functional as F
    >>> F.tile(Tensor([1, 2]), 2).tolist()
    [1, 2, 1, 2]
    """
    x = dispatch.tensor(inp)
    times = tuple(reps) if isinstance(reps, tuple | list) else (reps,)
    times = (1,) * (x.ndim - len(times)) + times
    shape = (1,) * (len(times) - x.ndim) + tuple(x.shape)
    if any(isinstance(t, int) and t < 0 for t in times):
        raise ShapeError(f"tile: {reps} has a negative number")
    spread = tuple(v for t, d in zip(times, shape) for v in (t, d))
    apart = reshape(x, tuple(v for d in shape for v in (1, d)))
    return reshape(broadcast_to(apart, spread), tuple(t * d for t, d in zip(times, shape)))


tile.reference(np.tile)
tile.cases(
    Case(lambda r: (r.uniform(-1, 1, (2, 3)),), {"reps": (2, 6)}), Case(lambda r: (r.uniform(-1, 1, 5),), {"reps": (2, 1, 4)}),
    Case(lambda r: (r.uniform(-1, 1, (2, 3)),), {"reps": 2}), Case(lambda r: (r.uniform(-1, 1, (2, 3)),), {"reps": (0, 2)}),
)  # fmt: skip


@shorthand(functional="tensor", methods="repeat")
def repeat(inp: Tensor, repeats: Extent | Sequence[int], axis: int | None = None) -> Tensor:
    """Each element repeated, as NumPy's repeat: one number for all, or one for each position of `axis`; flattened without an
    axis.

    Errors: ShapeError, ArgumentError for repeats that do not fit the axis

    >>> from tengen import Tensor, functional as F
    >>> F.repeat(Tensor([1, 2]), 2).tolist()
    [1, 1, 2, 2]
    """
    x = dispatch.tensor(inp)
    if axis is None:
        x, axis = reshape(x, (-1,)), 0
    a = normalize_axis(axis, x.ndim)
    counts = repeats if isinstance(repeats, tuple | list) else [repeats]
    if any(isinstance(c, int) and c < 0 for c in counts):
        raise ArgumentError(f"repeat: {repeats} has a negative number")
    if len(counts) == 1:
        wide = broadcast_to(expand_dims(x, a + 1), (*x.shape[: a + 1], counts[0], *x.shape[a + 1 :]))
        return reshape(wide, (*x.shape[:a], x.shape[a] * counts[0], *x.shape[a + 1 :]))
    if len(counts) != x.shape[a]:
        raise ShapeError(f"repeat({tuple(x.shape)}): {len(counts)} numbers for the {x.shape[a]} positions of axis {a}")
    return lookup("take")(x, dispatch.tensor(np.repeat(np.arange(len(counts)), np.asarray(counts, np.int64))), a)


repeat.reference(lambda x, repeats, axis=None: np.repeat(x, np.asarray(repeats, np.int64), axis))
repeat.cases(
    Case(lambda r: (r.uniform(-1, 1, (2, 3)),), {"repeats": 3}),
    Case(lambda r: (r.uniform(-1, 1, (2, 3)),), {"repeats": 6, "axis": -1}),
    Case(lambda r: (r.uniform(-1, 1, (3, 17)),), {"repeats": [2, 0, 3], "axis": 0}),
    Case(lambda r: (r.uniform(-1, 1, (2, 0)),), {"repeats": (), "axis": 1}, grad=False),
)


@shorthand(functional="tensor", aliases={"shifts": "shift", "dims": "axis"})
def roll(inp: Tensor, shift: int | Sequence[int], axis: int | Sequence[int] | None = None) -> Tensor:
    """Elements moved along axes; what leaves at the end comes back at the front. Flattened without an axis.

    Errors: ShapeError for shifts that are not as many as axes

    >>> from tengen import Tensor, functional as F
    >>> F.roll(Tensor([1, 2, 3]), 1).tolist()
    [3, 1, 2]
    """
    x = dispatch.tensor(inp)
    if axis is None:
        total = sum(shift) if isinstance(shift, (list, tuple)) else shift
        return reshape(roll(reshape(x, (-1,)), total, 0), x.shape)
    axes = (axis,) if isinstance(axis, int) else tuple(axis)
    shifts = (shift,) * len(axes) if isinstance(shift, int) else tuple(shift)
    if len(axes) != len(shifts):
        raise ShapeError(f"roll: {len(shifts)} shifts for {len(axes)} axes")
    for a, s in zip(axes, shifts):
        a = normalize_axis(a, x.ndim)
        n = x.shape[a]
        if as_int(n) is None:  # at least as large as the shift, which is looked at in each run
            s = s if s >= 0 else n + s
        else:
            s = s % n if n else 0
        if as_int(s) != 0:
            x = concat([narrow(x, a, n - s, s), narrow(x, a, 0, n - s)], a)
    return broadcast_to(x, x.shape) if x is inp else x


roll.reference(np.roll)
roll.cases(
    Case(lambda r: (r.uniform(-1, 1, (2, 3)),), {"shift": 4}),
    Case(lambda r: (r.uniform(-1, 1, (4, 17)),), {"shift": (-1, 20), "axis": (0, 1)}),
)

# ---- padding ---------------------------------------------------------------------------------------------------------

MODES = {
    "constant": "constant",
    "edge": "edge",
    "replicate": "edge",
    "reflect": "reflect",
    "circular": "circular",
    "wrap": "circular",
}


@primitive(functional="tensor nn", aliases={"value": "constant_value"})
def pad(
    src: Tensor, pad_width: Extent | Sequence[Extent] | Sequence[Sequence[Extent]],
    mode: Literal["constant", "edge", "replicate", "reflect", "circular", "wrap"] = "constant", constant_value: float | bool = 0.0,
) -> Tensor:
    """src with more elements around it.

    Args:
        pad_width: pairs (before, after) for each axis, or for the first axes (as in MegEngine); or one int n or one pair
            (before, after) for every axis (as in NumPy). (n,) stands for (n, n).
        mode: "constant", "edge" (or "replicate": the nearest element), "reflect" (mirrored; the edge element is not repeated),
            "circular" (or "wrap").

    >>> from tengen import Tensor, functional as F
    >>> F.pad(Tensor([1, 2, 3]), [(1, 2)], mode="reflect").tolist()
    [2, 1, 2, 3, 2, 1]
    >>> F.pad(Tensor([[5]]), (0, 1)).tolist()
    [[5, 0], [0, 0]]
    """


@pad.canon
def _(types, pad_width, mode, constant_value):
    x = types[0]
    widths = _widths(pad_width, x.ndim)
    if widths is None:
        raise ShapeError(
            f"pad({x}, {pad_width}): needs a pair of numbers (before, after) that are not negative, for every axis or one for "
            f"each of at most {x.ndim} axes"
        )
    return {"pad_width": tuple(widths), "mode": MODES[mode], "constant_value": constant_value}


def _widths(pad_width, ndim: int) -> list[tuple[Any, Any]] | None:
    """A pair for each axis, or None if `pad_width` does not say them."""

    def pair(row) -> tuple[Any, Any] | None:
        row = row if isinstance(row, tuple) else (row,)
        good = len(row) in (1, 2) and all(isinstance(w, (int, Expr)) for w in row)
        return (row[0], row[-1]) if good else None

    nested = isinstance(pad_width, tuple) and all(isinstance(row, tuple) for row in pad_width)
    rows = [pair(row) for row in pad_width] if nested else [pair(pad_width)] * ndim
    if len(rows) > ndim or None in rows:
        return None
    return [*rows, *[(0, 0)] * (ndim - len(rows))]  # type: ignore[list-item]  # no None is among them


@pad.infer
def _(x, pad_width, mode, constant_value):
    for axis, (d, (a, b)) in enumerate(zip(x.shape, pad_width)):
        most = {"constant": None, "edge": 0 if as_int(d) == 0 else None, "reflect": d - 1, "circular": d}[mode]
        if isinstance(most, int) and isinstance(a, int) and isinstance(b, int) and max(a, b) > most >= -1 and max(a, b) > 0:
            raise ShapeError(f"axis {axis} of extent {d} cannot be padded by {(a, b)} in mode {mode!r}")
    return TensorType([a + d + b for d, (a, b) in zip(x.shape, pad_width)], x.dtype)


@pad.layout
def _(arrays, out, **attrs):
    return memory_order(arrays[0])


@pad.lower
def _(lo, ins, outs, pad_width, mode, constant_value):
    gather.pad(lo, Leaf(ins[0]), outs[0], pad_width, mode, constant_value)


@pad.vjp
def _(g, x, pad_width, mode, constant_value):
    for axis, (a, b) in reversed(list(enumerate(pad_width))):
        if a or b:
            g = _fold_borders(g, axis, a, b, mode)
    return g


def _fold_borders(g, axis: int, before: int, after: int, mode: str):
    """The gradient along one axis: what went to the borders comes back to the elements that they show."""
    n = g.shape[axis] - before - after
    inner = narrow(g, axis, before, n)
    if mode == "constant":
        return inner
    for size, front in ((before, True), (after, False)):
        if not size:
            continue
        part = narrow(g, axis, 0 if front else before + n, size)
        if mode == "edge":
            part, start = lookup("sum")(part, axis, True), 0 if front else n - 1
        elif mode == "reflect":
            part, start = flip(part, axis), 1 if front else n - 1 - after
        else:
            start = n - before if front else 0
        starts = tuple(start if i == axis else 0 for i in range(g.ndim))
        inner = add(inner, slice_grad(part, inner.shape, starts, (1,) * g.ndim))
    return inner


def _np_pad(x, pad_width, mode="constant", constant_value=0.0):
    extra = {"constant_values": constant_value} if mode == "constant" else {}
    return np.pad(x, pad_width, {"replicate": "edge", "circular": "wrap"}.get(mode, mode), **extra)


pad.reference(_np_pad)
pad.cases(
    Case(lambda r: (r.uniform(-1, 1, (3, 5)),), {"pad_width": ((1, 2), (0, 17)), "constant_value": 1.5}),
    *(
        Case(lambda r: (r.uniform(-1, 1, (4, 17)),), {"pad_width": ((1, 2), (3, 0)), "mode": m})
        for m in ("edge", "reflect", "circular")
    ),
    Case(lambda r: (r.uniform(-1, 1, (4, 5)),), {"pad_width": ((0, 3), (4, 4)), "mode": "reflect"}),
)
