"""QR, eigenvalues, singular values and what is made of them: residuals and orthogonality as LAPACK bounds them, special matrices."""

import numpy as np
import pytest
from mpmath import mp

import tengen.functional as F
from tengen import Tensor, config, linalg, load_graph, set_threads, trace
from tengen.autodiff import vjp, vmap
from tengen.base.errors import ArgumentError, GradientError, LinAlgError, ShapeError

RNG = np.random.default_rng(4)
DTYPES = ("float32", "float64")
SIZES = (1, 2, 3, 15, 16, 17, 33, 70)


def t(x):
    return np.swapaxes(x, -1, -2)


def eps(d):
    return float(np.finfo(d).eps)


def wide(x):
    return x.numpy().astype("float64")


def orthonormal(x, d):
    n = x.shape[-1]
    return np.abs(t(x) @ x - np.eye(n)).max(initial=0) <= 4 * (n + 4) * eps(d)


def largest(a):
    return np.abs(a).max(initial=0) * max(1, *a.shape[-2:]) ** 0.5


def special(n, d):
    """Matrices that trouble iterations: multiples, clusters, ranks, grades, zeros."""
    q = np.linalg.qr(RNG.normal(size=(n, n)))[0]
    graded = np.logspace(0, -14, n)
    yield "zero", np.zeros((n, n))
    yield "identity", np.eye(n)
    yield "ones", np.ones((n, n))
    yield "diagonal", np.diag(np.arange(n, 0, -1.0))
    yield "multiple", (q * np.where(np.arange(n) < n // 2, 1.0, 3.0)) @ q.T
    yield "graded", np.outer(graded, graded) * RNG.uniform(0.5, 1, (n, n))
    yield "graded back", (np.outer(graded, graded) * RNG.uniform(0.5, 1, (n, n)))[::-1, ::-1]
    yield "low rank", q[:, : n // 3 + 1] @ q[:, : n // 3 + 1].T
    yield "wilkinson", np.diag(np.abs(np.arange(n) - n // 2.0)) + np.eye(n, k=1) + np.eye(n, k=-1)
    yield "nilpotent", np.eye(n, k=1)
    yield "bidiagonal with zeros", np.diag(np.arange(n) % 3.0) + np.eye(n, k=1)
    yield "tiny", RNG.uniform(-1, 1, (n, n)) * (1e-300 if d == "float64" else 1e-36)
    yield "huge", RNG.uniform(-1, 1, (n, n)) * (1e300 if d == "float64" else 1e36)


@pytest.mark.parametrize("d", DTYPES)
def test_qr(d):
    for m, n in [(s, s) for s in SIZES] + [(40, 18), (18, 40), (33, 1), (1, 5)]:
        a = RNG.uniform(-1, 1, (2, m, n)).astype(d)
        q, r = map(wide, linalg.qr(Tensor(a)))
        assert q.shape == (2, m, min(m, n)) and r.shape == (2, min(m, n), n)
        assert np.abs(q @ r - a).max() <= 4 * m * eps(d) and orthonormal(q, d) and (np.tril(r, -1) == 0).all()
        np.testing.assert_array_equal(np.sign(np.diagonal(r, 0, 1, 2)), np.sign(np.diagonal(np.linalg.qr(a)[1], 0, 1, 2)))
    a = RNG.uniform(-1, 1, (20, 5)).astype(d)
    q, r = map(wide, linalg.qr(Tensor(a), mode="complete"))
    assert q.shape == (20, 20) and r.shape == (20, 5) and orthonormal(q, d) and np.abs(q @ r - a).max() <= 80 * eps(d)


@pytest.mark.parametrize("d", DTYPES)
def test_eigenvalues_and_vectors(d):
    cases = [("random", RNG.uniform(-1, 1, (2, n, n))) for n in SIZES] + [*special(24, d), *special(5, d)]
    for name, a in cases:
        s = (a + t(a)).astype(d) / np.array(2, d)
        w, v = map(wide, linalg.eigh(Tensor(s)))
        scale = np.abs(s).max(initial=0).astype("float64") or 1.0
        exact, n = s.astype("float64") / scale, s.shape[-1]
        bound = 8 * n * eps(d) * max(1, largest(exact))
        assert orthonormal(v, d), name
        assert np.abs(exact @ v - v * (w / scale)[..., None, :]).max() <= bound, name
        assert np.abs(w / scale - np.linalg.eigvalsh(exact)).max() <= bound, name
        assert (np.diff(w, axis=-1) >= 0).all()
        assert linalg.eigvalsh(Tensor(s)).numpy().tobytes() == linalg.eigh(Tensor(s)).eigenvalues.numpy().tobytes()


@pytest.mark.parametrize("d", DTYPES)
def test_singular_values_and_vectors(d):
    shapes = [(n, n) for n in SIZES] + [(40, 18), (18, 40), (33, 1), (1, 5)]
    cases = [("random", RNG.uniform(-1, 1, (2, *s))) for s in shapes] + [*special(24, d), *special(5, d)]
    for name, a in cases:
        a = a.astype(d)
        u, s, vh = map(wide, linalg.svd(Tensor(a), full_matrices=False))
        scale = np.abs(a).max(initial=0).astype("float64") or 1.0
        exact = a.astype("float64") / scale
        bound = 8 * max(a.shape[-2:]) * eps(d) * max(1, largest(exact))
        assert orthonormal(u, d) and orthonormal(t(vh), d), name
        assert np.abs((u * (s / scale)[..., None, :]) @ vh - exact).max() <= bound, name
        assert np.abs(s / scale - np.linalg.svd(exact)[1]).max() <= bound, name
        assert (s >= 0).all() and (np.diff(s, axis=-1) <= 0).all()
        assert linalg.svdvals(Tensor(a)).numpy().tobytes() == linalg.svd(Tensor(a)).S.numpy().tobytes()
        big, _, small = map(wide, linalg.svd(Tensor(a)))
        assert big.shape[-1] == a.shape[-2] and small.shape[-1] == a.shape[-1] and orthonormal(big, d) and orthonormal(t(small), d)


def test_against_many_digits():
    n = 6
    a = RNG.uniform(-1, 1, (n, n))
    s = a + a.T
    with mp.workdps(40):
        w = sorted(map(float, mp.eigsy(mp.matrix(s.tolist()), eigvals_only=True)))
        sv = sorted(map(float, mp.svd_r(mp.matrix(a.tolist()), compute_uv=False)), reverse=True)
        e = np.array(mp.expm(mp.matrix(a.tolist())).tolist(), float)
        x = np.array(mp.lu_solve(mp.matrix(a.tolist()), mp.matrix([1.0] * n)).tolist(), float)[:, 0]
    np.testing.assert_allclose(linalg.eigvalsh(Tensor(s)).numpy(), w, atol=4e-15)
    np.testing.assert_allclose(linalg.svdvals(Tensor(a)).numpy(), sv, atol=4e-15)
    np.testing.assert_allclose(linalg.matrix_exp(Tensor(a)).numpy(), e, rtol=1e-13, atol=1e-14)
    np.testing.assert_allclose(linalg.solve(Tensor(a), Tensor(np.ones(n))).numpy(), x, rtol=1e-12)


def test_signs_are_those_of_a_rule():
    a = RNG.uniform(-1, 1, (3, 9, 9))
    for v in (linalg.eigh(Tensor(a)).eigenvectors.numpy(), linalg.svd(Tensor(a)).U.numpy(), t(linalg.svd(Tensor(a[:, :4])).Vh.numpy())):
        first = np.argmax(np.abs(v) >= np.abs(v).max(-2, keepdims=True) / 2, -2)
        assert (np.take_along_axis(v, first[..., None, :], -2) > 0).all()


def test_what_is_not_finite_is_nan_alone():
    a = np.stack([np.eye(4), np.full((4, 4), np.nan), np.diag([1.0, np.inf, 1, 1])])
    for f in (linalg.eigh, linalg.svd):
        for x in f(Tensor(a)):
            x = x.numpy()
            assert np.isfinite(x[0]).all() and np.isnan(x[1:]).all()


def test_nothing_to_compute():
    for shape in ((0, 0), (2, 0, 0), (0, 3, 3), (4, 0), (0, 4)):
        a = Tensor(np.zeros(shape))
        *lead, m, n = shape
        k = min(m, n)
        assert [x.shape for x in linalg.qr(a)] == [(*lead, m, k), (*lead, k, n)]
        assert [x.shape for x in linalg.svd(a, full_matrices=False)] == [(*lead, m, k), (*lead, k), (*lead, k, n)]
        assert linalg.pinv(a).shape == (*lead, n, m) and linalg.matrix_rank(a).numpy().tolist() == np.zeros(lead).tolist()
        full = linalg.svd(a)
        if 0 not in lead:
            np.testing.assert_array_equal(full.U.numpy(), np.broadcast_to(np.eye(m), (*lead, m, m)))
        if m == n:
            assert [x.shape for x in linalg.eigh(a)] == [(*lead, n), (*lead, n, n)]


def test_batches_traces_layouts_and_threads_change_no_bit():
    a = RNG.uniform(-1, 1, (3, 37, 21))
    s = RNG.uniform(-1, 1, (3, 35, 35))
    for f, x in ((linalg.qr, a), (linalg.svd, a), (linalg.eigh, s)):
        parts = lambda made: [y.numpy().tobytes() for y in made]
        want = parts(f(Tensor(x)))
        assert [np.stack(y).tobytes() for y in zip(*([z.numpy() for z in f(Tensor(x[i]))] for i in range(3)))] == want
        assert parts(trace(lambda v, f=f: tuple(f(v)))(Tensor(x))) == want
        assert parts(vmap(lambda v, f=f: tuple(f(v)))(Tensor(x))) == want
        assert parts(f(Tensor(np.ascontiguousarray(t(x))).transpose(0, 2, 1))) == want
        before = config.threads
        try:
            set_threads(3)
            assert parts(f(Tensor(x))) == want
        finally:
            set_threads(before)


def test_a_saved_program_has_the_same_bits_and_the_same_errors(tmp_path):
    a = RNG.normal(size=(2, 20, 20))

    @trace(capture_as_const=True)
    def f(x):
        return (*linalg.svd(x), *linalg.eigh(x), linalg.inv(x), linalg.cholesky(x @ x.transpose(0, 2, 1)), *linalg.qr(x))

    want = [y.numpy().tobytes() for y in f(Tensor(a))]
    names = [f"y{i}" for i in range(len(want))]
    f.dump(tmp_path / "f.tgn", arg_names=["x"], output_names=names)
    model = load_graph(tmp_path / "f.tgn")
    made = model(x=Tensor(a))
    assert [y.numpy().tobytes() for y in (made.values() if isinstance(made, dict) else made)] == want
    with pytest.raises(LinAlgError, match="inv: singular"):
        model(x=Tensor(np.ones((2, 20, 20))))


def test_pseudo_inverses_ranks_and_least_squares():
    for m, n, rank in ((7, 4, 4), (4, 7, 4), (6, 6, 3)):
        a = RNG.uniform(-1, 1, (2, m, rank)) @ RNG.uniform(-1, 1, (2, rank, n))
        np.testing.assert_allclose(linalg.pinv(Tensor(a)).numpy(), np.linalg.pinv(a, 1e-13), rtol=1e-9, atol=1e-10)
        assert linalg.matrix_rank(Tensor(a)).tolist() == [rank, rank]
        b = RNG.uniform(-1, 1, (m, 2))
        got, (want, _, r, _) = linalg.lstsq(Tensor(a[0]), Tensor(b)), np.linalg.lstsq(a[0], b, 1e-13)
        np.testing.assert_allclose(got.solution.numpy(), want, rtol=1e-9, atol=1e-10)
        np.testing.assert_allclose(got.residuals.numpy(), ((a[0] @ want - b) ** 2).sum(0), rtol=1e-9, atol=1e-20)
        assert got.rank.item() == r
    assert linalg.matrix_rank(Tensor(np.diag([1.0, 0.1, 0.01])), rtol=0.05).item() == 2
    line = linalg.lstsq(Tensor([[1.0, 1.0], [1.0, 2.0], [1.0, 3.0]]), Tensor([1.0, 2.0, 3.0])).solution
    np.testing.assert_allclose(line.numpy(), [0, 1], atol=1e-5)


def differences(f, x, step, h=1e-5):
    return (f(Tensor(x + h * step)).item() - f(Tensor(x - h * step)).item()) / (2 * h)


NAMES = ["eigh", "eigvalsh", "svd", "svdvals", "qr", "pinv", "lstsq", "norms", "matrix_exp"]


@pytest.mark.parametrize("name", NAMES)
def test_gradients_against_differences_and_twice(name):
    x = RNG.uniform(-1, 1, (5, 3)) + 2 * np.eye(5, 3)
    w = Tensor(RNG.uniform(-1, 1, (5, 3)))
    square = lambda a: a.transpose(1, 0) @ a
    c = Tensor(RNG.uniform(-1, 1, (3, 3)))
    f = {
        "eigh": lambda a: (linalg.eigh(square(a)).eigenvectors * c).sum() + linalg.eigh(square(a)).eigenvalues.sum(),
        "eigvalsh": lambda a: (linalg.eigvalsh(square(a)) ** 2).sum(),
        "svd": lambda a: (linalg.svd(a, full_matrices=False).U * w).sum() + (linalg.svd(a, full_matrices=False).Vh * c).sum(),
        "svdvals": lambda a: (linalg.svdvals(a) ** 3).sum(),
        "qr": lambda a: (linalg.qr(a).Q * w).sum() + (linalg.qr(a).R * c).sum(),
        "pinv": lambda a: (linalg.pinv(a).transpose(1, 0) * w).sum(),
        "lstsq": lambda a: (linalg.lstsq(a, w).solution * c).sum(),
        "norms": lambda a: linalg.vector_norm(a) + linalg.vector_norm(a, ord=3) + sum(linalg.matrix_norm(a, ord=o) for o in ("nuc", 2)),
        "matrix_exp": lambda a: (linalg.matrix_exp(square(a) / 4) * c).sum(),
    }[name]  # fmt: skip
    one = Tensor(1.0, dtype="float64")
    twice = lambda a: (vjp(f, a)[1](one)[0] * w).sum()
    for g in (f, twice):
        step = RNG.uniform(-1, 1, x.shape)
        got = (vjp(g, Tensor(x))[1](one)[0].numpy() * step).sum()
        assert got == pytest.approx(differences(g, x, step), rel=1e-5, abs=1e-7)


def test_gradients_where_values_repeat():
    one = np.eye(3)
    g = vjp(lambda a: linalg.eigvalsh(a).sum(), Tensor(one))[1](Tensor(1.0, dtype="float64"))[0]
    np.testing.assert_allclose(g.numpy(), one, atol=1e-15)
    g = vjp(lambda a: linalg.svd(a).S.sum(), Tensor(one))[1](Tensor(1.0, dtype="float64"))[0]
    np.testing.assert_allclose(g.numpy(), one, atol=1e-15)
    g = vjp(lambda a: linalg.pinv(a).sum(), Tensor(one))[1](Tensor(1.0, dtype="float64"))[0]
    np.testing.assert_allclose(g.numpy(), -np.ones((3, 3)), atol=1e-12)
    g = vjp(lambda a: linalg.eigh(a).eigenvectors.sum(), Tensor(one))[1](Tensor(1.0, dtype="float64"))[0]
    assert not np.isfinite(g.numpy()).all()
    g = vjp(lambda a: linalg.vector_norm(a), Tensor(np.zeros(3)))[1](Tensor(1.0, dtype="float64"))[0]
    assert g.tolist() == [0, 0, 0]


def test_norms_and_products():
    a, b = RNG.uniform(-1, 1, (2, 4, 3)), RNG.uniform(-1, 1, (2, 3, 4))
    for order in ("fro", "nuc", 1, -1, 2, -2, np.inf, -np.inf):
        for keep in (False, True):
            want = np.linalg.norm(a, order, (-2, -1), keep)
            np.testing.assert_allclose(linalg.matrix_norm(Tensor(a), ord=order, keepdims=keep).numpy(), want, rtol=1e-12)
    for order in (0, 1, 2, 3.5, -1.5, np.inf, -np.inf):
        np.testing.assert_allclose(linalg.vector_norm(Tensor(a), ord=order).numpy(), np.linalg.norm(a.ravel(), order), rtol=1e-12)
        want = np.linalg.norm(a, order, 1, True)
        np.testing.assert_allclose(linalg.vector_norm(Tensor(a), ord=order, axis=1, keepdims=True).numpy(), want, rtol=1e-12)
    assert linalg.vector_norm(Tensor([3e300, 4e300], dtype="float64")).item() == pytest.approx(5e300)
    assert linalg.vector_norm(Tensor([np.inf, 1.0])).item() == np.inf and linalg.vector_norm(Tensor(np.zeros(0))).item() == 0
    np.testing.assert_allclose(linalg.trace(Tensor(a), offset=1).numpy(), np.trace(a, 1, 1, 2))
    np.testing.assert_allclose(linalg.vecdot(Tensor(a), Tensor(a[0])).numpy(), (a * a[0]).sum(-1))
    np.testing.assert_allclose(linalg.cross(Tensor(a), Tensor(a[::-1].copy())).numpy(), np.cross(a, a[::-1]))
    np.testing.assert_allclose(linalg.tensordot(Tensor(a), Tensor(b), axes=((0, 2), (0, 1))).numpy(), np.tensordot(a, b, ((0, 2), (0, 1))))
    np.testing.assert_allclose(linalg.tensordot(Tensor(a), Tensor(b[0]), axes=1).numpy(), np.tensordot(a, b[0], 1))
    assert linalg.matrix_exp(Tensor(np.zeros((2, 2)))).tolist() == [[1, 0], [0, 1]]
    large = linalg.matrix_exp(Tensor(np.diag([-300.0, 100.0])))
    np.testing.assert_allclose(np.diag(large.numpy()), np.exp([-300, 100.0]), rtol=1e-11)


def test_under_megengines_names():
    a = RNG.uniform(-1, 1, (4, 4)).astype("float32")
    assert F.matinv(Tensor(a)).numpy().tobytes() == linalg.inv(Tensor(a)).numpy().tobytes()
    u, s, v = F.svd(Tensor(a[:, :2]))
    np.testing.assert_allclose((u * s @ v).numpy(), a[:, :2], atol=1e-6)
    assert [x.shape for x in F.svd(Tensor(a), compute_uv=False)] == [(0,), (4,), (0,)]


def test_what_cannot_be():
    with pytest.raises(ArgumentError, match="mode='full' must be"):
        linalg.qr(Tensor(np.eye(2)), mode="full")
    with pytest.raises(ShapeError, match="eigh: takes square matrices"):
        linalg.eigh(Tensor(np.zeros((2, 3))))
    tall = Tensor(RNG.uniform(-1, 1, (5, 2)))
    with pytest.raises(GradientError, match="reduced ones have"):
        y, pull = vjp(lambda x: linalg.svd(x).U.sum(), tall)
        pull(Tensor(1.0, dtype="float64"))
    with pytest.raises(GradientError, match="reduced ones have"):
        y, pull = vjp(lambda x: linalg.qr(x, mode="complete").Q.sum(), tall)
        pull(Tensor(1.0, dtype="float64"))


def test_norms_of_orders_below_1_have_no_slope_at_0():
    for order, want in ((-1, [0.0] * 3), (-2.5, [0.0] * 3), (0.5, [1 + 2**0.5, 0.0, -(1 + 0.5**0.5)])):
        y, pull = vjp(lambda a, order=order: linalg.vector_norm(a, ord=order), Tensor(np.array([1.0, 0.0, -2.0])))
        assert y.item() == pytest.approx(0.0 if order < 0 else (1 + 2**0.5) ** 2)
        np.testing.assert_allclose(pull(Tensor(1.0, dtype="float64"))[0].numpy(), want, rtol=1e-12)
