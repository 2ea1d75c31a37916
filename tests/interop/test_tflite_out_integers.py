"""int8 networks as TFLite files: the interpreter multiplies integers, and what it gives is ours or one step beside."""

import numpy as np
import pytest
from exhaustive import exhaustive
from tflite_cases import differ, theirs

pytest.importorskip("tflite", reason="the package tflite is not installed: TFLite files are not written")

import tengen
import tengen.functional as F
import tengen.module as M
import tengen.quantization as Q
from tengen import Tensor, trace
from tengen.base.errors import ArgumentError
from tengen.interop.tflite import load, to_bytes
from tengen.interop.tflite.reader import read

RNG = np.random.default_rng(0)


def operators(data):
    return [o.op for o in read(data).graph.operators]


def codes(data):
    """How many of a file's operators read int8, but for those that make floats of it."""
    graph = read(data).graph
    return sum(graph.tensors[o.inputs[0]].dtype == np.int8 and o.op != "DEQUANTIZE" for o in graph.operators)


class Net(M.Module):
    """What training with integers in mind has: convolutions, an addition, a joining, a pool between, a linear layer."""

    def __init__(self):
        super().__init__()
        self.quant, self.dequant = M.QuantStub(), M.DequantStub()
        self.first, self.second = M.ConvBnRelu2d(3, 8, 3, padding=1), M.ConvBn2d(8, 8, 3, padding=1, groups=8)
        self.add, self.cat, self.fc = M.Elemwise("FUSE_ADD_RELU"), M.Concat(), M.Linear(256, 10)

    def forward(self, x):
        a = self.first(self.quant(x))
        a = F.max_pool2d(self.add(self.second(a), a), 2)
        return self.dequant(self.fc(F.flatten(self.cat([a, a], 1), 1)))


def test_a_network_that_was_trained_for_integers():
    tengen.random.seed(0)
    x = RNG.standard_normal((4, 3, 8, 8)).astype(np.float32)
    qat = Q.quantize_qat(Net()).train()
    qat(Tensor(x))
    net = Q.quantize(qat.eval())
    run = trace(net, example_input=Tensor(x))
    data, want = to_bytes(run), run(Tensor(x)).numpy()
    ops = operators(data)
    assert ops[0] == "QUANTIZE" and ops[-2:] == ["DEQUANTIZE", "RESHAPE"] and codes(data) == len(ops) - 3, "floats at the border alone"
    step = float(net.fc.act_rounding.scale.numpy())
    for reference in (True, False):
        got = theirs(data, x, reference=reference)[0]
        assert np.abs(got - want).max() <= 2.01 * step and (got == want).mean() > 0.8, "a step of one layer may become one of the last"
    model = load(data)
    assert model(x).numpy().tobytes() == theirs(data, x)[0].tobytes()
    used = [n.op for n in model.graph.nodes]
    assert used.count("conv_int") == 2 and used.count("matmul_int") == 1 and not {"conv", "matmul"} & set(used), "kernels of 8 bits"


def layers():
    """Layers between integers by name: q, u and r are int8, uint8 with the zero point 100, and int8 by another scale."""
    w = Tensor(RNG.integers(-127, 128, (6, 4, 3, 3)).astype(np.int8))
    deep = Tensor(RNG.integers(-127, 128, (4, 1, 1, 3, 3)).astype(np.int8))
    flat = Tensor(RNG.integers(-127, 128, (5, 4)).astype(np.int8))
    gain = np.array([1, -0.5, 0, 2, -1, 0.25], np.float32).reshape(1, 6, 1, 1)
    gain, shift, scale = Tensor(gain), Tensor(np.linspace(-1, 1, 6, dtype=np.float32).reshape(1, 6, 1, 1)), Tensor(np.float32(2e-4))
    each = Tensor(np.linspace(1e-4, 4e-4, 6, dtype=np.float32).reshape(1, 6, 1, 1))
    zero, out, half = Tensor(np.int32(100)), Tensor(np.float32(0.03)), Tensor(np.float32(0.011))
    to = lambda x: F.quantize_linear(x, out)
    back = lambda q: F.dequantize_linear(q, out)
    centre, number = lambda u: F.centre_codes(u, zero), lambda u: F.dequantize_linear(u, half, zero)
    sums = lambda x, w, *how: F.dequantize_linear(F.conv_int(x, w, *how), scale)
    rim = [(0, 0), (0, 0), (1, 1), (0, 2)]
    yield "conv", lambda q, u, r: back(to(sums(q, w, 1, 1)))
    yield "batch norm and relu", lambda q, u, r: back(to(F.relu(F.dequantize_linear(F.conv_int(q, w, 2, 1), each) * gain + shift)))
    yield "relu6 and a pool", lambda q, u, r: back(to(F.max_pool2d(F.relu6(sums(centre(u), w, 1, 1) + shift), 2)))
    yield "depthwise", lambda q, u, r: back(to(sums(centre(u), deep, 1, 1, 1, 4)))
    yield "rows", lambda q, u, r: back(to(F.dequantize_linear(F.matmul_int(q[:, :, 0, 0], flat, transpose_b=True), scale)))
    yield "requantised", lambda q, u, r: F.relu(back(F.requantize_linear(F.conv_int(q, w) + Tensor(np.int32(300)), Tensor(np.float32(0.01)))))
    yield "sum", lambda q, u, r: back(to(F.relu(F.dequantize_linear(q, half) + F.dequantize_linear(r, out))))
    yield "product", lambda q, u, r: back(to(number(u) * F.dequantize_linear(r, out)))
    yield "another scale", lambda q, u, r: F.dequantize_linear(F.quantize_linear(number(u), out, zero, 0, 255, "uint8"), out, zero)
    yield "surrounded and joined", lambda q, u, r: back(to(F.concat([F.pad(number(u), rim)] * 2, 1)))
    yield "as floats", lambda q, u, r: F.exp(sums(q, w, 1, 1) * gain)


RESCALED = ("another scale", "surrounded and joined")  # QUANTIZE rounds twice: to halves, and these away from zero


def test_layers_between_integers():
    """All in one file; what is quantised is at most a step beside, and rarely; what is not agrees as floats do."""
    x = np.random.default_rng(1).uniform(-1.2, 1.2, (2, 4, 6, 6)).astype(np.float32)
    made = dict(layers())

    def f(x):
        scale = Tensor(np.float32(0.011))
        q, u = F.quantize_linear(x, scale), F.quantize_linear(x, scale, Tensor(np.int32(100)), 0, 255, "uint8")
        r = F.quantize_linear(x * x, Tensor(np.float32(0.03)))
        return [*(g(q, u, r) for g in made.values()), q, u]

    run = trace(f, symbolic=True)
    want = [t.numpy() for t in run(Tensor(x))]
    data = to_bytes(run)
    assert operators(data).count("CONV_2D") == 5 and operators(data).count("DEPTHWISE_CONV_2D") == 1
    for reference in (True, False):
        got = theirs(data, x, reference=reference)
        for name, a, b in zip(made, got, want):
            if name == "as floats":
                assert not differ([a], [b], 0, 2e-5), name
                continue
            off = np.abs(a - b)
            assert a.shape == b.shape and off.max() < 0.0301, f"{name}: off by {off.max() / 0.03:.2f} steps"
            least = 0.6 if name in RESCALED else 0.95
            assert (off < 1e-6).mean() > least, f"{name}: {(off < 1e-6).mean()} are equal"
        assert not differ(got[-2:], want[-2:]), "integers as results"
    ours = [t.numpy() for t in load(data)(x)]
    assert not differ(ours, theirs(data, x), 0, 2e-5)


@exhaustive
def test_networks_quantised_after_training():
    """Layers whose results go to other layers alone are int8; others read integers and give floats, with weights of int8, and residual
    additions read both as floats."""
    tengen.random.seed(0)
    x = RNG.standard_normal((2, 3, 18, 18)).astype(np.float32)
    straight = M.Sequential(
        M.Conv2d(3, 8, 3), M.BatchNorm2d(8), M.ReLU6(), M.MaxPool2d(2), M.Conv2d(8, 16, 3, padding=1), M.ReLU(),
        M.Conv2d(16, 16, 3, groups=16, stride=2), M.ReLU(), M.Flatten(), M.Linear(16 * 9, 10),
    ).eval()  # fmt: skip
    for net, floats, bound in ((straight, 2, 0.01), (tengen.models.resnet18(num_classes=5).eval(), 29, 0.1)):
        made = Q.ptq(net, Tensor(x), None, asymmetric=net is straight)
        want = made(Tensor(x)).numpy()
        made.graph.set_batch(len(x))
        data = to_bytes(made)
        assert operators(data).count("DEQUANTIZE") == floats
        size = sum(np.prod(p.shape) for p in net.parameters())
        assert len(data) < 1.1 * size + 20_000, "a byte for each weight"
        assert np.abs(theirs(data, x, reference=False)[0] - want).max() < bound * np.abs(want).max()


def test_attention():
    """Its products are of floats that are whole numbers: the same bits, but for the exponential's."""
    scale = Tensor(np.float32(0.05))

    def f(x):
        q, k, v = (F.quantize_linear(x[:, i], scale) for i in range(3))
        return F.attention_int(q, k, v, Tensor(np.float32(0.001)), scale)

    x = RNG.standard_normal((2, 3, 5, 8)).astype(np.float32)
    run = trace(f, symbolic=True)
    want = run(Tensor(x)).numpy()
    assert not differ(theirs(to_bytes(run), x, reference=False), [want], 0, 1e-6)
    net = lambda x: F.scaled_dot_product_attention(*(y.reshape(-1, 5, 8) for y in F.split(x @ w, 3, axis=-1)))  # with requantised sums
    w, x = Tensor(RNG.standard_normal((8, 24)).astype(np.float32)), RNG.standard_normal((2, 5, 8)).astype(np.float32)
    made = Q.ptq(net, Tensor(x), None)
    want = made(Tensor(x)).numpy()
    made.graph.set_batch(len(x))
    data = to_bytes(made)
    assert "FULLY_CONNECTED" in operators(data) and codes(data)
    assert np.abs(theirs(data, x, reference=False)[0] - want).max() < 0.01 * np.abs(want).max()


def test_what_cannot_be_said_of_integers():
    x = Tensor(np.ones((2, 3), np.float32))
    w = Tensor(np.ones((3, 3), np.int8))
    scale, twice = Tensor(np.float32(0.1)), Tensor(np.float32(0.2))
    for f, message in [
        (lambda x: F.dequantize_linear(F.quantize_linear(x, scale, None, -8, 7), scale), "integers of int8 from -8 to 7"),
        (lambda x: F.dequantize_linear(F.quantize_linear(x, F.abs(x[0, 0])), scale), "a scale or a zero point that is computed"),
        (lambda x: F.matmul_int(F.quantize_linear(x, scale), w), r"matmul_int\(.*sums in int32 that are read as they are"),
        (lambda x: F.dequantize_linear(x.astype("int8"), scale), "integers of a scale that is not known"),
        (lambda x: F.dequantize_linear(F.quantize_linear(x, scale), twice), "made with the scale 0.1 and are read with 0.2"),
        (lambda x: F.relu(F.dequantize_linear(F.quantize_linear(x, scale), scale, Tensor(np.int32(3)))), "or by another zero point"),
        (lambda x: F.quantize_linear(x, scale) + F.quantize_linear(x * 2, scale), "TFLite's ADD would compute with as such"),
        (lambda x: F.dequantize_linear(F.matmul_int(F.quantize_linear(x, scale, Tensor(np.int32(3))), w), scale), "something else than their"),
    ]:
        with pytest.raises(ArgumentError, match=message):
            to_bytes(trace(f, example_input=x))
