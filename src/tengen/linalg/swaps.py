"""Factors of LU decompositions as LAPACK and PyTorch have them: rows that were exchanged are told by swaps, counted from 1 in int32, where
`lu_factor` of this package tells the order that they make."""

from __future__ import annotations

from tengen.linalg.parts import parts
from tengen.linalg.systems import lu_factor as factored
from tengen.linalg.systems import solve_triangular
from tengen.ops import linalg_factor
from tengen.ops.define import REGISTRY
from tengen.tensor import Tensor


def _exchanged(rows: Tensor, i: int, j: Tensor) -> Tensor:
    """Numbers (..., m) whose i-th is exchanged with the j-th; j: (...)."""
    equal, last, where = REGISTRY["equal"], lambda x: REGISTRY["expand_dims"](x, -1), REGISTRY["where"]
    places = REGISTRY["arange"](0, rows.shape[-1], 1, "int64")
    mine, other = last(rows[..., i]), REGISTRY["gather"](rows, -1, last(j))
    return where(equal(places, last(j)), mine, where(equal(places, i), other, rows))


def _first(shape: tuple[int, ...], m: int) -> Tensor:
    return REGISTRY["broadcast_to"](REGISTRY["arange"](0, m, 1, "int64"), (*shape, m))


def _swaps(order: Tensor, k: int) -> Tensor:
    """The k swaps, from 1, that make an order (..., m) of rows."""
    rows, found = _first(order.shape[:-1], order.shape[-1]), []
    for i in range(k):
        j = REGISTRY["argmax"](REGISTRY["equal"](rows, order[..., i : i + 1]).astype("int32"), -1).astype("int64")
        found.append(j)
        rows = _exchanged(rows, i, j)
    return REGISTRY["stack"](found, -1).astype("int32") + 1 if found else REGISTRY["zeros"]((*order.shape[:-1], 0), "int32")


def _order(pivots: Tensor, m: int) -> Tensor:
    """The order of m rows that swaps make."""
    rows = _first(pivots.shape[:-1], m)
    for i in range(pivots.shape[-1]):
        rows = _exchanged(rows, i, pivots[..., i].astype("int64") - 1)
    return rows


def lu_factor(a: Tensor) -> tuple[Tensor, Tensor]:
    """(L below the diagonal, whose own is 1, and U; the swaps: step i exchanged the rows i and pivots[i] - 1).

    Shapes: (..., m, n) -> (..., m, n), (..., min(m, n)) int32
    """
    factors, order = factored(a)
    return factors, _swaps(order, min(a.shape[-2:]))


def first_zero_pivot(factors: Tensor) -> Tensor:
    """(...): 0, or the number from 1 of the first pivot that is 0; int32."""
    zero = REGISTRY["equal"](REGISTRY["last_diagonal"](factors.detach()), 0)
    first = REGISTRY["argmax"](zero.astype("int32"), -1).astype("int32") + 1
    return REGISTRY["where"](REGISTRY["any"](zero, (-1,)), first, 0).astype("int32")


def lu_solve(factors: Tensor, pivots: Tensor, b: Tensor, left: bool = True, adjoint: bool = False) -> Tensor:
    """X of A X = B from the factors of A, or of X A = B, or with A^H. Leading axes broadcast."""
    if not left:
        return lu_solve(factors, pivots, b.mH, True, not adjoint).mH
    order = _order(pivots, factors.shape[-1])
    if not adjoint:
        rows = solve_triangular(factors, _ordered(b, order), upper=False, unitriangular=True)
        return solve_triangular(factors, rows, upper=True)
    y = solve_triangular(factors.mH, b, upper=False)
    z = solve_triangular(factors.mH, y, upper=True, unitriangular=True)
    return _ordered(z, order, True)


def _ordered(b: Tensor, order: Tensor, back: bool = False) -> Tensor:
    """The rows of b in an order; with `back` those that have this order."""
    if not b.dtype.is_complex:
        return linalg_factor.ordered(b, order, back)
    return REGISTRY["complex"](*(linalg_factor.ordered(p, order, back) for p in parts(b)))


def lu_unpack(factors: Tensor, pivots: Tensor, data: bool = True, order: bool = True) -> tuple[Tensor, Tensor, Tensor]:
    """P, L and U with A = P L U, of the factors of A; what is not unpacked is empty: L and U without `data`, P without `order`."""
    m, n = factors.shape[-2:]
    k, lead = min(m, n), factors.shape[:-2]
    P = L = U = REGISTRY["zeros"]((0,), factors.dtype)
    if order:
        places = REGISTRY["arange"](0, m, 1, "int64")
        P = REGISTRY["equal"](places.reshape(m, 1), REGISTRY["expand_dims"](_order(pivots, m), -2)).astype(factors.dtype)
    if data:
        one = REGISTRY["broadcast_to"](REGISTRY["eye"](m, k, dtype=factors.dtype), (*lead, m, k))
        L, U = REGISTRY["tril"](factors[..., :k], -1) + one, REGISTRY["triu"](factors[..., :k, :])
    return P, L, U
