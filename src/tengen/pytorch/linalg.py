"""`torch.linalg`: Tengen's, with PyTorch's arguments (`dim`, `keepdim`)."""

from __future__ import annotations

from typing import Any

from tengen import linalg as _linalg
from tengen.linalg import (
    cond,
    det,
    diagonal,
    eig,
    eigh,
    eigvals,
    eigvalsh,
    inv,
    lu,
    lu_factor,
    lu_solve,
    matmul,
    matrix_exp,
    matrix_power,
    multi_dot,
    qr,
    slogdet,
    svdvals,
)
from tengen.pytorch.functions import in_words
from tengen.tensor import Tensor


def cholesky(A: Tensor, *, upper: bool = False) -> Tensor:
    """The Cholesky factor of symmetric positive definite matrices."""
    return _linalg.cholesky(A, upper=upper)


def solve(A: Tensor, B: Tensor, *, left: bool = True) -> Tensor:
    """X of A X = B, or of X A = B."""
    if left:
        return _linalg.solve(A, B)
    return _linalg.solve(A.mT, B.mT).mT


def solve_triangular(A: Tensor, B: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False) -> Tensor:
    """X of A X = B, or of X A = B, for triangular A."""
    if left:
        return _linalg.solve_triangular(A, B, upper=upper, unitriangular=unitriangular)
    return _linalg.solve_triangular(A.mT, B.mT, upper=not upper, unitriangular=unitriangular).mT


def lstsq(A: Tensor, B: Tensor, rcond: Any = None, *, driver: str | None = None) -> Any:
    """The least-squares solution of A X = B."""
    return _linalg.lstsq(A, B, rtol=rcond)


def svd(A: Tensor, full_matrices: bool = True, *, driver: str | None = None) -> Any:
    """(U, S, Vh)."""
    return _linalg.svd(A, full_matrices=full_matrices)


def pinv(A: Tensor, *, atol: Any = None, rtol: Any = None, hermitian: bool = False) -> Tensor:
    """The pseudo-inverse. Errors: TypeError for atol."""
    if atol is not None:
        raise TypeError("linalg.pinv: atol is not there; help: rtol")
    return _linalg.pinv(A, rtol=rtol)


def matrix_rank(A: Tensor, *, atol: Any = None, rtol: Any = None, hermitian: bool = False) -> Tensor:
    """The number of singular values that are not small. Errors: TypeError for atol."""
    if atol is not None:
        raise TypeError("linalg.matrix_rank: atol is not there; help: rtol")
    return _linalg.matrix_rank(A, rtol=rtol)


def norm(A: Tensor, ord: Any = None, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """A norm of vectors or matrices."""
    return _linalg.norm(A if dtype is None else A.astype(dtype), ord, dim, keepdim)


def vector_norm(x: Tensor, ord: float = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """The norm of vectors along axes, or of all elements."""
    return _linalg.vector_norm(x if dtype is None else x.astype(dtype), axis=dim, keepdims=keepdim, ord=ord)


def matrix_norm(A: Tensor, ord: Any = "fro", dim: tuple[int, int] = (-2, -1), keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """The norm of matrices. Errors: TypeError for other axes than the last two."""
    if tuple(d % A.ndim for d in dim) != (A.ndim - 2, A.ndim - 1):
        raise TypeError(f"linalg.matrix_norm: dim={dim} must be the last two axes; help: x.movedim")
    return _linalg.matrix_norm(A if dtype is None else A.astype(dtype), keepdims=keepdim, ord=ord)


def cross(input: Tensor, other: Tensor, *, dim: int = -1) -> Tensor:
    """Products of vectors of three."""
    return _linalg.cross(input, other, axis=dim)


def vecdot(x: Tensor, y: Tensor, *, dim: int = -1) -> Tensor:
    """Dot products along an axis, of the conjugate of the first."""
    return _linalg.vecdot(x, y, axis=dim)


def vander(x: Tensor, N: int | None = None) -> Tensor:
    """The powers 0 .. N - 1 of elements."""
    n = x.shape[-1] if N is None else N
    powers = Tensor(list(range(n))).astype(x.dtype)
    return x.unsqueeze(-1) ** powers


__all__ = [
    "cholesky", "cond", "cross", "det", "diagonal", "eig", "eigh", "eigvals", "eigvalsh", "inv", "lstsq", "lu", "lu_factor", "lu_solve",
    "matmul", "matrix_exp", "matrix_norm", "matrix_power", "matrix_rank", "multi_dot", "norm", "pinv", "qr", "slogdet", "solve",
    "solve_triangular", "svd", "svdvals", "vander", "vecdot", "vector_norm",
]  # fmt: skip
in_words(globals(), __all__)
