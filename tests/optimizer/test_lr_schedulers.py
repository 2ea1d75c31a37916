"""Schedules: against closed formulas written out here, against PyTorch's numbers over 50 steps where it is installed; saved,
resumed, composed, read by traced steps."""

import math

import numpy as np
import pytest

from tengen import Parameter, Tensor, trace
from tengen import optimizer as optim

STEPS = 50


def optimizer(kind="SGD"):
    groups = [{"params": [Parameter([1.0])]}, {"params": [Parameter([1.0])], "lr": 0.25}]
    return optim.SGD(groups, lr=2.0, momentum=0.5) if kind == "SGD" else optim.AdamW(groups, lr=2.0)


def rates(schedule, n=STEPS):
    """The rates of both groups, epoch by epoch."""
    found = []
    for _ in range(n):
        found.append([g["lr"] for g in schedule.optimizer.param_groups])
        schedule.step()
    return np.array(found)


def cosine(start, end, share):
    return end + (start - end) * (1 + math.cos(math.pi * share)) / 2


def restarts(base, e, length=4, factor=2, least=0.125):
    while e >= length:
        e, length = e - length, length * factor
    return cosine(base, least, e / length)


def one_cycle(base, e, most=3.0, steps=50, div=25.0, final=1e4):
    up = 0.3 * steps - 1
    first = most / div
    return cosine(first, most, e / up) if e <= up else cosine(most, first / final, (e - up) / (steps - 1 - up))


def three_phases(base, e, steps=50):
    up = 0.25 * steps - 1
    corners, first = (0.0, up, 2 * up, steps - 1), 3.0 / 25
    return float(np.interp(e, corners, [first, 3.0, first, first / 1e4]))


def triangle(base, e, least=0.125, most=1.0, up=4, down=8, height=lambda cycle, e: 1.0):
    cycle, at = divmod(e, up + down)
    share = at / up if at <= up else (up + down - at) / down
    return least + (most - least) * share * height(cycle + 1, e)


# name -> (arguments after the optimizer, the rate of a group with this initial rate in epoch e)
CASES = {
    "MultiStepLR": (([5, 20, 20, 31], 0.5), {}, lambda b, e: b * 0.5 ** ((e >= 5) + 2 * (e >= 20) + (e >= 31))),
    "StepLR": ((7,), {"gamma": 0.5}, lambda b, e: b * 0.5 ** (e // 7)),
    "ExponentialLR": ((0.9,), {}, lambda b, e: b * 0.9**e),
    "ConstantLR": ((), {"factor": 0.25, "total_iters": 9}, lambda b, e: b * (0.25 if e < 9 else 1)),
    "LinearLR": ((0.25, 0.75), {"total_iters": 12}, lambda b, e: b * (0.25 + 0.5 * min(e / 12, 1))),
    "PolynomialLR": ((40,), {"power": 2.0}, lambda b, e: b * max(1 - e / 40, 0) ** 2),
    "LambdaLR": ((lambda e: 1 / (1 + e),), {}, lambda b, e: b / (1 + e)),
    "MultiplicativeLR": (([lambda e: 0.9, lambda e: 1 - 1 / (e + 1)],), {}, lambda b, e: b * (0.9**e if b == 2.0 else 1 / (e + 1))),
    "CosineAnnealingLR": ((), {"T_max": 50, "eta_min": 0.125}, lambda b, e: cosine(b, 0.125, e / 50)),
    "CosineAnnealingWarmRestarts": ((4, 2), {"eta_min": 0.125}, restarts),
    "CosineAnnealingWarmRestarts, equal": ((6,), {}, lambda b, e: restarts(b, e, 6, 1, 0.0)),
    "OneCycleLR": ((3.0,), {"total_steps": 50}, one_cycle),
    "OneCycleLR, three phases": (
        (3.0,), {"epochs": 10, "steps_per_epoch": 5, "pct_start": 0.25, "anneal_strategy": "linear", "three_phase": True}, three_phases,
    ),
    "CyclicLR": ((0.125, 1.0, 4, 8), {}, triangle),
    "CyclicLR, halves": (
        (0.125, 1.0, 4, 8), {"mode": "triangular2"}, lambda b, e: triangle(b, e, height=lambda cycle, e: 0.5 ** (cycle - 1)),
    ),
    "CyclicLR, fades": (
        (0.125, 1.0, 4, 8), {"mode": "exp_range", "gamma": 0.9}, lambda b, e: triangle(b, e, height=lambda cycle, e: 0.9**e),
    ),
    "CyclicLR, of its own": (
        (0.125, 1.0, 4, 8), {"scale_fn": lambda x: 1 / x}, lambda b, e: triangle(b, e, height=lambda cycle, e: 1 / cycle),
    ),
}  # fmt: skip


def make(name, opt, namespace=optim):
    args, options, _ = CASES[name]
    return getattr(namespace, name.partition(",")[0])(opt, *args, **options)


@pytest.mark.parametrize("name", CASES)
def test_rates_are_those_of_the_formula(name):
    formula = CASES[name][2]
    schedule = make(name, optimizer())
    want = [[formula(b, e) for b in (2.0, 0.25)] for e in range(STEPS)]
    np.testing.assert_allclose(rates(schedule), want, rtol=1e-12, atol=1e-15)
    assert schedule.last_epoch == schedule.current_epoch == STEPS


def theirs(torch, kind="SGD"):
    groups = [{"params": [torch.nn.Parameter(torch.ones(1))]}, {"params": [torch.nn.Parameter(torch.ones(1))], "lr": 0.25}]
    return torch.optim.SGD(groups, lr=2.0, momentum=0.5) if kind == "SGD" else torch.optim.AdamW(groups, lr=2.0)


def their_rates(schedule, opt):
    found = []
    for _ in range(STEPS):
        found.append([float(g["lr"]) for g in opt.param_groups])
        opt.step()
        schedule.step()
    return np.array(found)


@pytest.mark.parametrize("name", CASES)
def test_pytorch_has_the_same_rates(name):
    torch = pytest.importorskip("torch")
    opt = theirs(torch)
    want = their_rates(make(name, opt, torch.optim.lr_scheduler), opt)
    np.testing.assert_allclose(rates(make(name, optimizer())), want, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("kind", ["SGD", "AdamW"])
@pytest.mark.parametrize("name", ["CyclicLR, halves", "OneCycleLR", "OneCycleLR, three phases"])
def test_momenta_go_the_other_way(name, kind):
    """Where the rate is highest the momentum is lowest; PyTorch's numbers, where it is installed."""
    def momenta(opt, schedule):
        found = []
        for _ in range(STEPS):
            found.append([(g["betas"][0] if kind == "AdamW" else g["momentum"], g["lr"]) for g in opt.param_groups])
            schedule.step()
        return np.array(found)

    opt = optimizer(kind)
    found = momenta(opt, make(name, opt))
    m, lr = found[:, 0].T
    ends = (0.8, 0.9) if name.startswith("Cyclic") else (0.85, 0.95)
    assert m[lr.argmax()] == m.min() and ends[0] <= m.min() < m.max() <= ends[1] and m[0] == ends[1]
    torch = pytest.importorskip("torch")
    other = theirs(torch, kind)
    theirs_schedule = make(name, other, torch.optim.lr_scheduler)
    other.step()
    np.testing.assert_allclose(found, momenta(other, theirs_schedule), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", CASES)
def test_a_saved_schedule_goes_on(name):
    opt = optimizer()
    schedule = make(name, opt)
    rates(schedule, 20)
    saved, groups = schedule.state_dict(), opt.state_dict()["param_groups"]
    assert not any(map(callable, saved.values()))
    other = optimizer()
    again = make(name, other)
    for g, s in zip(other.param_groups, groups):
        g.update({k: v for k, v in s.items() if k != "params"})
    again.load_state_dict(saved)
    assert rates(again, 20).tolist() == rates(schedule, 20).tolist()
    third = optimizer()  # by the number of the last epoch alone, as in PyTorch
    for g in third.param_groups:
        g["initial_lr"] = g["lr"]
    if not name.startswith(("Cyclic", "OneCycle")):
        args, options, formula = CASES[name]
        resumed = getattr(optim, name.partition(",")[0])(third, *args, **options, last_epoch=19)
        np.testing.assert_allclose(rates(resumed, 1), [[formula(b, 20) for b in (2.0, 0.25)]], rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("name", CASES)
def test_a_schedule_can_jump(name):
    schedule = make(name, optimizer())
    all_of_them = rates(schedule)
    for e in (30, 3, 17):
        schedule.step(e)
        assert schedule.get_last_lr() == all_of_them[e].tolist()


def test_fractions_of_an_epoch():
    schedule = optim.CosineAnnealingWarmRestarts(optimizer(), 4, 2)
    schedule.step(4.5)
    assert schedule.get_last_lr()[0] == pytest.approx(cosine(2.0, 0.0, 0.5 / 8))


# ---- composed ------------------------------------------------------------------------------------------------------------------

COMPOSED = {
    "warm-up and cosine": lambda o, s: s.SequentialLR(
        o, [s.LinearLR(o, 0.1, total_iters=5), s.CosineAnnealingLR(o, 45), ], milestones=[5]),
    "three": lambda o, s: s.SequentialLR(
        o, [s.ConstantLR(o, 0.5, 100), s.ExponentialLR(o, 0.5), s.StepLR(o, 3, 0.5)], [4, 9]),
    "chain": lambda o, s: s.ChainedScheduler([s.LinearLR(o, 0.1, total_iters=5), s.ExponentialLR(o, 0.9), s.StepLR(o, 7, 0.5)]),
    "chain in a sequence": lambda o, s: s.SequentialLR(
        o, [s.ChainedScheduler([s.ConstantLR(o, 0.25, 6), s.ExponentialLR(o, 0.9)]), s.PolynomialLR(o, 30, 2.0)], [12]),
}  # fmt: skip
FORMULAS = {
    "warm-up and cosine": lambda b, e: b * (0.1 + 0.9 * e / 5) if e < 5 else cosine(b, 0, (e - 5) / 45),
    "three": lambda b, e: b * (0.5 if e < 4 else 0.5 ** (e - 4) if e < 9 else 0.5 ** ((e - 9) // 3)),
    "chain": lambda b, e: b * (0.1 + 0.9 * min(e / 5, 1)) * 0.9**e * 0.5 ** (e // 7),
    "chain in a sequence": lambda b, e: b * ((0.25 if e < 6 else 1) * 0.9**e if e < 12 else max(1 - (e - 12) / 30, 0) ** 2),
}


@pytest.mark.parametrize("name", COMPOSED)
def test_composed_schedules(name):
    schedule = COMPOSED[name](optimizer(), optim)
    found = rates(schedule)
    want = [[FORMULAS[name](b, e) for b in (2.0, 0.25)] for e in range(STEPS)]
    np.testing.assert_allclose(found, want, rtol=1e-12, atol=1e-15)
    other = COMPOSED[name](optimizer(), optim)
    rates(other, 11)
    saved = other.state_dict()
    third = COMPOSED[name](optimizer(), optim)
    third.load_state_dict(saved)
    assert rates(third, 20)[1:].tolist() == rates(other, 20)[1:].tolist() == found[12:31].tolist()


@pytest.mark.parametrize("name", [n for n in COMPOSED if n != "chain in a sequence"])  # PyTorch cannot begin a chain anew
def test_pytorch_composes_to_the_same_rates(name):
    torch = pytest.importorskip("torch")
    opt = theirs(torch)
    want = their_rates(COMPOSED[name](opt, torch.optim.lr_scheduler), opt)
    np.testing.assert_allclose(rates(COMPOSED[name](optimizer(), optim)), want, rtol=1e-9, atol=1e-12)


PLATEAU = [{"patience": 2, "factor": 0.5}, {"mode": "max", "patience": 0, "cooldown": 3, "threshold": 0.1},
           {"patience": 1, "threshold_mode": "abs", "threshold": 0.25, "min_lr": [0.5, 0.125]}]  # fmt: skip


def metrics():
    r = np.random.default_rng(0)
    return np.exp(-np.arange(STEPS) / 10) + 0.2 * r.random(STEPS)


def test_a_plateau_reduces_the_rate():
    """Two epochs without progress are borne, the third reduces; then counting begins anew."""
    schedule = optim.ReduceLROnPlateau(optimizer(), patience=2, factor=0.5)
    found = []
    for metric in (5.0, 4.0, 4.0, 4.0, Tensor(4.0), 4.0, 4.0, 4.0, 3.0, 3.0):
        schedule.step(metric)
        found.append(schedule.get_last_lr()[0])
    assert found == [2, 2, 2, 2, 1, 1, 1, 0.5, 0.5, 0.5]


@pytest.mark.parametrize("options", PLATEAU)
def test_pytorchs_plateaus_are_the_same(options):
    torch = pytest.importorskip("torch")
    ours, opt = optimizer(), theirs(torch)
    a, b = optim.ReduceLROnPlateau(ours, **options), torch.optim.lr_scheduler.ReduceLROnPlateau(opt, **options)
    for i, metric in enumerate(metrics()):
        if i == 25:
            saved, a = a.state_dict(), optim.ReduceLROnPlateau(ours, **options)
            a.load_state_dict(saved)
        a.step(metric)
        b.step(metric)
        assert a.get_last_lr() == pytest.approx([g["lr"] for g in opt.param_groups])


# ---- with steps, and errors ----------------------------------------------------------------------------------------------------


def test_traced_steps_read_the_rate_of_now():
    """Without another recording: the rate is a tensor."""
    found = []
    for traced in (False, True):
        p = Parameter(np.ones(3, np.float32))
        opt = optim.SGD([p], lr=1.0)
        schedule = optim.OneCycleLR(opt, 1.0, total_steps=10, cycle_momentum=False)
        step = trace(opt.step) if traced else opt.step
        seen = []
        for _ in range(10):
            p.grad = Tensor(np.ones(3, np.float32))
            step()
            schedule.step()
            seen.append(p.numpy().tobytes())
        found.append(seen)
    assert found[0] == found[1] and len(set(found[0])) == 10


def test_a_schedule_of_ones_own_composes():
    class Halves(optim.LRScheduler):
        def get_lr(self):
            return [b * 0.5**self.current_epoch for b in self.base_lrs]

    opt = optimizer()
    schedule = optim.SequentialLR(opt, [Halves(opt), Halves(opt)], [2])
    assert rates(schedule, 5)[:, 0].tolist() == [2, 1, 2, 1, 0.5]
    opt = optimizer()
    assert rates(optim.ChainedScheduler([Halves(opt), Halves(opt)]), 3)[:, 0].tolist() == [2, 0.5, 0.125]


def test_errors():
    opt, other = optimizer(), optimizer()
    adagrad = optim.Adagrad([Parameter([1.0])])
    for call, error, message in [
        (lambda: optim.StepLR(opt, 0), ValueError, "step_size=0 must be at least 1"),
        (lambda: optim.LinearLR(opt, 0.0), ValueError, "start_factor=0.0 is out of range"),
        (lambda: optim.ConstantLR(opt, 2.0), ValueError, "factor=2.0 is out of range"),
        (lambda: optim.CosineAnnealingLR(opt), TypeError, "T_max="),
        (lambda: optim.CosineAnnealingWarmRestarts(opt, 2.5), ValueError, "T_0=2.5"),
        (lambda: optim.LambdaLR(opt, [abs]), ValueError, "1 values of lr_lambda for 2 groups"),
        (lambda: optim.ExponentialLR(optimizer(), 0.5, last_epoch=3), KeyError, "no 'initial_lr'"),
        (lambda: optim.OneCycleLR(opt, 1.0), ValueError, "needs total_steps"),
        (lambda: optim.OneCycleLR(opt, 1.0, 5, anneal_strategy="cubic"), ValueError, "'cos' or 'linear'"),
        (lambda: optim.OneCycleLR(adagrad, 1.0, 5), ValueError, "cycle_momentum=False"),
        (lambda: rates(optim.OneCycleLR(opt, 1.0, 5), 7), ValueError, "step 6 of 5"),
        (lambda: optim.CyclicLR(opt, 0.1, 1.0, mode="square"), ValueError, "mode='square'"),
        (lambda: optim.SequentialLR(opt, [optim.StepLR(opt, 2)], [3]), ValueError, "1 schedulers need 0 ascending milestones"),
        (lambda: optim.SequentialLR(opt, [optim.StepLR(opt, 2), optim.StepLR(other, 2)], [3]), ValueError, "different optimizers"),
        (lambda: optim.ChainedScheduler([]), ValueError, "at least one"),
        (lambda: optim.ChainedScheduler([optim.ReduceLROnPlateau(opt)]), ValueError, "needs a metric"),
        (lambda: optim.ChainedScheduler([optim.SequentialLR(opt, [optim.StepLR(opt, 2)], [])]), ValueError, "chains inside"),
        (lambda: optim.ReduceLROnPlateau(opt, "least"), ValueError, "mode='least'"),
        (lambda: optim.StepLR(3, 2), TypeError, "needs an Optimizer, got a int"),
    ]:  # fmt: skip
        with pytest.raises(error, match=message):
            call()
