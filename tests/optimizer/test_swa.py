"""Averages of weights: their values written out, states that resume, traces, and schedules beside PyTorch's."""

import numpy as np
import pytest

from tengen import Tensor, trace
from tengen import module as M
from tengen.base.errors import ArgumentError, ShapeError
from tengen.optimizer import SGD, StepLR
from tengen.optimizer.swa_utils import (
    SWALR,
    AveragedModel,
    get_ema_avg_fn,
    get_ema_multi_avg_fn,
    get_swa_multi_avg_fn,
    update_bn,
)

RNG = np.random.default_rng(0)
WEIGHTS = RNG.normal(size=(5, 2, 3)).astype("float32")


def ema(decay):
    want = WEIGHTS[0].astype("float64")
    for w in WEIGHTS[1:]:
        want = decay * want + (1 - decay) * w
    return want


@pytest.mark.parametrize("kwargs, want", [
    ({}, WEIGHTS.mean(0)), ({"multi_avg_fn": get_swa_multi_avg_fn()}, WEIGHTS.mean(0)), ({"avg_fn": get_ema_avg_fn(0.75)}, ema(0.75)),
    ({"multi_avg_fn": get_ema_multi_avg_fn(0.9)}, ema(0.9)),
])  # fmt: skip
def test_averages_written_out_eager_traced_and_resumed(kwargs, want):
    net = M.Linear(3, 2, bias=False)
    averages = [AveragedModel(net, **kwargs) for _ in range(3)]
    step = trace(lambda: averages[1].update_parameters(net))
    for i, w in enumerate(WEIGHTS):
        net.weight._reset(Tensor(w))
        averages[0].update_parameters(net)
        step()
        if i == 2:  # a run that was interrupted
            saved, averages[2] = averages[2].state_dict(), AveragedModel(M.Linear(3, 2, bias=False), **kwargs)
            averages[2].load_state_dict(saved)
        averages[2].update_parameters(net)
    bits = {a.module.weight.numpy().tobytes() for a in averages}
    assert len(bits) == 1 and {a.n_averaged.item() for a in averages} == {5}
    np.testing.assert_allclose(averages[0].module.weight.numpy(), want, rtol=1e-6, atol=1e-6)
    x = Tensor(np.ones((1, 3), "float32"))
    np.testing.assert_allclose(averages[0](x).numpy()[0], want.sum(1), rtol=1e-5, atol=1e-6)
    assert net.weight.numpy().tobytes() == WEIGHTS[-1].tobytes()


def test_buffers():
    net = M.BatchNorm1d(2)
    last, mean = AveragedModel(net), AveragedModel(net, use_buffers=True)
    for v in (2.0, 4.0):
        net.running_mean[...] = v
        last.update_parameters(net)
        mean.update_parameters(net)
    assert last.module.running_mean.numpy().ravel().tolist() == [4.0, 4.0]
    assert mean.module.running_mean.numpy().ravel().tolist() == [3.0, 3.0]


def test_update_bn_averages_the_batches():
    net = M.Sequential(M.BatchNorm1d(3), M.Linear(3, 2)).eval()
    batches = [RNG.normal(i, 2, (4 + i, 3)).astype("float32") for i in range(3)]
    update_bn([(b, 0) for b in batches[:1]] + [Tensor(b) for b in batches[1:]], net)
    bn = net[0]
    np.testing.assert_allclose(bn.running_mean.numpy().ravel(), np.mean([b.mean(0) for b in batches], 0), rtol=1e-5)
    np.testing.assert_allclose(bn.running_var.numpy().ravel(), np.mean([b.var(0, ddof=1) for b in batches], 0), rtol=1e-5)
    assert not net.training and not bn.training and bn.momentum == 0.9
    update_bn(pytest.fail, M.Linear(1, 1))  # there is nothing to do


@pytest.mark.parametrize("strategy, epochs", [("cos", 4), ("linear", 3), ("linear", 0)])
def test_schedule_beside_pytorch(strategy, epochs):
    torch = pytest.importorskip("torch")
    ours, theirs = SGD(M.Linear(1, 1).parameters(), lr=0.4), torch.optim.SGD(torch.nn.Linear(1, 1).parameters(), lr=0.4)
    swa = [SWALR(ours, 0.05, epochs, strategy), torch.optim.swa_utils.SWALR(theirs, 0.05, epochs, strategy)]
    steps = [StepLR(ours, 2), torch.optim.lr_scheduler.StepLR(theirs, 2)]
    theirs.step()
    got, want = [], []
    for i in range(9):
        for s, found in zip(steps if i < 3 and epochs else swa, (got, want)):
            s.step()
            found.append(s.optimizer.param_groups[0]["lr"])
        if i == 5:
            saved = swa[0].state_dict()
            swa[0] = SWALR(ours, 0.9, 1)
            swa[0].load_state_dict(saved)
            ours.param_groups[0]["lr"] = got[-1]
    np.testing.assert_allclose(got, want, rtol=1e-12)


def test_errors():
    net = M.Linear(2, 2)
    opt = SGD(net.parameters(), lr=0.1)
    for error, match, call in (
        (ArgumentError, "not both", lambda: AveragedModel(net, avg_fn=max, multi_avg_fn=max)),
        (ArgumentError, "decay=2", lambda: get_ema_avg_fn(2)), (ArgumentError, "'cos' or 'linear'", lambda: SWALR(opt, 1, 1, "sin")),
        (ArgumentError, "anneal_epochs=-1", lambda: SWALR(opt, 1, -1)),
        (ShapeError, "other parameters", lambda: AveragedModel(net).update_parameters(M.Linear(2, 3))),
    ):  # fmt: skip
        with pytest.raises(error, match=match):
            call()
