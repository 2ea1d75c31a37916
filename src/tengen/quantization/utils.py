"""MegEngine's `quantization.utils`: what is in `qparams.py`, under that name."""

from tengen.quantization.qparams import (
    LSQParams,
    QParams,
    QParamsModuleMixin,
    QuantMode,
    create_qparams,
    fake_quant_bias,
    fake_quant_tensor,
)

__all__ = ["LSQParams", "QParams", "QParamsModuleMixin", "QuantMode", "create_qparams", "fake_quant_bias", "fake_quant_tensor"]
