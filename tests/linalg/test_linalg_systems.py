"""Systems of equations, inverses, determinants, Cholesky and LU: residuals as LAPACK bounds them, gradients, edges, errors."""

import numpy as np
import pytest

from tengen import Tensor, config, linalg, set_threads, trace
from tengen.autodiff import vjp, vmap
from tengen.base.errors import DTypeError, GradientError, LinAlgError, ShapeError

RNG = np.random.default_rng(3)
SIZES = (1, 2, 15, 16, 17, 31, 32, 33, 65, 100)
DTYPES = ("float32", "float64")


def t(x):
    return np.swapaxes(x, -1, -2)


def eps(d):
    return float(np.finfo(d).eps)


def positive(shape, d):
    x = RNG.uniform(-1, 1, shape)
    return (x @ t(x) + np.eye(shape[-1])).astype(d)


def wide(x):
    return x.numpy().astype("float64")


@pytest.mark.parametrize("d", DTYPES)
def test_factors_give_the_matrix(d):
    for n in SIZES:
        a = RNG.uniform(-1, 1, (2, n, n)).astype(d)
        p, lower, upper = map(wide, linalg.lu(Tensor(a)))
        bound = 4 * n * eps(d) * np.abs(lower).max() * np.abs(upper).max()
        assert np.abs(p @ lower @ upper - a).max() <= bound
        assert np.abs(lower).max() == 1 and (np.triu(lower, 1) == 0).all() and (np.tril(upper, -1) == 0).all()
        s = positive((2, n, n), d)
        low, up = linalg.cholesky(Tensor(s)), linalg.cholesky(Tensor(s), upper=True)
        assert low.numpy().tobytes() == np.ascontiguousarray(t(up.numpy())).tobytes()
        assert np.abs(wide(low) @ t(wide(low)) - s).max() <= 2 * n * eps(d) * np.abs(s).max()
        assert (np.triu(low.numpy(), 1) == 0).all()


@pytest.mark.parametrize("d", DTYPES)
def test_solutions_have_small_residuals(d):
    for n in SIZES:
        a, b = RNG.uniform(-1, 1, (n, n)).astype(d), RNG.uniform(-1, 1, (2, n, 3)).astype(d)
        x = wide(linalg.solve(Tensor(a), Tensor(b)))
        assert np.abs(a.astype("float64") @ x - b).max() <= 8 * n * eps(d) * np.abs(a).sum(1).max() * np.abs(x).max()
        y = wide(linalg.inv(Tensor(a)))
        assert np.abs(a.astype("float64") @ y - np.eye(n)).max() <= 8 * n * eps(d) * np.abs(a).sum(1).max() * np.abs(y).max()
        for upper in (False, True):
            for turned in (False, True):
                c = a + 3 * np.eye(n, dtype=d)
                full = np.triu(c) if upper else np.tril(c)
                z = wide(linalg.solve_triangular(Tensor(c), Tensor(b), upper=upper, transposed=turned))
                full = (t(full) if turned else full).astype("float64")
                assert np.abs(full @ z - b).max() <= 4 * n * eps(d) * np.abs(full).sum(1).max() * np.abs(z).max()


def test_the_elements_are_chains_of_fma_whatever_the_blocks():
    """The definition written out: the sum of products in the order of columns, which float64 sums of float32 products are exact enough
    to round to the same float32 almost always."""
    n = 70
    s = positive((n, n), "float32")
    u = np.triu(s).astype("float32")
    for j in range(n):
        u[j, j] = np.sqrt(u[j, j])
        u[j, j + 1 :] /= u[j, j]
        for i in range(j + 1, n):
            exact = u[i, i:].astype("float64") - u[j, i].astype("float64") * u[j, i:].astype("float64")
            u[i, i:] = exact.astype("float32")
    got = linalg.cholesky(Tensor(s), upper=True).numpy()
    assert (got != np.triu(u)).mean() < 0.01


def test_determinants():
    a = RNG.uniform(-1, 1, (3, 2, 5, 5))
    np.testing.assert_allclose(linalg.det(Tensor(a)).numpy(), np.linalg.det(a), rtol=1e-12)
    for got, want in zip(linalg.slogdet(Tensor(a)), np.linalg.slogdet(a)):
        np.testing.assert_allclose(got.numpy(), want, rtol=1e-12)
    singular = np.ones((4, 4))
    assert linalg.det(Tensor(singular)).item() == 0
    assert [x.item() for x in linalg.slogdet(Tensor(singular))] == [0, -np.inf]
    large = np.eye(40) * 1e300
    assert linalg.slogdet(Tensor(large)).logabsdet.item() == pytest.approx(40 * 300 * np.log(10))


def test_nothing_to_compute():
    none, empty = Tensor(np.zeros((2, 0, 0))), Tensor(np.zeros((0, 3, 3)))
    assert linalg.det(none).tolist() == [1, 1] and linalg.slogdet(none).logabsdet.tolist() == [0, 0]
    for f in (linalg.inv, linalg.cholesky):
        assert f(none).shape == (2, 0, 0) and f(empty).shape == (0, 3, 3)
    assert linalg.solve(none, Tensor(np.zeros((2, 0, 3)))).shape == (2, 0, 3)
    assert linalg.solve(Tensor(np.eye(3)), Tensor(np.zeros((3, 0)))).shape == (3, 0)
    assert [x.shape for x in linalg.lu(Tensor(np.zeros((0, 4))))] == [(0, 0), (0, 0), (0, 4)]


def test_singular_matrices_are_named():
    a = np.stack([np.eye(4), np.ones((4, 4)), np.eye(4)])
    for f, what in ((linalg.inv, "inv"), (lambda x: linalg.solve(x, Tensor(np.ones(4))), "solve")):
        with pytest.raises(LinAlgError, match=rf"{what}: singular: matrix \(1,\) of shape \(4, 4\), pivot 2"):
            f(Tensor(a))
        with pytest.raises(LinAlgError, match=f"{what}: singular"):
            trace(f)(Tensor(a))
    with pytest.raises(ValueError, match=r"cholesky: not positive definite: matrix of shape \(2, 2\), pivot 2"):
        linalg.cholesky(Tensor([[1.0, 2.0], [2.0, 1.0]]))


def test_only_one_triangle_is_read():
    s = positive((6, 6), "float64")
    nonsense = np.where(np.tri(6, k=-1, dtype=bool).T, np.nan, s)
    assert linalg.cholesky(Tensor(nonsense)).numpy().tobytes() == linalg.cholesky(Tensor(s)).numpy().tobytes()
    nonsense = np.where(np.tri(6, k=-1, dtype=bool), np.nan, s)
    x = linalg.solve_triangular(Tensor(nonsense), Tensor(np.ones(6)), upper=True).numpy()
    np.testing.assert_allclose(np.triu(s) @ x, np.ones(6), rtol=1e-12)


def test_numbers_at_the_ends_of_the_range():
    a = RNG.uniform(1, 2, (5, 5))
    for scale in (1e300, 1e-300):
        got = linalg.solve(Tensor(a * scale), Tensor(np.ones(5) * scale)).numpy()
        np.testing.assert_allclose(got, np.linalg.solve(a, np.ones(5)), rtol=1e-9)
        root = linalg.cholesky(Tensor((a @ a.T + np.eye(5)) * scale)).numpy()
        np.testing.assert_allclose(root / np.sqrt(scale), np.linalg.cholesky(a @ a.T + np.eye(5)), rtol=1e-12)
    a[2, 3] = np.nan
    assert np.isnan(linalg.inv(Tensor(a)).numpy()).all()
    for bad in (np.nan, np.inf):
        with pytest.raises(LinAlgError):
            linalg.cholesky(Tensor(np.full((3, 3), bad)))


def test_an_ill_conditioned_system_loses_as_many_digits_as_it_must():
    n = 50
    q = np.linalg.qr(RNG.normal(size=(n, n)))[0]
    a = (q * np.logspace(0, -6, n)) @ q.T
    x = RNG.normal(size=n)
    got = linalg.solve(Tensor(a.astype("float32")), Tensor((a.astype("float32").astype("float64") @ x).astype("float32")))
    assert np.abs(got.numpy() - x).max() < 1e6 * n * 2.0**-24


def gradient(f, x):
    y, pull = vjp(f, Tensor(x))
    return pull(Tensor(np.ones(y.shape)))[0].numpy()


@pytest.mark.parametrize("name", ["solve", "solve_b", "inv", "det", "slogdet", "cholesky", "matrix_power", "cho_solve"])
def test_gradients_against_differences_and_twice(name):
    a = RNG.uniform(-1, 1, (2, 4, 4)) / 2 + 2 * np.eye(4)
    b = Tensor(RNG.uniform(-1, 1, (2, 4, 3)))
    w = Tensor(RNG.uniform(-1, 1, (4, 4)))
    symmetric = lambda x: x @ x.transpose(0, 2, 1)
    f = {
        "solve": lambda x: linalg.solve(x, b), "solve_b": lambda x: linalg.solve(w + 3 * Tensor(np.eye(4)), x),
        "inv": linalg.inv, "det": linalg.det, "slogdet": lambda x: linalg.slogdet(x).logabsdet,
        "cholesky": lambda x: linalg.cholesky(symmetric(x)), "matrix_power": lambda x: linalg.matrix_power(x, -3),
        "cho_solve": lambda x: linalg.cho_solve(linalg.cholesky(symmetric(x)), b),
    }[name]  # fmt: skip
    once = lambda x: (f(x) ** 2).sum()
    twice = lambda x: (vjp(once, x)[1](Tensor(1.0, dtype="float64"))[0] * w).sum()
    for g in (once, twice):
        found, step = gradient(g, a), RNG.uniform(-1, 1, a.shape)
        h = 1e-5
        want = (g(Tensor(a + h * step)).item() - g(Tensor(a - h * step)).item()) / (2 * h)
        assert (found * step).sum() == pytest.approx(want, rel=2e-6)


def test_gradients_of_cholesky_are_symmetric():
    g = gradient(lambda x: linalg.cholesky(x).sum(), positive((4, 4), "float64"))
    np.testing.assert_array_equal(g, g.T)


def test_batches_traces_layouts_and_threads_change_no_bit():
    a, b = RNG.uniform(-1, 1, (3, 40, 40)), RNG.uniform(-1, 1, (3, 40, 5))
    s = positive((3, 40, 40), "float64")
    for f, xs in ((linalg.solve, (a, b)), (linalg.cholesky, (s,)), (linalg.inv, (a,)), (linalg.det, (a,))):
        want = f(*map(Tensor, xs)).numpy()
        each = np.stack([f(*(Tensor(x[i]) for x in xs)).numpy() for i in range(3)])
        assert want.tobytes() == each.tobytes()
        assert trace(f)(*map(Tensor, xs)).numpy().tobytes() == want.tobytes()
        assert vmap(f)(*map(Tensor, xs)).numpy().tobytes() == want.tobytes()
        flipped = [Tensor(np.ascontiguousarray(t(x))).transpose(0, 2, 1) for x in xs]
        assert f(*flipped).numpy().tobytes() == want.tobytes()
        before = config.threads
        try:
            set_threads(3)
            assert f(*map(Tensor, xs)).numpy().tobytes() == want.tobytes()
        finally:
            set_threads(before)


def test_what_is_no_matrix():
    with pytest.raises(ShapeError, match=r"inv: takes square matrices \(\.\.\., n, n\), got float64 of shape \(2, 3\)"):
        linalg.inv(Tensor(np.zeros((2, 3))))
    with pytest.raises(ShapeError, match=r"det: takes matrices .* got float64 of shape \(3,\)"):
        linalg.det(Tensor(np.zeros(3)))
    with pytest.raises(DTypeError, match="cholesky: takes floats or complex numbers, got int32"):
        linalg.cholesky(Tensor(np.eye(3, dtype="int32")))
    with pytest.raises(ShapeError, match="do not fit right sides"):
        linalg.solve(Tensor(np.eye(3)), Tensor(np.zeros((4, 2))))
    with pytest.raises(GradientError, match="not square"):
        vjp(lambda x: linalg.lu(x).U, Tensor(np.ones((2, 3))))[1](Tensor(np.ones((2, 3))))


def test_the_array_apis_names_are_here():
    names = (
        "cholesky cross det diagonal eigh eigvalsh inv matmul matrix_norm matrix_power matrix_rank matrix_transpose outer pinv qr slogdet "
        "solve svd svdvals tensordot trace vecdot vector_norm"
    )
    assert {*names.split()} <= {*linalg.__all__}


def test_factors_are_used_again():
    a, b = RNG.uniform(-1, 1, (5, 5)), RNG.uniform(-1, 1, (5, 2))
    factors = linalg.lu_factor(Tensor(a))
    assert linalg.lu_solve(factors, Tensor(b)).numpy().tobytes() == linalg.solve(Tensor(a), Tensor(b)).numpy().tobytes()
    np.testing.assert_allclose(a @ linalg.lu_solve(factors, Tensor(b[:, 0])).numpy(), b[:, 0], rtol=1e-10)
