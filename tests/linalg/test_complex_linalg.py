"""Linear algebra of complex matrices, and eigenvalues of general ones: definitions, NumPy in float64, gradients by differences, edges."""

import numpy as np
import pytest
from exhaustive import but

from tengen import Tensor, config, linalg, set_threads, trace
from tengen.autodiff import GradManager, vmap
from tengen.base.errors import DTypeError, GradientError, LinAlgError, ShapeError

RNG = np.random.default_rng(5)
DTYPES = ("complex64", "complex128")


def h(x):
    return np.conj(np.swapaxes(x, -1, -2))


def eps(d):
    return float(np.finfo(d).eps)


def some(*shape):
    return RNG.normal(size=shape) + 1j * RNG.normal(size=shape)


def hermitian(*shape):
    x = some(*shape)
    return x + h(x)


def positive(*shape):
    x = some(*shape)
    return x @ h(x) + np.eye(shape[-1])


def wide(x):
    return x.numpy().astype("complex128")


def near(got, want, d, by=40):
    """Within so many eps of the largest element, for each row."""
    want = np.asarray(want)
    assert got.shape == want.shape and np.abs(wide(got) - want).max(initial=0) <= by * max(want.shape[-1:] or (1,)) * eps(d) * max(
        np.abs(want).max(initial=0), 1
    )


@but(every=2)
@pytest.mark.parametrize("d", DTYPES)
@pytest.mark.parametrize("shape", [(1, 1), (5, 5), (2, 7, 4), (3, 6), (18, 17), (4, 0), (0, 3, 3)])
def test_factors_give_the_matrix(d, shape):
    a = some(*shape).astype(d)
    x, (m, n) = Tensor(a), shape[-2:]
    for mode in ("reduced", "complete"):
        q, r = linalg.qr(x, mode=mode)
        k = m if mode == "complete" else min(m, n)
        assert q.shape == (*shape[:-1], k) and q.dtype == d
        near(q @ r, a, d)
        if q.size:
            near(h(wide(q)) @ q, np.broadcast_to(np.eye(k), (*shape[:-2], k, k)), d)
        assert (np.tril(wide(r), -1) == 0).all() and (np.diagonal(wide(r), 0, -2, -1).imag == 0).all()
    p, lower, upper = linalg.lu(x)
    near(p @ lower @ upper, a, d)
    assert (np.tril(wide(upper), -1) == 0).all() and (np.triu(wide(lower), 1) == 0).all()
    for full in (False, True):
        u, s, vh = linalg.svd(x, full_matrices=full)
        k = min(m, n)
        assert u.shape[-1] == (m if full else k) and vh.shape[-2] == (n if full else k) and s.dtype == x.real.dtype
        near((u[..., :k] * s[..., None, :]) @ vh[..., :k, :], a, d)
        for side in (u, linalg.matrix_transpose(vh).conj()):
            c = side.shape[-1]
            if side.size:
                near(linalg.matrix_transpose(side).conj() @ side, np.broadcast_to(np.eye(c), (*shape[:-2], c, c)), d)
    if a.size:
        np.testing.assert_allclose(linalg.svdvals(x).numpy(), np.linalg.svd(a.astype("complex128"), compute_uv=False), rtol=1e3 * eps(d))


@but(every=2)
@pytest.mark.parametrize("d", DTYPES)
@pytest.mark.parametrize("n", [1, 2, 5, 17, 40])
def test_square_matrices(d, n):
    a, s, b = (f(2, n, n).astype(d) for f in (some, positive, some))
    near(linalg.inv(Tensor(a)) @ a, np.broadcast_to(np.eye(n), a.shape), d, 1e3)
    near(linalg.solve(Tensor(a), Tensor(b)), np.linalg.solve(a.astype("complex128"), b), d, 1e3)
    near(linalg.solve(Tensor(a), Tensor(b[0, 0].real)), np.linalg.solve(a.astype("complex128"), b[0, 0].real[:, None])[..., 0], d, 1e3)
    for upper in (False, True):
        f = linalg.cholesky(Tensor(s), upper=upper)
        near(h(wide(f)) @ f if upper else f @ h(wide(f)), s, d)
        assert ((np.tril if upper else np.triu)(wide(f), -1 if upper else 1) == 0).all()
        near(linalg.cho_solve(f, Tensor(b), upper=upper), np.linalg.solve(s.astype("complex128"), b), d, 1e3)
        for turned in (False, True):
            t = np.triu(a + 4 * np.eye(n)) if upper else np.tril(a + 4 * np.eye(n))
            t = t.astype(d)
            want = np.linalg.solve((np.swapaxes(t, -1, -2) if turned else t).astype("complex128"), b)
            near(linalg.solve_triangular(Tensor(t), Tensor(b), upper=upper, transposed=turned), want, d, 1e3)
    near(linalg.lu_solve(linalg.lu_factor(Tensor(a)), Tensor(b)), np.linalg.solve(a.astype("complex128"), b), d, 1e3)
    np.testing.assert_allclose(linalg.det(Tensor(a)).numpy(), np.linalg.det(a.astype("complex128")), rtol=1e3 * n * eps(d))
    for got, want in zip(linalg.slogdet(Tensor(a)), np.linalg.slogdet(a.astype("complex128"))):
        np.testing.assert_allclose(got.numpy(), want, rtol=1e3 * n * eps(d), atol=1e2 * n * eps(d))
    e = hermitian(2, n, n).astype(d)
    w, v = linalg.eigh(Tensor(e))
    near(e @ v, wide(v) * w.numpy()[..., None, :], d)
    near(h(wide(v)) @ v, np.broadcast_to(np.eye(n), e.shape), d)
    assert w.dtype == Tensor(e).real.dtype and w.numpy().tobytes() == linalg.eigvalsh(Tensor(e)).numpy().tobytes()
    np.testing.assert_allclose(w.numpy(), np.linalg.eigvalsh(e.astype("complex128")), atol=20 * n * eps(d) * n)
    w, v = linalg.eig(Tensor(a))
    near(a @ v, wide(v) * wide(w)[..., None, :], d)
    np.testing.assert_allclose(np.linalg.norm(wide(v), axis=-2), 1, rtol=20 * eps(d))
    near(linalg.matrix_power(Tensor(a), 3), a.astype("complex128") @ a @ a, d)
    near(linalg.matrix_power(Tensor(a), 0), np.broadcast_to(np.eye(n), a.shape), d)


def test_other_functions():
    a, b = some(2, 5, 3), some(3, 5)
    for x in (a, b):
        near(linalg.pinv(Tensor(x)), np.linalg.pinv(x), "complex128")
        for ord in ("fro", "nuc", 1, -1, 2, -2, np.inf, -np.inf):
            np.testing.assert_allclose(linalg.matrix_norm(Tensor(x), ord=ord).numpy(), np.linalg.norm(x, ord, (-2, -1)), rtol=1e-12)
        for ord in (0, 1, 2, 3.5, np.inf, -np.inf):
            got = linalg.vector_norm(Tensor(x), axis=-1, ord=ord, keepdims=True)
            np.testing.assert_allclose(got.numpy(), np.linalg.norm(x, ord, -1, keepdims=True), rtol=1e-12)
        assert linalg.vector_norm(Tensor(x)).item() == pytest.approx(np.linalg.norm(x.ravel()))
    assert linalg.matrix_rank(Tensor(np.outer(some(4), some(5)))).item() == 1
    near(linalg.trace(Tensor(b)), np.trace(b), "complex128")
    near(linalg.vecdot(Tensor(b), Tensor(b[0])), np.vecdot(b, b[0]) if hasattr(np, "vecdot") else (b.conj() * b[0]).sum(-1), "complex128")
    near(linalg.lstsq(Tensor(a), Tensor(a[..., 0:1])).solution, np.linalg.pinv(a) @ a[..., 0:1], "complex128")
    assert np.abs(linalg.lstsq(Tensor(a), Tensor(a[..., 0:1])).residuals.numpy()).max() < 1e-25
    x = some(3, 3) / 4
    want, term = np.eye(3) + 0j, np.eye(3) + 0j
    for k in range(1, 30):
        term = term @ x / k
        want = want + term
    near(linalg.matrix_exp(Tensor(x)), want, "complex128")


HARD = {
    "zeros": np.zeros((3, 3)), "identity": np.eye(4), "a cycle": np.roll(np.eye(5), 1, 0), "defective": np.array([[0.0, 1], [0, 0]]),
    "ones above": np.triu(np.ones((6, 6))), "a rotation": np.array([[0.0, -1], [1, 0]]), "large": np.diag(np.ones(7), 1) * 1e200,
    "tiny": np.array([[0.0, 1, 0], [0, 0, 1], [1, 0, 0]]) * 1e-310, "far apart": np.diag([1e-300, 1, 1e300]),
    "real": np.random.default_rng(1).normal(size=(30, 30)), "equal": np.ones((4, 4)) * 1j,
}  # fmt: skip


@pytest.mark.parametrize("name", HARD)
def test_hard_matrices(name):
    a = HARD[name].astype("complex128")
    n, largest = len(a), np.abs(a).max() or 1
    unit = lambda z: z.real / largest + 1j * (z.imag / largest)  # NumPy's complex division overflows for the tiny ones
    b = unit(a)
    for x in (Tensor(HARD[name]), Tensor(a)):
        w, v = linalg.eig(x)
        assert np.abs(b @ wide(v) - wide(v) * unit(wide(w))).max() <= 40 * n * eps("complex128")
        np.testing.assert_allclose(np.linalg.norm(wide(v), axis=0), 1, rtol=1e-14)
        assert linalg.eigvals(x).numpy().tobytes() == w.numpy().tobytes()
    c = b + h(b)
    w, v = linalg.eigh(Tensor(c))
    assert np.abs(c @ wide(v) - wide(v) * w.numpy()).max() <= 40 * n * eps("complex128")
    u, s, vh = linalg.svd(Tensor(b))
    for f in (v, u, vh):
        assert np.abs(h(wide(f)) @ wide(f) - np.eye(n)).max() <= 40 * n * eps("complex128")
    assert np.abs((wide(u) * s.numpy()) @ wide(vh) - b).max() <= 40 * n * eps("complex128")
    q, r = linalg.qr(Tensor(b))
    assert np.abs(wide(q) @ wide(r) - b).max() <= 40 * n * eps("complex128")
    assert np.abs(h(wide(q)) @ wide(q) - np.eye(n)).max() <= 40 * n * eps("complex128")


def test_what_is_not_finite_is_nan_alone():
    a = np.stack([some(3, 3), np.full((3, 3), np.nan), some(3, 3)])
    a[1, 0, 0] = np.inf
    for part in linalg.eig(Tensor(a)):
        assert np.isnan(part.numpy()[1]).all() and np.isfinite(part.numpy()[[0, 2]]).all()
        assert part.numpy()[2].tobytes() == dict(zip("wv", linalg.eig(Tensor(a[2]))))["w" if part.ndim == 2 else "v"].numpy().tobytes()


FUNCTIONS = {
    "inv": lambda x: linalg.inv(x), "solve": lambda x: linalg.solve(x, x[:, 0] * 2.0), "det": lambda x: linalg.det(x),
    "slogdet": lambda x: linalg.slogdet(x).logabsdet, "sign": lambda x: linalg.slogdet(x).sign,
    "cholesky": lambda x: linalg.cholesky(x @ x.mH), "cholesky, upper": lambda x: linalg.cholesky(x @ x.mH, upper=True),
    "qr": lambda x: linalg.qr(x).Q * linalg.qr(x).R, "qr, tall": lambda x: linalg.qr(x[:, :2]).Q @ (1j * linalg.qr(x[:, :2]).R + 1.0),
    "qr, wide": lambda x: linalg.qr(x[:2]).R, "pinv": lambda x: linalg.pinv(x[:, :2]), "pinv, wide": lambda x: linalg.pinv(x[:2]),
    "eigh": lambda x: linalg.eigh(x + x.mH).eigenvalues, "eigvals": lambda x: linalg.eigvals(x) ** 2,
    "eigh, vectors": lambda x: abs(linalg.eigh(x + x.mH).eigenvectors) ** 2,
    "eigh, projections": lambda x: linalg.eigh(x + x.mH).eigenvectors[:, :1] @ linalg.eigh(x + x.mH).eigenvectors[:, :1].mH,
    "eig, vectors": lambda x: abs(linalg.eig(x).eigenvectors) ** 2, "svdvals": lambda x: linalg.svdvals(x),
    "svd": lambda x: linalg.svd(x).U[:, :1] @ linalg.svd(x).Vh[:1], "svd, left": lambda x: abs(linalg.svd(x).U) ** 2,
    "svd, tall": lambda x: linalg.svd(x[:, :2], full_matrices=False).U @ linalg.svd(x[:, :2], full_matrices=False).Vh,
    "svd, wide": lambda x: abs(linalg.svd(x[:2], full_matrices=False).Vh) ** 2, "norm": lambda x: linalg.vector_norm(x, axis=0),
    "solve_triangular": lambda x: linalg.solve_triangular(x, x[:1].mT, upper=False),
    "cho_solve": lambda x: linalg.cho_solve(linalg.cholesky(x @ x.mH), x), "nuclear": lambda x: linalg.matrix_norm(x, ord="nuc"),
    "lu": lambda x: linalg.lu(x[::-1]).L @ (1j * linalg.lu(x[::-1]).U + 1.0),
    "real eigvals": lambda x: linalg.eigvals(x.real), "real vectors": lambda x: abs(linalg.eig(x.real).eigenvectors),
}  # fmt: skip


@but(every=3)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_beside_differences(name):
    f = FUNCTIONS[name]
    r = np.random.default_rng(7)
    a = r.normal(size=(3, 3)) / 4 + 1j * r.normal(size=(3, 3)) / 4 + np.diag([1.0, 2.0, 3.5])
    x = Tensor(a)
    weights = None

    def loss(y):
        nonlocal weights
        if weights is None:
            weights = r.normal(size=(2, *y.shape))
        return (y.real * weights[0] + y.imag * weights[1]).sum()

    loss(f(x))
    gm = GradManager().attach(x)
    with gm:
        gm.backward(loss(f(x)))
    got, step, want = x.grad.numpy(), 1e-6, np.zeros_like(a)
    for i in np.ndindex(*a.shape):
        for unit in (1, 1j):
            d = np.zeros_like(a)
            d[i] = step * unit
            slope = (loss(f(Tensor(a + d))).item() - loss(f(Tensor(a - d))).item()) / (2 * step)
            want[i] += slope * unit
    np.testing.assert_allclose(got, want, atol=2e-7 * max(1, np.abs(want).max()))


def test_ways_of_running_have_the_same_bits():
    a = some(4, 6, 6)
    for f in (linalg.inv, linalg.det, lambda x: linalg.eigh(x @ x.mH)[1], lambda x: linalg.svd(x)[0], lambda x: linalg.eig(x)[1],
              lambda x: linalg.qr(x)[0]):  # fmt: skip
        want = f(Tensor(a)).numpy().tobytes()
        threads = config.threads
        set_threads(1)
        assert f(Tensor(a)).numpy().tobytes() == want
        set_threads(threads)
        assert trace(f)(Tensor(a)).numpy().tobytes() == want and vmap(f)(Tensor(a)).numpy().tobytes() == want
        assert f(Tensor(a[2])).numpy().tobytes() == np.frombuffer(want, "complex128").reshape(4, -1)[2].tobytes()


def test_errors():
    bad = np.stack([np.eye(2) + 0j, np.ones((2, 2)) * 1j])
    for error, match, call in (
        (LinAlgError, r"inv: singular.*matrix \(1,\)", lambda: linalg.inv(Tensor(bad))),
        (LinAlgError, "solve: singular", lambda: linalg.solve(Tensor(bad), Tensor(bad))),
        (LinAlgError, r"cholesky: not positive definite: matrix \(1,\).*pivot 1", lambda: linalg.cholesky(Tensor(bad))),
        (ShapeError, r"eig: takes square matrices", lambda: linalg.eig(Tensor(np.ones((2, 3))))),
        (DTypeError, "eig: takes floats or complex", lambda: linalg.eig(Tensor(np.ones((2, 2), int)))),
    ):  # fmt: skip
        with pytest.raises(error, match=match):
            call()
    x = Tensor(some(3, 2))
    gm = GradManager().attach(x)
    with pytest.raises(GradientError, match="complete factors"), gm:
        gm.backward(abs(linalg.qr(x, mode="complete").Q).sum())
    assert linalg.det(Tensor(bad)).tolist() == [1, 0] and linalg.slogdet(Tensor(bad)).sign.tolist() == [1, 0]


def test_a_factor_of_cholesky_has_a_real_diagonal_and_zeros_without_a_sign():
    r = np.random.default_rng(3)
    a = r.normal(size=(2, 4, 4)) + 1j * r.normal(size=(2, 4, 4))
    a = a @ a.conj().swapaxes(-1, -2) + 4 * np.eye(4)
    row, column = np.indices((4, 4))
    for upper, beyond in ((False, row < column), (True, row > column)):
        given = np.where(beyond, np.nan, a)  # the other triangle is not read
        found = linalg.cholesky(Tensor(given), upper=upper).numpy()
        assert np.allclose(found, np.linalg.cholesky(a, upper=upper), rtol=1e-13)
        nothing = found.imag[:, beyond | (row == column)]
        assert not nothing.any() and not np.signbit(nothing).any() and not found.real[:, beyond].any()
