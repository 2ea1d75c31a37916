"""A case for each operator that is known of integers with scales, and of floats with weights that are integers."""

import numpy as np
from tflite_cases import Case, T, k
from tflite_ops import NONE, RELU, RELU6, RNG, SAME, VALID, f, fk, i, out, q


def every(dtype):
    """All integers of 8 bits."""
    return np.arange(np.iinfo(dtype).min, np.iinfo(dtype).max + 1).astype(dtype).reshape(16, -1)


def integer_functions():
    """Of one operand, on all integers of 8 bits."""
    for dtype in (np.int8, np.uint8):
        yield from integer_functions_of(dtype)
    for approximate in (False, True):
        yield Case(
            "GELU",
            [T(every(np.int8), quant=(0.04, 3, 0))],
            [out(0.03, -100)],
            "GeluOptions",
            {"Approximate": approximate},
            f"GELU int8 {approximate}",
        )
    yield Case("ELU", [T(every(np.int8), quant=(0.04, 3, 0))], [out(0.03, -90)], name="ELU int8")
    yield Case("EXP", [T(every(np.int8), quant=(0.02, 3, 0))], [out(0.05, -128)], "ExpOptions", name="EXP int8")
    yield Case("LOG", [T(every(np.int8), quant=(0.04, 3, 0))], [out(0.04, -9)], name="LOG int8")
    yield Case(
        "NEG", [T(np.arange(-127, 128, dtype=np.int8), quant=(0.04, 3, 0))], [out(0.04, -3)], "NegOptions", name="NEG int8"
    )
    yield Case("ABS", [T(every(np.int8), quant=(0.04, 3, 0))], [out(0.03, -90)], "AbsOptions", name="ABS int8")
    yield Case("RSQRT", [T(np.arange(1, 128, dtype=np.int8), quant=(0.04, 0, 0))], [out(0.04, -90)], name="RSQRT int8", steps=1)
    wide = np.arange(-32768, 32768, 37).astype(np.int16).reshape(4, -1)
    for scale in (1 / 4096, 0.00031):
        yield Case("LOGISTIC", [T(wide, quant=(scale, 0, 0))], [out(1 / 32768, 0, "int16")], name=f"LOGISTIC int16 {scale}")
        yield Case("TANH", [T(wide, quant=(scale, 0, 0))], [out(1 / 32768, 0, "int16")], name=f"TANH int16 {scale}")
    yield Case(
        "SOFTMAX",
        [T(wide, quant=(0.0005, 0, 0))],
        [out(1 / 32768, 0, "int16")],
        "SoftmaxOptions",
        {"Beta": 1.0},
        name="SOFTMAX int16",
    )
    yield Case(
        "LEAKY_RELU",
        [T(wide, quant=(0.0005, 0, 0))],
        [out(0.0004, 0, "int16")],
        "LeakyReluOptions",
        {"Alpha": 0.23},
        name="LEAKY_RELU int16",
    )
    yield Case("QUANTIZE", [T(wide, quant=(0.0005, 0, 0))], [out(0.12, -9)], "QuantizeOptions", name="QUANTIZE int16 int8")
    one, to = T(wide, quant=(0.0006, 0, 0)), out(0.0007, 0, "int16")
    yield Case("EXP", [one], [to], "ExpOptions", name="EXP int16")
    yield Case("LOG", [one], [to], name="LOG int16")
    yield Case("GELU", [one], [to], "GeluOptions", {"Approximate": False}, "GELU int16")
    yield Case("ABS", [one], [to], "AbsOptions", name="ABS int16")
    for op in ("RELU", "RELU6"):
        yield Case(op, [one], [to], name=f"{op} int16")
    yield Case(
        "QUANTIZE",
        [T(np.asarray(RNG.integers(-9999, 9999, (5, 7)), np.int32), quant=(0.0005, 0, 0))],
        [out(0.04, -9)],
        "QuantizeOptions",
        name="QUANTIZE int32 int8",
    )


def integer_functions_of(dtype):
    """Of one operand of a dtype, on all of its integers."""
    name, low = np.dtype(dtype).name, int(np.iinfo(dtype).min)
    one = lambda scale, zero: T(every(dtype), quant=(scale, zero + low + 128, 0))
    yield Case("LOGISTIC", [one(0.06, 3)], [out(1 / 256, low, name)], name=f"LOGISTIC {name}")
    yield Case("TANH", [one(0.03, -7)], [out(1 / 128, low + 128, name)], name=f"TANH {name}")
    for op in ("RELU", "RELU6", "RELU_N1_TO_1", "RELU_0_TO_1"):
        yield Case(op, [one(0.06, 3)], [out(0.043, low + 9, name)], name=f"{op} {name}")
    yield Case("HARD_SWISH", [one(0.06, 3)], [out(0.05, low + 20, name)], "HardSwishOptions", name=f"HARD_SWISH {name}")
    yield Case(
        "LEAKY_RELU",
        [one(0.06, 3)],
        [out(0.043, low + 99, name)],
        "LeakyReluOptions",
        {"Alpha": 0.23},
        name=f"LEAKY_RELU {name}",
    )
    for scale in (0.11, 7e7):  # the latter of scores with a mask of -1e9
        yield Case("SOFTMAX", [one(scale, 3)], [out(1 / 256, low, name)], "SoftmaxOptions", {"Beta": 1.0}, name=f"SOFTMAX {name} {scale}")
    yield Case(
        "LOG_SOFTMAX",
        [one(0.11, 3)],
        [out(16 / 256, low + 255, name)],
        "LogSoftmaxOptions",
        name=f"LOG_SOFTMAX {name}",
        steps=1,
    )
    yield Case(
        "L2_NORMALIZATION",
        [one(0.11, 3)],
        [out(1 / 128, low + 128, name)],
        "L2NormOptions",
        name=f"L2_NORMALIZATION {name}",
        steps=1,
    )
    yield Case("QUANTIZE", [one(0.11, 3)], [out(0.07, -9, "int8")], "QuantizeOptions", name=f"QUANTIZE {name}")
    yield Case("DEQUANTIZE", [one(0.11, 3)], ["float32"], "DequantizeOptions", name=f"DEQUANTIZE {name}")
    yield Case("QUANTIZE", [f(9, 9)], [out(0.03, low + 111, name)], "QuantizeOptions", name=f"QUANTIZE to {name}")


def integer_arithmetic():
    """Of several operands, each with a scale of its own."""
    for dtype in (np.int8, np.uint8, np.int16):
        yield from integer_arithmetic_of(dtype)


def integer_arithmetic_of(dtype):
    """Of several operands of a dtype."""
    name = np.dtype(dtype).name
    zero = {"int8": 3, "uint8": 121, "int16": 0}[name]
    a, c = q(20, 4, 25, scale=0.05, zero=zero, dtype=dtype), q(4, 1, scale=0.031, zero=zero and zero - 7, dtype=dtype)
    o = lambda scale=0.07: out(scale, zero and zero + 11, name)
    act = {"FusedActivationFunction": RELU}
    for op, of in (("ADD", "AddOptions"), ("SUB", "SubOptions"), ("MUL", "MulOptions")):
        how = {**act, **({"PotScaleInt16": False} if op != "MUL" and name == "int16" else {})}
        yield Case(op, [a, c], [o(0.07 if op != "MUL" else 0.09 * np.iinfo(dtype).max / 127)], of, how, f"{op} {name}")
    if name == "int8":
        yield Case("SQUARED_DIFFERENCE", [a, c], [o(0.4)], "SquaredDifferenceOptions", name="SQUARED_DIFFERENCE int8")
    for op, of in (("EQUAL", "EqualOptions"), ("LESS", "LessOptions"), ("GREATER_EQUAL", "GreaterEqualOptions")):
        yield Case(op, [a, q(20, 4, 25, scale=0.05, zero=zero and zero + 1, dtype=dtype)], ["bool"], of, name=f"{op} {name}")
    if name != "int16":
        yield Case(
            "PRELU",
            [q(8, 13, 7, 4, zero=zero, dtype=dtype), q(4, scale=0.01, zero=zero - 2, dtype=dtype, fixed=True)],
            [o()],
            name=f"PRELU {name}",
        )
        yield Case(
            "L2_NORMALIZATION",
            [a],
            [out(1 / 128, zero - 3 if name == "int8" else 128, name)],
            "L2NormOptions",
            name=f"L2_NORMALIZATION rows {name}",
            steps=1,
        )
    for op in ("MAXIMUM", "MINIMUM"):
        yield Case(
            op, [a, T(c.value, quant=a.quant)], [T(dtype=name, quant=a.quant)], "MaximumMinimumOptions", name=f"{op} {name}"
        )
    known = {"SUM": {"reference": False, "steps": 1}}  # the reference kernel sums modulo 2^8 and 2^16
    for op, axes in (("MEAN", [1, 2]), ("MEAN", [0]), ("SUM", [1])):
        yield Case(
            op,
            [a, k(axes)],
            [o(0.2 if op == "SUM" else 0.03)],
            "ReducerOptions",
            {"KeepDims": True},
            f"{op} {axes} {name}",
            **known.get(op, {}),
        )
    yield Case(
        "MEAN",
        [q(40, 5, 6, 30, zero=zero, dtype=dtype), k([1, 2])],
        [o(0.04)],
        "ReducerOptions",
        {"KeepDims": False},
        f"MEAN picture {name}",
    )
    yield Case("REDUCE_MAX", [a, k([1])], [T(dtype=name, quant=a.quant)], "ReducerOptions", name=f"REDUCE_MAX {name}")
    if name != "uint8":  # which TFLite multiplies without its scale
        most = np.iinfo(dtype).max
        # 4 factors of -1.3 to 1.3, and 80 of .65 to 1.3: more would not fit int32
        for axes, low, keep in (([1], -most, False), ([0, 1], most // 2, True)):
            x, to = q(20, 4, 25, scale=1.3 / most, zero=0, dtype=dtype, low=low), o(1.5 / most)
            yield Case("REDUCE_PROD", [x, k(axes)], [to], "ReducerOptions", {"KeepDims": keep}, f"REDUCE_PROD {name} {axes}", version=2)
    yield from filled_with_zeros(name, a.quant)
    yield (
        Case(
            "BATCH_MATMUL",
            [a, q(20, 6, 25, scale=0.02, zero=zero and zero + 5, dtype=dtype)],
            [o(0.7)],
            "BatchMatMulOptions",
            {"AdjY": True},
            f"BATCH_MATMUL {name}",
        )
        if name != "uint8"
        else None
    )
    same = T(dtype=name, quant=a.quant)
    yield Case(
        "CONCATENATION",
        [a, a] if name != "uint8" else [a, q(20, 4, 25, scale=0.03, zero=99, dtype=dtype)],
        [same],
        "ConcatenationOptions",
        {"Axis": 1},
        f"CONCATENATION {name}",
    )
    yield Case("PAD", [a, k([[0, 1], [1, 0], [2, 2]])], [same], "PadOptions", name=f"PAD {name}")
    yield Case("TRANSPOSE", [a, k([2, 1, 0])], [same], "TransposeOptions", name=f"TRANSPOSE {name}")
    picture = q(5, 14, 15, 3, zero=zero, dtype=dtype)
    for align, half in ((False, False), (True, False), (False, True)):
        how = {"AlignCorners": align, "HalfPixelCenters": half}
        yield Case(
            "RESIZE_BILINEAR",
            [picture, k([27, 9])],
            [T(dtype=name, quant=picture.quant)],
            "ResizeBilinearOptions",
            how,
            f"RESIZE_BILINEAR {name} {align} {half}",
            version=3,
            steps=name == "uint8",
        )
    for pad in (SAME, VALID):
        pool = {
            "StrideH": 2,
            "StrideW": 1,
            "FilterHeight": 3,
            "FilterWidth": 2,
            "Padding": pad,
            "FusedActivationFunction": RELU6,
        }
        for op in ("AVERAGE_POOL_2D", "MAX_POOL_2D"):
            yield Case(op, [picture], [T(dtype=name, quant=picture.quant)], "Pool2DOptions", pool, f"{op} {name} {pad}")


def filled_with_zeros(name, quant):
    """What puts integers as they are beside the integer 0, which is not the zero point."""
    few = lambda *s: q(*s, scale=quant[0], zero=quant[1], dtype=np.dtype(name))
    same = T(dtype=name, quant=quant)
    yield Case("MATRIX_DIAG", [few(2, 3)], [same], "MatrixDiagOptions", name=f"MATRIX_DIAG {name}")
    yield Case("MATRIX_SET_DIAG", [few(2, 3, 4), few(2, 3)], [same], "MatrixSetDiagOptions", name=f"MATRIX_SET_DIAG {name}")
    if name != "int16":  # for which TFLite has no kernel
        yield Case("ONE_HOT", [i(5, low=-1, high=4), k(3), few(), few()], [same], "OneHotOptions", {"Axis": 0}, f"ONE_HOT {name}")
        at = T(np.array([[1], [3], [1]], np.int32))  # one place twice
        yield Case("SCATTER_ND", [at, few(3, 4), k([5, 4])], [same], "ScatterNdOptions", name=f"SCATTER_ND {name}")


def integer_products():
    """Convolutions and products of matrices: one scale for all filters, and one for each."""
    for dtype, bias in ((np.int8, np.int32), (np.uint8, np.int32), (np.int16, np.int64)):
        yield from integer_products_of(dtype, bias)


def integer_products_of(dtype, bias):
    """Convolutions and products of a dtype."""
    name = np.dtype(dtype).name
    zero = {"int8": 3, "uint8": 121, "int16": 0}[name]
    o = lambda scale=0.3: out(scale * (1 if name != "int16" else 0.01), zero and zero - 11, name)
    s = 0.05 if name != "int16" else 0.0003
    kind = np.uint8 if name == "uint8" else np.int8
    w0 = 131 if name == "uint8" else 0

    def weights(*shape, count, axis, several):
        scales = RNG.uniform(0.005, 0.02, count).astype(np.float32) if several else np.float32(0.013)
        low = -127 if kind is np.int8 else 0
        return q(*shape, scale=scales, zero=w0, dtype=kind, fixed=True, axis=axis, low=low), scales

    def biases(count, scales):
        one = np.asarray(s * scales, np.float32)
        return T(RNG.integers(-2000, 2000, count).astype(bias), fixed=True, quant=(one, 0, 0))

    picture = q(2, 21, 20, 4, scale=s, zero=zero, dtype=dtype)
    for several in (False, True) if name == "int8" else (name == "int16",):
        conv = {"StrideH": 2, "StrideW": 1, "Padding": SAME, "FusedActivationFunction": RELU6}
        w, scales = weights(5, 3, 2, 4, count=5, axis=0, several=several)
        yield Case(
            "CONV_2D", [picture, w, biases(5, scales)], [o()], "Conv2DOptions", conv, f"CONV_2D {name} {several}", version=3
        )
        w, scales = weights(1, 3, 3, 8, count=8, axis=3, several=several)
        yield Case(
            "DEPTHWISE_CONV_2D",
            [picture, w, biases(8, scales)],
            [o(0.1)],
            "DepthwiseConv2DOptions",
            {**conv, "StrideW": 2, "DepthMultiplier": 2},
            f"DEPTHWISE_CONV_2D {name} {several}",
            version=3,
        )
        w, scales = weights(5, 3, 3, 4, count=5, axis=0, several=several)
        yield Case(
            "TRANSPOSE_CONV",
            [k([2, 41, 40, 5]), w, picture],
            [o()],
            "TransposeConvOptions",
            {"StrideH": 2, "StrideW": 2, "Padding": SAME},
            f"TRANSPOSE_CONV {name} {several}",
            version=3,
        )
        w, scales = weights(7, 9, count=7, axis=0, several=several and name != "int16")
        yield Case(
            "FULLY_CONNECTED",
            [q(150, 9, scale=s, zero=zero, dtype=dtype), w, biases(7, scales)],
            [o(0.1)],
            "FullyConnectedOptions",
            {"FusedActivationFunction": NONE},
            f"FULLY_CONNECTED {name} {several}",
            version=4,
        )


def mixed():
    """Floats with weights that are integers."""

    def weights(*shape, count=1, axis=0):
        scales = RNG.uniform(0.005, 0.02, count).astype(np.float32)
        return q(*shape, scale=scales, zero=0, fixed=True, axis=axis, low=-127)

    for asymmetric in (False, True):
        yield Case(
            "FULLY_CONNECTED",
            [f(3, 9), weights(7, 9), fk(7)],
            ["float32"],
            "FullyConnectedOptions",
            {"AsymmetricQuantizeInputs": asymmetric},
            f"FULLY_CONNECTED mixed {asymmetric}",
            version=9,
        )
    yield Case(
        "CONV_2D",
        [f(2, 7, 6, 4), weights(5, 3, 3, 4, count=5), fk(5)],
        ["float32"],
        "Conv2DOptions",
        {"StrideH": 1, "StrideW": 1, "Padding": SAME},
        "CONV_2D mixed",
        version=5,
    )
    yield Case(
        "DEPTHWISE_CONV_2D",
        [f(2, 7, 6, 4), weights(1, 3, 3, 4, count=4, axis=3), fk(4)],
        ["float32"],
        "DepthwiseConv2DOptions",
        {"StrideH": 1, "StrideW": 1, "Padding": SAME, "DepthMultiplier": 1},
        "DEPTHWISE_CONV_2D mixed",
        version=6,
    )
    for several in (False, True):
        yield Case(
            "TRANSPOSE_CONV",
            [k([2, 13, 12, 5]), weights(5, 3, 3, 4, count=5 if several else 1), f(2, 7, 6, 4), fk(5)],
            ["float32"],
            "TransposeConvOptions",
            {"StrideH": 2, "StrideW": 2, "Padding": SAME},
            f"TRANSPOSE_CONV mixed {several}",
            version=3,
        )
    yield Case(
        "BATCH_MATMUL",
        [f(2, 3, 9), weights(2, 9, 5)],
        ["float32"],
        "BatchMatMulOptions",
        {"AsymmetricQuantizeInputs": True},
        "BATCH_MATMUL mixed",
        version=4,
    )
    yield Case("EMBEDDING_LOOKUP", [i(3, low=0, high=6), weights(6, 4)], ["float32"], name="EMBEDDING_LOOKUP mixed", version=3)


def mixed_recurrent():
    """Recurrent layers of floats whose weights are integers."""
    n, x, h = 3, 4, 5
    act = {"FusedActivationFunction": 4}
    w = lambda *s: q(*s, scale=0.007, zero=0, fixed=True, low=-127)
    bias = lambda *s: fk(*s, scale=0.4)
    state = lambda *s: T(shape=s, dtype="float32", variable=True)
    for asymmetric in (False, True):
        how = {**act, "AsymmetricQuantizeInputs": asymmetric}
        inputs = [f(n, 6, x), w(h, x), w(h, h), bias(h), state(n, h)]
        yield Case(
            "UNIDIRECTIONAL_SEQUENCE_RNN",
            inputs,
            ["float32"],
            "SequenceRNNOptions",
            how,
            f"SEQUENCE_RNN mixed {asymmetric}",
            version=3,
        )
        inputs = [f(n, x), w(6, x), w(6, 7), bias(3), state(n, 42)]
        yield Case("SVDF", inputs, ["float32"], "SVDFOptions", {**how, "Rank": 2}, f"SVDF mixed {asymmetric}", version=4)
        gates = [
            *(w(h, x) for _ in range(4)),
            *(w(h, h) for _ in range(4)),
            w(h),
            w(h),
            w(h),
            *(bias(h) for _ in range(4)),
            None,
            None,
        ]
        inputs = [f(n, 6, x), *gates, state(n, h), state(n, h)]
        options = {**how, "CellClip": 0.0, "ProjClip": 0.0, "TimeMajor": False}
        name = f"SEQUENCE_LSTM mixed {asymmetric}"
        yield Case(
            "UNIDIRECTIONAL_SEQUENCE_LSTM", inputs, ["float32"], "UnidirectionalSequenceLSTMOptions", options, name, version=3
        )
        layer = lambda: [w(h, x), w(h, h), bias(h), state(n, h)]
        inputs, both = [f(n, 6, x), *layer(), *layer(), None, None, None], {**how, "MergeOutputs": True}
        name = f"BIDIRECTIONAL_RNN mixed {asymmetric}"
        yield Case("BIDIRECTIONAL_SEQUENCE_RNN", inputs, ["float32"], "BidirectionalSequenceRNNOptions", both, name, version=3)
        layer = lambda: [*(w(h, x) for _ in range(4)), *(w(h, h) for _ in range(4)), None, None, None, *(bias(h) for _ in range(4)), None, None]
        inputs = [f(n, 6, x), *layer(), *layer(), *[state(n, h) for _ in range(4)], *[None] * 9]
        both, name = {**options, "MergeOutputs": False}, f"BIDIRECTIONAL_LSTM mixed {asymmetric}"
        yield Case("BIDIRECTIONAL_SEQUENCE_LSTM", inputs, ["float32"] * 2, "BidirectionalSequenceLSTMOptions", both, name, version=3)


def integer_recurrent():
    """Recurrent layers of integers alone."""
    state = T(shape=(50, 42), dtype="int16", variable=True, quant=(0.002, 0, 0))
    weights = [
        q(6, 4, scale=0.01, zero=0, fixed=True, low=-127), q(6, 7, scale=0.0001, zero=0, dtype=np.int16, fixed=True),
        T(RNG.integers(-900, 900, 3).astype(np.int32), fixed=True, quant=(2e-7, 0, 0)),
    ]  # fmt: skip
    inputs = [q(50, 4, scale=0.05, zero=3), *weights, state]
    yield Case(
        "SVDF", inputs, [out(0.05, -9)], "SVDFOptions", {"Rank": 2, "FusedActivationFunction": RELU}, "SVDF int8", version=3
    )
    yield from integer_lstms()


def integer_lstms():
    """Plain; coupled gates that see the cell; with a projection. (With both, TFLite's kernel adds what a gate sees for a part of the cells.)"""
    n, x, h = 3, 20, 16
    for name in ("plain", "coupled", "projected"):
        coupled, projected = name == "coupled", name == "projected"
        wide = 2 if projected else h  # what the state has
        w = lambda *s: q(*s, scale=RNG.uniform(0.004, 0.012), zero=0, fixed=True, low=-127)
        see = lambda: q(h, scale=0.0004, zero=0, dtype=np.int16, fixed=True)
        bias = lambda *s: T(RNG.integers(-4000, 4000, s).astype(np.int32), fixed=True, quant=(2e-4, 0, 0))
        four = lambda one, *s, first=not coupled: [one(*s) if first or i else None for i in range(4)]
        gates = [
            *four(w, h, x), *four(w, h, wide), None, *([see(), see()] if coupled else [None] * 2), *four(bias, h),
            *((w(wide, h), bias(wide)) if projected else (None, None)),
        ]  # fmt: skip
        states = [
            T(shape=(n, wide), dtype="int8", variable=True, quant=(0.011, -3, 0)),
            T(shape=(n, h), dtype="int16", variable=True, quant=(2.0 ** (-11 - coupled), 0, 0)),
        ]
        options = {"FusedActivationFunction": 4, "CellClip": 5.5 * coupled, "ProjClip": 1.1 * projected, "TimeMajor": projected}
        shape = (9, n, x) if projected else (n, 9, x)
        yield Case(
            "UNIDIRECTIONAL_SEQUENCE_LSTM", [q(*shape, scale=0.03, zero=5), *gates, *states, *[None] * 4], [out(0.011, -3)],
            "UnidirectionalSequenceLSTMOptions", options, f"SEQUENCE_LSTM int8 {name}", version=4,
            between=[*(T(dtype="int16", quant=(2.0**-12, 0, 0)) for _ in range(4)), T(dtype="int8", quant=(0.008, 4 * projected, 0))],
        )  # fmt: skip


def integers():
    """Every case of integers with scales."""
    for family in (integer_functions, integer_arithmetic, integer_products, mixed, mixed_recurrent, integer_recurrent):
        yield from (c for c in family() if c is not None)
