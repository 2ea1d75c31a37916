"""Transforms of vectors: to the simplex, and other transforms side by side. Names and arguments are PyTorch's."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tengen import functional as F
from tengen.base.errors import ArgumentError, ShapeError
from tengen.distributions.constraints import Constraint, cat, real, real_vector, simplex, stack
from tengen.distributions.transforms import Transform, summed
from tengen.tensor import Tensor


class StickBreakingTransform(Transform):
    """Vectors of K numbers to K + 1 probabilities: sigmoid(x_i - log(K - i)) is the share of what is left that probability i takes.

    >>> StickBreakingTransform()(Tensor([0.0, 0.0])).numpy().round(4).tolist()
    [0.33329999446868896, 0.33329999446868896, 0.33329999446868896]
    """

    event_dim = 1
    domain, codomain, inner = real_vector, simplex, 0.5

    def _shifted(self, x: Tensor) -> Tensor:
        return x - F.log(x.shape[-1] - F.arange(x.shape[-1], dtype=x.dtype.name))

    def _call(self, x: Tensor) -> Tensor:
        z = self._shifted(x)
        one = F.ones((*x.shape[:-1], 1), x.dtype)
        left = F.cumprod(F.sigmoid(-z), -1)
        return F.concat([F.sigmoid(z), one], -1) * F.concat([one, left], -1)

    def _inverse(self, y: Tensor) -> Tensor:
        taken = y[..., :-1]
        # what is left is the sum of those behind, which is exact where 1 less those before would cancel
        left = F.flip(F.cumsum(F.flip(y, -1), -1), -1)[..., 1:]
        tiny = float(np.finfo(y.dtype.compute.numpy).tiny)
        x = F.log(F.maximum(taken, tiny)) - F.log(F.maximum(left, tiny))
        return x + F.log(x.shape[-1] - F.arange(x.shape[-1], dtype=x.dtype.name))

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        z = self._shifted(x)
        left = F.cumsum(F.logsigmoid(-z), -1)  # of the logarithms of what is left, those before each probability are the factors
        return (F.logsigmoid(z) + left).sum(-1)

    def forward_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        return (*shape[:-1], shape[-1] + 1)

    def inverse_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        return (*shape[:-1], shape[-1] - 1)


class CatTransform(Transform):
    """Transforms of parts of an axis, as `concat` joins them.

    Args: tseq: the transforms. dim: the axis. lengths: the extent of each part; by default 1.
    Errors: ArgumentError for what is no transform, and another number of lengths; ShapeError for an axis of another extent

    >>> from tengen.distributions import AffineTransform, ExpTransform
    >>> CatTransform([ExpTransform(), AffineTransform(0.0, 2.0)], lengths=[1, 2])(Tensor([0.0, 1.0, 2.0])).tolist()
    [1.0, 2.0, 4.0]
    """

    def __init__(self, tseq: Sequence[Transform], dim: int = 0, lengths: Sequence[int] | None = None, cache_size: int = 0):
        super().__init__(cache_size)
        self.transforms, self.dim = list(tseq), dim
        for t in self.transforms:
            if not isinstance(t, Transform):
                raise ArgumentError(f"{type(self).__name__}: a {type(t).__name__} is no Transform")
        self.lengths = [1] * len(self.transforms) if lengths is None else list(lengths)
        if len(self.lengths) != len(self.transforms) or not self.transforms:
            raise ArgumentError(f"{type(self).__name__}: {len(self.transforms)} transforms and {len(self.lengths)} lengths")
        self.event_dim = max(t.event_dim for t in self.transforms)
        self.bijective = all(t.bijective for t in self.transforms)
        self.domain, self.codomain = (self._joined([getattr(t, which) for t in self.transforms]) for which in ("domain", "codomain"))
        self.inner = self.transforms[0].inner if len({t.inner for t in self.transforms}) == 1 else 0.5

    def _joined(self, sets: list[Constraint]) -> Constraint:
        return real if all(c is real for c in sets) else cat(sets, self.dim, self.lengths)

    def _parts(self, x: Tensor) -> list[tuple[Transform, Tensor]]:
        axis = self.dim + x.ndim if self.dim < 0 else self.dim
        if not 0 <= axis < x.ndim or x.shape[axis] != sum(self.lengths):
            raise ShapeError(f"{type(self).__name__}: axis {self.dim} of {x.shape} must have the extent {sum(self.lengths)}")
        ends = np.cumsum([0, *self.lengths]).tolist()
        lead = (slice(None),) * axis
        return [(t, x[(*lead, slice(a, b))]) for t, a, b in zip(self.transforms, ends, ends[1:])]

    def _call(self, x: Tensor) -> Tensor:
        return F.concat([t(p) for t, p in self._parts(x)], self.dim)

    def _inverse(self, y: Tensor) -> Tensor:
        return F.concat([t.inverse_of(p) for t, p in self._parts(y)], self.dim)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        pairs = zip(self._parts(x), self._parts(y))
        each = [summed(t.log_abs_det_jacobian(a, b), self.event_dim - t.event_dim) for (t, a), (_, b) in pairs]
        axis = (self.dim - x.ndim if self.dim >= 0 else self.dim) + self.event_dim
        return F.concat(each, axis) if axis < 0 else sum(each[1:], each[0])


class StackTransform(CatTransform):
    """Transforms of the parts of an axis with one element each, as `stack` joins them.

    Args: tseq: the transforms. dim: the axis.
    Errors: those of `CatTransform`

    >>> from tengen.distributions import AffineTransform, ExpTransform
    >>> StackTransform([ExpTransform(), AffineTransform(0.0, 2.0)], dim=1)(Tensor([[0.0, 1.0], [0.0, 3.0]])).tolist()
    [[1.0, 2.0], [1.0, 6.0]]
    """

    def __init__(self, tseq: Sequence[Transform], dim: int = 0, cache_size: int = 0):
        super().__init__(tseq, dim, None, cache_size)

    def _joined(self, sets: list[Constraint]) -> Constraint:
        return real if all(c is real for c in sets) else stack(sets, self.dim)

    def forward_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        return self._around(shape, self.transforms[0].forward_shape)

    def inverse_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        return self._around(shape, self.transforms[0].inverse_shape)

    def _around(self, shape: Sequence[int], of_piece: Callable[[Sequence[int]], tuple[int, ...]]) -> tuple[int, ...]:
        """What becomes of a shape whose pieces, without the axis, become others."""
        axis = self.dim + len(shape) if self.dim < 0 else self.dim
        piece = of_piece((*shape[:axis], *shape[axis + 1 :]))
        at = self.dim + len(piece) + 1 if self.dim < 0 else self.dim
        return (*piece[:at], *shape[axis : axis + 1], *piece[at:])

    def _pieces(self, x: Tensor) -> list[tuple[Transform, Tensor]]:
        return [(t, F.squeeze(p, self.dim)) for t, p in self._parts(x)]

    def _call(self, x: Tensor) -> Tensor:
        return F.stack([t(p) for t, p in self._pieces(x)], self.dim)

    def _inverse(self, y: Tensor) -> Tensor:
        return F.stack([t.inverse_of(p) for t, p in self._pieces(y)], self.dim)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        pairs = zip(self._pieces(x), self._pieces(y))
        each = [summed(t.log_abs_det_jacobian(a, b), self.event_dim - t.event_dim) for (t, a), (_, b) in pairs]
        axis = (self.dim - x.ndim if self.dim >= 0 else self.dim) + self.event_dim
        return F.stack(each, axis) if axis < 0 else sum(each[1:], each[0])


__all__ = ["CatTransform", "StackTransform", "StickBreakingTransform"]
