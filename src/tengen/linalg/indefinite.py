"""Factors of symmetric and Hermitian matrices that may be indefinite, as LAPACK's sytrf and hetrf keep them: A = L D L^T or L D L^H.

D has blocks of one and of two rows, which are chosen by values (Bunch and Kaufman, "Some stable methods for calculating inertia and solving
symmetric linear systems", 1977), and lies with L in one lower triangle. Pivots count from 1: p > 0 of row j exchanged the rows and columns
j and p - 1; the two rows j and j + 1 of a block have -p both, and j + 1 and p - 1 were exchanged. A loop over the columns carries what is
still to be factored; each matrix of a stack takes its own way through it, by masks.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tengen.autodiff.function import Function
from tengen.base.errors import GradientError
from tengen.ops.define import REGISTRY
from tengen.tensor import Tensor
from tengen.tensor.control import run_scan

ALPHA = (1 + 17**0.5) / 8  # bounds the growth of elements by 1 + 1 / ALPHA for each row, in blocks of one row and of two


def _size(x: Tensor) -> Tensor:
    """|re| + |im|, by which LAPACK compares."""
    return abs(x.real) + abs(x.imag) if x.dtype.is_complex else abs(x)


def _last(x: Tensor) -> Tensor:
    return REGISTRY["expand_dims"](x, -1)


def _one(x: Tensor, i: Tensor) -> Tensor:
    """x[b, i[b]] of x (batch, n)."""
    return REGISTRY["gather"](x, -1, _last(i))[..., 0]


def _column(x: Tensor, i: Tensor) -> Tensor:
    """x[b, :, i[b]] of x (batch, n, n)."""
    return REGISTRY["gather"](x, -1, REGISTRY["broadcast_to"](i[:, None, None], (*x.shape[:2], 1)))[..., 0]


def _exchange(places: Tensor, i: Tensor, j: Tensor) -> Tensor:
    """(batch, n): 0, 1, 2 ... with i[b] and j[b] exchanged."""
    where, i, j = REGISTRY["where"], _last(i), _last(j)
    return where(REGISTRY["equal"](places, i), j, where(REGISTRY["equal"](places, j), i, places))


def _rows(x: Tensor, order: Tensor) -> Tensor:
    """x[b, order[b]] of x (batch, n, k)."""
    return REGISTRY["gather"](x, -2, REGISTRY["broadcast_to"](_last(order), x.shape))


class _WithoutGradient(Function):
    """Factors of a matrix. Who asks for their gradient is told that there is none: else that of the matrix would be 0 without a word."""

    def forward(self, a: Tensor, factors: Tensor) -> Tensor:
        return factors

    def backward(self, grad: Tensor) -> Any:
        raise GradientError("ldl_factor: the factors have no gradient here, as in PyTorch; help: linalg.solve, inv and det of the matrix have")


def ldl_factor(a: Tensor, hermitian: bool = False) -> tuple[Tensor, Tensor, Tensor]:
    """(L and D in one lower triangle; pivots; 0 or the number from 1 of the first pivot that is 0). The lower triangle of `a` is read.

    Shapes: (..., n, n) -> (..., n, n), (..., n) int32, (...) int32
    Errors: GradientError where a gradient goes through the factors to `a`
    """
    factors, pivots, info = _factored(a.detach(), hermitian)
    return _WithoutGradient()(a, factors), pivots, info


def _factored(a: Tensor, hermitian: bool) -> tuple[Tensor, Tensor, Tensor]:
    lead, n, hermitian = a.shape[:-2], a.shape[-1], hermitian and a.dtype.is_complex
    if not a.size:
        return a, REGISTRY["zeros"]((*lead, n), "int32"), REGISTRY["zeros"](lead, "int32")
    below = REGISTRY["tril"](a, -1).reshape(-1, n, n)
    d = REGISTRY["last_diagonal"](a).reshape(-1, n)
    batch, where, equal, places = below.shape[0], REGISTRY["where"], REGISTRY["equal"], REGISTRY["arange"](0, n, 1, "int64")
    conj = REGISTRY["conj"] if hermitian else lambda x: x
    if hermitian:
        d = d.real.astype(a.dtype)
    work = below + conj(below.mT) + _last(d) * REGISTRY["eye"](n, dtype=a.dtype)
    zero = REGISTRY["zeros"]((batch,), "int64")

    def step(xs: list[Tensor]) -> list[Tensor]:
        """What is left, column and pivot of a block's second row, whether that is next, info -> the same; a column and a pivot."""
        left, second, exchanged, skip, info, j = xs
        j = zero + j
        after = places > _last(j)
        column = _column(left, j)
        sizes, own = where(after, _size(column), 0), _size(_one(column, j))
        i, largest = REGISTRY["argmax"](sizes, -1).astype("int64"), REGISTRY["max"](sizes, -1)
        other = _size(_column(left, i))
        beside = REGISTRY["max"](where((places >= _last(j)) & (places != _last(i)), other, 0), -1)
        mine = (own >= ALPHA * largest) | (own * beside >= ALPHA * largest * largest)
        two = ~mine & (_one(other, i) < ALPHA * beside)
        p, step_two = where(mine, j, i), two.astype("int64")
        order = _exchange(places, j + step_two, p)
        moved = _rows(_rows(left, order).mT, order).mT
        u, v = _column(moved, j), _column(moved, REGISTRY["minimum"](j + 1, n - 1))
        a, b, c = _one(u, j), _one(u, REGISTRY["minimum"](j + 1, n - 1)), _one(v, REGISTRY["minimum"](j + 1, n - 1))
        scale = where(two, abs(b), 1)
        e, f, g = a / scale, b / scale, c / scale
        det = where(two, (e * g - f * conj(f)) * scale, 1)
        single = u / _last(where(equal(a, 0), 1, a))
        under = places > _last(j + step_two)
        first = where(under, where(_last(two), (_last(g) * u - _last(f) * v) / _last(det), single), 0)
        next_ = where(under & _last(two), (_last(e) * v - _last(conj(f)) * u) / _last(det), 0)
        rest = moved - _last(first) * conj(u)[:, None] - _last(next_) * conj(v)[:, None]
        first = where(equal(places, _last(j)), _last(a), where(equal(places, _last(j + 1)) & _last(two), _last(b), first))
        next_ = where(equal(places, _last(j + 1)), _last(c), next_)
        pivot = where(two, -(p + 1), p + 1)
        failed = where(~skip & equal(own, 0) & equal(largest, 0) & equal(info, 0), j + 1, info)
        again = where(skip[:, None, None], left, rest)
        return [again, next_, pivot, two & ~skip, failed, where(_last(skip), second, first), where(skip, exchanged, pivot)]

    state = [work, work[:, 0], zero, zero.astype("bool"), zero]
    (*_, info), (columns, pivots) = run_scan(step, state, [places], n)
    found = REGISTRY["tril"](columns.transpose(1, 2, 0)).reshape(a.shape)
    if hermitian:  # what is imaginary on the diagonal is rounding
        own = REGISTRY["last_diagonal"](found)
        found = found - REGISTRY["eye"](n, dtype=a.dtype) * _last(REGISTRY["complex"](0 * own.real, own.imag))
    return found, pivots.T.reshape(*lead, n).astype("int32"), info.reshape(lead).astype("int32")


def ldl_solve(factors: Tensor, pivots: Tensor, b: Tensor, hermitian: bool = False) -> Tensor:
    """x with A x = b, from `ldl_factor` of A. Its gradient goes to the factors and to b.

    Shapes: (..., n, n), (..., n), (..., n, k) -> (..., n, k); leading axes broadcast
    """
    lead, (n, k) = np.broadcast_shapes(factors.shape[:-2], pivots.shape[:-1], b.shape[:-2]), b.shape[-2:]
    if 0 in (*lead, n, k):
        return REGISTRY["zeros"]((*lead, n, k), b.dtype)
    spread = lambda x, *last: REGISTRY["broadcast_to"](x, (*lead, *last)).reshape(-1, *last)
    ld, b, pivots = spread(factors, n, n), spread(b, n, k), spread(pivots.astype("int64"), n)
    batch, where, equal, places = b.shape[0], REGISTRY["where"], REGISTRY["equal"], REGISTRY["arange"](0, n, 1, "int64")
    turned = REGISTRY["conj"] if hermitian and ld.dtype.is_complex else lambda x: x
    single = REGISTRY["broadcast_to"](_last(pivots > 0).mT, ld.shape) & (places <= _last(places))
    before = REGISTRY["max"](where(single, places, -1), -1)  # the last block of one row
    first, second = ((places - before) % 2 == r for r in (1, 0))
    first, second = first & (pivots < 0), second & (pivots < 0)
    to = where(first, -pivots - 1, where(second, places, pivots - 1))
    row = REGISTRY["minimum"](places + first.astype("int64"), n - 1)
    lower = where(_last(first).mT & equal(_last(places), places + 1), 0, REGISTRY["tril"](ld, -1))
    columns, to, row = lower.transpose(2, 0, 1), to.T, row.T

    def exchanged(x: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return _rows(x, _exchange(places, i, j))

    def down(xs: list[Tensor]) -> list[Tensor]:
        x, j, column, i, p = xs
        x = exchanged(x, i, p)
        return [x - _last(column) * REGISTRY["take"](x, j, 1)[:, None]]

    def up(xs: list[Tensor]) -> list[Tensor]:
        x, j, column, i, p = xs
        inner = REGISTRY["sum"](_last(turned(column)) * x, 1)
        return [exchanged(where(equal(_last(places), j), x - inner[:, None], x), i, p)]

    (b,), _ = run_scan(down, [b], [places, columns, row, to], n)
    partner = REGISTRY["clip"](where(first, places + 1, where(second, places - 1, places)), 0, n - 1)
    d = REGISTRY["last_diagonal"](ld)
    beside = REGISTRY["last_diagonal"](ld, -1)  # the elements of blocks of two rows that are not on the diagonal
    ends = REGISTRY["zeros"]((batch, 1), ld.dtype)
    off = where(first, turned(REGISTRY["concat"]([beside, ends], 1)), where(second, REGISTRY["concat"]([ends, beside], 1), 0))
    two = first | second
    scale = where(two, abs(off), 1)
    mine, other, f = d / scale, REGISTRY["gather"](d, -1, partner) / scale, off / scale
    det = (mine * other - where(two, f * where(two, turned(f), 0) if hermitian else f * f, 0)) * scale
    whole = (_last(other) * b - _last(f) * _rows(b, partner)) / _last(det)
    b = where(_last(two), whole, b / _last(where(two, 1, d)))
    (b,), _ = run_scan(up, [b], [places, columns, row, to], n, reverse=True)
    return b.reshape(*lead, n, k)
