"""QR and its reflectors, symmetric eigenproblems and singular values: thin ops over `kernels/linalg/`.

Signs are fixed by a rule, so that results are those of a function, and the same on every machine: of each eigenvector, and of each
singular vector on the longer side of the matrix (the left ones of square matrices), the first element that is at least half as large as
the largest one is positive. R of QR has the signs of LAPACK's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tengen import kernels
from tengen.base.errors import GradientError
from tengen.ir.types import Dim, TensorType
from tengen.ops.contract import matmul
from tengen.ops.creation import tril
from tengen.ops.define import Case, composite, lookup, primitive
from tengen.ops.elementwise import add, div, mul, sub, where
from tengen.ops.joining import concat, narrow
from tengen.ops.linalg_factor import (
    check_matrices,
    check_parts,
    check_square,
    halved_diagonal,
    same_extent,
    triangular_solve,
    turned,
)
from tengen.ops.views import expand_dims, on_diagonal
from tengen.ops.widths import rounded_once

if TYPE_CHECKING:
    from tengen.tensor import Tensor


def least(m: Dim, n: Dim) -> Dim:
    """The smaller of two extents; Undecided where only a run can tell."""
    return m if m is n or m <= n else n


def _sum(*terms):
    """The sum of those that are there; None if none is."""
    total = None
    for x in terms:
        total = x if total is None else total if x is None else add(total, x)
    return total


# ---- QR --------------------------------------------------------------------------------------------------------------


@primitive
def qr(a: Tensor, complete: bool = False) -> tuple[Tensor, Tensor]:
    """a = q r: orthonormal columns, and an upper triangle.

    Shapes: (..., m, n) -> (..., m, k), (..., k, n) with k = min(m, n); with `complete` k = m
    """


@qr.infer
def _(a, complete):
    check_matrices(a)
    m, n = a.shape[-2:]
    k = m if complete else least(m, n)
    return TensorType((*a.shape[:-1], k), a.dtype), TensorType((*a.shape[:-2], k, n), a.dtype)


@qr.lower
def _(lo, ins, outs, complete):
    kernels.linalg.reflectors.qr(lo, ins[0], *outs)


@qr.vjp
def _(g, a, *, out, complete):
    """Source: Walter and Lehmann, "Algorithmic differentiation of linear algebra functions", 2010; wide matrices as in PyTorch."""
    q, r = out
    gq, gr = g
    if gq is None and gr is None:
        return None
    m, n = a.shape[-2:]
    if least(m, n) is n and not same_extent(m, n):
        if complete:
            raise GradientError("qr: the complete factors of tall matrices have no gradient; help: the reduced ones have")
        return _qr_gradient(q, r, gq, gr)
    if same_extent(m, n):
        return _qr_gradient(q, r, gq, gr)
    gr = lookup("zeros_like")(r) if gr is None else gr
    rest = n - m
    right, g_right = narrow(a, a.ndim - 1, m, rest), narrow(gr, a.ndim - 1, m, rest)
    gq = _sum(gq, matmul(right, g_right, False, True))
    left = _qr_gradient(q, narrow(r, a.ndim - 1, 0, m), gq, narrow(gr, a.ndim - 1, 0, m))
    return concat([left, matmul(q, g_right)], a.ndim - 1)


def _qr_gradient(q, r, gq, gr):
    """Of matrices with at least as many rows as columns, of full rank."""
    m = _sum(None if gr is None else matmul(r, gr, False, True), None if gq is None else mul(matmul(gq, q, True), -1.0))
    whole = _sum(gq, matmul(q, add(tril(m), turned(tril(m, -1)))))
    return turned(triangular_solve(r, turned(whole), False))  # times R^-T


def sample_matrix(*shape):
    """Matrices whose singular values are distinct and not small."""
    n = min(shape[-2:])

    def make(r):
        return (r.uniform(-0.25, 0.25, shape) + np.eye(*shape[-2:]) * np.resize(np.arange(1, n + 1), shape[-1]),)

    return make


qr.reference(lambda a, complete=False: np.linalg.qr(a, "complete" if complete else "reduced"))
qr.cases(
    Case(sample_matrix(2, 5, 3)),
    Case(sample_matrix(4, 4), {"complete": True}),
    Case(sample_matrix(2, 3, 5)),
    Case(sample_matrix(5, 2), {"complete": True}, grad=False),
    Case(sample_matrix(35, 33), grad=False),
)

# ---- reflectors of QR -------------------------------------------------------------------------------------------------


def sample_parts(*shape):
    """Parts of complex matrices whose singular values are distinct and not small."""
    n = min(shape[-2:])

    def make(r):
        re = r.uniform(-0.25, 0.25, shape) + np.eye(*shape[-2:]) * np.resize(np.arange(1, n + 1), shape[-1])
        return re, r.uniform(-0.25, 0.25, shape)

    return make


@primitive
def geqrf(a: Tensor) -> tuple[Tensor, Tensor]:
    """The reflectors whose product is q of a = q r: (r, and below its diagonal their vectors; their factors tau).

    Shapes: (..., m, n) -> (..., m, n), (..., k) with k = min(m, n)
    """


def _scales(a: TensorType) -> TensorType:
    return TensorType((*a.shape[:-2], least(*a.shape[-2:])), a.dtype)


@geqrf.infer
def _(a):
    check_matrices(a)
    return a, _scales(a)


@geqrf.lower
def _(lo, ins, outs):
    kernels.linalg.reflectors.geqrf(lo, ins[0], *outs)


def _no_gradient():
    raise GradientError("geqrf: reflectors have no gradient here, as in PyTorch; help: linalg.qr has")


@geqrf.vjp
def _(g, a):
    _no_gradient()


def _np_geqrf(a):
    h, tau = np.linalg.qr(a, "raw")
    return np.swapaxes(h, -1, -2), tau


geqrf.reference(_np_geqrf)
geqrf.cases(*(Case(sample_matrix(*s), grad=False) for s in ((2, 5, 3), (3, 5), (4, 4), (35, 33))))


@primitive
def complex_geqrf(re: Tensor, im: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """`geqrf` of complex matrices: (real parts, imaginary parts, real parts of tau, imaginary parts)."""


@complex_geqrf.infer
def _(re, im):
    check_parts(re, im)
    return re, im, _scales(re), _scales(im)


@complex_geqrf.lower
def _(lo, ins, outs):
    kernels.linalg.complex_reflectors.geqrf(lo, tuple(ins), tuple(outs[:2]), tuple(outs[2:]))


@complex_geqrf.vjp
def _(g, re, im):
    _no_gradient()


def _np_complex(re, im):
    h, tau = _np_geqrf(re + 1j * im)
    return h.real, h.imag, tau.real, tau.imag


complex_geqrf.reference(_np_complex)
complex_geqrf.cases(*(Case(sample_parts(*s), grad=False) for s in ((2, 5, 3), (3, 5), (4, 4))))

# ---- eigenvalues of symmetric matrices -------------------------------------------------------------------------------


@primitive
def eigh(a: Tensor) -> tuple[Tensor, Tensor]:
    """The eigenvalues of symmetric matrices in ascending order, and orthonormal eigenvectors as columns. Only the lower triangle is read,
    and has a gradient. NaN for matrices with elements that are not finite.

    Shapes: (..., n, n) -> (..., n), (..., n, n)
    """


@eigh.infer
def _(a):
    check_square(a)
    return TensorType(a.shape[:-1], a.dtype), a


@eigh.lower
def _(lo, ins, outs):
    kernels.linalg.tridiagonal.eigh(lo, ins[0], *outs)


def _gaps(values):
    """1 / (values[j] - values[i]) at (i, j), 0 on the diagonal."""
    n = values.shape[-1]
    one = on_diagonal(lookup("ones_like")(values), n, n)
    return sub(div(1.0, add(sub(expand_dims(values, -2), expand_dims(values, -1)), one)), one)


@eigh.vjp
def _(g, a, *, out):
    values, v = out
    n = values.shape[-1]
    inner = _sum(
        None if g[0] is None else on_diagonal(g[0], n, n), None if g[1] is None else mul(matmul(v, g[1], True), _gaps(values))
    )
    if inner is None:
        return None
    whole = matmul(matmul(v, inner), v, False, True)
    return add(halved_diagonal(whole), halved_diagonal(turned(whole)))


@primitive
def eigvalsh(a: Tensor) -> Tensor:
    """The eigenvalues of `eigh` alone, with the same bits.

    Shapes: (..., n, n) -> (..., n)
    """


@eigvalsh.infer
def _(a):
    check_square(a)
    return TensorType(a.shape[:-1], a.dtype)


@eigvalsh.lower
def _(lo, ins, outs):
    kernels.linalg.tridiagonal.eigh(lo, ins[0], outs[0], None)


@eigvalsh.vjp
def _(g, a):
    v = eigh(a)[1]
    whole = matmul(mul(v, expand_dims(g, -2)), v, False, True)
    return add(halved_diagonal(whole), halved_diagonal(turned(whole)))


def signs(v):
    """1 or -1 for each column, by the rule of this file."""
    size = np.abs(v)
    first = np.argmax(size >= size.max(-2, keepdims=True, initial=0) / 2, -2) if v.size else np.zeros((*v.shape[:-2], v.shape[-1]), int)
    return np.where(np.take_along_axis(v, first[..., None, :], -2) < 0, -1.0, 1.0) if v.size else 1.0


def _np_eigh(a):
    w, v = np.linalg.eigh(a)
    return w, v * signs(v)


eigh.reference(_np_eigh)
eigvalsh.reference(lambda a: np.linalg.eigvalsh(a))
for _op in (eigh, eigvalsh):
    _op.cases(
        Case(sample_matrix(2, 5, 5), rtol=1e-4),
        Case(sample_matrix(2, 2)),
        Case(sample_matrix(33, 33), grad=False),
    )

# ---- singular values -------------------------------------------------------------------------------------------------


@primitive
def svd(a: Tensor, full_matrices: bool = False) -> tuple[Tensor, Tensor, Tensor]:
    """a = u diag(s) vh: orthonormal columns of u and rows of vh, and singular values in descending order. NaN for matrices with elements
    that are not finite.

    Shapes: (..., m, n) -> (..., m, k), (..., k), (..., k, n) with k = min(m, n); with `full_matrices` u (..., m, m) and vh (..., n, n)
    """


@svd.infer
def _(a, full_matrices):
    check_matrices(a)
    m, n = a.shape[-2:]
    k = least(m, n)
    p, q = (m, n) if full_matrices else (k, k)
    lead = a.shape[:-2]
    return TensorType((*lead, m, p), a.dtype), TensorType((*lead, k), a.dtype), TensorType((*lead, q, n), a.dtype)


@svd.lower
def _(lo, ins, outs, full_matrices):
    u, s, v = outs
    if _tall(ins[0]):
        return kernels.linalg.bidiagonal.svd(lo, ins[0], u, s, v)
    a, left, right = map(kernels.linalg.stacks.transposed, (ins[0], v, u))
    kernels.linalg.bidiagonal.svd(lo, a, left, s, right)


def _tall(a) -> bool:
    m, n = a.shape[-2:]
    return m is n or bool(m >= n)


@svd.vjp
def _(g, a, *, out, full_matrices):
    """Source: Townsend, "Differentiating the singular value decomposition", 2016"""
    u, s, vh = out
    gu, gs, gv = g
    if gu is None and gs is None and gv is None:
        return None
    square = same_extent(*a.shape[-2:])
    if full_matrices and not square and not (gu is None and gv is None):
        raise GradientError("svd: the full matrices of matrices that are not square have no gradient; help: the reduced ones have")
    n = s.shape[-1]
    if full_matrices and not square:
        u, vh = narrow(u, a.ndim - 1, 0, n), narrow(vh, a.ndim - 2, 0, n)
    row, column = expand_dims(s, -2), expand_dims(s, -1)
    one = on_diagonal(lookup("ones_like")(s), n, n)
    gaps = None if gu is None and gv is None else sub(div(1.0, add(mul(sub(row, column), add(row, column)), one)), one)
    skew = lambda x: mul(gaps, sub(x, turned(x)))
    left = None if gu is None else mul(skew(matmul(u, gu, True)), row)
    right = None if gv is None else mul(skew(matmul(vh, gv, False, True)), column)
    inner = _sum(left, right, None if gs is None else on_diagonal(gs, n, n))
    whole = matmul(matmul(u, inner), vh)
    if not square and gu is not None and _tall(a):
        beside = sub(gu, matmul(u, matmul(u, gu, True)))
        whole = add(whole, matmul(div(beside, row), vh))
    if not square and gv is not None and not _tall(a):
        beside = sub(gv, matmul(matmul(gv, vh, False, True), vh))
        whole = add(whole, matmul(u, div(beside, column)))
    return whole


@primitive
def svdvals(a: Tensor) -> Tensor:
    """The singular values of `svd` alone, with the same bits.

    Shapes: (..., m, n) -> (..., k) with k = min(m, n)
    """


@svdvals.infer
def _(a):
    check_matrices(a)
    return TensorType((*a.shape[:-2], least(*a.shape[-2:])), a.dtype)


@svdvals.lower
def _(lo, ins, outs):
    a = ins[0] if _tall(ins[0]) else kernels.linalg.stacks.transposed(ins[0])
    kernels.linalg.bidiagonal.svd(lo, a, None, outs[0], None)


@svdvals.vjp
def _(g, a):
    u, _, vh = svd(a)
    return matmul(mul(u, expand_dims(g, -2)), vh)


def _np_svd(a, full_matrices=False):
    u, s, vh = np.linalg.svd(a, full_matrices)
    side = u if a.shape[-2] >= a.shape[-1] else np.swapaxes(vh, -1, -2)
    by = signs(side)
    if not full_matrices or a.shape[-2] == a.shape[-1]:
        return u * by, s, vh * np.swapaxes(by, -1, -2)
    return u, s, vh


svd.reference(_np_svd)
svdvals.reference(lambda a: np.linalg.svd(a)[1])
for _op in (svd, svdvals):
    _op.cases(
        Case(sample_matrix(2, 4, 4), rtol=1e-4),
        Case(sample_matrix(6, 3)),
        Case(sample_matrix(2, 3, 5)),
        Case(sample_matrix(35, 33), grad=False),
    )
svd.cases(Case(sample_matrix(3, 3), {"full_matrices": True}))


# ---- what is made of singular values ---------------------------------------------------------------------------------


@composite
def significant(s: Tensor, rtol: Tensor) -> Tensor:
    """Whether singular values (..., k) exceed rtol (...) times the largest one."""
    if same_extent(s.shape[-1], 0):
        return lookup("not_equal")(s, s)
    return lookup("greater")(s, mul(lookup("max")(s, -1, True), expand_dims(rtol, -1)))


significant.no_vjp("a truth value is not differentiable")
significant.reference(lambda s, rtol: s > s.max(-1, keepdims=True, initial=0) * rtol[..., None])
significant.cases(Case(lambda r: (-np.sort(-r.uniform(0, 1, (3, 5))), np.full(3, 0.5)), grad=False))


@composite
@rounded_once
def pinv(a: Tensor, rtol: Tensor) -> Tensor:
    """The pseudo-inverses of matrices; singular values of at most rtol times the largest one count as 0.

    Shapes: (..., m, n), (...) -> (..., n, m)
    """
    u, s, vh = svd(a)
    inverse = where(significant(s, rtol), div(1.0, s), 0.0)
    return matmul(mul(turned(vh), expand_dims(inverse, -2)), u, False, True)


@pinv.vjp
def _(g, a, rtol, *, out):
    """Source: Golub and Pereyra, "The differentiation of pseudo-inverses and nonlinear least squares problems", 1973"""
    p, gt = out, turned(g)
    pt = turned(p)
    rest = lambda x, y: sub(x, matmul(y, x))  # x - y x
    first = matmul(matmul(pt, g), pt)
    second = matmul(rest(gt, matmul(a, p)), matmul(p, pt))
    third = turned(rest(turned(matmul(matmul(pt, p), gt)), turned(matmul(p, a))))
    return sub(add(second, third), first), None


pinv.reference(lambda a, rtol: np.linalg.pinv(a, rtol))
pinv.cases(
    Case(lambda r: (*sample_matrix(2, 5, 3)(r), np.full(2, 1e-6)), rtol=1e-4),
    Case(lambda r: (*sample_matrix(3, 4)(r), np.float64(1e-6)), rtol=1e-4),
)
