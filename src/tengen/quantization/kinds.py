"""The kinds of layers that multiply: what each does with an input and a weight, of floats and of integers.

They are mixed into `module.qat`'s and `module.quantized`'s layers, which so cannot differ. `layer()` is what has the settings.
"""

from __future__ import annotations

from typing import Any

from tengen import functional as F
from tengen.quantization.integer import Product, convolution, linear, transposed
from tengen.tensor import Tensor
from tengen.tensor.quantised import known


class Multiplying:
    """A layer with a weight and a bias.

    Attributes: relu: whether relu follows.
    """

    relu: Any = False

    def layer(self) -> Any:
        """The module that has the settings, the weight and the bias."""
        return self

    def prepared(self, inp: Tensor) -> Tensor:
        """The input as `product` takes it."""
        return inp

    def product(self) -> Product:
        """The product of integers."""
        raise NotImplementedError(f"{type(self).__name__} needs product()")

    def bias_shape(self) -> tuple[int, ...]:
        """The shape in which one number for each output channel broadcasts with the result."""
        raise NotImplementedError(f"{type(self).__name__} needs bias_shape()")

    def computed(self, inp: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """The result of floats, of a prepared input."""
        raise NotImplementedError(f"{type(self).__name__} needs computed()")


class Convolving(Multiplying):
    """`Conv2d`."""

    def prepared(self, inp: Tensor) -> Tensor:
        """The input with a border, where that is no zeros."""
        c = self.layer()
        if c.padding_mode == "zeros" or not any(c.padding):
            return inp
        made = F.pad(inp, ((0, 0), (0, 0), *((p, p) for p in c.padding)), mode=c.padding_mode)
        made.qparams = known(inp)
        return made

    def _padding(self) -> tuple[int, ...]:
        c = self.layer()
        return c.padding if c.padding_mode == "zeros" else (0, 0)

    def product(self) -> Product:
        """The convolution."""
        c = self.layer()
        return convolution(c.stride, self._padding(), c.dilation, c.groups)

    def bias_shape(self) -> tuple[int, ...]:
        """(1, O, 1, 1)."""
        return (1, self.layer().out_channels, 1, 1)

    def computed(self, inp: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """The convolution."""
        c = self.layer()
        return F.conv2d(inp, weight, bias, c.stride, self._padding(), c.dilation, c.groups)


class ConvolvingTransposed(Multiplying):
    """`ConvTranspose2d`."""

    def product(self) -> Product:
        """The transposed convolution."""
        c = self.layer()
        return transposed(c.stride, c.padding, c.output_padding, c.dilation, c.groups)

    def bias_shape(self) -> tuple[int, ...]:
        """(1, O, 1, 1)."""
        return (1, self.layer().out_channels, 1, 1)

    def computed(self, inp: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """The transposed convolution."""
        c = self.layer()
        bias = None if bias is None else bias.reshape(self.bias_shape())
        return F.conv_transpose2d(inp, weight, bias, c.stride, c.padding, c.output_padding, c.dilation, c.groups)


class MappingLinearly(Multiplying):
    """`Linear`."""

    def product(self) -> Product:
        """x w^T."""
        return linear

    def bias_shape(self) -> tuple[int, ...]:
        """(O,)."""
        return (self.layer().out_features,)

    def computed(self, inp: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """x w^T + b."""
        return F.linear(inp, weight, bias)


class MultiplyingBatches(Multiplying):
    """`BatchMatMulActivation`."""

    @property
    def relu(self) -> bool:
        """Whether relu follows."""
        return self.layer().nonlinear_mode == "relu"

    def product(self) -> Product:
        """w x, for each of a batch."""
        return lambda x, w: F.matmul_int(w, x)

    def bias_shape(self) -> tuple[int, ...]:
        """(1, O, 1)."""
        return (1, self.layer().out_features, 1)

    def computed(self, inp: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """w x + b."""
        y = F.matmul(weight, inp)
        return y if bias is None else y + bias.reshape(self.bias_shape())
