"""Containers of the PyTorch dialect: names in state dicts and modules as attributes, compared with what PyTorch 2.13 said of the same lines."""

import copy
from collections import OrderedDict

import pytest

import tengen.module as M
import tengen.pytorch as torch
from tengen import Parameter
from tengen.pytorch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.d = nn.ModuleDict({"b": nn.Linear(2, 3), "a": nn.ReLU(), "c": nn.ModuleDict({"x": nn.Linear(1, 1)})})
        self.l = nn.ModuleList([nn.Linear(2, 3), nn.ModuleList([nn.Linear(1, 1)])])
        self.q = nn.ParameterDict({"z": nn.Parameter(torch.ones(2)), "y": nn.Parameter(torch.ones(1))})
        self.s = nn.Sequential(OrderedDict([("k", nn.Linear(1, 2)), ("j", nn.ReLU())]))
        self.register_buffer("buf", torch.ones(1))


PARAMETERS = ["d.b.weight", "d.b.bias", "d.c.x.weight", "d.c.x.bias", "l.0.weight", "l.0.bias", "l.1.0.weight", "l.1.0.bias", "q.y", "q.z",
              "s.k.weight", "s.k.bias"]  # fmt: skip


def test_names_and_their_order():
    n = Net()
    assert list(n.state_dict()) == ["buf", *PARAMETERS] and [name for name, _ in n.named_parameters()] == PARAMETERS
    modules = ["", "d", "d.b", "d.a", "d.c", "d.c.x", "l", "l.0", "l.1", "l.1.0", "q", "s", "s.k", "s.j"]
    assert [name for name, _ in n.named_modules()] == modules
    other = Net()
    other.load_state_dict(n.state_dict())
    assert torch.equal(other.d.b.weight, n.d["b"].weight)


@pytest.mark.parametrize("lib", [nn, M])
def test_modules_of_a_dict_are_attributes(lib):
    d = lib.ModuleDict({"b": lib.Linear(2, 3), "a": lib.ReLU()})
    d.b, d.new = lib.Identity(), lib.Linear(3, 3)
    assert list(d) == ["b", "a", "new"] and d["b"] is d.b and isinstance(d.b, lib.Identity) and "new" in dir(d)
    del d.new
    assert list(d) == list(copy.deepcopy(d)) == ["b", "a"]
    with pytest.raises(AttributeError, match="'ModuleDict' object has no attribute 'new'"):
        d.new  # noqa: B018  (it is asked for)
    d["keys"] = lib.ReLU()
    assert list(d.keys()) == ["b", "a", "keys"]  # methods come first


@pytest.mark.parametrize("lib", [nn, M])
def test_parameters_of_a_container_of_ones_own(lib):
    """What a subclass sets beside the modules is found, too."""

    class Scaled(lib.ModuleDict):
        def __init__(self):
            super().__init__({"a": lib.Linear(1, 1)})
            self.scale = Parameter([2.0])

    class Stack(lib.ModuleList):
        def __init__(self):
            super().__init__([lib.Linear(1, 1)])
            self.scale = Parameter([2.0])

    assert {n for n, _ in Scaled().named_parameters()} == {"scale", "a.weight", "a.bias"}
    assert {n for n, _ in Stack().named_parameters()} == {"scale", "0.weight", "0.bias"}


def test_the_members_that_programs_walk_through():
    n = Net()
    assert (list(n._modules), list(n._parameters), list(n._buffers)) == (["d", "l", "q", "s"], [], ["buf"])
    assert (list(n.s._modules), list(n.l._modules), list(n.s.k._parameters)) == (["k", "j"], ["0", "1"], ["weight", "bias"])
    n.s._modules["k"], n.l._modules["0"], n.d._modules["b"] = nn.Identity(), nn.Tanh(), nn.Tanh()
    assert isinstance(n.s[0], nn.Identity) and isinstance(n.l[0], nn.Tanh) and isinstance(n.d["b"], nn.Tanh)
    for name, m in n._modules.items():
        if isinstance(m, nn.Sequential):
            n._modules[name] = nn.ReLU()
    assert isinstance(n.s, nn.ReLU) and n._modules.get("none") is None and len(n._modules) == 4
    n.s, last = nn.Linear(1, 1), n.s
    del n._buffers["buf"]
    assert not hasattr(n, "buf") and isinstance(last, nn.ReLU)
    with pytest.raises(KeyError, match="buf"):
        del n._buffers["buf"]


def test_norms_of_weights_have_their_newer_names():
    m = nn.utils.parametrizations.weight_norm(nn.Linear(2, 3))
    assert {n for n, _ in m.named_parameters()} == {"weight_g", "weight_v", "bias"} and m(torch.ones(1, 2)).shape == (1, 3)
    assert nn.utils.parametrizations.spectral_norm is nn.utils.spectral_norm
