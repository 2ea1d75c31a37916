"""Fake quantisation: modules that round to what integers stand for, with a given scale, or one that is learnt (LSQ, TQT)."""

from __future__ import annotations

import math
from typing import Any

from tengen import functional as F
from tengen.module.module import Module
from tengen.quantization.dtypes import QuantDtypeMeta, QuantizationError, check_scale, meta_of
from tengen.quantization.qparams import LSQParams, QParams, QParamsModuleMixin, QuantMode, create_qparams, fake_quant_tensor
from tengen.tensor import Parameter, Tensor


class _FakeQuantize(Module):
    def __init__(self, dtype: str | QuantDtypeMeta, enable: bool = True, **kwargs: Any):
        super().__init__()
        self.dtype = meta_of(dtype)
        self.qmin, self.qmax = self.dtype.qmin, self.dtype.qmax
        self.enabled = enable

    def enable(self) -> None:
        """Begins to round."""
        self.enabled = True

    def disable(self) -> None:
        """Ceases to round."""
        self.enabled = False

    def fake_quant_forward(self, inp: Tensor, qparams: QParams | None = None) -> Tensor:
        """The rounded numbers; subclasses say how."""
        raise NotImplementedError(f"{type(self).__name__} needs fake_quant_forward()")

    def normal_forward(self, inp: Tensor, qparams: QParams | None = None) -> Tensor:
        """What is handed on where nothing is rounded."""
        return inp

    def forward(self, inp: Tensor, qparams: QParams | None = None) -> Tensor:
        return self.fake_quant_forward(inp, qparams) if self.enabled else self.normal_forward(inp, qparams)


class FakeQuantize(_FakeQuantize):
    """Rounds with the scale and zero point of an observer.

    Args: dtype: which integers. enable: whether it rounds.

    Errors: QuantizationError for the `qparams` of other integers

    >>> from tengen import Tensor
    >>> from tengen.quantization import FakeQuantize, create_qparams
    >>> FakeQuantize("qint8")(Tensor([0.3]), create_qparams(dtype_meta="qint8", scale=Tensor(0.5))).tolist()
    [0.5]
    """

    def fake_quant_forward(self, inp: Tensor, qparams: QParams | None = None) -> Tensor:
        """The rounded numbers."""
        if qparams is None or qparams.dtype_meta is not self.dtype:
            found = None if qparams is None else qparams.dtype_meta
            raise QuantizationError(
                f"input qparams' dtype is not equal to self.dtype.\nqparams.dtype_meta={found}\nself.dtype={self.dtype}"
            )
        return fake_quant_tensor(inp, qparams)


class TQT(_FakeQuantize, QParamsModuleMixin):
    """Rounds with a scale whose logarithm is learnt, without a zero point (Jain et al., "Trained quantization thresholds",
    2019).

    Args: dtype: which integers. enable: whether it rounds.

    Errors: QuantizationError for `qparams` with a zero point, or without a scale
    """

    def __init__(self, dtype: str | QuantDtypeMeta, enable: bool = True, **kwargs: Any):
        super().__init__(dtype, enable, **kwargs)
        self.scale = Parameter(0.0, dtype="float32")

    def fake_quant_forward(self, inp: Tensor, qparams: QParams | None = None) -> Tensor:
        """The rounded numbers, with gradients for them and for the scale."""
        return F.fake_quantize(inp, F.exp2(self.scale), None, self.qmin, self.qmax)

    def set_qparams(self, qparams: QParams) -> None:
        """Takes a scale to begin with."""
        if qparams.mode is not QuantMode.SYMMERTIC:
            raise QuantizationError("only symmetric quantization is supported by TQT")
        self.scale[...] = F.log(_initial(qparams)) / math.log(2)

    def get_qparams(self) -> QParams:
        """The learnt scale."""
        return create_qparams(QuantMode.SYMMERTIC, self.dtype, scale=F.exp2(self.scale.detach()))


class LSQ(_FakeQuantize, QParamsModuleMixin):
    """Rounds with a scale that is learnt (Esser et al., "Learned step size quantization", 2020).

    Args: dtype: which integers. enable: whether it rounds. eps: the least scale.

    Errors: QuantizationError for `qparams` without a scale
    """

    def __init__(self, dtype: str | QuantDtypeMeta, enable: bool = True, eps: float = 1e-5, **kwargs: Any):
        super().__init__(dtype, enable, **kwargs)
        self.eps = Tensor(eps, dtype="float32")
        self.step_size = Parameter(1.0, dtype="float32")
        self.mode: QuantMode | None = QuantMode.SYMMERTIC
        self.zero_point = Tensor(0.0, dtype="float32")
        self.grad_scale = Tensor(1.0, dtype="float32")

    def set_qparams(self, qparams: QParams) -> None:
        """Takes a scale and a zero point to begin with."""
        self.mode = qparams.mode
        asymmetric = qparams.mode is QuantMode.ASYMMERTIC and qparams.zero_point is not None
        self.zero_point = qparams.zero_point.detach() if asymmetric else Tensor(0.0, dtype="float32")
        self.step_size = Parameter(max(float(_initial(qparams).numpy() - self.eps.numpy()), 0.0), dtype="float32")
        if isinstance(qparams, LSQParams):
            self.grad_scale = qparams.grad_scale

    def fake_quant_forward(self, inp: Tensor, qparams: QParams | None = None) -> Tensor:
        """The rounded numbers, with gradients for them and for the scale."""
        step = F.abs(self.step_size) + self.eps
        step = F.straight_through(step.detach(), step * self.grad_scale)
        zero = self.zero_point.astype("int32") if self.mode is QuantMode.ASYMMERTIC else None
        return F.fake_quantize(inp, step, zero, self.qmin, self.qmax)

    def get_qparams(self) -> LSQParams:
        """The learnt scale."""
        scale = F.abs(self.step_size.detach()) + self.eps
        return LSQParams(self.mode, self.dtype, scale, self.zero_point, self.grad_scale)


def _initial(qparams: QParams) -> Tensor:
    if qparams.scale is None:
        raise QuantizationError("Can not get an initialized scale")
    check_scale(qparams.scale.numpy())
    return qparams.scale.detach()
