"""MegEngine's quantised dtypes; what they mean is in `tengen.quantization.dtypes`."""

from tengen.quantization import qparams  # noqa: F401  (tells tensors what these dtypes mean)
from tengen.quantization.dtypes import (
    QuantDtypeMeta,
    convert_from_qint1,
    convert_from_qint4,
    convert_from_qint8,
    convert_from_qint32,
    convert_from_quint4,
    convert_from_quint8,
    convert_to_qint1,
    convert_to_qint4,
    convert_to_qint8,
    convert_to_qint32,
    convert_to_quint4,
    convert_to_quint8,
    create_quantized_dtype,
    get_dtype_bit,
    get_scale,
    get_zero_point,
    is_bfloat16,
    is_differentible_dtype,
    is_lowbit,
    is_quantize,
    qint1,
    qint4,
    qint8,
    qint32,
    quint4,
    quint8,
)

__all__ = [
    "QuantDtypeMeta", "convert_from_qint1", "convert_from_qint32", "convert_from_qint4", "convert_from_qint8", "convert_from_quint4",
    "convert_from_quint8", "convert_to_qint1", "convert_to_qint32", "convert_to_qint4", "convert_to_qint8", "convert_to_quint4",
    "convert_to_quint8", "create_quantized_dtype", "get_dtype_bit", "get_scale", "get_zero_point", "is_bfloat16",
    "is_differentible_dtype", "is_lowbit", "is_quantize", "qint1", "qint32", "qint4", "qint8", "quint4", "quint8",
]  # fmt: skip
