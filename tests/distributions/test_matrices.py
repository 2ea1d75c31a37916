"""Distributions of matrices, normal ones of a low rank, numbers between 0 and 1, and transforms of vectors: densities beside SciPy's,
definitions and mpmath, gradients beside finite differences, samples beside moments, edges."""

import math

import numpy as np
import pytest
from each import each

import tengen.distributions as D
import tengen.functional as F
from tengen import Tensor, random, trace
from tengen.autodiff import grad, jacobian
from tengen.base.errors import ArgumentError, ShapeError

scipy = pytest.importorskip("scipy", reason="scipy is not installed")  # which loads its parts when they are used
mp = pytest.importorskip("mpmath")
N = 20000


def rng():
    return np.random.default_rng(0)


def close(got, want, tol=1e-10):
    np.testing.assert_allclose(got.numpy() if isinstance(got, Tensor) else got, want, rtol=tol, atol=tol)


def test_a_normal_distribution_of_low_rank():
    r = rng()
    loc, factor, diag, x = r.normal(size=(3, 1, 4)), r.normal(size=(2, 4, 2)), r.uniform(0.5, 2, (2, 4)), r.normal(size=(3, 2, 4))
    d = D.LowRankMultivariateNormal(Tensor(loc), Tensor(factor), Tensor(diag))
    covariance = factor @ factor.transpose(0, 2, 1) + np.stack([np.diag(v) for v in diag])
    assert (d.batch_shape, d.event_shape, d.rsample((5,)).shape) == ((3, 2), (4,), (5, 3, 2, 4))
    for i, j in np.ndindex(3, 2):
        one = scipy.stats.multivariate_normal(loc[i, 0], covariance[j])
        close(d.log_prob(Tensor(x))[i, j].item(), one.logpdf(x[i, j]))
        close(d.entropy()[i, j].item(), one.entropy())
    close(d.covariance_matrix[0], covariance)
    close(d.precision_matrix[0], np.linalg.inv(covariance))
    close(d.scale_tril[0], np.linalg.cholesky(covariance))
    close(d.variance[0], np.diagonal(covariance, 0, -2, -1))
    random.seed(3)
    drawn = d.sample((N,)).numpy()[:, 0, 0]
    assert np.abs(np.cov(drawn.T) - covariance[0]).max() < 8 * covariance[0].max() / math.sqrt(N)
    with pytest.raises(ShapeError, match=r"cov_factor \(\.\.\., D, R\)"):
        D.LowRankMultivariateNormal(F.zeros(3), F.ones((2, 1)), F.ones(3))
    with pytest.raises(ValueError, match="cov_diag must be positive"):
        D.LowRankMultivariateNormal(F.zeros(2), F.ones((2, 1)), -F.ones(2))


def test_wishart():
    r = rng()
    a = r.normal(size=(2, 3, 3))
    s, df = a @ a.transpose(0, 2, 1) + np.eye(3), np.array([3.5, 6.0])
    for given, matrix in (("covariance_matrix", s), ("precision_matrix", np.linalg.inv(s)), ("scale_tril", np.linalg.cholesky(s))):
        d = D.Wishart(Tensor(df), **{given: Tensor(matrix)})
        for i in range(2):
            one = scipy.stats.wishart(df[i], s[i])
            close(d.log_prob(Tensor(s[::-1] * 2))[i].item(), one.logpdf(s[1 - i] * 2))
            close(d.entropy()[i].item(), one.entropy())
            close(d.mean[i], one.mean())
            close(d.variance[i], one.var())
    assert d.log_prob(Tensor(-np.eye(3))).tolist() == [-math.inf] * 2 and np.isnan(d.log_prob(Tensor(np.full((3, 3), np.nan))).numpy()).all()
    assert d.log_prob(Tensor(np.eye(3) + np.eye(3, k=1))).tolist() == [-math.inf] * 2  # not symmetric
    random.seed(3)
    drawn = d.sample((N,)).numpy()
    assert (np.abs(drawn.mean(0) - d.mean.numpy()) < 5 * np.sqrt(d.variance.numpy() / N)).all()
    assert np.linalg.eigvalsh(drawn[:100]).min() > 0 and D.Wishart(3.0, F.eye(2)).sample((2, 4)).shape == (2, 4, 2, 2)
    for call, error, words in (
        (lambda: D.Wishart(3.0), ArgumentError, "one of covariance_matrix"), (lambda: D.Wishart(3.0, F.ones((2, 3))), ShapeError, "square"),
        (lambda: D.Wishart(1.0, F.eye(2)), ValueError, "df must be greater than 1"),
        (lambda: D.Wishart(3.0, F.eye(2)).rsample(), NotImplementedError, "reparameterised"),
    ):  # fmt: skip
        with pytest.raises(error, match=words):
            call()


def test_factors_of_correlation_matrices():
    """The density integrates to 1, and a correlation of a sample is a Beta number on (-1, 1) of which the papers know the variance. (Samples of
    PyTorch 2.13 from 3 x 3 on have another: the shape of its Beta numbers is off.)"""
    for c in (0.7, 1.0, 3.0):
        rho = np.tanh(np.linspace(-12, 12, 4001))
        low = np.zeros((4001, 2, 2))
        low[:, 0, 0], low[:, 1, 0], low[:, 1, 1] = 1, rho, 1 / np.cosh(np.linspace(-12, 12, 4001))
        # the last row is (sin, cos) of an angle whose measure is d rho / cos
        density = np.exp(D.LKJCholesky(2, Tensor(np.float64(c))).log_prob(Tensor(low)).numpy())
        close(np.trapezoid(density, rho), 1.0, 1e-4)
    random.seed(3)
    c = np.array([0.6, 2.0])
    for n in (2, 3, 5):
        d = D.LKJCholesky(n, Tensor(c))
        drawn = d.sample((N,)).numpy()
        of_pairs = (drawn @ np.swapaxes(drawn, -1, -2))[..., *np.tril_indices(n, -1)]
        close(of_pairs.var(0), np.broadcast_to((1 / (2 * (c - 1 + n / 2) + 1))[:, None], (2, n * (n - 1) // 2)), 0.02)
        close((drawn**2).sum(-1), np.ones(drawn.shape[:-1]), 1e-12)
        assert np.isfinite(d.log_prob(Tensor(drawn)).numpy()).all()
        upper = np.eye(n) + np.eye(n, k=1) * 0.1
        assert d.log_prob(Tensor(upper)).tolist() == d.log_prob(Tensor(2 * np.eye(n))).tolist() == [-math.inf] * 2
        # of matrices near the identity every entry below the diagonal counts alike: the ratio to one with known determinant
        low = np.linalg.cholesky(np.full((n, n), 0.3) + 0.7 * np.eye(n))
        ratio = (np.log(np.diagonal(low))[1:] * (2 * (c[:, None] - 1) + n - np.arange(2, n + 1))).sum(-1)
        close(d.log_prob(Tensor(low)) - d.log_prob(Tensor(np.eye(n))), ratio)
    with pytest.raises(ValueError, match="dim=1 must be at least 2"):
        D.LKJCholesky(1)


LOGITS = (-700.0, -1.5, -1.01, -0.99, -0.3, 1e-8, 0.0, 0.5, 0.999, 1.001, 30.0, 700.0)


@each("logit", LOGITS)
def test_continuous_bernoulli_beside_mpmath(logit):
    d, x = D.ContinuousBernoulli(logits=Tensor(np.float64(logit))), Tensor(np.float64(0.3))
    with mp.workdps(40):
        n, at = mp.mpf(logit), mp.mpf(0.3)
        flat = n == 0
        mean = mp.mpf(1) / 2 if flat else 1 / (1 - mp.exp(-n)) - 1 / n
        variance = mp.mpf(1) / 12 if flat else 1 / n**2 - 1 / (4 * mp.sinh(n / 2) ** 2)
        density = mp.mpf(0) if flat else n * at + mp.log(n / mp.expm1(n))
        below = at if flat else mp.expm1(n * at) / mp.expm1(n)
        entropy = mp.mpf(0) if flat else -n * mean - mp.log(n / mp.expm1(n))
        wanted = [float(v) for v in (mean, variance, density, below, entropy)]
    found = [v.item() for v in (d.mean, d.variance, d.log_prob(x), d.cdf(x), d.entropy())]
    np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-13)
    p = np.linspace(0.05, 0.95, 7)
    close(d.cdf(d.icdf(Tensor(p))), p, 1e-12)
    for f in (lambda c: c.mean, lambda c: c.entropy(), lambda c: c.log_prob(x), lambda c: c.cdf(x), lambda c: c.icdf(x)):
        slope = grad(lambda v, f=f: f(D.ContinuousBernoulli(logits=v)))(Tensor(np.float64(logit))).item()
        ends = [f(D.ContinuousBernoulli(logits=Tensor(np.float64(logit + e)))).item() for e in (1e-4, -1e-4)]
        np.testing.assert_allclose(slope, (ends[0] - ends[1]) / 2e-4, rtol=1e-5, atol=1e-8)


def test_continuous_bernoulli_edges_and_samples():
    d = D.ContinuousBernoulli(probs=Tensor([0.2, 0.9]))
    assert d.log_prob(Tensor([-0.1, 1.1])).tolist() == [-math.inf] * 2 and np.isnan(d.log_prob(Tensor([np.nan, 0.5])).numpy()[0])
    assert d.cdf(Tensor([-1.0, 2.0])).tolist() == [0.0, 1.0] and np.isfinite(d.log_prob(Tensor([0.0, 1.0])).numpy()).all()
    assert np.isfinite(D.ContinuousBernoulli(probs=Tensor([0.0, 1.0])).log_prob(Tensor([0.5, 0.5])).numpy()).all()
    random.seed(3)
    drawn = d.rsample((N,)).numpy()
    close(drawn.mean(0), d.mean.numpy(), 0.01)
    close(drawn.var(0), d.variance.numpy(), 0.01)
    with pytest.raises(ValueError, match="either probs or logits"):
        D.ContinuousBernoulli()


def check(t, x, own):
    """Inverse and determinant of a transform of one vector; `own` takes a square part of its result."""
    y = t(Tensor(x))
    close(t.inv(y), x, 1e-9)
    slopes = jacobian(lambda v: own(t(v)))(Tensor(x)).numpy()
    found = t.log_abs_det_jacobian(Tensor(x), y)
    close(found.sum().item(), np.linalg.slogdet(slopes)[1])


def test_transforms_of_vectors():
    x = rng().normal(size=4) * 2
    check(D.StickBreakingTransform(), x, lambda y: y[:-1])
    y = D.StickBreakingTransform()(Tensor(np.r_[x, -400.0, 400.0])).numpy()
    assert y.shape == (7,) and abs(y.sum() - 1) < 1e-12 and np.isfinite(D.StickBreakingTransform().inv(Tensor(y)).numpy()).all()
    d = D.TransformedDistribution(D.Normal(Tensor(np.zeros((3, 4))), 1.0), D.StickBreakingTransform())
    assert (d.batch_shape, d.event_shape, d.sample((2,)).shape) == ((3,), (5,), (2, 3, 5))
    y = d.sample()
    base = D.Normal(0.0, 1.0).log_prob(d.transforms[0].inv(y)).sum(-1)
    close(d.log_prob(y), (base - d.transforms[0].log_abs_det_jacobian(d.transforms[0].inv(y), y)).numpy())
    assert d.log_prob(Tensor(np.full((3, 5), 0.3))).tolist() == [-math.inf] * 3
    back = D.TransformedDistribution(D.Dirichlet(Tensor(np.ones((2, 4)))), D.StickBreakingTransform().inv)
    assert back.event_shape == (3,) and np.isfinite(back.log_prob(back.sample()).numpy()).all()


def test_transforms_side_by_side():
    x = np.abs(rng().normal(size=4)) + 0.1
    parts = [D.ExpTransform(), D.AffineTransform(1.0, -2.0), D.SigmoidTransform()]
    check(D.CatTransform(parts, lengths=[1, 2, 1]), x, lambda y: y)
    check(D.StackTransform([*parts, D.PowerTransform(2.0)]), x, lambda y: y)
    for axis in (0, 1, -1):
        table, along = np.abs(rng().normal(size=(4, 4))) + 0.1, axis % 2
        four = [*parts, D.ExpTransform()]
        for t, order in ((D.CatTransform(parts, axis, [1, 2, 1]), [0, 1, 1, 2]), (D.StackTransform(four, axis), [0, 1, 2, 0])):
            each_part = [parts[k](Tensor(np.moveaxis(table, along, 0)[i])).numpy() for i, k in enumerate(order)]
            want = np.stack(each_part, along)
            close(t(Tensor(table)), want)
            traced = trace(lambda v, t=t: t.log_abs_det_jacobian(v, t(v)))
            close(traced(Tensor(table)), t.log_abs_det_jacobian(Tensor(table), Tensor(want)).numpy())
            d = D.TransformedDistribution(D.Normal(Tensor(np.zeros((4, 4))), 1.0), t)
            outside = np.moveaxis(d.log_prob(Tensor(want - 100.0)).numpy(), along, 0)
            assert [np.isinf(v).all() for v in outside] == [k != 1 for k in order]
    rows = D.CatTransform([D.AffineTransform(0.0, 2.0, event_dim=1)] * 2)
    assert rows.event_dim == 1 and rows.log_abs_det_jacobian(F.ones((2, 3)), F.ones((2, 3))).shape == (2,)
    for call, error, words in (
        (lambda: D.CatTransform([F.exp]), ArgumentError, "is no Transform"),
        (lambda: D.CatTransform(parts, 0, [1]), ArgumentError, "1 lengths"),
        (lambda: D.StackTransform(parts)(F.ones(4)), ShapeError, "must have the extent 3"),
    ):  # fmt: skip
        with pytest.raises(error, match=words):
            call()


def test_in_pytorchs_dialect():
    """There `x.max(axis)` and the like mean something else, or are refused."""
    from tengen.pytorch import distributions as P

    low = P.LowRankMultivariateNormal(F.zeros(2), F.ones((2, 1)), F.ones(2))
    for d in (P.Wishart(3.0, F.eye(2)), P.LKJCholesky(3), low, P.ContinuousBernoulli(0.3)):
        assert np.isfinite(d.log_prob(d.sample((4,))).numpy()).all()
    assert P.constraints.positive_definite.check(F.eye(3)).item() and not P.constraints.corr_cholesky.check(2 * F.eye(3)).item()


def t(*values):
    return Tensor(np.array(values))


EXPANDED = {  # each with two copies
    "normal": lambda: D.Normal(t(0.3, -0.5), t(1.0, 2.0)), "categorical": lambda: D.Categorical(probs=t([0.2, 0.8], [0.5, 0.5])),
    "multinomial": lambda: D.Multinomial(3, probs=t([0.2, 0.8], [0.5, 0.5])), "bernoulli": lambda: D.Bernoulli(logits=t(0.3, 0.6)),
    "multivariate": lambda: D.MultivariateNormal(t([0.0, 1.0], [1.0, 2.0]), covariance_matrix=Tensor(np.eye(2))),
    "low rank": lambda: D.LowRankMultivariateNormal(t([0.0, 1.0], [1.0, 2.0]), Tensor(np.ones((2, 1))), t(1.0, 2.0)),
    "wishart": lambda: D.Wishart(t(3.0, 4.0), Tensor(np.eye(2))), "lkj": lambda: D.LKJCholesky(3, t(1.0, 2.0)),
    "independent": lambda: D.Independent(D.Normal(Tensor(np.zeros((2, 3))), 1.0), 1),
    "dirichlet": lambda: D.Dirichlet(t([1.0, 2.0], [3.0, 4.0])),
    "mixture": lambda: D.MixtureSameFamily(D.Categorical(probs=t([0.2, 0.8], [0.5, 0.5])), D.Normal(t([0.0, 1.0], [2.0, 3.0]), 1.0)),
    "transformed": lambda: D.TransformedDistribution(D.Normal(Tensor(0.0), 1.0), [D.AffineTransform(t(1.0, 2.0), 2.0)]),
    "simplex": lambda: D.TransformedDistribution(D.Normal(Tensor(np.zeros((2, 3))), 1.0), [D.StickBreakingTransform()]),
    "relaxed": lambda: D.RelaxedOneHotCategorical(Tensor(0.5), probs=t([0.2, 0.8], [0.5, 0.5])),
}  # fmt: skip


@each("name", EXPANDED)
def test_expanded_distributions(name):
    d = EXPANDED[name]()
    e = d.expand((3, 2))
    drawn = e.sample((4,))
    assert d.batch_shape == (2,) and e.batch_shape == (3, 2) and drawn.shape == (4, 3, 2, *d.event_shape)
    assert name in ("categorical", "multinomial", "bernoulli") or len(np.unique(drawn.numpy().reshape(24, -1)[:, -1])) == 24
    close(e.log_prob(drawn), d.log_prob(drawn).numpy())
    with pytest.raises(ShapeError, match=r"batch_shape \(2,\) does not broadcast"):
        d.expand((3,))


def test_a_shared_temperature_is_not_expanded():
    d = D.RelaxedOneHotCategorical(Tensor(0.5), probs=t(0.2, 0.3, 0.5))
    drawn = d.expand((5,)).rsample((4,))
    assert drawn.shape == (4, 5, 3)
    close(d.expand((5,)).log_prob(drawn), d.log_prob(drawn).numpy(), 1e-6)
