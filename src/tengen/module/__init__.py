"""Modules: functions with parameters. MegEngine's names, shapes and `state_dict` conventions."""

from tengen.base.lazy import modules_of
from tengen.module import init
from tengen.module.activation import (
    ELU,
    GELU,
    GLU,
    SELU,
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
from tengen.module.augment import (
    ActiveBlur,
    AdditiveElemwise,
    AdditiveGaussianNoise,
    AdditiveLaplaceNoise,
    AdditivePoissonNoise,
    CropAndPad,
    Cutmix,
    Emboss,
    GaussianBlur,
    LinearContrast,
    Mixup,
    Sharpen,
)  # fmt: skip
from tengen.module.containers import ModuleDict, ModuleList
from tengen.module.conv import Conv1d, Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from tengen.module.dropout import AlphaDropout, Dropout, Dropout1d, Dropout2d, Dropout3d
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
from tengen.module.lazy import *  # noqa: F403  (the names of `__all__`)
from tengen.module.lazy import __all__ as _lazy_layers
from tengen.module.linear import Embedding, Linear
from tengen.module.loss import (
    BCELoss,
    BCEWithLogitsLoss,
    CosineEmbeddingLoss,
    CrossEntropyLoss,
    CTCLoss,
    GaussianNLLLoss,
    HingeEmbeddingLoss,
    HuberLoss,
    KLDivLoss,
    L1Loss,
    MarginRankingLoss,
    MSELoss,
    MultiLabelSoftMarginLoss,
    MultiMarginLoss,
    NLLLoss,
    PoissonNLLLoss,
    SmoothL1Loss,
    SoftMarginLoss,
    TripletMarginLoss,
    TripletMarginWithDistanceLoss,
)
from tengen.module.module import LoadedKeys, Module
from tengen.module.morphology import Dilation, FillPoly
from tengen.module.norm import (
    BatchNorm1d,
    BatchNorm2d,
    BatchNorm3d,
    GeneralNorm,
    GroupNorm,
    InstanceNorm,
    LayerNorm,
    LocalResponseNorm,
    RMSNorm,
    SyncBatchNorm,
)
from tengen.module.pool import (
    AdaptiveAvgPool1d,
    AdaptiveAvgPool2d,
    AdaptiveAvgPool3d,
    AdaptiveMaxPool1d,
    AdaptiveMaxPool2d,
    AdaptiveMaxPool3d,
    AvgPool1d,
    AvgPool2d,
    AvgPool3d,
    FractionalMaxPool2d,
    FractionalMaxPool3d,
    LPPool1d,
    LPPool2d,
    LPPool3d,
    MaxPool1d,
    MaxPool2d,
    MaxPool3d,
    MaxUnpool1d,
    MaxUnpool2d,
    MaxUnpool3d,
)
from tengen.module.pytorch_layers import *  # noqa: F403  (the names of `__all__`)
from tengen.module.pytorch_layers import __all__ as _pytorch_layers
from tengen.module.rearrange import Pad, PixelShuffle, SlidingWindow, SlidingWindowTranspose
from tengen.module.reparametrise import remove_spectral_norm, remove_weight_norm, spectral_norm, weight_norm
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
    DeformablePSROIPooling,
    Flip,
    LocalConv2d,
    RegionRestrictedConv,
    Remap,
    Resize,
    Rot90,
    Rotate,
    Upsample,
)
from tengen.tensor import Parameter

__getattr__ = modules_of(__name__)
__all__ = [
    "AdaptiveAvgPool1d", "AdaptiveAvgPool2d", "AdaptiveAvgPool3d", "AdaptiveMaxPool1d", "AdaptiveMaxPool2d",
    "AdaptiveMaxPool3d", "AlphaDropout", "AvgPool1d", "AvgPool2d", "AvgPool3d", "BatchMatMulActivation", "BatchNorm1d",
    "BatchNorm2d", "BatchNorm3d", "Concat", "Conv1d", "Conv2d", "Conv3d", "ConvBn2d", "ConvBnRelu2d", "ConvRelu2d",
    "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d", "ConvTransposeBn2d", "ConvTransposeBnRelu2d",
    "ConvTransposeRelu2d", "DeformableConv2d", "DeformablePSROIPooling", "DequantStub", "Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "ELU",
    "Elemwise", "Embedding", "Flatten", "Flip", "GELU", "GLU", "GRU", "GRUCell", "GeneralNorm", "GroupNorm",
    "Hardsigmoid", "Hardswish", "Identity", "InstanceNorm", "LSTM", "LSTMCell", "LayerNorm", "LeakyReLU", "Linear",
    "LinearBn1d", "LinearBnRelu1d", "LinearRelu", "LoadedKeys", "LocalConv2d", "LocalResponseNorm", "LogSigmoid",
    "LogSoftmax", "MaxPool1d", "MaxPool2d", "MaxPool3d", "Mish", "Module", "ModuleDict", "ModuleList",
    "MultiHeadAttention", "PReLU", "Pad", "PixelShuffle", "QuantStub", "RMSNorm", "RNN", "RNNCell", "ReLU", "ReLU6",
    "RegionRestrictedConv", "Remap", "Resize", "Rot90", "Rotate", "SELU", "Sequential", "SiLU", "Sigmoid",
    "SlidingWindow", "SlidingWindowTranspose", "Softmax", "Softplus", "SyncBatchNorm", "Tanh", "TransformerDecoder",
    "TransformerDecoderLayer", "TransformerEncoder", "TransformerEncoderLayer", "Upsample", "init",
    "ActiveBlur", "AdditiveElemwise", "AdditiveGaussianNoise", "AdditiveLaplaceNoise", "AdditivePoissonNoise", "CropAndPad",
    "Cutmix", "Emboss", "GaussianBlur", "LinearContrast", "Mixup", "Sharpen",
    "BCELoss", "BCEWithLogitsLoss", "CosineEmbeddingLoss", "CrossEntropyLoss", "HuberLoss", "KLDivLoss", "L1Loss", "MSELoss",
    "MarginRankingLoss", "NLLLoss", "SmoothL1Loss", "TripletMarginLoss", "TripletMarginWithDistanceLoss",
    "FractionalMaxPool2d", "FractionalMaxPool3d", "LPPool1d", "LPPool2d", "LPPool3d", "MaxUnpool1d", "MaxUnpool2d", "MaxUnpool3d",
    "CTCLoss", "Dilation", "FillPoly", "GaussianNLLLoss", "HingeEmbeddingLoss", "MultiLabelSoftMarginLoss", "MultiMarginLoss", "Parameter",
    "PoissonNLLLoss", "SoftMarginLoss", *_lazy_layers, *_pytorch_layers,
    "remove_spectral_norm", "remove_weight_norm", "spectral_norm", "weight_norm",
]  # fmt: skip
