"""`torch.compile`, files and optimizers of plain tensors in PyTorch's dialect."""

import copy
import warnings

import pytest

import tengen.pytorch as torch
from tengen.pytorch import nn


def parts(seed=0):
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    return net, torch.optim.SGD(net.parameters(), lr=0.1), torch.randn(5, 4)


def losses_of(step, x):
    return [step(x).item() for _ in range(4)]


def test_a_compiled_step_has_the_bits_of_the_plain_one():
    def made(compiled):
        net, optimizer, x = parts()

        def step(x):
            optimizer.zero_grad()
            loss = net(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss

        return losses_of(torch.compile(step) if compiled else step, x)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert made(True) == made(False)


def test_a_gradient_around_a_compiled_module():
    net, optimizer, x = parts()
    compiled = torch.compile(net)
    assert isinstance(compiled, nn.Module) and [n for n, _ in compiled.named_parameters()][0] == "_orig_mod.0.weight"

    def step(x, call):
        optimizer.zero_grad()
        loss = call(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    found = [step(x, compiled).item() for _ in range(3)]
    net, optimizer, x = parts()
    assert found == [step(x, net).item() for _ in range(3)]
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.compile(net)(x).tolist() == net(x).tolist()


def test_a_checkpoint_goes_on(tmp_path):
    net, optimizer, x = parts()
    other, again, _ = parts(7)

    def step(net, optimizer):
        optimizer.zero_grad()
        loss = net(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.item()

    step(net, optimizer)
    torch.save({"net": net.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3}, tmp_path / "state.pt")
    found = torch.load(tmp_path / "state.pt", map_location="cpu")
    other.load_state_dict(found["net"])
    again.load_state_dict(found["optimizer"])
    assert found["epoch"] == 3 and isinstance(found["net"]["0.weight"], torch.Tensor)
    assert step(net, optimizer) == step(other, again)
    with pytest.raises(TypeError, match="state_dict"):
        torch.save(net, tmp_path / "net.pt")


def test_copies_of_a_state_dict_stay_what_they_were():
    net, optimizer, x = parts()
    deep, clones = copy.deepcopy(net.state_dict()), {k: v.clone() for k, v in net.state_dict().items()}
    before = net[0].weight.tolist()
    net(x).sum().backward()
    optimizer.step()
    assert net[0].weight.tolist() != before == deep["0.weight"].tolist() == clones["0.weight"].tolist()


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.Adam, torch.optim.Adagrad])
def test_a_tensor_that_requires_a_gradient_is_optimised(optimizer):
    x = torch.zeros(3, requires_grad=True)
    o = optimizer([x], lr=0.5)
    for _ in range(2):
        o.zero_grad()
        (x - 1).square().sum().backward()
        o.step()
    assert x.requires_grad and 0.5 < x[0].item() <= 1.5
    with pytest.raises(TypeError, match="updates Parameters"):
        optimizer([torch.zeros(3)], lr=0.5)
