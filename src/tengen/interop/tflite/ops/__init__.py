"""What each operator of TFLite means here: files by family, one function for each, entered in the tables of `registry.py`."""

from tengen.interop.tflite.ops import (
    control,
    detection,
    elementwise,
    images,
    integers,
    lookup,
    mixed,
    recurrent,
    recurrent_integers,
    reductions,
    shapes,
    signals,
    softmax,
)
from tengen.interop.tflite.registry import HYBRID, OPS, QUANTISED, meaning, op, why_not

FAMILIES = (
    control, detection, elementwise, images, integers, lookup, mixed, recurrent, recurrent_integers, reductions, shapes, signals, softmax,
)  # fmt: skip

__all__ = ["FAMILIES", "HYBRID", "OPS", "QUANTISED", "meaning", "op", "why_not"]
