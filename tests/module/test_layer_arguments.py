"""Arguments of activations and losses that PyTorch has and MegEngine has not: against their definitions in float64."""

import numpy as np
import pytest

from tengen import Tensor
from tengen import functional as F
from tengen import module as M
from tengen.autodiff import GradManager
from tengen.base.errors import ArgumentError

RNG = np.random.default_rng(7)


def test_softplus_of_another_slope():
    x = np.linspace(-40, 40, 33)
    t = Tensor(x)
    np.testing.assert_allclose(F.softplus(t, beta=2.0).numpy(), np.logaddexp(0, 2 * x) / 2, rtol=1e-15, atol=0)
    cut = M.Softplus(beta=2.0, threshold=5)(t).numpy()
    np.testing.assert_allclose(cut, np.where(2 * x > 5, x, np.logaddexp(0, 2 * x) / 2), rtol=1e-15, atol=0)
    assert F.softplus(t).numpy().tobytes() == F.softplus(t, 1.0).numpy().tobytes() == M.Softplus()(t).numpy().tobytes()
    assert np.isnan(F.softplus(Tensor([np.nan]), threshold=20).item()) and F.softplus(Tensor([np.inf]), threshold=20).item() == np.inf
    with pytest.raises(ArgumentError, match="beta=0 must be positive"):
        F.softplus(t, beta=0)
    assert str(M.Softplus(2.0, 5)) == "Softplus(beta=2.0, threshold=5)" and str(M.Softplus()) == "Softplus()"


def test_the_gradient_of_softplus_is_one_beyond_the_threshold():
    x = Tensor(np.array([-1.0, 0.5, 4.0]))
    gm = GradManager().attach([x])
    with gm:
        gm.backward(F.sum(F.softplus(x, beta=2.0, threshold=5)))
    np.testing.assert_allclose(x.grad.numpy(), [1 / (1 + np.exp(2)), 1 / (1 + np.exp(-1)), 1.0], rtol=1e-14)


def test_gelu_by_tanh():
    x = np.linspace(-4, 4, 17)
    want = 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
    np.testing.assert_allclose(M.GELU(approximate="tanh")(Tensor(x)).numpy(), want, rtol=1e-13, atol=1e-15)
    with pytest.raises(ValueError, match="approximate='typo' must be 'none' or 'tanh'"):
        M.GELU(approximate="typo")


@pytest.mark.parametrize("swap", [False, True])
@pytest.mark.parametrize("p", [1.0, 2.0])
def test_triplets(swap, p):
    a, b, c = (RNG.standard_normal((6, 5)) for _ in range(3))

    def distance(x, y):
        return (np.abs(x - y + 1e-6) ** p).sum(-1) ** (1 / p)

    far = np.minimum(distance(a, c), distance(b, c)) if swap else distance(a, c)
    want = np.maximum(distance(a, b) - far + 0.7, 0)
    ours = M.TripletMarginLoss(0.7, p, swap=swap, reduction="none")(Tensor(a), Tensor(b), Tensor(c))
    np.testing.assert_allclose(ours.numpy(), want, rtol=1e-13)
    assert swap is False or not np.allclose(want, np.maximum(distance(a, b) - distance(a, c) + 0.7, 0))  # the swap counts here

    def own(x, y):
        return F.pow(F.sum(F.pow(F.abs(x - y + 1e-6), p), -1), 1 / p)

    loss = M.TripletMarginWithDistanceLoss(distance_function=own, margin=0.7, swap=swap, reduction="sum")
    np.testing.assert_allclose(loss(Tensor(a), Tensor(b), Tensor(c)).item(), want.sum(), rtol=1e-13)


def test_triplets_with_the_usual_distance():
    a, b, c = (Tensor(RNG.standard_normal((6, 5))) for _ in range(3))
    for swap in (False, True):
        usual = M.TripletMarginLoss(0.5, swap=swap)(a, b, c)
        assert M.TripletMarginWithDistanceLoss(margin=0.5, swap=swap)(a, b, c).item() == usual.item()


def test_infinite_losses_of_ctc_count_as_zero():
    scores = F.log_softmax(Tensor(RNG.standard_normal((3, 2, 4)).astype("f4")), -1)
    labels, lengths, steps = Tensor([[1, 1, 1], [1, 2, 3]]), Tensor([3, 3]), Tensor([3, 3])  # three times 1 needs five steps
    each = M.CTCLoss(reduction="none")(scores, labels, steps, lengths).numpy()
    assert each[0] == np.inf and np.isfinite(each[1])
    zero = M.CTCLoss(reduction="none", zero_infinity=True)(scores, labels, steps, lengths).numpy()
    assert zero[0] == 0 and zero[1] == each[1]
    gm = GradManager().attach([scores])
    with gm:
        gm.backward(M.CTCLoss(zero_infinity=True)(scores, labels, steps, lengths))
    assert np.isfinite(scores.grad.numpy()).all() and not scores.grad.numpy()[:, 0].any()
