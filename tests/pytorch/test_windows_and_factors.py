"""`torch.signal.windows` beside NumPy's and their formulas; LU factors as PyTorch has them; layers without features."""

import numpy as np
import pytest

import tengen.pytorch as torch
from tengen.pytorch import nn
from tengen.pytorch.signal import windows

NUMPYS = {"bartlett": np.bartlett, "blackman": np.blackman, "hamming": np.hamming, "hann": np.hanning}
FORMULAS = {
    "cosine": (lambda k, n: np.sin(np.pi * (k + 0.5) / n), {}),
    "exponential": (lambda k, n: np.exp(-abs(k - (n - 1) / 2) / 3), {"tau": 3.0}),
    "gaussian": (lambda k, n: np.exp(-0.5 * ((k - (n - 1) / 2) / 2.5) ** 2), {"std": 2.5}),
    "kaiser": (lambda k, n: np.kaiser(n, 5.0)[: len(k)], {"beta": 5.0}),
    "general_hamming": (lambda k, n: 0.7 - 0.3 * np.cos(2 * np.pi * k / (n - 1)), {"alpha": 0.7}),
    "general_cosine": (
        lambda k, n: 0.5 - 0.3 * np.cos(2 * np.pi * k / (n - 1)) + 0.2 * np.cos(4 * np.pi * k / (n - 1)), {"a": [0.5, 0.3, 0.2]}),
    "nuttall": (lambda k, n: sum(a * (-1) ** i * np.cos(2 * np.pi * i * k / (n - 1)) for i, a in enumerate(
        (0.3635819, 0.4891775, 0.1365995, 0.0106411))), {}),
    **{name: (lambda k, n, f=f: f(n)[: len(k)], {}) for name, f in NUMPYS.items()},
}  # fmt: skip


@pytest.mark.parametrize("name", windows.__all__)
def test_windows(name):
    formula, settings = FORMULAS[name]
    made = getattr(windows, name)
    for m in (2, 7, 8):
        for sym in (True, False):
            got = made(m, sym=sym, dtype=torch.float64, **settings)
            np.testing.assert_allclose(got.numpy(), formula(np.arange(m), m if sym else m + 1), atol=1e-14)
    assert made(0, **settings).shape == (0,) and made(1, **settings).tolist() == [1.0] and made(3, **settings).dtype == torch.float32
    with pytest.raises(RuntimeError, match="M=-1"):
        made(-1, **settings)


def test_factors_are_those_of_pytorch():
    rng = np.random.default_rng(0)
    a, b, c = rng.normal(size=(3, 4, 4)), rng.normal(size=(3, 4, 2)), rng.normal(size=(3, 2, 4))
    x = torch.tensor(a)
    factors, pivots = torch.linalg.lu_factor(x)
    assert pivots.dtype == torch.int32 and (pivots >= torch.arange(1, 5)).all()  # a row is exchanged with a later one
    rows = [*range(4)]
    for i, j in enumerate(pivots[0].tolist()):
        rows[i], rows[j - 1] = rows[j - 1], rows[i]
    low, up = np.tril(factors[0].numpy(), -1) + np.eye(4), np.triu(factors[0].numpy())
    np.testing.assert_allclose(low @ up, a[0][rows], atol=1e-14)
    solve = lambda right, **how: torch.linalg.lu_solve(factors, pivots, torch.tensor(right), **how).numpy()
    t = a.swapaxes(1, 2)
    np.testing.assert_allclose(a @ solve(b), b, atol=1e-12)
    np.testing.assert_allclose(t @ solve(b, adjoint=True), b, atol=1e-12)
    np.testing.assert_allclose(solve(c, left=False) @ a, c, atol=1e-12)
    np.testing.assert_allclose(solve(c, left=False, adjoint=True) @ t, c, atol=1e-12)
    for part in (x, x[:, :, :2], x[:, :2]):
        p, low, up = torch.lu_unpack(*torch.lu(part))
        np.testing.assert_allclose((p @ low @ up).numpy(), part.numpy(), atol=1e-14)
    reflectors, tau = x.geqrf()
    q = torch.linalg.householder_product(reflectors, tau)
    np.testing.assert_allclose((q @ reflectors.triu()).numpy(), a, atol=1e-14)
    np.testing.assert_allclose(torch.ormqr(reflectors, tau, torch.tensor(b), transpose=True).numpy(), q.mT.numpy() @ b, atol=1e-14)


def test_layers_without_features():
    assert nn.Linear(0, 3)(torch.ones(2, 0)).shape == (2, 3) and nn.Linear(3, 0)(torch.ones(2, 3)).shape == (2, 0)
    m = nn.AdaptiveLogSoftmaxWithLoss(8, 20, [5, 10, 15])  # the last cluster has 8 // 64 features
    assert [tuple(p.shape) for p in m.tail[1].parameters()] == [(0, 8), (5, 0)]
    x = torch.tensor(np.random.default_rng(0).normal(size=(3, 8)).astype("f4"))
    probabilities = m.log_prob(x).exp()
    np.testing.assert_allclose(probabilities.sum(1).detach().numpy(), np.ones(3), rtol=1e-5)
    last = probabilities[:, 15:].detach().numpy()
    np.testing.assert_allclose(last, np.repeat(last[:, :1], 5, 1), rtol=1e-6)  # all of one score
    m(x, torch.tensor([1, 7, 18])).loss.backward()
    assert m.head.weight.grad is not None and m.tail[1][0].weight.grad.shape == (0, 8)
    with pytest.raises(ValueError, match="out_features=-1 must be at least 0"):
        nn.Linear(3, -1)
