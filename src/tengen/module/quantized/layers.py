"""Quantised layers, under MegEngine's names: `module.qat`'s, with the weight as integers. They compute what those evaluate, by
the same functions (`quantization/integer.py`)."""

from __future__ import annotations

from typing import Any

from tengen import module as Float
from tengen.module.module import Module
from tengen.module.quantized.module import QuantizedModule, rounding
from tengen.quantization.dtypes import QuantizationError
from tengen.quantization.integer import layer
from tengen.quantization.kinds import Convolving, ConvolvingTransposed, MappingLinearly, Multiplying, MultiplyingBatches
from tengen.quantization.qparams import codes, values
from tengen.tensor import Tensor
from tengen.tensor.quantised import known


class _Layer(Multiplying, QuantizedModule):
    """A layer that multiplies. Tensors: weight (integers), bias (float32, rounded to the product's scale in each run), and the
    scales.

    Attributes: weight_rounding, act_rounding, inp_rounding: of the weight, of the result, and of an input of which nobody says
    what it was rounded to.
    """

    @classmethod
    def from_qat_module(cls, qat_module: Any) -> QuantizedModule:
        """The quantised layer of one in training or calibration.

        Errors: QuantizationError where the weight has no scale
        """
        settings = qat_module.layer()
        made = cls.__new__(cls)
        plain = (Tensor, Module, type(None))
        kept = {k: v for k, v in settings.__dict__.items() if (k[:1] != "_" or k == "_name") and not isinstance(v, plain)}
        made.__dict__.update(
            {**kept, "output_padding": getattr(settings, "output_padding", 0), "training": qat_module.training}
        )
        weight, bias = qat_module.folded()
        w_q = qat_module.get_weight_qparams()
        name = f"{type(qat_module).__name__} {qat_module._name or ''}".strip()
        made.weight_rounding = rounding(w_q, f"the weight of {name}")
        if made.weight_rounding is None:
            raise QuantizationError(f"the weight of {name} has no scale; help: propagate_qconfig, and run the network on data")
        made.weight = Tensor(codes(weight.detach(), made.weight_rounding.get_qparams()).numpy())
        made.bias = None if bias is None else Tensor(bias.detach().numpy())
        made.act_rounding = rounding(qat_module.get_activation_qparams(), f"the result of {name}")
        made.inp_rounding = _of_input(qat_module, name)
        made.relu_follows = bool(qat_module.relu)
        return made

    def forward(self, inp: Tensor) -> Tensor:
        inp_q = known(inp)
        if inp_q is None:
            if self.inp_rounding is None:
                raise QuantizationError(
                    f"{type(self).__name__} does not know what its input was rounded to; help: a QuantStub before it, or calibration of "
                    "the network with its observers"
                )
            inp_q = self.inp_rounding.get_qparams()
        x, w_q = self.prepared(inp), self.weight_rounding.get_qparams()
        y_q = None if self.act_rounding is None else self.act_rounding.get_qparams()
        return layer(x, inp_q, self.weight, w_q, self.bias, self.product(), self.bias_shape(), y_q, self.relu_follows)

    @property
    def output_dtype(self):
        """The NumPy dtype that carries the result's scale; None where the result is float32."""
        return None if self.act_rounding is None else self.act_rounding.get_quantized_dtype()


def _of_input(m: Any, name: str) -> Any:
    """What the input is rounded to, if the layer watched it itself; None where it never had to."""
    try:
        return rounding(m.get_input_qparams(), f"the input of {name}")
    except QuantizationError:
        if m.inp_observer is None or m.inp_observer.watched():
            raise
        return None


class Conv2d(Convolving, _Layer):
    """Quantised `module.Conv2d`."""


class ConvRelu2d(Convolving, _Layer):
    """Quantised `module.ConvRelu2d`."""


class ConvBn2d(Convolving, _Layer):
    """Quantised `module.ConvBn2d`: the batch norm is folded."""


class ConvBnRelu2d(Convolving, _Layer):
    """Quantised `module.ConvBnRelu2d`: the batch norm is folded."""


class ConvTranspose2d(ConvolvingTransposed, _Layer):
    """Quantised `module.ConvTranspose2d`."""


class ConvTransposeRelu2d(ConvolvingTransposed, _Layer):
    """Quantised `module.ConvTransposeRelu2d`."""


class ConvTransposeBn2d(ConvolvingTransposed, _Layer):
    """Quantised `module.ConvTransposeBn2d`: the batch norm is folded."""


class ConvTransposeBnRelu2d(ConvolvingTransposed, _Layer):
    """Quantised `module.ConvTransposeBnRelu2d`: the batch norm is folded."""


class Linear(MappingLinearly, _Layer):
    """Quantised `module.Linear`."""


class LinearRelu(MappingLinearly, _Layer):
    """Quantised `module.LinearRelu`."""


class LinearBn1d(MappingLinearly, _Layer):
    """Quantised `module.LinearBn1d`: the batch norm is folded."""


class LinearBnRelu1d(MappingLinearly, _Layer):
    """Quantised `module.LinearBnRelu1d`: the batch norm is folded."""


class BatchMatMulActivation(MultiplyingBatches, _Layer):
    """Quantised `module.BatchMatMulActivation`."""


class _Rounded(QuantizedModule):
    """A layer that computes in float32, and whose result is rounded to integers."""

    @classmethod
    def from_qat_module(cls, qat_module: Any) -> QuantizedModule:
        """The quantised layer of one in training or calibration."""
        made = cls.__new__(cls)
        kept = {k: v for k, v in qat_module.__dict__.items() if k in ("method", "_name", "training")}
        made.__dict__.update(kept)
        made.act_rounding = rounding(qat_module.get_activation_qparams(), f"the result of {type(qat_module).__name__}")
        return made

    def forward(self, *inps: Any, **kwargs: Any) -> Tensor:
        y = super().forward(*inps, **kwargs)
        if self.act_rounding is None:
            return y
        q = self.act_rounding.get_qparams()
        return values(codes(y, q), q)


class Elemwise(_Rounded, Float.Elemwise):
    """Quantised `module.Elemwise`: in float32 between dequantising and quantising."""


class Concat(_Rounded, Float.Concat):
    """Quantised `module.Concat`: all parts are rounded to one scale."""


class QuantStub(_Rounded, Float.QuantStub):
    """Where integers begin."""


class DequantStub(QuantizedModule):
    """Where integers end: what they stand for."""

    @classmethod
    def from_qat_module(cls, qat_module: Any) -> QuantizedModule:
        """The quantised layer of one in training or calibration."""
        made = cls(qat_module._name)
        made.training = qat_module.training
        return made

    def forward(self, inp: Tensor) -> Tensor:
        return inp
