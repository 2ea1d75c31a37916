"""What users see of objects: summaries, optimizers, managers, schedules, in a terminal and in a notebook."""

import re

import numpy as np
import pytest

import tengen
from tengen import functional as F
from tengen import module as M
from tengen import optimizer as optim
from tengen.autodiff import GradManager
from tengen.utils.module_stats import module_stats


class Net(M.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.unused = M.Conv2d(3, 4, 3, padding=1), M.BatchNorm2d(4), M.Linear(2, 2)
        self.head = M.Sequential(M.Linear(4, 5), M.ReLU())

    def forward(self, x):
        x = self.norm(self.conv(x))
        return self.head(x.mean((2, 3))), self.head(x.max((2, 3)))


def test_summary_agrees_with_module_stats():
    net, x = Net(), F.ones((2, 3, 8, 6))
    found = tengen.summary(net, x)
    total, _ = module_stats(net, inputs=x, logging_to_stdout=False)
    assert (found.operations, found.parameters) == (total.flops, total.param_dims)
    rows = {r.path: r for r in found.rows}
    assert rows["conv"].outputs == ((2, 4, 8, 6),) and rows[""].outputs == ((2, 5), (2, 5)) and rows["head.0"].calls == 2
    assert rows["unused"].calls == 0 and rows["unused"].parameters == 6 and rows["head"].operations == 2 * 2 * 5 * 5
    assert found.activation_bytes == 4 * (2 * 4 * 48 * 2 + 2 * 2 * 10 * 2 // 2) and found.buffers == sum(b.size for b in net.buffers())
    text = repr(found)
    assert re.search(r"^  head: Sequential\(\) +2x5 \(2 calls\) +25 +100.000 OPs$", text, re.M) and "unused: Linear(in_features=2" in text
    assert list(rows) == ["", "conv", "norm", "head", "head.0", "head.1", "unused"]
    assert text == repr(tengen.summary(net, (2, 3, 8, 6))) == repr(tengen.summary(net, input_shapes=(2, 3, 8, 6)))
    assert text == repr(tengen.summary(net, np.ones((2, 3, 8, 6), "f4")))
    assert "<td" in found._repr_html_() and "100.000 OPs" in found._repr_html_() and net.training
    for mistake, error in ((lambda: tengen.summary(net), ValueError), (lambda: tengen.summary(print, x), TypeError)):
        with pytest.raises(error, match=r"give inputs|takes a module, got a builtin"):
            mistake()


def test_optimizers_managers_and_schedules():
    net = M.Linear(4, 3)
    opt = optim.SGD([{"params": [net.weight], "lr": 0.5}, {"params": [net.bias], "name": "biases"}], lr=0.1, momentum=0.9)
    text = repr(opt)
    assert text.startswith("SGD(\n  group 0: lr=0.5, momentum=0.9, ") and "; 1 parameter, 12 numbers\n  biases: lr=0.1, " in text
    assert "<li>biases: <code>lr=0.1" in opt._repr_html_()
    gm = GradManager()
    assert repr(gm) == "<GradManager: 0 tensors attached, 0 numbers, 0 with a gradient; not recording>"
    with gm.attach(net.parameters()):
        gm.backward(net(F.ones((2, 4))).sum())
        gm.record()
        assert repr(gm) == "<GradManager: 2 tensors attached, 15 numbers, 2 with a gradient; recording>"
    assert "<li><code>Parameter: f32[3,4]</code></li>" in gm._repr_html_()
    step = optim.MultiStepLR(opt, [2, 4], gamma=0.1)
    assert repr(step) == "MultiStepLR(milestones=[2, 4], gamma=0.1, SGD, epoch 0, lr 0.5, 0.1)" and "<code>" in step._repr_html_()
