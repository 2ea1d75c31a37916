"""`torch.nn`: modules, layers, losses. What means the same in Tengen is Tengen's own class; the others are made of it, in `layers.py`,
`losses.py`, `attention.py` and `module.py`."""

from __future__ import annotations

import sys

from tengen.base.lazy import NoSuchName
from tengen.pytorch.nn import functional, init, modules, parallel, parameter, plain, utils
from tengen.pytorch.nn.attention import (
    MultiheadAttention,
    Transformer,
    TransformerDecoder,
    TransformerDecoderLayer,
    TransformerEncoder,
    TransformerEncoderLayer,
)
from tengen.pytorch.nn.further import (
    AdaptiveLogSoftmaxWithLoss,
    FeatureAlphaDropout,
    MultiLabelMarginLoss,
    RReLU,
)
from tengen.pytorch.nn.layers import (
    GELU,
    GRU,
    LSTM,
    RNN,
    AlphaDropout,
    AvgPool1d,
    AvgPool2d,
    AvgPool3d,
    Bilinear,
    Conv1d,
    Conv2d,
    Conv3d,
    ConvTranspose1d,
    ConvTranspose2d,
    ConvTranspose3d,
    Dropout,
    Dropout1d,
    Dropout2d,
    Dropout3d,
    Embedding,
    EmbeddingBag,
    GRUCell,
    Linear,
    LocalResponseNorm,
    LSTMCell,
    PReLU,
    RNNCell,
    Softplus,
)
from tengen.pytorch.nn.lazy import (
    LazyBatchNorm1d,
    LazyBatchNorm2d,
    LazyBatchNorm3d,
    LazyConv1d,
    LazyConv2d,
    LazyConv3d,
    LazyConvTranspose1d,
    LazyConvTranspose2d,
    LazyConvTranspose3d,
    LazyInstanceNorm1d,
    LazyInstanceNorm2d,
    LazyInstanceNorm3d,
    LazyLinear,
)
from tengen.pytorch.nn.losses import (
    BCELoss,
    BCEWithLogitsLoss,
    CrossEntropyLoss,
    CTCLoss,
    L1Loss,
    MSELoss,
    MultiLabelSoftMarginLoss,
    MultiMarginLoss,
    NLLLoss,
)
from tengen.pytorch.nn.module import Identity, Module, ModuleDict, ModuleList, ParameterDict, ParameterList, Sequential
from tengen.pytorch.nn.norms import (
    BatchNorm1d,
    BatchNorm2d,
    BatchNorm3d,
    GroupNorm,
    InstanceNorm1d,
    InstanceNorm2d,
    InstanceNorm3d,
    LayerNorm,
    RMSNorm,
    SyncBatchNorm,
)
from tengen.pytorch.nn.parallel import DataParallel
from tengen.pytorch.nn.parameter import Buffer, Parameter
from tengen.pytorch.nn.plain import *  # noqa: F403  (its __all__ is the table of names)


def __getattr__(name: str) -> object:
    raise NoSuchName("tengen.pytorch.nn", name, lambda: dir(sys.modules[__name__]))


__all__ = [
    *plain.__all__,
    "AdaptiveLogSoftmaxWithLoss", "FeatureAlphaDropout", "LazyBatchNorm3d", "LazyConvTranspose1d", "LazyConvTranspose2d",
    "LazyConvTranspose3d", "LazyInstanceNorm1d", "LazyInstanceNorm2d", "LazyInstanceNorm3d", "MultiLabelMarginLoss", "RReLU", "GELU",
    "GRU", "LSTM", "RNN", "AlphaDropout", "AvgPool1d", "AvgPool2d", "AvgPool3d", "BCELoss", "BCEWithLogitsLoss", "BatchNorm1d",
    "BatchNorm2d", "BatchNorm3d", "Bilinear", "Buffer", "CTCLoss", "Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d",
    "ConvTranspose3d", "CrossEntropyLoss", "DataParallel", "Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "Embedding",
    "EmbeddingBag", "GRUCell", "GroupNorm", "Identity", "InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d", "L1Loss", "LSTMCell",
    "LayerNorm", "LazyBatchNorm1d", "LazyBatchNorm2d", "LazyConv1d", "LazyConv2d", "LazyConv3d", "LazyLinear", "Linear",
    "LocalResponseNorm", "MSELoss", "Module", "ModuleDict", "ModuleList", "MultiLabelSoftMarginLoss", "MultiMarginLoss",
    "MultiheadAttention", "NLLLoss", "PReLU", "Parameter", "ParameterDict", "ParameterList", "RMSNorm", "RNNCell", "Sequential",
    "Softplus", "SyncBatchNorm", "Transformer", "TransformerDecoder", "TransformerDecoderLayer", "TransformerEncoder",
    "TransformerEncoderLayer", "functional", "init", "modules", "parallel", "parameter", "utils",
]  # fmt: skip
