"""Budgets of eager steps: values that only the tape holds go and come back, and no bit changes."""

import errno
import os

import numpy as np
import pytest
from exhaustive import but

import tengen
import tengen.functional as F
import tengen.module as M
from tengen import Tensor, autodiff, dtr, memory
from tengen.autodiff import GradManager
from tengen.base.errors import BudgetError, UsageWarning, warned
from tengen.optimizer import SGD
from tengen.tensor import eviction, nodes

everything_goes = pytest.mark.filterwarnings("ignore:the budget of .* cannot be kept")  # it is there for this: nothing fits


@pytest.fixture(autouse=True)
def no_budget_is_left():
    yield
    assert eviction.keeper is None and not nodes.watchers and nodes.EVERYBODY not in nodes.limits


def rows(n, width=64, seed=0):
    return Tensor(np.random.default_rng(seed).normal(size=(n, width)).astype("float32"))


def layers():
    tengen.random.seed(3)
    return M.Sequential(*(m for _ in range(12) for m in (M.Linear(64, 64), M.Dropout(0.2), M.ReLU(), M.LayerNorm(64))))


def steps(net, x, count=2, loss_of=lambda y: F.sum(y * y)):
    """Bits of losses and of parameters after some steps."""
    gm, opt = GradManager().attach(net.parameters()), SGD(net.parameters(), lr=0.01, momentum=0.9)
    losses = []
    for _ in range(count):
        with gm:
            loss = loss_of(net(x))
            gm.backward(loss)
        opt.step().clear_grad()
        losses.append(loss.numpy().tobytes())
    return [*losses, *(p.numpy().tobytes() for p in net.parameters())]


def peak_of(f):
    base = memory.stats().allocated
    tengen.reset_max_memory_stats()
    return f(), memory.stats().max_allocated - base, base


@pytest.mark.parametrize("offload", [None, "disk"])
def test_budget_is_kept_and_no_bit_changes(offload):
    x = rows(1024)
    steps(layers(), x)  # plans are made, and stay
    net = layers()
    bits, whole, _ = peak_of(lambda: steps(net, x))
    net = layers()
    with memory.budget(memory.stats().allocated + whole // 2, smallest=1, offload=offload) as b:
        found, peak, _ = peak_of(lambda: steps(net, x))
    assert found == bits and b.evicted > 0 and b.restored > 0
    assert peak < 0.65 * whole
    assert (b.computed_again > 0) == (offload is None)


@but(every=2)
@pytest.mark.parametrize("size", [0, "1KB"])
def test_a_budget_below_what_cannot_go_says_so_once_with_the_smallest(size):
    warned.clear()  # of this line
    x, net = rows(256), layers()
    steps(net, x, 1)  # plans are made, and stay
    said_so = pytest.warns(UsageWarning, match=r"cannot be kept: tensors hold .* \(\d+ bytes\) that cannot go")
    with said_so as told, memory.budget(size, smallest=1) as b:
        bits = steps(layers(), x)
    weights = sum(4 * p.size for p in net.parameters())
    assert len(told) == 1 and told[0].filename == __file__
    said = int(str(told[0].message).split("at least ")[1].split()[0])
    assert weights + 4 * x.size < said <= b.needed
    with memory.budget(b.needed + 4 * x.size, smallest=1) as enough:  # with room for one value more it is kept
        assert steps(layers(), x) == bits
    assert enough.needed == 0 < enough.evicted
    with pytest.warns(UsageWarning, match="cannot be kept"), memory.budget(int(0.9 * b.needed), smallest=1) as less:
        assert steps(layers(), x) == bits
    assert less.needed > 0.9 * b.needed


class Mixed(M.Module):
    """Convolutions, batch norm, views, slices, results that are used twice."""

    def __init__(self):
        super().__init__()
        tengen.random.seed(5)
        self.conv, self.norm, self.last = M.Conv2d(3, 8, 3, padding=1), M.BatchNorm2d(8), M.Linear(32, 5)

    def forward(self, x):
        y = F.relu(self.norm(self.conv(x)))
        y = F.concat([y[:, :4] * 2, F.exp(-y)[:, 4:]], axis=1) + y
        y = F.avg_pool2d(y, 8).reshape(x.shape[0], -1).transpose(1, 0)
        return F.softmax(self.last(F.tanh(y.transpose(1, 0))), axis=1)


@everything_goes
@pytest.mark.parametrize("offload", [None, "disk"])
def test_every_value_goes_and_comes_back(offload):
    x = Tensor(np.random.default_rng(0).normal(size=(4, 3, 16, 16)).astype("float32"))
    bits = steps(Mixed(), x)
    with memory.budget(0, smallest=1, offload=offload) as b:
        assert steps(Mixed(), x) == bits
    assert b.evicted > 10


@everything_goes
def test_operands_that_go_while_others_come_back():
    """A value with several operands, of which some have gone, comes back under budgets of any size."""
    x, w = rows(256, 16), tengen.Parameter(rows(16, 16, 1))

    def step():
        gm = GradManager().attach([w])
        with gm:
            h = x @ w
            seen = [x, h]
            for _ in range(4):
                a, b, c = F.tanh(h), F.sigmoid(seen[-2] @ w), F.exp(-h * h)
                h = F.concat([a * b, b * c]).reshape(2, 256, 16).sum(0) + a * c
                seen.append(h)
            gm.backward((h * h).mean() + sum(s.mean() for s in seen[1::2]))
        found = w.grad.numpy().tobytes()
        w.grad = None
        return found

    bits, whole, _ = peak_of(step)
    for part in range(0, 16, 2):
        with memory.budget(memory.stats().allocated + whole * part // 16, smallest=1) as b:
            assert step() == bits, part
        assert b.evicted or part > 8


@everything_goes
def test_gradients_of_gradients_and_checkpoints():
    x = rows(8, 8)

    def second():
        f = lambda x: (F.tanh(F.exp(x * 0.1) @ x) ** 3).sum()
        return autodiff.grad(lambda x: (autodiff.grad(f)(x) ** 2).sum())(x).numpy().tobytes()

    def checkpointed():
        tengen.random.seed(1)
        blocks = M.Sequential(*(M.Linear(8, 8) for _ in range(3)))
        gm = GradManager().attach(blocks.parameters())
        with gm:
            y = x
            for block in blocks:
                y = autodiff.checkpoint(lambda y, block=block: F.dropout(F.gelu(block(y)), 0.3), y)
            gm.backward((y * F.exp(y)).sum())
        return [p.grad.numpy().tobytes() for p in blocks.parameters()]

    for f in (second, checkpointed):
        bits = f()
        with memory.budget(0, smallest=1) as b:
            assert f() == bits
        assert b.evicted > 0


@everything_goes
def test_writes_in_place_and_hooks_between():
    def run():
        w, seen = Tensor(np.linspace(-1, 1, 64, dtype="float32").reshape(8, 8)), []
        gm = GradManager().attach([w])
        x = rows(8, 8)
        with gm:
            y = F.exp(w @ x)
            z = F.sin(y @ w)
            z.register_hook(lambda g: seen.append(g.numpy().tobytes()))
            x[2:4] = 7.0  # what was computed of x has the old one
            loss = (z * y).sum() + (x * w).sum()
            with tengen.autodiff.no_grad():
                x[0] = -1.0
            gm.backward(loss)
        return w.grad.numpy().tobytes(), seen, x.numpy().tobytes()

    bits = run()
    with memory.budget(0, smallest=1) as b:
        assert run() == bits
    assert b.evicted > 0


@everything_goes
def test_backward_after_the_budget_has_ended():
    x = rows(16)
    gm = GradManager().attach([x])
    with gm:
        gm.backward(F.exp(F.sin(F.exp(x * 0.1))).sum())
    bits = x.grad.numpy().tobytes()
    gm = GradManager().attach([x])
    x.grad = None
    with gm:
        with memory.budget(0, smallest=1) as b:
            loss = F.exp(F.sin(F.exp(x * 0.1))).sum()
        gm.backward(loss)
    assert b.evicted > 0 and x.grad.numpy().tobytes() == bits


@everything_goes
def test_full_disk_is_an_error(monkeypatch):
    def full(fd, part, at):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    x = rows(16)
    gm = GradManager().attach([x])
    with memory.budget(0, smallest=1, offload="disk"), gm, pytest.raises(BudgetError, match="No space left on device; help: offload="):
        F.exp(F.sin(F.exp(x * 0.1)))


def test_bad_budgets():
    with pytest.raises(ValueError, match="budget='much' is no size"):
        memory.budget("much")
    with pytest.raises(ValueError, match="offload='/nowhere/at/all' is no folder"):
        memory.budget(5, offload="/nowhere/at/all")
    with pytest.raises(ValueError, match="offload=3 is no folder"):
        memory.budget(5, offload=3)
    assert eviction.keeper is None


def test_setter_and_nesting():
    outer = memory.budget("1GB")
    assert eviction.keeper.bytes == 10**9
    with memory.budget("2GiB"):
        assert eviction.keeper.bytes == 2 << 30
    assert eviction.keeper is outer._keeper
    memory.budget(None)
    assert eviction.keeper is None


@everything_goes
def test_megengine_switches():
    x, bits = rows(64), None
    try:
        for on in (False, True):
            if on:
                dtr.eviction_threshold, dtr.evictee_minimum_size = 1, "1KB"
                dtr.enable()
                assert eviction.keeper.bytes == 1 and eviction.keeper.smallest == 1024
                dtr.eviction_threshold = 2
                assert eviction.keeper.bytes == 2
            gm = GradManager().attach([x])
            x.grad = None
            with gm:
                gm.backward(F.exp(F.sin(F.exp(x * 0.1))).sum())
            bits = bits or x.grad.numpy().tobytes()
            assert x.grad.numpy().tobytes() == bits
        assert eviction.keeper.evicted > 0
    finally:
        dtr.disable()
        dtr.eviction_threshold, dtr.evictee_minimum_size = 0, 1 << 20
