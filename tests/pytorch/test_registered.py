"""What belongs to a module of the dialect: what its program registers, as in PyTorch. Kept lists and tensors are neither saved nor trained."""

import copy
import re

import pytest

import tengen.pytorch as torch
from tengen import module as M
from tengen.module import Module as Plain
from tengen.pytorch import nn


class _Keeps(nn.Module):
    """A student that hides its teacher in a list, and keeps what it has computed."""

    def __init__(self, teacher):
        super().__init__()
        self.linear, self.teacher, self.by_name = nn.Linear(2, 2), [teacher], {"teacher": teacher}
        self.scale, self.last, self.seen = torch.tensor(2.0), None, []
        self.register_buffer("steps", torch.zeros((), dtype=torch.long))
        self.register_buffer("later", None)

    def forward(self, x):
        self.last = self.linear(x) * self.scale
        self.seen.append(self.last.detach())
        self.steps = self.steps + 1
        return self.last


@pytest.mark.parametrize("compiled", [False, True])
def test_only_what_is_registered_is_saved_trained_and_cast(compiled):
    teacher = nn.Linear(2, 2)
    net = _Keeps(teacher)
    call, expected = torch.compile(net) if compiled else net, ["linear.weight", "linear.bias", "steps"]
    for _ in range(2):
        call(torch.ones(1, 2))
    assert sorted(net.state_dict()) == sorted(expected) and net.steps.item() == 2 and len(net.seen) == 2
    assert [n for n, _ in net.named_buffers()] == ["steps"] and list(net._buffers) == ["steps"]
    assert sorted(n for n, _ in net.named_parameters()) == ["linear.bias", "linear.weight"] and len(list(net.modules())) == 2
    assert not _Keeps(teacher).load_state_dict(net.state_dict()).missing_keys
    net.double().requires_grad_(False).eval()
    assert net.linear.weight.dtype == torch.float64 and net.scale.dtype == torch.float32
    assert teacher.weight.dtype == torch.float32 and teacher.weight.requires_grad and teacher.training
    assert list(copy.deepcopy(net).state_dict()) == list(net.state_dict())


def test_what_is_registered_does_not_depend_on_who_sets_it():
    kept, net = nn.Linear(2, 2), nn.Module()
    scope = {"__name__": "tengen.plugin", "net": net, "kept": kept, "torch": torch}
    exec("net.scale, net.kept = torch.ones(2), [kept]; net.register_buffer('steps', torch.zeros(1))", scope)
    assert list(net.state_dict()) == ["steps"] and list(net.modules()) == [net]
    norm, layers = nn.BatchNorm1d(2), nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 4), 2).layers
    assert list(norm.state_dict()) == ["weight", "bias", "running_mean", "running_var"] == [*norm._parameters, *norm._buffers]
    assert type(layers) is type(layers[:1]) is nn.ModuleList and [n for n, _ in layers.named_children()] == ["0", "1"]


def test_a_buffer_that_is_registered_without_a_value_takes_one():
    net = _Keeps(nn.Linear(2, 2))
    net.later = torch.ones(2)
    net.own = torch.ones(2)
    net.register_buffer("own_later", torch.ones(2))
    assert "later" in net.state_dict() and "own_later" in net.state_dict() and "own" not in net.state_dict()
    net._buffers["fourth"] = torch.ones(2)
    assert "fourth" in net.state_dict()


def test_an_attribute_changes_its_kind_by_what_is_set():
    net = nn.Module()
    net.w = torch.ones(2)
    net.w = nn.Parameter(net.w)
    assert list(net.state_dict()) == ["w"]
    says = "Module.w is a parameter of shape (2,) and cannot become a Tensor; help: a Parameter or None"
    with pytest.raises(TypeError, match=re.escape(says)):
        net.w = torch.zeros(2)
    del net.w
    net.w = torch.zeros(2)
    assert not net.state_dict()
    norm = nn.BatchNorm1d(2)
    with pytest.raises(TypeError, match=re.escape("BatchNorm1d.running_mean is a buffer of shape (2,) and cannot become a list")):
        norm.running_mean = [0.0, 0.0]


def test_a_recurrent_network_has_what_a_subclass_adds():
    class Tagger(nn.LSTM):
        def __init__(self):
            super().__init__(2, 3)
            self.tags = nn.Linear(3, 4)

        def forward(self, x):
            return self.tags(super().forward(x)[0])

    net = Tagger()
    assert list(net.state_dict()) == ["weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0", "tags.weight", "tags.bias"]
    net(torch.ones(2, 1, 2)).sum().backward()
    assert all(p.grad is not None for p in net.parameters())


@pytest.mark.parametrize(
    ("norm", "shape"), [(nn.BatchNorm1d(3), (1, 3)), (nn.BatchNorm2d(3), (1, 3, 1, 1)), (nn.InstanceNorm2d(3), (2, 3, 1, 1))]
)
def test_a_norm_of_one_value_is_refused_in_training(norm, shape):
    with pytest.raises(ValueError, match=re.escape(f"a norm of an input of shape {shape} has one value per channel")):
        norm(torch.ones(shape))
    nn.BatchNorm1d(3).eval()(torch.ones(1, 3))


def test_a_class_says_what_of_it_trains():
    class Frozen(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.drop = nn.BatchNorm1d(2), nn.Dropout()

        def train(self, mode=True):
            super().train(mode)
            self.norm.eval()
            return self

    net = nn.Sequential(nn.Sequential(Frozen()), nn.Dropout())
    assert net.train() is net and not net[0][0].norm.training and net[0][0].drop.training and net[0][0].training and net[1].training
    net[0][0].norm.running_mean.add_(1.0)
    net[1].eval(), net[0][0].drop.eval()
    assert (torch.compile(lambda x: net[0][0].norm(x))(torch.ones(3, 2)).abs() < 1e-6).all()
    assert net.eval() is net and not any(m.training for m in net.modules())


def test_a_sequential_is_a_list():
    a, b, c, d = nn.Linear(1, 2), nn.ReLU(), nn.Linear(2, 3), nn.Tanh()
    net = nn.Sequential(a, b, c)
    del net[1]
    assert list(net) == [a, c] and list(net.state_dict()) == ["0.weight", "0.bias", "1.weight", "1.bias"]
    net.append(d)  # under a number of its own
    assert list(net) == [a, c, d] and net.insert(1, b) is net and list(net) == [a, b, c, d] and net.insert(-1, b)[3] is b
    assert net.pop(3) is b and net.pop(-1) is d and list(net + nn.Sequential(d)) == [a, b, c, d]
    net += [d]
    assert list(net) == [a, b, c, d] and [n for n, _ in net.named_children()] == ["0", "1", "2", "3"]
    assert net(torch.ones(1, 1)).shape == (1, 3) and torch.compile(net)(torch.ones(1, 1)).shape == (1, 3)
    del net[1:3]
    assert list(net) == [a, d]
    with pytest.raises(IndexError, match=re.escape("Sequential.insert(3): there are 2 modules")):
        net.insert(3, b)


def test_every_layer_is_a_module_of_the_dialect():
    every = [getattr(nn, n) for n in nn.__all__ if isinstance(getattr(nn, n), type) and issubclass(getattr(nn, n), Plain)]
    bare = sorted(c.__name__ for c in every if nn.Module not in c.__mro__ and not c.__name__.startswith("Lazy"))
    assert len(every) > 140 and not bare

    class Scaled(nn.ReLU):
        def __init__(self):
            super().__init__()
            self.scale, self.bias, self.seen = nn.Parameter(torch.ones(1)), nn.Parameter(torch.zeros(1)), torch.ones(2)

        def forward(self, x):
            return super().forward(x) * self.scale + self.bias

    net = nn.Sequential(Scaled(), nn.MaxPool1d(2), nn.Dropout(0.5))
    walk = lambda m: [*m._parameters, *(name for child in m._modules.values() for name in walk(child))]
    assert walk(net) == ["scale", "bias"] and [n for m in net for n, _ in m.named_parameters(recurse=0)] == ["scale", "bias"]
    assert list(net[0].state_dict(prefix="a.")) == ["a.scale", "a.bias"] and net[1].extra_repr() and not net[2]._buffers
    assert isinstance(net[1], M.MaxPool1d) and repr(nn.Tanh()) == "Tanh()" and not list(nn.MSELoss().parameters(recurse=False))


def test_what_was_a_plain_list_stands_where_it_is_registered():
    """As programs collect layers: the list first, the `ModuleList` of it last. Optimizers count parameters in this order."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = [nn.Linear(2, 2, bias=False)]
            self.scale = None
            self.head = nn.Linear(2, 1, bias=False)
            self.layers = nn.ModuleList(self.layers)
            self.scale = nn.Parameter(torch.ones(1))

    assert [name for name, _ in Net().named_parameters()] == ["scale", "head.weight", "layers.0.weight"]
    assert [name for name, _ in Net().named_children()] == ["head", "layers"]


def test_a_layer_without_a_bias_in_other_words():
    for layer in (nn.Linear(2, 1, bias=None), nn.Conv2d(1, 1, 1, bias=None), nn.ConvTranspose1d(1, 1, 1, bias=None), nn.Linear(2, 1, bias=0)):
        assert layer.bias is None and list(layer.state_dict()) == ["weight"]
    table = nn.Embedding(3, 2)
    assert table.sparse is False and nn.functional.embedding(torch.tensor([1]), table.weight, sparse=table.sparse).shape == (1, 2)
