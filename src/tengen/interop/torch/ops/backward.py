"""Gradients that a program computes itself: ops of PyTorch's own backward walks. They are those of the ops forward, by `vjp`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tengen.functional as F
from tengen.autodiff import vjp
from tengen.interop.torch.ops.convolution import convolution
from tengen.interop.torch.ops.indexing import index_put
from tengen.interop.torch.ops.pooling import ADAPTIVE, adaptive, average, max_pool
from tengen.interop.torch.registry import op
from tengen.tensor import Tensor


def pulled(
    f: Callable[..., Tensor], g: Tensor, xs: Sequence[Tensor | None], wanted: Sequence[bool]
) -> tuple[Tensor | None, ...]:
    """The gradients of f(*xs), weighted by g; None for those that are not wanted or absent."""
    which = [i for i, x in enumerate(xs) if x is not None and wanted[i]]
    if not which:
        return tuple(None for _ in xs)

    def of(*given: Tensor) -> Tensor:
        full = list(xs)
        for i, x in zip(which, given):
            full[i] = x
        return f(*full)

    found = dict(zip(which, vjp(of, *(xs[i] for i in which))[1](g)))
    return tuple(found.get(i) for i in range(len(xs)))


@op("convolution_backward")
def convolution_backward(g: Tensor, x: Tensor, weight: Tensor, bias_sizes: Any, *args: Any) -> tuple[Tensor | None, ...]:
    """The gradients of image, filter and bias."""
    *rest, mask = args
    gx, gw = pulled(lambda x, w: convolution(x, w, None, *rest), g, (x, weight), mask[:2])
    return gx, gw, F.sum(g, (0, *range(2, g.ndim))) if mask[2] else None


@op("max_pool2d_with_indices_backward")
def max_pool_backward(g: Tensor, x: Tensor, *args: Any) -> Tensor | None:
    """To the largest element of each window."""
    return pulled(lambda x: max_pool(x, 2, args[:-1], frozenset({0}))[0], g, (x,), (True,))[0]


@op("avg_pool2d_backward")
def avg_pool_backward(g: Tensor, x: Tensor, *args: Any) -> Tensor | None:
    """In equal parts to the elements of each window."""
    return pulled(lambda x: average(x, 2, *args), g, (x,), (True,))[0]


@op("_adaptive_avg_pool2d_backward")
def adaptive_avg_pool_backward(g: Tensor, x: Tensor) -> Tensor | None:
    """In equal parts to the elements of each part."""
    return pulled(lambda x: adaptive(ADAPTIVE[2], x, 2, list(g.shape[-2:])), g, (x,), (True,))[0]


@op("native_layer_norm_backward")
def layer_norm_backward(
    g: Tensor, x: Tensor, shape: Any, mean: Tensor, inverse: Tensor, weight: Any, bias: Any, mask: Sequence[bool]
) -> tuple[Tensor | None, ...]:
    """The gradients of x, weight and bias; eps is what `inverse` was made with."""
    axes = tuple(range(x.ndim - len(shape)))
    moved = (x - mean) * inverse
    scaled = g if weight is None else g * weight
    inner = tuple(range(x.ndim - len(shape), x.ndim))
    centred = scaled - F.mean(scaled, inner, True) - moved * F.mean(scaled * moved, inner, True)
    total = lambda t: F.sum(t, axes) if axes else t
    return (
        centred * inverse if mask[0] else None,
        total(g * moved) if mask[1] and weight is not None else None,
        total(g) if mask[2] and bias is not None else None,
    )


@op("native_group_norm_backward")
def group_norm_backward(
    g: Tensor, x: Tensor, mean: Tensor, inverse: Tensor, weight: Tensor | None, batch: Any, channels: Any, space: Any, groups: int,
    mask: Sequence[bool],
) -> tuple[Tensor | None, ...]:  # fmt: skip
    """The gradients of x, weight and bias."""
    shape = (x.shape[0], groups, -1)
    m, v = (t.reshape(x.shape[0], groups, 1) for t in (mean, inverse))
    per_channel = (1, -1, *[1] * (x.ndim - 2))
    moved = (x.reshape(shape) - m) * v
    scaled = (g if weight is None else g * weight.reshape(per_channel)).reshape(shape)
    gx = (scaled - F.mean(scaled, 2, True) - moved * F.mean(scaled * moved, 2, True)) * v
    axes = (0, *range(2, x.ndim))
    return (
        gx.reshape(x.shape) if mask[0] else None,
        F.sum(g * moved.reshape(x.shape), axes) if mask[1] else None,
        F.sum(g, axes) if mask[2] else None,
    )


@op("embedding_dense_backward")
def embedding_backward(g: Tensor, index: Tensor, count: Any, padding: int, by_frequency: bool) -> Tensor:
    """Gradients of rows added up; that of the row `padding` is 0. by_frequency: divided by how often a row occurs."""
    width, flat = g.shape[index.ndim :], index.reshape(-1)
    rows = g.reshape(-1, *width)
    if padding >= 0:
        rows = F.where(F.equal(flat, padding).reshape(-1, *[1] * len(width)), 0.0, rows)
    if by_frequency:
        often = F.scatter(F.zeros((count,), "int64"), 0, flat, F.ones(flat.shape, "int64"), "add")
        rows = rows / F.take(often, flat, 0).astype(rows.dtype).reshape(-1, *[1] * len(width))
    return index_put(F.zeros((count, *width), g.dtype), [flat], rows, True)
