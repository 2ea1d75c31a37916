"""`einsum` beside NumPy's."""

import numpy as np
import pytest

import tengen.functional as F
from tengen import Tensor, trace
from tengen.autodiff import GradManager
from tengen.base.errors import ArgumentError, ShapeError

CASES = {
    "ij,jk->ik": [(3, 4), (4, 5)],
    "bij,bjk->bik": [(2, 3, 4), (2, 4, 5)],
    "ij->ji": [(3, 4)],
    "ij->": [(3, 4)],
    "ii": [(4, 4)],
    "ii->i": [(4, 4)],
    "iji->j": [(3, 4, 3)],
    "i,j->ij": [(3,), (4,)],
    "i,i": [(5,), (5,)],
    "ij,ij->ij": [(3, 4), (3, 4)],
    "ij,j": [(3, 4), (4,)],
    "bhqd,bhkd->bhqk": [(2, 2, 3, 4), (2, 2, 5, 4)],
    "abc,cd,de->abe": [(2, 3, 4), (4, 5), (5, 2)],
    "...ij,...jk->...ik": [(2, 3, 4), (4, 5)],
    "...i->...": [(2, 3, 4)],
    "i...,i->...": [(3, 2, 4), (3,)],
    "ba": [(3, 4)],
    "ij,kl->ijkl": [(2, 3), (2, 2)],
    "ij,ik->kj": [(3, 4), (3, 2)],
    "ijk,jil->kl": [(2, 3, 4), (3, 2, 5)],
    "a,a,a->a": [(4,), (4,), (4,)],
    "...,...": [(), ()],
    "ij,jk": [(0, 4), (4, 2)],
    "ij,jk->i": [(2, 0), (0, 3)],
    " i j , j k -> i k ": [(1, 4), (4, 1)],
}


@pytest.mark.parametrize("equation", CASES)
def test_beside_numpy(equation):
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(s) for s in CASES[equation]]
    want = np.einsum(equation.replace(" ", ""), *arrays)
    for got in (F.einsum(equation, *map(Tensor, arrays)), trace(lambda *xs: F.einsum(equation, *xs))(*map(Tensor, arrays))):
        assert got.shape == want.shape and got.dtype == "float64"
        np.testing.assert_allclose(got.numpy(), want, rtol=1e-12, atol=1e-12)


def test_extents_of_one_are_broadcast():
    a, b = np.arange(3.0).reshape(1, 3), np.arange(6.0).reshape(2, 3)
    np.testing.assert_array_equal(F.einsum("ij,ij->ij", Tensor(a), Tensor(b)).numpy(), a * b)
    np.testing.assert_array_equal(F.einsum("ij,ij->", Tensor(a), Tensor(b)).numpy(), (a * b).sum())


def test_a_list_and_gradients():
    rng = np.random.default_rng(1)
    a, b = (Tensor(rng.standard_normal(s)) for s in ((2, 3), (3, 4)))
    gm = GradManager().attach([a, b])
    with gm:
        gm.backward((F.einsum("ij,jk->k", [a, b]) ** 2).sum())
    out = (a.numpy() @ b.numpy()).sum(0)
    np.testing.assert_allclose(b.grad.numpy(), np.outer(a.numpy().sum(0), 2 * out), rtol=1e-12)
    np.testing.assert_allclose(a.grad.numpy(), np.tile(b.numpy() @ (2 * out), (2, 1)), rtol=1e-12)


@pytest.mark.parametrize("equation, shapes, error, message", [
    ("ij,jk->ik", [(2, 3)], ArgumentError, "2 operands are named, 1 were given"),
    ("i1->i", [(2, 3)], ArgumentError, "'1' cannot be an index"),
    ("ij->ik", [(2, 3)], ArgumentError, "result's indices"),
    ("ij->ii", [(2, 3)], ArgumentError, "each once"),
    ("ijk", [(2, 3)], ShapeError, "does not name"),
    ("ij,jk->ik", [(2, 3), (4, 5)], ShapeError, "index 'j' is of 3 in one operand and of 4"),
    ("ii->i", [(2, 3)], ShapeError, "is of 2 and of 3"),
    ("i->i->i", [(2,)], ArgumentError, "cannot be an index"),
    ("", [], ArgumentError, "operands"),
])
def test_errors(equation, shapes, error, message):
    with pytest.raises(error, match=message):
        F.einsum(equation, *(F.ones(s) for s in shapes))
