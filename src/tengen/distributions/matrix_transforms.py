"""Transforms whose results are probabilities or matrices. Names and arguments are PyTorch's."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tengen import functional as F
from tengen import linalg
from tengen.base.errors import ShapeError
from tengen.distributions.constraints import (
    corr_cholesky,
    independent,
    lower_cholesky,
    positive_definite,
    real,
    real_vector,
    simplex,
)
from tengen.distributions.transforms import Transform
from tengen.tensor import Tensor


class SoftmaxTransform(Transform):
    """Vectors of K numbers to K probabilities by softmax. The inverse is the logarithm: vectors that differ by a constant become the same.

    >>> SoftmaxTransform()(Tensor([0.0, 0.0])).tolist()
    [0.5, 0.5]
    """

    event_dim = 1
    domain, codomain, inner, bijective = real_vector, simplex, 0.5, False

    def _call(self, x: Tensor) -> Tensor:
        return F.softmax(x, -1)

    def _inverse(self, y: Tensor) -> Tensor:
        return F.log(y)


class LowerCholeskyTransform(Transform):
    """Square matrices to lower triangular ones with a positive diagonal: the exponential of the diagonal, and zeros above it.

    >>> LowerCholeskyTransform()(Tensor([[0.0, 5.0], [3.0, 0.0]])).tolist()
    [[1.0, 0.0], [3.0, 1.0]]
    """

    event_dim = 2
    domain, codomain, inner, bijective = independent(real, 2), lower_cholesky, 1.0, False

    def _call(self, x: Tensor) -> Tensor:
        return _with_diagonal(x, F.exp(F.diagonal(x, 0, -2, -1)))

    def _inverse(self, y: Tensor) -> Tensor:
        return _with_diagonal(y, F.log(F.diagonal(y, 0, -2, -1)))


def _with_diagonal(x: Tensor, diagonal: Tensor) -> Tensor:
    """What is below the diagonal of x, and another diagonal."""
    on = F.eye(x.shape[-1], dtype="bool")
    return F.where(on, F.expand_dims(diagonal, -1), F.tril(x, -1))


class PositiveDefiniteTransform(Transform):
    """Square matrices to positive definite ones: L L^T of what `LowerCholeskyTransform` makes.

    >>> PositiveDefiniteTransform()(Tensor([[0.0, 5.0], [3.0, 0.0]])).tolist()
    [[1.0, 3.0], [3.0, 10.0]]
    """

    event_dim = 2
    domain, codomain, inner, bijective = independent(real, 2), positive_definite, 1.0, False

    def _call(self, x: Tensor) -> Tensor:
        factor = LowerCholeskyTransform()(x)
        return factor @ F.swapaxes(factor, -1, -2)

    def _inverse(self, y: Tensor) -> Tensor:
        return LowerCholeskyTransform().inverse_of(linalg.cholesky(y))


class CorrCholeskyTransform(Transform):
    """Vectors of D (D - 1) / 2 numbers to lower triangular factors of D by D correlation matrices: rows of length 1, a positive diagonal.

    The numbers stand below the diagonal, row by row. tanh of each is the share of the row's length that is left to it: element j of row i is
    t_j (1 - t_0^2)^(1/2) ... (1 - t_(j-1)^2)^(1/2), and the last element what is left.

    Errors: ShapeError for vectors of another extent than 0, 1, 3, 6, ...
    Numerics: log(1 - tanh(x)^2) is computed of x, and what is left of a row as the sum of the squares behind, neither of which cancels.

    >>> CorrCholeskyTransform()(Tensor([0.0, 0.0, 0.0])).tolist()
    [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    """

    event_dim, more_axes = 1, 1
    domain, codomain, inner = real_vector, corr_cholesky, 0.5

    def _call(self, x: Tensor) -> Tensor:
        n = self._extent(x.shape)
        below = np.tri(n, k=-1, dtype=bool)
        at = np.zeros((n, n), np.int32)
        at[below] = np.arange(x.shape[-1])
        if not x.shape[-1]:
            return F.ones((*x.shape[:-1], 1, 1), x.dtype)
        spread = F.where(Tensor(below), F.reshape(F.take(x, Tensor(at.ravel()), -1), (*x.shape[:-1], n, n)), 0.0)
        left = F.exp(0.5 * F.cumsum(_log_left(spread), -1))
        before = F.concat([F.ones((*x.shape[:-1], n, 1), x.dtype), left[..., :-1]], -1)
        return F.where(Tensor(np.eye(n, dtype=bool)), before, F.tanh(spread) * before)

    def _inverse(self, y: Tensor) -> Tensor:
        n = y.shape[-1]
        behind = F.cumsum(y * y, -1, reverse=True)[..., 1:]
        rows, columns = np.tril_indices(n, -1)
        pick = lambda m: F.take(
            F.reshape(m, (*m.shape[:-2], m.shape[-2] * m.shape[-1])), Tensor((rows * m.shape[-1] + columns).astype(np.int32)), -1
        )
        return F.asinh(pick(y[..., :-1]) / F.sqrt(pick(behind)))  # atanh of t, where t / sqrt(1 - t^2) is known

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        rows, columns = np.tril_indices(self._extent(x.shape), -1)
        times = 1.0 + 0.5 * (rows - 1 - columns)  # its own slope, and half of it in each element behind
        return (_log_left(x) * Tensor(times, dtype=x.dtype)).sum(-1)

    def _extent(self, shape: Sequence[int]) -> int:
        """D of vectors of D (D - 1) / 2."""
        length = shape[-1] if len(shape) else -1
        n = (1 + math.isqrt(1 + 8 * max(length, 0))) // 2
        if length != n * (n - 1) // 2:
            raise ShapeError(f"CorrCholeskyTransform: vectors (..., D (D - 1) / 2) are needed, as of 1, 3 or 6 elements, got {tuple(shape)}")
        return n

    def forward_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        n = self._extent(shape)
        return (*shape[:-1], n, n)

    def inverse_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        if len(shape) < 2 or shape[-1] != shape[-2]:
            raise ShapeError(f"CorrCholeskyTransform: its results are square matrices, not {tuple(shape)}")
        return (*shape[:-2], shape[-1] * (shape[-1] - 1) // 2)


def _log_left(x: Tensor) -> Tensor:
    """log(1 - tanh(x)^2)."""
    away = abs(x)
    return 2.0 * (math.log(2.0) - away - F.softplus(-2.0 * away))


__all__ = ["CorrCholeskyTransform", "LowerCholeskyTransform", "PositiveDefiniteTransform", "SoftmaxTransform"]
