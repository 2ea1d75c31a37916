"""Pools over windows, and to a given size."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

import tengen.functional as F
from tengen.base.dtype import bool_
from tengen.interop.networks.places import is_zero, window_count
from tengen.interop.torch.ops.convolution import one, spread
from tengen.interop.torch.ops.elementwise import div_mode
from tengen.interop.torch.registry import op
from tengen.loops.lang import as_int
from tengen.tensor import Tensor

MAX = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}
AVERAGE = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}


class Window:
    """The windows of a pool on the last axes of a tensor.

    Attributes:
        outs: how many windows there are along each axis. beyond: how far the last window of `ceil_mode` reaches behind the padding.
    """

    def __init__(
        self, x: Tensor, rank: int, kernel: Any, stride: Any, padding: Any, dilation: Any = 1, ceil_mode: bool = False
    ):
        self.rank, self.kernel = rank, spread(kernel, rank)
        self.stride = spread(stride, rank) if stride not in ([], ()) and stride is not None else self.kernel
        self.padding, self.dilation = spread(padding, rank), spread(dilation, rank)
        self.space = x.shape[-rank:]
        self.outs: list[Any] = []
        self.beyond: list[Any] = []
        for e, k, s, p, d in zip(self.space, self.kernel, self.stride, self.padding, self.dilation):
            out, beyond = window_count(e, p, p, (k - 1) * d + 1, s, ceil_mode)
            self.outs.append(out)
            self.beyond.append(beyond)

    @property
    def plain(self) -> bool:
        """Whether the pools of the house take it."""
        return is_zero(*self.beyond) and all(d == 1 for d in self.dilation)

    def surrounded(self, x: Tensor, fill: Any) -> Tensor:
        """x with what its windows read around it."""
        more = [(p, p + b) for p, b in zip(self.padding, self.beyond)]
        return x if is_zero(*(w for pair in more for w in pair)) else F.pad(x, [(0, 0)] * (x.ndim - self.rank) + more, "constant", fill)

    def of(self, x: Tensor, fill: Any) -> Tensor:
        """(N, C, *outs, taps): the elements under each window."""
        x = self.surrounded(x, fill)
        for i in range(self.rank):
            axis = 2 + 2 * i
            index = np.arange(self.outs[i])[:, None] * self.stride[i] + np.arange(self.kernel[i])[None] * self.dilation[i]
            x = F.take(x, Tensor(index.astype(np.int64)), axis)
        order = [0, 1, *(2 + 2 * i for i in range(self.rank)), *(3 + 2 * i for i in range(self.rank))]
        x = F.permute(x, tuple(order))
        return x.reshape(*x.shape[: 2 + self.rank], math.prod(self.kernel))

    def places(self, x: Tensor) -> Tensor:
        """(1, 1, *outs, taps): where the elements under each window lie in the flattened plane; -1 in padding."""
        plane = np.arange(math.prod(self.space), dtype=np.int64).reshape(1, 1, *self.space)
        return self.of(Tensor(plane), -1)


def _batched(x: Tensor, rank: int) -> tuple[Tensor, bool]:
    return (x, False) if x.ndim == rank + 2 else (F.expand_dims(x, 0), True)


def lowest(x: Tensor) -> Any:
    """What no maximum takes."""
    return -np.inf if x.dtype.is_inexact else 0 if x.dtype is bool_ else int(np.iinfo(x.dtype.numpy).min)


def max_pool(x: Tensor, rank: int, args: Sequence[Any], wanted: frozenset[int]) -> tuple[Tensor, Tensor | None]:
    x, single = _batched(x, rank)
    kernel, stride, padding, dilation, ceil_mode = [*args, *[[], 0, 1, False][len(args) - 1 :]]
    w = Window(x, rank, kernel, stride, padding, dilation, ceil_mode)
    index = None
    if 1 in wanted or not x.dtype.is_inexact or any(d != 1 for d in w.dilation):
        found = w.of(x, lowest(x))
        best = F.argmax(found, -1, keepdims=True)
        y = F.gather(found, found.ndim - 1, best)[..., 0]
        if 1 in wanted:
            index = F.gather(F.broadcast_to(w.places(x), found.shape), found.ndim - 1, best)[..., 0]
    elif w.plain:
        y = MAX[rank](x, one(w.kernel), one(w.stride), one(w.padding))
    else:
        y = MAX[rank](w.surrounded(x, lowest(x)), one(w.kernel), one(w.stride), 0)
    return (y[0], None if index is None else index[0]) if single else (y, index)


@op("max_pool2d_with_indices", wants=True)
def max_pool2d_with_indices(x: Tensor, *args: Any, wanted: frozenset[int] = frozenset({0})) -> tuple[Tensor, Tensor | None]:
    """(The largest of each window, where it lies in its plane)."""
    return max_pool(x, 2, args, wanted)


@op("max_pool3d_with_indices", wants=True)
def max_pool3d_with_indices(x: Tensor, *args: Any, wanted: frozenset[int] = frozenset({0})) -> tuple[Tensor, Tensor | None]:
    """(The largest of each window, where it lies in its volume)."""
    return max_pool(x, 3, args, wanted)


for rank in MAX:
    op(f"max_pool{rank}d")(lambda x, *args, rank=rank: max_pool(x, rank, args, frozenset({0}))[0])


def average(
    x: Tensor, rank: int, kernel: Any, stride: Any = (), padding: Any = 0, ceil_mode: bool = False, counted: bool = True,
    divisor: int | None = None,
) -> Tensor:  # fmt: skip
    x, single = _batched(x, rank)
    w = Window(x, rank, kernel, stride, padding, 1, ceil_mode)
    if divisor is None and w.plain and x.dtype.is_inexact:
        y = AVERAGE[rank](
            x, one(w.kernel), one(w.stride), one(w.padding), "average" if counted else "average_count_exclude_padding"
        )
    else:
        counts = divisor if divisor is not None else Tensor(_counts(w, counted).astype(x.dtype.numpy))
        total = F.sum(w.of(x, 0), -1)
        y = total / counts if x.dtype.is_inexact else div_mode(total, counts, rounding_mode="trunc")
    return y[0] if single else y


def _counts(w: Window, counted: bool) -> np.ndarray:
    """How many elements each window averages: those of the image, or also those of the padding, never what lies behind that."""
    total: Any = np.ones(())
    for e, k, s, p, out in zip(w.space, w.kernel, w.stride, w.padding, w.outs):
        first = np.arange(out) * s - p
        low, high = (-p, e + p) if counted else (0, e)
        total = total[..., None] * (np.minimum(first + k, high) - np.maximum(first, low))
    return total


op("avg_pool1d")(lambda x, *args: average(x, 1, *args))
op("avg_pool2d")(lambda x, *args: average(x, 2, *args))
op("avg_pool3d")(lambda x, *args: average(x, 3, *args))


def adaptive(f: Any, x: Tensor, rank: int, size: Any) -> Tensor:
    x, single = _batched(x, rank)
    sizes = spread(size, rank)
    if all(as_int(s) == 1 for s in sizes):
        axes = tuple(range(2, 2 + rank))
        y = (F.mean if f in ADAPTIVE.values() else F.max)(x, axes, keepdims=True)
    else:
        y = f(x, one(sizes))
    return y[0] if single else y


ADAPTIVE = {1: F.adaptive_avg_pool1d, 2: F.adaptive_avg_pool2d, 3: F.adaptive_avg_pool3d}
ADAPTIVE_MAX = {1: F.adaptive_max_pool1d, 2: F.adaptive_max_pool2d, 3: F.adaptive_max_pool3d}
for rank, name in ((1, "adaptive_avg_pool1d"), (2, "_adaptive_avg_pool2d"), (3, "_adaptive_avg_pool3d")):
    op(name)(lambda x, size, rank=rank: adaptive(ADAPTIVE[rank], x, rank, size))
for rank in (2, 3):
    op(f"adaptive_avg_pool{rank}d")(lambda x, size, rank=rank: adaptive(ADAPTIVE[rank], x, rank, size))


@op("adaptive_max_pool2d", wants=True)
def adaptive_max_pool2d(x: Tensor, size: Any, *, wanted: frozenset[int] = frozenset({0})) -> tuple[Tensor, Tensor | None]:
    """(The largest of each part, where it lies in its plane)."""
    return _adaptive_max(x, size, 2, wanted)


@op("adaptive_max_pool3d", wants=True)
def adaptive_max_pool3d(x: Tensor, size: Any, *, wanted: frozenset[int] = frozenset({0})) -> tuple[Tensor, Tensor | None]:
    """(The largest of each part, where it lies in its volume)."""
    return _adaptive_max(x, size, 3, wanted)


def _adaptive_max(x: Tensor, size: Any, rank: int, wanted: frozenset[int]) -> tuple[Tensor, Tensor | None]:
    y = adaptive(ADAPTIVE_MAX[rank], x, rank, size)
    if 1 not in wanted:
        return y, None
    space = x.shape[-rank:]
    places = F.broadcast_to(F.arange(math.prod(space), dtype="int64").reshape(space), x.shape)
    found, sizes = F.zeros(y.shape, "int64"), spread(size, rank)
    for cell in np.ndindex(*y.shape[-rank:]):  # the position of each part's first largest element
        bounds = tuple(slice(i * n // o, -(-(i + 1) * n // o)) for i, n, o in zip(cell, space, sizes))
        part, where = x[(..., *bounds)], places[(..., *bounds)]
        best = F.argmax(F.flatten(part, -rank), -1, keepdims=True)
        found[(..., *cell)] = F.gather(F.flatten(where, -rank), best.ndim - 1, best)[..., 0]
    return y, found
