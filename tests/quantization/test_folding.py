"""Batch norms are folded into the layers that `ptq` quantises, and sums become integers by one multiplication, against NumPy in float64 and
int64; what must not be folded is not; files, traces and artifacts have the same bytes."""

from __future__ import annotations

import numpy as np
import pytest
from each import each
from needs import needs

import tengen.functional as F
import tengen.module as M
import tengen.quantization as Q
from tengen import Tensor, load_graph, random
from tengen.autodiff import no_grad
from tengen.deploy.compile import compile_model
from tengen.deploy.graphs import Graph
from tengen.deploy.run import run_artifact
from tengen.quantization.folding import fold_affine
from tengen.quantization.post_training import Road
from tengen.quantization.requantising import requantise

RNG = np.random.default_rng(7)


def normal(*shape):
    return RNG.standard_normal(shape).astype("float32")


def norm(n, kind=M.BatchNorm2d):
    """A batch norm whose every number says something; one channel is turned round, and one has a large shift."""
    made = kind(n).eval()
    signs = np.where(np.arange(n) == 1, -1, 1).astype("float32").reshape(made.weight.shape)
    with no_grad():  # parameters require gradients where a test has imported PyTorch's dialect
        made.running_mean[...] = normal(*made.running_mean.shape)
        made.running_var[...] = RNG.uniform(0.3, 3, made.running_var.shape).astype("float32")
        made.weight[...] = RNG.uniform(0.5, 1.5, made.weight.shape).astype("float32") * signs
        made.bias[...] = normal(*made.bias.shape)
    return made


class Residual(M.Module):
    """A block with a shortcut, a depthwise layer, relu6, a pool, and a classifier behind a batch norm of rows."""

    def __init__(self):
        super().__init__()
        self.first, self.n1 = M.Conv2d(3, 8, 3, padding=1, bias=False), norm(8)
        self.deep, self.n2 = M.Conv2d(8, 8, 3, padding=1, groups=8, bias=False), norm(8)
        self.last, self.n3 = M.Conv2d(8, 8, 1), norm(8)
        self.next, self.n4 = M.Conv2d(8, 8, 3, stride=2), norm(8)
        self.rows, self.n5, self.fc = M.Linear(8, 6), norm(6, M.BatchNorm1d), M.Linear(6, 5)

    def forward(self, x):
        a = F.max_pool2d(F.relu(self.n1(self.first(x))), 2)
        b = self.n3(self.last(F.relu6(self.n2(self.deep(a)))))
        c = F.relu(self.n4(self.next(F.relu(a + b))))
        return self.fc(F.relu(self.n5(self.rows(c.mean(3).mean(2)))))


@pytest.fixture(scope="module")
def made():
    """(network, data, what ptq makes of it)."""
    random.seed(1)
    net, x = Residual().eval(), normal(4, 3, 12, 12)
    return net, x, Q.ptq(net, x, None)


def foldable():
    """(name, function, input, the ops that are left)."""
    random.seed(0)
    x, rows = normal(2, 4, 6, 6), normal(5, 4)
    conv, deep, line = M.Conv2d(4, 6, 3), M.Conv2d(4, 8, 3, groups=4, bias=False), M.Linear(4, 6)
    constant = lambda *shape: Tensor(normal(*shape))
    n6, n8, n1, c, d = norm(6), norm(8), norm(6, M.BatchNorm1d), constant(6, 1, 1), constant(1, 6, 1, 1)
    matrix, wide, alone = constant(4, 6), constant(1, 1, 4, 4), lambda x: F.conv2d(x, conv.weight)
    yield "batch norm", lambda x: n6(conv(x)), x, "add conv"
    yield "groups", lambda x: n8(deep(x)), x, "add conv"
    yield "three in a row", lambda x: (2.0 - n6(conv(x)) * c) + d, x, "add conv"
    yield "rows", lambda x: n1(line(x)), rows, "add matmul"
    yield "a matrix", lambda x: F.matmul(x, matrix) * d.reshape(6) - 1.0, rows, "add matmul"
    yield "a shift alone", conv, x, "add conv"
    yield "of pixels", lambda x: alone(x) * wide, x, "conv mul"
    yield "read twice", lambda x: (lambda y: y * c + y)(alone(x)), x, "add conv mul"
    yield "squared", lambda x: (lambda y: y * y)(alone(x)), x, "conv mul"
    yield "given out", lambda x: (lambda y: (y * c, y))(alone(x)), x, "conv mul"
    yield "one weight, two layers", lambda x: n6(alone(x)) + F.relu(F.conv2d(x, conv.weight, d)), x, "add add add conv conv relu"


@each("name, f, inp, ops", foldable())
def test_factors_and_shifts_of_channels_are_folded(name, f, inp, ops):
    """Values as before but for roundings, fewer ops, and the graph that was given is what it was."""
    g = Graph.of(f, Tensor(inp))
    before = str(g)
    folded = fold_affine(g)
    assert " ".join(sorted(n.op for n in folded.nodes if n.op != "reshape")) == ops and str(g) == before
    results = lambda g: made if isinstance(made := g(inp), tuple) else (made,)
    for a, b in zip(results(g), results(folded), strict=True):
        want, got = a.numpy(), b.numpy()
        assert want.shape == got.shape and np.abs(want - got).max() < 4e-6 * np.abs(want).max()


def reference(w, x, stride, padding, groups):
    """The exact sums of a convolution, in int64."""
    x = np.pad(x.astype(np.int64), ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    o, k = w.shape[0], w.shape[-1]
    per, size = o // groups, (x.shape[2] - k) // stride + 1
    made = np.zeros((len(x), o, size, size), np.int64)
    for i in range(o):
        part = x[:, (i // per) * w.shape[1] : (i // per + 1) * w.shape[1]]
        for r in range(size):
            for c in range(size):
                window = part[:, :, r * stride : r * stride + k, c * stride : c * stride + k]
                made[:, i, r, c] = (window * w[i]).sum((1, 2, 3))
    return made


def test_sums_become_integers_by_the_stated_rule():
    """conv, batch norm, relu, a pool, conv: in NumPy's int64, with one multiplication in float32."""
    random.seed(2)
    net = M.Sequential(M.Conv2d(3, 8, 3), norm(8), M.ReLU(), M.MaxPool2d(2), M.Conv2d(8, 4, 3)).eval()
    x = normal(3, 3, 12, 12)
    made = Q.ptq(net, x, None, bias_correction=False)
    first, second = made.layers
    n, f32 = net[1], np.float32
    gain = n.weight.numpy() / np.sqrt(n.running_var.numpy() + np.float64(n.eps))
    w = net[0].weight.numpy().astype(np.float64) * gain.reshape(-1, 1, 1, 1)
    shift = (net[0].bias.numpy() - n.running_mean.numpy().reshape(1, -1, 1, 1)) * gain.reshape(1, -1, 1, 1)
    shift = shift + n.bias.numpy().reshape(1, -1, 1, 1)
    np.testing.assert_allclose(first.weight, w, rtol=1e-6)
    np.testing.assert_allclose(first.bias, shift.reshape(-1), rtol=1e-5, atol=1e-6)
    (qw, sw), (qv, sv) = first.codes(), second.codes()
    scale = f32(first.scale) * sw
    total = reference(qw, np.clip(np.rint(x / f32(first.scale)), *first.dtype[:2]), 1, 0, 1)
    total = total + np.rint(first.bias.reshape(1, -1, 1, 1).astype(np.float64) / scale).astype(np.int64)
    codes = np.clip(np.rint(total.astype(f32) * (scale / f32(second.scale))), 0, 255)
    codes = codes.reshape(3, 8, 5, 2, 5, 2).max((3, 5))
    want = reference(qv, codes, 1, 0, 1).astype(f32) * (f32(second.scale) * sv) + second.bias.reshape(1, -1, 1, 1)
    assert made(x).numpy().tobytes() == want.tobytes()
    assert [n.op for n in made.graph.find(op="*quantize_linear")] == ["quantize_linear", "requantize_linear", "dequantize_linear"]


def test_a_network_has_no_batch_norm_left(made):
    """What reads the image: sums, requantised where layers and additions alone read them."""
    net, x, program = made
    ops = [n.op for n in program.graph.nodes]
    assert not {"fma", "conv", "matmul", "rsqrt"} & {*ops} and "mul" not in ops
    assert ops.count("requantize_linear") == 3 and ops.count("conv_int") == 4 and ops.count("matmul_int") == 2
    want, got = net(Tensor(x)).numpy().astype(np.float64), program(x).numpy()
    assert np.abs(got - want).max() < 0.06 * np.abs(want).max()
    road = Road(net, x, None, None, "mse", False, True, 0)
    assert all(layer.sqnr > 20 for layer in road.layers)
    asymmetric = Q.ptq(net, x, None, asymmetric=True)
    assert np.abs(asymmetric(x).numpy() - want).max() < 0.06 * np.abs(want).max()


def test_a_bias_stays_in_float_where_int32_does_not_hold_it():
    """A shift of 2^31 steps and more, and sums that it would bring out of range, are added in float32."""

    def counted(shift):
        net = M.Sequential(M.Conv2d(2, 3, 1), M.Conv2d(3, 2, 1)).eval()
        net[0].weight[...] = 1e-6
        net[0].bias[...] = shift
        x = normal(2, 2, 4, 4)
        made = Q.ptq(net, x, None)
        want = net(Tensor(x)).numpy()
        assert np.abs(made(x).numpy() - want).max() <= 0.02 * np.abs(want).max() + 1e-9
        return len(made.graph.find(op="requantize_linear"))

    assert counted(1e-6) == 1 and counted(1e6) == 0


def test_every_way_to_run_it_has_the_same_bytes(made, tmp_path):
    _, x, program = made
    want = program(x).numpy().tobytes()
    program.save(tmp_path / "net.tgn")
    model = load_graph(tmp_path / "net.tgn")
    assert model(x).numpy().tobytes() == want
    parts = [model(x[i : i + 1]).numpy().tobytes() for i in range(4)]
    assert b"".join(parts) == want
    again = requantise(program.graph)
    assert len(again.nodes) == len(program.graph.nodes) and again(x).numpy().tobytes() == want


@needs("qemu")
@pytest.mark.parametrize("target", ["aarch64", "x86-64"])
def test_artifacts_have_the_same_bytes(made, target, tmp_path):
    """x86-64 has no fma, and needs none: nothing is left that has one."""
    _, x, program = made
    g = program.graph.copy()
    g.set_batch(1)
    g.save(tmp_path / "net.tgn")
    artifact = compile_model(load_graph(tmp_path / "net.tgn"), target, tmp_path / "out")
    got = run_artifact(artifact, [x[:1]])
    assert got[0].tobytes() == program(x[:1]).numpy().tobytes()


def test_a_budget_that_requantised_sums_would_exceed_keeps_the_numbers():
    """The program with switches measures layers that hand on numbers; the one that is given back is measured, too."""
    random.seed(4)
    net = M.Sequential(M.Conv2d(3, 4, 3), norm(4), M.ReLU(), M.Conv2d(4, 4, 3), M.ReLU(), M.Flatten(), M.Linear(64, 5)).eval()
    x = normal(6, 3, 8, 8)
    road = Road(net, x, None, None, "mse", False, True, 0)
    g = road.program(lambda layer: True)
    plain, short = g(x).numpy(), requantise(g)(x).numpy()
    assert plain.tobytes() != short.tobytes()
    road.metric = lambda found: 100.0 if found[0].tobytes() == plain.tobytes() else 0.0
    road.float_score = 100.0
    assert road.mixed(1.0).graph(x).numpy().tobytes() == plain.tobytes()
    road.metric = lambda found: 100.0
    assert road.mixed(1.0).graph(x).numpy().tobytes() == short.tobytes()
