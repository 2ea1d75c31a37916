"""Distributions of counts of failures and of many outcomes, of angles, and relaxed ones: densities against their definitions, samples against
moments and densities against samples."""

import numpy as np
import pytest

from tengen import Tensor, random
from tengen import distributions as D
from tengen import functional as F
from tengen.autodiff import GradManager
from tengen.functional import bessel

scipy = pytest.importorskip("scipy", reason="scipy is not installed")  # which loads its parts when they are used
RNG = np.random.default_rng(0)
N = 20000


def test_negative_binomial():
    p, n = np.array([0.3, 0.7]), np.array([2.5, 4.0])
    d = D.NegativeBinomial(Tensor(n), probs=Tensor(p))
    x = np.array([[3.0, 0.0], [7.0, 2.0]])
    np.testing.assert_allclose(d.log_prob(Tensor(x)).numpy(), scipy.stats.nbinom.logpmf(x, n, 1 - p), rtol=1e-12)
    np.testing.assert_allclose(d.mean.numpy(), scipy.stats.nbinom.mean(n, 1 - p), rtol=1e-12)
    np.testing.assert_allclose(d.variance.numpy(), scipy.stats.nbinom.var(n, 1 - p), rtol=1e-12)
    assert d.log_prob(Tensor([-1.0, 0.5])).tolist() == [-np.inf, -np.inf]
    never = D.NegativeBinomial(0.0, probs=0.4)
    assert never.log_prob(Tensor([0.0, 1.0])).tolist() == [0.0, -np.inf] and not never.sample((50,)).numpy().any()
    random.seed(3)
    drawn = d.sample((N,)).numpy()
    np.testing.assert_allclose(drawn.mean(0), d.mean.numpy(), atol=5 * np.sqrt(d.variance.numpy().max() / N))
    np.testing.assert_allclose(D.NegativeBinomial(3.0, logits=0.4).probs.item(), 1 / (1 + np.exp(-0.4)), rtol=1e-6)


def test_multinomial():
    p = np.array([0.2, 0.3, 0.5])
    d = D.Multinomial(5, probs=Tensor(p))
    x = np.array([[1.0, 1.0, 3.0], [5.0, 0.0, 0.0], [0.0, 2.0, 3.0]])
    np.testing.assert_allclose(d.log_prob(Tensor(x)).numpy(), scipy.stats.multinomial.logpmf(x, 5, p), rtol=1e-12)
    assert d.log_prob(Tensor([[1.0, 1.0, 2.0], [2.5, 0.5, 2.0], [6.0, -1.0, 0.0]])).tolist() == [-np.inf] * 3
    random.seed(3)
    drawn = d.sample((N,)).numpy()
    assert (drawn.sum(-1) == 5).all() and drawn.shape == (N, 3) and D.Multinomial(0, probs=Tensor(p)).sample().tolist() == [0.0] * 3
    np.testing.assert_allclose(drawn.mean(0), 5 * p, atol=0.05)
    np.testing.assert_allclose(drawn.var(0), d.variance.numpy(), atol=0.06)
    for count, error in ((-1, ValueError), (1.5, TypeError)):
        with pytest.raises(error):
            D.Multinomial(count, probs=Tensor(p))


def test_von_mises():
    loc, k = np.array([0.0, 1.0, -3.0]), np.array([0.5, 3.0, 400.0])
    d = D.VonMises(Tensor(loc), Tensor(k))
    x = RNG.uniform(-np.pi, np.pi, (7, 3))
    np.testing.assert_allclose(d.log_prob(Tensor(x)).numpy(), scipy.stats.vonmises.logpdf(x, k, loc), rtol=1e-10)
    random.seed(3)
    drawn = d.sample((N,)).numpy()
    assert (np.abs(drawn) <= np.pi).all()
    for i in range(3):
        assert scipy.stats.kstest((drawn[:, i] - loc[i] + np.pi) % (2 * np.pi) - np.pi, scipy.stats.vonmises(k[i]).cdf).pvalue > 1e-3
    np.testing.assert_allclose(1 - np.cos(drawn - loc).mean(0), d.variance.numpy(), atol=0.02)
    tiny = D.VonMises(Tensor(np.zeros(1)), Tensor(np.full(1, 1e-7))).sample((N,)).numpy()
    assert abs(np.cos(tiny).mean()) < 0.03
    x = np.array([0.0, 0.5, 29.9, 30.1, 500.0])
    np.testing.assert_allclose(bessel.i1e(Tensor(x)).numpy(), scipy.special.i1e(x), rtol=1e-13)


def test_relaxed_ones():
    t, p = 0.7, np.array([0.3, 0.8])
    d = D.RelaxedBernoulli(Tensor(np.array(t)), probs=Tensor(p))
    random.seed(3)
    drawn = d.rsample((N,)).numpy()
    np.testing.assert_allclose((drawn > 0.5).mean(0), p, atol=0.02)
    for i in range(2):
        edges = np.linspace(1e-6, 1 - 1e-6, 20001)
        density = np.exp(d.log_prob(Tensor(np.stack([edges, edges], -1))).numpy()[:, i])
        cdf = np.concatenate([[0.0], np.cumsum((density[1:] + density[:-1]) / 2 * np.diff(edges))])
        assert scipy.stats.kstest(drawn[:, i], lambda v, e=edges, c=cdf: np.interp(v, e, c)).statistic < 0.02
    one = D.RelaxedOneHotCategorical(Tensor(np.array(t)), probs=Tensor(np.array([0.4, 0.6])))
    x = np.linspace(0.05, 0.95, 7)
    two = D.RelaxedBernoulli(Tensor(np.array(t)), probs=Tensor(np.array(0.4)))  # the same numbers, one of them written down
    np.testing.assert_allclose(one.log_prob(Tensor(np.stack([x, 1 - x], -1))).numpy(), two.log_prob(Tensor(x)).numpy(), rtol=1e-10)
    drawn = D.RelaxedOneHotCategorical(Tensor(np.array(0.2)), probs=Tensor(np.array([0.2, 0.3, 0.5]))).rsample((N,)).numpy()
    np.testing.assert_allclose(drawn.sum(-1), 1, rtol=1e-12)
    np.testing.assert_allclose((drawn.argmax(-1)[:, None] == np.arange(3)).mean(0), [0.2, 0.3, 0.5], atol=0.02)
    assert one.log_prob(Tensor([0.5, 0.6])).item() == -np.inf


def test_gradients_through_samples():
    logits = Tensor(np.array([0.2, 0.5]))
    for d, back in (
        (lambda x: D.RelaxedBernoulli(0.5, logits=x), True), (lambda x: D.RelaxedOneHotCategorical(0.5, logits=x), True),
        (lambda x: D.OneHotCategoricalStraightThrough(logits=x), True),
    ):  # fmt: skip
        gm = GradManager().attach([logits])
        with gm:
            gm.backward((d(logits).rsample() * Tensor(np.array([1.0, 3.0]))).sum())
        assert np.isfinite(logits.grad.numpy()).all() and logits.grad.numpy().any() == back
        logits.grad = None
    hard = D.OneHotCategoricalStraightThrough(probs=F.ones(3) / 3).rsample((20,)).numpy()
    assert np.allclose(np.sort(hard, -1), [0, 0, 1], atol=1e-6)


def test_parameters_that_are_not_looked_at():
    with pytest.raises(ValueError, match="scale must be positive"):
        D.Normal(0.0, -1.0)
    assert D.Normal(0.0, -1.0, validate_args=False).scale.item() == -1.0 and D.Normal(0.0, 1.0, validate_args=True).mean.item() == 0.0
    with pytest.raises(TypeError, match="validate_args='no' must be True or False"):
        D.Normal(0.0, 1.0, validate_args="no")
