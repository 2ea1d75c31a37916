"""The CTC loss: against PyTorch where it is installed, by enumerating alignments, by differences, and at its edges."""

import itertools

import numpy as np
import pytest

from tengen import Tensor, trace
from tengen import functional as F
from tengen.autodiff import grad
from tengen.base.errors import GradientError, IndexOutOfRange


def spoken(t, n, c, seed=0):
    p = np.random.default_rng(seed).uniform(0.05, 1, (t, n, c))
    return p / p.sum(2, keepdims=True)


def enumerated(p, labels, blank=0):
    """The sum over all paths of one sample that give its labels."""
    total = 0.0
    for path in itertools.product(range(p.shape[1]), repeat=len(p)):
        if [c for c, _ in itertools.groupby(path) if c != blank] == list(labels):
            total += np.prod([p[t, c] for t, c in enumerate(path)])
    return -np.log(total) if total else np.inf


@pytest.mark.parametrize("labels", [[], [1], [2, 1], [1, 1], [1, 1, 2], [2, 2, 2]])
@pytest.mark.parametrize("blank", [0, 2])
def test_all_alignments(labels, blank):
    if blank in labels:
        labels = [{blank: 0}.get(c, c) for c in labels]
    p = spoken(4, 1, 3)
    got = F.loss.ctc_loss(
        Tensor(p, dtype="float64"), Tensor([4]), Tensor(np.array([labels], np.int64)), Tensor([len(labels)]), blank, "none"
    )
    np.testing.assert_allclose(got.numpy()[0], enumerated(p[:, 0], labels, blank), rtol=1e-12)


def test_values_and_gradients_as_torch():
    torch = pytest.importorskip("torch")

    r = np.random.default_rng(1)
    p, labels = spoken(40, 5, 7), r.integers(1, 7, (5, 18))
    steps, lengths = np.array([40, 37, 1, 20, 40]), np.array([18, 17, 1, 0, 9])
    t = torch.tensor(np.log(p), requires_grad=True)
    want = torch.nn.functional.ctc_loss(t.log_softmax(2), *map(torch.tensor, (labels, steps, lengths)), reduction="sum")
    want.backward()

    def loss(x):
        return F.loss.ctc_loss(F.log_softmax(x, 2), Tensor(steps), Tensor(labels), Tensor(lengths), 0, "sum", log_probs=True)

    x = Tensor(np.log(p), dtype="float64")
    np.testing.assert_allclose(loss(x).item(), want.item(), rtol=1e-12)
    np.testing.assert_allclose(grad(loss)(x).numpy(), t.grad.numpy(), rtol=1e-9, atol=1e-12)


def test_gradient_against_differences():
    p = spoken(6, 3, 4)
    steps, labels, lengths = Tensor([6, 5, 4]), Tensor([[1, 1], [2, 3], [3, 0]]), Tensor([2, 2, 1])
    f = lambda x: F.loss.ctc_loss(x, steps, labels, lengths)
    got, h = grad(f)(Tensor(p, dtype="float64")).numpy(), 1e-6
    for at in np.ndindex(*p.shape):
        e = np.zeros_like(p)
        e[at] = h
        want = (f(Tensor(p + e, dtype="float64")).item() - f(Tensor(p - e, dtype="float64")).item()) / (2 * h)
        np.testing.assert_allclose(got[at], want, rtol=1e-6, atol=1e-8)


def test_what_cannot_be_aligned():
    p = Tensor(spoken(2, 3, 3).astype("f4"))
    args = Tensor([2, 2, 0]), Tensor([[1, 1], [1, 2], [1, 0]]), Tensor([2, 2, 1])  # the first needs a blank between: three steps
    losses = F.loss.ctc_loss(p, *args, reduction="none")
    assert np.isinf(losses.numpy()).tolist() == [True, False, True]
    g = grad(lambda x: F.loss.ctc_loss(x, *args, reduction="sum"))(p).numpy()
    assert (g[:, 0] == 0).all() and (g[:, 1] != 0).any() and (g[:, 2] == 0).all()
    none = F.loss.ctc_loss(p, Tensor([2, 0, 2]), Tensor(np.zeros((3, 0), np.int64)), Tensor([0, 0, 0]), reduction="none").numpy()
    np.testing.assert_allclose(none[0], -np.log(p.numpy()[:, 0, 0]).sum(), rtol=1e-6)
    assert none[1] == 0


def test_labels_one_after_another_and_traced():
    p = Tensor(spoken(9, 3, 5).astype("f4"))
    steps, lengths = Tensor([9, 8, 7]), Tensor([3, 1, 2])
    padded = F.loss.ctc_loss(p, steps, Tensor([[1, 2, 3], [4, 0, 0], [2, 2, 0]]), lengths, reduction="none")
    flat = Tensor([1, 2, 3, 4, 2, 2])
    assert F.loss.ctc_loss(p, steps, flat, lengths, reduction="none").numpy().tobytes() == padded.numpy().tobytes()
    run = trace(lambda p, flat: F.loss.ctc_loss(p, steps, flat, lengths, reduction="none"))
    assert run(p, flat).numpy().tobytes() == padded.numpy().tobytes()


def test_errors():
    p, one = Tensor(spoken(4, 1, 3).astype("f4")), Tensor([1])
    for steps, label, length, message in [
        ([4], [[3]], [1], "a label is no class"), ([5], [[1]], [1], "more steps than scores"), ([4], [[1]], [2], "more labels"),
    ]:  # fmt: skip
        with pytest.raises(IndexOutOfRange, match=message):
            F.loss.ctc_loss(p, Tensor(steps), Tensor(label), Tensor(length))
    with pytest.raises(ValueError, match="blank=3 is no class"):
        F.loss.ctc_loss(p, one, Tensor([[1]]), one, blank=3)
    with pytest.raises(ValueError, match="reduction"):
        F.loss.ctc_loss(p, one, Tensor([[1]]), one, reduction="all")
    with pytest.raises(GradientError, match="second derivative"):
        grad(lambda x: grad(lambda y: F.loss.ctc_loss(y, one, Tensor([[1]]), one))(x).sum())(p)
