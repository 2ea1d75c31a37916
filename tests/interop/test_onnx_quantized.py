"""Models of integers as ONNX files: QuantizeLinear and DequantizeLinear around exact products, whose integers are equal."""

import numpy as np
import pytest
from exhaustive import but
from onnx.reference import ReferenceEvaluator

import tengen
import tengen.functional as F
import tengen.module as M
import tengen.quantization as Q
from tengen import Tensor, trace
from tengen.base.errors import ArgumentError
from tengen.interop.onnx import load, to_proto

RNG = np.random.default_rng(0)


def theirs(proto, x):
    ort = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: what it computes is not compared")
    options = ort.SessionOptions()
    options.add_session_config_entry("session.x64quantprecision", "1")
    session = ort.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, {session.get_inputs()[0].name: x})


FORMS = ("qdq", "integers")


def products(proto):
    """The operators of products in a file."""
    return {n.op_type for n in proto.graph.node} & {"Conv", "MatMul", "Gemm", "ConvInteger", "MatMulInteger"}


def functions():
    """Functions of numbers (2, 3, 6, 8), by name."""
    scale, zero = Tensor(np.float32(0.05)), Tensor(np.array(7, np.int32))
    each = Tensor((RNG.random((1, 3, 1, 1)) / 20 + 0.01).astype(np.float32))
    w = Tensor(RNG.integers(-127, 128, (8, 5)).astype(np.int8))
    k = Tensor(RNG.integers(-127, 128, (4, 3, 3, 3)).astype(np.int8))
    q = lambda x: F.quantize_linear(x, scale, zero, 0, 255, "uint8")
    yield "codes", lambda x: (q(x), F.quantize_linear(x, scale), F.quantize_linear(x, scale, None, -127, 127), F.quantize_linear(x, each))
    yield "and back", lambda x: (F.dequantize_linear(q(x), scale, zero), F.dequantize_linear(F.quantize_linear(x, each), each))
    yield "product", lambda x: F.requantize_linear(F.matmul_int(F.centre_codes(q(x), zero), w), Tensor(np.float32(0.003)))
    yield "turned", lambda x: F.matmul_int(q(x), F.quantize_linear(x, scale), transpose_b=True)
    yield "convolution", lambda x: F.requantize_linear(
        F.conv_int(F.centre_codes(q(x), zero), k, 2, 1), Tensor(np.float32(0.002)), zero, 0, 255, "uint8"
    )
    far, slices, columns = Tensor([[[-7]], [[300]], [[3]]], "int32"), Tensor([[[5]], [[0]], [[9]]], "int32"), Tensor(np.arange(8.0) / 50 + 0.02)
    yield "zero points that the integers do not hold", lambda x: (
        F.quantize_linear(x, scale, far, 0, 255, "uint8"), F.dequantize_linear(q(x), scale, far),
        F.requantize_linear(F.astype(q(x), "int32"), scale, far),
    )
    yield "other integers and axes", lambda x: (
        F.quantize_linear(x, scale, zero, -1000, 1000, "int32"), F.fake_quantize(x, scale, zero, 0, 15), F.fake_quantize(x, columns, slices),
        F.quantize_linear(x, each * columns, slices), F.dequantize_linear(q(x), columns, slices), F.quantize_linear(x[:, :1], each, slices),
        F.requantize_linear(F.astype(q(x[0, 0]), "int32"), scale, Tensor([[[7]]], "int32")), F.quantize_linear(x[0, 0], scale.reshape(1, 1, 1)),
    )
    each_w, bias = Tensor((RNG.random(5) / 500 + 0.001).astype(np.float32)), Tensor(RNG.integers(-900, 900, 5).astype(np.int32))
    groups, one = Tensor(RNG.integers(-127, 128, (3, 2, 1, 3, 2)).astype(np.int8)), Tensor(np.float32(0.004))
    each_k = Tensor((RNG.random((1, 4, 1, 1)) / 500 + 0.001).astype(np.float32))
    added = Tensor(RNG.integers(-900, 900, (4, 1, 1)).astype(np.int32))
    q8 = lambda x: F.quantize_linear(x, scale)
    yield "rows with a bias", lambda x: F.requantize_linear(F.matmul_int(F.centre_codes(q(x), zero), w) + bias, each_w, zero, 0, 255, "uint8")
    yield "turned rows", lambda x: F.requantize_linear(F.matmul_int(q8(x[0, 0]), w.T, transpose_b=True) + bias, each_w, None, -100, 90)
    yield "groups", lambda x: F.requantize_linear(F.conv_int(q8(x), groups, (1, 2), (0, 1), 2, 3), one)
    yield "channels", lambda x: F.requantize_linear(F.conv_int(q8(x), F.centre_codes(k, Tensor(3, "int32"))) + added, each_k)
    yield "codes by codes", lambda x: F.requantize_linear(
        F.matmul_int(F.centre_codes(q(x), zero), q8(x), True, False), one, zero, 0, 255, "uint8"
    )
    yield "sums that two nodes read", lambda x: [
        F.requantize_linear(s, m) for s in [F.matmul_int(q8(x), w)] for m in (one, scale)
    ]
    yield "attention", lambda x: F.attention_int(q8(x), q8(x * 2), q8(x + 1), Tensor(np.float32(0.001)), scale)
    yield "pools", lambda x: F.max_pool2d(F.max_pool2d(q(x), 3, 2, 1), 2, 1)
    table = Tensor(RNG.integers(0, 256, 256).astype(np.uint8))
    yield "table", lambda x: F.lookup_codes(q(x), table)


@but(every=3)
@pytest.mark.parametrize("f", [f for _, f in functions()], ids=lambda f: f.__qualname__[-20:])
def test_integers_are_equal(f):
    x = RNG.standard_normal((2, 3, 6, 8)).astype(np.float32) * 4
    made = trace(f)(Tensor(x))
    several = lambda y: [t.numpy() for t in (y if isinstance(y, tuple | list) else (y,))]
    want = several(made)
    run = trace(f, example_input=Tensor(x))
    protos = [to_proto(run, quantized=form) for form in FORMS]
    for proto in protos if products(protos[0]) else protos[:1]:
        same(several(load(proto)(x)), want)
    for proto in protos:
        same(theirs(proto, x), want)


def same(found, want):
    for a, b in zip(found, want, strict=True):
        assert a.dtype == b.dtype and a.tobytes() == b.tobytes()


def written(f, *inputs):
    """The operators of a function's file."""
    return {n.op_type for n in to_proto(trace(f, example_input=tuple(Tensor(v) for v in inputs))).graph.node}


def test_products_whose_results_are_floats_are_read_as_they_were():
    """A convolution and a product of rows, with and without a bias of integers, and one of floats: exact sums, scaled once."""
    k, k2, w = (Tensor(RNG.integers(-127, 128, shape).astype(np.int8)) for shape in ((4, 3, 3, 3), (4, 3, 3, 3), (5, 8)))
    each, bias = Tensor((RNG.random((1, 4, 1, 1)) / 500).astype(np.float32)), Tensor(RNG.integers(-900, 900, (1, 4, 1, 1)).astype(np.int32))
    q = lambda x: F.quantize_linear(x, Tensor(np.float32(0.05)))

    def f(x):
        sums, rows = F.conv_int(q(x), k), F.matmul_int(q(x), w, transpose_b=True)
        a, b = F.dequantize_linear(F.conv_int(q(x * 2), k2) + bias, each), F.dequantize_linear(sums, each)
        return a, F.relu(b + each), F.dequantize_linear(rows, Tensor(np.float32(0.01))), F.quantize_linear(a + b, Tensor(np.float32(0.5)))

    x = RNG.standard_normal((2, 3, 6, 8)).astype(np.float32)
    run = trace(f, example_input=Tensor(x))
    want, proto = [t.numpy() for t in run(Tensor(x))], to_proto(run)
    assert products(proto) == {"Conv", "MatMul"}
    same([t.numpy() for t in load(proto)(x)], want)
    for a, b in zip(theirs(proto, x), want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


def test_zero_points_that_are_known_to_fit_are_of_the_operators():
    x, scale = np.ones((2, 3), np.float32), Tensor(np.float32(0.5))
    quantized = lambda zero: lambda v: F.dequantize_linear(F.quantize_linear(v, scale, zero, 0, 255, "uint8"), scale, zero)
    for fits in (0, 255, [[0], [255]]):
        assert {"QuantizeLinear", "DequantizeLinear"} <= written(quantized(Tensor(fits, "int32")), x)
    for not_held in (-1, 256):
        assert not {"QuantizeLinear", "DequantizeLinear"} & written(quantized(Tensor(not_held, "int32")), x)


def test_products_of_codes_whose_zero_point_may_not_fit_are_refused():
    a, b = np.ones((2, 3), np.uint8), Tensor(np.ones((3, 2), np.int8))
    product = lambda v, zero: F.matmul_int(F.centre_codes(v, zero), b)
    assert "MatMulInteger" in written(lambda v: product(v, Tensor(9, "int32")), a)
    assert "MatMulInteger" in written(lambda v, z: product(v, F.astype(z, "int32")), a, np.array(9, np.uint8))
    for f, more in ((lambda v: product(v, Tensor(-9, "int32")), ()), (product, (np.array(9, np.int32),))):
        with pytest.raises(ArgumentError, match="no 8-bit number less one known zero point"):
            written(f, a, *more)


QUANTIZED = {"lenet": (1, 32, 32), "mlp": (3, 4, 4), "resnet": (3, 32, 32)}  # whose floats are sums and products alone
OPTIONS = {"mlp": {"sizes": (48, 33, 10)}, "resnet": {"depths": (1, 1), "width": 8, "num_classes": 7, "bottleneck": True}}


def quantized_networks(name):
    """A network of the zoo, quantised after training and in it."""
    net = getattr(tengen.models, name)(**OPTIONS.get(name, {}))
    x = RNG.standard_normal((2, *QUANTIZED[name])).astype(np.float32)
    yield Q.ptq(net.eval(), x, None), x
    qat = Q.quantize_qat(net.train(), inplace=False)
    for _ in range(2):
        qat(Tensor(x))
    deployed = Q.quantize(qat.eval(), inplace=False)
    yield trace(deployed, example_input=Tensor(x)), x


@but(every=2)
@pytest.mark.parametrize("name", QUANTIZED)
def test_quantised_networks_of_the_zoo_have_the_bits_of_onnxruntime(name):
    """Also where onnxruntime makes weights unsigned, which it does once for each zero point: no two products share that of their weights.

    Between pairs it computes products whose results are floats by floats: the last one, and those that shortcuts of a network that was
    quantised after training read."""
    for in_training, (net, x) in enumerate(quantized_networks(name)):
        want = net(Tensor(x)).numpy()
        qdq, integers = (to_proto(net, quantized=form) for form in FORMS)
        assert products(qdq) <= {"Conv", "Gemm", "MatMul"} and products(integers) <= {"ConvInteger", "MatMulInteger"}
        weights = [n.input[3] for n in integers.graph.node if n.op_type == "MatMulInteger"]
        assert weights and len(set(weights)) == len(weights)
        same([load(qdq)(x).numpy()], [want])
        same(theirs(integers, x), [want])
        found = theirs(qdq, x)
        if in_training:
            same(found, [want])
        assert np.abs(found[0] - want).max() <= 1e-6 * np.abs(want).max()


@pytest.mark.parametrize("bits", [8, 4])
def test_weights_alone(bits):
    """In tiles, and not; of activations that become integers every product is exact there too, and sums of groups alone may be rounded
    in another order."""
    plain = M.Sequential(M.Linear(75, 66), M.ReLU(), M.Linear(66, 5)).eval()
    x = RNG.standard_normal((2, 3, 75)).astype(np.float32)
    for activations in ("float32", "int8"):
        net = trace(Q.quantize_weights(plain, bits, 32, inplace=False, activations=activations), example_input=Tensor(x))
        want, proto = net(Tensor(x)).numpy(), to_proto(net)
        for got in (ReferenceEvaluator(proto).run(None, {proto.graph.input[0].name: x})[0], load(proto)(x).numpy()):
            np.testing.assert_allclose(got, want, rtol=0, atol=2e-6 * np.abs(want).max())


def test_tensorrt_takes_int8_with_zero_points_of_0():
    """Its biases are floats; unsigned integers are told."""
    (unsigned, _), (net, x) = quantized_networks("mlp")
    proto = to_proto(net, runtime="tensorrt")
    arrays = {t.name: t.data_type for t in proto.graph.initializer}
    assert [arrays[n.input[2]] for n in proto.graph.node if n.op_type == "Gemm"] == [1, 1] and not {2, 6} & set(arrays.values())
    np.testing.assert_allclose(load(proto)(x).numpy(), net(Tensor(x)).numpy(), atol=0.1)
    with pytest.raises(ArgumentError, match="its DequantizeLinear has int8 with zero points of 0; help"):
        to_proto(unsigned, runtime="tensorrt")
    with pytest.raises(ArgumentError, match="quantized='qlinear': there are qdq, integers"):
        to_proto(net, quantized="qlinear")
