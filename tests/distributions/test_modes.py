"""Modes of distributions, against the largest density on a grid, and the values of those that have finitely many."""

import numpy as np
import pytest

import tengen.distributions as D
from tengen import Tensor

GRID = np.linspace(-3.0, 12.0, 15001)  # 0.001 apart, with whole numbers
T = lambda *v: Tensor(list(v), dtype="float64")
MAKE = {
    "Normal": lambda: D.Normal(T(0.5, 2.0), T(1.0, 0.3)), "LogNormal": lambda: D.LogNormal(T(0.5, 0.0), T(0.5, 1.0)),
    "Laplace": lambda: D.Laplace(T(1.5), T(2.0)), "Cauchy": lambda: D.Cauchy(T(-1.0), T(2.0)), "Gumbel": lambda: D.Gumbel(T(2.0), T(0.7)),
    "HalfNormal": lambda: D.HalfNormal(T(2.0)), "Exponential": lambda: D.Exponential(T(2.0)),
    "Gamma": lambda: D.Gamma(T(3.0, 2.5), T(0.5, 2.0)),
    "Chi2": lambda: D.Chi2(T(5.0)), "StudentT": lambda: D.StudentT(T(3.0), T(1.0), T(2.0)), "Pareto": lambda: D.Pareto(T(1.5), T(2.0)),
    "HalfCauchy": lambda: D.HalfCauchy(T(1.5)), "InverseGamma": lambda: D.InverseGamma(T(2.0), T(3.0)),
    "Beta": lambda: D.Beta(T(2.0, 1.0, 3.0, 0.5, 1.0), T(3.0, 2.0, 1.0, 1.0, 0.5)), "VonMises": lambda: D.VonMises(T(0.5), T(2.0)),
    "Kumaraswamy": lambda: D.Kumaraswamy(T(2.0, 1.0, 3.0, 0.5, 1.0), T(3.0, 2.0, 1.0, 2.0, 0.5)),
    "FisherSnedecor": lambda: D.FisherSnedecor(T(4.0, 6.0, 2.0, 1.0), T(5.0, 1.0, 3.0, 3.0)),
    "Weibull": lambda: D.Weibull(T(2.0, 1.5, 3.0), T(2.0, 1.0, 0.5)),
}  # fmt: skip
WHOLE = {
    "Bernoulli": lambda: D.Bernoulli(T(0.2, 0.7)), "Geometric": lambda: D.Geometric(T(0.3)), "Poisson": lambda: D.Poisson(T(2.5, 0.4)),
    "Binomial": lambda: D.Binomial(T(5.0, 5.0, 5.0), T(0.45, 0.1, 1.0)),
    "NegativeBinomial": lambda: D.NegativeBinomial(T(3.0, 0.5, 5.0), T(0.4, 0.4, 0.55)),
    "Categorical": lambda: D.Categorical(Tensor([[0.1, 0.7, 0.2], [0.5, 0.1, 0.4]])),
}  # fmt: skip


@pytest.mark.parametrize("name", [*MAKE, *WHOLE])
def test_the_density_is_the_largest(name):
    d = MAKE[name]() if name in MAKE else WHOLE[name]()
    grid = GRID if name in MAKE else np.arange(13.0)
    dense = d.log_prob(Tensor(grid[:, None])).numpy()
    np.testing.assert_allclose(d.mode.numpy(), grid[np.nanargmax(np.where(np.isnan(dense), -np.inf, dense), axis=0)], atol=6e-4)


def test_modes_of_vectors():
    p = Tensor([[0.1, 0.7, 0.2], [0.5, 0.1, 0.4]])
    assert D.OneHotCategorical(p).mode.tolist() == [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]]
    assert D.MultivariateNormal(T(1.0, 2.0), Tensor(np.eye(2))).mode.tolist() == [1.0, 2.0]
    assert D.Independent(D.Normal(T(1.0, 2.0), T(1.0, 1.0)), 1).mode.tolist() == [1.0, 2.0]
    assert np.isnan(D.Bernoulli(T(0.5)).mode.numpy()).all()
    with pytest.raises(NotImplementedError, match="ContinuousBernoulli has no mode"):
        _ = D.ContinuousBernoulli(0.3).mode
    # PyTorch's, which are those of the formulas
    low_rank = D.LowRankMultivariateNormal(T(1.0, 2.0), Tensor(np.ones((2, 1))), T(1.0, 1.0))
    assert low_rank.mode.tolist() == [1.0, 2.0] and D.Dirichlet(T(2.0, 0.5, 4.0)).mode.tolist() == [0.25, 0.0, 0.75]
    wishart = D.Wishart(T(4.5, 2.5), Tensor(np.array([[2.0, 0.5], [0.5, 1.0]]))).mode.numpy()
    np.testing.assert_allclose(wishart[0], [[3.0, 0.75], [0.75, 1.5]])
    assert np.isnan(wishart[1]).all() and np.isnan(D.Dirichlet(T(1.0, 0.5)).mode.numpy()).all()


def test_where_several_values_are_as_likely():
    one = T(1.0, 0.5)
    for d in (D.Uniform(T(0.0, 1.0), 2.0), D.Beta(one, one), D.Kumaraswamy(one, one)):
        assert np.isnan(d.mode.numpy()).all()


@pytest.mark.parametrize("name", ["Bernoulli", "Binomial", "Categorical", "OneHotCategorical"])
def test_all_values_have_all_of_the_probability(name):
    d = D.OneHotCategorical(Tensor([[0.1, 0.7, 0.2], [0.5, 0.1, 0.4]])) if name == "OneHotCategorical" else WHOLE[name]()
    values, once = d.enumerate_support(), d.enumerate_support(expand=False)
    assert values.shape[1:] == (*d.batch_shape, *d.event_shape) and once.shape[1:] == (*(1,) * len(d.batch_shape), *d.event_shape)
    np.testing.assert_allclose(d.prob(values).numpy().sum(0), np.ones(d.batch_shape), rtol=1e-6)
    np.testing.assert_array_equal(d.prob(once).numpy(), d.prob(values).numpy())
    assert len(np.unique(once.numpy(), axis=0)) == len(once)
    if "Categorical" in name:
        assert d.param_shape == (2, 3)


def test_what_cannot_be_enumerated_says_so():
    with pytest.raises(NotImplementedError, match="Normal has no finite number of values"):
        D.Normal(0.0, 1.0).enumerate_support()
    with pytest.raises(NotImplementedError, match=r"several numbers of trials, \[2.0, 3.0\]"):
        D.Binomial(T(2.0, 3.0), 0.5).enumerate_support()
