"""Functions of `torch.nn.functional` that few programs use: random slopes, margins of several labels, channels dropped for selu, pooling
that gives positions. What writes its input in place is decided here, too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tengen import functional as F
from tengen.base.errors import ArgumentError, ShapeError
from tengen.functional import embedding_bag as _bag
from tengen.functional import max_unpool1d, max_unpool2d, max_unpool3d
from tengen.ops.calls import all_with_line
from tengen.pytorch.nn.losses import reduced, reduction_of
from tengen.random import uniform
from tengen.tensor import Tensor


def given(input: Tensor, result: Tensor, inplace: bool) -> Tensor:
    """The result; with inplace=True the input itself, which now has its value."""
    return input.copy_(result) if inplace else result


def rrelu(input: Tensor, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False, inplace: bool = False) -> Tensor:
    """x, or a x below 0, where a is drawn for each element between `lower` and `upper` in training, and is their mean otherwise.

    Errors: ArgumentError for a lower that is above upper. Source: Xu et al., arXiv 1505.00853

    >>> rrelu(Tensor([-1.0, 2.0]), 0.25, 0.75).tolist()
    [-0.5, 2.0]
    """
    if not lower <= upper:
        raise ArgumentError(f"rrelu: lower={lower} is above upper={upper}")
    slope = uniform(lower, upper, input.shape).astype(input.dtype) if training else (lower + upper) / 2
    return given(input, F.where(input >= 0, input, input * slope), inplace)


def feature_alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
    """`alpha_dropout` of whole channels of (N, C, ...): those that are dropped become selu's limit, and all are scaled so that mean and
    variance stay. Errors: ShapeError for fewer than two axes"""
    if input.ndim < 2:
        raise ShapeError(f"feature_alpha_dropout takes (N, C, ...), got shape {input.shape}")
    if not training or p == 0:
        return input
    kept = F.dropout(F.ones((*input.shape[:2], *(1 for _ in input.shape[2:])), dtype=input.dtype), p) * (1 - p)  # 1 or 0
    limit = -1.7580993408473766
    a = (1 - p + p * (1 - p) * limit**2) ** -0.5 if p < 1 else 0.0
    return given(input, a * (input * kept + limit * (1.0 - kept)) - a * p * limit, inplace)


def multilabel_margin_loss(
    input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean"
) -> Tensor:
    """The sum over labels j of a sample and other classes i of max(0, 1 - (x[j] - x[i])), divided by the number of classes. A row of the target
    holds labels up to the first -1.

    Shapes: (N, C) and (N, C), or (C,) and (C,). Errors: ShapeError for others
    """
    if input.shape != target.shape or input.ndim not in (1, 2):
        raise ShapeError(f"multilabel_margin_loss takes (N, C) and (N, C), or (C,) and (C,), got {input.shape} and {target.shape}")
    x, t = (input, target) if input.ndim == 2 else (input.reshape(1, -1), target.reshape(1, -1))
    counts = F.cumsum((t < 0).astype("int64"), 1) == 0  # before the first -1
    places = F.where(counts, t.astype("int64"), 0)
    hits = F.one_hot(places, x.shape[1]).astype("float32") * F.expand_dims(counts.astype("float32"), -1)
    is_label = (hits.sum(1) > 0).astype(x.dtype)  # (N, C)
    chosen = F.gather(x, 1, places)  # (N, labels)
    margins = F.relu(1.0 - (F.expand_dims(chosen, 2) - F.expand_dims(x, 1)))  # (N, labels, C)
    counted = F.expand_dims(counts.astype(x.dtype), 2) * F.expand_dims(1.0 - is_label, 1)
    losses = (margins * counted).sum((1, 2)) / x.shape[1]
    return reduced(losses if input.ndim == 2 else losses[0], reduction_of(size_average, reduce, reduction))


def embedding_bag(
    input: Tensor, weight: Tensor, offsets: Tensor | None = None, max_norm: float | None = None, norm_type: float = 2,
    scale_grad_by_freq: bool = False, mode: str = "mean", sparse: bool = False, per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False, padding_idx: int | None = None,
) -> Tensor:  # fmt: skip
    """The sum, mean or maximum of the rows of a table that each bag names. Errors: ArgumentError for max_norm, scale_grad_by_freq,
    include_last_offset and padding_idx, which are not there."""
    for name, value in (("max_norm", max_norm), ("scale_grad_by_freq", scale_grad_by_freq), ("include_last_offset", include_last_offset),
                        ("padding_idx", padding_idx)):  # fmt: skip
        if value is not None and value is not False:
            raise ArgumentError(f"embedding_bag: {name}={value!r} is not there")
    return _bag(input, weight, offsets, mode, per_sample_weights)


def with_indices(pool: Callable) -> Callable:
    """A pooling that gives positions, too: PyTorch's name of `return_indices=True`."""

    def pooled(*args: Any, **kwargs: Any) -> Any:
        return pool(*args, **{**kwargs, "return_indices": True})

    pooled.__name__ = pooled.__qualname__ = f"{pool.__name__}_with_indices"
    pooled.__doc__ = f"(values, positions) of `{pool.__name__}`."
    return pooled


def in_place(f: Callable) -> Callable:
    """The form that writes its input: `relu_` of `relu`."""

    def written(input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        return f(input, *args, **{**kwargs, "inplace": True})

    written.__name__ = written.__qualname__ = f"{f.__name__}_"
    written.__doc__ = f"`{f.__name__}`, written to the input."
    return written


__all__ = [
    "embedding_bag", "feature_alpha_dropout", "max_unpool1d", "max_unpool2d", "max_unpool3d", "multilabel_margin_loss", "rrelu",
]  # fmt: skip
all_with_line(globals(), __all__)
