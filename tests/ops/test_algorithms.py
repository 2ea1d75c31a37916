"""Which algorithm a convolution takes, who keeps the choice, and that it changes nothing but roundings: eager, traced, loaded,
batches, threads, gradients."""

import numpy as np
import pytest
from each import each

import tengen
import tengen.functional as F
from tengen import Tensor, autodiff, trace
from tengen.base.config import config
from tengen.base.errors import ArgumentError, DTypeError, ShapeError, Undecided
from tengen.deploy import dump
from tengen.ir.jsonform import from_json, to_json
from tengen.ir.text import parse_graph, print_graph
from tengen.kernels.convolution.winograd import pays
from tengen.loops.lang import var
from tengen.ops.conv import conv, conv_transposed

SHAPE = (3, 32, 15, 14), (40, 32, 3, 3)  # of an image and a filter for which "auto" is Winograd


def draw(*shapes, seed=0):
    rng = np.random.default_rng(seed)
    return [Tensor((rng.standard_normal(s) / max(1, np.prod(s[1:]) if i else 1) ** 0.5).astype("float32"))
            for i, s in enumerate(shapes)]  # fmt: skip


def chosen(run):
    """The algorithms in a traced function's graph, in order."""
    graphs = [g for g in run.graph.graphs()]
    return [n.attrs["algorithm"] for g in graphs for n in g.nodes if "algorithm" in n.attrs]


def near(a, b, tolerance=1e-5):
    a, b = a.numpy().astype(np.float64), b.numpy().astype(np.float64)
    return np.abs(a - b).max() <= tolerance * np.abs(b).max()


@pytest.mark.parametrize(
    ("c", "o", "extent", "outputs"),
    [(64, 64, 56, 4), (128, 128, 28, 4), (256, 256, 14, 4), (512, 512, 7, 2), (512, 512, 28, 4), (3, 64, 224, 0), (8, 8, 4, 0),
     (4097, 64, 56, 0)],
)
def test_the_rule(c, o, extent, outputs):
    assert pays(c, o, extent, extent) == pays(o, c, extent, extent) == outputs


def test_an_extent_that_is_open_decides_nothing():
    with pytest.raises(Undecided):
        pays(64, 64, var("h"), 56)


def test_a_graph_keeps_the_choice():
    x, w = draw(*SHAPE)
    run = trace(lambda x: F.relu(F.conv2d(x, w, padding=1)))
    y = run(x)
    assert chosen(run) == ["winograd4"] and 'algorithm="winograd4"' in print_graph(run.graph)
    assert print_graph(parse_graph(print_graph(run.graph))) == print_graph(run.graph)
    again = from_json(to_json(run.graph), {})
    assert print_graph(again) == print_graph(run.graph)
    assert y.numpy().tobytes() == F.relu(F.conv2d(x, w, padding=1)).numpy().tobytes()
    assert near(y, F.relu(F.conv2d(x, w, padding=1, algorithm="direct")))


def test_the_batch_and_the_threads_change_no_bit():
    x, w = draw(*SHAPE)
    y = F.conv2d(x, w, padding=1).numpy()
    each = np.concatenate([F.conv2d(x[i : i + 1], w, padding=1).numpy() for i in range(3)])
    assert y.tobytes() == each.tobytes()
    tengen.set_threads(1)
    assert F.conv2d(x, w, padding=1).numpy().tobytes() == y.tobytes()


def test_with_a_bias_it_is_one_kernel_more_than_the_filter_and_the_same_bits():
    x, w, b = draw(*SHAPE, (1, 40, 1, 1))
    want = F.conv2d(x, w, padding=1) + b
    assert F.conv2d(x, w, b, padding=1).numpy().tobytes() == want.numpy().tobytes()
    run = trace(lambda x: F.conv2d(x, w, b, padding=1))
    assert run(x).numpy().tobytes() == want.numpy().tobytes() and chosen(run) == ["winograd4"]


def test_a_file_keeps_it_and_an_older_one_is_direct(tmp_path, monkeypatch):
    x, w = draw(*SHAPE)

    def dumped(**how):
        run = trace(lambda x: F.conv2d(x, w, padding=1, **how), capture_as_const=True)
        y = run(x).numpy().tobytes()
        run.dump(tmp_path / "m.tgn")
        return y

    y = dumped()
    with config.scope(winograd=False):  # decides about new calls only
        model = tengen.load_graph(tmp_path / "m.tgn")
        assert model(x).numpy().tobytes() == y and model.graph.nodes[-1].attrs["algorithm"] == "winograd4"
    direct = dumped(algorithm="direct")

    def without(graph, *args):
        g = graph.copy()
        for n in g.nodes:
            n.attrs.pop("algorithm", None)
        return to_json(g, *args)

    monkeypatch.setattr(dump, "to_json", without)
    assert dumped() == y != direct
    older = tengen.load_graph(tmp_path / "m.tgn")
    assert older(x).numpy().tobytes() == direct and older.graph.nodes[-1].attrs["algorithm"] == "direct"


def test_the_knob_and_the_argument():
    x, w = draw(*SHAPE)
    direct, auto = F.conv2d(x, w, algorithm="direct").numpy().tobytes(), F.conv2d(x, w).numpy().tobytes()
    assert auto == F.conv2d(x, w, algorithm="winograd4").numpy().tobytes() != direct
    with config.scope(winograd=False):
        assert F.conv2d(x, w).numpy().tobytes() == direct
        assert F.conv2d(x, w, algorithm="winograd4").numpy().tobytes() == auto


@pytest.mark.parametrize(
    ("attrs", "filter", "dtype", "error"),
    [
        ({"stride": 2}, (4, 2, 3, 3), "float32", ShapeError), ({"dilation": 2}, (4, 2, 3, 3), "float32", ShapeError),
        ({}, (4, 2, 1, 3), "float32", ShapeError), ({"groups": 2}, (4, 1, 3, 3), "float32", ShapeError),
        ({}, (4, 2, 3, 3), "int32", DTypeError), ({"algorithm": "fft"}, (4, 2, 3, 3), "float32", ArgumentError),
    ],
)  # fmt: skip
def test_what_cannot_be_is_an_error_that_says_so(attrs, filter, dtype, error):
    x, w = Tensor(np.ones((1, 2, 8, 8), dtype)), Tensor(np.ones(filter, dtype))
    with pytest.raises(error, match="algorithm='.*' is for|algorithm must be one of 'auto'"):
        F.conv2d(x, w, **({"algorithm": "winograd2"} | attrs))


def test_other_dtypes():
    x, w = draw(*SHAPE)
    wide = F.conv2d(x.astype("float64"), w.astype("float64"), padding=1)
    assert wide.numpy().tobytes() == F.conv2d(
        x.astype("float64"), w.astype("float64"), padding=1, algorithm="direct"
    ).numpy().tobytes()
    short = F.conv2d(x.astype("bfloat16"), w.astype("bfloat16"), padding=1)
    assert near(short.astype("float32"), wide, 2e-2)


@pytest.mark.parametrize("padding", [0, 1, 2])
def test_gradients_and_their_gradients(padding):
    x, w = draw((2, 16, 11, 10), (32, 16, 3, 3))
    g = draw((2, 32, 9 + 2 * padding, 8 + 2 * padding))[0]

    def twice(how):
        def f(x, w):
            return (F.conv2d(x, w, padding=padding, algorithm=how) * g).tanh().sum()

        first = autodiff.grad(f, argnums=(0, 1))
        second = autodiff.grad(lambda x, w: sum((d * d).sum() for d in first(x, w)), argnums=(0, 1))
        return [*first(x, w), *second(x, w)]

    for a, b in zip(twice("winograd4"), twice("direct")):
        assert near(a, b, 5e-5)
    run = trace(lambda x, w: twice("winograd4"))
    for a, b in zip(run(x, w), twice("winograd4")):
        assert a.numpy().tobytes() == b.numpy().tobytes()


def test_the_gradient_takes_the_algorithm_of_its_convolution():
    x, w = draw(*SHAPE)
    for how in ("direct", "winograd2"):
        run = trace(lambda x, how=how: autodiff.grad(lambda x: F.conv2d(x, w, padding=1, algorithm=how).sum())(x))
        run(x)
        assert set(chosen(run)) == {how}


@pytest.mark.parametrize(("how", "of_weights"), [("direct", "direct"), ("winograd2", "winograd4"), ("auto", "winograd4")])
def test_the_gradient_of_a_filter_has_tiles_of_4x4_where_its_convolution_is_winograds(how, of_weights, tmp_path):
    x, w = draw(*SHAPE)
    run = trace(lambda x, w: autodiff.grad(lambda w: (F.conv2d(x, w, padding=1, algorithm=how) ** 2).sum())(w))
    want = run(x, w).numpy().tobytes()
    (node,) = (n for g in run.graph.graphs() for n in g.nodes if n.op == "conv_weight_grad")
    assert node.attrs["algorithm"] == of_weights
    assert run.function(x, w).numpy().tobytes() == want
    tengen.set_threads(1)
    assert run(x, w).numpy().tobytes() == want
    tengen.set_threads(2)
    run.dump(tmp_path / "m.tgn")
    assert tengen.load_graph(tmp_path / "m.tgn")(x, w).numpy().tobytes() == want


def test_an_image_of_nothing():
    x, w = Tensor(np.ones((1, 2, 0, 3), "float32")), Tensor(np.ones((4, 2, 3, 3), "float32"))
    y = conv(x, w, padding=2, algorithm="winograd4")
    assert y.shape == (1, 4, 2, 5) and not y.numpy().any()
    assert conv_transposed(Tensor(np.ones((1, 4, 0, 1), "float32")), w, algorithm="winograd2").shape == (1, 2, 2, 3)


@each("dtype", ["float32", "float16", "bfloat16", "float64"])
def test_what_follows_a_winograd_convolution_in_its_kernel_changes_no_bit(dtype):
    """A cast, a comparison or a quantisation that a trace puts into the convolution's kernel: its products are still of the image's dtype."""
    r = np.random.default_rng(0)
    x, w = (Tensor(r.standard_normal(s)).astype(dtype) for s in SHAPE)
    net = lambda x: F.conv2d(x, w, padding=1)
    assert dtype == "float64" or chosen(trace(net, example_input=x)) == ["winograd4"]
    for last in (
        lambda y: y.astype("float64"), lambda y: y.astype("float16"), lambda y: y > 0, lambda y: F.clip(y, -99, 99).astype("int32"),
        lambda y: F.quantize_linear(y.astype("float32"), Tensor(0.3), Tensor(3, "uint8"), 0, 255, "uint8"),
    ):  # fmt: skip
        f = lambda x, last=last: last(net(x))
        assert trace(f)(x).numpy().tobytes() == f(x).numpy().tobytes()
