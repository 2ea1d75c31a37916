"""Functions of `torch` that few programs use: differences along axes, common divisors, histograms, copies with a part replaced."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tengen import functional as F
from tengen import linalg
from tengen.base.errors import ArgumentError, ShapeError
from tengen.base.record import NamedTuple
from tengen.functional import numbers
from tengen.functional.numbers import frexp
from tengen.ops.shape import normalize_axes
from tengen.ops.widths import rounded_once
from tengen.pytorch.functions import in_words
from tengen.pytorch.functions.elementwise import as_operand
from tengen.pytorch.functions.shaping import tensor_split
from tengen.tensor import Tensor


class _Histogram(NamedTuple):
    """hist: how much each bin holds. bin_edges: one more than bins."""

    hist: Tensor
    bin_edges: Tensor


@rounded_once
def gradient(input: Tensor, *, spacing: Any = 1, dim: int | Sequence[int] | None = None, edge_order: int = 1) -> tuple[Tensor, ...]:
    """Estimates of the derivatives along axes, by central differences inside and one-sided ones at the edges: a tensor for each axis.

    Args: spacing: the distance of neighbours: a number, one for each axis, or a tensor of coordinates for each. dim: the axes; None: all.
        edge_order: 1 or 2, of the differences at the edges.
    Errors: ArgumentError for another edge_order and for spacings that do not fit; ShapeError for an axis that is shorter than edge_order + 1

    >>> [d.tolist() for d in gradient(Tensor([1.0, 4.0, 9.0, 16.0]))]
    [[3.0, 4.0, 6.0, 7.0]]
    """
    axes = [*range(input.ndim)] if dim is None else normalize_axes(dim, input.ndim)
    given = list(spacing) if isinstance(spacing, (list, tuple)) else [1 if spacing is None else spacing] * len(axes)
    if len(given) != len(axes) or edge_order not in (1, 2):
        raise ArgumentError(f"gradient: {len(given)} spacings for {len(axes)} axes, edge_order={edge_order} (1 or 2)")
    x = input if input.dtype.is_inexact else input.astype("float32")
    return tuple(_derivative(x, axis, h, edge_order) for axis, h in zip(axes, given))


def _derivative(x: Tensor, axis: int, spacing: Any, edge_order: int) -> Tensor:
    n = x.shape[axis]
    if n < edge_order + 1:
        raise ShapeError(f"gradient: axis {axis} of {x.shape} has {n} elements, edge_order={edge_order} needs {edge_order + 1}")
    at = lambda i, j=None: F.moveaxis(x, axis, -1)[..., i] if j is None else F.moveaxis(x, axis, -1)[..., i:j]
    if isinstance(spacing, Tensor) and spacing.ndim == 1:
        d = F.diff(spacing).astype(x.dtype)
        if d.shape != (n - 1,):
            raise ArgumentError(f"gradient: {spacing.shape[0]} coordinates for an axis of {n} elements")
    else:
        d = F.full((n - 1,), float(spacing), x.dtype)
    left, right = d[: n - 2], d[1:]
    square, both = right * right - left * left, left * right * (left + right)
    inside = (at(2, n) * left * left + square * at(1, n - 1) - right * right * at(0, n - 2)) / both
    if edge_order == 1:
        first, last = (at(1) - at(0)) / d[0], (at(n - 1) - at(n - 2)) / d[n - 2]
    else:
        first = _second_order(at(0), at(1), at(2), d[0], d[1])
        last = -_second_order(at(n - 1), at(n - 2), at(n - 3), d[n - 2], d[n - 3])
    parts = [F.expand_dims(first, -1), inside, F.expand_dims(last, -1)]
    return F.moveaxis(F.concat(parts, -1), -1, axis)


def _second_order(a: Tensor, b: Tensor, c: Tensor, h: Tensor, k: Tensor) -> Tensor:
    """The derivative at a, of three elements at distances h and k."""
    return -(2 * h + k) / (h * (h + k)) * a + (h + k) / (h * k) * b - h / (k * (h + k)) * c


def ldexp(input: Tensor, other: Any) -> Tensor:
    """input 2^other."""
    return numbers.ldexp(input, as_operand(other))


def gcd(input: Tensor, other: Any) -> Tensor:
    """The greatest common divisor of integers, not negative; of 0 and 0 it is 0. Errors: DTypeError for floats"""
    return numbers.gcd(as_operand(input), as_operand(other))


def lcm(input: Tensor, other: Any) -> Tensor:
    """The least common multiple of integers, not negative; 0 where one is 0. Errors: DTypeError for floats"""
    return numbers.lcm(as_operand(input), as_operand(other))


def histogram(
    input: Tensor, bins: int | Tensor, *, range: tuple[float, float] | None = None, weight: Tensor | None = None, density: bool = False
) -> _Histogram:
    """How many elements, or how much weight, each bin holds; the last one has both its edges, elements outside are not counted.

    Args: bins: their number, in equal parts of `range` (None: from the least element to the largest), or their rising edges. density:
        divided by the whole and by the width of each bin.
    Errors: ArgumentError for edges that do not rise, and for no bin

    >>> [t.tolist() for t in histogram(Tensor([1.0, 2.0, 1.0]), bins=4, range=(0.0, 3.0))]
    [[0.0, 2.0, 1.0, 0.0], [0.0, 0.75, 1.5, 2.25, 3.0]]
    """
    x = input.detach().reshape(-1)
    if isinstance(bins, Tensor):
        edges = bins.astype(x.dtype)
    else:
        if bins < 1:
            raise ArgumentError(f"histogram: bins={bins} must be at least 1")
        low, high = range if range is not None else (x.min().item(), x.max().item()) if x.size else (0.0, 1.0)
        low, high = (low - 0.5, high + 0.5) if low == high else (low, high)
        edges = F.linspace(low, high, bins + 1, dtype=str(x.dtype))
    if edges.ndim != 1 or edges.shape[0] < 2 or not bool((edges[1:] > edges[:-1]).all()):
        raise ArgumentError("histogram: edges must rise along one axis, of at least two elements")
    n = edges.shape[0] - 1
    places = F.searchsorted(edges, x, right=True) - 1
    places = F.where(F.equal(x, edges[n]), n - 1, places)
    inside = F.logical_and(x >= edges[0], x <= edges[n])
    w = F.ones_like(x) if weight is None else weight.detach().reshape(-1).astype(x.dtype)
    found = F.scatter_add(F.zeros((n,), dtype=str(x.dtype)), 0, F.where(inside, places, 0).astype("int64"), F.where(inside, w, 0.0))
    return _Histogram(found / found.sum() / F.diff(edges) if density else found, edges)


def _with_part(input: Tensor, key: Any, src: Any, what: str) -> Tensor:
    made, part = F.copy(input), input[key]
    if isinstance(src, Tensor) and src.shape != part.shape:
        raise ShapeError(f"{what}: a part of shape {part.shape} takes no tensor of shape {src.shape}")
    made[key] = src
    return made


def select_scatter(input: Tensor, src: Tensor, dim: int, index: int) -> Tensor:
    """A copy of the input whose slice at a position of an axis is `src`. Errors: ShapeError for another shape"""
    return _with_part(input, (*[slice(None)] * (dim % input.ndim), index), src, "select_scatter")


def slice_scatter(input: Tensor, src: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> Tensor:
    """A copy of the input whose slice start:end:step of an axis is `src`. Errors: ShapeError for another shape"""
    return _with_part(input, (*[slice(None)] * (dim % input.ndim), slice(start, end, step)), src, "slice_scatter")


def diagonal_scatter(input: Tensor, src: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """A copy of the input whose diagonal along two axes is `src`. Errors: ShapeError for another shape"""
    moved = F.copy(F.moveaxis(input, (dim1, dim2), (-2, -1)))
    i = np.arange(max(min(moved.shape[-2] - max(-offset, 0), moved.shape[-1] - max(offset, 0)), 0))
    key = (..., Tensor(i + max(-offset, 0)), Tensor(i + max(offset, 0)))
    return F.moveaxis(_with_part(moved, key, src, "diagonal_scatter"), (-2, -1), (dim1, dim2))


def dsplit(input: Tensor, indices_or_sections: Any) -> tuple[Tensor, ...]:
    """Parts along axis 2: so many, or between positions. Errors: ShapeError for fewer than three axes"""
    if input.ndim < 3:
        raise ShapeError(f"dsplit takes a tensor of at least three axes, got shape {input.shape}")
    return tensor_split(input, indices_or_sections, 2)


def index_put(input: Tensor, indices: Sequence[Tensor], values: Any, accumulate: bool = False) -> Tensor:
    """A copy of the input with values at indices; accumulate: added there."""
    return F.copy(input).index_put_(tuple(indices), values, accumulate)


def put(input: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    """A copy of the input with values at places of the flattened tensor; accumulate: added to what is there.

    >>> put(Tensor([[1.0, 2.0]]), Tensor([-1]), Tensor([5.0])).tolist()
    [[1.0, 5.0]]
    """
    flat, at = input.reshape(-1), index.reshape(-1)
    at = F.where(at < 0, at + input.size, at)
    write = F.scatter_add if accumulate else F.scatter
    return write(flat, 0, at, source.reshape(-1)).reshape(input.shape)


def scalar_tensor(s: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
    """A number as a tensor without axes, float32 unless another dtype is given."""
    made = Tensor(s, dtype="float32" if dtype is None else dtype, device=device)
    return made.requires_grad_() if requires_grad else made


def conj_physical(input: Tensor) -> Tensor:
    """The complex conjugate."""
    return F.conj(input)


def resolve_conj(input: Tensor) -> Tensor:
    """The tensor itself: conjugates are computed where they are asked for."""
    return input


resolve_neg = resolve_conj


def logdet(input: Tensor) -> Tensor:
    """The logarithm of the determinant; NaN where it is negative, -inf where it is 0."""
    sign, value = linalg.slogdet(input)
    return F.where(sign < 0, math.nan, value)


def cholesky_solve(input: Tensor, L: Tensor, upper: bool = False) -> Tensor:
    """X of A X = input for A = L L^H; with `upper` L is the other factor, A = L^H L.

    >>> cholesky_solve(Tensor([[8.0]]), Tensor([[2.0]])).tolist()
    [[2.0]]
    """
    first, second = (L.mH, L) if upper else (L, L.mH)
    return linalg.solve_triangular(second, linalg.solve_triangular(first, input, upper=False), upper=True)


def cholesky_inverse(L: Tensor, upper: bool = False) -> Tensor:
    """The inverse of A = L L^H; with `upper` of A = L^H L."""
    return cholesky_solve(F.eye(L.shape[-1], dtype=L.dtype), L, upper)


def fake_quantize_per_tensor_affine(input: Tensor, scale: Any, zero_point: Any, quant_min: int, quant_max: int) -> Tensor:
    """(q - zero_point) * scale for q = input / scale + zero_point, rounded, and cut off at quant_min and quant_max. The gradient goes straight
    through where nothing is cut off.

    >>> fake_quantize_per_tensor_affine(Tensor([-1.0, 0.3, 9.0]), 0.5, 1, 0, 7).tolist()
    [-0.5, 0.5, 3.0]
    """
    return fake_quantize_per_channel_affine(input, scale, zero_point, None, quant_min, quant_max)


def fake_quantize_per_channel_affine(input: Tensor, scale: Any, zero_point: Any, axis: int | None, quant_min: int, quant_max: int) -> Tensor:
    """`fake_quantize_per_tensor_affine` with a scale and a zero point for each index of an axis. Errors: ArgumentError for bounds in the wrong
    order"""
    if quant_min > quant_max:
        raise ArgumentError(f"fake_quantize: quant_min={quant_min} is above quant_max={quant_max}")
    factors, zeros = (v.detach() if isinstance(v, Tensor) else Tensor(v, dtype=d) for v, d in ((scale, "float32"), (zero_point, "int32")))
    if axis is not None:
        shape = [-1 if i == axis % input.ndim else 1 for i in range(input.ndim)]
        factors, zeros = factors.reshape(shape), zeros.reshape(shape)
    return F.fake_quantize(input, factors, zeros.astype("int32"), quant_min, quant_max).astype(input.dtype)


__all__ = [
    "cholesky_inverse", "cholesky_solve", "fake_quantize_per_channel_affine", "fake_quantize_per_tensor_affine",
    "conj_physical", "diagonal_scatter", "dsplit", "frexp", "gcd", "gradient", "histogram", "index_put", "lcm", "ldexp", "logdet", "put",
    "resolve_conj",
    "resolve_neg", "scalar_tensor", "select_scatter", "slice_scatter",
]  # fmt: skip
in_words(globals(), __all__)
