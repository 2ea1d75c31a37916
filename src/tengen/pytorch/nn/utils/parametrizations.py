"""`torch.nn.utils.parametrizations`: `orthogonal`, and `weight_norm` and `spectral_norm` under their newer names.

In state dicts the parts of the latter two have the names of the older ones: `weight_g` and `weight_v`, not
`parametrizations.weight.original0`.
"""

from __future__ import annotations

from typing import Any

from tengen import functional as F
from tengen import linalg, random
from tengen.base.arguments import flags_of_functions
from tengen.module.utils import spectral_norm, weight_norm
from tengen.pytorch.nn.module import Module
from tengen.pytorch.nn.utils.parametrize import register_parametrization
from tengen.tensor import Tensor

_MAPS = ("matrix_exp", "cayley", "householder")


class _Orthogonal(Module):
    """Matrices (..., n, k) whose columns, or rows where there are fewer, are orthonormal, computed from any matrix of that shape."""

    base: Tensor | None

    def __init__(self, shape: tuple[int, ...], orthogonal_map: str, use_trivialization: bool):
        super().__init__()
        self.shape, self.orthogonal_map, self.use_trivialization = shape, orthogonal_map, use_trivialization
        self.register_buffer("base", None)

    def forward(self, x: Tensor) -> Tensor:
        n, k = x.shape[-2:]
        q = _of_tall(x if n >= k else x.mT, self.orthogonal_map)
        q = q if self.base is None else self.base @ q
        return q if n >= k else q.mT

    def right_inverse(self, value: Tensor) -> Tensor:
        if value.shape != self.shape:
            raise ValueError(f"orthogonal: a matrix of shape {self.shape} is needed, got {value.shape}")
        n, k = value.shape[-2:]
        tall = value if n >= k else value.mT
        if self.use_trivialization:
            *lead, n, k = tall.shape
            more = random.normal(0.0, 1.0, (*lead, n, n - k)).astype(tall.dtype)
            self.base = _nearby(F.concat([tall, more], -1)).detach()
            return F.zeros_like(value) - F.eye(*value.shape[-2:], dtype=value.dtype)
        if self.orthogonal_map != "householder":
            raise NotImplementedError(
                f"a tensor that orthogonal(orthogonal_map={self.orthogonal_map!r}, use_trivialization=False) computes cannot be set; "
                "help: use_trivialization=True"
            )
        found = _reflected(tall)
        return found if n >= k else found.mT


def _of_tall(x: Tensor, how: str) -> Tensor:
    """Orthonormal columns from a matrix (..., n, k) with n >= k."""
    n, k = x.shape[-2:]
    if how == "householder":
        v = F.tril(x, -1) + F.eye(n, k, dtype=x.dtype)
        # the product of the reflections I - 2 v v^T / |v|^2 is I - V T V^T, where 1 / T is the upper triangle of V^T V, half of its diagonal
        # (C. Puglisi, "Modification of the Householder method based on the compact WY representation", 1992)
        gram = v.mT @ v
        inverse = F.triu(gram, 1) + gram * (F.eye(k, dtype=x.dtype) * 0.5)
        q = F.eye(n, k, dtype=x.dtype) - v @ linalg.solve_triangular(inverse, v[..., :k, :].mT, upper=True)
        return q * F.expand_dims(F.trunc(F.diagonal(x, 0, -2, -1)), -2).detach()
    x = F.tril(x)
    x = x if n == k else F.concat([x, F.zeros((*x.shape[:-1], n - k), x.dtype)], -1)
    a = x - x.mT
    if how == "matrix_exp":
        q = linalg.matrix_exp(a)
    else:
        one = F.eye(n, dtype=x.dtype)
        q = linalg.solve(one - a * 0.5, one + a * 0.5)
    return q if n == k else q[..., :k]


def _nearby(x: Tensor) -> Tensor:
    """The orthogonal factor of x = Q R whose R has a positive diagonal: x itself where that is orthogonal."""
    q, r = linalg.qr(x)
    return q * F.expand_dims(F.where(F.diagonal(r, 0, -2, -1) < 0, -1.0, 1.0).astype(x.dtype), -2)


def _reflected(x: Tensor) -> Tensor:
    """Of which matrix `_of_tall` makes the orthogonal factor of x by reflections: their vectors below the diagonal, and signs on it."""
    n, k = x.shape[-2:]
    columns = []
    for j in range(k):
        head, tail = x[..., j : j + 1, 0], x[..., j + 1 :, 0]
        below = F.sqrt((tail * tail).sum(-1, keepdims=True))
        norm = F.sqrt(head * head + below * below)
        end = F.where(head < 0, norm, -norm)  # what the head becomes
        turns = below > 0
        v = F.where(turns, tail / F.where(turns, head - end, 1.0), 0.0)
        whole = F.concat([F.ones_like(head), v], -1)
        rest = x[..., j:, 1:]
        along = F.where(turns, 2.0 / (whole * whole).sum(-1, keepdims=True), 0.0)
        turned = rest - F.expand_dims(whole * along, -1) @ (F.expand_dims(whole, -2) @ rest)
        sign = F.where(turns, F.where(end < 0, -1.0, 1.0), F.where(head < 0, 1.0, -1.0)).astype(x.dtype)
        columns.append(F.concat([F.zeros((*sign.shape[:-1], j), x.dtype), sign, v], -1))
        x = F.concat([F.zeros((*sign.shape[:-1], j + 1, k - j - 1), x.dtype), turned[..., 1:, :]], -2)
    return F.stack(columns, -1)


def orthogonal(module: Any, name: str = "weight", orthogonal_map: str | None = None, *, use_trivialization: bool = True) -> Any:
    """The matrix of this name (..., n, k) is orthogonal from now on, and stays so in training: its columns are orthonormal, or its rows
    where it has fewer.

    Args: orthogonal_map: how it is computed from a free matrix: "matrix_exp", "cayley" or "householder"; by default the first for square
        matrices and the last for others. use_trivialization: it is times a constant orthogonal matrix, which begins as the orthogonal
        factor of the present value; without it only "householder" begins there, and only there the tensor can be set.
    Returns: the module. Errors: ValueError for what is no matrix of floats, and for another map

    Source: Lezcano-Casado, "Trivializations for gradient-based optimization on manifolds", arXiv 1909.09501

    >>> from tengen.pytorch import nn
    >>> layer = orthogonal(nn.Linear(5, 3))
    >>> abs(layer.weight @ layer.weight.T - F.eye(3)).max().item() < 1e-5
    True
    """
    weight = getattr(module, name, None)
    if not isinstance(weight, Tensor):
        raise ValueError(f"{type(module).__name__} has no parameter or buffer {name!r}")
    if weight.ndim < 2 or not weight.dtype.is_float:
        raise ValueError(f"orthogonal: a matrix of floats, or several, is needed, got {weight._layout.type!r}")
    chosen = orthogonal_map or ("matrix_exp" if weight.shape[-2] == weight.shape[-1] else "householder")
    if chosen not in _MAPS:
        raise ValueError(f"orthogonal: orthogonal_map={orthogonal_map!r} must be one of {', '.join(map(repr, _MAPS))}")
    return register_parametrization(module, name, _Orthogonal(weight.shape, chosen, use_trivialization), unsafe=True)


__all__ = ["orthogonal", "spectral_norm", "weight_norm"]
flags_of_functions(globals(), ["orthogonal"])
