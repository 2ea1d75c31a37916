"""The views that all others are made of: reshape, permute, broadcast_to and strided_slice, with their gradients.

A view changes strides and copies nothing; where strides cannot say it (reshape of a transposed tensor) it copies first.
Other forms of views are in `views.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from tengen import kernels
from tengen.base.errors import AxisError, ShapeError
from tengen.ir.types import Dim, TensorType
from tengen.kernels.axes import memory_order
from tengen.kernels.lowering import Array, contiguous_strides, product
from tengen.kernels.source import Leaf, Literal
from tengen.loops.lang import Expr, as_int
from tengen.ops.attributes import Axes, Extent, NewShape, Shape, Step
from tengen.ops.define import Case, broadcast_shapes, primitive, same_axes

if TYPE_CHECKING:
    from tengen.tensor import Tensor


def normalize_axis(axis: int, ndim: int) -> int:
    """The axis counted from the front; AxisError when there is none."""
    if not -ndim <= axis < ndim:
        raise AxisError(f"axis {axis} is out of range for a tensor of {ndim} axes")
    return axis % ndim if ndim else 0


def line_axis(axis: int, ndim: int) -> int:
    """The same for what looks at lines of elements along an axis: a 0-d tensor is a line of one."""
    return normalize_axis(axis, max(ndim, 1))


def normalize_axes(axes, ndim: int) -> tuple[int, ...]:
    """Distinct axes counted from the front, in ascending order; None means all, () none. A 0-d tensor has no axes, and lets itself
    be asked for the axis of its one element: 0 or -1."""
    if axes is None:
        return tuple(range(ndim))
    axes = (axes,) if isinstance(axes, int) else tuple(axes)
    out = sorted(line_axis(a, ndim) for a in axes)
    if len(set(out)) != len(out):
        raise AxisError(f"axes {tuple(axes)} name an axis twice")
    return tuple(out) if ndim else ()


@primitive(functional="tensor", aliases={"inp": "x", "target_shape": "shape"})
def reshape(x: Tensor, shape: NewShape) -> Tensor:
    """The same elements in logical order with another shape; one extent may be -1. A view where strides allow.

    >>> from tengen import functional as F
    >>> F.reshape(F.arange(6), (2, -1)).shape
    (2, 3)
    """


@reshape.canon
def _(types, shape):
    if sum(as_int(d) == -1 for d in shape) > 1:
        raise ShapeError(f"reshape({types[0]}, {shape}): only one extent can be -1")
    total = product(types[0].shape)
    if any(as_int(d) == -1 for d in shape):
        rest = product([d for d in shape if as_int(d) != -1])
        if isinstance(rest, int) and isinstance(total, int) and (rest == 0 or total % rest):
            raise ShapeError(f"reshape({types[0]}, {shape}): {total} elements cannot be shared out in groups of {rest}")
        shape = tuple(total // rest if as_int(d) == -1 else d for d in shape)
    return {"shape": TensorType(shape, types[0].dtype).shape}


@reshape.infer
def _(x, shape):
    a, b = product(x.shape), product(shape)
    if isinstance(a, int) and isinstance(b, int) and a != b:
        raise ShapeError(f"{a} elements do not fit shape {shape} of {b} elements")
    return TensorType(shape, x.dtype)


@reshape.parts
def _(types, shape):
    old = types[0].shape
    front = next((i for i, (a, b) in enumerate(zip(old, shape)) if a != b), min(len(old), len(shape)))
    rest = min(len(old), len(shape)) - front
    back = next((i for i, (a, b) in enumerate(zip(old[::-1], shape[::-1])) if a != b), rest)
    back = min(back, rest)
    return [[*range(front), *[None] * (len(old) - front - back), *range(len(shape) - back, len(shape))]]


reshape.identity(lambda x, out, **attrs: True)  # of equal types


@reshape.view
def _(a, out, shape):
    strides = reshaped_strides(a, shape)
    return None if strides is None else Array(a.id, a.dtype, tuple(shape), strides, a.offset)


def reshaped_strides(a: Array, shape: Sequence[Dim]) -> tuple[Dim, ...] | None:
    """Strides that show `a` with another shape, or None when the elements would have to move."""
    if a.is_contiguous() or as_int(product(a.shape)) == 0:
        return contiguous_strides(shape)
    if len(shape) == a.ndim and sum(d is not e and d != e for d, e in zip(a.shape, shape)) <= 1:
        return a.strides  # there are as many elements, so what may differ in one extent is equal in it
    old = [(d, s) for d, s in zip(a.shape, a.strides) if as_int(d) != 1]
    strides: list[Dim] = []
    i = 0
    new = list(shape)
    j = 0
    while j < len(new):
        if as_int(new[j]) == 1:
            strides.append(1)
            j += 1
            continue
        if i >= len(old):
            return None
        # Gather old axes and new axes until both hold equally many elements.
        lo_i, lo_j = i, j
        n_old, n_new = old[i][0], new[j]
        i, j = i + 1, j + 1
        while not (n_old is n_new or (isinstance(n_old, int) and n_old == n_new)):
            if not isinstance(n_old, int) or not isinstance(n_new, int):
                return None
            if n_old < n_new:
                if i >= len(old):
                    return None
                n_old, i = n_old * old[i][0], i + 1
            else:
                if j >= len(new):
                    return None
                n_new, j = n_new * new[j], j + 1
        for p in range(lo_i, i - 1):
            if old[p][1] != old[p + 1][1] * old[p + 1][0]:
                return None
        inner = contiguous_strides(new[lo_j:j])
        strides += [s * old[i - 1][1] for s in inner]
    return tuple(strides)


@reshape.vjp
def _(g, x, shape):
    return reshape(g, x.shape)


reshape.reference(lambda x, shape: np.reshape(x, shape))
reshape.cases(
    Case(lambda rng: (rng.uniform(-1, 1, (4, 6)),), {"shape": (3, 8)}),
    Case(lambda rng: (rng.uniform(-1, 1, (4, 6)),), {"shape": (2, -1, 3)}),
)


@primitive(functional="tensor")
def permute(x: Tensor, axes: Axes) -> Tensor:
    """The axes in another order: axis j of the result is axis axes[j] of x. A view."""


@permute.canon
def _(types, axes):
    axes = tuple(normalize_axis(a, types[0].ndim) for a in axes)
    if sorted(axes) != list(range(types[0].ndim)):
        raise AxisError(f"permute({types[0]}, {axes}): the axes are not an order of all {types[0].ndim} axes")
    return {"axes": axes}


@permute.infer
def _(x, axes):
    return TensorType([x.shape[a] for a in axes], x.dtype)


@permute.parts
def _(types, axes):
    return [[axes.index(i) for i in range(len(axes))]]


permute.identity(lambda x, out, axes: axes == tuple(range(len(axes))))


@permute.view
def _(a, out, axes):
    return a.permute(axes)


@permute.vjp
def _(g, x, axes):
    return permute(g, tuple(int(i) for i in np.argsort(axes)))


permute.reference(lambda x, axes: np.transpose(x, axes))
permute.cases(Case(lambda rng: (rng.uniform(-1, 1, (2, 3, 4)),), {"axes": (2, 0, 1)}))


@primitive(functional="tensor", methods="broadcast_to", aliases={"inp": "x"})
def broadcast_to(x: Tensor, shape: Shape | Sequence[None]) -> Tensor:
    """x repeated along new and unit axes, without copying. None in the shape keeps the extent that x has there."""


@broadcast_to.canon
def _(types, shape):
    x = types[0].shape
    lead = max(len(shape) - len(x), 0)
    if any(d is None for d in shape[:lead]):
        raise ShapeError(f"broadcast_to({types[0]}, shape={shape}): there is no axis whose extent a None could keep before the first one")
    return {"shape": tuple(x[i - lead] if d is None else d for i, d in enumerate(shape))}


@broadcast_to.infer
def _(x, shape):
    if len(shape) < x.ndim or broadcast_shapes(x.shape, shape) != tuple(shape):
        raise ShapeError(f"shape {x.shape} does not broadcast to {shape}")
    return TensorType(shape, x.dtype)


@broadcast_to.parts
def _(types, shape):
    return [same_axes(types[0].shape, shape)]


broadcast_to.identity(lambda x, out, **attrs: True)  # of equal types


@broadcast_to.view
def _(a, out, shape):
    return a.expand(shape)


@broadcast_to.vjp
def _(g, x, shape):
    from tengen.ops.reduce import sum_to

    return sum_to(g, x.shape)


broadcast_to.reference(lambda x, shape: np.broadcast_to(x, shape))
broadcast_to.cases(Case(lambda rng: (rng.uniform(-1, 1, (3, 1)),), {"shape": (2, 3, 4)}))


@primitive
def strided_slice(x: Tensor, starts: Sequence[Extent], sizes: Sequence[Extent], steps: Sequence[Step]) -> Tensor:
    """x[start : start + size * step : step] along every axis; steps may be negative. A view."""


@strided_slice.infer
def slice_type(x: TensorType, starts, sizes, steps) -> TensorType:
    """The type of `strided_slice`; ShapeError for elements that x does not have."""
    if not x.ndim == len(starts) == len(sizes) == len(steps):
        raise ShapeError(f"needs a start, a size and a step for each of {x.ndim} axes")
    for axis, (d, a, n, s) in enumerate(zip(x.shape, starts, sizes, steps)):
        if isinstance(n, int) and n < 0:
            raise ShapeError(f"axis {axis} cannot have {n} elements")
        if any(isinstance(e, Expr) for e in (d, a, n, s)):
            continue  # the numbers of a run are looked at
        if n and not (0 <= a < d and 0 <= a + (n - 1) * s < d):
            raise ShapeError(f"axis {axis} of extent {d} has no {n} elements from {a} in steps of {s}")
    return TensorType(sizes, x.dtype)


@strided_slice.view
def slice_view(a: Array, out: TensorType, starts, sizes, steps) -> Array:
    """The elements of `a` that `strided_slice` reads."""
    some = all(as_int(n) != 0 for n in sizes)
    offset = a.offset + sum(st * s for st, s in zip(starts, a.strides)) if some else a.offset
    return replace(a, shape=tuple(sizes), strides=stepped(a.strides, steps, sizes), offset=offset)


def stepped(strides: Sequence[Dim], steps: Sequence[int], sizes: Sequence[Dim]) -> tuple[Dim, ...]:
    """Strides in steps of several elements. To where there is no second element no step is taken: it might be of any size."""
    return tuple([s if as_int(n) in (0, 1) else s * st for s, st, n in zip(strides, steps, sizes)])


@strided_slice.vjp
def _(g, x, starts, sizes, steps):
    return slice_grad(g, x.shape, starts, steps)


strided_slice.reference(
    lambda x, starts, sizes, steps: x[np.ix_(*(np.arange(n) * s + a for a, n, s in zip(starts, sizes, steps)))]
)  # fmt: skip
strided_slice.cases(
    Case(lambda rng: (rng.uniform(-1, 1, (5, 6)),), {"starts": (1, 5), "sizes": (3, 3), "steps": (1, -2)}),
    Case(lambda rng: (rng.uniform(-1, 1, (33,)),), {"starts": (0,), "sizes": (17,), "steps": (2,)}),
    Case(lambda rng: (rng.uniform(-1, 1, (4, 3)),), {"starts": (2, 0), "sizes": (0, 3), "steps": (1, 1)}),
)


@primitive
def slice_grad(grad: Tensor, shape: Shape, starts: Sequence[Extent], steps: Sequence[Step]) -> Tensor:
    """Zeros of `shape` with `grad` where `strided_slice` from `starts` in `steps` would read: its gradient. With steps of 1
    it is padding with zeros."""


@slice_grad.infer
def _(g, shape, starts, steps):
    slice_type(TensorType(shape, g.dtype), starts, g.shape, steps)
    return TensorType(shape, g.dtype)


@slice_grad.layout
def _(arrays, out, **attrs):
    return memory_order(arrays[0])


@slice_grad.lower
def _(lo, ins, outs, shape, starts, steps):
    out = outs[0]
    zero = Literal(0, out.dtype)
    inside = replace(slice_view(out, TensorType(ins[0].shape, out.dtype), starts, ins[0].shape, steps))
    empty = any(as_int(d) == 0 for d in inside.shape)
    if empty or any(as_int(st) != 1 for st in steps):
        kernels.pointwise.pointwise(lo, [zero], [out], "slice_grad_zero")
        return None if empty else kernels.pointwise.pointwise(lo, [Leaf(ins[0])], [inside], "slice_grad")
    widths = [(a, d - a - n) for a, d, n in zip(starts, shape, ins[0].shape)]
    return kernels.indexing.gather.pad(lo, Leaf(ins[0]), out, widths, name="slice_grad")


@slice_grad.vjp
def _(gg, g, shape, starts, steps):
    return strided_slice(gg, starts, g.shape, steps)


def _np_slice_grad(g, shape, starts, steps):
    out = np.zeros(shape, g.dtype)
    out[np.ix_(*(np.arange(n) * s + a for a, n, s in zip(starts, g.shape, steps)))] = g
    return out


slice_grad.reference(_np_slice_grad)
slice_grad.cases(
    Case(lambda rng: (rng.uniform(-1, 1, (3, 3)),), {"shape": (5, 6), "starts": (1, 5), "steps": (1, -2)}),
    Case(lambda rng: (rng.uniform(-1, 1, (3, 17)),), {"shape": (5, 20), "starts": (1, 2), "steps": (1, 1)}),
)
