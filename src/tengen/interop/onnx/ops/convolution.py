"""Convolutions of one, two and three dimensions, transposed, deformable; windows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import tengen.functional as F
from tengen.functional.windows import is_zero, larger, smaller
from tengen.interop.networks.places import MOST, modest, product, same_paddings
from tengen.interop.onnx.reader import NodeOf
from tengen.interop.onnx.registry import op
from tengen.interop.onnx.values import Value, as_tensor, ints
from tengen.loops.lang import as_int
from tengen.tensor import Tensor

CONV = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
TRANSPOSED = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}


def paddings(
    n: NodeOf, extents: Sequence, kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int]
) -> tuple[list[Any], list[Any]]:
    """What is added before and after each axis, by `pads` or `auto_pad`."""
    rank, auto = len(kernel), n.get("auto_pad", "NOTSET")
    if auto in ("NOTSET", ""):
        pads = n.get("pads") or [0] * (2 * rank)
        return list(pads[:rank]), list(pads[rank:])
    if auto == "VALID":
        return [0] * rank, [0] * rank
    before, after = [], []
    for e, k, s, d in zip(extents, kernel, stride, dilation):
        total = same_paddings(e, (k - 1) * d + 1, s)
        lo = total // 2 if auto == "SAME_UPPER" else total - total // 2
        before.append(lo)
        after.append(total - lo)
    return before, after


def surrounded(t: Tensor, before: Sequence, after: Sequence, fill: Any = 0) -> Tensor:
    """Pads the axes after the first two."""
    if is_zero(*before, *after):
        return t
    return F.pad(t, [(0, 0), (0, 0), *zip(before, after)], "constant", fill)


@op("Conv")
def conv(n: NodeOf, x: Value, w: Value, b: Value = None) -> Value:
    """A cross-correlation."""
    return convolved(n, as_tensor(x), as_tensor(w), None if b is None else as_tensor(b))


def convolved(n: NodeOf, t: Tensor, w: Tensor, b: Tensor | None, by: Callable[..., Tensor] | None = None) -> Tensor:
    """A convolution with the node's attributes; by: another function of (image, filters, stride, padding, dilation, groups) that makes it."""
    rank = len(w.shape) - 2
    stride, dilation = n.get("strides") or [1] * rank, n.get("dilations") or [1] * rank
    before, after = paddings(n, t.shape[2:], w.shape[2:], stride, dilation)
    if not all(isinstance(p, int) for p in before) or before != after:
        t, before = surrounded(t, before, after), [0] * rank
    if rank not in CONV:
        raise ValueError(f"a convolution over {rank} axes; 1, 2 and 3 are known here")
    groups, bias = n.get("group", 1), None if b is None else b.reshape(1, -1, *[1] * rank)
    one = lambda v: v[0] if rank == 1 else tuple(v)
    if groups > 1:
        w = w.reshape(groups, w.shape[0] // groups, *w.shape[1:])
    if by is not None:
        y = by(t, w, stride, before, dilation, groups)
        return y if bias is None else y + bias
    return CONV[rank](t, w, bias, one(stride), one(before), one(dilation), groups)


@op("ConvTranspose")
def conv_transpose(n: NodeOf, x: Value, w: Value, b: Value = None) -> Value:
    """The gradient of a convolution by its input; `pads` are cut off its result."""
    t, weight = as_tensor(x), as_tensor(w)
    rank = len(weight.shape) - 2
    kernel, groups = weight.shape[2:], n.get("group", 1)
    stride, dilation = n.get("strides") or [1] * rank, n.get("dilations") or [1] * rank
    more = n.get("output_padding") or [0] * rank
    full = [(e - 1) * s + (k - 1) * d + 1 for e, s, k, d in zip(t.shape[2:], stride, kernel, dilation)]
    wanted = n.get("output_shape")
    if wanted:
        wanted = wanted[-rank:]
    elif n.get("auto_pad", "NOTSET") in ("SAME_UPPER", "SAME_LOWER"):
        wanted = [e * s for e, s in zip(t.shape[2:], stride)]
    if wanted:
        total = [f + m - o for f, m, o in zip(full, more, wanted)]
        upper = n.get("auto_pad") == "SAME_UPPER"
        before = [larger(v, 0) // 2 if upper else (larger(v, 0) + 1) // 2 for v in total]
        after = [v - lo for v, lo in zip(total, before)]
    else:
        pads = n.get("pads") or [0] * (2 * rank)
        before, after = list(pads[:rank]), list(pads[rank:])
    one = lambda v: v[0] if rank == 1 else tuple(v)
    if groups > 1:
        weight = weight.reshape(groups, weight.shape[0] // groups, *weight.shape[1:])
    y = TRANSPOSED[rank](t, weight, None, one(stride), one([0] * rank), one([0] * rank), one(dilation), groups)
    tail = [m - hi for m, hi in zip(more, after)]  # what is added at the end, or cut if below zero
    y = surrounded(y, [0] * rank, [larger(v, 0) for v in tail])
    cut = (slice(None), slice(None), *(slice(lo, e + smaller(v, 0)) for lo, e, v in zip(before, y.shape[2:], tail)))
    y = y[cut]
    return y if b is None else y + as_tensor(b).reshape(1, -1, *[1] * rank)


@op("DeformConv")
def deform_conv(n: NodeOf, x: Value, w: Value, offset: Value, b: Value = None, mask: Value = None) -> Value:
    """Each tap of the window reads where its offset says, between pixels by linear interpolation."""
    t, weight, by = as_tensor(x), as_tensor(w), as_tensor(offset)
    batch, channels, height, width = t.shape
    out, _, kh, kw = weight.shape
    stride, dilation = n.get("strides") or [1, 1], n.get("dilations") or [1, 1]
    (top, left, *_), groups, parts = n.get("pads") or [0] * 4, n.get("group", 1), n.get("offset_group", 1)
    oh, ow = by.shape[2:]
    by = by.reshape(batch, parts, kh * kw, 2, oh, ow)
    window = np.stack(np.meshgrid(np.arange(kh) * dilation[0], np.arange(kw) * dilation[1], indexing="ij"), 0).reshape(2, -1)
    place = lambda axis, o, s, p: as_tensor(
        (window[axis].reshape(-1, 1, 1) + (np.arange(o) * s - p).reshape((-1, 1) if axis == 0 else (1, -1))).astype(
            t.dtype.numpy
        )
    )
    y, x_ = by[:, :, :, 0] + place(0, oh, stride[0], top), by[:, :, :, 1] + place(1, ow, stride[1], left)
    source = t.reshape(batch, parts, channels // parts, height * width)
    found: Any = 0
    y0, x0 = F.floor(y), F.floor(x_)
    for dy in (0, 1):
        for dx in (0, 1):
            yy, xx = y0 + dy, x0 + dx
            near = (1 - F.abs(y - yy)) * (1 - F.abs(x_ - xx))
            inside = F.logical_and(
                F.logical_and(F.greater_equal(yy, 0), F.less(yy, height)),
                F.logical_and(F.greater_equal(xx, 0), F.less(xx, width)),
            )
            at = (F.clip(yy, 0, height - 1) * width + F.clip(xx, 0, width - 1)).astype("int32")
            at = F.broadcast_to(at.reshape(batch, parts, 1, -1), (batch, parts, channels // parts, kh * kw * oh * ow))
            taps = F.gather(source, 3, at).reshape(batch, parts, channels // parts, kh * kw, oh, ow)
            found = found + taps * F.expand_dims(F.where(inside, near, F.zeros_like(near)), 2)
    if mask is not None:
        found = found * as_tensor(mask).reshape(batch, parts, 1, kh * kw, oh, ow)
    columns = found.reshape(batch, groups, channels // groups * kh * kw, oh * ow)
    made = F.matmul(weight.reshape(1, groups, out // groups, -1), columns).reshape(batch, out, oh, ow)
    return made if b is None else made + as_tensor(b).reshape(1, -1, 1, 1)


def windows(t: Tensor, kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int], outs: Sequence[int]) -> Tensor:
    """(N, C, *spatial) -> (N, C, *outs, taps): the elements under each window."""
    rank = len(kernel)
    for i in range(rank):
        axis = 2 + 2 * i
        modest(kernel[i])
        taps = np.arange(kernel[i], dtype=np.int64)[None] * dilation[i]
        count = as_int(outs[i])
        if count is None or count * kernel[i] > MOST:
            index = F.arange(outs[i], dtype="int64").reshape(-1, 1) * stride[i] + as_tensor(taps)
        else:
            index = as_tensor(np.arange(outs[i], dtype=np.int64)[:, None] * stride[i] + taps)
        t = F.take(t, index.reshape(-1), axis)
        t = t.reshape(*t.shape[:axis], outs[i], kernel[i], *t.shape[axis + 1 :])
    order = [0, 1, *(2 + 2 * i for i in range(rank)), *(3 + 2 * i for i in range(rank))]
    t = F.transpose(t, order)
    return t.reshape(*t.shape[: 2 + rank], product(kernel))


@op("Col2Im")
def col2im(n: NodeOf, x: Value, image: Value, block: Value) -> Value:
    """(N, C x taps, windows) -> (N, C, *image): windows added where they lie."""
    t, size, kernel = as_tensor(x), ints(image), ints(block)
    rank = len(size)
    stride, dilation = n.get("strides") or [1] * rank, n.get("dilations") or [1] * rank
    pads = n.get("pads") or [0] * (2 * rank)
    wide = [s + pads[i] + pads[i + rank] for i, s in enumerate(size)]
    outs = [(w - (k - 1) * d - 1) // s + 1 for w, k, d, s in zip(wide, kernel, dilation, stride)]
    places: Any = np.zeros([1] * (2 * rank), np.int64)
    for i in range(rank):
        along = np.arange(kernel[i]).reshape([-1 if a == i else 1 for a in range(2 * rank)]) * dilation[i]
        along = along + np.arange(outs[i]).reshape([-1 if a == rank + i else 1 for a in range(2 * rank)]) * stride[i]
        places = places * wide[i] + along
    channels = t.shape[1] // int(np.prod(kernel))
    flat = t.reshape(t.shape[0], channels, -1)
    index = F.broadcast_to(as_tensor(places.reshape(1, 1, -1)), flat.shape)
    empty = F.zeros((t.shape[0], channels, int(np.prod(wide))), t.dtype)
    made = F.scatter(empty, 2, index, flat, "add").reshape(t.shape[0], channels, *wide)
    return made[(slice(None), slice(None), *(slice(pads[i], pads[i] + s) for i, s in enumerate(size)))]
