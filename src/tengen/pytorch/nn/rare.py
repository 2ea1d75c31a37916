"""Functions of `torch.nn.functional` that few programs use: random slopes, margins of several labels, channels dropped for selu, pooling
that gives positions. What writes its input in place is decided here, too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tengen import functional as F
from tengen.base.errors import ArgumentError, ShapeError
from tengen.functional import embedding_bag as _bag
from tengen.functional import max_unpool1d, max_unpool2d, max_unpool3d
from tengen.linalg import vector_norm
from tengen.ops.calls import all_with_line
from tengen.ops.widths import rounded_once
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
    if not training or p == 0:
        return input
    if input.ndim < 2:
        raise ShapeError(f"feature_alpha_dropout takes (N, C, ...), got shape {input.shape}")
    kept = F.dropout(F.ones((*input.shape[:2], *(1 for _ in input.shape[2:])), dtype=input.dtype), p) * (1 - p)  # 1 or 0
    limit = -1.7580993408473766
    a = (1 - p + p * (1 - p) * limit**2) ** -0.5 if p < 1 else 0.0
    return given(input, a * (input * kept + limit * (1.0 - kept)) - a * p * limit, inplace)


@rounded_once
def multilabel_margin_loss(
    input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean"
) -> Tensor:
    """The sum over labels j of a sample and other classes i of max(0, 1 - (x[j] - x[i])), divided by the number of classes. A row of the target
    holds labels up to the first -1.

    Shapes: (N, C) and (N, C), (C,) and (C,), or a score and a label without axes. Errors: ShapeError for others, and for no classes
    """
    how = reduction_of(size_average, reduce, reduction)
    if input.shape != target.shape or input.ndim > 2 or input.shape[-1:] == (0,):
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
    return reduced(losses if input.ndim == 2 else losses[0], how)


@rounded_once
def embedding_bag(
    input: Tensor, weight: Tensor, offsets: Tensor | None = None, max_norm: float | None = None, norm_type: float = 2,
    scale_grad_by_freq: bool = False, mode: str = "mean", sparse: bool = False, per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False, padding_idx: int | None = None,
) -> Tensor:  # fmt: skip
    """The sum, mean or maximum of the rows of a table that each bag names.

    Args: offsets: where bags begin in an input of one axis. include_last_offset: their last element is where the last bag ends. padding_idx:
        a row that counts in no bag. max_norm, norm_type, scale_grad_by_freq: as of `embedding`.
    Errors: ArgumentError for include_last_offset without offsets; TraceError in a recorded function with padding_idx or include_last_offset
    """
    if max_norm is not None:
        shorten_rows(weight, input, max_norm, norm_type)
    if scale_grad_by_freq:
        weight = by_frequency(weight, input)
    if include_last_offset and offsets is None:
        raise ArgumentError("embedding_bag: include_last_offset=True needs offsets")
    if padding_idx is None and not include_last_offset:
        return _bag(input, weight, offsets, mode, per_sample_weights)
    flat = input.reshape(-1)
    places = F.arange(flat.size, dtype="int64")
    if offsets is None:
        bags, bag = input.shape[0], F.floor_div(places, max(input.shape[1], 1))
        counted = F.ones(flat.shape, "bool")
    else:
        end = int(offsets[-1].item()) if include_last_offset else flat.size
        begins = offsets[:-1] if include_last_offset else offsets
        bags, bag = begins.shape[0], F.searchsorted(begins, places.astype(begins.dtype), True) - 1
        counted = F.logical_and(places < end, bag >= 0)
    if padding_idx is not None:
        counted = F.logical_and(counted, F.not_equal(flat, padding_idx % weight.shape[0]))
    lengths = F.bincount(bag[counted], minlength=bags)
    weights = None if per_sample_weights is None else per_sample_weights.reshape(-1)[counted]
    return _bag(flat[counted], weight, F.cumsum(lengths, 0) - lengths, mode, weights)


def shorten_rows(weight: Tensor, index: Tensor, max_norm: float, norm_type: float) -> None:
    """Writes to a table: the rows that an index names, where their norm is greater than max_norm, become so long."""
    values = weight.detach()
    norms = vector_norm(values, axis=1, ord=norm_type)
    named = F.bincount(index.reshape(-1), minlength=weight.shape[0]) > 0
    factor = F.where(F.logical_and(named, norms > max_norm), max_norm / (norms + 1e-7), 1.0)
    weight.data.copy_(values * F.expand_dims(factor, 1))


def by_frequency(weight: Tensor, index: Tensor) -> Tensor:
    """The table, of whose gradient each row is divided by how often an index names it."""
    often = F.maximum(F.bincount(index.reshape(-1), minlength=weight.shape[0]), 1).astype(weight.dtype)
    return F.straight_through(weight.detach(), weight / F.expand_dims(often, 1))


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
