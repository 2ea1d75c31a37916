"""Pools over windows and over whole pictures."""

from __future__ import annotations

from typing import Any

import numpy as np

import tengen.functional as F
from tengen.functional.windows import is_zero, window_count
from tengen.interop.networks.places import product
from tengen.interop.onnx.ops.convolution import paddings, surrounded, windows
from tengen.interop.onnx.reader import NodeOf
from tengen.interop.onnx.registry import op
from tengen.interop.onnx.values import Value, as_tensor, ints
from tengen.tensor import Tensor

MAX = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}
AVERAGE = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}


class Window:
    """The window of a node on a tensor: kernel, stride, dilation, what is added before and after, and after that for `ceil_mode`."""

    def __init__(self, n: NodeOf, t: Tensor):
        self.kernel = n["kernel_shape"]
        rank = self.rank = len(self.kernel)
        self.stride, self.dilation = n.get("strides") or [1] * rank, n.get("dilations") or [1] * rank
        self.before, self.after = paddings(n, t.shape[2:], self.kernel, self.stride, self.dilation)
        self.outs: list[Any] = []
        self.beyond: list[Any] = []
        for e, k, s, d, lo, hi in zip(t.shape[2:], self.kernel, self.stride, self.dilation, self.before, self.after):
            out, beyond = window_count(e, lo, hi, (k - 1) * d + 1, s, bool(n.get("ceil_mode", 0)))
            self.outs.append(out)
            self.beyond.append(beyond)

    @property
    def plain(self) -> bool:
        """Whether the pools of the house take it: as much before as after and at most half a window, no dilation, nothing beyond."""
        if not all(isinstance(p, int) for p in (*self.before, *self.after)) or not is_zero(*self.beyond):
            return False
        near = all(2 * b <= k for b, k in zip(self.before, self.kernel))
        return self.before == self.after and near and all(d == 1 for d in self.dilation) and self.rank <= 3

    def one(self, v):
        """A number for one axis, a tuple for several."""
        return v[0] if self.rank == 1 else tuple(v)

    def of(self, t: Tensor, fill: Any) -> Tensor:
        """(N, C, *outs, taps)."""
        t = surrounded(t, self.before, [a + b for a, b in zip(self.after, self.beyond)], fill)
        return windows(t, self.kernel, self.stride, self.dilation, self.outs)


def lowest(t: Tensor) -> Any:
    """What no maximum takes."""
    return -np.inf if t.dtype.is_inexact else int(np.iinfo(t.dtype.numpy).min)


@op("MaxPool")
def max_pool(n: NodeOf, x: Value) -> Value | tuple[Value, ...]:
    """And where the largest are, counted in the flattened input."""
    t = as_tensor(x)
    w = Window(n, t)
    if len(n.outputs) == 1 or not n.outputs[1]:
        if w.plain and (t.dtype.is_inexact or t.dtype.size == 1 and t.dtype.is_int):
            return MAX[w.rank](t, w.one(w.kernel), w.one(w.stride), w.one(w.before))
        if t.dtype.is_inexact and all(d == 1 for d in w.dilation) and w.rank <= 3:
            wide = surrounded(t, w.before, [a + b for a, b in zip(w.after, w.beyond)], lowest(t))
            return MAX[w.rank](wide, w.one(w.kernel), w.one(w.stride), 0)
        return F.max(w.of(t, lowest(t)), -1)
    found = w.of(t, lowest(t))
    extents = t.shape[2:]
    order = list(range(len(extents)))
    plane = product(extents)
    numbers = F.arange(plane, dtype="int64").reshape(extents if not n["storage_order"] else extents[::-1])
    numbers = F.transpose(numbers, order[::-1]) if n["storage_order"] else numbers
    places = w.of(numbers.reshape(1, 1, *extents), -1)
    best = F.argmax(found, -1, keepdims=True)
    index = F.gather(F.broadcast_to(places, found.shape), len(found.shape) - 1, best.astype("int32"))[..., 0]
    lead = F.arange(product(t.shape[:2]), dtype="int64").reshape(*t.shape[:2], *[1] * len(extents)) * plane
    return F.max(found, -1), index + lead


@op("MaxUnpool")
def max_unpool(n: NodeOf, x: Value, index: Value, size: Value = None) -> Value:
    """Elements put where MaxPool found them, zeros elsewhere."""
    t, at = as_tensor(x), as_tensor(index)
    kernel = n["kernel_shape"]
    rank = len(kernel)
    stride, pads = n.get("strides") or [1] * rank, n.get("pads") or [0] * (2 * rank)
    natural = [(e - 1) * s - pads[i] - pads[i + rank] + k for i, (e, s, k) in enumerate(zip(t.shape[2:], stride, kernel))]
    made = F.scatter(F.zeros((product(t.shape[:2]) * int(np.prod(natural)),), t.dtype), 0, at.reshape(-1), t.reshape(-1))
    made = made.reshape(*t.shape[:2], *natural)
    if size is None:
        return made
    wanted = ints(size)[2:]
    return F.pad(made, [(0, 0), (0, 0), *((0, w - e) for w, e in zip(wanted, natural))])


@op("AveragePool")
def average_pool(n: NodeOf, x: Value) -> Value:
    """Padding counts or does not; what `ceil_mode` adds never does."""
    t = as_tensor(x)
    w, counted = Window(n, t), bool(n.get("count_include_pad", 0))
    if w.plain:
        mode = "average" if counted else "average_count_exclude_padding"
        return AVERAGE[w.rank](t, w.one(w.kernel), w.one(w.stride), w.one(w.before), mode)
    ones = F.ones((1, 1, *t.shape[2:]), t.dtype)
    if counted:
        ones = F.ones((1, 1, *(e + a + b for e, a, b in zip(t.shape[2:], w.before, w.after))), t.dtype)
        ones = surrounded(ones, [0] * w.rank, w.beyond)
        count = F.sum(windows(ones, w.kernel, w.stride, w.dilation, w.outs), -1)
    else:
        count = F.sum(w.of(ones, 0), -1)
    return F.sum(w.of(t, 0), -1) / count


@op("LpPool")
def lp_pool(n: NodeOf, x: Value) -> Value:
    """The p-norm under each window."""
    t, p = as_tensor(x), n["p"]
    w = Window(n, t)
    return F.pow(F.sum(F.pow(F.abs(w.of(t, 0)), float(p)), -1), 1 / p)


def spatial(t: Tensor) -> list[int]:
    """The axes after the first two."""
    return list(range(2, len(t.shape)))


@op("GlobalAveragePool")
def global_average(n: NodeOf, x: Value) -> Value:
    """The mean of each picture."""
    t = as_tensor(x)
    return F.mean(t, spatial(t), keepdims=True)


@op("GlobalMaxPool")
def global_max(n: NodeOf, x: Value) -> Value:
    """The largest of each picture."""
    t = as_tensor(x)
    return F.max(t, spatial(t), keepdims=True)


@op("GlobalLpPool")
def global_lp(n: NodeOf, x: Value) -> Value:
    """The p-norm of each picture."""
    t, p = as_tensor(x), n["p"]
    return F.pow(F.sum(F.pow(F.abs(t), float(p)), spatial(t), keepdims=True), 1 / p)
