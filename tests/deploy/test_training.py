"""A whole training step as a file and as an artifact: its states go on where the trace left them, bit by bit."""

import importlib.util

import models
import numpy as np
import pytest
from models import same

import tengen
import tengen.functional as F
import tengen.module as M
import tengen.optimizer as O
from tengen import Tensor, deploy, trace
from tengen.autodiff import GradManager


@pytest.fixture(scope="module")
def step():
    """(a traced step that has run twice, its network, its data)."""
    net = M.Sequential(M.Conv2d(1, 3, 3), M.ReLU(), M.MaxPool2d(2, 2))
    fc = M.Linear(3 * 2 * 2, 4)
    gm = GradManager().attach([*net.parameters(), *fc.parameters()])
    opt = O.SGD([*net.parameters(), *fc.parameters()], lr=0.1, momentum=0.9)

    @trace(symbolic=True)
    def step(x, label, *, net, fc, opt):
        with gm:
            loss = F.nn.cross_entropy(fc(net(x).reshape(x.shape[0], -1)), label)
            gm.backward(loss)
        opt.step().clear_grad()
        return loss

    x = Tensor(models.images((5, 1, 6, 6)))
    label = Tensor(np.arange(5, dtype="i4") % 4)
    run = lambda: step(x, label, net=net, fc=fc, opt=opt)
    run(), run()
    return step, run, (net, fc), (x, label)


def test_a_reloaded_step_goes_on(step, tmp_path):
    f, run, (net, fc), data = step
    f.dump(tmp_path / "step.tgn", arg_names=["x", "label"], output_names=["loss"])
    m = tengen.load_graph(tmp_path / "step.tgn")
    for _ in range(3):
        assert same(m(*data), run())
    states = m.states
    mine = [*net.named_parameters("module0"), *fc.named_parameters("module1")]
    assert len(mine) == 4
    for name, p in mine:
        assert same(states[name], p)


def test_a_compiled_step_goes_on(step, tmp_path):
    f, _, _, data = step
    f.dump(tmp_path / "step.tgn", arg_names=["x", "label"])
    m = tengen.load_graph(tmp_path / "step.tgn")
    for target in ("x86-64-v3", "aarch64"):
        a = deploy.compile_model(m, target, tmp_path / target, "step")
        assert a.code_bytes < 64 << 10
        if importlib.util.find_spec("ziglang"):
            assert deploy.verify_artifact(m, tmp_path / target, inputs=[data] * 3).status in ("equal", "skipped")
