"""The layers in quantisation-aware training, under MegEngine's names. Each is its float layer, whose weight, bias and result
are rounded.

Where a batch norm follows, it is folded into the weight before that is rounded, so that what is rounded is what will be
deployed.
"""

from __future__ import annotations

from typing import Any, ClassVar

from tengen import functional as F
from tengen import module as Float
from tengen.module.module import HOOKS, Module
from tengen.module.qat.module import QATModule
from tengen.ops.define import REGISTRY
from tengen.quantization.integer import layer
from tengen.quantization.kinds import Convolving, ConvolvingTransposed, MappingLinearly, Multiplying, MultiplyingBatches
from tengen.quantization.qparams import codes
from tengen.tensor import Tensor
from tengen.tensor.nodes import on_tape
from tengen.tensor.quantised import known

Folded = tuple[Tensor, Tensor | None]  # a weight, and a bias or None


def taken_over(cls: type, float_module: Module) -> Any:
    """A module of class `cls` with the attributes of a float layer: its parameters are the same tensors."""
    made = cls.__new__(cls)
    made.__dict__.update({k: v for k, v in float_module.__dict__.items() if k[:1] != "_" or k == "_name"})
    for hooks in HOOKS:
        made.__dict__[hooks].update(float_module.__dict__[hooks])
    for kind in ("observer", "fake_quant"):
        for of in ("weight", "act", "inp"):
            setattr(made, f"{of}_{kind}", None)
    return made


class _Layer(Multiplying, QATModule):
    """A layer that multiplies; how is said by its kind, the first of its bases, and its settings are those of its float class,
    the last."""

    @classmethod
    def from_float_module(cls, float_module: Module) -> QATModule:
        """The layer in training, which shares the parameters of a float layer."""
        return taken_over(cls, float_module)

    def folded(self) -> Folded:
        """The weight and the bias that are deployed."""
        return self.layer().weight, self.layer().bias

    def result(self, inp: Tensor) -> Tensor:
        """The result before it is rounded, of rounded weights and biases."""
        weight, bias = self.folded()
        w = self.apply_quant_weight(weight)
        return self.computed(inp, w, self.apply_quant_bias(bias, inp, w))

    def trained(self, inp: Tensor) -> Tensor:
        """The result as it trains: rounded floats."""
        y = self.result(self.prepared(self.apply_quant_input(inp)))
        return self.apply_quant_activation(F.relu(y) if self.relu else y)

    def forward(self, inp: Tensor) -> Tensor:
        if not self.by_integers():
            return self.trained(inp)
        weight, bias = self.folded()
        w_q, y_q = self.get_weight_qparams(), self.get_activation_qparams()
        x, w = self.prepared(inp), codes(weight.detach(), w_q)
        made = layer(x.detach(), self.input_qparams(inp), w, w_q, bias, self.product(), self.bias_shape(), y_q, bool(self.relu))
        if not any(t is not None and on_tape(t) for t in (inp, weight, bias)):
            return made
        out = F.straight_through(made, self.trained(inp))
        out.qparams = known(made)
        return out


class _WithBatchNorm(Multiplying):
    """A layer and the batch norm behind it: `conv` or `linear`, and `bn`."""

    inner = "conv"
    output_axis: ClassVar[int] = 0  # of the weight, from the axis behind the groups on

    def layer(self) -> Any:
        return getattr(self, self.inner)

    def factor(self) -> Tensor:
        """What the batch norm multiplies each channel with, from its running statistics."""
        n = self.bn.num_features
        gamma = 1.0 if self.bn.weight is None else self.bn.weight.reshape(n)
        return gamma * REGISTRY["rsqrt"](self.bn.running_var.reshape(n) + self.bn.eps)

    def scaled_weight(self) -> Tensor:
        """The weight times that."""
        weight, n = self.layer().weight, self.bn.num_features
        groups = getattr(self.layer(), "groups", 1)
        shape = [1] * weight.ndim
        shape[self.output_axis + (groups > 1)] = n // groups
        if groups > 1:
            shape[0] = groups
        return weight * self.factor().reshape(shape)

    def folded(self) -> Folded:
        n, inner = self.bn.num_features, self.layer()
        beta = 0.0 if self.bn.bias is None else self.bn.bias.reshape(n)
        bias = 0.0 if inner.bias is None else inner.bias.reshape(n)
        return self.scaled_weight(), (beta + (bias - self.bn.running_mean.reshape(n)) * self.factor()).reshape(
            self.bias_shape()
        )

    def result(self, inp: Tensor) -> Tensor:
        """In training the batch's statistics decide, so the product of rounded folded weights is brought back to the layer's
        own scale first (Jacob et al., "Quantization and training of neural networks", 2018, with MegEngine's correction)."""
        if not self.training:
            return super().result(inp)  # of the `_Layer` that comes behind it
        w = self.apply_quant_weight(self.scaled_weight())
        y = self.computed(inp, w, None) / self.factor().reshape(self.bias_shape())
        bias = self.layer().bias
        return self.bn(y if bias is None else y + bias.reshape(self.bias_shape()))


class Conv2d(Convolving, _Layer, Float.Conv2d):
    """`module.Conv2d` in quantisation-aware training."""


class ConvRelu2d(Convolving, _Layer, Float.ConvRelu2d):
    """`module.ConvRelu2d` in quantisation-aware training."""

    relu = True


class ConvTranspose2d(ConvolvingTransposed, _Layer, Float.ConvTranspose2d):
    """`module.ConvTranspose2d` in quantisation-aware training."""


class ConvTransposeRelu2d(ConvolvingTransposed, _Layer, Float.ConvTransposeRelu2d):
    """`module.ConvTransposeRelu2d` in quantisation-aware training."""

    relu = True


class ConvBn2d(_WithBatchNorm, Convolving, _Layer, Float.ConvBn2d):
    """`module.ConvBn2d` in quantisation-aware training."""


class ConvBnRelu2d(_WithBatchNorm, Convolving, _Layer, Float.ConvBnRelu2d):
    """`module.ConvBnRelu2d` in quantisation-aware training."""

    relu = True


class ConvTransposeBn2d(_WithBatchNorm, ConvolvingTransposed, _Layer, Float.ConvTransposeBn2d):
    """`module.ConvTransposeBn2d` in quantisation-aware training."""

    output_axis = 1


class ConvTransposeBnRelu2d(_WithBatchNorm, ConvolvingTransposed, _Layer, Float.ConvTransposeBnRelu2d):
    """`module.ConvTransposeBnRelu2d` in quantisation-aware training."""

    output_axis, relu = 1, True


class Linear(MappingLinearly, _Layer, Float.Linear):
    """`module.Linear` in quantisation-aware training."""


class LinearRelu(MappingLinearly, _Layer, Float.LinearRelu):
    """`module.LinearRelu` in quantisation-aware training."""

    relu = True


class LinearBn1d(_WithBatchNorm, MappingLinearly, _Layer, Float.LinearBn1d):
    """`module.LinearBn1d` in quantisation-aware training."""

    inner = "linear"


class LinearBnRelu1d(_WithBatchNorm, MappingLinearly, _Layer, Float.LinearBnRelu1d):
    """`module.LinearBnRelu1d` in quantisation-aware training."""

    inner, relu = "linear", True


class BatchMatMulActivation(MultiplyingBatches, _Layer, Float.BatchMatMulActivation):
    """`module.BatchMatMulActivation` in quantisation-aware training."""


class _Rounded(QATModule):
    """A layer whose result alone is rounded: it has no weight."""

    with_weight = False

    @classmethod
    def from_float_module(cls, float_module: Module) -> QATModule:
        """The layer in training."""
        return taken_over(cls, float_module)

    def forward(self, *inps: Any, **kwargs: Any) -> Tensor:
        return self.apply_quant_activation(super().forward(*inps, **kwargs))


class Elemwise(_Rounded, Float.Elemwise):
    """`module.Elemwise` in quantisation-aware training: in float32, then rounded."""


class Concat(_Rounded, Float.Concat):
    """`module.Concat` in quantisation-aware training: all parts are rounded to one scale."""


class QuantStub(_Rounded, Float.QuantStub):
    """Where integers begin: the input is rounded."""


class DequantStub(_Rounded, Float.DequantStub):
    """Where integers end: nothing is rounded."""

    with_act = False
