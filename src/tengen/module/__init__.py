"""Modules: functions with parameters. MegEngine's names, shapes and `state_dict` conventions."""

from tengen.module import init
from tengen.module.activation import (
    ELU,
    GELU,
    GLU,
    SELU,
    Dropout,
    Dropout2d,
    Flatten,
    Hardsigmoid,
    Hardswish,
    Identity,
    LeakyReLU,
    LogSigmoid,
    LogSoftmax,
    Mish,
    PReLU,
    ReLU,
    ReLU6,
    Sigmoid,
    SiLU,
    Softmax,
    Softplus,
    Tanh,
)  # fmt: skip
from tengen.module.attention import MultiHeadAttention
from tengen.module.containers import ModuleDict, ModuleList
from tengen.module.conv import Conv1d, Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from tengen.module.fused import (
    BatchMatMulActivation,
    Concat,
    ConvBn2d,
    ConvBnRelu2d,
    ConvRelu2d,
    ConvTransposeBn2d,
    ConvTransposeBnRelu2d,
    ConvTransposeRelu2d,
    DequantStub,
    Elemwise,
    LinearBn1d,
    LinearBnRelu1d,
    LinearRelu,
    QuantStub,
)  # fmt: skip
from tengen.module.linear import Embedding, Linear
from tengen.module.module import LoadedKeys, Module
from tengen.module.norm import (
    BatchNorm1d,
    BatchNorm2d,
    GeneralNorm,
    GroupNorm,
    InstanceNorm,
    LayerNorm,
    LocalResponseNorm,
    RMSNorm,
)
from tengen.module.pool import AdaptiveAvgPool2d, AdaptiveMaxPool2d, AvgPool2d, MaxPool2d
from tengen.module.rearrange import Pad, PixelShuffle, SlidingWindow, SlidingWindowTranspose
from tengen.module.rnn import GRU, LSTM, RNN, GRUCell, LSTMCell, RNNCell
from tengen.module.sequential import Sequential
from tengen.module.transformer import (
    TransformerDecoder,
    TransformerDecoderLayer,
    TransformerEncoder,
    TransformerEncoderLayer,
)  # fmt: skip
from tengen.module.vision import (
    DeformableConv2d,
    Flip,
    LocalConv2d,
    RegionRestrictedConv,
    Remap,
    Resize,
    Rot90,
    Rotate,
    Upsample,
)

__all__ = [
    "AdaptiveAvgPool2d", "AdaptiveMaxPool2d", "AvgPool2d", "BatchMatMulActivation", "BatchNorm1d", "BatchNorm2d", "Concat",
    "Conv1d", "Conv2d", "Conv3d", "ConvBn2d", "ConvBnRelu2d", "ConvRelu2d", "ConvTranspose1d", "ConvTranspose2d",
    "ConvTranspose3d", "ConvTransposeBn2d", "ConvTransposeBnRelu2d", "ConvTransposeRelu2d", "DeformableConv2d",
    "DequantStub", "Dropout", "Dropout2d", "ELU", "Elemwise", "Embedding", "Flatten", "Flip", "GELU", "GLU", "GRU",
    "GRUCell", "GeneralNorm", "GroupNorm", "Hardsigmoid", "Hardswish", "Identity", "InstanceNorm", "LSTM", "LSTMCell",
    "LayerNorm", "LeakyReLU", "Linear", "LinearBn1d", "LinearBnRelu1d", "LinearRelu", "LoadedKeys", "LocalConv2d",
    "LocalResponseNorm", "LogSigmoid", "LogSoftmax", "MaxPool2d", "Mish", "Module", "ModuleDict", "ModuleList",
    "MultiHeadAttention", "PReLU", "Pad", "PixelShuffle", "QuantStub", "RMSNorm", "RNN", "RNNCell", "ReLU", "ReLU6",
    "RegionRestrictedConv", "Remap", "Resize", "Rot90", "Rotate", "SELU", "Sequential", "SiLU", "Sigmoid", "SlidingWindow",
    "SlidingWindowTranspose", "Softmax", "Softplus", "Tanh", "TransformerDecoder", "TransformerDecoderLayer",
    "TransformerEncoder", "TransformerEncoderLayer", "Upsample", "init",
]  # fmt: skip
