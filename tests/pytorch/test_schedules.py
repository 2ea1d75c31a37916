"""Schedulers and loaded states of the PyTorch dialect: several schedulers of one optimizer, and settings that a state brings along."""

import numpy as np
import pytest

import tengen.pytorch as torch
from tengen import optimizer, trace

L = torch.optim.lr_scheduler
CASES = {
    "exponential and steps": lambda o: [L.ExponentialLR(o, 0.9), L.MultiStepLR(o, [3, 6], 0.1)],
    "line and cosine": lambda o: [L.LinearLR(o, 0.5, total_iters=4), L.CosineAnnealingLR(o, 4, 0.01)],
    "constant and exponential": lambda o: [L.ConstantLR(o, 0.1, 2), L.ExponentialLR(o, 0.9)],
    "steps and factors": lambda o: [L.StepLR(o, 3), L.MultiplicativeLR(o, lambda e: 0.95)],
    "lambda and steps": lambda o: [L.LambdaLR(o, lambda e: 0.5**e), L.StepLR(o, 2)],
    "polynomial and plateau": lambda o: [L.PolynomialLR(o, 9, 2.0), L.ConstantLR(o, 0.5, 4)],
    "one after the other": lambda o: [L.SequentialLR(o, [L.LinearLR(o, total_iters=2), L.CosineAnnealingLR(o, 3)], [2])],
}
# What PyTorch 2.13 says: the rate at first, and behind each of eight steps.
RATES = {
    "exponential and steps": [0.1, 0.09, 0.081, 0.00729, 0.006561, 0.0059049, 0.000531441, 0.000478297, 0.000430467],
    "line and cosine": [0.05, 0.0548116, 0.0426716, 0.0216523, 0.01, 0.0231802, 0.055, 0.0868198, 0.1],
    "constant and exponential": [0.01, 0.009, 0.081, 0.0729, 0.06561, 0.059049, 0.0531441, 0.0478297, 0.0430467],
    "steps and factors": [0.1, 0.095, 0.09025, 0.00857375, 0.00814506, 0.00773781, 0.000735092, 0.000698337, 0.00066342],
    "lambda and steps": [0.1, 0.05, 0.0025, 0.0125, 0.000625, 0.003125, 0.00015625, 0.00078125, 3.90625e-05],
    "polynomial and plateau": [0.05, 0.0395062, 0.0302469, 0.0222222, 0.0308642, 0.0197531, 0.0111111, 0.00493827, 0.00123457],
    "one after the other": [0.0333333, 0.0666667, 0.1, 0.075, 0.025, 0.0, 0.025, 0.075, 0.1],
}


def made():
    return torch.optim.SGD([torch.ones(1, requires_grad=True)], lr=0.1)


@pytest.mark.parametrize("case", CASES)
def test_schedulers_multiply_each_other(case):
    opt = made()
    schedulers, rates = CASES[case](opt), [opt.param_groups[0]["lr"]]
    for _ in range(8):
        for s in schedulers:
            s.step()
        rates.append(opt.param_groups[0]["lr"])
    np.testing.assert_allclose(rates, RATES[case], rtol=1e-5, atol=1e-12)


def test_a_rate_set_by_hand_stays():
    opt = made()
    schedule = L.StepLR(opt, 2)
    opt.param_groups[0]["lr"] = 0.7
    for wanted in (0.7, 0.07, 0.07, 0.007):
        schedule.step()
        np.testing.assert_allclose(opt.param_groups[0]["lr"], wanted, rtol=1e-12)


def test_a_schedule_alone_has_the_rates_of_tengens_own():
    for kind, args in (("MultiStepLR", ([2, 3],)), ("LinearLR", ()), ("PolynomialLR", (5, 2.0))):
        one, other = made(), made()
        mine, own = getattr(L, kind)(one, *args), getattr(optimizer, kind)(other, *args)
        for _ in range(7):
            mine.step()
            own.step()
            assert one.param_groups[0]["lr"] == other.param_groups[0]["lr"]


SETTINGS = {
    "SGD": {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.1}, "Adam": {"lr": 0.1, "amsgrad": True},
    "AdamW": {"lr": 0.1, "amsgrad": True}, "RMSprop": {"lr": 0.1, "centered": True, "momentum": 0.9},
}  # fmt: skip


@pytest.mark.parametrize("traced", [False, True])
@pytest.mark.parametrize("name", SETTINGS)
def test_a_state_brings_its_settings(name, traced):
    """An optimizer made with defaults goes on as the one whose state it takes, also where its step has been traced before."""
    p, q = (torch.nn.Parameter(torch.ones(3)) for _ in range(2))
    first, second = getattr(torch.optim, name)([p], **SETTINGS[name]), getattr(torch.optim, name)([q], lr=0.5)

    def of(x, opt):
        def step():
            x.grad = 2 * x.detach() - 1
            opt.step()

        return trace(step) if traced else step

    steps = of(p, first), of(q, second)
    for _ in range(2):
        steps[0]()
        steps[1]()
    with torch.no_grad():
        q.copy_(p)
    second.load_state_dict(first.state_dict())
    for _ in range(2):
        steps[0]()
        steps[1]()
    assert p.detach().numpy().tobytes() == q.detach().numpy().tobytes()
    second.load_state_dict(getattr(torch.optim, name)([torch.nn.Parameter(torch.ones(3))], lr=0.5).state_dict())  # and back
    assert second.param_groups[0]["lr"] == 0.5 and not second.param_groups[0].get("momentum") and not second.param_groups[0].get("amsgrad")
