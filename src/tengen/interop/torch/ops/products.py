"""Products of matrices, attention, distances, Fourier transforms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

import tengen.functional as F
from tengen import fft
from tengen.base.errors import ArgumentError
from tengen.interop.torch.dtypes import named, of
from tengen.interop.torch.ops.reduction import rooted
from tengen.interop.torch.registry import op
from tengen.loops.lang import as_int
from tengen.tensor import Tensor


@op("mm", "bmm", "matmul", "mv", "dot")
def matmul(x: Tensor, y: Tensor) -> Tensor:
    """A product of matrices, vectors, or of batches of them."""
    return F.matmul(x, y)


def _plus(x: Tensor, product: Tensor, beta: Any, alpha: Any) -> Tensor:
    product = product if alpha == 1 else product * of(alpha, product.dtype)
    return product if beta == 0 else (x if beta == 1 else x * of(beta, x.dtype)) + product


@op("addmm")
def addmm(x: Tensor, a: Tensor, b: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """beta x + alpha a b."""
    return _plus(x, F.matmul(a, b), beta, alpha)


@op("baddbmm")
def baddbmm(x: Tensor, a: Tensor, b: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """beta x + alpha a b, for batches."""
    return _plus(x, F.matmul(a, b), beta, alpha)


@op("addmv")
def addmv(x: Tensor, a: Tensor, b: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """beta x + alpha a b, of a vector b."""
    return _plus(x, F.matmul(a, b), beta, alpha)


@op("addbmm")
def addbmm(x: Tensor, a: Tensor, b: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """beta x + alpha times the sum of the products of a batch."""
    return _plus(x, F.sum(F.matmul(a, b), 0), beta, alpha)


@op("linear")
def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x weight^T + bias."""
    if weight.ndim == 1:
        y = F.matmul(x, weight)
        return y if bias is None else y + bias
    if x.ndim == 1:
        return F.linear(x.reshape(1, -1), weight, bias).reshape(-1)
    return F.linear(x, weight, bias)


@op("_linear_cross_entropy_batch_chunked", domain="torch_nn")
def linear_cross_entropy(
    x: Tensor, weight: Tensor, target: Tensor, bias: Tensor | None, classes: Tensor | None, reduction: str, ignored: int, *rest: Any
) -> tuple[Tensor, ...]:
    """(The cross entropy of the scores that a linear layer makes, ...). PyTorch computes it in pieces of the batch, with gradients that it
    keeps, the other results; here gradients are taken as of every op."""
    loss = F.loss.cross_entropy(linear(x, weight, bias), target, ignore_index=ignored, reduction=reduction, weight=classes)
    return (loss,)


@op("_linear_cross_entropy_batch_chunked_no_reduction", domain="torch_nn")
def linear_cross_entropies(
    x: Tensor, weight: Tensor, target: Tensor, bias: Tensor | None, classes: Tensor | None, ignored: int, *rest: Any
) -> Tensor:
    """The same of each row."""
    return linear_cross_entropy(x, weight, target, bias, classes, "none", ignored)[0]


@op("_grouped_mm")
@op("grouped_mm_fallback", domain="transformers")
def grouped(
    x: Tensor, weights: Tensor, ends: Tensor | None = None, bias: Tensor | None = None, out_dtype: str | None = None
) -> Tensor:
    """The rows of x up to ends[0] times weights[0], those up to ends[1] times weights[1], and so on: the experts of a mixture. Rows behind
    the last end, which PyTorch leaves as they are, are 0.

    The shapes do not depend on the ends: each matrix multiplies all rows, of which its own are kept.
    """
    if ends is None:
        y = F.matmul(x, weights)
    elif x.ndim != 2 or weights.ndim != 3:
        raise ArgumentError(f"groups of {tuple(x.shape)} by {tuple(weights.shape)}; known are rows of a matrix by a matrix for each group")
    else:
        row = F.arange(x.shape[0], dtype=ends.dtype).reshape(-1, 1)
        starts = F.concat([F.zeros((1,), ends.dtype), ends[:-1]])

        def of_group(y: Tensor, group: tuple[Tensor, Tensor, Tensor]) -> tuple[Tensor, None]:
            weight, start, end = group
            return F.where(F.logical_and(F.greater_equal(row, start), F.less(row, end)), F.matmul(x, weight), y), None

        y, _ = F.scan(of_group, F.zeros((x.shape[0], weights.shape[2]), x.dtype), (weights, starts, ends))
    y = y if bias is None else y + bias
    return y if out_dtype is None else of(y, named(out_dtype))


@op("scaled_dot_product_attention")
def attention(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, dropout: float = 0.0, causal: bool = False,
    *, scale: float | None = None, enable_gqa: bool = False,
) -> Tensor:  # fmt: skip
    """softmax(scale q k^T + mask) v; enable_gqa: several heads of queries share one of keys."""
    if enable_gqa and as_int(k.shape[-3]) != as_int(q.shape[-3]):
        k, v = (F.repeat(x, q.shape[-3] // x.shape[-3], -3) for x in (k, v))
    return F.scaled_dot_product_attention(q, k, v, mask, causal, scale, dropout)


op("outer", "ger")(lambda x, y: x.reshape(-1, 1) * y.reshape(1, -1))


def _distance(size: Tensor, p: float) -> Tensor:
    """The p-norm along the last axis of differences that are not negative; the gradient at 0 is 0."""
    match p:
        case 0.0: return F.sum(F.not_equal(size, 0).astype(size.dtype), -1)  # fmt: skip
        case 1.0: return F.sum(size, -1)  # fmt: skip
        case math.inf: return F.max(size, -1)  # fmt: skip
    return rooted(F.sum(F.square(size) if p == 2.0 else F.pow(size, p), -1), p)


@op("_cdist_forward")
def cdist(x: Tensor, y: Tensor, p: float, mode: int | None = None) -> Tensor:
    """The distances of all pairs of rows."""
    if as_int(x.shape[-1]) == 0:
        return F.zeros((*np.broadcast_shapes(x.shape[:-2], y.shape[:-2]), x.shape[-2], y.shape[-2]), x.dtype)
    return _distance(F.abs(F.expand_dims(x, -2) - F.expand_dims(y, -3)), float(p))


@op("_pdist_forward")
def pdist(x: Tensor, p: float = 2.0) -> Tensor:
    """The distances of all pairs of different rows, the first row's first."""
    i, j = np.triu_indices(int(x.shape[0]), 1)
    return _distance(F.abs(F.take(x, Tensor(i), 0) - F.take(x, Tensor(j), 0)), float(p))


NORMS = {0: "backward", 1: "ortho", 2: "forward"}  # PyTorch's number of a factor 1, 1 / sqrt(n), 1 / n, of a transform forward


@op("_fft_r2c")
def fft_r2c(x: Tensor, dim: Sequence[int], normalization: int, onesided: bool) -> Tensor:
    """The transform of real numbers; one-sided: the half of the last axis that says all."""
    norm = NORMS[normalization]
    return fft.rfftn(x, axes=tuple(dim), norm=norm) if onesided else fft.fftn(x, axes=tuple(dim), norm=norm)


@op("_fft_c2c")
def fft_c2c(x: Tensor, dim: Sequence[int], normalization: int, forward: bool) -> Tensor:
    """The transform of complex numbers, forward or back."""
    return fft.fftn(x, axes=tuple(dim), norm=NORMS[normalization]) if forward else _back(fft.ifftn, x, dim, normalization)


def _back(f: Any, x: Tensor, dim: Sequence[int], normalization: int, **more: Any) -> Tensor:
    """A transform back, whose factor is 1 where PyTorch's number is 0."""
    return f(x, axes=tuple(dim), norm={0: "forward", 1: "ortho", 2: "backward"}[normalization], **more)


@op("_fft_c2r")
def fft_c2r(x: Tensor, dim: Sequence[int], normalization: int, last: int) -> Tensor:
    """The transform back to real numbers, of which the last axis has `last`."""
    sizes = [*(x.shape[d] for d in dim[:-1]), last]
    return _back(fft.irfftn, x, dim, normalization, s=tuple(sizes))


@op("_trilinear")
def trilinear(
    a: Tensor, b: Tensor, c: Tensor, expand1: Sequence[int], expand2: Sequence[int], expand3: Sequence[int], summed: Sequence[int],
    unrolled: int = 1,
) -> Tensor:  # fmt: skip
    """The product of three tensors, each with axes of one put in at places of the result, summed over axes."""
    n = a.ndim + len(expand1)
    axes = [[i for i in range(n) if i not in put] for put in (expand1, expand2, expand3)]
    letters = [chr(ord("a") + i) for i in range(n)]
    named = ",".join("".join(letters[i] for i in of) for of in axes)
    return F.einsum(f"{named}->{''.join(letters[i] for i in range(n) if i not in summed)}", a, b, c)
