"""GradScaler: overflow skips a step and shrinks the scale, good steps grow it, eagerly and inside a trace with the same bits."""

from __future__ import annotations

import numpy as np
import pytest

import tengen.functional as F
import tengen.module as M
from tengen import Parameter, Tensor, amp, load, optimizer, save, trace
from tengen.autodiff import GradManager


def one(lr=0.25, momentum=0.9, **settings):
    w = Parameter([2.0], name="w")
    return w, GradManager().attach([w]), optimizer.SGD([w], lr=lr, momentum=momentum), amp.GradScaler(**settings)


def backward(scaler, gm, w, x):
    with gm:
        scaler.backward(gm, (w * x).sum())


def test_gradients_are_without_the_factor():
    w, gm, _, scaler = one(init_scale=1024.0)
    backward(scaler, gm, w, 3.0)
    assert w.grad.tolist() == [3.0] and scaler.scale_factor == scaler.get_scale() == 1024.0


@pytest.mark.parametrize("bad", [float("inf"), float("-inf"), float("nan")])
def test_a_step_that_overflowed_is_skipped(bad):
    w, gm, opt, scaler = one(init_scale=8.0)
    backward(scaler, gm, w, 1.0)
    opt.step().clear_grad()
    before = w.tolist(), opt.state_dict()["state"][0]["momentum_buffer"].tolist()
    backward(scaler, gm, w, bad)
    opt.step().clear_grad()
    assert (w.tolist(), opt.state_dict()["state"][0]["momentum_buffer"].tolist()) == before
    assert scaler.scale_factor == 4.0
    backward(scaler, gm, w, 1.0)
    opt.step().clear_grad()
    assert w.tolist() != before[0] and scaler.scale_factor == 4.0


def test_it_grows_after_good_steps_in_a_row():
    w, gm, opt, scaler = one(init_scale=2.0, growth_interval=3)
    found = []
    for x in [1.0, 1.0, 1.0, 1.0, 1.0, float("inf"), 1.0, 1.0, 1.0]:
        backward(scaler, gm, w, x)
        opt.step().clear_grad()
        found.append(scaler.scale_factor)
    assert found == [2, 2, 4, 4, 4, 2, 2, 2, 4]


def test_its_bounds():
    w, gm, opt, scaler = one(init_scale=2.0**127, growth_interval=1)
    backward(scaler, gm, w, 2.0**-100)
    assert scaler.scale_factor == 2.0**127  # 2^128 is not a float32
    scaler.scale_factor = 2.0**-126
    backward(scaler, gm, w, float("nan"))
    assert scaler.scale_factor == 2.0**-126


def test_the_steps_of_pytorch():
    w, gm, opt, scaler = one(momentum=0, init_scale=16.0)
    with gm:
        gm.backward(scaler.scale((w * 2.0).sum()))
    assert w.grad.tolist() == [32.0]
    scaler.unscale_(opt)
    assert w.grad.tolist() == [2.0]
    with pytest.raises(RuntimeError, match="since the last update"):
        scaler.unscale_(opt)
    optimizer.clip_grad_norm([w], 1.0)
    scaler.step(opt)
    scaler.update()
    np.testing.assert_allclose(w.numpy(), [1.75], rtol=1e-6)


def test_two_optimizers_share_what_was_found():
    a, b = Parameter([1.0]), Parameter([1.0])
    gm, scaler = GradManager().attach([a, b]), amp.GradScaler()
    opts = [optimizer.SGD([a], lr=1.0), optimizer.SGD([b], lr=1.0)]
    with gm:
        gm.backward(scaler.scale((a * float("inf") + b).sum()))
    for opt in opts:
        scaler.unscale_(opt)
    for opt in opts:
        scaler.step(opt)
    scaler.update()
    assert (a.item(), b.item()) == (1.0, 1.0) and scaler.scale_factor == 8.0


def test_disabled_does_nothing():
    w, gm, opt, scaler = one(momentum=0, enabled=False)
    with gm:
        gm.backward(scaler.scale((w * 2.0).sum()))
    scaler.step(opt)
    scaler.update()
    assert w.tolist() == [1.5]
    kept = amp.GradScaler(4.0, growth_interval=0)
    backward(kept, gm, w, float("inf"))
    assert kept.scale_factor == 4.0


@pytest.mark.parametrize(
    "settings", [{"init_scale": 0}, {"growth_factor": 0.5}, {"backoff_factor": 0}, {"growth_interval": -1}]
)
def test_settings_out_of_range(settings):
    with pytest.raises(ValueError, match="out of range"):
        amp.GradScaler(**settings)


def test_state_goes_to_a_file_and_back(tmp_path):
    w, gm, opt, scaler = one(init_scale=4.0, growth_interval=2)
    backward(scaler, gm, w, 1.0)
    save(scaler.state_dict(), tmp_path / "s.tgn")
    other = amp.GradScaler()
    other.load_state_dict(load(tmp_path / "s.tgn"))
    for s in (scaler, other):
        backward(s, gm, w, 1.0)
        assert s.scale_factor == 8.0
    other.load_state_dict({"scale_factor": 3.0, **{k: v for k, v in scaler.state_dict().items() if k != "scale"}})
    assert other.scale_factor == 3.0


def train(kind, low, as_trace, steps=6):
    """Losses, scale and parameters of every step; the third batch overflows."""
    rng = np.random.default_rng(0)
    make = {
        "mlp": lambda: M.Sequential(M.Flatten(), M.Linear(64, 16), M.ReLU(), M.Linear(16, 4)),
        "cnn": lambda: M.Sequential(
            M.Conv2d(1, 4, 3), M.BatchNorm2d(4), M.ReLU(), M.MaxPool2d(2), M.Flatten(), M.Dropout(0.2), M.Linear(36, 4)
        ),
    }
    net = make[kind]()
    for _, p in sorted(net.named_parameters()):
        p._reset(Tensor(rng.uniform(-0.3, 0.3, p.shape).astype(np.float32)))
    gm, scaler = GradManager().attach(net.parameters()), amp.GradScaler(init_scale=2.0**10, growth_interval=3)
    opt = optimizer.Adam(net.parameters(), lr=0.01)

    def step(x, y):
        with gm:
            with amp.autocast(dtype=low):
                loss = F.cross_entropy(net(x), y)
            scaler.backward(gm, loss)
        opt.step().clear_grad()
        return loss

    from tengen import random

    random.seed(5)
    run, found = trace(step) if as_trace else step, []
    x, y = rng.standard_normal((8, 1, 8, 8)).astype(np.float32), np.arange(8, dtype=np.int32) % 4
    for i in range(steps):
        batch = x.copy()
        if i == 2:
            batch[0, 0, 4, 4] = np.inf
        loss = run(Tensor(batch), Tensor(y))
        found.append((loss.item() if i != 2 else None, scaler.scale_factor, [p.numpy().tobytes() for p in net.parameters()]))
    return found


@pytest.mark.parametrize("low", ["float16", "bfloat16"])
@pytest.mark.parametrize("kind", ["mlp", "cnn"])
def test_training_is_the_same_bits_eagerly_and_traced(kind, low):
    eager, traced = train(kind, low, False), train(kind, low, True)
    assert eager == traced
    assert [scale for _, scale, _ in eager] == [1024, 1024, 512, 512, 512, 1024]
    assert eager[2][2] == eager[1][2] and eager[3][2] != eager[2][2]
    assert eager[-1][0] < eager[0][0]
