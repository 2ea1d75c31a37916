"""Triangular factors as PyTorch gives them: rows that were exchanged are told by swaps, counted from 1 in int32, where `tengen.linalg` tells
the order that they make."""

from __future__ import annotations

from typing import Any, NamedTuple

from tengen import functional as F
from tengen import linalg
from tengen.base.errors import ArgumentError, LinAlgError
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


def _exchanged(rows: Tensor, i: int, j: Tensor) -> Tensor:
    """Numbers (..., m) whose i-th is exchanged with the j-th; j: (...)."""
    places = F.arange(rows.shape[-1], dtype="int64")
    here, there = F.equal(places, i), F.equal(places, F.expand_dims(j, -1))
    mine, other = F.expand_dims(rows[..., i], -1), F.gather(rows, -1, F.expand_dims(j, -1))
    return F.where(here, other, F.where(there, mine, rows))


def _first(shape: tuple[int, ...], m: int) -> Tensor:
    return F.broadcast_to(F.arange(m, dtype="int64"), (*shape, m))


def _swaps(order: Tensor, k: int) -> Tensor:
    """The k swaps, from 1, that make an order (..., m) of rows."""
    rows, found = _first(order.shape[:-1], order.shape[-1]), []
    for i in range(k):
        j = F.argmax(F.equal(rows, order[..., i : i + 1]).astype("int32"), -1).astype("int64")
        found.append(j)
        rows = _exchanged(rows, i, j)
    return F.stack(found, -1).astype("int32") + 1 if found else F.zeros((*order.shape[:-1], 0), "int32")


def _order(pivots: Tensor, m: int) -> Tensor:
    """The order of m rows that swaps make."""
    rows = _first(pivots.shape[:-1], m)
    for i in range(pivots.shape[-1]):
        rows = _exchanged(rows, i, pivots[..., i].astype("int64") - 1)
    return rows


def lu_factor(A: Tensor, *, pivot: bool = True) -> Factors:
    """The factors of (..., n, n) matrices, with rows exchanged. Errors: ArgumentError with pivot=False, which is not there on a processor

    >>> lu_factor(Tensor([[1.0, 2.0], [4.0, 4.0]])).pivots.tolist()
    [2, 2]
    """
    if not pivot:
        raise ArgumentError("lu_factor: pivot=False is not there, as on PyTorch's processors")
    factors, order = linalg.lu_factor(A)
    return Factors(factors, _swaps(order, min(A.shape[-2:])))


def lu_factor_ex(A: Tensor, *, pivot: bool = True, check_errors: bool = False) -> CheckedFactors:
    """`lu_factor` and the number of the first pivot that is 0. Errors: LinAlgError for such a one with check_errors"""
    factors, pivots = lu_factor(A, pivot=pivot)
    zero = F.equal(F.diagonal(factors.detach(), 0, -2, -1), 0)
    first = F.argmax(zero.astype("int32"), -1).astype("int32") + 1
    info = F.where(F.any(zero, -1), first, 0).astype("int32")
    if check_errors and bool(F.any(info > 0).item()):
        raise LinAlgError(f"lu_factor_ex: a pivot of {A._layout.type!r} is 0")
    return CheckedFactors(factors, pivots, info)


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
    if not left:
        return solve_factored(LU, pivots, B.mH, adjoint=not adjoint).mH
    order = _order(pivots, LU.shape[-1])
    if not adjoint:
        b, at = F.broadcast_tensors(B, F.expand_dims(order, -1))
        rows = F.take_along_axis(b, at, -2)
        return linalg.solve_triangular(LU, linalg.solve_triangular(LU, rows, upper=False, unitriangular=True), upper=True)
    y = linalg.solve_triangular(LU.mH, B, upper=False)
    z = linalg.solve_triangular(LU.mH, y, upper=True, unitriangular=True)
    back = F.argsort(order, False, -1)
    z, at = F.broadcast_tensors(z, F.expand_dims(back, -1))
    return F.gather(z, -2, at)


def lu_solve(b: Tensor, LU_data: Tensor, LU_pivots: Tensor) -> Tensor:
    """X of A X = b from the factors of A.

    >>> A = Tensor([[0.0, 2.0], [4.0, 0.0]])
    >>> lu_solve(Tensor([[2.0], [4.0]]), *lu_factor(A)).tolist()
    [[1.0], [1.0]]
    """
    return solve_factored(LU_data, LU_pivots, b)


def lu_unpack(LU_data: Tensor, LU_pivots: Tensor, unpack_data: bool = True, unpack_pivots: bool = True) -> Unpacked:
    """P, L and U with A = P L U, of the factors of A; what is not unpacked is empty."""
    m, n = LU_data.shape[-2:]
    k, lead = min(m, n), LU_data.shape[:-2]
    none = F.zeros((0,), LU_data.dtype)
    P = L = U = none
    if unpack_pivots:
        order = _order(LU_pivots, m)
        P = F.equal(F.expand_dims(F.arange(m, dtype="int64"), -1), F.expand_dims(order, -2)).astype(LU_data.dtype)
    if unpack_data:
        L = F.tril(LU_data[..., :k], -1) + F.broadcast_to(F.eye(m, k, dtype=LU_data.dtype), (*lead, m, k))
        U = F.triu(LU_data[..., :k, :])
    return Unpacked(P, L, U)


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
in_words(globals(), [*__all__, "lu_factor", "lu_factor_ex", "solve_factored", "householder_product"])
