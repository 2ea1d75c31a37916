"""RNN and GRU over sequences of open length: one program for all lengths, with the bits of the steps one after another, as values, as
gradients, and from a file."""

import numpy as np
import pytest

import tengen.module as M
from tengen import Tensor, load_graph, trace
from tengen.autodiff import GradManager

RNG = np.random.default_rng(6)
SHAPES = ((7, 3), (5, 2), (1, 1))


def tensors(x):
    return [v for y in x for v in tensors(y)] if isinstance(x, (tuple, list)) else [x]


def bits(x):
    return [t.numpy().tobytes() for t in tensors(x)]


@pytest.mark.parametrize(
    "make",
    (lambda: M.GRU(4, 5), lambda: M.RNN(4, 5, bidirectional=True, nonlinearity="relu")),
    ids=("a GRU", "an RNN both ways"),
)
def test_one_program_for_every_length(make, tmp_path):
    net = make()
    for p in net.parameters():
        p._reset(Tensor(RNG.standard_normal(p.shape).astype("float32") * 0.5))
    gm = GradManager().attach(net.parameters())

    def step(x, hx):
        with gm:
            gm.attach([hx])
            y, last = net(x, hx)
            loss = (y * y).mean() + last.sum() * 0.3
            gm.backward(loss)
        return loss, y, last, [p.grad for p in net.parameters()], hx.grad

    states = net.num_layers * net.num_directions
    axes = {"x": {0: "steps", 1: "batch"}, "hx": {1: "batch"}}
    whole, alone = trace(step, dynamic_axes=axes), trace(lambda x, hx: net(x, hx), dynamic_axes=axes)
    calls = [(Tensor(RNG.standard_normal((t, n, 4)).astype("float32")), Tensor(RNG.standard_normal((states, n, 5)).astype("float32")))
             for t, n in SHAPES]  # fmt: skip
    for x, hx in calls:
        wanted = bits(net(x, hx))
        assert bits(alone(x, hx)) == wanted
        results = []
        for run in (step, whole):
            for p in net.parameters():
                p.grad = None
            results.append(bits(run(x, Tensor(hx.numpy()))))
        assert results[0] == results[1]
    assert len(alone.stats()) == 1 and len(whole.stats()) == 2  # with a gradient, a single step is a program of its own
    alone.dump(tmp_path / "net.tgn", arg_names=["x", "hx"])
    model = load_graph(tmp_path / "net.tgn")
    for x, hx in calls:
        assert bits(model(x=x, hx=hx)) == bits(net(x, hx))


def test_lengths_open_by_themselves():
    net = M.GRU(4, 5, batch_first=True)
    run = trace(net)
    for t, n in SHAPES[:-1]:
        x = Tensor(RNG.standard_normal((n, t, 4)).astype("float32"))
        assert bits(run(x)) == bits(net(x))
    assert len(run.stats()) == 2 and not any(s.fixed for s in run.stats())
