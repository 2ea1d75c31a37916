"""Factorisations by elimination, and what is solved with them: thin ops over `kernels/linalg/triangular.py` and `factor.py`.

A factorisation says in `info` where it failed, and `checked` raises LinAlgError there: an eager call names the matrix and the pivot, a
recorded graph keeps the check, and its run looks afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from tengen import kernels
from tengen.base.dtype import DType, int64
from tengen.base.errors import DTypeError, GradientError, LinAlgError, ShapeError
from tengen.ir.types import TensorType
from tengen.kernels.source import Leaf
from tengen.loops.lang import as_int
from tengen.ops.contract import matmul
from tengen.ops.creation import tril, triu
from tengen.ops.define import (
    Case,
    Violation,
    broadcast_shapes,
    check_floats,
    composite,
    dispatch,
    lookup,
    primitive,
    same_extent,
)
from tengen.ops.elementwise import add, mul, neg
from tengen.ops.indexing import outside
from tengen.ops.reduce import sum_to
from tengen.ops.shape import reshape
from tengen.ops.views import last_diagonal, on_diagonal, swapaxes

if TYPE_CHECKING:
    from tengen.tensor import Tensor


def check_matrices(*types: TensorType) -> DType:
    """The dtype of matrices; an error unless all are matrices of floats."""
    for t in types:
        if t.ndim < 2:
            raise ShapeError(f"takes matrices (..., rows, columns), got {t}")
    return check_floats(*types)


def check_square(*types: TensorType) -> DType:
    """The dtype of square matrices."""
    d = check_matrices(*types)
    for t in types:
        if not same_extent(t.shape[-2], t.shape[-1]):
            raise ShapeError(f"takes square matrices (..., n, n), got {t}")
    return d


def check_parts(re: TensorType, im: TensorType) -> None:
    """An error unless these are the real and imaginary parts of matrices."""
    check_matrices(re, im)
    if re.shape != im.shape or re.dtype is not im.dtype:
        raise ShapeError(f"parts {re} and {im} are not those of one matrix")


def turned(x):
    """The transposed matrices."""
    return swapaxes(x, -1, -2)


def halved_diagonal(x):
    """The lower triangle, with half the diagonal."""
    return mul(add(tril(x), tril(x, -1)), 0.5)


def identity_like(x):
    """Identity matrices of the shape and dtype of square ones."""
    ones = lookup("ones_like")(last_diagonal(x))
    return on_diagonal(ones, *x.shape[-2:])


# ---- checks ----------------------------------------------------------------------------------------------------------


@primitive(own=(1,))
def checked(x: Tensor, info: Tensor, what: str) -> Tensor:
    """x itself; LinAlgError where an info is not 0."""


@checked.infer
def _(x, info, what):
    return x


@checked.source
def _(ins, out, what):
    return ins[0]


@checked.check
def _(inputs, what) -> Iterator[Violation]:
    info = inputs[1]
    if as_int(info.size) == 0:
        return

    def found() -> str:
        values = info.numpy()
        where = np.argwhere(values)[0] if values.ndim else ()
        place = f" {tuple(int(i) for i in where)}" if len(where) else ""
        return f"{what}: matrix{place} of shape {tuple(inputs[0].shape[-2:])}, pivot {int(values[tuple(where)])}, counted from 1"

    bad = outside(info, dispatch.scalar(0, int64), dispatch.scalar(1, int64))
    yield Violation(bad, LinAlgError, f"{what}: a matrix of {inputs[0]._layout.type}", found)


@checked.vjp
def _(g, x, info, what):
    return g, None


checked.reference(lambda x, info, what: x)
checked.cases(Case(lambda r: (r.uniform(-1, 1, (2, 3, 3)), np.zeros(2, np.int64)), {"what": "a test"}))


@primitive
def mirrored(x: Tensor, lower: bool = True) -> Tensor:
    """The symmetric matrices whose lower (upper) triangle is that of x. Its gradient is symmetric: that of a function of symmetric
    matrices, as PyTorch's and JAX's."""


@mirrored.infer
def _(x, lower):
    if x.ndim < 2 or not same_extent(x.shape[-2], x.shape[-1]):
        raise ShapeError(f"takes square matrices (..., n, n), got {x}")
    return x


@mirrored.lower
def _(lo, ins, outs, lower):
    of, x = kernels.linalg.stacks, Leaf(ins[0])
    kernels.pointwise.pointwise(lo, [of.Triangle(x, lower, Leaf(of.transposed(ins[0])))], outs, "mirrored")


@mirrored.vjp
def _(g, x, lower):
    return mul(add(g, turned(g)), 0.5)


mirrored.reference(
    lambda x, lower=True: np.tril(x) + np.swapaxes(np.tril(x, -1), -1, -2) if lower else np.triu(x) + np.swapaxes(np.triu(x, 1), -1, -2)
)
mirrored.cases(
    Case(lambda r: (r.uniform(-1, 1, (2, 5, 5)),), grad=False),
    Case(lambda r: (r.uniform(-1, 1, (17, 17)),), {"lower": False}, grad=False),
)

# ---- triangular systems ----------------------------------------------------------------------------------------------


@primitive
def triangular_solve(a: Tensor, b: Tensor, lower: bool = True, unit: bool = False, transposed: bool = False) -> Tensor:
    """x with a x = b, for triangular a; with `transposed` a^T x = b.

    Shapes: (..., n, n), (..., n, k) -> (..., n, k); leading axes broadcast
    Args:
        lower: whether a is its lower triangle. The other one is not read. unit: its diagonal is taken as 1.
    Numerics: by substitution, each row by fma in order. A diagonal of 0 gives infinity or NaN
    """


def _check_system(a: TensorType, b: TensorType) -> TensorType:
    check_square(a)
    d = check_matrices(a, b)
    if not same_extent(a.shape[-1], b.shape[-2]):
        raise ShapeError(f"matrices {a} do not fit right sides {b}")
    return TensorType((*broadcast_shapes(a.shape[:-2], b.shape[:-2]), *b.shape[-2:]), d)


@triangular_solve.infer
def _(a, b, lower, unit, transposed):
    return _check_system(a, b)


@triangular_solve.lower
def _(lo, ins, outs, lower, unit, transposed):
    with kernels.linalg.stacks.dense(lo, outs[0]) as (x,):
        a = kernels.linalg.stacks.in_dtype(lo, ins[0], x.dtype)
        kernels.linalg.stacks.converted(lo, ins[1], x)
        a = a.expand((*x.shape[:-2], *a.shape[-2:]))
        kernels.linalg.triangular.triangular_solve(lo, kernels.linalg.stacks.transposed(a) if transposed else a, x, lower != transposed, unit)


@triangular_solve.vjp
def _(g, a, b, *, out, lower, unit, transposed):
    gb = triangular_solve(a, g, lower, unit, not transposed)

    def ga():
        whole = neg(matmul(out, gb, False, True) if transposed else matmul(gb, out, False, True))
        keep = tril if lower else triu
        return sum_to(keep(whole, (-1 if lower else 1) * unit), a.shape)

    return ga, lambda: sum_to(gb, b.shape)


def _np_triangular(a, b, lower=True, unit=False, transposed=False):
    t = np.tril(a) if lower else np.triu(a)
    if unit:
        n = np.arange(a.shape[-1])
        t[..., n, n] = 1
    return np.linalg.solve(np.swapaxes(t, -1, -2) if transposed else t, b)


def _system(*shapes):
    """Matrices that are far from singular, and right sides."""

    def make(r):
        first, *others = (r.uniform(-1, 1, s) for s in shapes)
        return (first / 2 ** (first.shape[-1].bit_length() // 2) + 2 * np.eye(*first.shape[-2:]), *others)

    return make


triangular_solve.reference(_np_triangular)
triangular_solve.cases(
    Case(_system((5, 5), (5, 3))),
    Case(_system((2, 17, 17), (2, 17, 1)), {"lower": False}),
    Case(_system((2, 1, 6, 6), (3, 6, 18)), {"transposed": True}),
    Case(_system((6, 6), (2, 6, 4)), {"lower": False, "transposed": True, "unit": True}),
)

# ---- LU --------------------------------------------------------------------------------------------------------------


@primitive
def lu(a: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The factors of a[order] = L U with partial pivoting: (both in one matrix, L without its diagonal of ones; the order of rows, int64;
    the sign of that permutation; and 0 or the number of the first pivot that is 0, int64).

    Shapes: (..., m, n) -> (..., m, n), (..., m), (...), (...)
    """


@lu.infer
def _(a):
    d = check_matrices(a)
    return a, TensorType(a.shape[:-1], int64), TensorType(a.shape[:-2], d), TensorType(a.shape[:-2], int64)


@lu.lower
def _(lo, ins, outs):
    kernels.linalg.factor.lu(lo, ins[0], *outs)


@lu.vjp
def _(g, a, *, out):
    """Source: Murray, "Differentiation of the Cholesky decomposition", 2016, whose way this is."""
    if g[0] is None:
        return None
    if not same_extent(a.shape[-2], a.shape[-1]):
        raise GradientError("lu: the factors of matrices that are not square have no gradient here")
    f = out[0]
    left = matmul(add(tril(f, -1), identity_like(f)), tril(g[0], -1), True)
    right = matmul(triu(g[0]), triu(f), False, True)
    inner = add(tril(left, -1), triu(right))
    rows = triangular_solve(f, inner, True, True, True)  # L^-T inner
    whole = turned(triangular_solve(f, turned(rows), False))  # times U^-T
    return ordered(whole, out[1], True)


def _np_lu(a):
    a = np.array(a, np.float64)
    *lead, m, n = a.shape
    order = np.zeros((*lead, m), np.int64)
    sign, info = np.ones(lead), np.zeros(lead, np.int64)
    for b in np.ndindex(*lead):
        x, p = a[b], np.arange(m)
        for j in range(min(m, n)):
            w = j + int(np.argmax(np.abs(x[j:, j])))
            if w != j:
                x[[j, w]], p[[j, w]] = x[[w, j]], p[[w, j]]
                sign[b] *= -1
            if x[j, j] == 0:
                info[b] = info[b] or j + 1
                continue
            x[j + 1 :, j] /= x[j, j]
            x[j + 1 :, j + 1 :] -= np.outer(x[j + 1 :, j], x[j, j + 1 :])
        order[b] = p
    return a, order, sign, info


lu.reference(_np_lu)
lu.cases(
    Case(lambda r: (r.uniform(-1, 1, (3, 5, 5)),)),
    Case(lambda r: (r.uniform(-1, 1, (34, 34)),), grad=False),
    Case(lambda r: (r.uniform(-1, 1, (2, 4, 7)),), grad=False),
    Case(lambda r: (r.uniform(-1, 1, (37, 3)),), grad=False),
)


@primitive(own=(1,))
def ordered(x: Tensor, order: Tensor, back: bool = False) -> Tensor:
    """The rows x[order] of matrices; with `back`, the y with y[order] = x. `order` holds permutations.

    Shapes: (..., n, k), (..., n) -> (..., n, k); leading axes broadcast
    """


@ordered.infer
def _(x, order, back):
    if x.ndim < 2 or order.ndim < 1 or not same_extent(x.shape[-2], order.shape[-1]):
        raise ShapeError(f"rows {x} do not fit an order {order}")
    if order.dtype is not int64:
        raise DTypeError(f"an order is int64, got {order}")
    return TensorType((*broadcast_shapes(x.shape[:-2], order.shape[:-1]), *x.shape[-2:]), x.dtype)


@ordered.lower
def _(lo, ins, outs, back):
    kernels.linalg.factor.order_rows(lo, ins[0], ins[1], outs[0], back)


@ordered.vjp
def _(g, x, order, back):
    return sum_to(ordered(g, order, not back), x.shape), None


def _np_ordered(x, order, back=False):
    order = np.argsort(order, -1) if back else order
    lead = np.broadcast_shapes(x.shape[:-2], order.shape[:-1])
    return np.take_along_axis(
        np.broadcast_to(x, (*lead, *x.shape[-2:])), np.broadcast_to(order, (*lead, order.shape[-1]))[..., None], -2
    )


ordered.reference(_np_ordered)
ordered.cases(
    Case(lambda r: (r.uniform(-1, 1, (5, 3)), r.permutation(5))),
    Case(lambda r: (r.uniform(-1, 1, (4, 17)), np.argsort(r.uniform(0, 1, (3, 4)), -1)), {"back": True}),
)


@primitive(own=(2,))
def lu_solve(a: Tensor, factors: Tensor, order: Tensor, b: Tensor, transposed: bool = False) -> Tensor:
    """x with a x = b (a^T x = b), from what `lu` made of a. Of `a` only the type is used; its gradient is that of the solution.

    Shapes: (..., n, n), (..., n, n), (..., n), (..., n, k) -> (..., n, k); leading axes broadcast
    """


lu_solve.typed(0)


@lu_solve.infer
def _(a, factors, order, b, transposed):
    check_square(a)
    if a.shape != factors.shape or order.dtype is not int64 or order.shape != factors.shape[:-1]:
        raise ShapeError(f"factors {factors} and order {order} are not those of {a}")
    return _check_system(factors, b)


@lu_solve.lower
def _(lo, ins, outs, transposed):
    _, factors, order, b = ins
    triangular = kernels.linalg.triangular.triangular_solve
    with kernels.linalg.stacks.dense(lo, outs[0]) as (out,):
        f = kernels.linalg.stacks.in_dtype(lo, factors, out.dtype)
        f = f.expand((*out.shape[:-2], *f.shape[-2:]))
        order = order.expand(out.shape[:-1])
        if transposed:
            x = kernels.linalg.stacks.converted(lo, b, lo.temp(out.dtype, out.shape))
            triangular(lo, kernels.linalg.stacks.transposed(f), x, True)
            triangular(lo, kernels.linalg.stacks.transposed(f), x, False, True)
            kernels.linalg.factor.order_rows(lo, x, order, out, True)
        else:
            kernels.linalg.factor.order_rows(lo, kernels.linalg.stacks.in_dtype(lo, b, out.dtype), order, out)
            triangular(lo, f, out, True, True)
            triangular(lo, f, out, False)


@lu_solve.vjp
def _(g, a, factors, order, b, *, out, transposed):
    gb = lu_solve(a, factors, order, g, not transposed)

    def ga():
        whole = neg(matmul(out, gb, False, True) if transposed else matmul(gb, out, False, True))
        return sum_to(whole, a.shape)

    return ga, None, None, lambda: sum_to(gb, b.shape)


def _with_factors(*shapes):
    """(a, its factors, their order, more operands)"""
    make = _system(*shapes)

    def inputs(r):
        a, *others = make(r)
        f, order, sign, _ = _np_lu(a)
        return a, f, order, *(others or [sign])

    return inputs


lu_solve.reference(lambda a, f, order, b, transposed=False: np.linalg.solve(np.swapaxes(a, -1, -2) if transposed else a, b))
lu_solve.cases(
    Case(_with_factors((5, 5), (5, 3)), grad=False),
    Case(_with_factors((2, 17, 17), (2, 17, 1)), {"transposed": True}, grad=False),
)  # finite differences would change a and leave its factors: tests/ops/test_linalg.py differentiates `solve`


@composite(own=(2,))
def lu_det(a: Tensor, factors: Tensor, order: Tensor, sign: Tensor) -> Tensor:
    """The determinants of a, from what `lu` made of it."""
    return mul(sign, lookup("prod")(last_diagonal(factors), -1))


@composite(own=(2,))
def lu_log_det(a: Tensor, factors: Tensor, order: Tensor) -> Tensor:
    """The logarithms of the magnitudes of the determinants of a, from what `lu` made of it."""
    return lookup("sum")(lookup("log")(lookup("abs")(last_diagonal(factors))), -1)


def _inverse_transposed(a, factors, order):
    return lu_solve(a, factors, order, identity_like(a), True)


def _each(g):
    return reshape(g, (*g.shape, 1, 1))


@lu_det.vjp
def _(g, a, factors, order, sign):
    d = lu_det(a, factors, order, sign)
    return mul(_each(mul(g, d)), _inverse_transposed(a, factors, order)), None, None, None


@lu_log_det.vjp
def _(g, a, factors, order):
    return mul(_each(g), _inverse_transposed(a, factors, order)), None, None


lu_det.reference(lambda a, f, order, sign: sign * np.prod(np.diagonal(f, 0, -2, -1), -1))
lu_log_det.reference(lambda a, f, order: np.log(np.abs(np.diagonal(f, 0, -2, -1))).sum(-1))
lu_det.cases(Case(_with_factors((2, 4, 4)), grad=False))
lu_log_det.cases(Case(lambda r: _with_factors((2, 4, 4))(r)[:3], grad=False))

# ---- Cholesky --------------------------------------------------------------------------------------------------------


@primitive
def cholesky(a: Tensor, upper: bool = False) -> tuple[Tensor, Tensor]:
    """(L with a = L L^T, or with `upper` U with a = U^T U; 0 or the number of the first pivot that is not > 0, int64).

    Shapes: (..., n, n) -> (..., n, n), (...)
    Only the lower (upper) triangle is read, and has a gradient. From a pivot that is not > 0 on, the factor is NaN.
    """


@cholesky.infer
def _(a, upper):
    check_square(a)
    return a, TensorType(a.shape[:-2], int64)


@cholesky.lower
def _(lo, ins, outs, upper):
    kernels.linalg.factor.cholesky(lo, ins[0], *outs, upper)


@cholesky.vjp
def _(g, a, *, out, upper):
    """Source: Murray, "Differentiation of the Cholesky decomposition", 2016"""
    if g[0] is None:
        return None
    f, gf = (turned(out[0]), turned(g[0])) if upper else (out[0], g[0])
    inner = halved_diagonal(matmul(f, gf, True))
    left = triangular_solve(f, inner, True, False, True)  # L^-T inner
    whole = turned(triangular_solve(f, turned(left), True, False, True))  # times L^-1
    lower = add(halved_diagonal(whole), halved_diagonal(turned(whole)))
    return turned(lower) if upper else lower


def _np_cholesky(a, upper=False):
    a = np.triu(a) + np.swapaxes(np.triu(a, 1), -1, -2) if upper else a
    f = np.linalg.cholesky(a)
    return np.swapaxes(f, -1, -2) if upper else f, np.zeros(a.shape[:-2], np.int64)


def positive(*shape):
    """Symmetric positive definite matrices, far from singular."""

    def make(r):
        x = np.round(8 * r.uniform(-1, 1, shape)) / 8  # so that products are exact, and the same on every machine
        return (x @ np.swapaxes(x, -1, -2) / 2 ** int(np.log2(shape[-1])) + np.eye(shape[-1]),)

    return make


cholesky.reference(_np_cholesky)
cholesky.cases(
    Case(positive(2, 5, 5)),
    Case(positive(4, 4), {"upper": True}),
    Case(positive(35, 35), grad=False),
)
