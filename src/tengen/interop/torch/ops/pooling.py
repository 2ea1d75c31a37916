"""Pools over windows, and to a given size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tengen.functional as F
from tengen.functional import windows
from tengen.interop.torch.ops.convolution import one, spread
from tengen.interop.torch.ops.elementwise import div_mode
from tengen.interop.torch.registry import op
from tengen.loops.lang import as_int
from tengen.tensor import Tensor


def _batched(x: Tensor, rank: int) -> tuple[Tensor, bool]:
    return (x, False) if x.ndim == rank + 2 else (F.expand_dims(x, 0), True)


def max_pool(x: Tensor, rank: int, args: Sequence[Any], wanted: frozenset[int]) -> tuple[Tensor, Tensor | None]:
    x, single = _batched(x, rank)
    kernel, stride, padding, dilation, ceil_mode = [*args, *[[], 0, 1, False][len(args) - 1 :]]
    y, index = windows.max_of(x, rank, kernel, stride, padding, dilation, ceil_mode, 1 in wanted)
    return (y[0], None if index is None else index[0]) if single else (y, index)


@op("max_pool2d_with_indices", wants=True)
def max_pool2d_with_indices(x: Tensor, *args: Any, wanted: frozenset[int] = frozenset({0})) -> tuple[Tensor, Tensor | None]:
    """(The largest of each window, where it lies in its plane)."""
    return max_pool(x, 2, args, wanted)


@op("max_pool3d_with_indices", wants=True)
def max_pool3d_with_indices(x: Tensor, *args: Any, wanted: frozenset[int] = frozenset({0})) -> tuple[Tensor, Tensor | None]:
    """(The largest of each window, where it lies in its volume)."""
    return max_pool(x, 3, args, wanted)


for rank in (1, 2, 3):
    op(f"max_pool{rank}d")(lambda x, *args, rank=rank: max_pool(x, rank, args, frozenset({0}))[0])


def average(
    x: Tensor, rank: int, kernel: Any, stride: Any = (), padding: Any = 0, ceil_mode: bool = False, counted: bool = True,
    divisor: int | None = None,
) -> Tensor:  # fmt: skip
    x, single = _batched(x, rank)
    if x.dtype.is_inexact:
        y = windows.mean_of(x, rank, kernel, stride, padding, ceil_mode, counted, divisor)
    else:
        w = windows.Window(x, rank, kernel, stride, padding, 1, ceil_mode)
        counts = divisor if divisor is not None else windows.counts_of(w, counted).astype(x.dtype)
        y = div_mode(windows.sum_of(x, w), counts, rounding_mode="trunc")
    return y[0] if single else y


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
    return y, windows.adaptive_places(x, y, rank)


@op("fractional_max_pool2d")
def fractional_max_pool2d(x: Tensor, kernel: Sequence[int], size: Sequence[int], samples: Tensor) -> tuple[Tensor, Tensor]:
    """(The largest of windows whose steps the samples say, where it lies in its plane)."""
    made = F.fractional_max_pool2d(x, tuple(kernel), tuple(size), return_indices=True, _random_samples=samples)
    assert isinstance(made, tuple)
    return made


@op("fractional_max_pool3d")
def fractional_max_pool3d(x: Tensor, kernel: Sequence[int], size: Sequence[int], samples: Tensor) -> tuple[Tensor, Tensor]:
    """The same of volumes."""
    made = F.fractional_max_pool3d(x, tuple(kernel), tuple(size), return_indices=True, _random_samples=samples)
    assert isinstance(made, tuple)
    return made
