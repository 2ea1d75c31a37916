"""Modules over images: `functional.vision` with settings, and convolutions whose windows or filters vary from place to place."""

from __future__ import annotations

import numpy as np

from tengen import functional as F
from tengen.module import init
from tengen.module.conv import ConvBase
from tengen.module.module import Module
from tengen.ops.define import REGISTRY
from tengen.tensor import Parameter, Tensor


class DeformableConv2d(ConvBase):
    """Convolution whose pixels are moved: see `functional.deformable_conv2d`. It is called with an image, offsets and a mask."""

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size, stride=1, padding=0, dilation=1, groups: int = 1, bias: bool = True,
        conv_mode: str = "cross_correlation", compute_mode: str = "default", **kwargs,
    ):  # fmt: skip
        super().__init__(in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias, conv_mode, compute_mode, **kwargs)

    def forward(self, inp: Tensor, offset: Tensor, mask: Tensor) -> Tensor:
        settings = (self.stride, self.padding, self.dilation, self.groups)
        return REGISTRY["deformable_conv2d"](inp, self.weight, offset, mask, self.bias, *settings)


class DeformablePSROIPooling(Module):
    """`functional.deformable_psroi_pooling` as a module. It is called with images, regions and offsets."""

    def __init__(
        self, no_trans: bool, part_size: int, pooled_h: int, pooled_w: int, sample_per_part: int, spatial_scale: float, trans_std: float = 0.1,
        **kwargs,
    ):  # fmt: skip
        super().__init__(**kwargs)
        self.no_trans, self.part_size, self.pooled_h, self.pooled_w = no_trans, part_size, pooled_h, pooled_w
        self.sample_per_part, self.spatial_scale, self.trans_std = sample_per_part, spatial_scale, trans_std

    def forward(self, inp: Tensor, rois: Tensor, trans: Tensor) -> Tensor:
        settings = (self.no_trans, self.part_size, self.pooled_h, self.pooled_w, self.sample_per_part, self.spatial_scale, self.trans_std)
        return REGISTRY["deformable_psroi_pooling"](inp, rois, trans, *settings)


class RegionRestrictedConv(ConvBase):
    """Convolution within regions: see `functional.region_restricted_conv`. It is called with an image and the regions of pixels and of
    results; weight (G, O/G, C/G, KH, KW), also for one group.

    Errors: ValueError for another padding_mode than "zeros"
    """

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size, groups: int = 1, bias: bool = True, stride=1, padding=0, dilation=1,
        conv_mode: str = "cross_correlation", compute_mode: str = "default", padding_mode: str = "zeros", **kwargs,
    ):  # fmt: skip
        if padding_mode != "zeros":
            raise ValueError(f"RegionRestrictedConv: padding_mode={padding_mode!r} must be 'zeros': what is padded has no region")
        super().__init__(in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias, conv_mode, compute_mode, **kwargs)
        if groups == 1:
            self.weight = Parameter(self.weight.numpy()[None])

    def forward(self, inp: Tensor, rin: Tensor, rout: Tensor) -> Tensor:
        settings = (self.stride, self.padding, self.dilation, self.groups)
        return REGISTRY["region_restricted_conv"](inp, self.weight, rin, rout, self.bias, *settings)


class LocalConv2d(ConvBase):
    """Convolution with another filter at each place: see `functional.local_conv2d`; weight (G, PH, PW, C/G, KH, KW, O/G), no bias.

    >>> from tengen import functional as F, module as M
    >>> M.LocalConv2d(1, 6, 9, 9, 3)(F.zeros((2, 1, 9, 9))).shape
    (2, 6, 7, 7)
    """

    _fixed = (*ConvBase._fixed, "input_height", "input_width", "stride", "padding", "dilation")

    def __init__(
        self, in_channels: int, out_channels: int, input_height: int, input_width: int, kernel_size, stride=1, padding=0, dilation=1,
        groups: int = 1, conv_mode: str = "cross_correlation", **kwargs,
    ):  # fmt: skip
        super().__init__(in_channels, out_channels, kernel_size, stride, padding, dilation, groups, False, conv_mode, **kwargs)
        self.input_height, self.input_width = input_height, input_width
        places = zip((input_height, input_width), self.kernel_size, self.stride, self.padding, self.dilation)
        places = [(n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in places]
        shape = (groups, *places, in_channels // groups, *self.kernel_size, out_channels // groups)
        self.weight = Parameter(np.zeros(shape, np.float32))
        init.normal_(self.weight, 0, float(1 / np.sqrt(in_channels // groups * np.prod(self.kernel_size))))

    def forward(self, x: Tensor) -> Tensor:
        return REGISTRY["local_conv2d"](x, self.weight, None, self.stride, self.padding, self.dilation)


class Upsample(Module):
    """`functional.vision.interpolate` as a module, PyTorch's name.

    >>> from tengen import functional as F, module as M
    >>> M.Upsample(scale_factor=2.0)(F.zeros((1, 3, 4, 5))).shape
    (1, 3, 8, 10)
    """

    def __init__(self, size=None, scale_factor=None, mode: str = "nearest", align_corners: bool | None = None):
        super().__init__()
        self.size, self.scale_factor, self.mode, self.align_corners = size, scale_factor, mode, align_corners

    def forward(self, x: Tensor) -> Tensor:
        return REGISTRY["interpolate"](x, self.size, self.scale_factor, self.mode, self.align_corners)


class Resize(Module):
    """`functional.vision.resize` as a module: size (H, W), format "NCHW" or "NHWC", imode, antialias as there."""

    def __init__(self, size, format: str = "NCHW", imode: str = "linear", antialias: bool = False):
        super().__init__()
        self.size, self.format, self.imode, self.antialias = size, format, imode, antialias

    def forward(self, x: Tensor) -> Tensor:
        return F.vision.resize(x, self.size, self.format, self.imode, self.antialias)


class Flip(Module):
    """`functional.vision.flip` as a module, of images (N, H, W, C)."""

    def __init__(self, vertical: bool = True, horizontal: bool = True):
        super().__init__()
        self.vertical, self.horizontal = vertical, horizontal

    def forward(self, x: Tensor) -> Tensor:
        return F.vision.flip(x, self.vertical, self.horizontal)


class Rot90(Module):
    """`functional.vision.rot90` as a module, of images (N, H, W, C)."""

    def __init__(self, clockwise: bool = True):
        super().__init__()
        self.clockwise = clockwise

    def forward(self, x: Tensor) -> Tensor:
        return F.vision.rot90(x, self.clockwise)


class Rotate(Module):
    """`functional.vision.rotate` as a module: `angle` in degrees, counterclockwise."""

    def __init__(self, angle: float = 0.0, format: str = "NCHW", interp_mode: str = "bilinear"):
        super().__init__()
        self.angle, self.format, self.interp_mode = angle, format, interp_mode

    def forward(self, x: Tensor) -> Tensor:
        return F.vision.rotate(x, self.angle, self.format, self.interp_mode)


class Remap(Module):
    """`functional.vision.remap` as a module. It is called with an image, a map of columns (N, PH, PW) and one of rows; or with a map of
    both (N, PH, PW, 2) and a tensor without elements."""

    def forward(
        self, inp: Tensor, map_1: Tensor, map_2: Tensor, interpolation: str = "linear", borderMode: str = "replicate",
        borderValue: float = 0.0,
    ) -> Tensor:  # fmt: skip
        both = REGISTRY["stack"]([map_1, map_2], 3) if map_2.size else map_1
        return REGISTRY["remap"](inp, both, borderMode, borderValue, interpolation)
