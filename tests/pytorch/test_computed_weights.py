"""`parametrize` and `prune`: weights that are computed when they are read, their names in state dicts, and what undoes them."""

import copy

import numpy as np
import pytest

import tengen.pytorch as torch
from tengen.pytorch import nn
from tengen.pytorch.nn.utils import parametrize, prune


def net():
    made = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))
    with torch.no_grad():
        for i, p in enumerate(made.parameters()):
            p.copy_(torch.arange(p.numel(), dtype=torch.float32).reshape(p.shape).mul(0.37 + i).sin())
    return made


class Low(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.a, self.b = nn.Parameter(torch.full((2, inputs), 0.1)), nn.Parameter(torch.full((outputs, 2), 0.2))

    def forward(self, w):
        return w + self.b @ self.a


class Symmetric(nn.Module):
    def forward(self, x):
        return x.triu() + x.triu(1).transpose(-1, -2)

    def right_inverse(self, a):
        return a.triu()


X = torch.arange(8.0).reshape(2, 4).cos()


def test_low_rank_updates_train_and_are_merged():
    made = net()
    plain = copy.deepcopy(made)
    for p in made.parameters():
        p.requires_grad_(False)
    for layer in (made[0], made[2]):
        parametrize.register_parametrization(layer, "weight", Low(layer.in_features, layer.out_features))
    assert list(made.state_dict())[:4] == [
        "0.bias", "0.parametrizations.weight.original", "0.parametrizations.weight.0.a", "0.parametrizations.weight.0.b",
    ]  # fmt: skip
    assert np.allclose(made[0].weight.detach().numpy(), plain[0].weight.detach().numpy() + 0.04, atol=1e-6)
    assert parametrize.is_parametrized(made[0], "weight") and not parametrize.is_parametrized(made[0], "bias")
    assert isinstance(made[0], nn.Linear) and parametrize.type_before_parametrizations(made[0]) is nn.Linear
    trained = [p for p in made.parameters() if p.requires_grad]
    assert len(trained) == 4
    optimizer = torch.optim.SGD(trained, lr=0.1)
    before = {n: v.clone() for n, v in made.state_dict().items()}
    (made(X) ** 2).sum().backward()
    optimizer.step()
    moved = [n for n, v in made.state_dict().items() if not torch.equal(v, before[n])]
    assert len(moved) == 4 and all(n[-1] in "ab" for n in moved)
    other = copy.deepcopy(made)
    assert torch.equal(other(X), made(X))
    want = made(X).detach()
    for layer in (made[0], made[2]):
        parametrize.remove_parametrizations(layer, "weight")
    assert list(made.state_dict()) == list(plain.state_dict()) or sorted(made.state_dict()) == sorted(plain.state_dict())
    assert torch.equal(made(X), want) and type(made[0]) is nn.Linear and not made[0].weight.requires_grad


def test_setting_a_parametrized_tensor_and_several_parametrizations():
    layer = parametrize.register_parametrization(nn.Linear(3, 3), "weight", Symmetric())
    a = torch.arange(9.0).reshape(3, 3)
    layer.weight = a + a.T
    assert torch.equal(layer.weight, a + a.T) and torch.equal(layer.parametrizations.weight.original, (a + a.T).triu())
    parametrize.register_parametrization(layer, "weight", Low(3, 3))
    assert len(layer.parametrizations.weight) == 2 and isinstance(layer.parametrizations["weight"][1], Low)
    with pytest.raises(RuntimeError, match="Low has no right_inverse"):
        layer.weight = a
    with parametrize.cached():
        assert layer.weight is layer.weight
    assert layer.weight is not layer.weight
    with pytest.raises(ValueError, match="no parameter or buffer 'wieght'"):
        parametrize.register_parametrization(nn.Linear(2, 2), "wieght", Symmetric())
    with pytest.raises(ValueError, match=r"Flatten gives float32\[4\]|gives .*help: unsafe=True"):
        parametrize.register_parametrization(nn.Linear(2, 2), "weight", nn.Flatten(0))
    with pytest.raises(TypeError, match="a parametrization is a module"):
        parametrize.register_parametrization(nn.Linear(2, 2), "weight", torch.tanh)
    with pytest.raises(ValueError, match="has no parametrization on 'bias'"):
        parametrize.remove_parametrizations(layer, "bias")


def test_pruning_keeps_zeros():
    made = net()
    prune.l1_unstructured(made[0], "weight", amount=0.3)
    prune.l1_unstructured(made[0], name="weight", amount=5)
    prune.ln_structured(made[2], "weight", amount=0.5, n=2, dim=1)
    zeros = made[0].weight.detach() == 0
    assert int(zeros.sum()) == 12 and (made[2].weight == 0).sum(0).tolist() == [0, 0, 0, 3, 3, 3] or int((made[2].weight == 0).sum()) == 9
    assert sorted(made.state_dict()) == ["0.bias", "0.weight_mask", "0.weight_orig", "2.bias", "2.weight_mask", "2.weight_orig"]
    kept = np.sort(np.abs(made[0].weight_orig.detach().numpy().reshape(-1)))
    assert np.abs(made[0].weight.detach().numpy()[~zeros.numpy()]).min() >= kept[12]
    optimizer = torch.optim.SGD(made.parameters(), lr=0.1, momentum=0.9)
    for _ in range(2):
        optimizer.zero_grad()
        (made(X) ** 2).sum().backward()
        optimizer.step()
    assert bool((made[0].weight.detach()[zeros] == 0).all()) and bool((made[0].weight_orig.grad[zeros] == 0).all())
    assert prune.is_pruned(made)
    for layer in (made[0], made[2]):
        prune.remove(layer, "weight")
    assert not prune.is_pruned(made) and sorted(made.state_dict()) == sorted(net().state_dict()) and int((made[0].weight == 0).sum()) == 12
    assert type(made[0]) is nn.Linear


def test_pruning_of_several_and_its_errors():
    made = net()
    prune.global_unstructured([(made[0], "weight"), (made[2], "weight")], pruning_method=prune.L1Unstructured, amount=0.2)
    assert int((made[0].weight == 0).sum()) + int((made[2].weight == 0).sum()) == round(0.2 * 42)
    prune.custom_from_mask(made[0], "bias", torch.tensor([1, 0, 1, 0, 1, 0]))
    assert [i for i, z in enumerate((made[0].bias == 0).tolist()) if z] [-2:] == [3, 5]
    prune.random_structured(made[0], "weight", 2, 0)
    assert int(((made[0].weight != 0).sum(1) == 0).sum()) >= 2
    prune.random_unstructured(made[0], "weight", 3)
    for call, words in (
        (lambda: prune.l1_unstructured(made[2], "weight", 1.5), "amount=1.5 is no share"),
        (lambda: prune.l1_unstructured(made[2], "weight", 1000), "that can be pruned"),
        (lambda: prune.l1_unstructured(made[2], "wieght", 1), "no parameter 'wieght'"),
        (lambda: prune.remove(made[2], "bias"), "was not pruned"),
        (lambda: prune.l1_unstructured(made[2], "bias", 1, importance_scores=X), "importance_scores have shape"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=words):
            call()
    with pytest.raises(TypeError, match="prunes slices"):
        prune.global_unstructured([(made[0], "weight")], prune.LnStructured, amount=1, n=2)


def test_a_softmax_of_clusters():
    made = nn.AdaptiveLogSoftmaxWithLoss(8, 12, [3, 7], div_value=2.0)
    h = torch.arange(40.0).reshape(5, 8).cos()
    target = torch.tensor([0, 3, 11, 2, 8])
    output, loss = made(h, target)
    logs = made.log_prob(h).detach().numpy()
    assert np.allclose(np.exp(logs).sum(1), 1, atol=1e-6) and made.predict(h).tolist() == logs.argmax(1).tolist()
    assert np.allclose(output.detach().numpy(), logs[np.arange(5), target.numpy()]) and np.isclose(loss.item(), -output.mean().item())
    assert [tuple(p.shape) for p in made.parameters()] == [(5, 8), (4, 8), (4, 4), (2, 8), (5, 2)]
    loss.backward()
    assert all(p.grad is not None for p in made.parameters())
    with pytest.raises(ValueError, match="rising whole numbers"):
        nn.AdaptiveLogSoftmaxWithLoss(8, 12, [7, 3])
    with pytest.raises(ValueError, match=r"targets must lie in \[0, 11\]"):
        made(h, target + 1)


def test_lazy_layers_become_those_of_the_dialect():
    layer = nn.LazyConv2d(4, 3)
    layer(torch.zeros(1, 2, 5, 5))
    assert type(layer) is nn.Conv2d and layer.bias.shape == (4,)
    norm = nn.LazyBatchNorm1d()
    norm(torch.zeros(2, 3))
    assert type(norm) is nn.BatchNorm1d and norm.momentum == 0.1 and norm.weight.shape == (3,)


def test_random_slopes():
    x = -torch.ones(1000)
    slopes = -nn.RReLU(0.2, 0.4)(x).numpy()
    assert 0.2 <= slopes.min() < 0.21 and 0.39 < slopes.max() <= 0.4
    with pytest.raises(ValueError, match="above upper"):
        nn.functional.rrelu(x, 0.5, 0.1)
    channels = nn.FeatureAlphaDropout(0.5)(torch.ones(64, 8, 3)).numpy()
    assert len(np.unique(channels.round(4))) == 2 and (channels == channels[:, :, :1]).all()
