"""What state dicts of the dialect's optimizers hold: tensors, as in PyTorch, that are saved, copied and loaded."""

import copy
import io

import numpy as np
import pytest

import tengen.pytorch as torch
from tengen import optimizer as own
from tengen.pytorch import nn

NAMES = [n for n in torch.optim.__all__ if isinstance(getattr(torch.optim, n), type) and n not in ("Optimizer", "LBFGS", "Muon")]


def _stepped(make, steps, net=None):
    net = net or nn.Linear(2, 2, bias=False)
    optimizer = make(net.parameters())
    for _ in range(steps):
        _step(net, optimizer)
    return net, optimizer


def _step(net, optimizer):
    optimizer.zero_grad()
    net(torch.tensor([[1.0, -2.0]])).square().sum().backward()
    optimizer.step()


@pytest.mark.parametrize("name", NAMES)
def test_states_are_tensors_that_go_on_after_a_file(name):
    how = {"momentum": 0.9} if name == "SGD" else {}
    make = lambda parameters: getattr(torch.optim, name)(parameters, lr=0.01, **how)
    net, optimizer = _stepped(make, 2)
    states = optimizer.state_dict()["state"]
    assert isinstance(optimizer, own.Optimizer) and list(states) == [0] and states[0]
    assert all(isinstance(v, torch.Tensor) for v in states[0].values())
    kept, file = copy.deepcopy(optimizer.state_dict()), io.BytesIO()
    torch.save({"net": net.state_dict(), "optimizer": optimizer.state_dict()}, file)
    again, other = _stepped(make, 0)
    loaded = torch.load(io.BytesIO(file.getvalue()))
    again.load_state_dict(loaded["net"])
    other.load_state_dict(loaded["optimizer"])
    for n, o in ((net, optimizer), (again, other)):
        _step(n, o)
    assert again.weight.tolist() == net.weight.tolist()
    moved = [k for k, v in kept["state"][0].items() if k != "mu" and v.tolist() != states[0][k].tolist()]
    assert moved, "the tensors are the optimizer's own, and a deep copy is not"


def test_labels_that_are_floats_count_as_the_integers_they_hold():
    scores = torch.from_numpy(np.random.RandomState(0).standard_normal((5, 2, 4)).astype(np.float32)).log_softmax(-1)
    labels, ctc = torch.tensor([[1, 2], [3, 0]]), nn.CTCLoss()
    want = ctc(scores, labels, [5, 4], [2, 1]).item()
    assert ctc(scores, labels.float(), [5, 4], [2, 1]).item() == want
    assert ctc(scores[:, 0], labels[0].double(), [5], [2]).item() == ctc(scores[:, 0], labels[0], [5], [2]).item()
