"""`torch.linalg`: Tengen's, with PyTorch's arguments (`dim`, `keepdim`)."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tengen import functional as F
from tengen import linalg as _linalg
from tengen.base.errors import ArgumentError, LinAlgError, ShapeError
from tengen.base.lazy import NoSuchName
from tengen.linalg import (
    cond,
    det,
    eig,
    eigh,
    eigvals,
    eigvalsh,
    inv,
    lu,
    matmul,
    matrix_exp,
    matrix_power,
    multi_dot,
    qr,
    slogdet,
    svdvals,
)
from tengen.ops.define import dispatch
from tengen.pytorch.functions import in_words, shaping
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


class Factors(NamedTuple):
    """LU: both factors in one matrix, L below the diagonal, whose own is 1. pivots: with which row each row was exchanged in turn, from 1."""

    LU: Tensor
    pivots: Tensor


class Unpacked(NamedTuple):
    """P, L, U with A = P L U."""

    P: Tensor
    L: Tensor
    U: Tensor


def _order(pivots: Tensor, rows: int) -> Tensor:
    """The order of rows that exchanges make."""
    swaps = dispatch.known(pivots)
    order = np.broadcast_to(np.arange(rows), (*swaps.shape[:-1], rows)).copy()
    for i in range(swaps.shape[-1]):
        j = swaps[..., i : i + 1].astype(np.int64) - 1
        first, other = order[..., i : i + 1].copy(), np.take_along_axis(order, j, -1)
        order[..., i : i + 1] = other
        np.put_along_axis(order, j, first, -1)
    return Tensor(order)


def _pivots(order: Tensor, n: int) -> Tensor:
    """The exchanges that make an order of rows."""
    wanted = dispatch.known(order)
    now = np.broadcast_to(np.arange(wanted.shape[-1]), wanted.shape).copy()
    swaps = np.zeros((*wanted.shape[:-1], n), np.int32)
    for i in range(n):
        j = np.argmax(now == wanted[..., i : i + 1], -1)[..., None]
        swaps[..., i : i + 1] = j + 1
        first = now[..., i : i + 1].copy()
        now[..., i : i + 1] = np.take_along_axis(now, j, -1)
        np.put_along_axis(now, j, first, -1)
    return Tensor(swaps)


def lu_factor(A: Tensor, *, pivot: bool = True) -> Factors:
    """A = P L U as one matrix and exchanges of rows. For `lu_solve` and `torch.lu_unpack`.

    Shapes: (..., m, n) -> (..., m, n), (..., min(m, n)) int32. pivot: must be True.
    Errors: ArgumentError for pivot=False; TraceError in a program that is recorded as a whole, which cannot know the exchanges

    >>> factors, pivots = lu_factor(Tensor([[2.0, 1.0], [4.0, 3.0]]))
    >>> factors.tolist(), pivots.tolist()
    ([[4.0, 3.0], [0.5, -0.5]], [2, 2])
    """
    if not pivot:
        raise ArgumentError("linalg.lu_factor: pivot=False is not there: rows are always exchanged; help: pivot=True")
    made, order = _linalg.lu_factor(A)
    return Factors(made, _pivots(order, min(A.shape[-2:])))


def lu_solve(LU: Tensor, pivots: Tensor, B: Tensor, *, left: bool = True, adjoint: bool = False) -> Tensor:
    """X of A X = B, or with left=False of X A = B, or with adjoint=True of the conjugated and transposed A, from `lu_factor` of A. Its
    gradient goes to B alone: differentiate `solve`."""
    order = _order(pivots, LU.shape[-2])
    if not left:
        return lu_solve(LU, pivots, B.mH, adjoint=not adjoint).mH
    if not adjoint:
        return _linalg.lu_solve((LU, order), B)
    factors = LU.detach().mH
    y = _linalg.solve_triangular(factors, B, upper=False)
    y = _linalg.solve_triangular(factors, y, upper=True, unitriangular=True)
    return F.take_along_axis(y, F.broadcast_to(F.expand_dims(F.argsort(order), -1), y.shape), -2)


def lu_unpack(LU_data: Tensor, LU_pivots: Tensor, unpack_data: bool = True, unpack_pivots: bool = True) -> Unpacked:
    """(P, L, U) of what `lu_factor` gives; what is not asked for is empty."""
    m, n = LU_data.shape[-2:]
    k = min(m, n)
    none = F.zeros((0,), LU_data.dtype)
    lower = F.tril(LU_data[..., :, :k], -1) + F.eye(m, k, dtype=LU_data.dtype) if unpack_data else none
    upper = F.triu(LU_data[..., :k, :]) if unpack_data else none
    if not unpack_pivots:
        return Unpacked(none, lower, upper)
    rows = F.expand_dims(_order(LU_pivots, m), -1) == F.arange(m, dtype="int64")
    return Unpacked(rows.astype(LU_data.dtype).mT, lower, upper)


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


def diagonal(A: Tensor, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """The diagonals of the last two axes, or of two others, as the last axis."""
    return shaping.diagonal(A, offset, dim1, dim2)


class Checked(NamedTuple):
    """What functions give that say by a number, and by no error, whether they succeeded: 0 where they did."""

    result: Tensor
    info: Tensor


def _each_matrix(compute: Any, A: Tensor, check_errors: bool) -> Checked:
    """compute(A) of all matrices, and zeros; where one cannot be computed NaNs in the place of all, and 1 for those that cannot."""
    lead = A.shape[:-2]
    try:
        return Checked(compute(A), F.zeros(lead, "int32"))
    except LinAlgError:
        if check_errors:
            raise
    failed = []
    for m in A.detach().reshape(-1, *A.shape[-2:]):
        try:
            compute(m if lead else m.reshape(A.shape))
            failed.append(0)
        except LinAlgError:
            failed.append(1)
    info = Tensor(failed, dtype="int32").reshape(lead)
    good = F.where(info.reshape(*lead, 1, 1) == 0, A, F.eye(A.shape[-1], dtype=A.dtype))
    found = compute(good)
    return Checked(F.where(info.reshape(*lead, *(1,) * (found.ndim - len(lead))) == 0, found, float("nan")), info)


def cholesky_ex(A: Tensor, *, upper: bool = False, check_errors: bool = False) -> Checked:
    """(`cholesky`, info): info is 0, and 1 of matrices that are not positive definite, whose factor is NaN.

    Errors: LinAlgError for such a matrix with check_errors

    >>> cholesky_ex(Tensor([[-1.0]])).info.item(), cholesky_ex(Tensor([[4.0]])).result.tolist()
    (1, [[2.0]])
    """
    return _each_matrix(lambda m: _linalg.cholesky(m, upper=upper), A, check_errors)


def inv_ex(A: Tensor, *, check_errors: bool = False) -> Checked:
    """(`inv`, info): info is 0, and 1 of singular matrices, whose inverse is NaN. Errors: LinAlgError for such a matrix with check_errors"""
    return _each_matrix(_linalg.inv, A, check_errors)


def solve_ex(A: Tensor, B: Tensor, *, left: bool = True, check_errors: bool = False) -> Checked:
    """(`solve`, info): as `inv_ex`. Errors: LinAlgError for a singular matrix with check_errors"""
    try:
        return Checked(solve(A, B, left=left), F.zeros(A.shape[:-2], "int32"))
    except LinAlgError:
        if check_errors:
            raise
    inverse, info = inv_ex(A)  # NaNs in the place of the singular ones
    return Checked(inverse @ B if left else B @ inverse, info)


def tensorinv(A: Tensor, ind: int = 2) -> Tensor:
    """The inverse of A as a matrix of its first `ind` axes by the others, with the others first.

    Errors: ShapeError where the extents of both have different products

    >>> tensorinv(F.eye(4).reshape(4, 2, 2), ind=1).shape
    (2, 2, 4)
    """
    rows, columns = A.shape[:ind], A.shape[ind:]
    if ind < 1 or math.prod(rows) != math.prod(columns):
        raise ShapeError(f"tensorinv: the first {ind} axes of {A.shape} have {math.prod(rows)} elements, the others {math.prod(columns)}")
    return _linalg.inv(A.reshape(math.prod(rows), -1)).reshape(*columns, *rows)


def tensorsolve(A: Tensor, B: Tensor, dims: Sequence[int] | None = None) -> Tensor:
    """X of tensordot(A, X, X.ndim) = B. Args: dims: axes of A that are moved to its end first.

    Errors: ShapeError where the axes of A that are not those of B have another number of elements than B

    >>> tensorsolve(2.0 * F.eye(4).reshape(4, 2, 2), F.ones(4)).tolist()
    [[0.5, 0.5], [0.5, 0.5]]
    """
    moved = A if dims is None else F.moveaxis(A, tuple(dims), tuple(range(A.ndim - len(dims), A.ndim)))
    rest = moved.shape[B.ndim :]
    if math.prod(rest) != B.size:
        raise ShapeError(f"tensorsolve: axes {rest} of {moved.shape} must have as many elements as {B.shape}")
    return _linalg.solve(moved.reshape(B.size, -1), B.reshape(-1)).reshape(*rest)


def __getattr__(name: str) -> Any:
    raise NoSuchName("tengen.pytorch.linalg", name, lambda: dir(sys.modules[__name__]))


__all__ = [
    "Checked", "LinAlgError", "cholesky_ex", "inv_ex", "solve_ex", "tensorinv", "tensorsolve",
    "cholesky", "cond", "cross", "det", "diagonal", "eig", "eigh", "eigvals", "eigvalsh", "inv", "lstsq", "lu", "lu_factor", "lu_solve",
    "lu_unpack", "matmul", "matrix_exp", "matrix_norm", "matrix_power", "matrix_rank", "multi_dot", "norm", "pinv", "qr", "slogdet", "solve",
    "solve_triangular", "svd", "svdvals", "vander", "vecdot", "vector_norm",
]  # fmt: skip
in_words(globals(), __all__)
