"""Quantised layers, for inference: `module.py` is their base, `layers.py` has them."""

from tengen.module.quantized.layers import (
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
from tengen.module.quantized.module import QuantizedModule

__all__ = [
    "BatchMatMulActivation", "Concat", "Conv2d", "ConvBn2d", "ConvBnRelu2d", "ConvRelu2d", "ConvTranspose2d", "ConvTransposeBn2d",
    "ConvTransposeBnRelu2d", "ConvTransposeRelu2d", "DequantStub", "Elemwise", "Linear", "LinearBn1d", "LinearBnRelu1d",
    "LinearRelu", "QuantStub", "QuantizedModule",
]  # fmt: skip
