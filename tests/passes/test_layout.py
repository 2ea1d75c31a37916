"""Layouts: a network converts its image once, pointwise values follow what they read, views are strides."""

import numpy as np
from recorded import graph_of

import tengen.functional as F
from tengen import Tensor, models, trace
from tengen.codegen.targets import Target
from tengen.kernels.axes import memory_order
from tengen.passes.inplace import destinations, in_logical_order
from tengen.passes.layout import assign_layouts, dense
from tengen.passes.lower import lower
from tengen.passes.pipeline import optimize

LAST = [0, 2, 3, 1]


def normal(*shape):
    return Tensor(np.random.default_rng(len(shape)).normal(size=shape).astype("float32"))


def optimized(f, *inputs):
    return optimize(graph_of(f, *inputs))


def layouts(g):
    return assign_layouts(g, {v: dense(None, v) for v in g.sources()}, in_logical_order(g, destinations(g), False))


def test_an_image_is_converted_once():
    w, v = normal(24, 20, 1, 1), normal(20, 24, 5, 5)
    f = lambda x: F.conv2d(F.relu(F.conv2d(F.conv2d(x, w), v, padding=2) + 1.0), w)
    g = optimized(f, normal(2, 20, 9, 11))
    lies = layouts(g)
    assert all(memory_order(lies[n.outputs[0]]) == LAST for n in g.nodes if n.outputs[0].type.ndim == 4)
    names = [launch.kernel.name for launch in lower(g, None)[0].launches]
    assert sum(name.startswith("channels_last") for name in names) == 1


def test_what_is_put_before_rows_does_not_turn_them():
    """A vision transformer's class token, one vector spread out over the batch, comes before rows that are dense."""
    f = lambda token, x: F.concat([F.broadcast_to(token, (4, 1, 20)), F.exp(x)], 1) + 1.0
    g = optimized(f, normal(1, 1, 20), normal(4, 9, 20))
    assert memory_order(layouts(g)[g.outputs[0]]) == [0, 1, 2]


def test_a_view_is_strides():
    g = optimized(lambda x: F.exp(F.transpose(x, (2, 0, 1))), normal(3, 4, 5))
    (v,) = [n.outputs[0] for n in g.nodes if n.op == "permute"]
    assert layouts(g)[v].strides == (1, 20, 5) and memory_order(layouts(g)[g.outputs[0]]) == [1, 2, 0]


def test_a_state_keeps_its_layout():
    total = normal(2, 20, 9, 11)

    def f(x, w):
        total._reset(F.conv2d(x, w))

    g = optimized(f, normal(2, 5, 9, 11), normal(20, 5, 1, 1))
    (s,) = g.states.values()
    assert memory_order(layouts(g)[s.written]) == [0, 1, 2, 3]


def test_an_output_that_is_a_view_is_not_copied():
    w = normal(20, 5, 3, 3)
    last = lambda x: F.transpose(F.conv2d(x, w, stride=2), (0, 2, 3, 1))
    for f, copies in (
        (last, 0),
        (lambda x: F.reshape(last(x), (2, 20, 20)), 0),
        (lambda x: last(x)[:, 1:], 1),  # only some of it
        (lambda x: F.broadcast_to(F.sum(x, 1, keepdims=True), x.shape), 1),
        (lambda x: F.transpose(x, (1, 0, 2, 3)), 1),  # the caller's own
    ):
        x = normal(2, 5, 9, 11)
        names = [launch.kernel.name for launch in lower(optimized(f, x), None)[0].launches]
        assert sum(name.startswith("write_output") for name in names) == copies
        y = trace(f)(x)
        assert y.shape == f(x).shape and y.numpy().tobytes() == f(x).numpy().tobytes()


def test_rows_of_outputs_are_copied_only_where_a_node_lays_them_otherwise():
    """As artifacts have them: every output dense in logical order."""
    w, x = normal(20, 5, 3, 3), normal(2, 5, 9, 11)
    picture = lambda x: F.conv2d(x, w, stride=2)
    for f, copies in (
        (picture, 1),
        (lambda x: F.max_pool2d(F.relu(picture(x)), 2), 1),
        (lambda x: (y := picture(x), F.mean(y, (2, 3))), 1),
        (lambda x: (y := picture(x), F.transpose(y, (0, 2, 3, 1))), 1),  # one of them lies as it is computed
        (lambda x: F.transpose(picture(x), (0, 2, 3, 1)), 0),
        (lambda x: (y := picture(x)) - F.mean(y, (0, 2, 3), keepdims=True), 0),  # stored in either order at the same cost
        (lambda x: (z := (y := picture(x)) - F.mean(y, (0, 2, 3), keepdims=True), F.max_pool2d(z, 2)), 2),  # but read again
        (lambda x: (F.mean(picture(x), (2, 3)), F.exp(x)), 0),
    ):
        lo, outs = lower(optimized(f, x), None, row_major=True)
        names = [launch.kernel.name for launch in lo.launches]
        assert sum(name.startswith("write_output") for name in names) == copies, names
        assert all(a.is_contiguous() and a.id == ("out", i) for i, a in outs.items())


def test_a_classifier_takes_no_launch_more_for_rows():
    for net, shape in ((models.lenet(), (2, 1, 32, 32)), (models.resnet18(num_classes=10), (1, 3, 64, 64))):
        g = optimized(net.eval(), normal(*shape))
        rows, any_order = (lower(g, Target.named("x86-64-v3"), row_major=r)[0] for r in (True, False))
        assert len(rows.launches) == len(any_order.launches) > 5


def test_one_value_in_two_outputs_has_memory_of_its_own_in_each():
    w = normal(4, 5, 1, 1)
    f = trace(lambda x: (lambda y: (F.transpose(y, (0, 2, 3, 1)), y, F.transpose(y, (1, 0, 2, 3)), y * 2))(F.conv2d(x, w)))
    a, y, b, c = f(normal(2, 5, 3, 4))
    before = y.numpy().copy()
    a += 1.0
    assert (y.numpy() == before).all() and (b.numpy() == before.transpose(1, 0, 2, 3)).all() and (c.numpy() == before * 2).all()
    assert (a.numpy() == before.transpose(0, 2, 3, 1) + 1).all()
