"""Layouts: a network converts its image once, pointwise values follow what they read, views are strides."""

import numpy as np

import tengen.functional as F
from tengen import Tensor, trace
from tengen.kernels.axes import memory_order
from tengen.passes.inplace import destinations
from tengen.passes.layout import assign_layouts, dense
from tengen.passes.lower import lower
from tengen.passes.pipeline import optimize

LAST = [0, 2, 3, 1]


def normal(*shape):
    return Tensor(np.random.default_rng(len(shape)).normal(size=shape).astype("float32"))


def graph_of(f, *inputs):
    return optimize(trace(f).trace(*inputs).graph)


def layouts(g):
    return assign_layouts(g, {v: dense(None, v) for v in g.sources()}, destinations(g))


def test_an_image_is_converted_once():
    w, v = normal(24, 20, 1, 1), normal(20, 24, 5, 5)
    f = lambda x: F.conv2d(F.relu(F.conv2d(F.conv2d(x, w), v, padding=2) + 1.0), w)
    g = graph_of(f, normal(2, 20, 9, 11))
    lies = layouts(g)
    assert all(memory_order(lies[n.outputs[0]]) == LAST for n in g.nodes if n.outputs[0].type.ndim == 4)
    names = [launch.kernel.name for launch in lower(g, None)[0].launches]
    assert sum(name.startswith("channels_last") for name in names) == 1


def test_a_view_is_strides():
    g = graph_of(lambda x: F.exp(F.transpose(x, (2, 0, 1))), normal(3, 4, 5))
    (v,) = [n.outputs[0] for n in g.nodes if n.op == "permute"]
    assert layouts(g)[v].strides == (1, 20, 5) and memory_order(layouts(g)[g.outputs[0]]) == [1, 2, 0]


def test_a_state_keeps_its_layout():
    total = normal(2, 20, 9, 11)

    def f(x, w):
        total._reset(F.conv2d(x, w))

    g = graph_of(f, normal(2, 5, 9, 11), normal(20, 5, 1, 1))
    (s,) = g.states.values()
    assert memory_order(layouts(g)[s.written]) == [0, 1, 2, 3]
