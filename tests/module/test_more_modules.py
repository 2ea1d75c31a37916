"""Modules and initialisers that PyTorch users look for: beside their definitions, and beside PyTorch where it is installed."""

import copy

import numpy as np
import pytest

import tengen.functional as F
import tengen.module as M
from tengen import Parameter, Tensor, random, trace
from tengen.autodiff import GradManager
from tengen.base.errors import ShapeError

RNG = np.random.default_rng(0)
LINES, VOLUMES = RNG.standard_normal((2, 3, 12)).astype("f4"), RNG.standard_normal((2, 3, 6, 4, 8)).astype("f4")


def windows(x, size, fold):
    """Each window of `size` (which divides the extents), folded."""
    n = x.ndim - 2
    shape = [*x.shape[:2]]
    for d, k in zip(x.shape[2:], size):
        shape += [d // k, k]
    return fold(x.reshape(shape), axis=tuple(3 + 2 * i for i in range(n)))


@pytest.mark.parametrize("x, size", [(LINES, (3,)), (VOLUMES, (2, 4, 2))])
def test_pooling_over_one_and_three_axes(x, size):
    n = len(size)
    for kind, fold in (("max", np.max), ("avg", np.mean)):
        want = windows(x, size, fold)
        made = getattr(M, f"{kind.capitalize()}Pool{n}d")(size)
        np.testing.assert_allclose(made(Tensor(x)).numpy(), want, rtol=1e-6, atol=1e-6)
        adaptive = getattr(M, f"Adaptive{kind.capitalize()}Pool{n}d")(tuple(d // k for d, k in zip(x.shape[2:], size)))
        np.testing.assert_allclose(adaptive(Tensor(x)).numpy(), want, rtol=1e-6, atol=1e-6)
        uneven = getattr(F, f"adaptive_{kind}_pool{n}d")(Tensor(x), 5)
        assert uneven.shape == (2, 3, *(5,) * n)
        first = x[(slice(None), slice(None), *(slice(0, -(-d // 5)) for d in x.shape[2:]))]
        np.testing.assert_allclose(uneven.numpy()[(..., *(0,) * n)], fold(first, axis=tuple(range(2, 2 + n))), rtol=1e-5, atol=1e-6)
        for name in (f"{kind}_pool{n}d", f"adaptive_{kind}_pool{n}d"):
            with pytest.raises(ShapeError, match=f"{n}d takes a tensor of {n + 2} axes"):
                getattr(F, name)(F.ones((2,)), 2)
    padded = F.avg_pool1d(Tensor([[[1.0, 3.0]]]), 2, 1, 1, mode="average")
    assert padded.tolist() == [[[0.5, 2.0, 1.5]]] and F.avg_pool1d(Tensor([[[1.0, 3.0]]]), 2, 1, 1).tolist() == [[[1.0, 2.0, 3.0]]]


def test_batch_norm_of_volumes():
    net = M.BatchNorm3d(3)
    y = net(Tensor(VOLUMES)).numpy()
    mean, var = VOLUMES.mean((0, 2, 3, 4), keepdims=True), VOLUMES.var((0, 2, 3, 4), keepdims=True)
    np.testing.assert_allclose(y, (VOLUMES - mean) / np.sqrt(var + 1e-5), rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="BatchNorm3d takes a tensor of 5 axes"):
        net(Tensor(LINES))


def test_dropouts():
    random.seed(4)
    for kind, shape in ((M.Dropout1d, (8, 16, 5)), (M.Dropout3d, (8, 16, 2, 3, 2))):
        y = kind(0.5)(F.ones(shape)).numpy().reshape(8, 16, -1)
        assert set(np.unique(y)) == {0.0, 2.0} and ((y == 0).all(2) | (y == 2).all(2)).all()
    with pytest.raises(ValueError, match=r"Dropout1d takes \(N, C, ...\) of at most 3 axes"):
        M.Dropout1d(0.5)(F.ones((1, 2, 3, 4)))
    x = random.normal(0, 1, (200_000,))
    y = M.AlphaDropout(0.3)(x).numpy()
    most_often = np.unique(y, return_counts=True)[1].max()
    assert abs(y.mean()) < 0.02 and abs(y.var() - 1) < 0.02 and abs(most_often / y.size - 0.3) < 0.01
    assert M.AlphaDropout(0.3).eval()(x) is x
    with pytest.raises(ValueError, match=r"in \[0, 1\)"):
        F.alpha_dropout(x, 1.0)


@pytest.mark.parametrize("shape", [(5, 8), (8, 5), (6, 3, 2, 2), (3, 4, 3, 3), (1, 7)])
def test_orthogonal(shape):
    random.seed(3)
    p = Parameter(np.zeros(shape, "f4"))
    M.init.orthogonal_(p, 2.0)
    a = p.numpy().reshape(shape[0], -1).astype("f8") / 2
    product = a @ a.T if a.shape[0] <= a.shape[1] else a.T @ a
    np.testing.assert_allclose(product, np.eye(len(product)), atol=3e-7)
    with pytest.raises(ValueError, match="two axes"):
        M.init.orthogonal_(Parameter([1.0]))


def test_other_initialisers():
    p = Parameter(np.zeros((400, 500), "f4"))
    M.init.trunc_normal_(p, 1.0, 2.0, -1.0, 2.0)
    x = p.numpy().astype("f8")
    assert x.min() >= -1 and x.max() <= 2 and p.dtype == "float32"
    # the mean of a normal number between a and b: mean + std (phi(a) - phi(b)) / (Phi(b) - Phi(a)), here with a = -1, b = 0.5
    assert abs(x.mean() - (1 + 2 * (0.24197 - 0.35207) / (0.69146 - 0.15866))) < 0.005
    for bad in ({"a": 9.0, "b": 10.0}, {"std": 0.0}, {"a": 1.0, "b": -1.0}):
        with pytest.raises(ValueError, match="holds a share of 0"):
            M.init.trunc_normal_(p, **bad)
    M.init.eye_(q := Parameter(np.ones((2, 3), "f4")))
    assert q.tolist() == [[1, 0, 0], [0, 1, 0]]
    M.init.constant_(q, 4.0)
    assert (q.numpy() == 4).all() and M.init.kaiming_normal_ is M.init.msra_normal_


class Counter(M.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("seen", Tensor([0.0]))
        self.register_buffer("scratch", Tensor([5.0]), persistent=False)
        self.register_parameter("weight", Parameter([1.0]))
        self.register_parameter("bias", None)
        self.add_module("inner", M.Linear(1, 1))


def test_registering():
    net = Counter()
    assert [n for n, _ in net.named_buffers()] == ["scratch", "seen"] and net.bias is None
    assert sorted(net.state_dict()) == ["inner.bias", "inner.weight", "seen", "weight"] and len(list(net.parameters())) == 3
    assert net.load_state_dict(net.state_dict()) == ([], [])
    again = copy.deepcopy(net)
    again.register_buffer("scratch", Tensor([6.0]))
    assert "scratch" in again.state_dict() and "scratch" not in net.state_dict()
    for call, error, words in (
        (lambda: net.register_buffer("a.b", Tensor([1.0])), KeyError, "is no name"),
        (lambda: net.register_buffer("x", 3), TypeError, "must be a Tensor"),
        (lambda: net.register_parameter("x", Tensor([1.0])), TypeError, "must be a Parameter"),
        (lambda: net.register_buffer("x", Parameter([1.0])), TypeError, "Parameter"),
        (lambda: net.register_buffer("forward", None), KeyError, "already"),
        (lambda: net.add_module("training", M.ReLU()), KeyError, "already"), (lambda: net.add_module("m", 3), TypeError, "must be a Module"),
    ):  # fmt: skip
        with pytest.raises(error, match=words):
            call()


def step(net, x):
    """The loss, and the gradients by name."""
    gm = GradManager().attach(net.parameters())
    with gm:
        y = net(x)
        loss = (y * y).sum()
        gm.backward(loss)
    return loss, {n: p.grad.numpy() for n, p in net.named_parameters()}


@pytest.mark.parametrize("dim", [0, 1, None])
def test_weight_norm(dim):
    net, x = M.Linear(4, 3), Tensor(RNG.standard_normal((5, 4)).astype("f4"))
    plain = net.weight.numpy()
    want = net(x).numpy()
    assert M.weight_norm(net, dim=dim) is net and isinstance(net, M.Linear) and "weight" not in net.state_dict()
    np.testing.assert_allclose(net(x).numpy(), want, rtol=1e-5, atol=1e-6)
    _, grads = step(net, x)
    v, g = net.weight_v.numpy().astype("f8"), net.weight_g.numpy().astype("f8")
    size = np.sqrt((v * v).sum(None if dim is None else 1 - dim, keepdims=True))
    out = x.numpy().astype("f8") @ (g * v / size).T + net.bias.numpy()
    dw = 2 * out.T @ x.numpy()  # of the weight
    np.testing.assert_allclose(grads["weight_g"], (dw * v / size).sum(None if dim is None else 1 - dim, keepdims=True), rtol=1e-4, atol=1e-4)
    across = dw - v * (dw * v).sum(None if dim is None else 1 - dim, keepdims=True) / size**2
    np.testing.assert_allclose(grads["weight_v"], g / size * across, rtol=1e-4, atol=1e-4)
    traced = trace(lambda x: net(x))
    assert traced(x).numpy().tobytes() == net(x).numpy().tobytes()
    net.weight_g._reset(net.weight_g * 2)
    assert traced(x).numpy().tobytes() == net(x).numpy().tobytes() and copy.deepcopy(net)(x).numpy().tobytes() == net(x).numpy().tobytes()
    with pytest.raises(AttributeError):
        net.weight = Parameter(plain)
    with pytest.raises(ValueError, match="has weight_norm already"):
        M.spectral_norm(net)
    M.remove_weight_norm(net)
    np.testing.assert_allclose(net.weight.numpy(), 2 * plain, rtol=1e-5)
    assert type(net) is M.Linear and [n for n, _ in net.named_parameters()] == ["bias", "weight"]
    with pytest.raises(ValueError, match="no weight_norm"):
        M.remove_weight_norm(net)
    with pytest.raises(ValueError, match="no parameter 'heft'"):
        M.weight_norm(net, "heft")


def test_spectral_norm():
    random.seed(1)
    net, x = M.Conv2d(3, 4, 3), Tensor(RNG.standard_normal((2, 3, 5, 5)).astype("f4"))
    w = net.weight.numpy()
    M.spectral_norm(net, n_power_iterations=3)
    for _ in range(40):
        net(x)
    sigma = np.linalg.svd(w.reshape(4, -1).astype("f8"))[1][0]
    np.testing.assert_allclose(net.eval().weight.numpy(), w / sigma, rtol=1e-4, atol=1e-6)
    before = net.weight_u.numpy()
    net(x)
    assert net.weight_u.numpy().tobytes() == before.tobytes() and sorted(net.state_dict()) == ["bias", "weight_orig", "weight_u", "weight_v"]
    _, grads = step(net.train(), x)
    assert set(grads) == {"bias", "weight_orig"} and np.isfinite(grads["weight_orig"]).all()
    twin = copy.deepcopy(net)
    traced = trace(lambda x: net(x))
    for _ in range(2):  # it updates its buffer as the eager one does
        assert traced(x).numpy().tobytes() == twin(x).numpy().tobytes() and net.weight_u.numpy().tobytes() == twin.weight_u.numpy().tobytes()
    M.remove_spectral_norm(net.eval())
    assert type(net) is M.Conv2d and sorted(net.state_dict()) == ["bias", "weight"]
    with pytest.raises(ValueError, match="n_power_iterations=0"):
        M.spectral_norm(net, n_power_iterations=0)


def test_a_module_has_the_name_that_it_was_given():
    class Net(M.Module):
        def __init__(self):
            super().__init__(name="net")
            self.fc = M.Linear(1, 1, name="first")

    class Named(M.Module):
        def __init__(self):
            super().__init__()
            self.name = M.Linear(1, 1)

    net = Net()
    assert (net.name, net.fc.name, M.ReLU().name) == ("net", "first", None)
    assert [n for n, _ in Named().named_parameters()] == ["name.bias", "name.weight"] and type(Named().name) is M.Linear
    net.register_buffer("name", Tensor([1.0]))
    assert net.name.tolist() == [1.0] and "name" in net.state_dict()
