"""Divergences of a distribution from one of another family, against PyTorch 2.13's in float64, and what they say where there is none."""

import itertools
import math

import numpy as np
import pytest

from tengen import Tensor
from tengen import distributions as D

INF = math.inf
PARAMETERS = {  # of each family two
    "Beta": ({"concentration1": 2.0, "concentration0": 3.5}, {"concentration1": 0.7, "concentration0": 1.3}),
    "ContinuousBernoulli": ({"probs": 0.2}, {"probs": 0.9}),
    "Exponential": ({"rate": 1.5}, {"rate": 0.4}),
    "Gamma": ({"concentration": 2.5, "rate": 1.5}, {"concentration": 0.8, "rate": 3.0}),
    "Gumbel": ({"loc": 0.5, "scale": 1.2}, {"loc": -0.3, "scale": 2.0}),
    "Laplace": ({"loc": 0.2, "scale": 0.8}, {"loc": -1.0, "scale": 1.5}),
    "Normal": ({"loc": 0.3, "scale": 0.9}, {"loc": -0.5, "scale": 2.0}),
    "Pareto": ({"scale": 0.7, "alpha": 3.5}, {"scale": 0.4, "alpha": 2.5}),
    "Uniform": ({"low": 0.1, "high": 0.9}, {"low": -0.5, "high": 2.0}),
    "Bernoulli": ({"probs": 0.3}, {"probs": 0.8}),
    "Poisson": ({"rate": 2.0}, {"rate": 0.5}),
    "Binomial": ({"total_count": 3, "probs": 0.3}, {"total_count": 3, "probs": 0.6}),
}
FOUND = {  # PyTorch's, of the first from the second, and of the second from the first
    "Bernoulli Poisson": (0.097079852, 0.945079832),
    "Beta ContinuousBernoulli": (0.79194606, 0.033444056),
    "Beta Exponential": (1.360435559, 0.282092254),
    "Beta Gamma": (0.425107458, 2.422789296),
    "Beta Normal": (2.008459562, 1.024489289),
    "Beta Uniform": (1.214981014, INF),
    "ContinuousBernoulli ContinuousBernoulli": (0.516106678, 0.493966186),
    "ContinuousBernoulli Exponential": (1.14791086, 0.778986588),
    "ContinuousBernoulli Normal": (1.796558541, 1.11871553),
    "ContinuousBernoulli Uniform": (0.992705185, INF),
    "Exponential Gamma": (0.482098801, 0.596116768),
    "Exponential Gumbel": (1.227476604, 0.42466402),
    "Exponential Normal": (1.243245266, 5.742966298),
    "Gamma Exponential": (0.258474597, 0.334089216),
    "Gamma Gumbel": (0.771282385, 1.574217012),
    "Gamma Normal": (1.013297357, 1.208687897),
    "Gumbel Normal": (0.50677335, 2.794530213),
    "Laplace Normal": (0.363332085, 2.535953383),
    "Normal Gumbel": (0.499323969, 6.464716862),
    "Normal Laplace": (0.69156949, 0.47357329),
    "Pareto Exponential": (1.632014359, 1.027116356),
    "Pareto Gamma": (2.522701343, 1.478037662),
    "Pareto Normal": (2.232476007, 1.548628617),
    "Pareto Pareto": (1.449797421, INF),
    "Uniform Beta": (0.375835988, INF),
    "Uniform ContinuousBernoulli": (0.416777796, INF),
    "Uniform Exponential": (1.339434283, INF),
    "Uniform Gamma": (0.83017191, INF),
    "Uniform Gumbel": (1.991088524, 0.441310283),
    "Uniform Normal": (1.966895932, 0.343789343),
}
INFINITE = {  # q: every p
    "Pareto": "Beta ContinuousBernoulli Exponential Gamma Gumbel Laplace Normal Uniform",
    "Beta": "Exponential Gamma Gumbel Laplace Normal Pareto",
    "ContinuousBernoulli": "Exponential Gamma Gumbel Laplace Normal Pareto",
    "Uniform": "Exponential Gamma Gumbel Laplace Normal Pareto",
    "Exponential": "Gumbel Laplace Normal",
    "Gamma": "Gumbel Laplace Normal",
    "Bernoulli": "Poisson",
    "Binomial": "Poisson",
}


def _two(pair, first):
    names = pair.split()
    every = [{k: Tensor(v, dtype="float64") for k, v in PARAMETERS[n][i].items()} for n, i in zip(names, (first, 1 - first))]
    return [getattr(D, n)(**given) for n, given in zip(names, every)]


@pytest.mark.parametrize("pair", FOUND)
def test_a_divergence_is_pytorchs(pair):
    found = [D.kl_divergence(*_two(pair, first)).item() for first in (0, 1)]
    np.testing.assert_allclose(found, FOUND[pair], rtol=1e-6, atol=1e-8)


def test_where_q_allows_less_it_is_infinite():
    for q, every in INFINITE.items():
        for p in every.split():
            assert D.kl_divergence(*_two(f"{p} {q}", 0)).item() == INF, (p, q)
    wide = D.Normal(Tensor(np.zeros((3, 1))), 1.0)
    assert D.kl_divergence(wide, D.Exponential(Tensor(np.ones(2)))).shape == (3, 2)


def test_gradients_of_what_is_infinite_are_none():
    low = Tensor([-1.0, 0.5]).requires_grad_()
    high = Tensor([-0.5, 0.9]).requires_grad_()
    for q in (D.Gamma(2.0, 1.0), D.Beta(2.0, 3.0), D.Pareto(0.4, 2.0), D.Exponential(1.0)):
        found = D.kl_divergence(D.Uniform(low, high), q)
        assert found[0].item() == INF
        found[1].backward()
        assert np.isfinite(low.grad.numpy()).all() and np.isfinite(high.grad.numpy()).all() and low.grad[0].item() == 0.0


def test_a_divergence_is_the_mean_over_samples():
    p, q = D.Uniform(Tensor(0.25), Tensor(0.75)), D.Beta(Tensor(2.0), Tensor(3.0))
    x = Tensor(np.linspace(0.25, 0.75, 20001)[:-1] + 0.0000125)
    np.testing.assert_allclose(D.kl_divergence(p, q).item(), (p.log_prob(x) - q.log_prob(x)).mean().item(), rtol=1e-4)


def test_vectors_and_what_transforms_made():
    rng = np.random.RandomState(0)
    loc, factor, diag = (Tensor(rng.uniform(0.5, 1.5, s)) for s in ((2, 3), (3, 2), (3,)))
    low = D.LowRankMultivariateNormal(loc[0], factor, diag)
    full = D.MultivariateNormal(loc[1], covariance_matrix=Tensor(np.diag([1.0, 2.0, 0.5])))
    whole = lambda d: (d.mean.numpy(), d.covariance_matrix.numpy())
    for p, q in itertools.product((low, full), repeat=2):
        (m, s), (n, t) = whole(p), whole(q)
        inverse = np.linalg.inv(t)
        want = 0.5 * (np.trace(inverse @ s) + (n - m) @ inverse @ (n - m) - 3 + np.log(np.linalg.det(t) / np.linalg.det(s)))
        np.testing.assert_allclose(D.kl_divergence(p, q).item(), want, rtol=1e-6, atol=1e-9)
    made = lambda loc, *more: D.TransformedDistribution(D.Normal(Tensor([loc, 0.0]), 1.0), [D.AffineTransform(1.0, Tensor([2.0, 3.0])), *more])
    assert D.kl_divergence(made(0.0, D.ExpTransform()), made(1.0, D.ExpTransform())).tolist() == [0.5, 0.0]
    for other in (made(1.0), made(1.0, D.TanhTransform())):
        with pytest.raises(NotImplementedError, match="by other transforms"):
            D.kl_divergence(made(0.0, D.ExpTransform()), other)
