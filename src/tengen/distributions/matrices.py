"""Distributions of matrices, and of vectors whose covariance has a low rank: `Wishart`, `LKJCholesky`, `LowRankMultivariateNormal`. Names and
arguments are PyTorch's."""

from __future__ import annotations

import math
import operator
from typing import Any

from tengen import functional as F
from tengen import linalg, random
from tengen.base.errors import ArgumentError, ShapeError
from tengen.distributions.constraints import (
    Constraint,
    corr_cholesky,
    greater_than,
    independent,
    lower_cholesky,
    positive,
    positive_definite,
    real,
    real_vector,
)
from tengen.distributions.distribution import Distribution, as_float, together
from tengen.ops.define import REGISTRY, broadcast_shapes
from tengen.random.state import default_rng
from tengen.tensor import Tensor


def _diagonal(m: Tensor) -> Tensor:
    return F.diagonal(m, 0, -2, -1)


def _on_diagonal(v: Tensor) -> Tensor:
    return F.expand_dims(v, -1) * F.eye(v.shape[-1], dtype=v.dtype)


def _over_halves(f: Any, a: Tensor, n: int) -> Tensor:
    """f(a) + f(a - 1/2) + ... of n terms."""
    return f(F.expand_dims(a, -1) - F.arange(n, dtype=a.dtype.name) * 0.5).sum(-1)


def _multigammaln(a: Tensor, n: int) -> Tensor:
    return _over_halves(F.lgamma, a, n) + n * (n - 1) / 4 * math.log(math.pi)


def _solved(tril: Tensor, m: Tensor) -> Tensor:
    """L^-1 M, of matrices whose leading axes broadcast."""
    lead = broadcast_shapes(tril.shape[:-2], m.shape[:-2])
    wide = lambda x: REGISTRY["broadcast_to"](x, (*lead, *x.shape[-2:]))
    return linalg.solve_triangular(wide(tril), wide(m), upper=False)


class LowRankMultivariateNormal(Distribution):
    """The normal distribution of vectors whose covariance is cov_factor cov_factor^T + diag(cov_diag): with R columns in the factor, densities
    and samples of D elements take time in D R^2, not in D^3.

    Shapes: loc (..., D), cov_factor (..., D, R), cov_diag (..., D); event_shape (D,)
    Errors: ShapeError for extents that do not fit, ValueError for a cov_diag that is not positive

    >>> from tengen import functional as F
    >>> d = LowRankMultivariateNormal(F.zeros(2), F.ones((2, 1)), F.ones(2))
    >>> d.covariance_matrix.tolist(), round(d.log_prob(F.zeros(2)).item(), 4)
    ([[2.0, 1.0], [1.0, 2.0]], -2.3872)
    """

    has_rsample = True
    support = real_vector
    parameters = ("loc", "cov_factor", "cov_diag")
    arg_constraints = {"loc": real_vector, "cov_factor": independent(real, 2), "cov_diag": independent(positive, 1)}

    def __init__(self, loc: Any, cov_factor: Any, cov_diag: Any):
        loc, factor = as_float(loc), as_float(cov_factor)
        (diag,) = together(self, {"cov_diag": cov_diag}, {"cov_diag": positive})
        if loc.ndim < 1 or factor.ndim < 2 or factor.shape[-2] != loc.shape[-1] or diag.shape[-1:] != loc.shape[-1:]:
            raise ShapeError(
                f"LowRankMultivariateNormal: loc {loc.shape} needs cov_factor (..., D, R) and cov_diag (..., D) of its last extent, got "
                f"{factor.shape} and {diag.shape}"
            )
        batch = broadcast_shapes(loc.shape[:-1], factor.shape[:-2], diag.shape[:-1])
        n, rank = factor.shape[-2:]
        wide = REGISTRY["broadcast_to"]
        self.loc, self.cov_diag, self.cov_factor = (wide(loc, (*batch, n)), wide(diag, (*batch, n)), wide(factor, (*batch, n, rank)))
        self._scaled = F.swapaxes(self.cov_factor, -1, -2) / F.expand_dims(self.cov_diag, -2)  # W^T D^-1
        self._capacitance = linalg.cholesky(F.eye(rank, dtype=factor.dtype) + self._scaled @ self.cov_factor)
        super().__init__(batch, (n,))

    def _draw(self, shape: tuple[int, ...]) -> Tensor:
        few = random.normal(0.0, 1.0, (*shape[:-1], self.cov_factor.shape[-1], 1)).astype(self.loc.dtype)
        each = random.normal(0.0, 1.0, shape).astype(self.loc.dtype)
        return self.loc + F.squeeze(self.cov_factor @ few, -1) + F.sqrt(self.cov_diag) * each

    @property
    def covariance_matrix(self) -> Tensor:
        """The covariances (..., D, D)."""
        return self.cov_factor @ F.swapaxes(self.cov_factor, -1, -2) + _on_diagonal(self.cov_diag)

    @property
    def precision_matrix(self) -> Tensor:
        """The inverse of the covariances, by Woodbury's identity."""
        half = _solved(self._capacitance, self._scaled)
        return _on_diagonal(1.0 / self.cov_diag) - F.swapaxes(half, -1, -2) @ half

    @property
    def scale_tril(self) -> Tensor:
        """The lower triangular factor of the covariances."""
        return linalg.cholesky(self.covariance_matrix)

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        return (self.cov_factor * self.cov_factor).sum(-1) + self.cov_diag

    def _log_det(self) -> Tensor:
        return 2.0 * F.log(_diagonal(self._capacitance)).sum(-1) + F.log(self.cov_diag).sum(-1)

    def log_prob(self, value: Any) -> Tensor:
        d = as_float(value) - self.loc
        half = _solved(self._capacitance, self._scaled @ F.expand_dims(d, -1))
        distance = (d * d / self.cov_diag).sum(-1) - (half * half).sum((-2, -1))
        return -0.5 * (self.event_shape[0] * math.log(2 * math.pi) + self._log_det() + distance)

    def entropy(self) -> Tensor:
        return 0.5 * (self.event_shape[0] * (1 + math.log(2 * math.pi)) + self._log_det())


class Wishart(Distribution):
    """Of X = G G^T, where the `df` columns of G are normal with a covariance; df may be a fraction. One of covariance_matrix, precision_matrix
    and scale_tril is given.

    Shapes: df (...), matrices (..., P, P); event_shape (P, P)
    Args: df: degrees of freedom, above P - 1. scale_tril: the lower triangular factor of the covariance, with a positive diagonal.
    Errors: ArgumentError for none or several of the matrices, ShapeError for what is no square matrix, ValueError for a df that is too small
    Numerics: samples are Bartlett's (W. Odell and A. Feiveson, 1966), whose chi-squared numbers come from a rejection: there is no `rsample`.
        For a df near P - 1 a sample may be singular within rounding, whose density is then -inf.

    >>> from tengen import functional as F
    >>> round(Wishart(3.0, scale_tril=F.eye(2)).log_prob(F.eye(2)).item(), 4)
    -3.531
    """

    support = positive_definite
    parameters = ("df", "scale_tril")

    def __init__(self, df: Any, covariance_matrix: Any = None, precision_matrix: Any = None, scale_tril: Any = None):
        given = [m for m in (covariance_matrix, precision_matrix, scale_tril) if m is not None]
        if len(given) != 1:
            raise ArgumentError("Wishart: one of covariance_matrix, precision_matrix and scale_tril is needed")
        m = as_float(given[0])
        if m.ndim < 2 or m.shape[-1] != m.shape[-2]:
            raise ShapeError(f"Wishart: square matrices (..., P, P) are needed, got {m.shape}")
        n = m.shape[-1]
        (df,) = together(self, {"df": df}, {"df": greater_than(n - 1, name=f"greater than {n - 1}, one less than the matrix's extent")})
        if covariance_matrix is not None:
            m = linalg.cholesky(m)
        elif precision_matrix is not None:
            m = linalg.cholesky(linalg.inv(m))
        batch = broadcast_shapes(df.shape, m.shape[:-2])
        df = df if df.dtype is m.dtype else df.astype(m.dtype)
        self.df, self.scale_tril = REGISTRY["broadcast_to"](df, batch), REGISTRY["broadcast_to"](m, (*batch, n, n))
        super().__init__(batch, (n, n))

    def _draw(self, shape: tuple[int, ...]) -> Tensor:
        n, lead, d = self.event_shape[0], shape[: len(shape) - 2 - len(self.batch_shape)], self.df.dtype
        freedom = F.expand_dims(self.df.detach(), -1) - F.arange(n, dtype=d.name)
        chi = F.sqrt(2.0 * default_rng.gamma(freedom * 0.5, 1.0, lead))
        factor = self.scale_tril @ (F.tril(random.normal(0.0, 1.0, shape).astype(d), -1) + _on_diagonal(chi.astype(d)))
        return factor @ F.swapaxes(factor, -1, -2)

    @property
    def arg_constraints(self) -> dict[str, Constraint]:
        """Of df and of each of the matrices."""
        return {
            "covariance_matrix": positive_definite,
            "precision_matrix": positive_definite,
            "scale_tril": lower_cholesky,
            "df": greater_than(self.event_shape[0] - 1),
        }

    @property
    def covariance_matrix(self) -> Tensor:
        """The covariance of the columns (..., P, P)."""
        return self.scale_tril @ F.swapaxes(self.scale_tril, -1, -2)

    @property
    def precision_matrix(self) -> Tensor:
        """The inverse of `covariance_matrix`."""
        return linalg.inv(self.covariance_matrix)

    def _wide_df(self) -> Tensor:
        return F.reshape(self.df, (*self.df.shape, 1, 1))

    @property
    def mode(self) -> Tensor:
        """NaN for a df of P + 1 or less, whose density is largest at singular matrices."""
        beyond = self._wide_df() - (self.event_shape[0] + 1.0)
        return F.where(beyond > 0.0, beyond, math.nan) * self.covariance_matrix

    @property
    def mean(self) -> Tensor:
        return self._wide_df() * self.covariance_matrix

    @property
    def variance(self) -> Tensor:
        v = self.covariance_matrix
        return self._wide_df() * (v * v + F.expand_dims(_diagonal(v), -1) * F.expand_dims(_diagonal(v), -2))

    def _log_scale(self) -> Tensor:
        return self.event_shape[0] * math.log(2.0) / 2 + F.log(_diagonal(self.scale_tril)).sum(-1)

    def log_prob(self, value: Any) -> Tensor:
        x, n = as_float(value), self.event_shape[0]
        inside = positive_definite.check(x)
        safe = F.where(F.reshape(inside, (*inside.shape, 1, 1)), x, F.eye(n, dtype=x.dtype))
        half = _solved(self.scale_tril, safe)
        trace = _diagonal(_solved(self.scale_tril, F.swapaxes(half, -1, -2))).sum(-1)
        log_det = F.log(linalg.eigvalsh(safe)).sum(-1)
        found = (self.df - n - 1.0) * 0.5 * log_det - trace * 0.5 - self.df * self._log_scale() - _multigammaln(self.df * 0.5, n)
        return F.where(inside, found, F.where(F.isnan(x).any((-2, -1)), math.nan, -math.inf))

    def entropy(self) -> Tensor:
        n, half = self.event_shape[0], self.df * 0.5
        slope = (self.df - n - 1.0) * 0.5 * _over_halves(F.digamma, half, n)
        return (n + 1) * self._log_scale() + _multigammaln(half, n) - slope + half * n


class LKJCholesky(Distribution):
    """Lower triangular factors L of correlation matrices L L^T, whose density is proportional to the determinant of the matrix to the power
    concentration - 1: 1 is uniform, more is nearer to the identity.

    Args: dim: of the matrices, at least 2. concentration: positive. Shapes: event_shape (dim, dim)
    Errors: ValueError for a smaller dim
    Source: Lewandowski, Kurowicka and Joe, "Generating random correlation matrices based on vines and extended onion method", 2009

    >>> from tengen import functional as F
    >>> round(LKJCholesky(2, 1.0).log_prob(F.eye(2)).item(), 4)
    -0.6931
    """

    support = corr_cholesky
    parameters = ("concentration",)
    arg_constraints = {"concentration": positive}

    def __init__(self, dim: int, concentration: Any = 1.0):
        self.dim = operator.index(dim)
        if self.dim < 2:
            raise ValueError(f"LKJCholesky: dim={dim} must be at least 2")
        (self.concentration,) = together(self, {"concentration": concentration})
        super().__init__(self.concentration.shape, (self.dim, self.dim))

    def _draw(self, shape: tuple[int, ...]) -> Tensor:
        """The onion: row i is a direction of i elements, and its squared length a Beta number."""
        lead, d, n = shape[: len(shape) - 2 - len(self.batch_shape)], self.concentration.dtype, self.dim
        above = F.arange(n - 1, dtype=d.name)
        most = F.expand_dims(self.concentration.detach(), -1) + 0.5 * (n - 2)
        wide = REGISTRY["broadcast_to"]
        a = default_rng.gamma(wide(above * 0.5 + 0.5, (*self.batch_shape, n - 1)), 1.0, lead)
        b = default_rng.gamma(most - above * 0.5, 1.0, lead)
        length = F.expand_dims(F.sqrt(a / (a + b)), -1).astype(d)
        noise = F.tril(random.normal(0.0, 1.0, (*shape[:-2], n - 1, n - 1)).astype(d))
        rows = noise / F.sqrt((noise * noise).sum(-1, keepdims=True)) * length
        low = F.concat([F.zeros((*shape[:-2], 1, n), d), F.concat([rows, F.zeros((*shape[:-2], n - 1, 1), d)], -1)], -2)
        return low + _on_diagonal(F.sqrt(F.maximum(1.0 - (low * low).sum(-1), 1e-37)))

    def log_prob(self, value: Any) -> Tensor:
        x, n, c = as_float(value), self.dim, self.concentration
        inside = corr_cholesky.check(x)
        safe = F.where(F.reshape(inside, (*inside.shape, 1, 1)), x, F.eye(n, dtype=x.dtype))
        order = F.expand_dims(2.0 * (c - 1.0), -1) + (n - F.arange(2, n + 1, dtype=c.dtype.name))
        alpha = c + 0.5 * (n - 1)
        norm = 0.5 * (n - 1) * math.log(math.pi) + _multigammaln(alpha - 0.5, n - 1) - F.lgamma(alpha) * (n - 1)
        found = (order * F.log(_diagonal(safe)[..., 1:])).sum(-1) - norm
        return F.where(inside, found, F.where(F.isnan(x).any((-2, -1)), math.nan, -math.inf))


__all__ = ["LKJCholesky", "LowRankMultivariateNormal", "Wishart"]
