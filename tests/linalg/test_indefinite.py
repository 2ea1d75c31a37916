"""Factors of indefinite matrices, and what is solved with them, beside LAPACK's algorithm written out in NumPy."""

import numpy as np
import pytest
from exhaustive import but

import tengen
import tengen.pytorch as torch
from tengen import Tensor, trace
from tengen.base.errors import GradientError, LinAlgError
from tengen.linalg.indefinite import ldl_factor, ldl_solve

KINDS = [("float64", False), ("float32", False), ("complex128", False), ("complex128", True)]


def size(x):
    return abs(x.real) + abs(x.imag)


def lapack(a, hermitian):
    """sytf2 and hetf2 of LAPACK 3.12 with uplo="L", one matrix: (L and D, pivots, info)."""
    conj = np.conj if hermitian else lambda x: x
    n, alpha, k, info = len(a), (1 + 17**0.5) / 8, 0, 0
    a, pivots = np.tril(a), np.zeros(n, int)
    while k < n:
        step, p = 1, k
        own = size(a[k, k])
        i = k + 1 + int(np.argmax(size(a[k + 1 :, k]))) if k + 1 < n else k
        largest = size(a[i, k]) if i > k else 0
        if max(own, largest) == 0:
            info = info or k + 1
        elif own < alpha * largest:
            beside = max([*size(a[i, k:i]), *size(a[i + 1 :, i])])
            if own < alpha * largest * (largest / beside):
                p, step = (i, 1) if size(a[i, i]) >= alpha * beside else (i, 2)
        at = k + step - 1
        if p != at:
            full = a + conj(np.tril(a, -1)).T
            order = np.arange(n)
            order[[at, p]] = p, at
            moved = full[order][:, order]
            a[k:, k:] = np.tril(moved[k:, k:])
        if a[k, k] != 0 or step == 2:
            d = a[k : k + step, k : k + step]
            d = np.tril(d) + conj(np.tril(d, -1)).T
            w = a[k + step :, k : k + step].copy()
            low = np.linalg.solve(d.T, w.T).T
            a[k + step :, k : k + step] = low
            a[k + step :, k + step :] -= np.tril(low @ conj(w).T)
        pivots[k : k + step] = p + 1 if step == 1 else -(p + 1)
        k += step
    return a, pivots, info


def matrix(n, dtype, hermitian, seed):
    """A stack of an indefinite matrix, one with a diagonal of zeros, one that is positive definite, and one of zeros."""
    rng = np.random.default_rng(seed)
    a = rng.normal(size=(4, n, n))
    if "complex" in dtype:
        a = a + 1j * rng.normal(size=a.shape)
    turned = a.conj().swapaxes(1, 2) if hermitian else a.swapaxes(1, 2)
    a = a + turned
    a[1][np.arange(n), np.arange(n)] = 0
    a[2] = a[2] @ a[2].conj().T if hermitian or "float" in dtype else a[2]
    a[3] = 0
    return a.astype(dtype)


@but(every=4)
@pytest.mark.parametrize("dtype, hermitian", KINDS)
def test_factors_are_lapacks(dtype, hermitian):
    for n in (1, 2, 9):
        a = matrix(n, dtype, hermitian, n)
        wrong = np.triu(np.full((n, n), 7, dtype), 1)  # what is above the diagonal is not read
        found = [x.numpy() for x in ldl_factor(Tensor(np.tril(a) + wrong), hermitian)]
        for b in range(4):
            want = lapack(a[b].astype("complex128" if "complex" in dtype else "float64"), hermitian)
            scale = 200 * n * np.finfo(dtype).eps * max(1, abs(a[b]).max())
            np.testing.assert_allclose(found[0][b], want[0], rtol=0, atol=scale)
            assert found[1][b].tolist() == want[1].tolist() and found[2][b] == want[2]
        alone = ldl_factor(Tensor(np.tril(a[1])), hermitian)
        assert alone[0].numpy().tobytes() == found[0][1].tobytes()  # whatever else is in the stack
    assert (found[1][1] < 0).sum() >= 2  # there were blocks of two rows
    assert not hermitian or (found[0][0].diagonal().imag == 0).all()


@but(every=4)
@pytest.mark.parametrize("dtype, hermitian", KINDS)
def test_systems(dtype, hermitian):
    for n in (1, 2, 9):
        a = matrix(n, dtype, hermitian, n + 30)[: 3 if n > 1 else 1]
        b = np.random.default_rng(1).normal(size=(len(a), n, 2)).astype(dtype)
        factors, pivots, _ = ldl_factor(Tensor(a), hermitian)
        x = ldl_solve(factors, pivots, Tensor(b), hermitian).numpy()
        limit = 100 * n * np.finfo(dtype).eps
        far = abs(a @ x - b).max((1, 2)) / (abs(a).sum(2).max(1) * abs(x).max((1, 2)))
        assert (far < limit).all(), (n, far)
    again = trace(lambda a, b: ldl_solve(*ldl_factor(a, hermitian)[:2], b, hermitian))(Tensor(a), Tensor(b))
    assert again.numpy().tobytes() == x.tobytes()
    one = ldl_solve(factors[0], pivots[0], Tensor(b[:, None]), hermitian)  # leading axes broadcast
    assert one.shape == (3, 1, 9, 2) and one.numpy()[0, 0].tobytes() == x[0].tobytes()


@pytest.mark.parametrize("a", [matrix(5, "float64", False, 3)[1], np.array([[0.0, 2.0, 1.0], [2.0, 0.0, 3.0], [1.0, 3.0, 0.0]])])
def test_gradients_of_a_system(a):
    """Of the right side by the formula, of the factors by finite differences."""
    n = len(a)
    b, weights = np.arange(2.0 * n).reshape(n, 2), np.random.default_rng(2).normal(size=(n, 2))
    factors, pivots, _ = ldl_factor(Tensor(a))
    f = lambda ld, b: (ldl_solve(ld, pivots, b) * Tensor(weights)).sum()
    of_factors, of_b = (x.numpy() for x in tengen.autodiff.grad(f, argnums=(0, 1))(factors, Tensor(b)))
    np.testing.assert_allclose(of_b, np.linalg.solve(a.T, weights), rtol=1e-11)
    ld = factors.numpy()
    for i, j in zip(*np.tril_indices(n)):
        step = np.zeros_like(ld)
        step[i, j] = 1e-6
        slope = (f(Tensor(ld + step), Tensor(b)).item() - f(Tensor(ld - step), Tensor(b)).item()) / 2e-6
        np.testing.assert_allclose(of_factors[i, j], slope, rtol=1e-6, atol=1e-6)


def test_a_gradient_through_factors_is_an_error():
    """That of the matrix would be 0 without a word. What needs none has none to ask for."""
    a, b = Tensor(matrix(3, "float64", False, 3)[1]), Tensor(np.ones((3, 1)))
    with pytest.raises(GradientError, match="the factors have no gradient"):
        tengen.autodiff.grad(lambda a: ldl_solve(*ldl_factor(a)[:2], b).sum())(a)
    assert tengen.autodiff.grad(lambda b: ldl_solve(*ldl_factor(a)[:2], b).sum())(b).shape == (3, 1)


def test_pytorchs_names():
    a = torch.tensor([[0.0, 2.0, 1.0], [2.0, 0.0, 3.0], [1.0, 3.0, 0.0]], dtype=torch.float64)
    found = torch.linalg.ldl_factor(a)
    assert found.LD.shape == (3, 3) and found.pivots.dtype == torch.int32
    b = torch.ones(3, 1, dtype=torch.float64)
    assert torch.allclose(a @ torch.linalg.ldl_solve(found.LD, found.pivots, b), b)
    assert torch.linalg.ldl_factor_ex(torch.zeros(2, 2)).info.item() == 1
    with pytest.raises(LinAlgError, match="a pivot of"):
        torch.linalg.ldl_factor(torch.zeros(2, 2))
    with pytest.raises(ValueError, match="square matrices"):
        torch.linalg.ldl_factor(torch.zeros(2, 3))
    for shape in ((0, 0), (2, 0, 0), (0, 3, 3)):
        factors, pivots = torch.linalg.ldl_factor(torch.zeros(shape))
        assert factors.shape == shape and pivots.shape == shape[:-1]
        assert torch.linalg.ldl_solve(factors, pivots, torch.zeros(shape)).shape == shape
