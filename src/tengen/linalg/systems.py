"""Systems of equations, inverses and determinants, through Cholesky's factorisation and LU with partial pivoting."""

from __future__ import annotations

import math

from tengen.base.record import NamedTuple
from tengen.linalg.parts import Matrix, adjoint, as_tensor, matrices, parts, together
from tengen.ops import linalg_complex as _complex
from tengen.ops import linalg_factor as _ops
from tengen.ops.calls import all_with_line
from tengen.ops.define import REGISTRY
from tengen.tensor import Tensor


class SlogdetResult(NamedTuple):
    """sign and logarithm of the magnitude of determinants."""

    sign: Tensor
    logabsdet: Tensor


class LUResult(NamedTuple):
    """x = P @ L @ U."""

    P: Tensor
    L: Tensor
    U: Tensor


def cholesky(x: Matrix, /, *, upper: bool = False) -> Tensor:
    """L with x = L @ L.mH for symmetric (Hermitian) positive definite matrices; with `upper` U with x = U.mH @ U.

    Shapes:   (..., n, n) -> (..., n, n)
    Args:     upper: which triangle of x is read, and which one the factor is. The other triangle is not read.
    Errors:   LinAlgError (a ValueError) for a matrix that is not positive definite, with its place in the batch and the pivot
        that is not
              > 0; a recorded program raises it when its run has ended, without the place
    Gradient: that of symmetric matrices: it is symmetric
    Numerics: each element is one chain of fma in the order of columns; backward stable. Blocks and threads change no bit

    >>> from tengen import Tensor, linalg
    >>> linalg.cholesky(Tensor([[4.0, 2.0], [2.0, 5.0]])).tolist()
    [[2.0, 0.0], [1.0, 2.0]]
    """
    x = matrices("cholesky", x, square=True)
    if x.dtype.is_complex:
        return _complex_cholesky(x, upper)
    factor, info = _ops.cholesky(_ops.mirrored(x, not upper), upper)
    return _ops.checked(factor, info, "cholesky: not positive definite")


def _complex_cholesky(x: Tensor, upper: bool) -> Tensor:
    """By the real form, whose factor is that of the complex matrix."""
    h = REGISTRY["complex"](*_complex.hermitian(*parts(x.mT if upper else x)))  # the conjugate of x, read from the other triangle
    factor, info = _ops.cholesky(_complex.interleaved(h), False)
    factor = _ops.checked(factor[..., :, ::2], (info + 1) // 2, "cholesky: not positive definite")
    imaginary = REGISTRY["tril"](factor[..., 1::2, :], -1)  # the diagonal is real: what is there is rounding
    found = REGISTRY["complex"](factor[..., ::2, :], imaginary)
    return found.mT if upper else found


def _real_form(name: str, a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(complex matrices as real ones of twice the extents, their factors, the order of rows); LinAlgError for singular ones."""
    real = _complex.interleaved(a)
    factors, order, _, info = _ops.lu(real)
    return real, _ops.checked(factors, info, f"{name}: singular (rows and columns of real and imaginary parts are counted each)"), order


def _factored(name: str, x: Matrix) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(x, its factors, the order of its rows, the sign of that); LinAlgError for singular ones."""
    x = matrices(name, x, square=True)
    factors, order, sign, info = _ops.lu(x)
    return x, _ops.checked(factors, info, f"{name}: singular"), order, sign


def solve(x1: Matrix, x2: Matrix, /) -> Tensor:
    """The solutions of x1 @ y = x2.

    Shapes:   (..., n, n), (n,) -> (..., n); (..., n, n), (..., n, k) -> (..., n, k), where leading axes broadcast
    Errors:   LinAlgError (a ValueError) for a singular matrix (one whose pivot is exactly 0), with its place in the batch and
        the pivot;
              a recorded program raises it when its run has ended, without the place
    Numerics: by LU with partial pivoting; backward stable

    >>> from tengen import Tensor, linalg
    >>> linalg.solve(Tensor([[2.0, 0.0], [0.0, 4.0]]), Tensor([2.0, 2.0])).tolist()
    [1.0, 0.5]
    """
    x1, b = together(matrices("solve", x1, square=True), as_tensor(x2))
    column = b.ndim == 1
    if x1.dtype.is_complex:
        real, factors, order = _real_form("solve", x1)
        rows = _complex.interleaved_rows(REGISTRY["expand_dims"](b, -1) if column else b)
        y = _complex.from_rows(_ops.lu_solve(real, factors, order, rows))
        return REGISTRY["squeeze"](y, -1) if column else y
    x1, factors, order, _ = _factored("solve", x1)
    y = _ops.lu_solve(x1, factors, order, REGISTRY["expand_dims"](b, -1) if column else b)
    return REGISTRY["squeeze"](y, -1) if column else y


def inv(x: Matrix, /) -> Tensor:
    """The inverse matrices. To solve a system, `solve` is faster and more accurate.

    Shapes: (..., n, n) -> (..., n, n)
    Errors: as of `solve`

    >>> from tengen import Tensor, linalg
    >>> linalg.inv(Tensor([[2.0, 0.0], [0.0, 4.0]])).tolist()
    [[0.5, 0.0], [0.0, 0.25]]
    """
    x = matrices("inv", x, square=True)
    if x.dtype.is_complex:
        real, factors, order = _real_form("inv", x)
        one = _ops.identity_like(REGISTRY["real_part"](x))
        return _complex.from_rows(_ops.lu_solve(real, factors, order, _complex.interleaved_rows(REGISTRY["complex"](one, 0.0 * one))))
    x, factors, order, _ = _factored("inv", x)
    return _ops.lu_solve(x, factors, order, _ops.identity_like(x))


def det(x: Matrix, /) -> Tensor:
    """The determinants, as products of pivots; `slogdet` neither overflows nor underflows.

    Shapes:   (..., n, n) -> (...); 1 for matrices of no rows
    Gradient: det(x) times the inverse transposed; NaN at singular matrices

    >>> from tengen import Tensor, linalg
    >>> linalg.det(Tensor([[1.0, 2.0], [2.0, 2.0]])).item()
    -2.0
    """
    x = matrices("det", x, square=True)
    if x.dtype.is_complex:
        return REGISTRY["complex"](*_complex.complex_det(*parts(x)))
    factors, order, sign, _ = _ops.lu(x)
    return _ops.lu_det(x, factors, order, sign)


def slogdet(x: Matrix, /) -> SlogdetResult:
    """(sign, logabsdet): the determinants are sign * exp(logabsdet). The sign of a complex one has the magnitude 1.

    Shapes: (..., n, n) -> (...), (...). A singular matrix has the sign 0 and the logarithm -inf.

    >>> from tengen import Tensor, linalg
    >>> sign, logabsdet = linalg.slogdet(Tensor([[0.0, 2.0], [3.0, 0.0]]))
    >>> sign.item(), round(logabsdet.exp().item(), 4)
    (-1.0, 6.0)
    """
    x = matrices("slogdet", x, square=True)
    if x.dtype.is_complex:
        size, angle = _complex.complex_log_det(*parts(x))
        sign = REGISTRY["polar"](REGISTRY["astype"](REGISTRY["greater"](size.detach(), -math.inf), size.dtype), angle)
        return SlogdetResult(sign, size)
    factors, order, sign, _ = _ops.lu(x)
    signs = REGISTRY["prod"](REGISTRY["sign"](REGISTRY["last_diagonal"](factors)), -1)
    return SlogdetResult((sign * signs).detach(), _ops.lu_log_det(x, factors, order))


def lu_factor(x: Matrix, /) -> tuple[Tensor, Tensor]:
    """(L and U in one matrix, L below the diagonal, whose own is 1; the order of rows): x[order] = L @ U. For `lu_solve`.

    Shapes: (..., n, n) -> (..., n, n), (..., n) int64. SciPy's second result lists swaps; this one is the permutation that they make.
    """
    factors, order = _lu(matrices("lu_factor", x))
    return factors, order


def _lu(x: Tensor) -> tuple[Tensor, Tensor]:
    """(both factors in one matrix, the order of rows)."""
    if not x.dtype.is_complex:
        return _ops.lu(x)[:2]
    re, im, order = _complex.complex_lu(*parts(x))[:3]
    return REGISTRY["complex"](re, im), order


def lu_solve(lu_and_order: tuple[Tensor, Tensor], b: Matrix, /) -> Tensor:
    """The solutions of x @ y = b, from lu_factor(x). Its gradient goes to b alone: differentiate `solve`.

    Shapes: (..., n, n), (..., n, k) -> (..., n, k); a vector (n,) gives (..., n)
    """
    factors, order = lu_and_order
    b = as_tensor(b)
    column = b.ndim == 1
    f = factors.detach()
    if f.dtype.is_complex:
        rows = REGISTRY["expand_dims"](b, -1) if column else b
        pair = [_ops.ordered(p, order) for p in parts(together(f, rows)[1])]
        y = solve_triangular(f, REGISTRY["complex"](*pair), upper=False, unitriangular=True)
        y = solve_triangular(f, y)
        return REGISTRY["squeeze"](y, -1) if column else y
    y = _ops.lu_solve(f, f, order, REGISTRY["expand_dims"](b, -1) if column else b)
    return REGISTRY["squeeze"](y, -1) if column else y


def lu(x: Matrix, /) -> LUResult:
    """P, L, U with x = P @ L @ U: a permutation, a lower triangle with ones on its diagonal, an upper triangle.

    Shapes:   (..., m, n) -> (..., m, m), (..., m, k), (..., k, n) with k = min(m, n)
    Gradient: of square matrices; GradientError for others

    >>> from tengen import Tensor, linalg
    >>> p, l, u = linalg.lu(Tensor([[1.0, 2.0], [4.0, 4.0]]))
    >>> l.tolist(), u.tolist()
    ([[1.0, 0.0], [0.25, 1.0]], [[4.0, 4.0], [0.0, 1.0]])
    """
    x = matrices("lu", x)
    factors, order = _lu(x)
    m, n = x.shape[-2:]
    k = min(m, n)
    lower = REGISTRY["tril"](factors[..., :, :k], -1) + REGISTRY["eye"](m, k, dtype=x.dtype)
    one = REGISTRY["eye"](m, dtype=x.dtype.part if x.dtype.is_complex else x.dtype)
    return LUResult(_ops.ordered(one, order, True), lower, REGISTRY["triu"](factors[..., :k, :]))


def solve_triangular(a: Matrix, b: Matrix, /, *, upper: bool = True, unitriangular: bool = False, transposed: bool = False) -> Tensor:
    """The solutions of a @ y = b for triangular a; with `transposed` of a.T @ y = b.

    Shapes: (..., n, n), (..., n, k) -> (..., n, k), where leading axes broadcast; a vector (n,) gives (..., n)
    Args:
        upper: which triangle a is; the other one is not read. unitriangular: its diagonal is 1, and not read.
    Numerics: by substitution. A 0 on the diagonal gives infinity or NaN, as in PyTorch

    >>> from tengen import Tensor, linalg
    >>> linalg.solve_triangular(Tensor([[2.0, 0.0], [1.0, 1.0]]), Tensor([2.0, 3.0]), upper=False).tolist()
    [1.0, 2.0]
    """
    a, b = together(matrices("solve_triangular", a, square=True), as_tensor(b))
    column = b.ndim == 1
    b = REGISTRY["expand_dims"](b, -1) if column else b
    if a.dtype.is_complex:
        y = _complex_triangular(REGISTRY["swapaxes"](a, -1, -2) if transposed else a, b, upper == transposed, unitriangular)
    else:
        y = _ops.triangular_solve(a, b, not upper, unitriangular, transposed)
    return REGISTRY["squeeze"](y, -1) if column else y


def _complex_triangular(a: Tensor, b: Tensor, lower: bool, unit: bool) -> Tensor:
    """By the real form, with rows divided by the diagonal, so that it is a triangle."""
    strict = REGISTRY["tril"](a, -1) if lower else REGISTRY["triu"](a, 1)
    if not unit:
        d = REGISTRY["expand_dims"](REGISTRY["last_diagonal"](a), -1)
        strict, b = strict / d, b / d
    return _complex.from_rows(_ops.triangular_solve(_complex.interleaved(strict), _complex.interleaved_rows(b), lower, True, False))


def cho_solve(factor: Matrix, b: Matrix, /, *, upper: bool = False) -> Tensor:
    """The solutions of x @ y = b, from cholesky(x, upper=upper).

    Shapes: as of `solve_triangular`
    """
    factor = as_tensor(factor)
    if factor.dtype.is_complex:
        lower = adjoint(factor) if upper else factor
        return solve_triangular(adjoint(lower), solve_triangular(lower, b, upper=False))
    y = solve_triangular(factor, b, upper=upper, transposed=upper)
    return solve_triangular(factor, y, upper=upper, transposed=not upper)


def matrix_power(x: Matrix, n: int, /) -> Tensor:
    """x @ x @ ... @ x, n times, by repeated squaring; the identity for n = 0, of the inverse for n < 0.

    Shapes: (..., m, m) -> (..., m, m)
    Errors: LinAlgError for a singular matrix and n < 0

    >>> from tengen import Tensor, linalg
    >>> linalg.matrix_power(Tensor([[1.0, 1.0], [0.0, 1.0]]), 5).tolist()
    [[1.0, 5.0], [0.0, 1.0]]
    """
    n = n.__index__()
    x = inv(x) if n < 0 else matrices("matrix_power", x, square=True, floats=False)
    if n == 0:
        return REGISTRY["broadcast_to"](REGISTRY["eye"](x.shape[-1], dtype=x.dtype), x.shape)
    result, left = None, abs(n)
    while left:
        if left & 1:
            result = x if result is None else REGISTRY["matmul"](result, x)
        left >>= 1
        if left:
            x = REGISTRY["matmul"](x, x)
    assert result is not None
    return result


__all__ = [
    "LUResult", "SlogdetResult", "cho_solve", "cholesky", "det", "inv", "lu", "lu_factor", "lu_solve", "matrix_power", "slogdet", "solve",
    "solve_triangular",
]  # fmt: skip
all_with_line(globals(), __all__)
