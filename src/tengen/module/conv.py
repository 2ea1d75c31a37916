"""Convolution modules. Filters are (O, C, *K), with groups (G, O/G, C/G, *K); biases (1, O, 1, ...)."""

from __future__ import annotations

import numpy as np

from tengen import functional as F
from tengen.base.errors import ArgumentError
from tengen.module import init
from tengen.module.settings import COMPUTE_MODE, PARAMETERS, Configured, counts, one_of
from tengen.ops.attributes import kind
from tengen.ops.conv_parts import per_axis
from tengen.ops.define import dispatch
from tengen.tensor import Parameter, Tensor


def _per_axis(name: str, what: str):
    """A check for numbers of a kind (`ops/attributes.py`), one for all spatial axes or one for each."""
    numbers = kind(what)
    return lambda m, value: per_axis(numbers.plain(value, f"{type(m).__name__}: {name}", dispatch.known), m.n, name)


def _in_words(m: ConvBase, padding: str) -> int | tuple[int, ...]:
    """PyTorch's words for padding: "valid", none; "same", so much that the result is as large as the input."""
    if padding == "valid":
        return 0
    whole = [d * (k - 1) for k, d in zip(m.kernel_size, m.dilation)]
    if padding != "same" or m.transposed or any(s != 1 for s in m.stride) or any(w % 2 for w in whole):
        raise ArgumentError(
            f"{type(m).__name__}: padding={padding!r} must be numbers, 'valid', or 'same' with stride 1 and an even dilation (kernel_size - 1)"
        )
    return tuple(w // 2 for w in whole)


class ConvBase(Configured):
    weights_decay = True
    n = 2
    transposed = False
    _fixed = ("in_channels", "out_channels", "kernel_size", "groups", "compute_mode")
    _checked = PARAMETERS | COMPUTE_MODE | counts("in_channels", "out_channels", "groups") | {
        "conv_mode": one_of("conv_mode", "cross_correlation", "CROSS_CORRELATION"),
        "padding_mode": one_of("padding_mode", "zeros", "reflect", "replicate"),
        **{name: _per_axis(name, "Positives") for name in ("kernel_size", "stride", "dilation")},
        **{name: _per_axis(name, "Naturals") for name in ("padding", "output_padding")},
    }

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size, stride=1, padding=0, dilation=1, groups: int = 1, bias: bool = True,
        conv_mode: str = "cross_correlation", compute_mode: str = "default", padding_mode: str = "zeros", **kwargs,
    ):  # fmt: skip
        super().__init__(**kwargs)
        self.in_channels, self.out_channels, self.groups, self.padding_mode = in_channels, out_channels, groups, padding_mode
        self.conv_mode, self.compute_mode = conv_mode, compute_mode
        self.kernel_size, self.stride, self.dilation = kernel_size, stride, dilation
        self.padding = _in_words(self, padding) if isinstance(padding, str) else padding
        if in_channels % groups or out_channels % groups:
            what = f"{in_channels} and {out_channels} channels cannot be shared out to {groups} groups"
            raise ValueError(f"{type(self).__name__}: {what}; help: a divisor of both")
        a, b = (in_channels, out_channels) if self.transposed else (out_channels, in_channels)
        shape = (a // groups, b // groups, *self.kernel_size)
        self.weight = init.blank(*(shape if groups == 1 else (groups, *shape)))
        self.weight.spatial = self.n
        self.bias = Parameter(np.zeros((1, out_channels, *(1,) * self.n), np.float32)) if bias else None
        self._draw()

    def _draw(self) -> None:
        fan_in = self.in_channels // self.groups * int(np.prod(self.kernel_size))
        init.normal_(self.weight, 0, float(1 / np.sqrt(fan_in)))

    def reset_parameters(self) -> None:
        """Draws the weight anew; the bias becomes 0."""
        self._draw()
        if self.bias is not None:
            init.zeros_(self.bias)

    def _padded(self, x: Tensor) -> tuple[Tensor, tuple]:
        if self.padding_mode == "zeros" or not any(self.padding):
            return x, self.padding
        widths = ((0, 0), (0, 0), *((p, p) for p in self.padding))
        return F.pad(x, widths, mode=self.padding_mode), (0,) * self.n

    def _module_info_string(self) -> str:
        s = f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}"
        for name, default in (("stride", 1), ("padding", 0), ("dilation", 1)):
            if any(v != default for v in getattr(self, name)):
                s += f", {name}={getattr(self, name)}"
        return s + (f", groups={self.groups}" if self.groups > 1 else "") + ("" if self.bias is not None else ", bias=False")


class Conv1d(ConvBase):
    """Convolution of (N, C, L). Initial: normal with variance 1 / fan-in, bias 0."""

    n = 1

    def calc_conv(self, inp: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """What `forward` computes, with another weight and bias: MegEngine's name for subclasses that change them first."""
        inp, padding = self._padded(inp)
        return F.conv1d(inp, weight, bias, self.stride, padding, self.dilation, self.groups)

    def forward(self, x: Tensor) -> Tensor:
        return self.calc_conv(x, self.weight, self.bias)


class Conv2d(ConvBase):
    """Convolution of (N, C, H, W). Initial: normal with variance 1 / fan-in, bias 0.

    >>> from tengen import functional as F, module as M
    >>> M.Conv2d(1, 6, 5)(F.zeros((2, 1, 32, 32))).shape
    (2, 6, 28, 28)
    """

    def calc_conv(self, inp: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """What `forward` computes, with another weight and bias: MegEngine's name for subclasses that change them first."""
        inp, padding = self._padded(inp)
        return F.conv2d(inp, weight, bias, self.stride, padding, self.dilation, self.groups)

    def forward(self, x: Tensor) -> Tensor:
        return self.calc_conv(x, self.weight, self.bias)


class Conv3d(ConvBase):
    """Convolution of (N, C, D, H, W). Initial: normal with variance 1 / fan-in, bias 0."""

    n = 3

    def calc_conv(self, inp: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """What `forward` computes, with another weight and bias: MegEngine's name for subclasses that change them first."""
        inp, padding = self._padded(inp)
        return F.conv3d(inp, weight, bias, self.stride, padding, self.dilation, self.groups)

    def forward(self, x: Tensor) -> Tensor:
        return self.calc_conv(x, self.weight, self.bias)


class _ConvTranspose(ConvBase):
    transposed = True

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size, stride=1, padding=0, output_padding=0, dilation=1, groups: int = 1,
        bias: bool = True, conv_mode: str = "cross_correlation", compute_mode: str = "default", **kwargs,
    ):  # fmt: skip
        super().__init__(in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias, conv_mode, compute_mode, **kwargs)
        self.output_padding = output_padding

    def _arguments(self, x: Tensor) -> tuple:
        return x, self.weight, self.bias, self.stride, self.padding, self.output_padding, self.dilation, self.groups


class ConvTranspose1d(_ConvTranspose):
    """Transposed convolution of (N, C, L); weight (C, O, K), with groups (G, C/G, O/G, K)."""

    n = 1

    def forward(self, x: Tensor) -> Tensor:
        return F.conv_transpose1d(*self._arguments(x))


class ConvTranspose2d(_ConvTranspose):
    """Transposed convolution of (N, C, H, W); weight (C, O, KH, KW), with groups (G, C/G, O/G, KH, KW)."""

    def forward(self, x: Tensor) -> Tensor:
        return F.conv_transpose2d(*self._arguments(x))


class ConvTranspose3d(_ConvTranspose):
    """Transposed convolution of (N, C, D, H, W); weight (C, O, KD, KH, KW), with groups (G, C/G, O/G, KD, KH, KW)."""

    n = 3

    def forward(self, x: Tensor) -> Tensor:
        return F.conv_transpose3d(*self._arguments(x))
