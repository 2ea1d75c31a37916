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
