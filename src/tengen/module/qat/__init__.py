"""Layers in quantisation-aware training, and in calibration: `module.py` is their base, `layers.py` has them."""

from tengen.module.qat.layers import (
    BatchMatMulActivation,
    Concat,
    Conv2d,
    ConvBn2d,
    ConvBnRelu2d,
    ConvRelu2d,
    ConvTranspose2d,
    ConvTransposeBn2d,
    ConvTransposeBnRelu2d,
    ConvTransposeRelu2d,
    DequantStub,
    Elemwise,
    Linear,
    LinearBn1d,
    LinearBnRelu1d,
    LinearRelu,
    QuantStub,
)
from tengen.module.qat.module import QATModule

__all__ = [
    "BatchMatMulActivation", "Concat", "Conv2d", "ConvBn2d", "ConvBnRelu2d", "ConvRelu2d", "ConvTranspose2d", "ConvTransposeBn2d",
    "ConvTransposeBnRelu2d", "ConvTransposeRelu2d", "DequantStub", "Elemwise", "Linear", "LinearBn1d", "LinearBnRelu1d",
    "LinearRelu", "QATModule", "QuantStub",
]  # fmt: skip
