"""Attention of quantised networks: what becomes integers and what does not, its scales, and the programs that are made of it."""

import numpy as np
import pytest

import tengen
import tengen.functional as F
import tengen.module as M
import tengen.quantization as Q
from tengen import Parameter, Tensor, load_graph, trace
from tengen.autodiff import GradManager
from tengen.deploy.graphs import Graph
from tengen.quantization.attentions import find_attentions

HEADS, POSITIONS, FEATURES = 2, 7, 24


class Mixer(M.Module):
    """One product gives queries, keys and values, as in most transformers."""

    def __init__(self, mask=None, causal=False):
        super().__init__()
        self.qkv, self.out, self.mask, self.causal = M.Linear(FEATURES, 3 * FEATURES), M.Linear(FEATURES, 8), mask, causal

    def forward(self, x):
        split = lambda a: a.reshape(-1, POSITIONS, HEADS, FEATURES // HEADS).transpose(0, 2, 1, 3)
        q, k, v = map(split, F.split(self.qkv(x), 3, axis=-1))
        y = F.scaled_dot_product_attention(q, k, v, self.mask, self.causal)
        return self.out(y.transpose(0, 2, 1, 3).reshape(-1, POSITIONS, FEATURES))


@pytest.fixture(scope="module")
def mixer():
    """(network, data, the program by integers). Keys are 50 times as large as values."""
    tengen.random.seed(0)
    net = Mixer()
    by = np.repeat(np.float32([1, 5, 0.1]), FEATURES)
    net.qkv.weight = Parameter(net.qkv.weight.numpy() * by.reshape(-1, 1))
    x = Tensor(np.random.default_rng(0).standard_normal((3, POSITIONS, FEATURES)).astype("float32"))
    return net, x, Q.ptq(net, x, None)


def test_queries_keys_and_values_have_scales_of_their_own(mixer):
    """The product's sums become their integers at once."""
    net, x, made = mixer
    assert [layer.op for layer in made.layers] == ["matmul", "attention", "matmul"] and not made.in_float
    attention = made.layers[1]
    assert attention.sqnr > 30 and attention.scales[1] > 20 * attention.scales[2]
    assert not made.graph.find(op="attention") and len(made.graph.find(op="attention_int")) == 1
    (node,) = made.graph.find(op="requantize_linear")
    assert node.outputs[0].type.shape[-1] == 3 * FEATURES and len(made.graph.find(op="quantize_linear")) == 2
    want = net(x).numpy()
    assert np.abs(made(x).numpy() - want).max() < 0.03 * np.abs(want).max()


def test_the_definition_of_the_program(mixer):
    """By NumPy, from its constants: the integers of all layers, and of the attention between them."""
    _, x, made = mixer
    run = made.graph.copy()
    (attention,) = run.find(op="attention_int")
    for i, v in enumerate([*attention.inputs[:3], attention.outputs[0]]):
        run.add_output(f"seen {i}", v)
    _, q, k, v, y = (t.numpy() for t in run(x))
    m, scale = np.float32(made.layers[1].scales[0]) * np.float32(made.layers[1].scales[1]), np.float32(made.layers[1].scales[2])
    m = m * np.float32((FEATURES // HEADS) ** -0.5)
    c = q.astype(np.int64) @ k.astype(np.int64).swapaxes(-1, -2)
    p = np.rint(255 * np.exp(((c - c.max(-1, keepdims=True)).astype(np.float32) * m).astype(np.float64))).astype(np.int64)
    want = (p @ v.astype(np.int64)).astype(np.float32) * (scale / p.sum(-1, keepdims=True).astype(np.float32))
    assert {a.dtype.name for a in (q, k, v)} == {"int8"} and y.tobytes() == want.tobytes()


def test_files_and_parts_of_a_batch_have_its_bits(mixer, tmp_path):
    _, x, made = mixer
    made.save(tmp_path / "mixer.tgn")
    want = made(x).numpy().tobytes()
    assert load_graph(tmp_path / "mixer.tgn")(x).numpy().tobytes() == want
    assert made(x[1:2]).numpy().tobytes() == made(x).numpy()[1:2].tobytes()


def test_sensitive_attention_stays_in_float(mixer):
    """`auto_mix` chooses among all layers, attention too."""
    net, x, _ = mixer
    error = lambda found: 100 - 1000 * float(np.abs(found[0] - net(x).numpy()).max())
    alone = lambda layer: layer.op == "attention"
    road = Q.post_training.Road(net, x, None, error, "minmax", False, True, 0)
    without = road.scored(road.program(lambda layer: not alone(layer)))[0]
    with_it = road.scored(road.program(lambda layer: True))[0]
    assert with_it < without < 100
    made = Q.auto_mix(net, x, drop=(100 - without) * 0.999, metric=error, calibrator="minmax")
    assert made.in_float and made.score >= 100 - (100 - without)


def test_slices_that_overlap_keep_their_scales():
    """They are not requantised together."""
    net = M.Linear(8, 24)

    def f(x):
        y = net(x)
        q, k, v = (y[..., i : i + 12].reshape(-1, 5, 12) for i in (0, 6, 12))
        return F.scaled_dot_product_attention(q, k * 1.0, v)

    x = Tensor(np.random.default_rng(1).standard_normal((2, 5, 8)).astype("float32"))
    made = Q.ptq(f, x, None)
    want = f(x).numpy()
    assert made.graph.find(op="attention_int") and np.abs(made(x).numpy() - want).max() < 0.03 * np.abs(want).max()


@pytest.mark.parametrize("settings, why", [
    ({"causal": True}, "it has a mask"), ({"mask": Tensor(np.tri(POSITIONS, dtype=bool))}, "it has a mask"),
])  # fmt: skip
def test_what_stays_in_float_says_why(settings, why):
    net = Mixer(**settings)
    x = Tensor(np.ones((2, POSITIONS, FEATURES), "float32"))
    made = Q.ptq(net, x, None)
    assert [layer.why_float for layer in made.layers] == ["", why, ""] and made.graph.find(op="attention")


@pytest.mark.parametrize("scale, keys, why", [
    (-1.0, 4, "its scores are multiplied by -1.0"), (1.0, 70_000, "sums over 70000 keys may not fit int32"),
])  # fmt: skip
def test_scores_and_keys_that_have_no_integers(scale, keys, why):
    x = [Tensor(np.zeros((n, 2), "float32")) for n in (3, keys, keys)]
    graph = Graph.of(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, scale=scale), *x)
    assert [a.why_float for a in find_attentions(graph)] == [why]


def test_ranges_of_constant_inputs():
    """Zeros have a scale of 1, as layers have; and so do results."""
    f = lambda x: F.scaled_dot_product_attention(x, x, x)
    x = Tensor(np.zeros((1, 4, 3), "float32"))
    assert not Q.ptq(f, x, None)(x).numpy().any()


def test_training_evaluates_what_is_deployed():
    """`fake_attention` has the bits of the integers, and the gradients of attention of rounded numbers."""
    r = np.random.default_rng(3)
    x = [Parameter(r.standard_normal(shape).astype("float32")) for shape in ((2, 5, 6), (2, 8, 6), (2, 8, 4))]
    scales = [Parameter(np.float32(s)) for s in (0.02, 0.015, 0.01)]  # some values saturate
    weights = Tensor(r.standard_normal((2, 5, 4)).astype("float32"))

    def gradients(f):
        gm = GradManager().attach([*x, *scales])
        with gm:
            y = f()
            gm.backward((y * weights).sum())
        grads = [p.grad.numpy() for p in (*x, *scales)]
        for p in (*x, *scales):
            p.grad = None
        return y, grads

    rounded = lambda: F.scaled_dot_product_attention(*(F.fake_quantize(a, s) for a, s in zip(x, scales)))
    fake, deployed = lambda: F.fake_attention(*x, *scales), [F.quantize_linear(a, s) for a, s in zip(x, scales)]
    (y, got), (near, want) = gradients(fake), gradients(rounded)
    m = scales[0] * scales[1] * np.float32(6**-0.5)
    assert y.numpy().tobytes() == F.attention_int(*deployed, m, scales[2]).numpy().tobytes()
    assert 0 < np.abs(y.numpy() - near.numpy()).max() < 0.02
    assert [g.tobytes() for g in got] == [g.tobytes() for g in want] and all(np.abs(g).max() > 0 for g in got)
    assert trace(fake)().numpy().tobytes() == y.numpy().tobytes()
