"""`torch.linalg`: Tengen's, with PyTorch's arguments (`dim`, `keepdim`)."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import Any

from tengen import functional as F
from tengen import linalg as _linalg
from tengen.base.errors import ArgumentError, LinAlgError, ShapeError
from tengen.base.lazy import NoSuchName
from tengen.base.record import NamedTuple
from tengen.linalg import (
    cond,
    det,
    eig,
    eigvals,
    inv,
    matmul,
    matrix_exp,
    matrix_power,
    multi_dot,
    qr,
    slogdet,
    svdvals,
)
from tengen.ops.shape import normalize_axes, normalize_axis
from tengen.pytorch.functions import in_words, shaping
from tengen.pytorch.functions.dtypes import finfo
from tengen.pytorch.functions.factors import (
    Unpacked,
    householder_product,
    ldl_factor,
    ldl_factor_ex,
    ldl_solve,
    lu_factor,
    lu_factor_ex,
)
from tengen.pytorch.functions.factors import solve_factored as lu_solve
from tengen.tensor import Tensor


def cholesky(A: Tensor, *, upper: bool = False) -> Tensor:
    """The Cholesky factor of symmetric positive definite matrices."""
    return _linalg.cholesky(A, upper=upper)


def solve(A: Tensor, B: Tensor, *, left: bool = True) -> Tensor:
    """X of A X = B, or of X A = B."""
    if not left:
        return _linalg.solve(A.mT, B.mT).mT
    if B.ndim > 1 and B.shape == A.shape[:-1]:  # a vector for each matrix
        return _linalg.solve(A, F.expand_dims(B, -1))[..., 0]
    return _linalg.solve(A, B)


def lu(A: Tensor, *, pivot: bool = True) -> Unpacked:
    """P, L and U with A = P L U. Errors: ArgumentError with pivot=False, which is not there on a processor"""
    if not pivot:
        raise ArgumentError("linalg.lu: pivot=False is not there, as on PyTorch's processors")
    P, L, U = _linalg.lu(A)
    return Unpacked(P.astype(L.dtype), L, U)


def solve_triangular(A: Tensor, B: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False) -> Tensor:
    """X of A X = B, or of X A = B, for triangular A."""
    if left:
        return _linalg.solve_triangular(A, B, upper=upper, unitriangular=unitriangular)
    return _linalg.solve_triangular(A.mT, B.mT, upper=not upper, unitriangular=unitriangular).mT


class Fitted(NamedTuple):
    """What `lstsq` gives. What its driver does not find is empty, (0,)."""

    solution: Tensor
    residuals: Tensor
    rank: Tensor
    singular_values: Tensor


def lstsq(A: Tensor, B: Tensor, rcond: Any = None, *, driver: str | None = None) -> Fitted:
    """The least-squares solution of A X = B, by singular values whatever the driver is called.

    Args: driver: "gelsy" (None), "gelsd", "gelss" or "gels", which decides what else is told: residuals of systems of full rank with more rows
        than columns, but for "gelsy"; the rank, but for "gels"; singular values, for "gelsd" and "gelss".
    Errors: ArgumentError for another driver
    """
    if driver not in (None, "gelsy", "gelsd", "gelss", "gels"):
        raise ArgumentError(f"linalg.lstsq: driver={driver!r} must be 'gels', 'gelsy', 'gelsd' or 'gelss'")
    found = _linalg.lstsq(A, B, rtol=rcond)
    none = F.zeros((0,), found.singular_values.dtype)
    m, n = A.shape[-2:]
    whole = m > n and driver not in (None, "gelsy") and (driver == "gels" or bool(F.all(F.equal(found.rank, n)).item()))
    return Fitted(
        found.solution, found.residuals if whole else none, F.zeros((0,), "int64") if driver == "gels" else found.rank,
        found.singular_values if driver in ("gelsd", "gelss") else none,
    )  # fmt: skip


def svd(A: Tensor, full_matrices: bool = True, *, driver: str | None = None) -> Any:
    """(U, S, Vh)."""
    return _linalg.svd(A, full_matrices=full_matrices)


def _relative(A: Tensor, atol: Any, rtol: Any) -> Any:
    """The tolerance that singular values are compared with, over the largest one: the greater of rtol and atol over that. Without both None,
    which is max(m, n) eps; without rtol and with a positive atol, atol alone."""
    if atol is None or 0 in A.shape[-2:]:
        return rtol
    least = F.zeros((), svdvals(A).dtype) + atol
    if rtol is None:
        rtol = F.where(least > 0, 0.0, finfo(least.dtype).eps * max(A.shape[-2:]))
    largest = F.max(svdvals(A).detach(), -1)
    return F.maximum(least / F.where(F.equal(largest, 0), 1.0, largest), rtol)


def _hermitian(A: Tensor, UPLO: str = "L") -> Tensor:
    """The Hermitian matrices of which one triangle is read, "L" or "U". Gradients are those of whole Hermitian matrices, as PyTorch's."""
    if UPLO.upper() not in ("L", "U"):
        raise ArgumentError(f"UPLO={UPLO!r} must be 'L' or 'U'")
    x = A.detach()
    half = F.tril(x, -1) if UPLO.upper() == "L" else F.triu(x, 1)
    middle = F.expand_dims(F.real(F.diagonal(x, 0, -2, -1)), -1) * F.eye(x.shape[-1], dtype=x.dtype)
    whole = half + half.mH + middle
    return F.straight_through(whole, A) if A.requires_grad else whole


def eigh(A: Tensor, UPLO: str = "L") -> Any:
    """(eigenvalues, eigenvectors) of Hermitian matrices, of which one triangle is read. Errors: ArgumentError unless UPLO is "L" or "U"."""
    return _linalg.eigh(_hermitian(A, UPLO))


def eigvalsh(A: Tensor, UPLO: str = "L") -> Tensor:
    """The eigenvalues of Hermitian matrices, of which one triangle is read. Errors: ArgumentError for another UPLO than "L" and "U"."""
    return _linalg.eigvalsh(_hermitian(A, UPLO))


def pinv(A: Tensor, rcond: Any = None, hermitian: bool = False, *, atol: Any = None, rtol: Any = None) -> Tensor:
    """The pseudo-inverse. Args: atol, rtol: singular values of at most the greater of atol and rtol times the largest one count as 0; by
    default rtol is max(m, n) eps, and 0 with a positive atol. rcond: another name of rtol. hermitian: the lower triangle is read.

    >>> pinv(Tensor([[2.0, 0.0], [0.0, 0.1]]), atol=0.5).tolist()
    [[0.5, 0.0], [0.0, 0.0]]
    """
    A = _hermitian(A) if hermitian else A
    return _linalg.pinv(A, rtol=_relative(A, atol, rtol if rcond is None else rcond))


def matrix_rank(A: Tensor, tol: Any = None, hermitian: bool = False, *, atol: Any = None, rtol: Any = None) -> Tensor:
    """The number of singular values that are above a tolerance, as of `pinv`. Args: tol: an absolute one, without rtol.

    >>> matrix_rank(Tensor([[2.0, 0.0], [0.0, 0.1]]), atol=0.5).item()
    1
    """
    A = _hermitian(A) if hermitian else A
    return _linalg.matrix_rank(A, rtol=_relative(A, atol, rtol) if tol is None else _relative(A, tol, 0.0))


def norm(A: Tensor, ord: Any = None, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """A norm of vectors or matrices."""
    return _linalg.norm(A if dtype is None else A.astype(dtype), ord, dim, keepdim)


def vector_norm(x: Tensor, ord: float = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """The norm of vectors along axes, or of all elements."""
    return _linalg.vector_norm(x if dtype is None else x.astype(dtype), axis=dim, keepdims=keepdim, ord=ord)


def matrix_norm(A: Tensor, ord: Any = "fro", dim: tuple[int, int] = (-2, -1), keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """The norm of matrices, whose rows and columns are these two axes.

    Errors: ShapeError for other than two different axes

    >>> matrix_norm(F.ones((2, 3, 4)), dim=(0, 2)).shape
    (3,)
    """
    x = A if dtype is None else A.astype(dtype)
    axes = normalize_axes(dim, x.ndim)
    if len(axes) != 2:
        raise ShapeError(f"linalg.matrix_norm: dim={dim!r} must be two different axes of {x.shape}")
    found = _linalg.matrix_norm(F.moveaxis(x, tuple(dim), (-2, -1)), ord=ord)
    return F.expand_dims(found, axes) if keepdim else found


def cross(input: Tensor, other: Tensor, *, dim: int = -1) -> Tensor:
    """Products of vectors of three. Errors: ShapeError for other extents and for different numbers of axes; AxisError"""
    if input.ndim != other.ndim:
        raise ShapeError(f"linalg.cross: shapes {input.shape} and {other.shape} must have equal numbers of axes")
    normalize_axis(dim, input.ndim)
    return _linalg.cross(input, other, axis=dim)


def vecdot(x: Tensor, y: Tensor, *, dim: int = -1) -> Tensor:
    """Dot products along an axis, of the conjugate of the first."""
    return _linalg.vecdot(x, y, axis=dim)


def vander(x: Tensor, N: int | None = None) -> Tensor:
    """The powers 0 .. N - 1 of elements."""
    x = x if x.ndim else x.reshape(1)
    x = x if x.dtype.is_inexact else x.astype("int64")
    n = x.shape[-1] if N is None else N
    return x.unsqueeze(-1) ** F.arange(n, dtype="int64").astype(x.dtype)


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
    "cholesky", "cond", "cross", "det", "diagonal", "eig", "eigh", "eigvals", "eigvalsh", "inv", "lstsq", "lu", "lu_factor",
    "householder_product", "ldl_factor", "ldl_factor_ex", "ldl_solve", "lu_factor_ex", "lu_solve",
    "matmul", "matrix_exp", "matrix_norm", "matrix_power", "matrix_rank", "multi_dot", "norm", "pinv", "qr", "slogdet", "solve",
    "solve_triangular", "svd", "svdvals", "vander", "vecdot", "vector_norm",
]  # fmt: skip
in_words(globals(), __all__)
