"""The windows of pools that reach further than the op `max_pool` and `avg_pool` take: behind the image, with gaps, and where in the image the
largest element lies. Extents may be open."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tengen.base.errors import ShapeError
from tengen.loops.lang import as_int, cdiv, decisions, equal, maximum, minimum
from tengen.ops import pool as _pool
from tengen.ops.define import REGISTRY
from tengen.tensor import Tensor

op = REGISTRY


def larger(a: Any, b: Any) -> Any:
    """The larger of two extents, which may be open."""
    return max(a, b) if as_int(a) is not None and as_int(b) is not None else maximum(a, b)


def smaller(a: Any, b: Any) -> Any:
    """The smaller of two extents, which may be open."""
    return min(a, b) if as_int(a) is not None and as_int(b) is not None else minimum(a, b)


def is_zero(*extents: Any) -> bool:
    """Whether all extents are known to be 0."""
    return all(as_int(e) == 0 for e in extents)


def window_count(extent: Any, before: Any, after: Any, span: int, stride: int, ceil_mode: bool) -> tuple[Any, Any]:
    """How many windows of `span` elements a padded axis has, and how far the last one reaches behind the padding.

    With `ceil_mode` the last window may reach behind it, but begins before the padding at the end. The extent may be open.
    """
    room = extent + before + after - span
    if not ceil_mode:
        return room // stride + 1, 0
    count = smaller(cdiv(room, stride), (extent + before - 1) // stride) + 1
    return count, larger((count - 1) * stride - room, 0)


def _spread(v: Any, rank: int) -> list[Any]:
    """A number for each axis of space; a list may have one for all."""
    v = [v] if isinstance(v, int) else list(v)
    if len(v) not in (1, rank):
        raise ShapeError(f"{tuple(v)} must be an int or {rank} ints, one for each axis of space")
    return v * rank if len(v) == 1 else v


class Window:
    """The windows of a pool on the last axes of a tensor.

    Attributes:
        outs: how many windows there are along each axis. beyond: how far the last window of `ceil_mode` reaches behind the padding.
    """

    def __init__(
        self, x: Tensor, rank: int, kernel: Any, stride: Any, padding: Any, dilation: Any = 1, ceil_mode: bool = False
    ):
        self.rank, self.kernel = rank, _spread(kernel, rank)
        self.stride = _spread(stride, rank) if stride not in ([], ()) and stride is not None else self.kernel
        self.padding, self.dilation = _spread(padding, rank), _spread(dilation, rank)
        self.space = x.shape[-rank:]
        self.outs: list[Any] = []
        self.beyond: list[Any] = []
        for e, k, s, p, d in zip(self.space, self.kernel, self.stride, self.padding, self.dilation):
            out, beyond = window_count(e, p, p, (k - 1) * d + 1, s, ceil_mode)
            self.outs.append(out)
            self.beyond.append(beyond)

    @property
    def plain(self) -> bool:
        """Whether the ops `max_pool` and `avg_pool` take it."""
        return is_zero(*self.beyond) and all(d == 1 for d in self.dilation)

    def asks_whether_plain(self) -> bool:
        """The same, and of open extents it is a condition of the recording, where it can be one."""
        asked = decisions.decide is not None and all(d == 1 for d in self.dilation)
        return self.plain or asked and all(is_zero(b) or as_int(b) is None and bool(equal(b, 0)) for b in self.beyond)

    def surrounded(self, x: Tensor, fill: Any) -> Tensor:
        """x with what its windows read around it."""
        more = [(p, p + b) for p, b in zip(self.padding, self.beyond)]
        return x if is_zero(*(w for pair in more for w in pair)) else op["pad"](x, [(0, 0)] * (x.ndim - self.rank) + more, "constant", fill)

    def of(self, x: Tensor, fill: Any) -> Tensor:
        """(N, C, *outs, taps): the elements under each window."""
        x = self.surrounded(x, fill)
        for i in range(self.rank):
            axis = 2 + 2 * i
            taps = np.arange(self.kernel[i], dtype=np.int64) * self.dilation[i]
            x = op["take"](x, (numbers(self.outs[i]) * self.stride[i]).reshape(-1, 1) + Tensor(taps), axis)
        order = [0, 1, *(2 + 2 * i for i in range(self.rank)), *(3 + 2 * i for i in range(self.rank))]
        x = op["permute"](x, tuple(order))
        return x.reshape(*x.shape[: 2 + self.rank], math.prod(self.kernel))

    def places(self, x: Tensor) -> Tensor:
        """(1, 1, *outs, taps): where the elements under each window lie in the flattened plane; -1 in padding."""
        return self.of(numbers(math.prod(self.space)).reshape(1, 1, *self.space), -1)


def numbers(n: Any) -> Tensor:
    """0, 1, ... n - 1. n may be open."""
    return op["arange"](0, n, 1, "int64")


def lowest(x: Tensor) -> Any:
    """What no maximum takes."""
    return -np.inf if x.dtype.is_inexact else 0 if x.dtype.kind == "b" else int(np.iinfo(x.dtype.numpy).min)


def max_of(
    x: Tensor, rank: int, kernel: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False,
    with_index: bool = False,
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    """The largest element of each window of (N, C, *space), and with_index where it lies in its flattened space."""
    w = Window(x, rank, kernel, stride, padding, dilation, ceil_mode)
    if with_index or not x.dtype.is_inexact or any(d != 1 for d in w.dilation):
        found = w.of(x, lowest(x))
        best = op["argmax"](found, -1, True)
        y = op["gather"](found, found.ndim - 1, best)[..., 0]
        if not with_index:
            return y, None
        return y, op["gather"](op["broadcast_to"](w.places(x), found.shape), found.ndim - 1, best)[..., 0]
    if w.plain:
        return _pool.max_pool(x, tuple(w.kernel), tuple(w.stride), tuple(w.padding)), None
    return _pool.max_pool(w.surrounded(x, lowest(x)), tuple(w.kernel), tuple(w.stride), 0), None


def mean_of(
    x: Tensor, rank: int, kernel: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False, counted: bool = True,
    divisor: int | None = None,
) -> Tensor:  # fmt: skip
    """The mean of each window of floats (N, C, *space); what `ceil_mode` adds behind the padding never counts.

    Args: counted: whether padding counts as zeros. divisor: what sums are divided by, whatever counts.
    """
    w = Window(x, rank, kernel, stride, padding, 1, ceil_mode)
    if divisor is None and w.asks_whether_plain():  # the op sums gradients in another order
        mode = "average" if counted else "average_count_exclude_padding"
        return _pool.avg_pool(x, tuple(w.kernel), tuple(w.stride), tuple(w.padding), mode)
    return sum_of(x, w) / (divisor if divisor is not None else counts_of(w, counted).astype(x.dtype))


def sum_of(x: Tensor, w: Window) -> Tensor:
    """The sum of each window."""
    return op["sum"](w.of(x, 0), -1)


def counts_of(w: Window, counted: bool) -> Tensor:
    """How many elements each window averages: those of the image, or also those of the padding, never what lies behind that."""
    total = op["ones"]((), "int64")
    for e, k, s, p, out in zip(w.space, w.kernel, w.stride, w.padding, w.outs):
        first = numbers(out) * s - p
        low, high = (-p, e + p) if counted else (0, e)
        total = op["expand_dims"](total, -1) * (op["minimum"](first + k, high) - op["maximum"](first, low))
    return total


def adaptive_places(x: Tensor, y: Tensor, rank: int) -> Tensor:
    """Where the first largest element of each part lies in its flattened space, for y, the result of adaptive max pooling of x."""
    space = x.shape[-rank:]
    places = op["broadcast_to"](op["reshape"](op["arange"](0, math.prod(space), 1, "int64"), tuple(space)), x.shape)
    found, flat = op["zeros"](y.shape, "int64"), (*x.shape[:-rank], -1)
    for cell in np.ndindex(*y.shape[-rank:]):
        bounds = tuple(slice(i * n // o, -(-(i + 1) * n // o)) for i, n, o in zip(cell, space, y.shape[-rank:]))
        part, where = op["reshape"](x[(..., *bounds)], flat), op["reshape"](places[(..., *bounds)], flat)
        best = op["argmax"](part, -1, True)
        found[(..., *cell)] = op["gather"](where, best.ndim - 1, best)[..., 0]
    return found
