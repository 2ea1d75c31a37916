"""Ops of com.microsoft, as onnxruntime's quantiser and optimiser write them, beside onnxruntime; and whole networks that it wrote."""

import re

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper, parser

from tengen.base.errors import ArgumentError
from tengen.interop.onnx import load, to_module
from tengen.interop.onnx.values import as_array

ort = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: its results are not compared")
RNG = np.random.default_rng(0)
MS = "com.microsoft"


def normal(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def coded(dtype, *shape):
    info = np.iinfo(dtype)
    return RNG.integers(info.min, info.max + 1, shape).astype(dtype)


def f32(v):
    return np.array(v, np.float32)


def session(m):
    options = ort.SessionOptions()
    options.graph_optimization_level, options.log_severity_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL, 3
    options.intra_op_num_threads = 1  # an LSTM quantises the rows of each thread by themselves
    options.add_session_config_entry("session.x64quantprecision", "1")  # AVX2 without VNNI saturates products otherwise
    return ort.InferenceSession(m.SerializeToString(), options, providers=["CPUExecutionProvider"])


def both(op, inputs, outs=1, known=(), domain=MS, **attributes):
    """The outputs of a node here and in onnxruntime. inputs: arrays, and None for absent ones; known: those that stand in the file."""
    names = ["" if v is None else f"x{i}" for i, v in enumerate(inputs)]
    given = {name: np.asarray(v) for name, v in zip(names, inputs) if name}
    kept = {f"x{i}" for i in known}
    code = helper.np_dtype_to_tensor_dtype
    m = helper.make_model(
        helper.make_graph(
            [helper.make_node(op, names, [f"y{i}" if outs & 1 << i else "" for i in range(outs.bit_length())], domain=domain, **attributes)],
            "g", [helper.make_tensor_value_info(k, code(v.dtype), v.shape) for k, v in given.items() if k not in kept],
            [helper.make_empty_tensor_value_info(f"y{i}") for i in range(outs.bit_length()) if outs & 1 << i],
            [numpy_helper.from_array(v, k) for k, v in given.items() if k in kept],
        ),
        opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid(MS, 1)], ir_version=10,
    )  # fmt: skip
    fed = {k: v for k, v in given.items() if k not in kept}
    return [as_array(v) for v in to_module(m).eval().values(list(fed.values()))], session(m).run(None, fed)


def equal(op, inputs, **more):
    for a, b in zip(*both(op, inputs, **more), strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape, (a.dtype, b.dtype, a.shape, b.shape)
        assert (a == b).all(), f"{op}: {(a != b).sum()} of {a.size} differ"


def close(op, inputs, tolerance=2e-5, **more):
    for a, b in zip(*both(op, inputs, **more), strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape, (a.dtype, b.dtype, a.shape, b.shape)
        np.testing.assert_allclose(a.astype(np.float64), b.astype(np.float64), rtol=tolerance, atol=tolerance, err_msg=op)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_arithmetic_on_8_bits(dtype):
    """All pairs of codes; equal."""
    info = np.iinfo(dtype)
    every = np.arange(info.min, info.max + 1).astype(dtype)
    zero = lambda v: np.array(v, dtype)
    a, b = every.reshape(-1, 1), every.reshape(1, -1)
    for sa, za, sb, zb, sc, zc in ((0.1, 3, 0.023, 7, 0.11, 9), (0.0173, 100, 0.5, 0, 0.3, 50), (1.7, 0, 0.9, 127, 1.1, 1)):
        scales = (a, f32(sa), zero(za), b, f32(sb), zero(zb), f32(sc), zero(zc))
        equal("QLinearAdd", scales)
        equal("QLinearMul", scales)
        equal("QLinearConcat", [f32(sc), zero(zc), a, f32(sa), zero(za), b.reshape(-1, 1), f32(sb), zero(zb)], known=(0, 1, 3, 4, 6, 7), axis=0)
        equal("QLinearLeakyRelu", [every, *scales[1:3], *scales[6:]], known=(1, 2, 3, 4), alpha=0.17)
        equal("QLinearSigmoid", [every, *scales[1:3], f32(1 / 256), zero(0)], known=(1, 2, 3, 4))
        chosen = RNG.integers(0, 2, (256, 1)).astype(bool)
        equal("QLinearWhere", [chosen, a, *scales[1:3], b, *scales[4:6], *scales[6:]], known=(2, 3, 5, 6, 7, 8))


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_pools_and_products_on_8_bits(dtype):
    zero = lambda v: np.array(v, dtype)
    x = coded(dtype, 2, 4, 7, 9)
    for last in (0, 1):
        equal("QLinearGlobalAveragePool", [x, f32(0.1), zero(3), f32(0.05), zero(9)], channels_last=last)
        window = {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1], "channels_last": last}
        for counted in (0, 1):
            equal("QLinearAveragePool", [x, f32(0.1), zero(3), f32(0.0613), zero(9)], known=(1, 2, 3, 4), count_include_pad=counted, **window)
    w = coded(np.int8, 6, 2, 3, 3)
    filters = [w, normal(6) ** 2 + f32(0.01), np.zeros(6, np.int8)]
    for last in (0, 1):
        turned = np.ascontiguousarray(np.moveaxis(x, 1, -1)) if last else x
        equal(
            "QLinearConv", [turned, f32(0.1), zero(3), *filters, f32(9), zero(9), coded(np.int8, 6).astype(np.int32)], known=range(1, 9),
            group=2, pads=[1, 1, 1, 1], kernel_shape=[3, 3], channels_last=last,
        )  # fmt: skip
    a, b, c = coded(dtype, 5, 33), coded(np.int8, 33, 8), RNG.integers(-5000, 5000, 8).astype(np.int32)
    for scale, bz in ((f32(0.02), np.int8(-3)), (normal(8) ** 2 + f32(0.01), coded(np.int8, 8))):
        head = [a, f32(0.1), zero(3), b, scale, np.asarray(bz), c]
        close("QGemm", head, known=range(1, 7), alpha=1.0)
        equal("QGemm", [*head, f32(2.5), zero(5)], known=range(1, 9))
        turned = [a.T.copy(), *head[1:3], b.T.copy(), *head[4:6], None, f32(2.5), zero(5)]
        equal("QGemm", turned, transA=1, transB=1, known=(1, 2, 3, 4, 5, 7, 8))
        close("MatMulIntegerToFloat", [a, b, f32(0.1), scale, zero(3), np.asarray(bz), normal(8)], known=range(1, 7))
        close("DynamicQuantizeMatMul", [normal(2, 5, 33), b, scale, np.asarray(bz), normal(8)], known=range(1, 5))
    # a sum of float32 in another order may round the other way
    for axis, opset in ((1, 13), (-1, 13), (1, 12)):
        got, want = both("QLinearSoftmax", [x, f32(0.03), zero(3), f32(1 / 256), zero(0)], known=(1, 2, 3, 4), axis=axis, opset=opset)
        off = np.abs(got[0].astype(int) - want[0])
        assert off.max() <= 1 and (off > 0).mean() < 0.02


def test_lstms_with_weights_of_8_bits():
    steps, batch, width, hidden = 4, 2, 5, 6
    for way in ("forward", "reverse", "bidirectional"):
        d = 2 if way == "bidirectional" else 1
        for dtype, per in ((np.int8, 1), (np.uint8, 0)):
            scale = lambda d=d, per=per: normal(d, 4 * hidden) ** 2 / 200 + f32(1e-3) if per else f32([0.01] * d)
            zero = np.zeros((d, 4 * hidden), dtype) if per else np.full(d, 120, dtype)
            w, r = coded(dtype, d, width, 4 * hidden), coded(dtype, d, hidden, 4 * hidden)
            inputs = [
                normal(steps, batch, width), w, r, normal(d, 8 * hidden), None, normal(d, batch, hidden), normal(d, batch, hidden), None,
                scale(), zero, scale(), zero,
            ]  # fmt: skip
            known = (1, 2, 3, 8, 9, 10, 11)
            close("DynamicQuantizeLSTM", inputs, tolerance=1e-4, outs=7, known=known, hidden_size=hidden, direction=way)


def test_fused_floats():
    x, y = normal(2, 5, 8), normal(8)
    close("Gelu", [x])
    close("BiasGelu", [x, y])
    close("FastGelu", [x, y])
    close("FastGelu", [x])
    close("QuickGelu", [x], alpha=1.5)
    close("QuickGelu", [x])
    for a, b, c, d in ((0, 0, 0, 0), (1, 0, 0, 0), (0, 1, 0, 0), (1, 1, 0, 0), (0, 0, 1, 0), (0, 0, 0, 1)):
        p, q = normal(*((3, 2, 4, 5) if not a else (3, 2, 5, 4))), normal(*((3, 2, 5, 6) if not b else (3, 2, 6, 5)))
        p, q = (np.moveaxis(t, 2, 0).copy() if turned else t for t, turned in ((p, c), (q, d)))
        close("FusedMatMul", [p, q], alpha=0.5, transA=a, transB=b, transBatchA=c, transBatchB=d)
    close("FusedGemm", [normal(3, 4), normal(6, 4), normal(6)], transB=1, alpha=0.5, activation="LeakyRelu", activation_alpha=0.2)
    picture, w, b = normal(2, 3, 6, 7), normal(4, 3, 3, 3), normal(4)
    plain = [(name, ()) for name in ("Relu", "Tanh", "Sigmoid")]
    for name, numbers in (*plain, ("Clip", (-0.5, 0.7)), ("LeakyRelu", (0.2,)), ("HardSigmoid", (0.3, 0.4))):
        more = {"activation": name} | ({"activation_params": list(numbers)} if numbers else {})
        close("FusedConv", [picture, w, b], pads=[1, 1, 1, 1], **more)
    close("FusedConv", [picture, w, b, normal(2, 4, 6, 7)], pads=[1, 1, 1, 1], activation="Relu")
    equal("NhwcMaxPool", [coded(np.uint8, 2, 6, 7, 3)], kernel_shape=[2, 3], strides=[1, 2], pads=[0, 1, 1, 1])
    for beta, bias in ((y, None), (y, normal(8)), (None, None)):
        close("SkipLayerNormalization", [x, normal(2, 5, 8), normal(8), beta, bias], outs=9, epsilon=1e-5)
    close("SkipSimplifiedLayerNormalization", [x, normal(2, 5, 8), normal(8), y], outs=9, epsilon=1e-5)
    close("SimplifiedLayerNormalization", [x, normal(8)], domain="", epsilon=1e-6)
    words, places, kinds = normal(30, 8), normal(16, 8), normal(2, 8)
    ids, segments = RNG.integers(0, 30, (2, 5)).astype(np.int32), RNG.integers(0, 2, (2, 5)).astype(np.int32)
    mask = np.array([[1, 1, 1, 0, 0], [1] * 5], np.int32)
    close("EmbedLayerNormalization", [ids, segments, words, places, kinds, normal(8), y, mask], outs=3, epsilon=1e-5)
    close("EmbedLayerNormalization", [ids, None, words, places, None, normal(8), y, None, ids % 16], outs=3)


def test_weights_of_few_bits():
    for bits in (2, 4, 8):
        for zeros in (False, True):
            n, k, block = 6, 40, 16
            blocks = -(-k // block)
            b = coded(np.uint8, n, blocks, block * bits // 8)
            z = coded(np.uint8, n, -(-blocks * bits // 8)) if zeros else None
            inputs = [normal(2, 3, k), b, normal(n, blocks), z, None, normal(n)]
            close("MatMulNBits", inputs, tolerance=1e-4, known=(1, 2, 3, 5), K=k, N=n, bits=bits, block_size=block)
    data = coded(np.uint8, 9, 16)
    rows, zeros = np.array([[3, 0], [8, 8]]), coded(np.uint8, 9, 1)
    close("GatherBlockQuantized", [data, rows, normal(9, 2), zeros], known=(0, 2, 3), bits=4, block_size=16)
    close("GatherBlockQuantized", [data, np.array([3, 0, 8]), normal(9, 2)], known=(0, 2), bits=4, block_size=16)


def multi_head(packed):
    """Attention of queries, keys and values in one tensor."""
    node = helper.make_node("MultiHeadAttention", ["x"], ["y"], domain=MS, num_heads=packed.shape[2])
    ports = [helper.make_tensor_value_info("x", 1, packed.shape)], [helper.make_empty_tensor_value_info("y")]
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(MS, 1)]
    return [as_array(v) for v in to_module(helper.make_model(helper.make_graph([node], "g", *ports), opset_imports=opsets)).values([packed])]


def test_attention():
    batch, steps, heads, size = 2, 5, 3, 4
    hidden = heads * size
    x, w, b = normal(batch, steps, 7), normal(7, 3 * hidden), normal(3 * hidden)
    masks = [
        None, np.array([3, 5], np.int32), np.array([4, 5, 1, 0], np.int32), np.array([[1, 1, 1, 0, 0], [0, 1, 1, 1, 1]], np.int32),
        RNG.integers(0, 2, (batch, steps, steps)).astype(np.int32) | np.eye(steps, dtype=np.int32),
    ]  # fmt: skip
    for mask in masks:
        for causal in (0, 1) if mask is None or mask.ndim > 1 else (0,):
            close("Attention", [x, w, b, mask], num_heads=heads, unidirectional=causal)
    past = normal(2, batch, heads, 3, size)
    close("Attention", [x, w, b, None, past], outs=3, num_heads=heads, unidirectional=1)
    close("Attention", [x, w, b, None, None, normal(1, heads, steps, steps)], num_heads=heads, scale=0.3)
    close("Attention", [x, normal(7, 2 * hidden + 6), normal(2 * hidden + 6)], num_heads=heads, qkv_hidden_sizes=[hidden, hidden, 6])
    q, k, v = normal(batch, steps, hidden), normal(batch, 6, hidden), normal(batch, 6, heads * 5)
    close("MultiHeadAttention", [q, k, v], num_heads=heads)
    close("MultiHeadAttention", [q, k, v, normal(2 * hidden + heads * 5)], num_heads=heads)
    padding = np.array([[1] * 6, [1, 1, 1, 0, 0, 0]], np.int32)
    close("MultiHeadAttention", [q, k, v, None, padding, normal(batch, heads, steps, 6)], num_heads=heads)
    by_heads = [normal(batch, heads, 6, size), normal(batch, heads, 6, size)]
    close("MultiHeadAttention", [q, *by_heads], num_heads=heads)
    packed = normal(batch, steps, heads, 3, size)  # onnxruntime has it on GPUs alone
    apart = [packed[:, :, :, i].reshape(batch, steps, hidden) for i in range(3)]
    (got,), (want,) = multi_head(packed), both("MultiHeadAttention", apart, num_heads=heads)[1]
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
    new = [normal(batch, steps, hidden) for _ in range(2)]
    close("MultiHeadAttention", [q, *new, None, None, None, *by_heads], outs=7, num_heads=heads, unidirectional=1)
    a, weight = coded(np.uint8, batch, steps, 7), coded(np.int8, 7, 3 * hidden)
    quantised = [a, weight, b, f32(0.02), f32(0.01), np.array([3, 5], np.int32), np.uint8(120), np.int8(0)]
    close("QAttention", quantised, known=(1, 2, 3, 4, 6, 7), tolerance=1e-4, num_heads=heads)


def test_rotary_positions_and_grouped_queries():
    batch, steps, heads, few, size, most = 2, 4, 4, 2, 16, 16
    angle = np.arange(most)[:, None] * 0.3 ** np.arange(size // 2)
    cos, sin = np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)
    x, places = normal(batch, steps, heads * size), np.array([[3, 4, 5, 6], [0, 1, 2, 3]])
    for turned in (0, 1):
        close("RotaryEmbedding", [x, places, cos, sin], interleaved=turned)
        close("RotaryEmbedding", [normal(batch, heads, steps, size), np.array([5]), cos, sin], interleaved=turned)
    close("RotaryEmbedding", [x, places, cos[:, :2].copy(), sin[:, :2].copy()], num_heads=heads, rotary_embedding_dim=4)
    whole = lambda v: np.array(v, np.int32)
    common = {"num_heads": heads, "kv_num_heads": few, "outs": 7}
    kv = lambda: normal(batch, steps, few * size)
    first = [x, kv(), kv(), None, None, whole([steps - 1] * batch), whole(steps)]
    close("GroupQueryAttention", first, **common)
    close("GroupQueryAttention", [*first, cos, sin], do_rotary=1, **common)
    close("GroupQueryAttention", [normal(batch, steps, (heads + 2 * few) * size), None, None, *first[3:], cos, sin], do_rotary=1, **common)
    close("GroupQueryAttention", first, local_window_size=2, scale=0.2, **common)
    close("GroupQueryAttention", first, softcap=3.0, **common)
    one = lambda h: normal(batch, 1, h * size)
    later = [one(heads), one(few), one(few), normal(batch, few, 5, size), normal(batch, few, 5, size), whole([5, 5]), whole(6), cos, sin]
    close("GroupQueryAttention", later, do_rotary=1, **common)


def walk(graph):
    for n in graph.node:
        yield n
        for a in n.attribute:
            if a.HasField("g"):
                yield from walk(a.g)


def test_what_the_quantiser_and_the_optimiser_write(tmp_path):
    """A network, quantised in every form and optimised: every op has a meaning here, and results are a few steps of 8 bits off at most."""
    quantization = pytest.importorskip("onnxruntime.quantization", reason="onnxruntime's quantiser is not installed")
    m = parser.parse_model("""
    <ir_version: 8, opset_import: ["": 17]>
    net (float[1, 3, 12, 12] x) => (float[1, 5] y) {
        a = Conv <pads = [1, 1, 1, 1]> (x, w1, b1)  r = Relu(a)  c = Conv <pads = [1, 1, 1, 1], group = 8> (r, w2, b2)
        l = LeakyRelu <alpha = 0.1> (c)  s = Add(l, r)  t = Sigmoid(s)  u = Mul(s, t)  k = Concat <axis = 1> (u, r)
        p = AveragePool <kernel_shape = [2, 2], strides = [2, 2]> (k)  m = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (p)
        g = GlobalAveragePool(m)  f = Flatten(g)  z = Gemm <transB = 1> (f, w3, b3)  h = MatMul(z, w4)  y = Softmax(h)
    }""")
    shapes = {"w1": (8, 3, 3, 3), "b1": (8,), "w2": (8, 1, 3, 3), "b2": (8,), "w3": (5, 16), "b3": (5,), "w4": (5, 5)}
    m.graph.initializer.extend(numpy_helper.from_array(normal(*s), k) for k, s in shapes.items())
    base = str(tmp_path / "net.onnx")
    onnx.save(m, base)
    x, files, seen = {"x": normal(1, 3, 12, 12)}, [base], set()

    class Reader(quantization.CalibrationDataReader):
        def __init__(self):
            self.left = iter([x])

        def get_next(self):
            return next(self.left, None)

    kinds = quantization.QuantType
    for how in (quantization.QuantFormat.QDQ, quantization.QuantFormat.QOperator):
        for of, per in ((kinds.QUInt8, False), (kinds.QInt8, True)):
            files.append(str(tmp_path / f"{how.name}{of.name}.onnx"))
            types = {"activation_type": of, "weight_type": kinds.QInt8}
            quantization.quantize_static(base, files[-1], Reader(), quant_format=how, per_channel=per, **types)
    files.append(str(tmp_path / "dynamic.onnx"))
    quantization.quantize_dynamic(base, files[-1], weight_type=kinds.QInt8)
    for file in list(files):
        options = ort.SessionOptions()
        options.graph_optimization_level, options.log_severity_level = ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED, 4
        options.optimized_model_filepath = file.replace(".onnx", "_optimised.onnx")
        ort.InferenceSession(file, options, providers=["CPUExecutionProvider"])
        files.append(options.optimized_model_filepath)
    for file in files:
        proto = onnx.load(file)
        seen |= {n.op_type for n in walk(proto.graph)}
        got, want = load(proto)(**x).numpy(), session(proto).run(None, x)[0]
        integers = re.search("QLinear|Dequantize", str({n.op_type for n in proto.graph.node}))
        np.testing.assert_allclose(got, want, atol=2 / 255 if integers else 2e-5)
    assert {
        "QLinearAdd", "QLinearMul", "QLinearConcat", "QLinearAveragePool", "QLinearGlobalAveragePool", "QLinearLeakyRelu", "QLinearSigmoid",
        "QLinearSoftmax", "QGemm", "QLinearConv", "QLinearMatMul", "ConvInteger", "DynamicQuantizeMatMul", "FusedConv",
    } <= seen  # fmt: skip


def test_layouts_of_one_machine_are_refused_with_a_reason():
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 3, 4, 4]) for name in ("x", "w")]
    m = helper.make_model(
        helper.make_graph([helper.make_node("Conv", ["x", "w"], ["y"], "c", domain="com.microsoft.nchwc")], "g", ports, []),
        opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft.nchwc", 1)],
    )  # fmt: skip
    with pytest.raises(ArgumentError, match="layout of one machine.*ORT_ENABLE_EXTENDED"):
        to_module(m)


def test_products_run_on_integer_kernels():
    """Sums of 8-bit products are `conv_int` and `matmul_int`, also with zero points, groups and unequal padding; wide sums are float64."""
    m = parser.parse_model("""
    <ir_version: 8, opset_import: ["": 17, "com.microsoft": 1]>
    net (uint8[N, 4, 7, 7] x, uint8[N, 70000] v) => (uint8 y, uint8 z, int32 t)
        <float s = {0.1}, uint8 zx = {3}, int8 zw = {0}, float sw = {0.02}> {
        a = QLinearConv <pads = [1, 0, 2, 1], group = 2> (x, s, zx, w1, sw, zw, s, zx)
        f = Flatten(a)  y = QLinearMatMul(f, s, zx, w2, sw, zw, s, zx)
        z = com.microsoft.QGemm <transB = 1> (f, s, zx, w3, sw, zw, , s, zx)
        t = MatMulInteger(v, w4, zx, zx)
    }""")
    arrays = {"w1": coded(np.int8, 6, 2, 3, 3), "w2": coded(np.int8, 288, 5), "w3": coded(np.int8, 5, 288), "w4": coded(np.uint8, 70000, 1)}
    m.graph.initializer.extend(numpy_helper.from_array(a, k) for k, a in arrays.items())
    model, given = load(m), {"x": coded(np.uint8, 2, 4, 7, 7), "v": coded(np.uint8, 2, 70000)}
    used = [n.op for n in model.graph.nodes]
    assert used.count("conv_int") == 1 and used.count("matmul_int") == 2 and used.count("requantize_linear") == 3
    assert [n.outputs[0].type.dtype.name for n in model.graph.nodes if n.op in ("matmul", "conv")] == ["float64"]
    for have, want in zip(model(**given), session(m).run(None, given), strict=True):
        assert (have.numpy() == want).all() and have.shape == want.shape
