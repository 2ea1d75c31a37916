"""Ops that ONNX has no operator for, but says by several: each is a function of its tensors, recorded when it is written, whose ops have
operators. What it cannot say is in `unsaid.py`, with the reason."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import tengen.functional as F
from tengen.base.device import default_device
from tengen.interop.onnx.writer import WRITERS, Writer
from tengen.ir.graph import Node
from tengen.ops.define import REGISTRY, broadcast_shapes
from tengen.tensor import Tensor, tensor_over
from tengen.tensor.recorder import Recorder

DEFINED: dict[str, Callable[..., Any]] = {}  # op -> a function of its tensors (None for absent ones) and attributes


def says(*ops: str) -> Callable[[Callable], Callable]:
    """Enters a function as the definition of ops."""

    def enter(f: Callable) -> Callable:
        for op in ops:
            DEFINED[op] = f
            WRITERS[op] = write_defined
        return f

    return enter


def write_defined(w: Writer, n: Node, *names: str | None) -> Any:
    """Records a node's definition for its types, and writes its nodes in place."""
    rec = Recorder(n.op, device=default_device())
    given = [v for v in n.inputs if v is not None]
    with rec:
        args = iter([rec.argument(f"x{i}", tensor_over(None, None), v.type) for i, v in enumerate(given)])
        made = DEFINED[n.op](*(None if v is None else next(args) for v in n.inputs), **n.attrs)
        outs = list(made) if isinstance(made, tuple) else [made]
        graph = rec.finish([(f"y{i}", o) for i, o in enumerate(outs)])
    inside = Writer(graph, w)
    for s, t in zip(graph.states.values(), rec.captured):  # arrays that the definition made
        inside.names[s.read] = w.array(t.numpy())
    inside.names.update(zip(graph.inputs, (name for name in names if name is not None)))
    inside.write_nodes()
    w.nodes.extend(inside.nodes)
    return tuple(inside.name(v) for v in graph.outputs)


# -- elementwise -------------------------------------------------------------------------------------------------------------
def negative(x: Tensor) -> Tensor:
    """The sign bit; of NaN it is not seen."""
    below = F.less(x, 0)
    return below if not x.dtype.is_float else F.logical_or(below, F.logical_and(F.equal(x, 0), F.less(F.reciprocal(x), 0)))


says("signbit")(negative)
says("copysign")(lambda x, y: F.where(negative(y), -F.abs(x), F.abs(x)))


@says("atan2")
def atan2(y: Tensor, x: Tensor) -> Tensor:
    """By the quadrant."""
    no_x, infinite = F.equal(x, 0), F.logical_and(F.isinf(y), F.isinf(x))
    zeros = F.logical_and(no_x, F.equal(y, 0))
    ratio = F.where(no_x, F.sign(y) * math.inf, y / F.where(no_x, 1.0, x).astype(x.dtype))
    angle = F.atan(F.where(zeros, y, F.where(infinite, F.sign(y) * F.sign(x), ratio)))
    left = F.logical_or(F.less(x, 0), F.logical_and(zeros, negative(x)))
    return F.where(left, F.where(negative(y), angle - math.pi, angle + math.pi), angle)


@says("left_shift")
def left_shift(x: Tensor, y: Tensor) -> Tensor:
    """Times a power of two, in int64; 0 by the width or more."""
    at, wide, bits = y.astype("int64"), x.astype("int64"), 8 * x.dtype.size
    by = F.where(F.logical_and(F.greater_equal(at, 0), F.less(at, bits)), at, 0)
    power = F.pow(F.full((), 2, dtype="int64"), F.minimum(by, 62)) * F.where(F.equal(by, 63), 2, 1)
    return F.where(F.equal(by, at), wide * power, 0).astype(x.dtype)


@says("right_shift")
def right_shift(x: Tensor, y: Tensor) -> Tensor:
    """Divided by a power of two and rounded down."""
    at, wide, bits = y.astype("int64"), x.astype("int64"), 8 * x.dtype.size
    inside = F.logical_and(F.greater_equal(at, 0), F.less(at, min(bits, 63)))
    by = F.pow(F.full((), 2, dtype="int64"), F.where(inside, at, 0))
    return F.where(inside, F.floor_div(wide, by), F.where(F.less(wide, 0), -1, 0)).astype(x.dtype)


def product(extents: Any) -> Any:
    """Of extents, which may be open."""
    found: Any = 1
    for e in extents:
        found = found * e
    return found


# -- indices -----------------------------------------------------------------------------------------------------------------
def along(n: Any, axis: int, ndim: int) -> Tensor:
    """0 .. n - 1 along an axis of so many."""
    return F.arange(n, dtype="int64").reshape(*[n if a == axis else 1 for a in range(ndim)])


@says("class_mask")
def class_mask(label: Tensor, like: Tensor, axis: int) -> Tensor:
    """Where the position is the label."""
    at = axis % like.ndim
    return F.equal(F.expand_dims(label.astype("int64"), at), along(like.shape[at], at, like.ndim))


@says("on_diagonal")
def on_diagonal(x: Tensor, rows: Any, columns: Any, offset: int) -> Tensor:
    """Zeros but for the diagonal."""
    before = max(-offset, 0)
    if 0 in x.shape[-1:]:
        return F.zeros((*x.shape[:-1], rows, columns), x.dtype)
    wide = F.pad(x, [*[(0, 0)] * (x.ndim - 1), (before, rows - before - x.shape[-1])])
    hit = F.equal(along(columns, 1, 2) - along(rows, 0, 2), offset)
    return F.where(hit, F.expand_dims(wide, -1), F.zeros((), x.dtype))


@says("last_diagonal")
def last_diagonal(x: Tensor, offset: int) -> Tensor:
    """Every (columns + 1)th element of the rows one after the other."""
    rows, columns = x.shape[-2:]
    count = max(0, min(rows - max(-offset, 0), columns - max(offset, 0)))
    at = np.arange(count, dtype=np.int64) * (columns + 1) + max(-offset, 0) * columns + max(offset, 0)
    return F.take(x.reshape(*x.shape[:-2], rows * columns), Tensor(at), x.ndim - 2)


@says("windows")
def windows(x: Tensor, kernel_size: Any, stride: Any, dilation: Any) -> Tensor:
    """Windows over the last axes, axis by axis."""
    n, lead = len(kernel_size), x.ndim - len(kernel_size)
    for i, (k, s, d) in enumerate(zip(kernel_size, stride, dilation)):
        axis = lead + 2 * i
        count = (x.shape[axis] - d * (k - 1) - 1) // s + 1
        at = along(count, 0, 2) * s + along(k, 1, 2) * d
        x = F.take(x, at.reshape(count * k), axis).reshape(*x.shape[:axis], count, k, *x.shape[axis + 1 :])
    return F.transpose(x, [*range(lead), *range(lead, lead + 2 * n, 2), *range(lead + 1, lead + 2 * n, 2)])


@says("windows_grad")
def windows_grad(g: Tensor, space: Any, stride: Any, dilation: Any) -> Tensor:
    """Windows added where they lie."""
    n, lead = len(space), g.shape[: g.ndim - 2 * len(space)]
    counts, kernel = g.shape[len(lead) : len(lead) + n], g.shape[len(lead) + n :]
    place: Any = F.zeros([1] * (2 * n), "int64")
    for i, (k, s, d) in enumerate(zip(kernel, stride, dilation)):
        place = place * space[i] + along(counts[i], i, 2 * n) * s + along(k, n + i, 2 * n) * d
    total, many = product(lead), product((*counts, *kernel))
    index = F.broadcast_to(place.reshape(1, many), (total, many))
    made = F.scatter(F.zeros((total, product(space)), g.dtype), 1, index, g.reshape(total, many), "add")
    return made.reshape(*lead, *space)


@says("set_slice")
def set_slice(x: Tensor, value: Tensor, starts: Any, sizes: Any, steps: Any) -> Tensor:
    """The slice's places take the value."""
    if not x.ndim:
        return F.broadcast_to(value, ())
    place: Any = F.zeros([1] * x.ndim, "int64")
    for axis, (start, size, step) in enumerate(zip(starts, sizes, steps)):
        place = place * x.shape[axis] + along(size, axis, x.ndim) * step + start
    many = product(sizes)
    flat = F.broadcast_to(value, tuple(sizes)).reshape(many)
    at = F.broadcast_to(place, tuple(sizes)).reshape(many)
    return F.scatter(x.reshape(product(x.shape)), 0, at, flat).reshape(*x.shape)


@says("searchsorted")
def searchsorted(table: Tensor, values: Tensor, right: bool) -> Tensor:
    """How many entries are smaller, or not larger."""
    wide = F.expand_dims(values, -1)
    row = table if table.ndim == 1 else F.expand_dims(table, -2)
    hit = F.less_equal(row, wide) if right else F.less(row, wide)
    if values.dtype.is_float:  # NaN is the largest
        above = F.isnan(wide) if right else F.logical_and(F.isnan(wide), F.logical_not(F.isnan(row)))
        hit = F.logical_or(hit, above)
    return F.sum(hit.astype("int64"), -1)


says("checked")(lambda x, info, what: F.broadcast_to(x, x.shape))
says("argsort")(lambda x, descending, axis: F.sort(x, descending, axis)[1])
says("mirrored")(
    lambda x, lower: F.where(
        (F.less_equal if lower else F.greater_equal)(along(x.shape[-1], 1, 2), along(x.shape[-1], 0, 2)), x, F.swapaxes(x, -1, -2)
    )
)


@says("ordered")
def ordered(x: Tensor, order: Tensor, back: bool) -> Tensor:
    """Rows in an order, or back."""
    at = F.sort(order, False, -1)[1] if back else order
    shape = (*broadcast_shapes(x.shape[:-2], order.shape[:-1]), *x.shape[-2:])
    return F.gather(F.broadcast_to(x, shape), len(shape) - 2, F.broadcast_to(F.expand_dims(at, -1), shape))


# -- running, and over steps ---------------------------------------------------------------------------------------------------
@says("cumprod")
def cumprod(x: Tensor, axis: int, exclusive: bool, reverse: bool) -> Tensor:
    """A scan along the axis."""
    t = x if x.dtype.is_inexact else x.astype("int64")
    flat = t.reshape(1) if not t.ndim else F.moveaxis(t, axis, 0)
    one = F.ones(flat.shape[1:], t.dtype)
    made = F.scan(lambda before, now: (before * now, before if exclusive else before * now), one, flat, reverse=reverse)[1]
    return made.reshape(()) if not t.ndim else F.moveaxis(made, 0, axis)


def _running(x: Tensor, axis: int, extreme: Callable[[Tensor, Tensor], Tensor], end: int) -> Tensor:
    """A scan along the axis, of the largest or the least so far, which begins with the least (0) or the largest (1) number there is."""
    info = None if x.dtype.is_float else np.iinfo(x.dtype.numpy)
    begin = (-math.inf, math.inf)[end] if info is None else (int(info.min), int(info.max))[end]
    flat = x.reshape(1) if not x.ndim else F.moveaxis(x, axis, 0)

    def step(before: Tensor, now: Tensor) -> tuple[Tensor, Tensor]:
        found = extreme(before, now)
        return found, found

    made = F.scan(step, F.full(flat.shape[1:], begin, x.dtype), flat)[1]
    return made.reshape(()) if not x.ndim else F.moveaxis(made, 0, axis)


says("running_max")(lambda x, axis: _running(x, axis, F.maximum, 0))
says("running_min")(lambda x, axis: _running(x, axis, F.minimum, 1))


def tap_sum(x: Tensor, image: Tensor | None, index: Tensor, weight: Tensor) -> Tensor:
    """Of pictures that are chosen first."""
    return REGISTRY["tap_sum"](F.take(x, image, 0), None, index, weight)


@says("selected")
def selected(mask: Tensor, x: Tensor) -> Tensor:
    """A number that is not selected is 0."""
    return F.where(mask.astype("bool"), x, F.zeros_like(x))


@says("linear_samples")
def linear_samples(*operands: Tensor | None, size: Sequence[int], zeros: bool) -> Tensor:
    """Of taps whose places are numbers."""
    return REGISTRY["linear_samples_of_taps"](*operands, size=size, zeros=zeros)


@says("window_sums")
def window_sums(*operands: Tensor, joint: bool) -> Tensor:
    """Of taps whose places are numbers."""
    return REGISTRY["window_sums_of_taps"](*operands, joint=joint)


def lstm(projected: Tensor, weight: Tensor, h0: Tensor, c0: Tensor, reverse: bool) -> tuple[Tensor, ...]:
    """With the states of the cell, and gates, of all steps."""
    k = weight.shape[1]

    def step(state: Any, z: Tensor) -> Any:
        z = z + F.matmul(state[0], weight, transpose_b=True)
        i, f, g, o = (act(z[:, j * k : (j + 1) * k]) for j, act in enumerate((F.sigmoid, F.sigmoid, F.tanh, F.sigmoid)))
        c = f * state[1] + i * g
        h = o * F.tanh(c)
        return (h, c), (h, c, F.concat([i, f, g, o], 1))

    _, (hs, cs, gates) = F.scan(step, (h0, c0), projected, reverse=reverse)
    first = lambda x, xs: F.concat([xs, F.expand_dims(x, 0)] if reverse else [F.expand_dims(x, 0), xs], 0)
    return first(h0, hs), first(c0, cs), gates


def circular(x: Tensor, pad_width: Any, mode: str, constant_value: Any) -> Tensor:
    """The other end of each axis before it and after it."""
    for axis, (before, after) in enumerate(pad_width):
        part = lambda start, size, axis=axis, x=x: x[(slice(None),) * axis + (slice(start, start + size),)]
        x = F.concat([part(x.shape[axis] - before, before), x, part(0, after)], axis)
    return x


def spread(x: Tensor, shape: Any, starts: Any, steps: Any) -> Tensor:
    """Zeros, and x where a slice was."""
    return set_slice(F.zeros(tuple(shape), x.dtype), x, starts, x.shape, steps)


# Where their operators do not give what is asked for (`writing.py`).
DEFINED |= {"slice_grad": spread, "pad": circular, "lstm": lstm, "tap_sum": tap_sum}
