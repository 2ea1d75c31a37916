"""Triangular factors as PyTorch gives them: rows that were exchanged are told by swaps (`tengen.linalg.swaps`)."""

from __future__ import annotations

from typing import Any

from tengen import functional as F
from tengen import linalg
from tengen.base.errors import ArgumentError, LinAlgError
from tengen.base.record import NamedTuple
from tengen.linalg import indefinite, swaps
from tengen.linalg.parts import matrices
from tengen.pytorch.functions import in_words
from tengen.tensor import Tensor


class Factors(NamedTuple):
    """LU: L below the diagonal, whose own is 1, and U. pivots: step i exchanged the rows i and pivots[i] - 1."""

    LU: Tensor
    pivots: Tensor


class CheckedFactors(NamedTuple):
    """`Factors`, and info: 0, or the number from 1 of the first pivot that is 0."""

    LU: Tensor
    pivots: Tensor
    info: Tensor


class Unpacked(NamedTuple):
    """A = P L U."""

    P: Tensor
    L: Tensor
    U: Tensor


class Solution(NamedTuple):
    """What `triangular_solve` gives: X, and the matrix."""

    solution: Tensor
    cloned_coefficient: Tensor


def lu_factor(A: Tensor, *, pivot: bool = True) -> Factors:
    """The factors of (..., n, n) matrices, with rows exchanged. Errors: ArgumentError with pivot=False, which is not there on a processor

    >>> lu_factor(Tensor([[1.0, 2.0], [4.0, 4.0]])).pivots.tolist()
    [2, 2]
    """
    if not pivot:
        raise ArgumentError("lu_factor: pivot=False is not there, as on PyTorch's processors")
    return Factors(*swaps.lu_factor(A))


def lu_factor_ex(A: Tensor, *, pivot: bool = True, check_errors: bool = False) -> CheckedFactors:
    """`lu_factor` and the number of the first pivot that is 0. Errors: LinAlgError for such a one with check_errors"""
    factors, pivots = lu_factor(A, pivot=pivot)
    info = swaps.first_zero_pivot(factors)
    if check_errors and bool(F.any(info > 0).item()):
        raise LinAlgError(f"lu_factor_ex: a pivot of {A._layout.type!r} is 0")
    return CheckedFactors(factors, pivots, info)


class Blocks(NamedTuple):
    """LD: L D L^T (with `hermitian` L D L^H) in one lower triangle, and pivots, as LAPACK's sytrf (hetrf) keeps them."""

    LD: Tensor
    pivots: Tensor


class CheckedBlocks(NamedTuple):
    """`Blocks`, and info: 0, or the number from 1 of the first pivot that is 0."""

    LD: Tensor
    pivots: Tensor
    info: Tensor


def ldl_factor_ex(A: Tensor, *, hermitian: bool = False, check_errors: bool = False) -> CheckedBlocks:
    """The factors of symmetric matrices, or with `hermitian` Hermitian ones, which may be indefinite; their lower triangle is read.

    Errors: LinAlgError for a pivot that is 0 with check_errors; GradientError for a gradient through the factors, of which there is none
    """
    found = CheckedBlocks(*indefinite.ldl_factor(matrices("ldl_factor", A, square=True), hermitian))
    if check_errors and bool(F.any(found.info > 0).item()):
        raise LinAlgError(f"ldl_factor_ex: a pivot of {A._layout.type!r} is 0")
    return found


def ldl_factor(A: Tensor, *, hermitian: bool = False) -> Blocks:
    """`ldl_factor_ex` with check_errors, without info.

    >>> ldl_factor(Tensor([[0.0, 2.0], [2.0, 0.0]])).pivots.tolist()  # one block of two rows
    [-2, -2]
    """
    return Blocks(*ldl_factor_ex(A, hermitian=hermitian, check_errors=True)[:2])


def ldl_solve(LD: Tensor, pivots: Tensor, B: Tensor, *, hermitian: bool = False) -> Tensor:
    """X of A X = B from the factors of A. It has a gradient, where PyTorch's has none.

    >>> ldl_solve(*ldl_factor(Tensor([[0.0, 2.0], [2.0, 0.0]])), Tensor([[2.0], [4.0]])).tolist()
    [[2.0], [1.0]]
    """
    return indefinite.ldl_solve(LD, pivots, B, hermitian)


def lu(A: Tensor, pivot: bool = True, get_infos: bool = False) -> Any:
    """(LU, pivots) of `lu_factor`, the older name; with get_infos `lu_factor_ex`."""
    return tuple(lu_factor_ex(A, pivot=pivot)) if get_infos else tuple(lu_factor(A, pivot=pivot))


def qr(input: Tensor, some: bool = True) -> Any:
    """(Q, R) with input = Q R; without `some` Q is square."""
    return linalg.qr(input, mode="reduced" if some else "complete")


def cholesky(input: Tensor, upper: bool = False) -> Tensor:
    """The Cholesky factor of symmetric positive definite matrices."""
    return linalg.cholesky(input, upper=upper)


def pinverse(input: Tensor, rcond: float = 1e-15) -> Tensor:
    """The pseudo-inverse; singular values of at most rcond times the largest one count as 0."""
    return linalg.pinv(input, rtol=rcond)


def svd_lowrank(A: Tensor, q: int = 6, niter: int = 2, M: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """(U, S, V) of the q largest singular values of A, or of A - M: those of the whole decomposition, where PyTorch's are an estimate by random
    projections. niter: accepted.

    Errors: ArgumentError for a q below 0 or above the smaller extent

    >>> svd_lowrank(Tensor([[3.0, 0.0], [0.0, 2.0], [0.0, 0.0]]), q=1)[1].tolist()
    [3.0]
    """
    x = A if M is None else A - M
    if not 0 <= q <= min(x.shape[-2:]):
        raise ArgumentError(f"svd_lowrank: q={q} for matrices of shape {x.shape[-2:]}; help: from 0 to {min(x.shape[-2:])}")
    u, s, vh = linalg.svd(x, full_matrices=False)
    return u[..., :q], s[..., :q], vh.mH[..., :q]


def pca_lowrank(A: Tensor, q: int | None = None, center: bool = True, niter: int = 2) -> tuple[Tensor, Tensor, Tensor]:
    """`svd_lowrank` of rows whose mean is taken off, unless `center` is False: V has the principal directions as columns. q: 6 by default, or
    the smaller extent of A. Errors: ArgumentError as of `svd_lowrank`"""
    return svd_lowrank(A, min(6, *A.shape[-2:]) if q is None else q, niter, F.mean(A, -2, True) if center else None)


def solve_factored(LU: Tensor, pivots: Tensor, B: Tensor, *, left: bool = True, adjoint: bool = False) -> Tensor:
    """`torch.linalg.lu_solve`: X of A X = B from the factors of A, or of X A = B, or with A^H."""
    return swaps.lu_solve(LU, pivots, B, left, adjoint)


def lu_solve(b: Tensor, LU_data: Tensor, LU_pivots: Tensor) -> Tensor:
    """X of A X = b from the factors of A.

    >>> A = Tensor([[0.0, 2.0], [4.0, 0.0]])
    >>> lu_solve(Tensor([[2.0], [4.0]]), *lu_factor(A)).tolist()
    [[1.0], [1.0]]
    """
    return solve_factored(LU_data, LU_pivots, b)


def lu_unpack(LU_data: Tensor, LU_pivots: Tensor, unpack_data: bool = True, unpack_pivots: bool = True) -> Unpacked:
    """P, L and U with A = P L U, of the factors of A; what is not unpacked is empty."""
    return Unpacked(*swaps.lu_unpack(LU_data, LU_pivots, unpack_data, unpack_pivots))


def triangular_solve(b: Tensor, A: Tensor, upper: bool = True, transpose: bool = False, unitriangular: bool = False) -> Solution:
    """X of A X = b for triangular A, or with A^T; the older form of `torch.linalg.solve_triangular`, with the arguments the other way round."""
    if transpose:
        return Solution(linalg.solve_triangular(A.mT, b, upper=not upper, unitriangular=unitriangular), A)
    return Solution(linalg.solve_triangular(A, b, upper=upper, unitriangular=unitriangular), A)


class Reflectors(NamedTuple):
    """What `geqrf` gives: R with the vectors of reflectors below its diagonal, and their factors."""

    a: Tensor
    tau: Tensor


def geqrf(input: Tensor) -> Reflectors:
    """The reflectors whose product is the Q of QR, as LAPACK keeps them."""
    return Reflectors(*linalg.geqrf(input))


def householder_product(input: Tensor, tau: Tensor) -> Tensor:
    """The first columns of the product of reflectors, as `geqrf` keeps them.

    >>> householder_product(*geqrf(Tensor([[3.0], [4.0]]))).numpy().round(2).tolist()
    [[-0.6000000238418579], [-0.800000011920929]]
    """
    return linalg.householder_product(input, tau)


def ormqr(input: Tensor, tau: Tensor, other: Tensor, left: bool = True, transpose: bool = False) -> Tensor:
    """Q other, or with left=False other Q, of the whole Q of reflectors; with `transpose` of its adjoint."""
    return linalg.ormqr(input, tau, other, left=left, transpose=transpose)


orgqr = householder_product

__all__ = [
    "cholesky", "geqrf", "lu", "lu_solve", "lu_unpack", "orgqr", "ormqr", "pca_lowrank", "pinverse", "qr", "svd_lowrank", "triangular_solve",
]  # fmt: skip
_OF_LINALG = ["householder_product", "ldl_factor", "ldl_factor_ex", "ldl_solve", "lu_factor", "lu_factor_ex", "solve_factored"]
in_words(globals(), [*__all__, *_OF_LINALG])
