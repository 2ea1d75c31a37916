"""Models of integers as ONNX files: QuantizeLinear and DequantizeLinear around exact products, whose integers are equal."""

import numpy as np
import pytest

import tengen
import tengen.functional as F
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
    table = Tensor(RNG.integers(0, 256, 256).astype(np.uint8))
    yield "table", lambda x: F.lookup_codes(q(x), table)


@pytest.mark.parametrize("f", [f for _, f in functions()], ids=lambda f: f.__qualname__[-20:])
def test_integers_are_equal(f):
    x = RNG.standard_normal((2, 3, 6, 8)).astype(np.float32) * 4
    made = trace(f)(Tensor(x))
    want = [t.numpy() for t in (made if isinstance(made, tuple) else (made,))]
    run = trace(f, example_input=Tensor(x))
    proto = to_proto(run)
    back = load(proto)(x)
    same([t.numpy() for t in (back if isinstance(back, tuple) else (back,))], want)
    same(theirs(proto, x), want)


def same(found, want):
    for a, b in zip(found, want, strict=True):
        assert a.dtype == b.dtype and a.tobytes() == b.tobytes()


def written(f, *inputs):
    """The operators of a function's file."""
    return {n.op_type for n in to_proto(trace(f, example_input=tuple(Tensor(v) for v in inputs))).graph.node}


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


@pytest.mark.parametrize("name", QUANTIZED)
def test_quantised_networks_of_the_zoo_have_the_bits_of_onnxruntime(name):
    """Also where onnxruntime makes weights unsigned, which it does once for each zero point: no two products share that of their weights."""
    for net, x in quantized_networks(name):
        proto = to_proto(net)
        products = [n for n in proto.graph.node if n.op_type == "MatMulInteger"]
        assert products and len({n.input[3] for n in products}) == len(products)
        same(theirs(proto, x), [net(Tensor(x)).numpy()])
