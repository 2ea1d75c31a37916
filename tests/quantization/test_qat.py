"""Quantisation-aware training under MegEngine's names: what a network evaluates is what the quantised network, its trace, its
file and its artifact compute, as bytes; every layer; observers against their formulas; learnt scales against the papers'
gradients; errors."""

from __future__ import annotations

import numpy as np
import pytest
from exhaustive import but

import tengen.functional as F
import tengen.module as M
import tengen.quantization as Q
from tengen import Tensor, load_graph, trace
from tengen.autodiff import GradManager
from tengen.base.errors import ArgumentError, UsageWarning
from tengen.module import qat, quantized
from tengen.module.quantized.module import Rounding
from tengen.optimizer import SGD
from tengen.quantization import QuantizationError, QuantMode, convert, create_qparams
from tengen.quantization.observer import HistogramObserver


class Net(M.Module):
    """Layers with batch norm, an addition, a pooling and a reshape in plain functions, a linear layer behind them."""

    def __init__(self):
        super().__init__()
        self.quant, self.dequant = M.QuantStub(), M.DequantStub()
        self.first, self.second = M.ConvBnRelu2d(1, 8, 3, padding=1), M.ConvBn2d(8, 8, 3, padding=1)
        self.add = M.Elemwise("FUSE_ADD_RELU")
        self.rest = [M.Linear(8 * 16, 10)]

    def forward(self, x):
        a = self.first(self.quant(x))
        x = F.max_pool2d(self.add(self.second(a), a), 2)
        return self.dequant(self.rest[0](F.flatten(x, 1)))


def data(n=16):
    rng = np.random.default_rng(0)
    return Tensor(rng.standard_normal((n, 1, 8, 8)).astype("float32")), Tensor(rng.integers(0, 10, n).astype("int32"))


def train(net, x, y, steps=6, lr=0.05):
    gm, opt = GradManager().attach(net.parameters()), SGD(net.parameters(), lr=lr)

    @trace
    def step(x, y):
        with gm:
            loss = F.loss.cross_entropy(net(x), y)
            gm.backward(loss)
        opt.step().clear_grad()
        return loss

    return [step(x, y).item() for _ in range(steps)]


def test_training_evaluation_trace_and_file_give_the_same_bytes(tmp_path):
    x, y = data()
    net = Q.quantize_qat(Net())
    losses = train(net, x, y)
    assert losses[-1] < losses[0]
    net.eval()
    want = net(x).numpy().tobytes()
    made = Q.quantize(net, inplace=False)
    assert all(isinstance(m, (quantized.QuantizedModule, Rounding, Net)) for m in made.modules())
    assert made.first.weight.dtype == "int8" and made(x).numpy().tobytes() == want
    traced = trace(made, example_input=x)
    assert traced(x).numpy().tobytes() == want
    traced.dump(tmp_path / "net.tgn", arg_names=["x"], output_names=["y"])
    assert load_graph(tmp_path / "net.tgn")(x=x).numpy().tobytes() == want
    with pytest.raises(ValueError, match="quantized module only support inference"):
        made.train()(x)


def test_a_gradient_in_evaluation_is_that_of_training():
    """The bytes are those of the integers; the gradient goes through the rounded floats."""
    x, y = data()
    net = Q.quantize_qat(Net())
    train(net, x, y, 2)
    net.eval()
    plain = net(x).numpy().tobytes()
    gm = GradManager().attach(net.parameters())
    with gm:
        out = net(x)
        gm.backward(F.loss.cross_entropy(out, y))
    assert out.numpy().tobytes() == plain
    assert all(np.abs(p.grad.numpy()).sum() > 0 for n, p in net.named_parameters() if n.endswith("weight"))


LAYERS = {
    "Conv2d": (lambda: M.Conv2d(3, 5, 3, stride=2, padding=1), (2, 3, 7, 6)),
    "ConvRelu2d": (lambda: M.ConvRelu2d(4, 6, 3, groups=2), (2, 4, 6, 6)),
    "depthwise": (lambda: M.Conv2d(4, 4, 3, padding=1, groups=4), (2, 4, 6, 6)),
    "reflect": (lambda: M.Conv2d(3, 5, 3, padding=1, padding_mode="reflect"), (2, 3, 7, 6)),
    "ConvTranspose2d": (lambda: M.ConvTranspose2d(3, 5, 3, stride=2, padding=1, output_padding=1), (2, 3, 5, 4)),
    "ConvTransposeRelu2d": (lambda: M.ConvTransposeRelu2d(3, 5, 3), (2, 3, 5, 4)),
    "ConvBn2d": (lambda: M.ConvBn2d(4, 6, 3, groups=2), (2, 4, 6, 6)),
    "ConvBnRelu2d": (lambda: M.ConvBnRelu2d(3, 5, 3, bias=False), (2, 3, 6, 6)),
    "ConvTransposeBn2d": (lambda: M.ConvTransposeBn2d(3, 5, 3), (2, 3, 5, 4)),
    "ConvTransposeBnRelu2d": (lambda: M.ConvTransposeBnRelu2d(4, 6, 3, groups=2), (2, 4, 5, 4)),
    "Linear": (lambda: M.Linear(12, 7), (5, 12)),
    "LinearRelu": (lambda: M.LinearRelu(12, 7, bias=False), (5, 12)),
    "LinearBn1d": (lambda: M.LinearBn1d(12, 7), (5, 12)),
    "LinearBnRelu1d": (lambda: M.LinearBnRelu1d(12, 7), (5, 12)),
    "BatchMatMulActivation": (lambda: M.BatchMatMulActivation(2, 6, 7, nonlinear_mode="relu"), (2, 6, 3)),
    "Elemwise": (lambda: M.Elemwise("sigmoid"), (5, 12)),
    "QuantStub": (M.QuantStub, (5, 12)),
}


@but(every=3)
@pytest.mark.parametrize("name", LAYERS)
def test_each_layer(name):
    make, shape = LAYERS[name]
    rng = np.random.default_rng(1)
    x = Tensor(rng.standard_normal(shape).astype("float32"))
    plain = make()
    for n, t in plain.named_tensors():
        if "running_var" not in n:
            t[...] = Tensor(rng.standard_normal(t.shape).astype("float32") * 0.5)
    net = Q.quantize_qat(plain, inplace=False)
    assert isinstance(net, qat.QATModule) and "QAT." in repr(net)
    for _ in range(3):
        net(x)
    net.eval()
    Q.enable_observer(net)  # with the statistics of evaluation
    for _ in range(40):
        net(x)
    Q.disable_observer(net)
    plain.load_state_dict({n: t for n, t in net.state_dict().items() if n in plain.state_dict()})
    want, float_result = net(x).numpy(), plain.eval()(x).numpy()
    made = Q.quantize(net, inplace=False)
    assert "Quantized." in repr(made) and made(x).numpy().tobytes() == want.tobytes()
    assert np.abs(want - float_result).max() <= 0.06 * np.abs(float_result).max(), name


def test_concatenation_and_asymmetric_activations():
    """A configuration with zero points: borders are the number 0, not the integer 0."""
    config = Q.QConfig(
        lambda: Q.MinMaxObserver(dtype="qint8_narrow"), lambda: Q.MinMaxObserver(mode=QuantMode.ASYMMERTIC, dtype="quint8"),
        lambda: Q.FakeQuantize("qint8_narrow"), lambda: Q.FakeQuantize("quint8"),
    )  # fmt: skip

    class Two(M.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.both = M.ConvRelu2d(2, 3, 3, padding=1), M.Conv2d(2, 3, 3, padding=1), M.Concat()

        def forward(self, x):
            return self.both([self.a(x), self.b(x)], 1)

    x = Tensor(np.random.default_rng(0).uniform(1, 3, (2, 2, 5, 5)).astype("float32"))
    plain = Two()
    net = Q.quantize_qat(plain, inplace=False, qconfig=config)
    net(x)
    net.eval()
    want = net(x).numpy()
    assert Q.quantize(net, inplace=False)(x).numpy().tobytes() == want.tobytes()
    float_result = plain(x).numpy()
    assert np.abs(want - float_result).max() < 0.05 * np.abs(float_result).max()
    assert net.a.get_activation_qparams().zero_point.item() == 0 and net.b.get_activation_qparams().zero_point.item() > 0


def test_a_chosen_layer_stays_in_float():
    net = Net()
    net.second.disable_quantize()
    made = Q.quantize_qat(net)
    assert type(made.second) is M.ConvBn2d and type(made.second.conv) is M.Conv2d and type(made.first) is qat.ConvBnRelu2d
    x, y = data()
    train(made, x, y, 2)
    made.eval()
    want = made(x).numpy()
    assert Q.quantize(made)(x).numpy().tobytes() == want.tobytes()


class Plain(M.Linear):
    """Computes what its float layer does."""


class Own(M.Linear):
    """Computes something else."""

    def forward(self, inp):
        return super().forward(inp) * 2


def test_a_layer_that_inherits_is_taken_and_one_that_computes_in_its_own_way_is_told():
    with pytest.warns(UsageWarning, match=r"layers of .*\.Own stay float.*help: mapping="):
        net = Q.quantize_qat(M.Sequential(Plain(3, 2), Own(2, 2)))
    assert type(net[0]) is qat.Linear and type(net[1]) is Own
    known = Q.quantize_qat(M.Sequential(Own(2, 2)), mapping={Own: qat.Linear})
    assert type(known[0]) is qat.Linear


def test_hooks_of_a_layer_stay():
    net, seen = M.Sequential(M.Linear(3, 2)), []
    net[0].register_forward_hook(lambda m, x, y: seen.append(type(m)))
    Q.quantize_qat(net)(Tensor([[1.0, 2.0, 3.0]]))
    assert seen == [qat.Linear]


def test_calibration_then_integers():
    x, _ = data(64)
    plain = Net().eval()
    want = plain(x).numpy()
    net = Q.quantize_qat(plain, inplace=False, qconfig=Q.calibration_qconfig)
    net.eval()
    Q.enable_observer(net)
    assert np.abs(net(x).numpy() - want).max() < 1e-5  # nothing is rounded
    Q.disable_observer(net)
    got = Q.quantize(net, inplace=False)(x).numpy()
    assert np.abs(got - want).max() < 0.05 * np.abs(want).max()

    easy = Q.reset_qconfig(net, Q.easyquant_qconfig, inplace=False)
    before = easy.first.act_observer.scale.item()
    Q.apply_easy_quant(easy, x, num=5)
    assert 0.79 * before <= easy.first.act_observer.scale.item() <= 1.21 * before
    assert np.abs(Q.quantize(easy, inplace=False)(x).numpy() - want).max() < 0.06 * np.abs(want).max()


@but(every=2)
@pytest.mark.parametrize("config", [Q.tqt_qconfig, Q.lsq_qconfig], ids=["tqt", "lsq"])
def test_learnt_scales(config):
    x, y = data()
    net = Q.quantize_qat(Net(), qconfig=Q.min_max_fakequant_qconfig)
    train(net, x, y, 2)
    net = Q.reset_qconfig(net, config)
    before = net.first.weight_fake_quant.get_qparams().scale.item()
    losses = train(net, x, y, 4, 0.01)
    assert losses[-1] < losses[0] and net.first.weight_fake_quant.get_qparams().scale.item() != before
    net.eval()
    want = net(x).numpy()
    assert Q.quantize(net, inplace=False)(x).numpy().tobytes() == want.tobytes()


def test_gradients_of_scales():
    """LSQ's and TQT's, written out in float64."""
    rng = np.random.default_rng(3)
    x, g = rng.uniform(-3, 3, (40,)).astype("float32"), rng.standard_normal(40).astype("float32")
    s = 0.3
    v = x.astype("float64") / np.float32(s)
    part = np.where(np.rint(v) < -8, -8, np.where(np.rint(v) > 7, 7, np.rint(v) - v))
    inside = (np.rint(v) >= -8) & (np.rint(v) <= 7)
    lsq, tqt = Q.LSQ("qint4", eps=0.0), Q.TQT("qint4")
    for m in (lsq, tqt):
        m.set_qparams(create_qparams(dtype_meta="qint4", scale=Tensor(s)))
    for m, p, factor in ((lsq, lsq.step_size, 1.0), (tqt, tqt.scale, s * np.log(2))):
        t = Tensor(x)
        with GradManager().attach([t, p]) as gm:
            gm.backward(m(t), Tensor(g))
        np.testing.assert_allclose(p.grad.numpy(), (g * part).sum() * factor, rtol=2e-4, atol=1e-4)
        np.testing.assert_allclose(t.grad.numpy(), g * inside)


def test_observers():
    a, b = np.array([-1.0, 3.0], "float32"), np.array([-2.0, 1.0], "float32")
    for kind, want in ((Q.MinMaxObserver, (-2, 3)), (Q.SyncMinMaxObserver, (-2, 3)), (Q.ExponentialMovingAverageObserver, (-1.1, 2.8)),
                       (Q.SyncExponentialMovingAverageObserver, (-1.1, 2.8))):  # fmt: skip
        o = kind()
        for x in (a, b):
            assert o(Tensor(x)).numpy().tobytes() == x.tobytes()
        np.testing.assert_allclose(o.range(), want, rtol=1e-6)
        np.testing.assert_allclose(o.get_qparams().scale.item(), max(map(abs, want)) / 127.5, rtol=1e-6)
        o.eval()
        o(Tensor([99.0]))
        np.testing.assert_allclose(o.range(), want, rtol=1e-6)
    o = Q.MinMaxObserver(mode=QuantMode.ASYMMERTIC, dtype="quint8")
    o(Tensor(a))
    q = o.get_qparams()
    assert q.zero_point.item() == 64 and abs(q.scale.item() - 4 / 255) < 1e-7
    assert o.get_quantized_dtype().metadata["mgb_dtype"]["zero_point"] == 64


def test_the_histogram_has_the_least_squared_error():
    """Of three tensors whose ranges grow, with 16 integers: against the best of many scales."""
    rng = np.random.default_rng(0)
    o, seen = HistogramObserver(dtype="qint4"), []
    for i in range(3):
        seen.append(np.concatenate([rng.standard_normal(20_000) * (1 + i / 4), [10.0 * i]]).astype("float32"))
        o(Tensor(seen[-1]))
    assert o.histogram.numpy().sum() == pytest.approx(60_003, rel=1e-4)
    x = np.concatenate(seen)
    error = lambda scale: ((np.clip(np.rint(x / scale), -8, 7) * scale - x) ** 2).mean()
    assert error(o.get_qparams().scale.item()) < 1.05 * min(map(error, np.linspace(0.05, 3, 300))) < 0.2 * error(20 / 7.5)


@pytest.mark.parametrize("bad, words", [
    (lambda: Q.quantize(Q.quantize_qat(M.Sequential(M.Linear(2, 2)))), "calibration saw no data"),
    (lambda: Rounding(create_qparams(dtype_meta="qint8", scale=Tensor(0.0))), "is 0; help: scales are finite numbers"),
    (lambda: Rounding(create_qparams(dtype_meta="qint8", scale=Tensor(float("nan")))), "is nan"),
    (lambda: Rounding(create_qparams(dtype_meta="qint8", scale=Tensor(float("inf")))), "is inf"),
    (lambda: Rounding(create_qparams(QuantMode.ASYMMERTIC, "quint8", Tensor(1.0), Tensor(256.0))), r"within \[0, 255\] for quint8, got 256"),
    (lambda: Q.MinMaxObserver(dtype="qint9"), "unknown dtype: qint9, only support quint8"),
    (lambda: Q.PassiveObserver("qint8").scale, "has no scale yet"),
    (lambda: Q.TQT("qint8").set_qparams(create_qparams(QuantMode.ASYMMERTIC, "quint8", Tensor(1.0))), "only symmetric"),
    (lambda: Q.FakeQuantize("qint8")(Tensor([1.0]), create_qparams(dtype_meta="qint4", scale=Tensor(1.0))), "dtype is not equal"),
    (lambda: Q.QConfig(Q.MinMaxObserver(), None, None, None), "must not receive observer instance"),
    (lambda: HistogramObserver()(Tensor([1.0, float("inf")])), "holds NaN or inf"),
    *((lambda bins=bins: HistogramObserver(bins=bins), "HistogramObserver: bins=.* whole number, at least 1") for bins in (0, 2.5, -1)),
    *((lambda m=m: Q.ExponentialMovingAverageObserver(m), "momentum=.* from 0 to 1") for m in (2, -0.1, float("nan"))),
    *((lambda eps=eps: Q.MinMaxObserver(eps=eps), "MinMaxObserver: eps=") for eps in (-1e-5, float("nan"))),
])  # fmt: skip
def test_errors(bad, words):
    with pytest.raises((QuantizationError, ValueError), match=words):
        bad()


def test_networks_that_watched_a_nan_are_refused():
    net = Q.quantize_qat(M.Sequential(M.QuantStub(), M.Linear(2, 2)))
    with pytest.raises(QuantizationError, match="watched NaN or inf"):
        net(Tensor([[1.0, float("nan")]]))
    trace(net)(Tensor([[1.0, float("nan")]]))  # where nobody looks at values
    with pytest.raises(QuantizationError, match="watched NaN or inf"):
        Q.quantize(net)


def test_dtypes():
    from tengen.core.tensor import dtype as D

    x = np.array([-1.0, 0.24, 0.26, 100.0], "float32")
    wanted = [
        ("qint8", (0.5,), [-2, 0, 1, 127]), ("quint8", (0.5, 10), [8, 10, 11, 210]), ("qint4", (0.5,), [-2, 0, 1, 7]),
        ("quint4", (0.5, 3), [1, 3, 4, 15]), ("qint32", (0.5,), [-2, 0, 1, 200]), ("qint1", (0.5,), [0, 0, 1, 1]),
    ]  # fmt: skip
    for name, args, want in wanted:
        d = getattr(D, name)(*args)
        q = getattr(D, f"convert_to_{name}")(x, d)
        assert q.tolist() == want and D.is_quantize(q.dtype) and D.get_scale(d) == 0.5
        np.testing.assert_array_equal(
            getattr(D, f"convert_from_{name}")(q), (np.array(want) - D.get_zero_point(d)) * np.float32(0.5)
        )
        with pytest.raises(ValueError, match="should be"):
            getattr(D, f"convert_to_{name}")(x, np.dtype("int8"))
    with pytest.raises(ValueError, match="within"):
        D.quint8(0.5, 256)
    with pytest.raises(ValueError, match="symmetric"):
        D.create_quantized_dtype(D.QuantDtypeMeta("x", "X", "int8", -1, 1), 0.5, 1)
    assert D.is_bfloat16("bfloat16") and D.is_differentible_dtype("float32")
    assert not D.is_differentible_dtype("int8") and not D.is_lowbit("int8")


def test_functions_of_integers():
    rng = np.random.default_rng(2)
    w = rng.integers(-127, 128, (4, 3, 3, 3)).astype("int8")
    x, bias = rng.integers(0, 256, (2, 3, 6, 5)).astype("uint8"), rng.integers(-500, 500, (1, 4, 1, 1)).astype("int32")
    xt, wt = Tensor(x), Tensor(w)
    xt.qparams = create_qparams(QuantMode.ASYMMERTIC, "quint8", Tensor(0.1), Tensor(100, "int32"))
    wt.qparams = create_qparams(dtype_meta="qint8", scale=Tensor(0.02))
    y = create_qparams(dtype_meta="qint8", scale=Tensor(0.7))
    from tengen.functional import quantized as FQ

    total = F.conv2d(Tensor(x.astype("float64") - 100), Tensor(w.astype("float64")), padding=1).numpy() + bias
    got = FQ.conv_bias_activation(xt, wt, Tensor(bias), y, padding=1, nonlinear_mode="relu")
    m = np.float32(np.float32(0.1) * np.float32(0.02)) / np.float32(0.7)
    want = np.clip(np.rint(total.astype("float32") * m), 0, 127)
    assert got.dtype == "int8" and got.qparams is y
    np.testing.assert_array_equal(got.numpy(), want)
    each = Tensor(np.stack([w, w[::-1]]))
    each.qparams = wt.qparams
    batch = FQ.batch_conv_bias_activation(xt, each, None, padding=1)
    other = F.conv2d(Tensor(x.astype("float64") - 100), Tensor(w[::-1].astype("float64").copy()), padding=1).numpy()
    np.testing.assert_allclose(batch.numpy()[1], other[1] * np.float32(0.1) * np.float32(0.02), rtol=1e-6)
    turned = Tensor(w.transpose(1, 0, 2, 3).copy())
    turned.qparams = wt.qparams
    assert FQ.conv_transpose2d(xt, turned, None, y, stride=2).shape == (2, 4, 13, 11)
    with pytest.raises(ArgumentError, match="whose `qparams` say"):
        FQ.conv_bias_activation(Tensor(x), wt, None)


def test_every_megengine_layer_has_both_forms():
    assert set(convert.NAMES) == set(qat.__all__) - {"QATModule"} and len(convert.FLOAT_TO_QAT) == 17


@pytest.mark.parametrize("more, words", [
    ({}, "no layer has a scale to begin with"), ({"num": 0}, "num=0: needs"), ({"start": 1.2, "stop": 0.8}, "needs 0 < start <= stop"),
    ({"start": 0.0}, "start=0.0"), ({"stop": float("nan")}, "stop=nan"), ({"data": Tensor(np.ones((0, 4), "float32"))}, "a batch of data"),
])  # fmt: skip
def test_what_easyquant_cannot_begin_with(more, words):
    net = Q.quantize_qat(M.Sequential(M.Linear(4, 3)))
    with pytest.raises(Q.QuantizationError, match=words):
        Q.apply_easy_quant(net, **{"data": Tensor(np.ones((2, 4), "float32")), **more})


def test_configurations_and_networks_that_are_none():
    with pytest.raises(TypeError, match="qconfig must be a QConfig, got 'minmax'"):
        Q.quantize_qat(M.Sequential(M.Linear(4, 3)), qconfig="minmax")
    for f in (Q.enable_observer, Q.disable_fake_quant, lambda m: Q.propagate_qconfig(m, Q.min_max_fakequant_qconfig)):
        with pytest.raises(TypeError, match="takes a module, got a function"):
            f(lambda x: x)


def test_a_network_that_does_not_round_asks_no_observer():
    x, _ = data(4)
    net = Q.quantize_qat(Net())
    net.train()(x)
    Q.disable_observer(net.eval())
    rounded = net(x).numpy()
    Q.disable_fake_quant(net)
    plain = net(x).numpy()  # inputs whose rounding the layer before tells are not watched, and need not be
    assert np.isfinite(plain).all() and 0 < np.abs(plain - rounded).max() < 0.2 * np.abs(plain).max()
