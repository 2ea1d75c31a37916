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


def launched(f, *inputs):
    """Names of the kernels that a graph becomes."""
    return [launch.kernel.name for launch in lower(graph_of(f, *inputs), None)[0].launches]


def test_what_an_output_shows_whole_and_in_order_is_computed_into_it():
    x, w = normal(2, 9, 11, 5), normal(20, 5, 1, 1)

    def image(x, w):
        return F.conv2d(F.transpose(x, (0, 3, 1, 2)), w)

    def last(y):
        return F.transpose(y, (0, 2, 3, 1))

    def copies(f):
        return [n for n in launched(f, x, w) if n.startswith("write")]

    assert copies(lambda x, w: last(image(x, w))) == []
    assert copies(lambda x, w: F.reshape(last(image(x, w)), (-1, 20))) == []
    assert copies(lambda x, w: last(image(x, w))[:1]) == ["write_output"]  # a part of it
    assert copies(lambda x, w: F.transpose(F.relu(x), (1, 0, 2, 3))) == ["write_output"]  # in another order
    assert copies(lambda x, w: last(x)) == ["write_output"]  # an input's own memory
    assert copies(lambda x, w: (image(x, w), last(image(x, w)))) == ["write_output"]  # an output's own memory
    assert copies(lambda x, w: (last(image(x, w)), last(image(x, w)))) == ["write_output"]


def test_an_output_that_shows_a_value_has_its_elements():
    x, w = normal(2, 9, 11, 5), normal(20, 5, 1, 1)

    def f(x, w):
        y = F.conv2d(F.transpose(x, (0, 3, 1, 2)), w)
        z = F.transpose(y, (0, 2, 3, 1))
        return z, y, F.reshape(z, (-1,)), F.sum(y, 1), z[:, :0]

    found, expected = trace(f)(x, w), f(x, w)
    assert [a.shape for a in found] == [a.shape for a in expected]
    assert all(a.numpy().tobytes() == b.numpy().tobytes() for a, b in zip(found, expected))
    np.testing.assert_allclose(found[0].numpy(), x.numpy() @ w.numpy()[:, :, 0, 0].T, rtol=1e-4, atol=1e-5)
