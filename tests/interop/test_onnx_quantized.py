"""Models of integers as ONNX files: QuantizeLinear and DequantizeLinear around exact products, whose integers are equal."""

import numpy as np
import pytest

import tengen.functional as F
from tengen import Tensor, trace
from tengen.interop.onnx import load, to_proto
from tengen.ops.define import REGISTRY

pytestmark = pytest.mark.skipif("matmul_int" not in REGISTRY, reason="no integer ops (tengen.quantization) are here to be written")
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
    table = Tensor(RNG.integers(0, 256, 256).astype(np.uint8))
    yield "table", lambda x: F.lookup_codes(q(x), table)


@pytest.mark.parametrize("f", [f for _, f in functions()] if "matmul_int" in REGISTRY else [], ids=lambda f: f.__qualname__[-20:])
def test_integers_are_equal(f):
    x = RNG.standard_normal((2, 3, 6, 8)).astype(np.float32) * 4
    made = trace(f)(Tensor(x))
    want = [t.numpy() for t in (made if isinstance(made, tuple) else (made,))]
    run = trace(f, example_input=Tensor(x))
    proto = to_proto(run)
    back = load(proto)(x)
    for found in (theirs(proto, x), [t.numpy() for t in (back if isinstance(back, tuple) else (back,))]):
        for a, b in zip(found, want, strict=True):
            assert a.dtype == b.dtype and a.tobytes() == b.tobytes()
