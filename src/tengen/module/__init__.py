"""Modules: functions with parameters. MegEngine's names, shapes and `state_dict` conventions."""

from tengen.module import init
from tengen.module.activation import (
    GELU,
    Dropout,
    Flatten,
    Identity,
    LeakyReLU,
    PReLU,
    ReLU,
    Sigmoid,
    SiLU,
    Softmax,
)  # fmt: skip
from tengen.module.attention import MultiHeadAttention
from tengen.module.conv import Conv1d, Conv2d, Conv3d, ConvTranspose2d
from tengen.module.linear import Embedding, Linear
from tengen.module.module import Module
from tengen.module.norm import BatchNorm1d, BatchNorm2d, GroupNorm, InstanceNorm, LayerNorm
from tengen.module.pool import AdaptiveAvgPool2d, AdaptiveMaxPool2d, AvgPool2d, MaxPool2d
from tengen.module.rnn import LSTM, RNN, LSTMCell, RNNCell
from tengen.module.sequential import Sequential
from tengen.module.transformer import (
    TransformerDecoder,
    TransformerDecoderLayer,
    TransformerEncoder,
    TransformerEncoderLayer,
)  # fmt: skip

__all__ = [
    "AdaptiveAvgPool2d", "AdaptiveMaxPool2d", "AvgPool2d", "BatchNorm1d", "BatchNorm2d", "Conv1d", "Conv2d", "Conv3d",
    "ConvTranspose2d", "Dropout", "Embedding", "Flatten", "GELU", "GroupNorm", "Identity", "InstanceNorm", "LSTM", "LSTMCell",
    "LayerNorm", "LeakyReLU", "Linear", "MaxPool2d", "Module", "MultiHeadAttention", "PReLU", "RNN", "RNNCell", "ReLU",
    "Sequential", "SiLU", "Sigmoid", "Softmax", "TransformerDecoder", "TransformerDecoderLayer", "TransformerEncoder",
    "TransformerEncoderLayer", "init",
]  # fmt: skip
