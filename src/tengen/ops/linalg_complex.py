"""Factorisations of complex matrices, and eigenvalues of general ones: thin ops over `kernels/linalg/complex_reflectors.py` and
`schur.py`. They take and give real and imaginary parts, so they are ops of floats like all others; gradients are written with
complex numbers.

The gradient of a real loss L by a complex z = x + iy is dL/dx + i dL/dy. What depends on the phases of vectors, which are arbitrary, has
none: a loss must not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tengen import kernels
from tengen.base.dtype import int64
from tengen.base.errors import GradientError, ShapeError
from tengen.ir.types import TensorType
from tengen.ops.complex_numbers import complex_, conj, imag_part, real_part
from tengen.ops.contract import matmul
from tengen.ops.creation import tril, triu
from tengen.ops.define import Case, composite, lookup, primitive
from tengen.ops.elementwise import add, div, mul, neg, sub, where
from tengen.ops.joining import concat, narrow, stack
from tengen.ops.linalg_factor import check_parts, check_square, identity_like, lu, lu_solve, ordered, same_extent, turned
from tengen.ops.linalg_spectra import eigh, least, sample_parts, significant, signs, svd
from tengen.ops.shape import reshape
from tengen.ops.views import expand_dims, last_diagonal, on_diagonal

if TYPE_CHECKING:
    from tengen.tensor import Tensor


def adjoint(x):
    """The transposed and conjugated matrices."""
    return conj(turned(x))


def parts_of(z):
    """(real part, imaginary part)."""
    return real_part(z), imag_part(z)


def interleaved(x):
    """Complex matrices (..., m, n) as real ones (..., 2m, 2n), each element x + iy as [[x, -y], [y, x]]: products of such matrices are
    those of the complex ones, and triangles with a real diagonal are triangles."""
    re, im = parts_of(x)
    blocks = stack([stack([re, neg(im)], -1), stack([im, re], -1)], -3)
    *lead, m, _, n, _ = blocks.shape
    return reshape(blocks, (*lead, 2 * m, 2 * n))


def interleaved_rows(x):
    """Complex matrices (..., n, k) as real ones (..., 2n, k), rows of real and of imaginary parts in turn."""
    rows = stack(list(parts_of(x)), -2)
    *lead, n, _, k = rows.shape
    return reshape(rows, (*lead, 2 * n, k))


def from_rows(y):
    """The complex matrices that `interleaved_rows` makes these of."""
    *lead, n, k = y.shape
    pairs = reshape(y, (*lead, n // 2, 2, k))
    at = len(lead) + 1
    return complex_(*(lookup("squeeze")(narrow(pairs, at, i, 1), at) for i in (0, 1)))


def given(*gs):
    """The complex gradient of two parts; None where neither has one."""
    re, im = gs
    if re is None and im is None:
        return None
    zero = lambda like: lookup("zeros_like")(like)
    return complex_(zero(im) if re is None else re, zero(re) if im is None else im)


def each_of(g, many):
    """The gradient of each output of a composite that has several; None for one that has none."""
    g = g if isinstance(g, tuple) else (g,)
    return (*g, *(None,) * (many - len(g)))


def _like(a: TensorType, *last) -> TensorType:
    return TensorType((*a.shape[:-2], *last), a.dtype)


# ---- factors ---------------------------------------------------------------------------------------------------------


@primitive
def complex_lu(re: Tensor, im: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """`lu` of complex matrices: (real parts of both factors, imaginary parts, order, sign, info)."""


@complex_lu.infer
def _(re, im):
    check_parts(re, im)
    lead = re.shape[:-2]
    return re, im, TensorType(re.shape[:-1], int64), TensorType(lead, re.dtype), TensorType(lead, int64)


@complex_lu.lower
def _(lo, ins, outs):
    kernels.linalg.complex_reflectors.lu(lo, tuple(ins), tuple(outs[:2]), *outs[2:])


@complex_lu.vjp
def _(g, re, im, *, out):
    """As of `lu`, for complex numbers."""
    factors = given(*g[:2])
    if factors is None:
        return None
    if not same_extent(*re.shape[-2:]):
        raise GradientError("lu: the factors of matrices that are not square have no gradient here")
    f = complex_(*out[:2])
    lower = add(tril(f, -1), identity_like(f))
    inner = add(tril(matmul(adjoint(lower), tril(factors, -1)), -1), triu(matmul(triu(factors), adjoint(triu(f)))))
    rows = solved(adjoint(lower), inner)
    whole = adjoint(solved(triu(f), adjoint(rows)))  # times U^-H
    return tuple(ordered(part, out[2], True) for part in parts_of(whole))


@primitive
def complex_qr(re: Tensor, im: Tensor, complete: bool = False) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """`qr` of complex matrices: (real parts of q, imaginary parts, real parts of r, imaginary parts). The diagonal of r is real."""


@complex_qr.infer
def _(re, im, complete):
    check_parts(re, im)
    m, n = re.shape[-2:]
    k = m if complete else least(m, n)
    return (_like(re, m, k),) * 2 + (_like(re, k, n),) * 2


@complex_qr.lower
def _(lo, ins, outs, complete):
    kernels.linalg.complex_reflectors.qr(lo, tuple(ins), tuple(outs[:2]), tuple(outs[2:]))


@complex_qr.vjp
def _(g, re, im, *, out, complete):
    """As of `qr`, for complex numbers (Walter and Lehmann, 2010)."""
    q, r = complex_(*out[:2]), complex_(*out[2:])
    gq, gr = given(*g[:2]), given(*g[2:])
    if gq is None and gr is None:
        return None
    m, n = re.shape[-2:]
    if complete and least(m, n) is n and not same_extent(m, n):
        raise GradientError("qr: the complete factors of tall matrices have no gradient; help: the reduced ones have")
    if least(m, n) is n or same_extent(m, n):
        return parts_of(_qr_gradient(q, r, gq, gr))
    axis, rest = re.ndim - 1, n - m
    gr = lookup("zeros_like")(r) if gr is None else gr
    right, g_right = narrow(complex_(re, im), axis, m, rest), narrow(gr, axis, m, rest)
    gq = _sum(gq, matmul(right, adjoint(g_right)))
    left = _qr_gradient(q, narrow(r, axis, 0, m), gq, narrow(gr, axis, 0, m))
    return parts_of(concat([left, matmul(q, g_right)], axis))


def _sum(*terms):
    total = None
    for x in terms:
        total = x if total is None else total if x is None else add(total, x)
    return total


def _qr_gradient(q, r, gq, gr):
    """Of matrices with at least as many rows as columns, of full rank."""
    m = triu(_sum(None if gr is None else matmul(gr, adjoint(r)), None if gq is None else neg(matmul(adjoint(q), gq))))
    d = on_diagonal(real_part(last_diagonal(m)), *m.shape[-2:])
    whole = _sum(gq, matmul(q, add(add(triu(m, 1), adjoint(triu(m, 1))), d)))
    return adjoint(solved(r, adjoint(whole)))  # times r^-H


def solved(a, b):
    """a^-1 b for complex matrices, through real ones of twice the extents."""
    real = interleaved(a)
    factors, order, _, _ = lu(real)
    return from_rows(lu_solve(real, factors, order, interleaved_rows(b)))


@primitive
def complex_hessenberg(re: Tensor, im: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """a = q h q^H: parts of h, which is 0 below what is beside the diagonal, and of the unitary q. That of a Hermitian matrix is real."""


@complex_hessenberg.infer
def _(re, im):
    check_parts(re, im)
    check_square(re)
    return re, re, re, re


@complex_hessenberg.lower
def _(lo, ins, outs):
    kernels.linalg.complex_reflectors.hessenberg(lo, tuple(ins), tuple(outs[:2]), tuple(outs[2:]))


@primitive
def complex_bidiagonal(re: Tensor, im: Tensor, complete: bool = False) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """a = q b p^H for as many rows as columns or more: a real b, parts of q and of p.

    Shapes: (..., m, n) -> (..., n, n), (..., m, n) twice, with `complete` (..., m, m), (..., n, n) twice
    """


@complex_bidiagonal.infer
def _(re, im, complete):
    check_parts(re, im)
    m, n = re.shape[-2:]
    if least(m, n) is not n and not same_extent(m, n):
        raise ShapeError(f"takes as many rows as columns or more, got {re}")
    q = _like(re, m, m if complete else n)
    return _like(re, n, n), q, q, _like(re, n, n), _like(re, n, n)


@complex_bidiagonal.lower
def _(lo, ins, outs, complete):
    kernels.linalg.complex_reflectors.bidiagonal(lo, tuple(ins), outs[0], tuple(outs[1:3]), tuple(outs[3:]))


for _op in (complex_hessenberg, complex_bidiagonal):
    _op.no_vjp("a part of eigenvalue problems, which have gradients of their own")

# ---- determinants ----------------------------------------------------------------------------------------------------


@composite
def complex_det(re: Tensor, im: Tensor) -> tuple[Tensor, Tensor]:
    """The determinants of complex matrices, as products of pivots."""
    fr, fi, _, sign, _ = complex_lu(re, im)
    d = lookup("prod")(complex_(last_diagonal(fr), last_diagonal(fi)), -1)
    return mul(real_part(d), sign), mul(imag_part(d), sign)


@complex_det.vjp
def _(g, re, im, *, out):
    if (gd := given(*each_of(g, 2))) is None:
        return None
    a, d = complex_(re, im), complex_(*out)
    inverse = solved(a, complex_(identity_like(re), 0.0))
    return parts_of(mul(_each(mul(gd, conj(d))), adjoint(inverse)))


@composite
def complex_log_det(re: Tensor, im: Tensor) -> tuple[Tensor, Tensor]:
    """The logarithms of the determinants' magnitudes, and their arguments."""
    fr, fi, _, sign, _ = complex_lu(re, im)
    pivots = complex_(last_diagonal(fr), last_diagonal(fi))
    unit = lookup("prod")(lookup("sign")(pivots), -1)
    d = complex_(mul(real_part(unit), sign), mul(imag_part(unit), sign))
    return lookup("sum")(lookup("log")(lookup("abs")(pivots)), -1), lookup("angle")(d)


@complex_log_det.vjp
def _(g, re, im):
    if (gd := given(*each_of(g, 2))) is None:
        return None
    return parts_of(mul(_each(gd), adjoint(solved(complex_(re, im), complex_(identity_like(re), 0.0)))))


def _each(g):
    return reshape(g, (*g.shape, 1, 1))


# ---- spectra ---------------------------------------------------------------------------------------------------------


@composite
def hermitian(re: Tensor, im: Tensor) -> tuple[Tensor, Tensor]:
    """The Hermitian matrices whose lower triangle is that of re + i im, whose diagonal is taken as real. The gradient is Hermitian."""
    below = tril(im, -1)
    return add(tril(re), turned(tril(re, -1))), sub(below, turned(below))


@hermitian.vjp
def _(g, re, im):
    g = each_of(g, 2)
    return (
        None if g[0] is None else mul(add(g[0], turned(g[0])), 0.5),
        None if g[1] is None else mul(sub(g[1], turned(g[1])), 0.5),
    )


def _gaps(values):
    """1 / (values[j] - values[i]) at (i, j), 0 on the diagonal."""
    n = values.shape[-1]
    one = on_diagonal(lookup("ones_like")(values), n, n)
    return sub(div(1.0, add(sub(expand_dims(values, -2), expand_dims(values, -1)), one)), one)


@composite
def complex_eigh(re: Tensor, im: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(eigenvalues of Hermitian matrices in ascending order, parts of orthonormal eigenvectors)."""
    t, _, qr_, qi = complex_hessenberg(re, im)
    values, v = eigh(t)
    return values, matmul(qr_, v), matmul(qi, v)


@complex_eigh.vjp
def _(g, re, im, *, out):
    g, values, v = each_of(g, 3), out[0], complex_(*out[1:])
    n, gv = values.shape[-1], given(*g[1:])
    inner = _sum(None if gv is None else mul(matmul(adjoint(v), gv), _gaps(values)), None if g[0] is None else on_diagonal(g[0], n, n))
    if inner is None:
        return None
    whole = matmul(matmul(v, inner), adjoint(v))
    return parts_of(mul(add(whole, adjoint(whole)), 0.5))


@composite
def complex_svd(re: Tensor, im: Tensor, full_matrices: bool = False) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """(parts of u, singular values, parts of vh) of complex matrices with as many rows as columns or more."""
    b, qr_, qi, pr, pi = complex_bidiagonal(re, im, full_matrices)
    u, s, vh = svd(b)
    n = s.shape[-1]
    left = [matmul(narrow(x, x.ndim - 1, 0, n), u) for x in (qr_, qi)]
    if full_matrices and not same_extent(re.shape[-2], re.shape[-1]):
        rest = qr_.shape[-1] - n
        left = [concat([x, narrow(q, q.ndim - 1, n, rest)], q.ndim - 1) for x, q in zip(left, (qr_, qi))]
    return left[0], left[1], s, matmul(vh, turned(pr)), neg(matmul(vh, turned(pi)))


@complex_svd.vjp
def _(g, re, im, *, out, full_matrices):
    """As of `svd`; of phases the loss must not depend (the gradient of the phase of u and vh together is 0)."""
    g, u, s, vh = each_of(g, 5), complex_(*out[:2]), out[2], complex_(*out[3:])
    gu, gs, gv = given(*g[:2]), g[2], given(*g[3:])
    if gu is None and gs is None and gv is None:
        return None
    square = same_extent(re.shape[-2], re.shape[-1])
    if full_matrices and not square:
        if not (gu is None and gv is None):
            raise GradientError("svd: the full matrices of matrices that are not square have no gradient; help: the reduced ones have")
        u = narrow(u, re.ndim - 1, 0, s.shape[-1])
    n = s.shape[-1]
    row, column = expand_dims(s, -2), expand_dims(s, -1)
    one = on_diagonal(lookup("ones_like")(s), n, n)
    gaps = None if gu is None and gv is None else sub(div(1.0, add(mul(sub(row, column), add(row, column)), one)), one)
    skew = lambda x: sub(x, adjoint(x))
    left = None if gu is None else skew(matmul(adjoint(u), gu))
    right = None if gv is None else skew(matmul(vh, adjoint(gv)))
    phases = None if left is None else on_diagonal(div(last_diagonal(left), mul(s, 2.0)), n, n)
    inner = _sum(
        None if left is None else mul(mul(left, gaps), row), None if right is None else mul(mul(right, gaps), column),
        None if gs is None else on_diagonal(gs, n, n), phases,
    )  # fmt: skip
    whole = matmul(matmul(u, inner), vh)
    if not square and gu is not None:
        beside = sub(gu, matmul(u, matmul(adjoint(u), gu)))
        whole = add(whole, matmul(div(beside, row), vh))
    return parts_of(whole)


@composite
def complex_pinv(re: Tensor, im: Tensor, rtol: Tensor) -> tuple[Tensor, Tensor]:
    """The pseudo-inverses of complex matrices with as many rows as columns or more."""
    ur, ui, s, vr, vi = complex_svd(re, im)
    inverse = expand_dims(where(significant(s, rtol), div(1.0, s), 0.0), -2)
    return parts_of(matmul(mul(adjoint(complex_(vr, vi)), inverse), adjoint(complex_(ur, ui))))


@complex_pinv.vjp
def _(g, re, im, rtol, *, out):
    """Source: Golub and Pereyra, 1973, as of `pinv`"""
    if (gp := given(*each_of(g, 2))) is None:
        return None
    a, p = complex_(re, im), complex_(*out)
    gt, pt = adjoint(gp), adjoint(p)
    rest = lambda x, y: sub(x, matmul(y, x))
    first = matmul(matmul(pt, gp), pt)
    second = matmul(rest(gt, matmul(a, p)), matmul(p, pt))
    third = adjoint(rest(adjoint(matmul(matmul(pt, p), gt)), adjoint(matmul(p, a))))
    return (*parts_of(sub(add(second, third), first)), None)


@primitive
def general_eig(re: Tensor, im: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(parts of the eigenvalues of square matrices, parts of eigenvectors of length 1 as columns). The first element of a vector whose
    |.|^2 is at least a quarter of the square of its largest part is real and positive. NaN for matrices with elements that are not
    finite."""


@general_eig.infer
def _(re, im):
    check_parts(re, im)
    check_square(re)
    values = TensorType(re.shape[:-1], re.dtype)
    return values, values, re, re


@general_eig.lower
def _(lo, ins, outs):
    kernels.linalg.schur.eig(lo, tuple(ins), tuple(outs[:2]), tuple(outs[2:]))


@general_eig.vjp
def _(g, re, im, *, out):
    """Source: Boeddeker et al., "On the computation of complex-valued gradients with application to statistically optimum
    beamforming", arXiv 1701.00392"""
    values, v = complex_(*out[:2]), complex_(*out[2:])
    gw, gv = given(*g[:2]), given(*g[2:])
    if gw is None and gv is None:
        return None
    inner = None
    vt, n = adjoint(v), values.shape[-1]
    if gv is not None:
        vg = matmul(vt, gv)
        lengths = expand_dims(real_part(last_diagonal(vg)), -2)
        inner = mul(sub(vg, matmul(vt, mul(v, lengths))), conj(_gaps(values)))
    inner = _sum(inner, None if gw is None else on_diagonal(gw, n, n))
    return parts_of(solved(vt, matmul(inner, vt)))


# ---- references and samples --------------------------------------------------------------------------------------------


def _of_parts(f):
    """A reference that NumPy computes with complex numbers: parts in, parts out."""

    def reference(re, im, *more, **attrs):
        found = f(np.asarray(re, np.float64) + 1j * np.asarray(im, np.float64), *more, **attrs)
        return tuple(x for z in found for x in ((z.real, z.imag) if np.iscomplexobj(z) else (z,)))

    return reference


def _np_lu(a):
    a = np.array(a)
    *lead, m, n = a.shape
    order, sign, info = np.zeros((*lead, m), np.int64), np.ones(lead), np.zeros(lead, np.int64)
    for b in np.ndindex(*lead):
        x, p = a[b], np.arange(m)
        for j in range(min(m, n)):
            w = j + int(np.argmax(abs(x[j:, j].real) + abs(x[j:, j].imag)))
            if w != j:
                x[[j, w]], p[[j, w]], sign[b] = x[[w, j]], p[[w, j]], -sign[b]
            if x[j, j] == 0:
                info[b] = info[b] or j + 1
                continue
            x[j + 1 :, j] /= x[j, j]
            x[j + 1 :, j + 1 :] -= np.outer(x[j + 1 :, j], x[j, j + 1 :])
        order[b] = p
    return a, order, sign, info


def _np_reflector(x):
    """(v, tau, beta) with (I - tau v v^H)^H x = (beta, 0, ...)."""
    v, alpha = x.copy(), x[0]
    if not x[1:].any() and alpha.imag == 0:
        v[0] = 1
        return v, 0j, alpha.real
    beta = -np.copysign(np.linalg.norm(x), alpha.real if alpha.real else 1.0)
    v[1:] /= alpha - beta
    v[0] = 1
    return v, (beta - alpha) / beta, beta


def _np_reduced(a, kind):
    """(what is left of one matrix, the reflectors from the left multiplied, those from the right)."""
    a = a.copy()
    m, n = a.shape
    q, p = np.eye(m, dtype=complex), np.eye(n, dtype=complex)
    shift = int(kind == "hessenberg")
    for j in range(min(m - shift, n)):
        v, tau, beta = _np_reflector(a[j + shift :, j])
        h = np.eye(m, dtype=complex)
        h[j + shift :, j + shift :] -= tau * np.outer(v, v.conj())
        a, q = h.conj().T @ a, q @ h
        a[j + shift :, j] = 0
        a[j + shift, j] = beta
        if kind == "hessenberg":
            a = a @ h
        if kind == "bidiagonal" and j + 1 < n:
            v, tau, beta = _np_reflector(a[j, j + 1 :].conj())
            h = np.eye(n, dtype=complex)
            h[j + 1 :, j + 1 :] -= tau * np.outer(v, v.conj())
            a, p = a @ h, p @ h
            a[j, j + 1 :] = 0
            a[j, j + 1] = beta
    return a, q, p


def _each_matrix(f):
    def over(a, **attrs):
        lead = a.shape[:-2]
        found = [f(a[i], **attrs) for i in np.ndindex(*lead)]
        if not found:
            return tuple(np.zeros((*lead, *x.shape), x.dtype) for x in f(np.ones(a.shape[-2:], complex), **attrs))
        return tuple(np.array(x).reshape(*lead, *x[0].shape) for x in zip(*found))

    return over


def _np_qr(a, complete=False):
    r, q, _ = _np_reduced(a, "qr")
    k = a.shape[0] if complete else min(a.shape)
    return q[:, :k], np.triu(r[:k]) + 0j


def _np_bidiagonal(a, complete=False):
    b, q, p = _np_reduced(a, "bidiagonal")
    n = a.shape[1]
    return b[:n].real, q if complete else q[:, :n], p


def _hermitian(*shape):
    def make(r):
        re, im = sample_parts(*shape)(r)
        return (re + np.swapaxes(re, -1, -2)) / 2, (im - np.swapaxes(im, -1, -2)) / 2

    return make


def _np_eig(a):
    """NumPy's, in the order of the real parts of samples whose eigenvalues have that order, with phases by the rule of `general_eig`."""
    w, v = np.linalg.eig(a)
    order = np.argsort(w.real, -1)
    w, v = np.take_along_axis(w, order, -1), np.take_along_axis(v, order[..., None, :], -1)
    most = np.maximum(abs(v.real), abs(v.imag)).max(-2, keepdims=True)
    first = np.argmax(abs(v) ** 2 >= most**2 / 4, -2)
    lead = np.take_along_axis(v, first[..., None, :], -2)
    return w, v * (np.conj(lead) / abs(lead))


def _np_complex_eigh(a):
    t, q = _each_matrix(lambda a: _np_reduced(a, "hessenberg")[:2])(a)
    w, v = np.linalg.eigh(t.real)
    return w, q @ (v * signs(v))


def _np_complex_svd(a, full_matrices=False):
    b, q, p = _each_matrix(_np_bidiagonal)(a, complete=full_matrices)
    n = b.shape[-1]
    u, s, vh = np.linalg.svd(b)
    by = signs(u)
    left = np.concatenate([q[..., :n] @ (u * by), q[..., n:]], -1)
    return left, s, (vh * np.swapaxes(by, -1, -2)) @ np.conj(np.swapaxes(p, -1, -2))


def _np_hermitian(a):
    low = np.tril(a, -1)
    n = np.arange(a.shape[-1])
    full = low + np.conj(np.swapaxes(low, -1, -2))
    full[..., n, n] = a[..., n, n].real
    return (full,)


def _np_pinv(re, im, rtol):
    p = np.linalg.pinv(re + 1j * im, rtol)
    return p.real, p.imag


def _np_det(a):
    return (np.linalg.det(a) + 0j,)


def _np_log_det(a):
    sign, size = np.linalg.slogdet(a)
    return size, np.angle(sign)


complex_lu.reference(_of_parts(_np_lu))
complex_qr.reference(_of_parts(_each_matrix(_np_qr)))
complex_hessenberg.reference(_of_parts(_each_matrix(lambda a: _np_reduced(a, "hessenberg")[:2])))
complex_bidiagonal.reference(_of_parts(_each_matrix(_np_bidiagonal)))
complex_det.reference(_of_parts(_np_det))
complex_log_det.reference(_of_parts(_np_log_det))
hermitian.reference(_of_parts(_np_hermitian))
complex_eigh.reference(_of_parts(_np_complex_eigh))
complex_svd.reference(_of_parts(_np_complex_svd))
complex_pinv.reference(_np_pinv)
general_eig.reference(_of_parts(_np_eig))
complex_lu.cases(Case(sample_parts(3, 5, 5)), *(Case(sample_parts(*s), grad=False) for s in ((2, 4, 7), (21, 3))))
complex_qr.cases(
    Case(sample_parts(2, 5, 3)),
    Case(sample_parts(4, 4), {"complete": True}),
    Case(sample_parts(2, 3, 5)),
    Case(sample_parts(5, 2), {"complete": True}, grad=False),
)
complex_hessenberg.cases(Case(sample_parts(2, 5, 5)), Case(_hermitian(4, 4)))
complex_bidiagonal.cases(Case(sample_parts(2, 5, 3)), Case(sample_parts(6, 2), {"complete": True}))
complex_det.cases(Case(sample_parts(2, 4, 4)))
complex_log_det.cases(Case(sample_parts(2, 4, 4)))
hermitian.cases(Case(sample_parts(2, 4, 4), grad=False))  # the gradient is that of a function of Hermitian matrices
# of vectors, differences see the phases: tests/linalg/test_complex_linalg.py has gradients, and general matrices of all sizes
complex_eigh.cases(Case(_hermitian(2, 5, 5), grad=False), Case(_hermitian(2, 2), grad=False))
general_eig.cases(  # whose eigenvalues come in the order of `_np_eig`: triangles, and matrices of two rows
    Case(lambda r: tuple(np.triu(x) for x in sample_parts(2, 5, 5)(r)), grad=False),
    Case(_hermitian(2, 2), grad=False),
    Case(sample_parts(2, 2), grad=False),
)
complex_svd.cases(Case(sample_parts(2, 4, 4), grad=False), Case(sample_parts(6, 3), {"full_matrices": True}, grad=False))
complex_pinv.cases(Case(lambda r: (*sample_parts(2, 5, 3)(r), np.full(2, 1e-6)), rtol=1e-4))
