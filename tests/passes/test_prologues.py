"""Operands that are computed as they are read: what is normalised and activated is not stored, and every bit stays."""

import numpy as np
import pytest
from exhaustive import but

import tengen.functional as F
import tengen.module as M
from tengen import Tensor, random, trace
from tengen.autodiff import GradManager
from tengen.ir.text import parse_graph, print_graph
from tengen.optimizer import SGD
from tengen.passes.cleanup import remove_examples
from tengen.passes.pipeline import optimize

ACTIVATIONS = {"relu6": F.relu6, "relu": F.relu, "leaky": F.leaky_relu, "none": lambda x: x}


class Net(M.Module):
    """Pointwise, depthwise (of stride 1 and 2) and grouped convolutions behind norms, one value with a shortcut."""

    def __init__(self, activation, kernel=3):
        super().__init__()
        self.activation = ACTIVATIONS[activation]
        self.layers = M.Sequential(
            M.Conv2d(3, 20, 3, padding=1), M.BatchNorm2d(20),
            M.Conv2d(20, 20, kernel, padding=kernel // 2, groups=20), M.BatchNorm2d(20),
            M.Conv2d(20, 40, 1), M.BatchNorm2d(40),
            M.Conv2d(40, 40, kernel, stride=2, padding=kernel // 2, groups=40), M.BatchNorm2d(40),
            M.Conv2d(40, 17, 1), M.BatchNorm2d(17),
            M.Conv2d(17, 70, 1), M.BatchNorm2d(70),
            M.Conv2d(70, 90, 1), M.BatchNorm2d(90),  # its gradient is tall: stored
            M.Conv2d(90, 18, 1, groups=2),
        )  # fmt: skip

    def forward(self, x):
        y = None
        for layer in self.layers:
            x = layer(x)
            if isinstance(layer, M.BatchNorm2d):
                y = x = self.activation(x) + 0.25  # zeros around an image are not what is made of zeros
        return F.mean(x, (2, 3)) + y.mean()


def train(traced, activation, kernel=3, steps=2, shape=(2, 3, 11, 13)):
    random.seed(3)
    net = Net(activation, kernel).train()
    gm, opt = GradManager().attach(net.parameters()), SGD(net.parameters(), lr=0.05)

    def step(x):
        with gm:
            loss = (net(x) ** 2).mean()
            gm.backward(loss)
        opt.step().clear_grad()
        return loss

    run = trace(step) if traced else step
    x = Tensor(np.random.default_rng(0).normal(size=shape).astype("float32"))
    losses = [run(x).numpy().tobytes() for _ in range(steps)]
    return losses, [p.numpy().tobytes() for p in net.parameters()], run


@but(every=4)
@pytest.mark.parametrize(("activation", "kernel"), [("relu6", 3), ("leaky", 5), ("none", 3)])
def test_nothing_changes_but_what_is_stored(activation, kernel):
    eager, traced = train(False, activation, kernel), train(True, activation, kernel)
    assert eager[:2] == traced[:2]
    bodies = [n.attrs["body"] for n in optimize(traced[2].graph).nodes if n.op == "fused"]
    read = {"conv": 0, "conv_weight_grad": 0}
    for body in bodies:
        anchor = next((n for n in body.nodes if n.op in read), None)
        if anchor is not None and anchor.inputs[0].node is not None:
            read[anchor.op] += 1
    assert read == {"conv": 5, "conv_weight_grad": 5}


@pytest.mark.parametrize("shape", [(1, 3, 1, 1), (2, 3, 2, 2)])
def test_images_of_one_pixel(shape):
    """A pointwise convolution of one pixel is a vector times a matrix, whose operands other strategies would exchange."""
    assert train(False, "relu", shape=shape)[:2] == train(True, "relu", shape=shape)[:2]


def test_inference_keeps_its_epilogues():
    net = Net("relu6").eval()
    run = trace(net)
    x = Tensor(np.ones((1, 3, 11, 13), "float32"))
    assert run(x).numpy().tobytes() == net(x).numpy().tobytes()
    bodies = [[m.op for m in n.attrs["body"].nodes] for n in optimize(run.graph).nodes if n.op == "fused"]
    epilogues = [ops for ops in bodies if "conv" in ops]
    assert len(epilogues) >= 7 and all(ops[0] == "conv" for ops in epilogues)


def test_a_value_of_which_only_the_type_is_used_is_not_made():
    text = """graph g(x: f32[2,3,4,4], y: f32[2,3,4,4], w: f32[3,3,1,1]):
    a: f32[2,3,4,4] = relu({})
    b: f32[2,3,4,4] = conv_transposed(y, w, {}, stride=(1, 1), padding=(0, 0), dilation=(1, 1), groups=1, output_padding=(0, 0))
    return b = b
"""
    g = parse_graph(text.format("x", "a"))
    assert print_graph(remove_examples(g)) == print_graph(parse_graph(text.format("x", "x")))
