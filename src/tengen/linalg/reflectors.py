"""Householder's reflectors as LAPACK keeps them, and their products.

Reflector i of k is I - tau[i] v v^H; v has i zeros, a 1, and then column i of a matrix below its diagonal. The product of all, in order, is
I - V T V^H with an upper triangle T (Schreiber and Van Loan, "A storage-efficient WY representation for products of Householder
transformations", 1989). With D = diag(tau) and S = V^H V it is T = (I + D S)^-1 D, of which only what is above the diagonal of D S counts:
a system with ones on its diagonal for any tau. So products have the gradients of sums and systems.
"""

from __future__ import annotations

from tengen.base.errors import ShapeError
from tengen.base.record import NamedTuple
from tengen.linalg.parts import Matrix, adjoint, matrices, parts, together
from tengen.linalg.systems import solve_triangular
from tengen.ops import linalg_spectra as _ops
from tengen.ops.calls import all_with_line
from tengen.ops.define import REGISTRY
from tengen.ops.widths import rounded_once
from tengen.tensor import Tensor


class GeqrfResult(NamedTuple):
    """R, with the vectors of reflectors below its diagonal, and their factors."""

    a: Tensor
    tau: Tensor


def geqrf(x: Matrix, /) -> GeqrfResult:
    """The reflectors whose product is the Q of x = Q @ R, as LAPACK keeps them.

    Shapes:   (..., m, n) -> (..., m, n), (..., k) with k = min(m, n)
    Returns:  (a, tau): R in the upper triangle of a, and below it the vectors of the reflectors without their 1
    Errors:   ShapeError, DTypeError for what are no matrices of floats or complex numbers
    Gradient: a GradientError, as in PyTorch; `qr` has one
    Numerics: those of `qr`

    >>> from tengen import Tensor, linalg
    >>> a, tau = linalg.geqrf(Tensor([[3.0, 1.0], [4.0, 2.0]]))
    >>> a.numpy().round(2).tolist(), tau.numpy().round(2).tolist()
    ([[-5.0, -2.200000047683716], [0.5, 0.4000000059604645]], [1.600000023841858, 0.0])
    """
    x = matrices("geqrf", x)
    if x.dtype.is_complex:
        re, im, tau, tau_im = _ops.complex_geqrf(*parts(x))
        return GeqrfResult(REGISTRY["complex"](re, im), REGISTRY["complex"](tau, tau_im))
    return GeqrfResult(*_ops.geqrf(x))


def _vectors(name: str, x: Matrix, tau: Matrix) -> tuple[Tensor, Tensor]:
    """(V, T) of the reflectors of x; see above."""
    x, tau = together(matrices(name, x), REGISTRY["expand_dims"](tau, -1))
    m, k = x.shape[-2], tau.shape[-2]
    if x.shape[:-2] != tau.shape[:-2] or k > min(x.shape[-2:]):
        seen = f"x of shape {tuple(x.shape)} and tau of shape {tuple(tau.shape[:-1])}"
        raise ShapeError(f"{name}: takes reflectors x (..., m, n) and tau (..., k) with k <= min(m, n), got {seen}")
    v = REGISTRY["tril"](x[..., :k], -1) + REGISTRY["eye"](m, k, dtype=x.dtype)
    factors = REGISTRY["eye"](k, dtype=x.dtype) * tau
    return v, solve_triangular(tau * REGISTRY["matmul"](adjoint(v), v), factors, unitriangular=True)


@rounded_once
def householder_product(x: Matrix, tau: Matrix, /) -> Tensor:
    """The first columns of the product of reflectors, as `geqrf` keeps them: the Q of `qr`, if they are those of `geqrf`.

    Shapes:   (..., m, n), (..., k) with k <= n <= m -> (..., m, n)
    Args:     x: vectors below the diagonal of the first k columns; what else is there is not read. tau: the factors
    Errors:   ShapeError for shapes that are no such
    Gradient: of both

    >>> from tengen import Tensor, linalg
    >>> linalg.householder_product(*linalg.geqrf(Tensor([[3.0], [4.0]]))).numpy().round(2).tolist()
    [[-0.6000000238418579], [-0.800000011920929]]
    """
    v, t = _vectors("householder_product", x, tau)
    m, n = matrices("householder_product", x).shape[-2:]
    if n > m:
        raise ShapeError(f"householder_product: takes matrices with at least as many rows as columns, got {m} rows and {n} columns")
    multiply = REGISTRY["matmul"]
    return REGISTRY["eye"](m, n, dtype=v.dtype) - multiply(v, multiply(t, adjoint(v[..., :n, :])))


@rounded_once
def ormqr(x: Matrix, tau: Matrix, other: Matrix, /, *, left: bool = True, transpose: bool = False) -> Tensor:
    """Q @ other for the whole Q, (m, m), of reflectors as `geqrf` keeps them, without making Q.

    Shapes:   (..., m, n), (..., k) with k <= min(m, n), other (..., m, j), or with left=False (..., j, m) -> that of other
    Args:     left: False for other @ Q. transpose: Q.mH in the place of Q
    Errors:   ShapeError for shapes that do not fit
    Gradient: of all three

    >>> from tengen import Tensor, linalg
    >>> x = Tensor([[3.0], [4.0]])
    >>> linalg.ormqr(*linalg.geqrf(x), x, transpose=True).numpy().round(2).tolist()
    [[-5.0], [0.0]]
    """
    v, t = _vectors("ormqr", x, tau)
    v, t, other = together(v, t, matrices("ormqr", other))
    if other.shape[-2 if left else -1] != v.shape[-2]:
        raise ShapeError(f"ormqr: a Q of {v.shape[-2]} rows does not fit other of shape {tuple(other.shape)} with left={left}")
    t, multiply = adjoint(t) if transpose else t, REGISTRY["matmul"]
    if left:
        return other - multiply(v, multiply(t, multiply(adjoint(v), other)))
    return other - multiply(multiply(multiply(other, v), t), adjoint(v))


__all__ = ["GeqrfResult", "geqrf", "householder_product", "ormqr"]
all_with_line(globals(), __all__)
