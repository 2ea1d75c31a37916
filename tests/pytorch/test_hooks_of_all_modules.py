"""Hooks of all modules: their order, what they replace, recordings that were made before; and `torch.hub` of a folder."""

import numpy as np
import pytest

import tengen.pytorch as torch
from tengen import trace
from tengen.base.errors import ArgumentError, GradientError, HubError
from tengen.pytorch import nn
from tengen.pytorch.nn.modules import module as hooks

X = np.array([[1.0, -2.0]], "f4")


@pytest.fixture
def net():
    made = nn.Sequential(nn.Linear(2, 3), nn.ReLU())
    with torch.no_grad():
        made[0].weight.copy_(torch.tensor([[1.0, 0.0], [0.0, -1.0], [1.0, 1.0]]))
        made[0].bias.zero_()
    return made


def test_hooks_see_all_modules_before_their_own(net):
    seen = []
    own = [net[0].register_forward_pre_hook(lambda m, i: seen.append("own before"))]
    own.append(net[0].register_forward_hook(lambda m, i, o: seen.append("own")))
    say = lambda what: lambda m, *rest: seen.append(f"{what} {type(m).__name__}")
    with hooks.register_module_forward_pre_hook(say("before")), hooks.register_module_forward_hook(say("behind")):
        net(torch.tensor(X))
    linear = ["before Linear", "own before", "behind Linear", "own"]
    assert seen == ["before Sequential", *linear, "before ReLU", "behind ReLU", "behind Sequential"]
    seen.clear()
    for handle in own:
        handle.remove()
    net(torch.tensor(X))
    assert seen == []


def test_hooks_replace_inputs_outputs_and_gradients(net):
    x = torch.tensor(X, requires_grad=True)
    linear = lambda m: isinstance(m, nn.Linear)
    with hooks.register_module_forward_pre_hook(lambda m, i: i[0] * 2 if linear(m) else None):
        assert net(x).tolist() == [[2.0, 4.0, 0.0]]
    handle = hooks.register_module_forward_hook(lambda m, i, kwargs, o: o + len(kwargs) + 1 if linear(m) else None, with_kwargs=True)
    assert net(x).tolist() == [[2.0, 3.0, 0.0]]
    handle.remove()
    shapes = []
    before = hooks.register_module_full_backward_pre_hook(lambda m, go: (go[0] * 3,) if linear(m) else None)
    after = hooks.register_module_full_backward_hook(lambda m, gi, go: shapes.append((type(m).__name__, gi[0].shape, go[0].shape)))
    net(x).sum().backward()
    assert net[0].bias.grad.tolist() == [3.0, 3.0, 0.0] and x.grad.tolist() == [[3.0, -3.0]]
    assert {s[0]: s[1:] for s in shapes} == {"Sequential": ((1, 2), (1, 3)), "ReLU": ((1, 3), (1, 3)), "Linear": ((1, 2), (1, 3))}
    before.remove(), after.remove()
    with hooks.register_module_full_backward_hook(lambda m, gi, go: (gi[0].sum(),)), pytest.raises(GradientError, match="a backward hook of"):
        net(x).sum().backward()


def test_a_recording_made_before_hears_of_them(net):
    """Of a function, and of a step with gradients; taken off again, the first result is back."""
    x = torch.tensor(X)
    traced = trace(lambda v: net(v))
    plain = [traced(x).tolist() for _ in range(2)][-1]
    with hooks.register_module_forward_hook(lambda m, i, o: o * 2 if isinstance(m, nn.ReLU) else None):
        assert [traced(x).tolist() for _ in range(2)] == [net(x).tolist()] * 2 == [[[2 * v for v in plain[0]]]] * 2
        with hooks.register_module_forward_hook(lambda m, i, o: o + 1 if isinstance(m, nn.ReLU) else None):
            assert traced(x).tolist() == net(x).tolist() != plain
    assert traced(x).tolist() == plain == net(x).tolist()

    def step(v):
        net.zero_grad()
        net(v).sum().backward()
        return net[0].bias.grad

    traced = trace(step)
    assert [traced(x).tolist() for _ in range(2)][-1] == [1.0, 1.0, 0.0]
    with hooks.register_module_full_backward_pre_hook(lambda m, go: (go[0] * 3,) if isinstance(m, nn.Linear) else None):
        assert [traced(x).tolist() for _ in range(2)] == [[3.0, 3.0, 0.0]] * 2
    assert traced(x).tolist() == [1.0, 1.0, 0.0]


def test_hub_of_a_folder(tmp_path):
    (tmp_path / "parts.py").write_text("from tengen.pytorch import nn\n\n\ndef made(width):\n    return nn.Linear(2, width)\n")
    (tmp_path / "hubconf.py").write_text('import parts\n\n\ndef small(width=3):\n    """A small network."""\n    return parts.made(width)\n')
    assert torch.hub.load(str(tmp_path), "small", source="local", trust_repo=True).weight.shape == (3, 2)
    assert torch.hub.load(tmp_path, "small", 5, source="LOCAL").out_features == 5
    assert torch.hub.load(tmp_path, "small", source="local", width=4).out_features == 4
    assert "small" in torch.hub.list(tmp_path) and torch.hub.help(tmp_path, "small") == "A small network."
    with pytest.raises(HubError, match="help: clone pytorch/vision, and pass the path of its folder with source='local'"):
        torch.hub.load("pytorch/vision", "resnet18")
    with pytest.raises(HubError, match="help: one of .*small"):
        torch.hub.load(tmp_path, "smal", source="local")
    with pytest.raises(ArgumentError, match='source=\'disk\' must be "github" or "local"'):
        torch.hub.load(tmp_path, "small", source="disk")


def test_a_hook_takes_itself_off(net):
    seen, x = [], torch.tensor(X)

    def once(*given):
        seen.append(len(given))
        handle.remove()

    for register in (net.register_forward_hook, net.register_forward_pre_hook, hooks.register_module_forward_hook):
        handle = register(once)
        net(x), net(x)
    assert seen == [3, 2, 3]
