"""Distributions of vectors, and those made of others, beside PyTorch; their samples beside their moments."""

import numpy as np
import pytest

import tengen.distributions as D
from tengen import Tensor, autodiff, random, trace
from tengen.base.errors import ArgumentError, ShapeError

R = np.random.default_rng(0)
LOC, A = R.normal(size=(2, 3)), R.normal(size=(3, 3))
COV = A @ A.T + 0.5 * np.eye(3)
X, P = R.normal(size=(4, 2, 3)), np.array([0.2, 0.5, 0.3])
MAKE = {
    "MultivariateNormal": lambda D, t: D.MultivariateNormal(t(LOC), t(COV)),
    "precision": lambda D, t: D.MultivariateNormal(t(LOC), precision_matrix=t(COV)),
    "scale_tril": lambda D, t: D.MultivariateNormal(t(LOC[0]), scale_tril=t(np.linalg.cholesky(COV))),
    "Independent": lambda D, t: D.Independent(D.Normal(t(LOC), t(np.exp(LOC))), 1),
    "mixture": lambda D, t: D.MixtureSameFamily(D.Categorical(probs=t(P)), D.Normal(t(LOC), t(np.exp(LOC)))),
    "mixture of vectors": lambda D, t: D.MixtureSameFamily(
        D.Categorical(logits=t(np.log(P[:2]))), D.Independent(D.Normal(t(LOC), t(np.exp(LOC))), 1)
    ),
    "OneHotCategorical": lambda D, t: D.OneHotCategorical(probs=t(P)),
}


@pytest.mark.parametrize("name", MAKE)
def test_beside_pytorch(name):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    ours, theirs = MAKE[name](D, Tensor), MAKE[name](torch.distributions, torch.tensor)
    assert ours.batch_shape == tuple(theirs.batch_shape) and ours.event_shape == tuple(theirs.event_shape)
    x = {"OneHotCategorical": np.eye(3)[[0, 2]], "mixture": X[0, 0, :2], "mixture of vectors": X[:, 0]}.get(name, X)
    np.testing.assert_allclose(ours.log_prob(Tensor(x)).numpy(), theirs.log_prob(torch.tensor(x)).numpy(), rtol=1e-7)
    for what in ("mean", "variance"):
        np.testing.assert_allclose(getattr(ours, what).numpy(), getattr(theirs, what).numpy(), rtol=1e-7, atol=1e-12)
    if "mixture" not in name:
        np.testing.assert_allclose(ours.entropy().numpy(), theirs.entropy().numpy(), rtol=1e-7)
    if name in ("MultivariateNormal", "Independent"):
        make = MAKE[name]
        np.testing.assert_allclose(
            D.kl_divergence(ours, MAKE["precision"](D, Tensor) if name[0] == "M" else make(D, lambda a: Tensor(a + 0.5))).numpy(),
            torch.distributions.kl_divergence(
                theirs, MAKE["precision"](torch.distributions, torch.tensor) if name[0] == "M" else make(
                    torch.distributions, lambda a: torch.tensor(a + 0.5))
            ).numpy(),
            rtol=1e-6,
        )  # fmt: skip


@pytest.mark.parametrize("name", MAKE)
def test_samples_have_the_moments(name):
    random.seed(1)
    d = MAKE[name](D, lambda a: Tensor(a.astype("f4")))
    n = 20000
    x = d.sample(n).numpy()
    assert x.shape == (n, *d.batch_shape, *d.event_shape)
    spread = np.sqrt(d.variance.numpy())
    assert (np.abs(x.mean(0) - d.mean.numpy()) < 5 * spread / np.sqrt(n)).all() and np.abs(x.std(0) / spread - 1).max() < 0.1
    if name == "MultivariateNormal":
        assert np.abs(np.cov(x[:, 0].T) - COV).max() < 0.2 * np.abs(COV).max()


def test_gradients_and_traces():
    a = Tensor(np.linalg.cholesky(COV).astype("f4"))

    def mean_of_squares(tril):
        random.seed(3)
        return (D.MultivariateNormal(Tensor(np.zeros(3, "f4")), scale_tril=tril).rsample(4000) ** 2).sum(-1).mean()

    g = autodiff.grad(mean_of_squares)(a).numpy()  # of the trace of L L^T: 2 L
    np.testing.assert_allclose(np.tril(g), 2 * np.tril(a.numpy()), atol=0.3)
    p, loc = Tensor(P.astype("f4")), Tensor(LOC[0].astype("f4"))
    f = lambda x: D.MixtureSameFamily(D.Categorical(probs=p), D.Normal(loc, 1.0)).log_prob(x)
    x = Tensor(X[0, 0].astype("f4"))
    assert trace(f)(x).numpy().tobytes() == f(x).numpy().tobytes()


@pytest.mark.parametrize("make, error, words", [
    (lambda: D.MultivariateNormal(Tensor([0.0])), ArgumentError, "one of covariance_matrix"),
    (lambda: D.MultivariateNormal(Tensor([0.0, 0.0]), Tensor([[1.0]])), ShapeError, r"\(1, 1\)"),
    (lambda: D.Independent(D.Normal(0.0, 1.0), 1), ShapeError, r"batch_shape \(\)"),
    (lambda: D.MixtureSameFamily(D.Categorical(probs=Tensor(P)), D.Normal(0.0, 1.0)), ShapeError, "3 components"),
])  # fmt: skip
def test_mistakes(make, error, words):
    with pytest.raises(error, match=words):
        make()


def test_the_logistic_normal_distribution_of_one_variable_and_of_several():
    x = np.array([[0.1, 0.9], [0.5, 0.5], [0.8, 0.2]])
    z = np.log(x[:, 0] / x[:, 1])
    want = -0.5 * ((z - 0.25) / 1.5) ** 2 - np.log(1.5 * np.sqrt(2 * np.pi)) - np.log(x.prod(1))
    d = D.LogisticNormal(Tensor(np.array(0.25)), Tensor(np.array(1.5)))
    np.testing.assert_allclose(d.log_prob(Tensor(x)).numpy(), want, rtol=1e-10)
    several = D.LogisticNormal(Tensor(LOC), Tensor(np.exp(LOC)))
    drawn = several.rsample(500)
    assert several.batch_shape == (2,) and several.event_shape == (4,) and drawn.shape == (500, 2, 4)
    np.testing.assert_allclose(drawn.sum(-1).numpy(), np.ones((500, 2)), rtol=1e-12)
    assert several.support.check(drawn).all() and several.loc.tolist() == LOC.tolist()


def test_a_generalized_pareto_distribution_beyond_its_support_and_at_a_concentration_of_0():
    d = D.GeneralizedPareto(Tensor(np.zeros(3)), Tensor(np.full(3, 2.0)), Tensor(np.array([-0.5, 0.0, 1.2])))
    x = Tensor(np.array([[-1.0] * 3, [5.0] * 3, [1.0] * 3]))
    assert d.log_prob(x)[0].tolist() == [-np.inf] * 3 and d.cdf(x)[0].tolist() == [0, 0, 0]
    assert d.log_prob(x)[1, 0].item() == -np.inf and d.cdf(x)[1, 0].item() == 1
    np.testing.assert_allclose(d.log_prob(x)[1:, 1].numpy(), -np.log(2) - np.array([2.5, 0.5]), rtol=1e-12)
    assert d.mean[2].item() == d.variance[2].item() == np.inf
    np.testing.assert_allclose(d.cdf(d.icdf(x * 0 + 0.3)).numpy(), 0.3, rtol=1e-12)
    near = lambda c: D.GeneralizedPareto(0.0, 1.0, c).log_prob(Tensor(np.array(1.5)))
    slope = autodiff.grad(near)(Tensor(np.array(0.0))).item()
    ends = [near(Tensor(np.array(s))).item() for s in (1e-4, -1e-4)]
    np.testing.assert_allclose(slope, (ends[0] - ends[1]) / 2e-4, rtol=1e-6)
