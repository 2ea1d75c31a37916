"""State dicts of the dialect's modules: hooks, extra states, and what subclasses save and take by themselves."""

import re

import numpy as np
import pytest

import tengen.pytorch as torch
from tengen.pytorch import nn


class _Counts(nn.Module):
    """A layer whose checkpoint has a number beside tensors, and an older name of its weight."""

    def __init__(self):
        super().__init__()
        self.w, self.n = nn.Parameter(torch.ones(2)), 0

    def get_extra_state(self):
        return {"n": self.n}

    def set_extra_state(self, state):
        self.n = state["n"]

    def _load_from_state_dict(self, state_dict, prefix, *args):
        if prefix + "old" in state_dict:
            state_dict[prefix + "w"] = state_dict.pop(prefix + "old")
        super()._load_from_state_dict(state_dict, prefix, *args)


def test_extra_states_and_older_names(tmp_path):
    net = nn.Sequential(_Counts(), nn.Linear(2, 1))
    net[0].n = 7
    assert list(net.state_dict()) == ["0.w", "0._extra_state", "1.weight", "1.bias"]
    torch.save(net.state_dict(), tmp_path / "net.pt")
    other = nn.Sequential(_Counts(), nn.Linear(2, 1))
    other.load_state_dict(torch.load(tmp_path / "net.pt"))
    assert other[0].n == 7 and np.array_equal(other[1].weight.detach().numpy(), net[1].weight.detach().numpy())
    older = {"old": torch.tensor([3.0, 4.0]), "_extra_state": {"n": 1}}
    net[0].load_state_dict(older)
    assert net[0].w.tolist() == [3.0, 4.0] and "old" in older  # the program's own dict stays
    with pytest.raises(RuntimeError, match=re.escape("missing: _extra_state")):
        net[0].load_state_dict({"w": torch.ones(2)})


def test_hooks_see_the_dict_on_its_way():
    net, seen = nn.Sequential(nn.Linear(2, 1, bias=False)), []
    net[0].register_state_dict_pre_hook(lambda m, prefix, keep: seen.append(("saving", prefix, keep)))
    net[0]._register_state_dict_hook(lambda m, d, prefix, about: d.update({f"{prefix}half": d[prefix + "weight"] / 2}))
    saved = net.state_dict()
    assert list(saved) == ["0.weight", "0.half"] and seen == [("saving", "0.", False)]

    def before(d, prefix, about, strict, missing, unexpected, errors):
        d[prefix + "weight"] = d.pop(prefix + "half") * 4

    handle = net[0]._register_load_state_dict_pre_hook(before)
    weight = saved["0.weight"].clone()
    net.load_state_dict(saved)
    assert np.array_equal(net[0].weight.detach().numpy(), 2 * weight.numpy())
    handle.remove()
    with pytest.raises(RuntimeError, match=re.escape("unexpected: 0.half")):
        net.load_state_dict(saved)
    net.register_load_state_dict_post_hook(lambda m, keys: keys.unexpected_keys.clear())
    assert net.load_state_dict(saved) == ([], [])


def test_a_module_inside_says_by_itself_what_it_saves():
    class Silent(nn.Linear):
        def state_dict(self, *args, destination=None, prefix="", keep_vars=False):
            return destination

    class More(nn.Linear):
        def _save_to_state_dict(self, destination, prefix, keep_vars):
            super()._save_to_state_dict(destination, prefix, keep_vars)
            destination[prefix + "more"] = self.weight.sum()

    assert list(nn.Sequential(Silent(2, 1), More(2, 1, bias=False)).state_dict()) == ["1.weight", "1.more"]


def test_both_names_of_a_shared_weight_are_missing():
    net = nn.ModuleDict({"a": nn.Linear(2, 2, bias=False), "b": nn.Linear(2, 2, bias=False), "c": nn.Linear(2, 2, bias=False)})
    net["b"].weight = net["a"].weight
    assert net.load_state_dict({"c.weight": torch.ones(2, 2)}, strict=False).missing_keys == ["a.weight", "b.weight"]
    assert net.load_state_dict({"c.weight": torch.ones(2, 2), "b.weight": torch.ones(2, 2)}, strict=False).missing_keys == []
    assert net["a"].weight.tolist() == [[1.0, 1.0], [1.0, 1.0]]


def test_a_module_is_compiled_in_place():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.l, self.calls = nn.Linear(2, 1), []

        def forward(self, x):
            self.calls.append(x.shape[0])
            return self.l(x)

    net = Net()
    x = torch.ones(3, 2)
    eager = net(x)
    names = list(net.state_dict())
    net.compile()
    for _ in range(3):
        assert net(x).detach().numpy().tobytes() == eager.detach().numpy().tobytes()
    assert list(net.state_dict()) == names and net.calls == [3, 3, 3, 3]


def test_a_compiled_function_appends_in_every_call():
    shapes, names = [], []
    net = nn.Linear(2, 1)
    net.register_forward_hook(lambda m, given, out: names.append(type(m).__name__))

    def f(x):
        shapes.append(x.shape)
        return net(x)

    g = torch.compile(f)
    for n in (1, 1, 2, 1):
        g(torch.ones(n, 2))
    assert shapes == [(1, 2), (1, 2), (2, 2), (1, 2)] and names == ["Linear"] * 4


def test_tensors_keep_their_dtype_unless_they_are_assigned():
    """A checkpoint of float64 made a network of float64, of twice the bytes. torch 2.13 has the dtypes below."""
    net = nn.Linear(2, 3).half()
    given = {"weight": torch.ones(3, 2, dtype=torch.float64) / 3, "bias": torch.ones(3, dtype=torch.int32)}
    net.load_state_dict(given)
    assert net.weight.dtype == net.bias.dtype == torch.float16 and net.weight[0, 0].item() == np.float16(1 / 3)
    net.load_state_dict({name: value.numpy() for name, value in given.items()})
    assert net.weight.dtype == torch.float16 and net.weight.requires_grad
    net.load_state_dict(given | {"bias": torch.ones(3)}, assign=True)
    assert (net.weight.dtype, net.bias.dtype) == (torch.float64, torch.float32)
    with pytest.raises(RuntimeError, match="weight: complex64 is no float64"):
        net.load_state_dict(given | {"weight": torch.ones(3, 2, dtype=torch.complex64)})
