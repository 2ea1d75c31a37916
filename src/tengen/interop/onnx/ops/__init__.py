"""What each operator of ONNX means here: files by family, one function for each op, entered in `OPS`.

An op that stands nowhere here and is defined by a function in the standard is run as that function.
"""

from tengen.interop.onnx.ops import (
    attention,
    classical,
    control,
    convolution,
    detection,
    elementwise,
    fused,
    learning,
    normalization,
    pooling,
    qlinear,
    quantization,
    recurrent,
    reduction,
    resize,
    sequences,
    shapes,
    signal,
    text,
)
from tengen.interop.onnx.registry import OPS, op

FAMILIES = (
    attention, classical, control, convolution, detection, elementwise, fused, learning, normalization, pooling, qlinear, quantization,
    recurrent, reduction, resize, sequences, shapes, signal, text,
)  # fmt: skip

__all__ = ["FAMILIES", "OPS", "op"]
