"""Complex parameters: each optimizer updates them as the pairs of floats that they hold; eagerly, traced, resumed, and as PyTorch."""

import numpy as np
import pytest

from tengen import Parameter, Tensor, optimizer, trace
from tengen import functional as F
from tengen.autodiff import GradManager

NAMES = [n for n in optimizer.__all__ if isinstance(c := getattr(optimizer, n), type) and issubclass(c, optimizer.Optimizer)]
NAMES = [n for n in NAMES if n not in ("Optimizer", "LBFGS", "LAMBFp16")]
START = np.array([[1 + 2j, -3j], [0.5 - 0.25j, -2.0]])
GOAL = np.array([[1j, 1.0], [2 - 1j, 0.0]])
SETTINGS = {"SGD": {"momentum": 0.5}}


def trained(name, d, traced, steps=5, real=False):
    start = np.stack([START.real, START.imag], -1) if real else START
    goal = Tensor(np.stack([GOAL.real, GOAL.imag], -1) if real else GOAL, dtype=d)
    p = Parameter(Tensor(start, dtype=d))
    opt, gm = getattr(optimizer, name)([p], lr=0.1, **SETTINGS.get(name, {})), GradManager().attach([p])

    def step():
        with gm:
            away = p - goal
            away = away if real else F.view_as_real(away)
            gm.backward((away * away).sum())
        opt.step().clear_grad()

    step = trace(step) if traced else step
    for i in range(steps):
        if i == 2:  # a run that goes on from its state
            state = opt.state_dict()
            other = getattr(optimizer, name)([p], lr=0.1, **SETTINGS.get(name, {}))
            other.load_state_dict(state)
            opt.load_state_dict(other.state_dict())
        step()
    return p.numpy()


@pytest.mark.parametrize("name", NAMES)
def test_updates_are_those_of_pairs(name):
    want = trained(name, "float32", False, real=True)
    for traced in (False, True):
        got = trained(name, "complex64", traced)
        assert got.dtype == np.complex64 and np.stack([got.real, got.imag], -1).tobytes() == want.tobytes()


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "Adamax", "NAdam", "RAdam", "RMSprop", "Rprop", "Adadelta"])
def test_beside_pytorch(name):
    torch = pytest.importorskip("torch")
    p = torch.nn.Parameter(torch.tensor(START))
    opt = getattr(torch.optim, name)([p], lr=0.1, **SETTINGS.get(name, {}))
    for _ in range(5):
        opt.zero_grad()
        (abs(p - torch.tensor(GOAL)) ** 2).sum().backward()
        opt.step()
    np.testing.assert_allclose(trained(name, "complex128", False), p.detach().numpy(), rtol=1e-5, atol=1e-6)


def test_lbfgs():
    p = Parameter(Tensor(START))
    opt, gm = optimizer.LBFGS([p], line_search_fn="strong_wolfe"), GradManager().attach([p])

    def closure():
        opt.clear_grad()
        with gm:
            loss = (abs(p - Tensor(GOAL)) ** 2).sum()
            gm.backward(loss)
        return loss

    opt.step(closure)
    np.testing.assert_allclose(p.numpy(), GOAL, atol=1e-6)
