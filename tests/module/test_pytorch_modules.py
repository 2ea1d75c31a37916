"""What PyTorch users type where modules are built: arguments by PyTorch's names, and losses as modules."""

import warnings

import numpy as np
import pytest

from tengen import Tensor
from tengen import functional as F
from tengen import module as M
from tengen.base.errors import ArgumentError

R = np.random.default_rng(0)
X = R.normal(size=(4, 6)).astype("f4")


@pytest.mark.parametrize("name", ["ReLU", "ReLU6", "SiLU", "LeakyReLU", "ELU", "SELU", "Hardswish", "Hardsigmoid", "Mish"])
def test_inplace_changes_no_number_and_no_input(name):
    x = Tensor(X)
    make, first = getattr(M, name), {"LeakyReLU": (0.01,), "ELU": (1.0,)}.get(name, ())
    for m in (make(inplace=True), make(inplace=False), make(*first, True), make(*first, inplace=True)):
        assert m(x).numpy().tobytes() == make()(x).numpy().tobytes()
    assert make(name="act")(x).numpy().tobytes() == make()(x).numpy().tobytes()
    assert x.numpy().tobytes() == X.tobytes()


@pytest.mark.parametrize("build, same", [
    (lambda: M.Softmax(dim=0), lambda: M.Softmax(0)), (lambda: M.LogSoftmax(dim=0), lambda: M.LogSoftmax(0)),
    (lambda: M.GLU(dim=0), lambda: M.GLU(0)), (lambda: M.Flatten(start_dim=0, end_dim=1), lambda: M.Flatten(0)),
    (lambda: M.Dropout(p=0.5, inplace=True).eval(), lambda: M.Identity()),
])  # fmt: skip
def test_arguments_by_pytorchs_names(build, same):
    assert build()(Tensor(X)).numpy().tobytes() == same()(Tensor(X)).numpy().tobytes()


def test_names_of_one_argument():
    assert M.Dropout(p=0.25).drop_prob == 0.25 and M.AdaptiveAvgPool2d(output_size=(1, 1))(F.ones((1, 2, 3, 3))).shape == (1, 2, 1, 1)
    for call in (lambda: M.Softmax(dim=0, axis=1), lambda: M.Dropout(p=0.5, drop_prob=0.5), lambda: M.ReLU(inplce=True)):
        with pytest.raises(TypeError):
            call()


LABELS = R.integers(0, 6, 4)
P = (1 / (1 + np.exp(-X))).astype("f4")
SIGNS = np.array([1, -1, 1, -1], "f4")
LOSSES = {
    "CrossEntropyLoss": ({"label_smoothing": 0.1}, (X, LABELS)), "NLLLoss": ({}, (X, LABELS)), "MSELoss": ({}, (X, P)),
    "L1Loss": ({}, (X, P)), "BCELoss": ({}, (P, P.round())), "BCEWithLogitsLoss": ({}, (X, P)), "SmoothL1Loss": ({"beta": 0.5}, (X, P)),
    "HuberLoss": ({"delta": 0.5}, (X, P)), "KLDivLoss": ({"log_target": True}, (X, -P)),
    "CosineEmbeddingLoss": ({"margin": 0.25}, (X, P, SIGNS)), "TripletMarginLoss": ({"margin": 0.5}, (X, P, X[::-1].copy())),
    "HingeEmbeddingLoss": ({"margin": 2.0}, (X[:, 0].copy(), SIGNS)), "SoftMarginLoss": ({}, (X[:, 0].copy(), SIGNS)),
    "MultiMarginLoss": ({"p": 2, "margin": 0.5}, (X, LABELS)), "MultiLabelSoftMarginLoss": ({}, (X, P.round())),
    "PoissonNLLLoss": ({"full": True}, (X, 3 * P)), "GaussianNLLLoss": ({"full": True}, (X, P, P)),
    "CTCLoss": ({"blank": 2}, (np.log(np.full((5, 2, 3), 1 / 3, "f4")), np.array([[0, 1], [1, 1]]), np.array([5, 4]), np.array([2, 1]))),
    "TripletMarginWithDistanceLoss": ({"margin": 0.5, "swap": True}, (X, P, X[::-1].copy())),
    "MarginRankingLoss": ({"margin": 0.5}, (X[:, 0].copy(), P[:, 0].copy(), SIGNS)),
}  # fmt: skip


@pytest.mark.parametrize("name", LOSSES)
def test_losses_beside_pytorch(name):
    torch = pytest.importorskip("torch")
    settings, operands = LOSSES[name]
    for reduction in ("mean", "sum", "none", *(["batchmean"] if name == "KLDivLoss" else [])):
        ours = getattr(M, name)(reduction=reduction, **settings)(*map(Tensor, operands))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PyTorch's word on KLDivLoss("mean")
            theirs = getattr(torch.nn, name)(reduction=reduction, **settings)(*map(torch.tensor, operands))
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-5, atol=1e-6)


def test_every_loss_is_tried():
    from tengen.module import loss

    assert {*loss.__all__} == LOSSES.keys() and "reduction='sum'" in repr(M.MSELoss(reduction="sum"))
    one = M.CrossEntropyLoss()(Tensor(X[0]), Tensor(int(LABELS[0]))).item()
    assert one == pytest.approx(-(X[0] - np.log(np.exp(X[0]).sum()))[LABELS[0]], rel=1e-5)
    for build in (lambda: M.MSELoss("average"), lambda: M.KLDivLoss("all")):
        with pytest.raises(ArgumentError, match="reduction="):
            build()


def test_a_sequential_that_grows():
    net = M.Sequential(M.Linear(6, 3))
    net.add_module("act", M.ReLU())
    net.append(M.Linear(3, 2)).extend([M.Tanh()])
    first, _, second, _ = net
    want = np.tanh(np.maximum(X @ first.weight.numpy().T + first.bias.numpy(), 0) @ second.weight.numpy().T + second.bias.numpy())
    np.testing.assert_allclose(net(Tensor(X)).numpy(), want, rtol=1e-5, atol=1e-6)
    assert net.layer_keys == ("0", "act", "2", "3") and len(list(net.parameters())) == 4
    net.add_module("act", M.Identity())  # in the place of the other
    assert net.layer_keys == ("0", "act", "2", "3") and isinstance(net[1], M.Identity)
    for name, m in (("x", None), ("x", 3), ("a.b", M.ReLU()), ("forward", M.ReLU())):
        with pytest.raises((TypeError, KeyError)):
            net.add_module(name, m)
