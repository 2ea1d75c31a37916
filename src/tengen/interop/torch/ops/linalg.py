"""Linear algebra: determinants, systems, factorisations of matrices.

What PyTorch's operators return for their own gradients (the factors of an LU decomposition with its pivots) is None here, and nodes that read
it are errors. The place where a factorisation fails is always 0: Tengen's functions raise where it would not be. So `_linalg_check_errors`,
which reads it, does nothing.
"""

from __future__ import annotations

from typing import Any

import tengen.functional as F
from tengen import linalg
from tengen.base.errors import ArgumentError
from tengen.interop.torch.registry import op
from tengen.linalg import indefinite, swaps
from tengen.tensor import Tensor


def _triangle(a: Tensor, upper: bool) -> Tensor:
    """The Hermitian matrices of which one triangle is read. Gradients are those of whole Hermitian matrices, as PyTorch's."""
    x = a.detach()
    half = F.triu(x, 1) if upper else F.tril(x, -1)
    whole = half + half.mH + F.expand_dims(F.real(F.diagonal(x, 0, -2, -1)), -1) * F.eye(x.shape[-1], dtype=x.dtype)
    return F.straight_through(whole, a) if a.requires_grad else whole


def _passed(a: Tensor) -> Tensor:
    """The places where factorisations failed, of those that went through: 0 for each matrix."""
    return F.zeros(tuple(a.shape[:-2]), "int32")


@op("_linalg_det")
def det(a: Tensor) -> tuple[Tensor, None, None]:
    """(Determinants, LU, pivots)."""
    return linalg.det(a), None, None


@op("_linalg_slogdet")
def slogdet(a: Tensor) -> tuple[Tensor, Tensor, None, None]:
    """(Signs of determinants, logarithms of their sizes, LU, pivots)."""
    sign, log = linalg.slogdet(a)
    return sign, log, None, None


@op("_linalg_solve_ex")
def solve(a: Tensor, b: Tensor, *, left: bool = True, check_errors: bool = False) -> tuple[Tensor, None, None, Tensor]:
    """(x with a x = b, or x a = b where not `left`; LU, pivots, place of failure). b: matrices, or a vector for each matrix."""
    vectors = b.ndim == 1 or a.ndim - 1 == b.ndim and tuple(b.shape) == tuple(a.shape[:-1])
    b = F.expand_dims(b, -1) if vectors else b
    x = linalg.solve(a, b) if left or vectors else linalg.solve(a.mT, b.mT).mT
    return (F.squeeze(x, -1) if vectors else x), None, None, _passed(a)


@op("linalg_inv_ex")
def inv(a: Tensor, *, check_errors: bool = False) -> tuple[Tensor, Tensor]:
    """(Inverses, place of failure)."""
    return linalg.inv(a), _passed(a)


@op("linalg_cholesky_ex")
def cholesky_ex(a: Tensor, *, upper: bool = False, check_errors: bool = False) -> tuple[Tensor, Tensor]:
    """(Triangular factors, place of failure); one triangle is read."""
    return linalg.cholesky(_triangle(a, upper), upper=upper), _passed(a)


@op("cholesky")
def cholesky(a: Tensor, upper: bool = False) -> Tensor:
    """Triangular factors; one triangle is read."""
    return linalg.cholesky(_triangle(a, upper), upper=upper)


@op("cholesky_solve")
def cholesky_solve(b: Tensor, factor: Tensor, upper: bool = False) -> Tensor:
    """x with a x = b, of the triangular factor of a."""
    return linalg.cho_solve(factor, b, upper=upper)


@op("cholesky_inverse")
def cholesky_inverse(factor: Tensor, upper: bool = False) -> Tensor:
    """The inverse of a, of its triangular factor."""
    return linalg.cho_solve(factor, F.eye(factor.shape[-1], dtype=factor.dtype), upper=upper)


@op("linalg_solve_triangular")
def solve_triangular(a: Tensor, b: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False) -> Tensor:
    """x with a x = b, or x a = b where not `left`; one triangle of a is read."""
    if left:
        return linalg.solve_triangular(a, b, upper=upper, unitriangular=unitriangular)
    return linalg.solve_triangular(a.mT, b.mT, upper=not upper, unitriangular=unitriangular).mT


@op("linalg_qr")
def qr(a: Tensor, mode: str = "reduced") -> tuple[Tensor, Tensor]:
    """(Q, R); mode "r": without Q, which is empty."""
    if mode == "r":
        _, r = linalg.qr(a)
        return F.zeros((0,), a.dtype), r
    if mode not in ("reduced", "complete"):
        raise ArgumentError(f"mode={mode!r} must be 'reduced', 'complete' or 'r'")
    return tuple(linalg.qr(a, mode="complete" if mode == "complete" else "reduced"))


@op("_linalg_svd")
def svd(a: Tensor, full_matrices: bool = False, compute_uv: bool = True, *, driver: Any = None) -> tuple[Tensor, Tensor, Tensor]:
    """(U, S, V^H); without vectors U and V^H are empty."""
    if not compute_uv:
        return F.zeros((0,), a.dtype), linalg.svdvals(a), F.zeros((0,), a.dtype)
    return tuple(linalg.svd(a, full_matrices=full_matrices))


@op("_linalg_eigh")
def eigh(a: Tensor, triangle: str = "L", compute_v: bool = True) -> tuple[Tensor, Tensor]:
    """(Eigenvalues, eigenvectors) of Hermitian matrices, of which one triangle is read; without vectors these are empty."""
    whole = _triangle(a, triangle == "U")
    return tuple(linalg.eigh(whole)) if compute_v else (linalg.eigvalsh(whole), F.zeros((0,), a.dtype))


@op("linalg_eig")
def eig(a: Tensor) -> tuple[Tensor, Tensor]:
    """(Eigenvalues, eigenvectors) of any square matrices, complex."""
    return tuple(linalg.eig(a))


@op("_linalg_eigvals")
def eigvals(a: Tensor) -> Tensor:
    """Eigenvalues of any square matrices, complex."""
    return linalg.eigvals(a)


@op("linalg_lu")
def lu(a: Tensor, *, pivot: bool = True) -> tuple[Tensor, Tensor, Tensor]:
    """(P, L, U) with a = P L U."""
    if not pivot:
        raise ArgumentError("lu without pivots")
    return tuple(linalg.lu(a))


@op("linalg_lu_factor_ex")
def lu_factor(a: Tensor, *, pivot: bool = True, check_errors: bool = False) -> tuple[Tensor, Tensor, Tensor]:
    """(Both factors in one matrix, the swaps of rows from 1, the first pivot that is 0)."""
    if not pivot:
        raise ArgumentError("lu_factor without pivots")
    factors, pivots = swaps.lu_factor(a)
    return factors, pivots, swaps.first_zero_pivot(factors)


@op("linalg_lu_solve")
def lu_solve(factors: Tensor, pivots: Tensor, b: Tensor, *, left: bool = True, adjoint: bool = False) -> Tensor:
    """x with a x = b, or x a = b where not `left`, or with a^H, from the factors of a."""
    return swaps.lu_solve(factors, pivots, b, left, adjoint)


op("lu_unpack")(swaps.lu_unpack)


@op("linalg_ldl_factor_ex")
def ldl_factor(a: Tensor, *, hermitian: bool = False, check_errors: bool = False) -> tuple[Tensor, Tensor, Tensor]:
    """(L and D in one lower triangle, pivots, the first pivot that is 0); the lower triangle of a is read."""
    return indefinite.ldl_factor(a, hermitian)


@op("linalg_ldl_solve")
def ldl_solve(factors: Tensor, pivots: Tensor, b: Tensor, *, hermitian: bool = False) -> Tensor:
    """x with a x = b from the factors of a."""
    return indefinite.ldl_solve(factors, pivots, b, hermitian)


op("geqrf")(lambda a: tuple(linalg.geqrf(a)))
op("linalg_householder_product")(linalg.householder_product)


@op("ormqr")
def ormqr(a: Tensor, tau: Tensor, other: Tensor, left: bool = True, transpose: bool = False) -> Tensor:
    """Q other, or other Q where not `left`, of the Q whose reflectors `geqrf` gives; with `transpose` of its adjoint."""
    return linalg.ormqr(a, tau, other, left=left, transpose=transpose)


@op("triangular_solve")
def triangular_solve(
    b: Tensor, a: Tensor, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> tuple[Tensor, Tensor]:
    """(x with a x = b, or with a^T, of triangular a; a)."""
    return linalg.solve_triangular(a, b, upper=upper, unitriangular=unitriangular, transposed=transpose), a


@op("linalg_pinv.atol_rtol_tensor")
def pinv(a: Tensor, *, atol: Any = None, rtol: Any = None, hermitian: bool = False) -> Tensor:
    """Pseudo-inverses; singular values of at most the larger of atol and rtol times the largest one count as 0. Of Hermitian matrices the lower
    triangle is read."""
    a = _triangle(a, False) if hermitian else a
    if atol is None or not a.size:
        return linalg.pinv(a, rtol=None if atol is not None else rtol)
    largest = F.max(linalg.svdvals(a.detach()), -1)
    share = atol / F.where(F.equal(largest, 0), 1.0, largest)
    return linalg.pinv(a, rtol=share if rtol is None else F.maximum(share, rtol))


@op("linalg_lstsq")
def lstsq(a: Tensor, b: Tensor, rcond: Any = None, *, driver: Any = None) -> tuple[Tensor, None, None, None]:
    """(The solution of the least norm among those of least squares; residuals, rank, singular values)."""
    return linalg.lstsq(a, b, rtol=rcond).solution, None, None, None


op("linalg_matrix_exp")(linalg.matrix_exp)
op("_linalg_check_errors")(lambda *_, **__: None)
