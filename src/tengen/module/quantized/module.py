"""`QuantizedModule`: a layer that computes by integers, for inference alone; and `Rounding`, the scale and zero point of a
tensor."""

from __future__ import annotations

from typing import Any

from tengen.module.module import Module
from tengen.quantization.qparams import QParams, QuantMode, checked, create_qparams, quantized_dtype
from tengen.tensor import Tensor
from tengen.tensor.quantised import numbers_of


class QuantizedModule(Module):
    """The base of quantised layers, which `quantization.quantize` makes of `QATModule`.

    What they hand on are the numbers that their integers stand for, as float32 which knows its `qparams`; so any function may
    stand between two of them. In a trace, integers are what is handed on where the next layer takes the same. Of a tensor of a quantised
    dtype they take what its integers stand for.

    Errors: ValueError where it is called in training
    """

    def __call__(self, *inputs: Any, **kwargs: Any) -> Any:
        if self.training:
            raise ValueError("quantized module only support inference.")
        return super().__call__(*map(numbers_of, inputs), **kwargs)

    def __repr__(self) -> str:
        return "Quantized." + super().__repr__()

    @classmethod
    def from_qat_module(cls, qat_module: Any) -> QuantizedModule:
        """The quantised layer of one in training."""
        raise NotImplementedError(f"{cls.__name__} says nothing of layers in training")


class Rounding(Module):
    """Scale and zero point of a tensor, as buffers of a module.

    Args: qparams: what they are; their numbers are checked. what: whose they are, for messages.

    Errors: QuantizationError for scales and zero points that cannot be
    """

    def __init__(self, qparams: QParams, what: str = "a tensor"):
        super().__init__()
        checked(qparams, what)
        asymmetric = qparams.mode is QuantMode.ASYMMERTIC and qparams.zero_point is not None
        assert qparams.scale is not None
        self.dtype, self.mode = qparams.dtype_meta, qparams.mode
        self.scale = Tensor(qparams.scale.detach().numpy())
        self.zero_point = Tensor(qparams.zero_point.detach().astype("int32").numpy()) if asymmetric else None

    def get_qparams(self) -> QParams:
        """They, as `QParams`."""
        return create_qparams(self.mode, self.dtype, self.scale, self.zero_point)

    def get_quantized_dtype(self):
        """The NumPy dtype that carries them."""
        return quantized_dtype(self.get_qparams())


def rounding(qparams: QParams | None, what: str) -> Rounding | None:
    """A `Rounding`; None where there is nothing to round."""
    return None if qparams is None or qparams.scale is None else Rounding(qparams, what)
