"""What other runtimes read of ONNX, as their documentation or the source of their converter says; `save(..., runtime=...)` checks it.

Sources: MACE, tools/python/transform/onnx_converter.py (which reads the attributes that opset 9 has); Tengine, tools/convert_tool/onnx/
onnx2tengine.cpp; TensorRT, the ONNX Opset Guide of TensorRT 11 and onnx-tensorrt's docs/operators.md; OpenVINO,
src/frontends/onnx/docs/supported_ops.md; Core ML, the converter of coremltools 4 and 5 (later ones read no ONNX files), opset 10 at most.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tengen.base.record import record
from tengen.interop.onnx.opsets import graphs


@record(frozen=True)
class Runtime:
    """What a runtime takes.

    Attributes:
        oldest, newest: opsets. only: its operators; None: all but `without`. open: whether extents may be open. space: for how many
            axes of space it has convolutions and pools. symmetric: whether integers of pairs are int8 with zero points of 0 alone.
        unreduced: operators that write at places, and take no sums there. plain: whether filters of convolutions are arrays of the
            file, with one group or a channel for each, and transposed ones have neither gaps nor padding of their results.
    """

    oldest: int
    newest: int
    only: frozenset[str] | None = None
    without: frozenset[str] = frozenset()
    open: bool = True
    space: tuple[int, ...] = (1, 2, 3)
    symmetric: bool = False
    unreduced: frozenset[str] = frozenset()
    plain: bool = False

    def has(self, op: str) -> bool:
        """Whether it has an operator."""
        return op not in self.without and (self.only is None or op in self.only)


MACE = frozenset(
    """Abs Add ArgMax ArgMin AveragePool BatchNormalization Cast Clip Concat Constant Conv ConvTranspose DepthToSpace Div Dropout
    Equal Flatten Gather Gemm GlobalAveragePool GlobalMaxPool Identity LeakyRelu LogSoftmax MatMul Max MaxPool Min Mul Neg Pad
    Pow PRelu Reciprocal ReduceMax ReduceMean ReduceMin ReduceProd Relu Reshape Shape Sigmoid Slice Softmax SpaceToDepth Split
    Sqrt Squeeze Sub Sum Tanh Transpose Unsqueeze Upsample""".split()
)
TENGINE = frozenset(
    """Abs Acos And ArgMax ArgMin Asin Atan AveragePool Add BatchNormalization Conv ConvTranspose Concat Clip Ceil Cos Cast Constant
    Dropout DepthToSpace Div Elu Exp Expand Equal Flatten Floor Gemm Gather Greater GRU GlobalAveragePool HardSwish HardSigmoid
    InstanceNormalization Log LRN Less LSTM LeakyRelu LogSoftmax Mul Max Min Mean MatMul MaxPool Neg Or Pad Pow PRelu Relu Resize
    Reshape ReduceL2 ReduceMean ReduceLogSumExp ReduceLogSum ReduceMax ReduceMin ReduceProd ReduceSumSquare ReduceSum Reciprocal
    Sub Selu Sqrt Slice Split Shape Squeeze Scatter Sigmoid Softmax Softplus Tanh Tile Transpose Upsample Unsqueeze Where Gelu
    Identity""".split()
)
COREML = frozenset(
    """Abs Acos Acosh Add And ArgMax ArgMin Asin Asinh Atan Atanh AveragePool BatchNormalization Cast Ceil Clip Concat Constant
    ConstantOfShape Conv ConvTranspose Cos Cosh DepthToSpace Div Elu Equal Erf Exp Expand Flatten Floor Gather Gemm Greater GRU
    GlobalAveragePool GlobalMaxPool HardSigmoid Identity InstanceNormalization LeakyRelu Log LogSoftmax LRN Less LSTM MatMul Max
    MaxPool Mean Min Mod Mul Neg NonZero Not Or Pad Pow PRelu Reciprocal ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax
    ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare Relu Reshape Resize ReverseSequence RoiAlign Round Scatter Selu
    Sigmoid Sign Size Slice Softmax Softplus Softsign SpaceToDepth Split Shape Sqrt Squeeze Sub Sum Tanh ThresholdedRelu Tile
    TopK Transpose Unsqueeze Upsample Xor Where""".split()
)
TENSORRT_LACKS = frozenset(
    """BitShift Compress ConcatFromSequence ConvInteger Det DynamicQuantizeLinear MatMulInteger MaxRoiPool MaxUnpool Multinomial
    QLinearConv QLinearMatMul RandomNormal SequenceAt SequenceConstruct SequenceEmpty SequenceErase SequenceInsert SequenceLength
    SplitToSequence StringNormalizer TfIdfVectorizer Unique BitwiseAnd BitwiseOr BitwiseXor BitwiseNot DFT""".split()
)
RUNTIMES = {
    "mace": Runtime(7, 9, MACE, open=False, space=(2,), plain=True), "tengine": Runtime(7, 12, TENGINE, open=False, space=(2,)),
    "tensorrt": Runtime(9, 25, without=TENSORRT_LACKS, space=(2, 3), symmetric=True, unreduced=frozenset({"ScatterND"})),
    "openvino": Runtime(7, 23, without=frozenset({"Det", "DeformConv", "Bernoulli"})),
    "coreml": Runtime(7, 10, COREML, space=(1, 2)),
}  # fmt: skip
PAIRS = ("QuantizeLinear", "DequantizeLinear")
WINDOWS = ("Conv", "ConvTranspose", "MaxPool", "AveragePool")


def misfits(proto: Any, r: Runtime) -> Iterator[tuple[str, str]]:
    """Names of nodes and inputs that a runtime does not take, with the reason."""
    from onnx import numpy_helper

    for p in proto.graph.input:
        dims = p.type.tensor_type.shape.dim
        if not r.open and not all(d.HasField("dim_value") for d in dims):
            yield p.name, f"the input has open extents, {[d.dim_param or d.dim_value for d in dims]}; help: trace with numbers"
    zeros = {t.name: numpy_helper.to_array(t) for t in proto.graph.initializer if t.data_type in (t.INT8, t.UINT8)} if r.symmetric else {}
    filters = {t.name: tuple(t.dims) for t in proto.graph.initializer} if r.plain else {}
    for g in graphs(proto.graph):
        for n in g.node:
            if r.symmetric and n.op_type in PAIRS:
                zero = zeros.get(n.input[2]) if len(n.input) > 2 else None
                if zero is None or zero.dtype != np.int8 or zero.any():
                    yield n.name, f"its {n.op_type} has int8 with zero points of 0; help: tengen.quantization.quantize of a network in training"
            if not r.has(n.op_type):
                yield n.name, f"it has no operator {n.op_type}"
            if n.op_type in r.unreduced and any(a.name == "reduction" and a.s != b"none" for a in n.attribute):
                yield n.name, f"its {n.op_type} takes no reduction"
            kernel = [a.ints for a in n.attribute if a.name in ("kernel_shape", "strides")]
            if r.plain and n.op_type in WINDOWS[:2]:
                yield from ((n.name, why) for why in _not_plain(n, filters))
            if n.op_type in WINDOWS and kernel and len(kernel[0]) not in r.space:
                yield n.name, f"it has no {n.op_type} over {len(kernel[0])} axes of space"


def _not_plain(n: Any, filters: dict[str, tuple[int, ...]]) -> Iterator[str]:
    """Why a convolution is none that `plain` runtimes take. filters: the shapes of the file's arrays."""
    has = {a.name: list(a.ints) if a.ints else a.i for a in n.attribute}
    shape, groups = filters.get(n.input[1]), has.get("group", 1)
    if shape is None:
        yield f"the filters of its {n.op_type} are arrays of the file; these are computed"
    elif groups not in (1, shape[0]) or (groups > 1 and shape[1] != 1):
        yield f"its {n.op_type} has 1 or as many groups as filters, with a channel each; this has {groups}"
    if n.op_type == "ConvTranspose":
        if any(d != 1 for d in has.get("dilations", [1])):
            yield f"its ConvTranspose has no dilations; this has {has['dilations']}"
        if odd := [k for k in ("output_padding", "output_shape") if any(has.get(k, ()))]:
            yield f"its ConvTranspose has no {odd[0]}; this has {has[odd[0]]}"
