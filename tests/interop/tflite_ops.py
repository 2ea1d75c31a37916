"""A case for each operator that is known of floats, and what cases are made of."""

import numpy as np
from tflite_cases import Case, T, k

RNG = np.random.default_rng(7)
SAME, VALID = 0, 1
NONE, RELU, RELU_N1, RELU6 = range(4)


def f(*shape, low=None, high=None):
    """Floats: normal ones, or between bounds."""
    made = RNG.standard_normal(shape) if low is None else RNG.uniform(low, high, shape)
    return T(made.astype(np.float32))


def fk(*shape, scale=1.0):
    """Floats of the file."""
    return T((RNG.standard_normal(shape) * scale).astype(np.float32), fixed=True)


def i(*shape, low=-9, high=9, dtype=np.int32):
    """Integers between bounds."""
    return T(np.asarray(RNG.integers(low, high, shape), dtype))


def b(*shape):
    """Truth values."""
    return T(np.asarray(RNG.integers(0, 2, shape), np.bool_))


def q(*shape, scale=0.05, zero=3, dtype=np.int8, fixed=False, axis=0, low=None, high=None):
    """Integers with scales."""
    info = np.iinfo(dtype)
    made = RNG.integers(info.min if low is None else low, info.max + 1 if high is None else high, shape)
    return T(np.asarray(made, dtype), fixed=fixed, quant=(scale, zero, axis))


def out(scale=0.07, zero=-5, dtype="int8"):
    """An output of integers with a scale."""
    return T(dtype=dtype, quant=(scale, zero, 0))


def elementwise():
    for op, of in (("ADD", "AddOptions"), ("SUB", "SubOptions"), ("MUL", "MulOptions"), ("DIV", "DivOptions")):
        yield Case(op, [f(2, 3, 4), f(3, 1)], ["float32"], of, {"FusedActivationFunction": RELU6}, f"{op} float")
        yield Case(op, [i(2, 3, low=1), i(2, 3, low=1)], ["int32"], of, {}, f"{op} int32")
    for op in ("MAXIMUM", "MINIMUM"):
        yield Case(op, [f(2, 3, 4), f(4)], ["float32"], "MaximumMinimumOptions")
    yield Case("POW", [f(3, 4, low=0.1, high=3), f(3, 4)], ["float32"], "PowOptions")
    yield Case("SQUARED_DIFFERENCE", [f(3, 4), f(4)], ["float32"], "SquaredDifferenceOptions")
    yield Case("ATAN2", [f(3, 4), f(3, 4)], ["float32"], "ATan2Options")
    for op, of in (("FLOOR_DIV", "FloorDivOptions"), ("FLOOR_MOD", "FloorModOptions")):
        yield Case(op, [f(3, 4), f(3, 4)], ["float32"], of)
        yield Case(op, [i(3, 4), i(3, 4, low=1)], ["int32"], of, {}, f"{op} int32")
    yield Case("ADD_N", [f(3, 4), f(3, 4), f(3, 4)], ["float32"], "AddNOptions")
    for op, of in (
        ("EQUAL", "EqualOptions"), ("NOT_EQUAL", "NotEqualOptions"), ("LESS", "LessOptions"), ("LESS_EQUAL", "LessEqualOptions"),
        ("GREATER", "GreaterOptions"), ("GREATER_EQUAL", "GreaterEqualOptions"),
    ):  # fmt: skip
        yield Case(op, [i(3, 4, low=0, high=3), i(4, low=0, high=3)], ["bool"], of)
    yield Case("LOGICAL_AND", [b(3, 4), b(3, 4)], ["bool"], "LogicalAndOptions")
    yield Case("LOGICAL_OR", [b(3, 4), b(3, 4)], ["bool"], "LogicalOrOptions")
    yield Case("LOGICAL_NOT", [b(3, 4)], ["bool"], "LogicalNotOptions")
    yield Case("BITWISE_XOR", [i(3, 4), i(3, 4)], ["int32"], "BitwiseXorOptions")
    yield Case("RIGHT_SHIFT", [i(3, 4), i(3, 4, low=0, high=5)], ["int32"], "RightShiftOptions")
    for op, of in (
        ("ABS", "AbsOptions"), ("CEIL", ""), ("FLOOR", ""), ("ROUND", ""), ("COS", "CosOptions"), ("SIN", ""), ("EXP", "ExpOptions"),
        ("SQUARE", "SquareOptions"), ("NEG", "NegOptions"), ("RELU", ""), ("RELU6", ""), ("RELU_N1_TO_1", ""), ("RELU_0_TO_1", ""),
        ("TANH", ""),
        ("LOGISTIC", ""), ("ELU", ""), ("HARD_SWISH", "HardSwishOptions"), ("LOG_SOFTMAX", "LogSoftmaxOptions"),
        ("ZEROS_LIKE", "ZerosLikeOptions"), ("SIGN", "SignOptions"),
    ):  # fmt: skip
        yield Case(op, [T((RNG.standard_normal((3, 5)) * 3).astype(np.float32))], ["float32"], of)
    for op in ("LOG", "SQRT", "RSQRT"):
        yield Case(op, [f(3, 4, low=0.01, high=5)], ["float32"])
    for approximate in (False, True):
        yield Case("GELU", [f(3, 4)], ["float32"], "GeluOptions", {"Approximate": approximate}, f"GELU {approximate}")
    yield Case("LEAKY_RELU", [f(3, 4)], ["float32"], "LeakyReluOptions", {"Alpha": 0.2})
    yield Case("SOFTMAX", [f(2, 3, 4)], ["float32"], "SoftmaxOptions", {"Beta": 0.7})
    yield Case("PRELU", [f(2, 3, 4, 5), fk(5)], ["float32"])
    yield Case("SELECT", [b(3), f(3, 4), f(3, 4)], ["float32"], "SelectOptions")
    yield Case("SELECT_V2", [b(3, 1), f(3, 4), f(4)], ["float32"], "SelectV2Options")
    for to in ("int32", "bool", "int64", "uint8", "float16"):
        yield Case("CAST", [f(3, 4, low=0, high=100)], [to], "CastOptions", name=f"CAST {to}")
    yield Case("BITCAST", [i(3, 4)], ["uint32"], "BitcastOptions")
    yield Case(
        "FAKE_QUANT", [f(3, 4)], ["float32"], "FakeQuantOptions", {"Min": -1.1, "Max": 1.5, "NumBits": 8, "NarrowRange": False}
    )
    yield Case(
        "DEQUANTIZE",
        [T(RNG.standard_normal((3, 4)).astype(np.float16), fixed=True)],
        ["float32"],
        "DequantizeOptions",
        name="DEQUANTIZE float16",
        version=3,
    )
    yield Case(
        "COMPLEX_ABS", [T((RNG.standard_normal((3, 4)) + 1j * RNG.standard_normal((3, 4))).astype(np.complex64))], ["float32"]
    )
    yield Case("REAL", [T((RNG.standard_normal((3, 4)) + 1j).astype(np.complex64))], ["float32"])
    yield Case("IMAG", [T((RNG.standard_normal((3, 4)) + 1j).astype(np.complex64))], ["float32"])


def shapes():
    yield Case("RESHAPE", [f(2, 3, 4), k([4, -1])], ["float32"], "ReshapeOptions", {"NewShape": np.array([4, -1], np.int32)})
    yield Case("SQUEEZE", [f(1, 3, 1, 2)], ["float32"], "SqueezeOptions", {"SqueezeDims": np.array([-2], np.int32)})
    yield Case("EXPAND_DIMS", [f(2, 3), k(1)], ["float32"], "ExpandDimsOptions")
    yield Case("TRANSPOSE", [f(2, 3, 4), k([2, 0, 1])], ["float32"], "TransposeOptions")
    yield Case("CONCATENATION", [f(2, 3), f(2, 1)], ["float32"], "ConcatenationOptions", {"Axis": -1})
    yield Case("PACK", [f(2, 3), f(2, 3)], ["float32"], "PackOptions", {"Axis": 1, "ValuesCount": 2})
    yield Case("UNPACK", [f(2, 3)], ["float32"] * 3, "UnpackOptions", {"Axis": 1, "Num": 3})
    yield Case("SPLIT", [k(1), f(2, 6)], ["float32"] * 3, "SplitOptions", {"NumSplits": 3})
    yield Case("SPLIT_V", [f(2, 6), k([1, -1, 2]), k(1)], ["float32"] * 3, "SplitVOptions", {"NumSplits": 3})
    yield Case("SLICE", [f(4, 5), k([1, 2]), k([2, -1])], ["float32"], "SliceOptions")
    yield Case(
        "STRIDED_SLICE",
        [f(4, 5, 3), k([1, -1, 0]), k([3, -9, 1]), k([1, -2, 1])],
        ["float32"],
        "StridedSliceOptions",
        {"ShrinkAxisMask": 4, "BeginMask": 1},
    )
    yield Case(
        "STRIDED_SLICE",
        [f(4, 5), k([0, 0, 1]), k([0, 0, 4]), k([1, 1, 2])],
        ["float32"],
        "StridedSliceOptions",
        {"NewAxisMask": 2, "EndMask": 1},
        "STRIDED_SLICE new axis",
    )
    yield Case("GATHER", [f(4, 5), i(2, 3, low=0, high=5)], ["float32"], "GatherOptions", {"Axis": 1})
    yield Case(
        "GATHER",
        [f(2, 3, 4, 5), i(2, 3, low=0, high=4)],
        ["float32"],
        "GatherOptions",
        {"Axis": 2, "BatchDims": 1},
        "GATHER batches",
    )
    yield Case("GATHER_ND", [f(4, 5, 2), i(3, 2, low=0, high=4)], ["float32"], "GatherNdOptions")
    yield Case("SCATTER_ND", [T(np.array([[1], [3], [1]], np.int32)), f(3, 4), k([5, 4])], ["float32"], "ScatterNdOptions")
    yield Case("EMBEDDING_LOOKUP", [i(3, low=0, high=6), fk(6, 4)], ["float32"])
    yield Case(
        "ONE_HOT",
        [i(3, 2, low=-1, high=4), k(4), k(2.0, np.float32), k(-1.0, np.float32)],
        ["float32"],
        "OneHotOptions",
        {"Axis": 1},
    )
    yield Case("PAD", [f(2, 3, 4), k([[0, 1], [2, 0], [1, 1]])], ["float32"], "PadOptions")
    yield Case("PADV2", [f(2, 3), k([[0, 1], [2, 0]]), k(1.5, np.float32)], ["float32"], "PadV2Options")
    for mode in (0, 1):
        yield Case(
            "MIRROR_PAD", [f(3, 4), k([[2, 1], [1, 2]])], ["float32"], "MirrorPadOptions", {"Mode": mode}, f"MIRROR_PAD {mode}"
        )
    yield Case("TILE", [f(2, 3), k([2, 3])], ["float32"], "TileOptions")
    yield Case("BROADCAST_TO", [f(3, 1), k([2, 3, 4])], ["float32"], "BroadcastToOptions", version=2)
    yield Case("BROADCAST_ARGS", [k([3, 1]), T(np.array([2, 1, 4], np.int32))], ["int32"])
    yield Case("FILL", [k([2, 3]), f()], ["float32"], "FillOptions")
    yield Case("SHAPE", [f(2, 3)], ["int32"], "ShapeOptions", {"OutType": 2})
    yield Case("RANK", [f(2, 3)], ["int32"], "RankOptions")
    yield Case("RANGE", [k(1), k(9), T(np.array(3, np.int32))], ["int32"], "RangeOptions")
    yield Case("REVERSE_V2", [f(2, 3, 4), k([2])], ["float32"], "ReverseV2Options")
    yield Case(
        "REVERSE_SEQUENCE",
        [f(3, 4, 2), i(3, low=1, high=4)],
        ["float32"],
        "ReverseSequenceOptions",
        {"SeqDim": 1, "BatchDim": 0},
    )
    yield Case("SPACE_TO_DEPTH", [f(2, 4, 6, 3)], ["float32"], "SpaceToDepthOptions", {"BlockSize": 2})
    yield Case("DEPTH_TO_SPACE", [f(2, 4, 6, 8)], ["float32"], "DepthToSpaceOptions", {"BlockSize": 2})
    yield Case("SPACE_TO_BATCH_ND", [f(2, 3, 6, 3), k([2, 3]), k([[1, 0], [0, 0]])], ["float32"], "SpaceToBatchNDOptions")
    yield Case("BATCH_TO_SPACE_ND", [f(12, 2, 3, 2), k([2, 3]), k([[1, 0], [0, 2]])], ["float32"], "BatchToSpaceNDOptions")
    yield Case("MATRIX_DIAG", [f(2, 3)], ["float32"], "MatrixDiagOptions")
    yield Case("MATRIX_SET_DIAG", [f(2, 3, 4), f(2, 3)], ["float32"], "MatrixSetDiagOptions")
    yield Case(
        "DYNAMIC_UPDATE_SLICE", [f(4, 5), f(2, 3), T(np.array([3, 1], np.int32))], ["float32"], "DynamicUpdateSliceOptions"
    )
    yield Case(
        "SPARSE_TO_DENSE", [k([[0, 1], [2, 2]]), k([3, 4]), f(2), k(0.5, np.float32)], ["float32"], "SparseToDenseOptions"
    )


def images():
    conv = {"StrideH": 2, "StrideW": 1, "Padding": SAME, "FusedActivationFunction": RELU}
    yield Case("CONV_2D", [f(2, 7, 6, 3), fk(5, 3, 2, 3), fk(5)], ["float32"], "Conv2DOptions", conv)
    yield Case(
        "CONV_2D",
        [f(2, 7, 8, 4), fk(6, 3, 3, 2), fk(6)],
        ["float32"],
        "Conv2DOptions",
        {**conv, "Padding": VALID, "DilationHFactor": 2, "DilationWFactor": 1, "StrideH": 1},
        "CONV_2D groups",
    )
    yield Case(
        "DEPTHWISE_CONV_2D",
        [f(2, 7, 6, 3), fk(1, 3, 3, 6), fk(6)],
        ["float32"],
        "DepthwiseConv2DOptions",
        {**conv, "StrideW": 2, "DepthMultiplier": 2},
    )
    for pad, size in ((SAME, (13, 6)), (VALID, (15, 8))):
        yield Case(
            "TRANSPOSE_CONV",
            [k([2, *size, 3]), fk(3, 3, 3, 4), f(2, 7, 6, 4), fk(3)],
            ["float32"],
            "TransposeConvOptions",
            {"StrideH": 2, "StrideW": 1, "Padding": pad},
            f"TRANSPOSE_CONV {pad}",
            version=3,
        )
    yield Case(
        "CONV_3D",
        [f(2, 5, 6, 4, 3), fk(2, 3, 2, 3, 5), fk(5)],
        ["float32"],
        "Conv3DOptions",
        {
            "StrideD": 1,
            "StrideH": 2,
            "StrideW": 1,
            "Padding": SAME,
            "DilationDFactor": 1,
            "DilationHFactor": 1,
            "DilationWFactor": 1,
        },
    )
    step = {"StrideD": 2, "StrideH": 1, "StrideW": 3, "DilationDFactor": 1, "DilationHFactor": 1, "DilationWFactor": 1}
    for padding, shape in ((SAME, [2, 9, 6, 11, 3]), (VALID, [2, 10, 8, 13, 3])):
        inputs = [k(shape), fk(2, 3, 4, 3, 5), f(2, 5, 6, 4, 5), fk(3)]
        name = f"CONV_3D_TRANSPOSE {padding}"
        yield Case("CONV_3D_TRANSPOSE", inputs, ["float32"], "Conv3DOptions", {**step, "Padding": padding}, name)
    for pad in (SAME, VALID):
        pool = {"StrideH": 2, "StrideW": 1, "FilterHeight": 3, "FilterWidth": 2, "Padding": pad}
        for op in ("AVERAGE_POOL_2D", "MAX_POOL_2D", "L2_POOL_2D"):
            yield Case(op, [f(2, 7, 6, 3)], ["float32"], "Pool2DOptions", pool, f"{op} {pad}")
    for align, half in ((False, False), (True, False), (False, True)):
        how = {"AlignCorners": align, "HalfPixelCenters": half}
        yield Case(
            "RESIZE_BILINEAR",
            [f(2, 4, 5, 3), k([7, 3])],
            ["float32"],
            "ResizeBilinearOptions",
            how,
            f"RESIZE_BILINEAR {align} {half}",
            version=3,
        )
        yield Case(
            "RESIZE_NEAREST_NEIGHBOR",
            [f(2, 4, 5, 3), k([7, 3])],
            ["float32"],
            "ResizeNearestNeighborOptions",
            how,
            f"RESIZE_NEAREST {align} {half}",
            version=3,
        )
    yield Case("L2_NORMALIZATION", [f(2, 3, 4)], ["float32"], "L2NormOptions")
    yield Case(
        "LOCAL_RESPONSE_NORMALIZATION",
        [f(2, 3, 3, 7)],
        ["float32"],
        "LocalResponseNormalizationOptions",
        {"Radius": 2, "Bias": 1.5, "Alpha": 0.3, "Beta": 0.6},
        reference=False,
    )


def reductions():
    for op in ("SUM", "MEAN", "REDUCE_PROD", "REDUCE_MAX", "REDUCE_MIN"):
        yield Case(op, [f(2, 3, 4), k([0, -1])], ["float32"], "ReducerOptions", {"KeepDims": op == "SUM"})
    for op in ("REDUCE_ANY", "REDUCE_ALL"):
        yield Case(op, [b(2, 3), k([1])], ["bool"], "ReducerOptions")
    yield Case("ARG_MAX", [f(2, 3, 4), k(-1)], ["int64"], "ArgMaxOptions", {"OutputType": 4})
    yield Case("ARG_MIN", [f(2, 3, 4), k(1)], ["int32"], "ArgMinOptions", {"OutputType": 2})
    for exclusive, back in ((False, False), (True, True)):
        yield Case(
            "CUMSUM", [f(2, 4), k(1)], ["float32"], "CumsumOptions", {"Exclusive": exclusive, "Reverse": back}, f"CUMSUM {back}"
        )
    yield Case(
        "FULLY_CONNECTED",
        [f(2, 3, 4), fk(5, 4), fk(5)],
        ["float32"],
        "FullyConnectedOptions",
        {"KeepNumDims": True, "FusedActivationFunction": RELU},
        version=5,
    )
    yield Case("BATCH_MATMUL", [f(2, 3, 4), f(2, 5, 4)], ["float32"], "BatchMatMulOptions", {"AdjY": True})
    yield Case("TOPK_V2", [f(2, 6), k(3)], ["float32", "int32"], "TopKV2Options")
    yield Case("WHERE", [b(3, 4)], ["int64"], "WhereOptions")
    yield Case("UNIQUE", [i(9, low=0, high=4)], ["int32", "int32"], "UniqueOptions", {"IdxOutType": 2})
    yield Case("BUCKETIZE", [f(3, 4)], ["int32"], "BucketizeOptions", {"Boundaries": np.array([-1, 0, 0.5], np.float32)})
    yield Case("SEGMENT_SUM", [f(4, 3), T(np.array([0, 0, 1, 2], np.int32))], ["float32"], "SegmentSumOptions")
    for how in ("SUM", "PROD", "MAX", "MIN"):
        yield Case(
            f"UNSORTED_SEGMENT_{how}",
            [f(4, 3), T(np.array([2, 0, 2, -1], np.int32)), k(4)],
            ["float32"],
            f"UnsortedSegment{how.capitalize()}Options",
        )
    yield Case("RFFT2D", [f(2, 8, 16), k([4, 16])], ["complex64"], "Rfft2dOptions")


def both_ways():
    """Joined or apart; the second layer reads another sequence; both read two; one that is coupled, sees its cell and is projected.

    Of sequences whose first axis is the batch, TFLite's kernels keep joined states in the wrong place, and RNNs leave the other sequence out.
    """
    n, x, h = 3, 4, 5
    w = lambda *s: fk(*s, scale=0.4)
    state = lambda *s: T(shape=s, dtype="float32", variable=True)
    gates = lambda *s: [w(*s) for _ in range(4)]
    for name in ("joined", "apart", "other", "linked"):
        how = {"FusedActivationFunction": 4, "TimeMajor": name in ("joined", "other"), "MergeOutputs": name == "joined"}
        shape, ends = (6, n) if how["TimeMajor"] else (n, 6), ["float32"] * (1 if name == "joined" else 2)
        aside, linked = f(*shape, x if name == "other" else 7) if name in ("other", "linked") else None, name == "linked"
        layer = lambda: [w(h, x), w(h, h), w(h), state(n, h)]
        more = [w(h, 7), w(h, 7)] if linked else [None, None]
        inputs = [f(*shape, x), *layer(), *layer(), aside, *more]
        yield Case("BIDIRECTIONAL_SEQUENCE_RNN", inputs, ends, "BidirectionalSequenceRNNOptions", how, f"BIDIRECTIONAL_RNN {name}")
        layer = lambda: [*gates(h, x), *gates(h, h), None, None, None, *gates(h), None, None]
        if name == "apart":
            layer = lambda: [
                None, *gates(h, x)[:3], None, *gates(h, 2)[:3], None, w(h), w(h), None, *gates(h)[:3], w(2, h), w(2),
            ]  # fmt: skip
        out = 2 if name == "apart" else h
        states = [state(n, out), state(n, h), state(n, out), state(n, h)]
        more = [*gates(h, 7), *gates(h, 7)] if linked else [None] * 8
        inputs = [f(*shape, x), *layer(), *layer(), *states, aside, *more]
        how = how | {"CellClip": 0.3 * (name == "apart"), "ProjClip": 0.0}
        yield Case("BIDIRECTIONAL_SEQUENCE_LSTM", inputs, ends, "BidirectionalSequenceLSTMOptions", how, f"BIDIRECTIONAL_LSTM {name}")


def recurrent():
    n, x, h = 3, 4, 5
    act = {"FusedActivationFunction": 4}
    w = lambda *s: fk(*s, scale=0.4)
    state = lambda *s: T(shape=s, dtype="float32", variable=True)
    yield Case(
        "UNIDIRECTIONAL_SEQUENCE_RNN",
        [f(n, 6, x), w(h, x), w(h, h), w(h), state(n, h)],
        ["float32"],
        "SequenceRNNOptions",
        {**act, "TimeMajor": False},
    )
    yield from both_ways()
    yield Case("RNN", [f(n, x), w(h, x), w(h, h), w(h), state(n, h)], ["float32"], "RNNOptions", act)
    gates = lambda *s: [w(*s) for _ in range(4)]
    plain = [*gates(h, x), *gates(h, h), None, None, None, *gates(h), None, None, state(n, h), state(n, h)]
    lstm = {**act, "CellClip": 0.0, "ProjClip": 0.0}
    yield Case(
        "UNIDIRECTIONAL_SEQUENCE_LSTM",
        [f(6, n, x), *plain],
        ["float32"],
        "UnidirectionalSequenceLSTMOptions",
        {**lstm, "TimeMajor": True},
    )
    full = [
        None, *gates(h, x)[:3], None, *gates(h, 2)[:3], None, w(h), w(h), None, *gates(h)[:3], w(2, h), w(2), state(n, 2), state(n, h), None,
        w(h), w(h), w(h),
    ]  # fmt: skip
    yield Case(
        "UNIDIRECTIONAL_SEQUENCE_LSTM",
        [f(n, 6, x), *full],
        ["float32"],
        "UnidirectionalSequenceLSTMOptions",
        {**lstm, "CellClip": 0.3, "TimeMajor": False},
        "UNIDIRECTIONAL_SEQUENCE_LSTM full",
    )
    yield Case("LSTM", [f(n, x), *plain], ["float32"], "LSTMOptions", {**lstm, "KernelType": 0})
    yield Case(
        "LSTM",
        [f(n, x), f(n, h), w(4 * h, x + h), w(4 * h), f(n, h)],
        ["float32"] * 4,
        "LSTMOptions",
        {**lstm, "KernelType": 1},
        "LSTM basic",
    )
    yield Case(
        "SVDF",
        [f(n, x), w(6, x), w(6, 7), w(3), state(n, 42)],
        ["float32"],
        "SVDFOptions",
        {"Rank": 2, "FusedActivationFunction": RELU},
    )


def detection():
    corner = RNG.uniform(0, 8, (12, 2))
    boxes = T(np.concatenate([corner, corner + RNG.uniform(1, 5, (12, 2))], 1).astype(np.float32))
    score = f(12, low=0, high=1)
    ends = [k(6), k(0.4, np.float32), k(0.2, np.float32)]
    yield Case("NON_MAX_SUPPRESSION_V4", [boxes, score, *ends], ["int32", "int32"], "NonMaxSuppressionV4Options")
    yield Case(
        "NON_MAX_SUPPRESSION_V5",
        [boxes, score, *ends, k(0.0, np.float32)],
        ["int32", "float32", "int32"],
        "NonMaxSuppressionV5Options",
    )
    yield Case(
        "NON_MAX_SUPPRESSION_V5",
        [boxes, score, *ends, k(0.5, np.float32)],
        ["int32", "float32", "int32"],
        "NonMaxSuppressionV5Options",
        name="NON_MAX_SUPPRESSION_V5 soft",
    )
    from flatbuffers import flexbuffers

    anchors = np.concatenate([RNG.uniform(0, 1, (12, 2)), RNG.uniform(0.2, 0.5, (12, 2))], 1).astype(np.float32)
    for regular in (False, True):
        blob = flexbuffers.Dumps({
            "max_detections": 5, "max_classes_per_detection": 1, "detections_per_class": 5, "use_regular_nms": regular,
            "nms_score_threshold": 0.3,
            "nms_iou_threshold": 0.4, "num_classes": 2, "y_scale": 10.0, "x_scale": 10.0, "h_scale": 5.0, "w_scale": 5.0,
        })  # fmt: skip
        yield Case(
            "TFLite_Detection_PostProcess",
            [f(1, 12, 4), f(1, 12, 3, low=0, high=1), T(anchors, fixed=True)],
            ["float32"] * 4,
            blob=bytes(blob),
            name=f"TFLite_Detection_PostProcess {regular}",
        )


def floats():
    """Every float case."""
    for family in (elementwise, shapes, images, reductions, recurrent, detection):
        yield from family()
