"""Observers: modules that watch what goes through them, and say with which scale it should be rounded.

In: tensors, handed on unchanged. Out: `get_qparams()`. Those that count a histogram do so in NumPy, outside of traces.
"""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np

from tengen import functional as F
from tengen.functional.distributed import all_reduce_max, all_reduce_min
from tengen.module.module import Module
from tengen.quantization.calibrators import error_of_range
from tengen.quantization.dtypes import QuantDtypeMeta, QuantizationError, check_scale, meta_of
from tengen.quantization.qparams import QParams, QParamsModuleMixin, QuantMode, create_qparams
from tengen.tensor import Tensor, tracing


class Observer(Module, QParamsModuleMixin):
    """The base of observers. `train()` enables one, `eval()` disables it, as MegEngine's do; `enable` and `disable` say so by
    hand.

    Args: dtype: which integers, a name such as ``"qint8"`` or a `QuantDtypeMeta`.

    Errors: TypeError where one of this class itself is made
    """

    def __init__(self, dtype: str | QuantDtypeMeta, **kwargs: Any):
        if type(self) is Observer:
            raise TypeError("Observer is the base of observers; help: MinMaxObserver, or a class of your own with forward() and get_qparams()")
        super().__init__()
        self.dtype = meta_of(dtype)
        self.qmin, self.qmax = self.dtype.qmin, self.dtype.qmax
        self.enabled = True

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name == "training":
            super().__setattr__("enabled", value)

    def watched(self) -> bool:
        """Whether there is something to say."""
        return True

    def enable(self) -> None:
        """Begins to watch."""
        self.enabled = True

    def disable(self) -> None:
        """Ceases to watch."""
        self.enabled = False


class MinMaxObserver(Observer):
    """Watches the smallest and the largest number.

    Args:
        mode: with a zero point or without. eps: the least scale. dtype: which integers.

    Errors: QuantizationError where nothing was watched yet

    >>> from tengen import Tensor
    >>> from tengen.quantization import MinMaxObserver
    >>> o = MinMaxObserver()
    >>> x = o(Tensor([-51.0, 20.0]))
    >>> round(o.get_qparams().scale.item(), 6)
    0.4
    """

    def __init__(
        self, mode: QuantMode = QuantMode.SYMMERTIC, eps: float = 0.00001, dtype: str | QuantDtypeMeta = "qint8", **kwargs: Any
    ):
        super().__init__(dtype, **kwargs)
        self.mode = mode
        self.min_val = Tensor(np.float32(np.finfo(np.float32).max))
        self.max_val = Tensor(np.float32(np.finfo(np.float32).min))
        if not 0 <= eps < math.inf:
            raise QuantizationError(f"{type(self).__name__}: eps={eps!r} must be a finite number that is not negative")
        self.scale_limit = eps

    def _calculate_qparams(self, inp_min_val: Tensor, inp_max_val: Tensor) -> QParams:
        low, high = F.minimum(0.0, inp_min_val), F.maximum(0.0, inp_max_val)
        steps = self.qmax - self.qmin
        if self.mode is QuantMode.SYMMERTIC:
            return create_qparams(self.mode, self.dtype, F.maximum(F.maximum(-low, high) / (steps / 2), self.scale_limit), None)
        scale = F.maximum((high - low) / steps, self.scale_limit)
        return create_qparams(self.mode, self.dtype, scale, F.clip(self.qmin - F.round(low / scale), self.qmin, self.qmax))

    def get_qparams(self) -> QParams:
        """Scale and zero point for what was watched."""
        if tracing.recorder is None:
            self.range()  # nothing was: an error
        return self._calculate_qparams(self.min_val, self.max_val)

    def range(self) -> tuple[float, float]:
        """The smallest and the largest number that was watched.

        Errors: QuantizationError where nothing was
        """
        low, high = self.min_val.item(), self.max_val.item()
        if not (np.isfinite(low) and np.isfinite(high)):
            raise QuantizationError("an observer watched NaN or inf; help: debug.check_finite finds where it comes from")
        if low > high:
            raise QuantizationError("calibration saw no data; help: run the network on some, with enable_observer(net)")
        return low, high

    def watched(self) -> bool:
        """Whether anything was."""
        return not self.min_val.item() > self.max_val.item()

    def _least_and_most(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x.min(), x.max()

    def forward(self, x_orig: Tensor) -> Tensor:
        if self.enabled:
            low, high = self._least_and_most(x_orig.detach())
            self.min_val[...] = F.minimum(self.min_val, low)
            self.max_val[...] = F.maximum(self.max_val, high)
        return x_orig


class _OverProcesses:
    """The extrema over all processes."""

    def _least_and_most(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return all_reduce_min(x.min()), all_reduce_max(x.max())


class SyncMinMaxObserver(_OverProcesses, MinMaxObserver):
    """`MinMaxObserver` over the processes of `distributed`."""


class ExponentialMovingAverageObserver(MinMaxObserver):
    """Watches moving averages of the smallest and the largest number.

    Args: momentum: what is kept of the average, from the second tensor on. Others: as of `MinMaxObserver`.
    """

    def __init__(
        self, momentum: float = 0.9, mode: QuantMode = QuantMode.SYMMERTIC, eps: float = 0.00001,
        dtype: str | QuantDtypeMeta = "qint8", **kwargs: Any,
    ):  # fmt: skip
        super().__init__(mode, eps, dtype, **kwargs)
        self.set_momentum(momentum)
        self.runtime_momentum = Tensor(0.0)

    def set_momentum(self, momentum: float) -> None:
        """Sets what is kept of the average. Errors: QuantizationError for a number that is not in [0, 1]"""
        if not 0 <= momentum <= 1:
            raise QuantizationError(f"{type(self).__name__}: momentum={momentum!r} must be a number from 0 to 1")
        self.momentum = Tensor(momentum, dtype="float32")

    def forward(self, x_orig: Tensor) -> Tensor:
        if self.enabled:
            low, high = self._least_and_most(x_orig.detach())
            kept = self.runtime_momentum
            self.min_val[...] = self.min_val * kept + (1 - kept) * low
            self.max_val[...] = self.max_val * kept + (1 - kept) * high
            self.runtime_momentum[...] = self.momentum
        return x_orig


class SyncExponentialMovingAverageObserver(_OverProcesses, ExponentialMovingAverageObserver):
    """`ExponentialMovingAverageObserver` over the processes of `distributed`."""


class HistogramObserver(MinMaxObserver):
    """Counts numbers in bins, and chooses the range with the least squared error of rounding. For calibration, outside of
    traces.

    Args: bins: their number. upsample_rate: as of MegEngine's, where bins are joined: here they are shared out in proportion,
        and it says nothing. Others: as of `MinMaxObserver`.
    """

    def __init__(
        self, bins: int = 2048, upsample_rate: int = 128, mode: QuantMode = QuantMode.SYMMERTIC, eps: float = 0.00001,
        dtype: str | QuantDtypeMeta = "qint8", **kwargs: Any,
    ):  # fmt: skip
        super().__init__(mode, eps, dtype, **kwargs)
        if not isinstance(bins, (int, np.integer)) or bins < 1:
            raise QuantizationError(f"{type(self).__name__}: bins={bins!r} must be a whole number, at least 1")
        self.bins, self.upsample_rate = bins, upsample_rate
        self.histogram = Tensor(np.array([-1] + [0.0] * (bins - 1), np.float32))

    def sideeffect_forward(self, x_orig: Tensor) -> None:
        """Counts the numbers of a tensor."""
        x = x_orig.numpy().astype(np.float64).reshape(-1)
        if not x.size:
            return
        if not np.isfinite(x).all():
            raise QuantizationError("calibration data holds NaN or inf; help: debug.check_finite finds where it comes from")
        before, low, high = self.histogram.numpy().astype(np.float64), x.min(), x.max()
        empty = before[0] == -1
        if not empty:
            low, high = min(low, self.min_val.item()), max(high, self.max_val.item())
        counts = np.histogram(x, self.bins, (low, high))[0].astype(np.float64)
        if not empty:
            edges = np.linspace(self.min_val.item(), self.max_val.item(), self.bins + 1)
            counts += _shared_out(before, edges, np.linspace(low, high, self.bins + 1))
        self.histogram = Tensor(counts.astype(np.float32))
        self.min_val, self.max_val = Tensor(np.float32(low)), Tensor(np.float32(high))

    def get_qparams(self) -> QParams:
        """Scale and zero point of the range that rounds what was watched with the least squared error.

        Errors: QuantizationError where nothing was watched
        """
        low, high = self.range()
        counts, edges = self.histogram.numpy().astype(np.float64), np.linspace(low, high, self.bins + 1)
        steps, symmetric = self.qmax - self.qmin, self.mode is QuantMode.SYMMERTIC
        low, high = error_of_range(counts, edges, steps, symmetric)
        return self._calculate_qparams(Tensor(np.float32(low)), Tensor(np.float32(high)))

    def forward(self, x_orig: Tensor) -> Tensor:
        if self.enabled:
            self.sideeffect_forward(x_orig)
        return x_orig


def _shared_out(counts: np.ndarray, old: np.ndarray, new: np.ndarray) -> np.ndarray:
    """Counts of bins as those of others that cover them, as if numbers were spread evenly in a bin."""
    if old[0] == old[-1]:  # all numbers were equal
        made = np.zeros(len(new) - 1)
        made[np.clip(np.searchsorted(new, old[0], "right") - 1, 0, len(made) - 1)] = counts.sum()
        return made
    return np.diff(np.interp(new, old, np.concatenate([[0.0], np.cumsum(counts)])))


class PassiveObserver(Observer):
    """An observer whose scale is set by hand, or by `apply_easy_quant`.

    Errors: QuantizationError for a scale that is not finite and greater than 0
    """

    def __init__(self, dtype: str | QuantDtypeMeta, **kwargs: Any):
        super().__init__(dtype, **kwargs)
        self.qparams: QParams | None = None
        self.orig_scale = None

    def watched(self) -> bool:
        """Whether it was set."""
        return self.qparams is not None

    @property
    def scale(self) -> Tensor:
        """The scale."""
        return self.get_qparams().scale

    @scale.setter
    def scale(self, value: Any) -> None:
        check_scale(value.numpy() if isinstance(value, Tensor) else value)
        self.get_qparams().scale[...] = Tensor(value, dtype="float32")

    def get_qparams(self) -> QParams:
        """What was set.

        Errors: QuantizationError where nothing was
        """
        if self.qparams is None:
            raise QuantizationError(
                "a PassiveObserver has no scale yet; help: set_qparams, or reset_qconfig of a calibrated network"
            )
        return self.qparams

    def set_qparams(self, qparams: QParams) -> None:
        """Takes a scale to begin with.

        Errors: QuantizationError where it has none, or is of other integers
        """
        if qparams.scale is None:
            raise QuantizationError("Can not get an initialized scale")
        if qparams.dtype_meta not in (None, self.dtype):
            found = f"qparams.dtype_meta={qparams.dtype_meta}\nself.dtype={self.dtype}"
            raise QuantizationError(f"input qparams' dtype is not equal to self.dtype.\n{found}")
        check_scale(qparams.scale.numpy())
        self.qparams = copy.copy(qparams)
        self.qparams.scale, self.qparams.dtype_meta = Tensor(qparams.scale.detach().numpy()), self.dtype
        self.orig_scale = qparams.scale.numpy()

    def forward(self, x: Tensor) -> Tensor:
        return x
