"""How modules are quantised: `QConfig`, and MegEngine's named ones."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from tengen.base.record import NamedTuple
from tengen.module.module import Module
from tengen.quantization.fake_quant import LSQ, TQT, FakeQuantize
from tengen.quantization.observer import (
    ExponentialMovingAverageObserver,
    HistogramObserver,
    MinMaxObserver,
    PassiveObserver,
    SyncExponentialMovingAverageObserver,
    SyncMinMaxObserver,
)


class _QConfig(NamedTuple):
    weight_observer: Callable[[], Any] | None
    act_observer: Callable[[], Any] | None
    weight_fake_quant: Callable[[], Any] | None
    act_fake_quant: Callable[[], Any] | None


class QConfig(_QConfig):
    """What makes the observers and fake quantisation of weights and activations: classes, or partial calls of them.

    Args: weight_observer, act_observer, weight_fake_quant, act_fake_quant: called without arguments for each module; None:
        none.

    Errors: ValueError for observers that are made already

    >>> from functools import partial
    >>> from tengen.quantization import FakeQuantize, MinMaxObserver, QConfig
    >>> config = QConfig(MinMaxObserver, MinMaxObserver, None, partial(FakeQuantize, dtype="qint8"))
    """

    __slots__ = ()

    def __new__(cls, weight_observer, act_observer, weight_fake_quant, act_fake_quant):
        if isinstance(act_observer, Module) or isinstance(weight_observer, Module):
            raise ValueError(
                "QConfig must not receive observer instance, please pass observer class generator using `partial(Observer, ...)` "
                "instead. Use partial(MyObserver, x=1) to override arguments to constructor if needed"
            )
        return super().__new__(cls, weight_observer, act_observer, weight_fake_quant, act_fake_quant)


def _config(weight: Any, act: Any, rounding: Any = FakeQuantize, low: str = "qint8_narrow", wide: str = "qint8") -> QConfig:
    made = lambda kind, d: None if kind is None else partial(kind, dtype=d)
    return QConfig(made(weight, low), made(act, wide), made(rounding, low), made(rounding, wide))


min_max_fakequant_qconfig = _config(MinMaxObserver, MinMaxObserver)
ema_fakequant_qconfig = _config(MinMaxObserver, ExponentialMovingAverageObserver)
sync_ema_fakequant_qconfig = _config(SyncMinMaxObserver, SyncExponentialMovingAverageObserver)
ema_lowbit_fakequant_qconfig = _config(MinMaxObserver, ExponentialMovingAverageObserver, low="qint4", wide="qint4")
calibration_qconfig = _config(MinMaxObserver, HistogramObserver, None)
tqt_qconfig = _config(None, None, TQT)
lsq_qconfig = _config(None, None, LSQ)
passive_qconfig = _config(PassiveObserver, PassiveObserver)
easyquant_qconfig = passive_qconfig
