"""Modules that move elements: padding, windows, and pixels out of channels."""

from __future__ import annotations

from tengen import functional as F
from tengen.module.module import Module
from tengen.ops.define import REGISTRY
from tengen.tensor import Tensor


class Pad(Module):
    """`functional.pad` as a module.

    Args: pad_width: ((before, after), ...) for the axes. mode: "constant", "reflect" or "replicate". constant_val: what is padded with.
    """

    def __init__(self, pad_width, mode: str = "constant", constant_val: float = 0.0):
        super().__init__()
        self.pad_width, self.mode, self.constant_val = pad_width, mode, constant_val

    def forward(self, x: Tensor) -> Tensor:
        return REGISTRY["pad"](x, self.pad_width, self.mode, self.constant_val)


class PixelShuffle(Module):
    """(N, C r r, H, W) -> (N, C, H r, W r), where r is `upscale_factor`. Source: Shi et al., arXiv 1609.05158.

    >>> from tengen import functional as F, module as M
    >>> M.PixelShuffle(2)(F.zeros((1, 8, 3, 3))).shape
    (1, 2, 6, 6)
    """

    def __init__(self, upscale_factor: int, **kwargs):
        super().__init__(**kwargs)
        self.upscale_factor = upscale_factor

    def forward(self, x: Tensor) -> Tensor:
        return F.pixel_shuffle(x, self.upscale_factor)

    def _module_info_string(self) -> str:
        return f"upscale_factor={self.upscale_factor}"


class SlidingWindow(Module):
    """Every window of an image as axes of its own: see `functional.sliding_window`."""

    def __init__(self, kernel_size, padding=0, stride=1, dilation=1, **kwargs):
        super().__init__(**kwargs)
        self.kernel_size, self.padding, self.stride, self.dilation = kernel_size, padding, stride, dilation

    def forward(self, inp: Tensor) -> Tensor:
        return REGISTRY["sliding_window"](inp, self.kernel_size, self.padding, self.stride, self.dilation)


class SlidingWindowTranspose(Module):
    """Windows added up to an image again: see `functional.sliding_window_transpose`."""

    def __init__(self, output_size, kernel_size, padding=0, stride=1, dilation=1, **kwargs):
        super().__init__(**kwargs)
        self.output_size, self.kernel_size, self.padding = output_size, kernel_size, padding
        self.stride, self.dilation = stride, dilation

    def forward(self, inp: Tensor) -> Tensor:
        window = (self.kernel_size, self.padding, self.stride, self.dilation)
        return REGISTRY["sliding_window_transpose"](inp, self.output_size, *window)
