"""Quantisation: networks whose products are of integers of 8 bits, trained or calibrated, and the arithmetic that all of it
agrees on.

MegEngine's names (observers, fake quantisation, `quantize_qat`, `quantize`, configurations), and a short road: `ptq`, `report`,
`auto_mix`, `quantize_weights`. Each name loads its module when it is first asked for. See docs/quantization.md.
"""

from __future__ import annotations

import importlib
from typing import Any

from tengen.base.lazy import NoSuchName

_OF_MODULES = {
    "dtypes": "QuantDtypeMeta QuantizationError",
    "qparams": "LSQParams QParams QuantMode create_qparams fake_quant_bias fake_quant_tensor",
    "observer": (
        "ExponentialMovingAverageObserver HistogramObserver MinMaxObserver Observer PassiveObserver "
        "SyncExponentialMovingAverageObserver SyncMinMaxObserver"
    ),
    "fake_quant": "FakeQuantize LSQ TQT",
    "qconfig": (
        "QConfig calibration_qconfig easyquant_qconfig ema_fakequant_qconfig ema_lowbit_fakequant_qconfig lsq_qconfig "
        "min_max_fakequant_qconfig passive_qconfig sync_ema_fakequant_qconfig tqt_qconfig"
    ),
    "convert": (
        "apply_easy_quant disable_fake_quant disable_observer enable_fake_quant enable_observer propagate_qconfig quantize quantize_qat "
        "reset_qconfig"
    ),
    "post_training": "Quantized auto_mix ptq",
    "reporting": "Report report",
    "weights": "quantize_weights",
}
_HOMES = {name: module for module, names in _OF_MODULES.items() for name in names.split()}
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    try:
        if not name.startswith("_"):
            return importlib.import_module(f"{__name__}.{name}")
    except ModuleNotFoundError as e:
        if e.name != f"{__name__}.{name}":
            raise
    raise NoSuchName(__name__, name, lambda: __all__)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
