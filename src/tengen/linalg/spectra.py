"""QR, eigenvalues, singular values, and what is made of them: pseudo-inverses, ranks, least squares."""

from __future__ import annotations

from typing import Any, Literal

from tengen.base.errors import ArgumentError, ShapeError
from tengen.base.record import NamedTuple
from tengen.linalg.parts import Matrix, adjoint, as_tensor, matrices, parts
from tengen.ops import linalg_complex as _complex
from tengen.ops import linalg_factor as _factor
from tengen.ops import linalg_spectra as _ops
from tengen.ops.calls import all_with_line
from tengen.ops.define import REGISTRY
from tengen.tensor import Tensor


class QRResult(NamedTuple):
    """x = Q @ R."""

    Q: Tensor
    R: Tensor


class EighResult(NamedTuple):
    """x @ eigenvectors = eigenvectors * eigenvalues."""

    eigenvalues: Tensor
    eigenvectors: Tensor


class SVDResult(NamedTuple):
    """x = (U * S) @ Vh."""

    U: Tensor
    S: Tensor
    Vh: Tensor


class LstsqResult(NamedTuple):
    """The solution, and what is known of the system."""

    solution: Tensor
    residuals: Tensor
    rank: Tensor
    singular_values: Tensor


def qr(x: Matrix, /, *, mode: Literal["reduced", "complete"] = "reduced") -> QRResult:
    """Q, R with x = Q @ R: orthonormal columns, and an upper triangle.

    Shapes:   (..., m, n) -> (..., m, k), (..., k, n) with k = min(m, n); with mode="complete" k = m
    Gradient: where the first min(m, n) columns are linearly independent; GradientError for complete factors of tall matrices
    Numerics: Householder's reflectors in blocks; the signs of R are LAPACK's
    Errors: ArgumentError for another mode

    >>> from tengen import Tensor, linalg
    >>> q, r = linalg.qr(Tensor([[3.0, 1.0], [4.0, 2.0]]))
    >>> r.numpy().round(2)
    array([[-5. , -2.2],
           [ 0. ,  0.4]], dtype=float32)
    """
    if mode not in ("reduced", "complete"):
        raise ArgumentError(f"qr: mode={mode!r} must be 'reduced' or 'complete'")
    x = matrices("qr", x)
    if x.dtype.is_complex:
        q, qi, r, ri = _complex.complex_qr(*parts(x), mode == "complete")
        return QRResult(REGISTRY["complex"](q, qi), REGISTRY["complex"](r, ri))
    return QRResult(*_ops.qr(x, mode == "complete"))


class EigResult(NamedTuple):
    """x @ eigenvectors = eigenvectors * eigenvalues, complex."""

    eigenvalues: Tensor
    eigenvectors: Tensor


def eig(x: Matrix, /) -> EigResult:
    """The eigenvalues of general square matrices, in no order that means anything, and eigenvectors of length 1 as columns.

    Shapes:   (..., n, n) -> (..., n), (..., n, n). Results are complex for real matrices too, as in PyTorch.
    Errors:   ShapeError, DTypeError for what are no square matrices of floats or complex numbers
    Gradient: where eigenvalues are distinct (else infinity or NaN comes out). The length of a vector is 1 and its phase arbitrary: a loss
              must not depend on either
    Numerics: QR sweeps over Hessenberg's form, in complex arithmetic. Residuals are some eps times the norm of x; errors of eigenvalues
              that times their condition. The phase of a vector: the first element with at least half of its largest part's magnitude is
              real and positive. Elements that are not finite make all results of their matrix NaN

    >>> from tengen import Tensor, linalg
    >>> linalg.eig(Tensor([[0.0, -1.0], [1.0, 0.0]])).eigenvalues.numpy().round(4).tolist()
    [1j, -1j]
    """
    x = matrices("eig", x, square=True)
    re, im = parts(x) if x.dtype.is_complex else (x, REGISTRY["zeros_like"](x))
    w, wi, v, vi = _complex.general_eig(re, im)
    return EigResult(REGISTRY["complex"](w, wi), REGISTRY["complex"](v, vi))


def eigvals(x: Matrix, /) -> Tensor:
    """The eigenvalues of general square matrices: those of `eig`.

    Shapes: (..., n, n) -> (..., n), complex
    Errors: as of `eig`

    >>> from tengen import Tensor, linalg
    >>> linalg.eigvals(Tensor([[2.0, 1.0], [0.0, 3.0]])).tolist()
    [(2+0j), (3+0j)]
    """
    return eig(x).eigenvalues


def eigh(x: Matrix, /) -> EighResult:
    """The eigenvalues of symmetric or Hermitian matrices in ascending order, and orthonormal eigenvectors as columns.

    Shapes:   (..., n, n) -> (..., n), (..., n, n). Only the lower triangle of x is read.
    Gradient: that of symmetric matrices: it is symmetric. Where eigenvalues are equal, eigenvectors have none (infinity or NaN comes
              out), and eigenvalues have one still. The phases of complex vectors are arbitrary: a loss must not depend on them
    Numerics: Householder's tridiagonal form and implicit QR. Errors of eigenvalues are some eps times the largest one. The sign of a vector:
              its first element that is at least half as large as its largest one is positive. Elements that are not finite make all
              results of their matrix NaN

    >>> from tengen import Tensor, linalg
    >>> linalg.eigh(Tensor([[2.0, 1.0], [1.0, 2.0]])).eigenvalues.numpy().round(4).tolist()
    [1.0, 3.0]
    """
    x = matrices("eigh", x, square=True)
    if x.dtype.is_complex:
        w, v, vi = _complex.complex_eigh(*_complex.hermitian(*parts(x)))
        return EighResult(w, REGISTRY["complex"](v, vi))
    return EighResult(*_ops.eigh(_factor.mirrored(x)))


def eigvalsh(x: Matrix, /) -> Tensor:
    """The eigenvalues of symmetric matrices in ascending order: those of `eigh`, bit for bit.

    Shapes: (..., n, n) -> (..., n). Only the lower triangle of x is read.

    >>> from tengen import Tensor, linalg
    >>> linalg.eigvalsh(Tensor([[2.0, 1.0], [1.0, 2.0]])).numpy().round(4).tolist()
    [1.0, 3.0]
    """
    x = matrices("eigvalsh", x, square=True)
    return eigh(x).eigenvalues if x.dtype.is_complex else _ops.eigvalsh(_factor.mirrored(x))


def svd(x: Matrix, /, *, full_matrices: bool = True) -> SVDResult:
    """U, S, Vh with x = (U * S) @ Vh: orthonormal columns of U and rows of Vh, singular values in descending order.

    Shapes:   (..., m, n) -> (..., m, m), (..., k), (..., n, n) with k = min(m, n); without full_matrices (..., m, k), (..., k), (..., k, n)
    Gradient: of S always; of U and Vh where singular values are distinct, and not 0 in matrices that are not square (else infinity or NaN
              comes out); GradientError for U or Vh of full matrices that are not square
    Numerics: Householder's bidiagonal form and implicit QR. Errors of singular values are some eps times the largest one. Signs: of
              each vector of the longer side (of U for square matrices), the first element that is at least half as large as the largest one
              is positive. Elements that are not finite make all results of their matrix NaN

    >>> from tengen import Tensor, linalg
    >>> u, s, vh = linalg.svd(Tensor([[0.0, 2.0], [1.0, 0.0]]))
    >>> s.tolist()
    [2.0, 1.0]
    """
    x = matrices("svd", x)
    if not x.dtype.is_complex:
        return SVDResult(*_ops.svd(x, full_matrices))
    if x.shape[-2] < x.shape[-1]:
        u, s, vh = svd(adjoint(x), full_matrices=full_matrices)
        return SVDResult(adjoint(vh), s, adjoint(u))
    u, ui, s, v, vi = _complex.complex_svd(*parts(x), full_matrices)
    return SVDResult(REGISTRY["complex"](u, ui), s, REGISTRY["complex"](v, vi))


def svdvals(x: Matrix, /) -> Tensor:
    """The singular values in descending order: those of `svd`, bit for bit.

    Shapes: (..., m, n) -> (..., min(m, n))

    >>> from tengen import Tensor, linalg
    >>> linalg.svdvals(Tensor([[0.0, 2.0], [1.0, 0.0]])).tolist()
    [2.0, 1.0]
    """
    x = matrices("svdvals", x)
    return svd(x, full_matrices=False).S if x.dtype.is_complex else _ops.svdvals(x)


def _tolerance(x: Tensor, rtol: Any) -> Tensor:
    """rtol, by default max(m, n) eps, as a tensor of the dtype of x, or of its parts."""
    d = x.dtype.part if x.dtype.is_complex else x.dtype
    if rtol is None:
        eps = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}[d.name]
        rtol = max(x.shape[-2:]) * eps
    return REGISTRY["astype"](as_tensor(rtol), d).detach()


def matrix_rank(x: Matrix, /, *, rtol: Any = None) -> Tensor:
    """How many singular values exceed rtol times the largest one.

    Shapes: (..., m, n) -> (...) int64
    Args:   rtol: default max(m, n) eps; a number, or one for each matrix

    >>> from tengen import Tensor, linalg
    >>> linalg.matrix_rank(Tensor([[1.0, 1.0], [1.0, 1.0]])).item()
    1
    """
    x = matrices("matrix_rank", x)
    return _ops.significant(svdvals(x), _tolerance(x, rtol)).sum(-1)


def pinv(x: Matrix, /, *, rtol: Any = None) -> Tensor:
    """The Moore-Penrose pseudo-inverses, through singular values; those of at most rtol times the largest one count as 0.

    Shapes:   (..., m, n) -> (..., n, m)
    Args:     rtol: default max(m, n) eps; a number, or one for each matrix
    Gradient: for changes of x that do not change its rank (Golub and Pereyra, 1973); singular values may be equal

    >>> from tengen import Tensor, linalg
    >>> linalg.pinv(Tensor([[2.0], [0.0]])).tolist()
    [[0.5, 0.0]]
    """
    x = matrices("pinv", x)
    if x.dtype.is_complex:
        if x.shape[-2] < x.shape[-1]:
            return adjoint(pinv(adjoint(x), rtol=rtol))
        return REGISTRY["complex"](*_complex.complex_pinv(*parts(x), _tolerance(x, rtol)))
    return _ops.pinv(x, _tolerance(x, rtol))


def lstsq(a: Matrix, b: Matrix, /, *, rtol: Any = None) -> LstsqResult:
    """The y of the least norm among those with the least sum of (a @ y - b) ** 2: pinv(a) @ b.

    Shapes:   (..., m, n), (m,) -> (n,); (..., m, n), (..., m, k) -> (..., n, k)
    Args:     rtol: as of `pinv`
    Returns:  (solution, residuals, rank, singular_values). Residuals are sums of squares for each column of b, always; NumPy leaves
              them out for systems that are not of full rank, or have as many unknowns as equations
    Gradient: as of `pinv`, of the solution and the residuals
    Errors: ShapeError where a and b do not fit each other

    >>> from tengen import Tensor, linalg
    >>> linalg.lstsq(Tensor([[1.0], [1.0]]), Tensor([1.0, 3.0])).solution.numpy().round(4).tolist()
    [2.0]
    """
    a, b = matrices("lstsq", a), as_tensor(b)
    if b.ndim == 0 or b.shape[-2 if b.ndim > 1 else -1] != a.shape[-2]:
        raise ShapeError(f"lstsq: a of shape {tuple(a.shape)} does not fit b of shape {tuple(b.shape)}")
    y = REGISTRY["matmul"](pinv(a, rtol=rtol), b)
    apart = REGISTRY["matmul"](a, y) - b
    s = svdvals(a).detach()
    rank = _ops.significant(s, _tolerance(a, rtol)).sum(-1)
    return LstsqResult(y, REGISTRY["real"](apart * REGISTRY["conj"](apart)).sum(-2 if b.ndim > 1 else -1), rank, s)


__all__ = [
    "EigResult", "EighResult", "LstsqResult", "QRResult", "SVDResult",
    "eig", "eigh", "eigvals", "eigvalsh", "lstsq", "matrix_rank", "pinv", "qr", "svd", "svdvals",
]  # fmt: skip
all_with_line(globals(), __all__)
