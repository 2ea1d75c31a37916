"""Sums and their like, products of matrices, order, and what chooses elements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import tengen.functional as F
from tengen.interop.networks.places import product
from tengen.interop.networks.values import as_tensor, ints, known
from tengen.interop.tflite.ops.elementwise import fused
from tengen.interop.tflite.reader import OpOf
from tengen.interop.tflite.registry import op
from tengen.tensor import Tensor


def axes_of(x: Any, axes: Any) -> list[int]:
    """Axes that are counted from the beginning, each once."""
    rank = len(x.shape)
    found = sorted({a + rank * (a < 0) for a in ints(axes)})
    if any(not 0 <= a < rank for a in found):
        raise ValueError(f"axes {ints(axes)} of {rank}")
    return found


def reduced(t: Tensor, by: Callable[..., Tensor], axes: list[int], keep: bool) -> Tensor:
    """A reduction in the dtype of its operand; over no axis nothing happens."""
    return by(t, axes, keepdims=keep).astype(t.dtype) if axes else t


REDUCTIONS: dict[str, tuple[Callable[..., Tensor], Callable | None]] = {
    "SUM": (F.sum, np.sum), "MEAN": (F.mean, None), "REDUCE_PROD": (F.prod, np.prod), "REDUCE_MAX": (F.max, np.max),
    "REDUCE_MIN": (F.min, np.min), "REDUCE_ANY": (F.any, np.any), "REDUCE_ALL": (F.all, np.all),
}  # fmt: skip


def _reduction(by: Callable[..., Tensor], of_array: Callable | None) -> Callable[..., Any]:
    def compute(n: OpOf, x: Any, axes: Any) -> Any:
        """Over axes, which stay or go."""
        over, keep = axes_of(x, axes), bool(n.get("KeepDims", False))
        if isinstance(x, np.ndarray) and of_array is not None:
            found = np.asarray(of_array(x, tuple(over), keepdims=keep))
            return found if found.dtype == object else found.astype(x.dtype)
        return reduced(as_tensor(x), by, over, keep)

    return compute


for _name, _of in REDUCTIONS.items():
    op(_name)(_reduction(*_of))


@op("ARG_MAX", "ARG_MIN")
def argument(n: OpOf, x: Any, axis: Any) -> Tensor:
    """Where the largest or smallest lies along an axis: the first of several."""
    by = F.argmax if n.op == "ARG_MAX" else F.argmin
    return by(as_tensor(x), axes_of(x, axis)[0]).astype(n.out().dtype)


@op("CUMSUM")
def cumsum(n: OpOf, x: Any, axis: Any) -> Tensor:
    """Running sums, with or without the element itself, from either end."""
    t, at = as_tensor(x), axes_of(x, axis)[0]
    back = (slice(None),) * at + (slice(None, None, -1),)
    t = t[back] if n.get("Reverse", False) else t
    made = F.cumsum(t, at).astype(t.dtype)
    if n.get("Exclusive", False):
        one = [(0, 0)] * len(t.shape)
        one[at] = (1, 0)
        made = F.pad(made, one)[(slice(None),) * at + (slice(0, t.shape[at]),)]
    return made[back] if n.get("Reverse", False) else made


@op("FULLY_CONNECTED")
def fully_connected(n: OpOf, x: Any, w: Any, b: Any = None) -> Tensor:
    """x W.T + b, over the last axis; other axes stay where the operator says so."""
    t, weight = as_tensor(x), as_tensor(w)
    y = F.matmul(rows_of(n, t, weight), weight, transpose_b=True)
    return fused(n, y if b is None else y + as_tensor(b))


def rows_of(n: OpOf, t: Tensor, w: Any) -> Tensor:
    """The operand of a product, as the operator takes it: a matrix, or with all of its axes."""
    if n.get("WeightsFormat", 0):
        raise ValueError("weights in shuffled order")
    return t if n.get("KeepNumDims", False) or len(t.shape) == 2 else t.reshape(-1, int(w.shape[1]))


@op("BATCH_MATMUL")
def batch_matmul(n: OpOf, x: Any, y: Any) -> Tensor:
    """Products of the matrices in the last two axes."""
    return F.matmul(as_tensor(x), as_tensor(y), transpose_a=bool(n.get("AdjX", False)), transpose_b=bool(n.get("AdjY", False)))


@op("TOPK_V2")
def topk(n: OpOf, x: Any, k: Any) -> tuple[Tensor, Tensor]:
    """The k largest along the last axis, and where they are."""
    t = as_tensor(x)
    values, places = F.topk(t, ints(k)[0], descending=True, axis=len(t.shape) - 1)
    return values, places.astype(n.out(1).dtype)


@op("WHERE")
def where(n: OpOf, condition: Any) -> Tensor:
    """The indices of what is true: (count, axes)."""
    if isinstance(condition, np.ndarray):
        return as_tensor(np.stack(np.nonzero(condition), -1).astype(np.int64))
    found = F.nonzero(as_tensor(condition))
    return F.stack([f.astype("int64") for f in found], 1)


@op("UNIQUE")
def unique(n: OpOf, x: Any) -> tuple[Tensor, Tensor]:
    """The distinct elements in the order of their first appearance, and which one each element is."""
    found, first, inverse = np.unique(known(x), return_index=True, return_inverse=True)
    order = np.argsort(first)
    number = np.empty_like(order)
    number[order] = np.arange(len(order))
    return as_tensor(found[order]), as_tensor(number[inverse.reshape(-1)].astype(n.out(1).dtype))


@op("BUCKETIZE")
def bucketize(n: OpOf, x: Any) -> Tensor:
    """In which of the intervals between bounds each element lies."""
    t = as_tensor(x).astype("float32")
    total: Any = F.zeros_like(t).astype("int32")
    for bound in np.asarray(n["Boundaries"], np.float32).tolist():
        total = total + F.greater_equal(t, bound).astype("int32")
    return total


SEGMENTS = {"SUM": "add", "PROD": "mul", "MAX": "max", "MIN": "min"}


@op("SEGMENT_SUM", "UNSORTED_SEGMENT_SUM", "UNSORTED_SEGMENT_PROD", "UNSORTED_SEGMENT_MAX", "UNSORTED_SEGMENT_MIN")
def segments(n: OpOf, x: Any, number: Any, count: Any = None) -> Tensor:
    """Slices of one segment combined: sums, products, largest or smallest."""
    t, at = as_tensor(x), as_tensor(number).astype("int64")
    how = SEGMENTS[n.op.rsplit("_", 1)[1]]
    total = ints(count)[0] if count is not None else int(known(number)[-1]) + 1
    rank = len(at.shape)
    rest = t.shape[rank:]
    width = product(rest)
    if t.dtype.is_inexact:
        least, most = float(np.finfo(t.dtype.numpy).min), float(np.finfo(t.dtype.numpy).max)
    else:
        least, most = int(np.iinfo(t.dtype.numpy).min), int(np.iinfo(t.dtype.numpy).max)
    first = {"add": 0, "mul": 1, "max": least, "min": most}[how]
    inside = at.reshape(-1, 1)
    beyond = F.where(F.logical_and(F.greater_equal(inside, 0), F.less(inside, total)), inside, F.zeros_like(inside) + total)
    places = beyond * width + F.arange(width, dtype="int64").reshape(1, -1)
    ground = F.full(((total + 1) * width,), first, dtype=t.dtype)  # one more, for numbers that are out of range
    made = F.scatter(ground, 0, places.reshape(-1), t.reshape(-1), how)
    return made[: total * width].reshape(total, *rest)
