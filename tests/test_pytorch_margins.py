"""Margin losses and Lp pooling of `tengen.pytorch.nn`, beside their definitions in NumPy's float64."""

import numpy as np
import pytest

import tengen.pytorch as torch
from tengen import autodiff

R = np.random.default_rng(5)
X, C, W = R.normal(size=(4, 3)), np.array([2, 0, 1, 1]), np.array([0.5, 2.0, 1.5])
FN = torch.nn.functional


def margins(x, p, margin, weight):
    gaps = np.maximum(0, margin - x[np.arange(4), C][:, None] + x) ** p
    gaps[np.arange(4), C] = 0
    return gaps.sum(1) / 3 * weight[C]


@pytest.mark.parametrize("p", [1, 2])
def test_multi_margin_has_weights_and_gradients(p):
    loss = torch.nn.MultiMarginLoss(p, 0.7, torch.tensor(W), reduction="none")
    np.testing.assert_allclose(loss(torch.tensor(X), torch.tensor(C)).numpy(), margins(X, p, 0.7, W), rtol=1e-12)
    one = FN.multi_margin_loss(torch.tensor(X[0]), torch.tensor(C[0]), p, 0.7, torch.tensor(W))
    assert one.shape == () and np.isclose(one.item(), margins(X, p, 0.7, W)[0], rtol=1e-12)
    grad = autodiff.grad(lambda x: FN.multi_margin_loss(x, torch.tensor(C), p, 0.7, torch.tensor(W)))(torch.tensor(X)).numpy()
    for at in np.ndindex(X.shape):
        d = np.zeros_like(X)
        d[at] = 1e-6
        slope = (margins(X + d, p, 0.7, W).mean() - margins(X - d, p, 0.7, W).mean()) / 2e-6
        assert abs(grad[at] - slope) < 1e-7


def test_multilabel_soft_margin_is_the_mean_of_cross_entropies():
    t = (R.normal(size=X.shape) > 0).astype(float)
    want = (W * (np.logaddexp(0, X) - t * X)).mean(1)
    got = FN.multilabel_soft_margin_loss(torch.tensor(X), torch.tensor(t), torch.tensor(W), reduction="none")
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-10)


@pytest.mark.parametrize("swap", [False, True])
def test_triplets_take_a_distance(swap):
    a, b, c = R.normal(size=(3, 4, 3))

    def d(x, y):
        return abs(x - y).sum(-1)

    far = np.minimum(d(a, c), d(b, c)) if swap else d(a, c)
    args = [torch.tensor(v) for v in (a, b, c)]
    got = FN.triplet_margin_with_distance_loss(*args, distance_function=d, margin=0.5, swap=swap)
    assert np.isclose(got.item(), np.maximum(0, d(a, b) - far + 0.5).mean(), rtol=1e-12)


def test_lp_pool_is_a_norm_of_each_window():
    x = abs(R.normal(size=(1, 2, 6)))
    want = (x.reshape(1, 2, 3, 2) ** 3).sum(-1) ** (1 / 3)
    np.testing.assert_allclose(FN.lp_pool1d(torch.tensor(x), 3, 2).numpy(), want, rtol=1e-10)


def test_options_that_pytorch_has_as_it_says():
    """Values of PyTorch 2.13: labels that are too long for the scores, and the nearer of two negatives."""
    x = torch.tensor(np.sin(np.arange(60.0)).reshape(5, 3, 4)).requires_grad_()
    labels = torch.tensor([[1, 2, 1, 1, 2], [1, 1, 2, 2, 3], [3, 2, 1, 0, 0]])
    each = FN.ctc_loss(x.log_softmax(2), labels, torch.tensor([5, 5, 4]), torch.tensor([2, 5, 3]), zero_infinity=True, reduction="none")
    each.sum().backward()
    np.testing.assert_allclose(each.tolist(), [4.292838, 0.0, 4.607316], atol=1e-6)
    assert np.isclose(abs(x.grad.numpy()).sum(), 9.445599, atol=1e-6) and not x.grad.numpy()[:, 1].any()
    a, b, c = (torch.tensor(f(np.arange(12.0)).reshape(4, 3)) for f in (np.sin, np.cos, lambda v: v * 0.1))
    assert np.isclose(FN.triplet_margin_loss(a, b, c, swap=True).item(), 1.12088, atol=1e-5)
    assert np.isclose(FN.triplet_margin_loss(a, b, c, swap=True, p=1, margin=0.2, reduction="sum").item(), 3.0523, atol=1e-4)
