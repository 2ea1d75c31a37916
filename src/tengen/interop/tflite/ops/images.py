"""Convolutions, pools, resizing and normalisation of pictures (N, height, width, channels)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import tengen.functional as F
from tengen.interop.networks.integers import in_int32
from tengen.interop.networks.places import modest, product, same_paddings
from tengen.interop.networks.values import as_tensor, ints
from tengen.interop.tflite.ops.elementwise import fused
from tengen.interop.tflite.reader import OpOf
from tengen.interop.tflite.registry import op
from tengen.tensor import Tensor

SAME = 0  # of the schema's Padding
WIDEST = 512  # height and width of windows on integers, together


def channels_first(t: Tensor) -> Tensor:
    """(N, *space, C) -> (N, C, *space)."""
    return F.transpose(t, [0, len(t.shape) - 1, *range(1, len(t.shape) - 1)])


def channels_last(t: Tensor) -> Tensor:
    """(N, C, *space) -> (N, *space, C)."""
    return F.transpose(t, [0, *range(2, len(t.shape)), 1])


def paddings(n: OpOf, extents: Sequence, kernel: Sequence, stride: Sequence, dilation: Sequence) -> list[tuple[Any, Any]]:
    """What is added before and after each axis: nothing, or so that the result has an element for each step."""
    if n["Padding"] != SAME:
        return [(0, 0)] * len(kernel)
    found = []
    for e, k, s, d in zip(extents, kernel, stride, dilation):
        total = same_paddings(e, (k - 1) * d + 1, s)
        found.append((total // 2, total - total // 2))
    return found


def surrounded(t: Tensor, pads: Sequence[tuple[Any, Any]], fill: Any = 0) -> Tensor:
    """Pads the axes after the first two."""
    if all(isinstance(v, int) and v == 0 for pair in pads for v in pair):
        return t
    return F.pad(t, [(0, 0), (0, 0), *pads], "constant", fill)


def strides_of(n: OpOf) -> tuple[int, int]:
    """Of two axes. Errors: ValueError for one below 1."""
    found = n["StrideH"], n["StrideW"]
    if min(found) < 1:
        raise ValueError(f"strides {found}")
    return found


def dilations_of(n: OpOf) -> tuple[int, int]:
    """Of two axes. Errors: ValueError for one below 1."""
    found = n.get("DilationHFactor", 1), n.get("DilationWFactor", 1)
    if min(found) < 1:
        raise ValueError(f"dilations {found}")
    return found


def convolved(n: OpOf, t: Tensor, w: Tensor, b: Tensor | None, groups: int, fill: Any = 0) -> Tensor:
    """A convolution of (N, C, H, W) by (O, C / groups, h, w) with the operator's strides: in one dtype, or of integers of 9 bits, exactly."""
    stride, dilation = strides_of(n), dilations_of(n)
    pads = paddings(n, t.shape[2:], w.shape[2:], stride, dilation)
    even = all(isinstance(a, int) and a == b for a, b in pads)
    before = tuple(a for a, _ in pads) if even else (0, 0)
    t = t if even else surrounded(t, pads, fill)
    if groups > 1:
        w = w.reshape(groups, w.shape[0] // groups, *w.shape[1:])
    if b is None and in_int32(t, w, w.shape[-3:]):
        return F.conv_int(t, w, stride, before, dilation, groups)
    return F.conv2d(t, w, None if b is None else b.reshape(1, -1, 1, 1), stride, before, dilation, groups)


def filters(w: Tensor) -> Tensor:
    """(O, h, w, C) -> (O, C, h, w)."""
    return F.transpose(w, [0, 3, 1, 2])


def groups_of(t: Tensor, w: Tensor) -> int:
    """In how many parts the channels are convolved, each with filters of its own."""
    have, of_filter = int(t.shape[1]), int(w.shape[1])
    if have % of_filter or int(w.shape[0]) % (have // of_filter):
        raise ValueError(f"filters {tuple(w.shape)} for {have} channels")
    return have // of_filter


@op("CONV_2D")
def conv_2d(n: OpOf, x: Any, w: Any, b: Any = None) -> Tensor:
    """A cross-correlation."""
    t, weight = channels_first(as_tensor(x)), filters(as_tensor(w))
    y = convolved(n, t, weight, None if b is None else as_tensor(b), groups_of(t, weight))
    return channels_last(fused(n, y))


def depthwise_filters(t: Tensor, w: Tensor) -> Tensor:
    """(1, h, w, C m) -> (C m, 1, h, w). Errors: ValueError for filters that do not fit the channels."""
    if w.shape[0] != 1 or int(w.shape[3]) % int(t.shape[1]):
        raise ValueError(f"filters {tuple(w.shape)} for {t.shape[1]} channels")
    return F.transpose(w, [3, 0, 1, 2])


@op("DEPTHWISE_CONV_2D")
def depthwise_conv_2d(n: OpOf, x: Any, w: Any, b: Any = None) -> Tensor:
    """Each channel by filters of its own."""
    t = channels_first(as_tensor(x))
    y = convolved(n, t, depthwise_filters(t, as_tensor(w)), None if b is None else as_tensor(b), int(t.shape[1]))
    return channels_last(fused(n, y))


def transposed(n: OpOf, t: Tensor, w: Tensor, wanted: Sequence[int]) -> Tensor:
    """The transpose of a convolution of (N, C, H, W) by (O, h, w, C), cut to the height and width that are wanted."""
    stride = strides_of(n)
    kernel = [int(k) for k in w.shape[1:3]]
    y = F.conv_transpose2d(t, F.transpose(w, [3, 0, 1, 2]), None, stride, (0, 0), (0, 0), (1, 1), 1)
    return cut(y, wanted, paddings(n, wanted, kernel, stride, (1, 1)))


def cut(y: Tensor, wanted: Sequence[int], pads: Sequence[tuple[Any, Any]]) -> Tensor:
    """(N, C, ...) without what is padded in front, as long as is wanted: with zeros behind where it is shorter."""
    kept: list[Any] = [slice(None), slice(None)]
    more = [(0, 0), (0, 0)]
    for want, have, (lo, _) in zip(wanted, y.shape[2:], pads):
        more.append((0, max(0, want + lo - have)))
        kept.append(slice(lo, lo + want))
    return (F.pad(y, more) if any(b for _, b in more) else y)[tuple(kept)]


@op("TRANSPOSE_CONV")
def transpose_conv(n: OpOf, shape: Any, w: Any, x: Any, b: Any = None) -> Tensor:
    """The gradient of a convolution by its input."""
    y = transposed(n, channels_first(as_tensor(x)), as_tensor(w), ints(shape)[1:3])
    y = y if b is None else y + as_tensor(b).reshape(1, -1, 1, 1)
    return channels_last(fused(n, y))


@op("CONV_3D")
def conv_3d(n: OpOf, x: Any, w: Any, b: Any = None) -> Tensor:
    """A cross-correlation over three axes, by (d, h, w, C, O)."""
    t, weight = channels_first(as_tensor(x)), F.transpose(as_tensor(w), [4, 3, 0, 1, 2])
    stride = n["StrideD"], n["StrideH"], n["StrideW"]
    dilation = n["DilationDFactor"], n["DilationHFactor"], n["DilationWFactor"]
    pads = paddings(n, t.shape[2:], weight.shape[2:], stride, dilation)
    y = F.conv3d(surrounded(t, pads), weight, None if b is None else as_tensor(b).reshape(1, -1, 1, 1, 1), stride, 0, dilation)
    return channels_last(fused(n, y))


@op("CONV_3D_TRANSPOSE")
def conv_3d_transpose(n: OpOf, shape: Any, w: Any, x: Any, b: Any = None) -> Tensor:
    """The gradient of a convolution over three axes by its input, by (d, h, w, O, C)."""
    stride, dilation = (n["StrideD"], n["StrideH"], n["StrideW"]), (n["DilationDFactor"], n["DilationHFactor"], n["DilationWFactor"])
    weight, wanted = F.transpose(as_tensor(w), [4, 3, 0, 1, 2]), ints(shape)[1:4]
    pads = paddings(n, wanted, weight.shape[2:], stride, dilation)
    y = cut(F.conv_transpose3d(channels_first(as_tensor(x)), weight, None, stride, 0, 0, dilation, 1), wanted, pads)
    return channels_last(fused(n, y if b is None else y + as_tensor(b).reshape(1, -1, 1, 1, 1)))


# -- pools -------------------------------------------------------------------------------------------------------------------
def windows_of(n: OpOf, t: Tensor) -> tuple[tuple[int, int], tuple[int, int], list[tuple[Any, Any]]]:
    """The window, its strides, and what is added around. Errors: ValueError for a window below 1."""
    kernel, stride = (n["FilterHeight"], n["FilterWidth"]), strides_of(n)
    pads = paddings(n, t.shape[2:], kernel, stride, (1, 1))
    if min(kernel) < 1:
        raise ValueError(f"a window of {kernel}")
    modest(product([int(e) + a + b for e, (a, b) in zip(t.shape[2:], pads) if isinstance(e, int)]))
    return kernel, stride, pads


def over_windows(
    t: Tensor, kernel: Sequence[int], stride: Sequence[int], combine: Callable[[Tensor, Tensor], Tensor]
) -> Tensor:
    """Combines the elements under each window, one axis after the other: for integers, of which every order gives the same."""
    if sum(kernel) > WIDEST:
        raise ValueError(f"a window of {tuple(kernel)} on integers; {WIDEST} in all are known")
    for axis, (k, s) in enumerate(zip(kernel, stride), 2):
        count = (t.shape[axis] - k) // s + 1
        total: Any = None
        for i in range(k):
            part = t[(slice(None),) * axis + (slice(i, i + (count - 1) * s + 1, s),)]
            total = part if total is None else combine(total, part)
        t = total
    return t


def counts(
    extents: Sequence[int], kernel: Sequence[int], stride: Sequence[int], pads: Sequence[tuple[int, int]], dtype: Any
) -> np.ndarray:
    """How many elements of a picture lie under each window: (1, 1, height, width)."""
    along = []
    for e, k, s, (lo, hi) in zip(extents, kernel, stride, pads):
        modest((e + lo + hi - k) // s + 1)
        first = np.arange((e + lo + hi - k) // s + 1) * s - lo
        along.append(np.minimum(first + k, e) - np.maximum(first, 0))
    return (along[0][:, None] * along[1][None]).astype(dtype)[None, None]


@op("AVERAGE_POOL_2D")
def average_pool(n: OpOf, x: Any) -> Tensor:
    """The mean of what lies under a window; what is added around does not count."""
    t = channels_first(as_tensor(x))
    kernel, stride, pads = windows_of(n, t)
    if all(isinstance(v, int) and v == 0 for pair in pads for v in pair):
        y = F.avg_pool2d(t, kernel, stride, 0)
    else:
        y = F.avg_pool2d(surrounded(t, pads), kernel, stride, 0) * float(product(kernel))
        y = y / as_tensor(counts([int(e) for e in t.shape[2:]], kernel, stride, pads, np.float32))
    return channels_last(fused(n, y))


@op("MAX_POOL_2D")
def max_pool(n: OpOf, x: Any) -> Tensor:
    """The largest under a window; for integers with scales within the bounds of a function that follows."""
    t = channels_first(as_tensor(x))
    kernel, stride, pads = windows_of(n, t)
    if t.dtype.is_inexact:
        return channels_last(fused(n, F.max_pool2d(surrounded(t, pads, -np.inf), kernel, stride, 0)))
    return channels_last(over_windows(surrounded(t, pads, int(np.iinfo(t.dtype.numpy).min)), kernel, stride, F.maximum))


@op("L2_POOL_2D")
def l2_pool(n: OpOf, x: Any) -> Tensor:
    """The root of the mean of squares under a window."""
    t = as_tensor(x)
    plain = channels_first(t * t)
    kernel, stride, pads = windows_of(n, plain)
    y = F.avg_pool2d(surrounded(plain, pads), kernel, stride, 0) * float(product(kernel))
    y = y / as_tensor(counts([int(e) for e in plain.shape[2:]], kernel, stride, pads, np.float32))
    return channels_last(fused(n, F.sqrt(y)))


# -- resizing ----------------------------------------------------------------------------------------------------------------
def scale_of(n: OpOf, size: int, out: int) -> np.float32:
    """Pixels of the picture for one of the result."""
    if n.get("AlignCorners", False) and out > 1:
        return np.float32(size - 1) / np.float32(out - 1)
    return np.float32(size) / np.float32(out)


def sizes_of(n: OpOf, t: Tensor, size: Any) -> list[tuple[int, int, int]]:
    """(axis, extent, extent of the result) of the two axes that are resized. Errors: ValueError for one below 1."""
    found = [(axis, int(t.shape[axis]), out) for axis, out in zip((1, 2), ints(size))]
    if len(found) < 2 or min(out for _, _, out in found) < 1 or len(t.shape) != 4:
        raise ValueError(f"a picture {tuple(t.shape)} made {ints(size)}")
    modest(max(out for _, _, out in found))
    return found


@op("RESIZE_BILINEAR")
def resize_bilinear(n: OpOf, x: Any, size: Any) -> Tensor:
    """By two neighbours along each axis; places are float32, as in the reference."""
    t = as_tensor(x)
    for axis, extent, out in sizes_of(n, t, size):
        at, scale = np.arange(out, dtype=np.float32), scale_of(n, extent, out)
        at = (at + np.float32(0.5)) * scale - np.float32(0.5) if n.get("HalfPixelCenters", False) else at * scale
        low, high = np.maximum(np.floor(at), 0).astype(np.int64), np.minimum(np.ceil(at), extent - 1).astype(np.int64)
        part = (at - low).reshape([-1 if a == axis else 1 for a in range(4)]).astype(np.float32)
        t = F.take(t, as_tensor(low), axis) * as_tensor(1 - part) + F.take(t, as_tensor(high), axis) * as_tensor(part)
    return t


@op("RESIZE_NEAREST_NEIGHBOR")
def resize_nearest(n: OpOf, x: Any, size: Any) -> Tensor:
    """The pixel that lies nearest."""
    t = as_tensor(x)
    for axis, extent, out in sizes_of(n, t, size):
        at = np.arange(out, dtype=np.float32) + np.float32(0.5 if n.get("HalfPixelCenters", False) else 0)
        at = at * scale_of(n, extent, out)
        at = np.trunc(at + np.copysign(np.float32(0.5), at)) if n.get("AlignCorners", False) else np.floor(at)
        t = F.take(t, as_tensor(np.clip(at, 0, extent - 1).astype(np.int64)), axis)
    return t


# -- normalisation -----------------------------------------------------------------------------------------------------------
@op("L2_NORMALIZATION")
def l2_normalization(n: OpOf, x: Any) -> Tensor:
    """Divided by the norm along the last axis, which is at least 1e-6."""
    t = as_tensor(x)
    norm = F.maximum(F.sqrt(F.sum(t * t, -1, keepdims=True)), 1e-6)
    return fused(n, t / norm)


@op("LOCAL_RESPONSE_NORMALIZATION")
def local_response_normalization(n: OpOf, x: Any) -> Tensor:
    """x / (bias + alpha times the sum of squares of channels nearby) ** beta."""
    t, radius = as_tensor(x), n["Radius"]
    channels = int(t.shape[-1])
    if radius < 0:
        raise ValueError(f"a radius of {radius}")
    modest(channels * channels)
    near = np.abs(np.subtract.outer(np.arange(channels), np.arange(channels))) <= radius
    total = F.matmul(t * t, as_tensor(near.astype(np.float32)))
    return t * F.pow(total * float(n["Alpha"]) + float(n["Bias"]), -float(n["Beta"]))
