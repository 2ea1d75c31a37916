"""Random changes of batches of images, as modules: noise, blurs and other filters, contrast, mixtures of two batches. MegEngine's names.

Images are (N, C, H, W). Each module draws from a generator of its own, `tengen.random.RNG(seed)`, in whatever mode it is.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from tengen import functional as F
from tengen.base.errors import ArgumentError, DTypeError, ShapeError
from tengen.module.module import Module
from tengen.module.settings import Configured, one_of
from tengen.ops.define import REGISTRY
from tengen.random import RNG
from tengen.tensor import Tensor


def images_of(owner: Module, x: Any) -> Tensor:
    if not isinstance(x, Tensor) or x.ndim != 4:
        found = repr(x._layout.type) if isinstance(x, Tensor) else f"a {type(x).__name__}"
        raise ShapeError(f"{type(owner).__name__} takes images (N, C, H, W), got {found}")
    return x


def _limits(*names: str) -> dict[str, Callable[[Any, Any], Any]]:
    """Checks for settings that are a number, or the ends of an interval to draw it from: the ends."""

    def check(name: str, owner: Module, value: Any) -> Any:
        pair = value if isinstance(value, (tuple, list)) else (value, value)
        if len(pair) != 2 or any(isinstance(v, bool) or not isinstance(v, (int, float, np.number)) for v in pair):
            raise ArgumentError(f"{type(owner).__name__}: {name}={value!r} must be a number, or the two ends of an interval")
        return tuple(map(float, pair))

    return {name: functools.partial(check, name) for name in names}


def _choice(owner: Module, value: Any) -> Any:
    if not isinstance(value, bool):
        raise ArgumentError(f"{type(owner).__name__}: per_channel={value!r} must be True or False")
    return value


def _odd(owner: Module, value: Any) -> tuple[int, ...]:
    size = (value, value) if isinstance(value, int) else tuple(value)
    if len(size) != 2 or any(not isinstance(k, int) or k < 1 or k % 2 == 0 for k in size):
        raise ArgumentError(f"{type(owner).__name__}: kernel_size={value!r} must be one or two odd numbers of pixels")
    return size


class _Random(Configured):
    """A module with a generator; `seed` may be set again."""

    def __init__(self, seed: int | None = None, **kwargs: Any):
        super().__init__(**kwargs)
        self._seed, self.rng = seed, RNG(seed)

    @property
    def seed(self) -> int | None:
        """Where its random numbers begin; None: the system has said."""
        return self._seed

    @seed.setter
    def seed(self, seed: int) -> None:
        self._seed = seed
        self.rng.seed(seed)

    def _drawn(self, limits: tuple[float, float], size: tuple = ()) -> Tensor:
        low, high = limits
        return F.full(size, low) if low == high else self.rng.uniform(low, high, size)


class AdditiveElemwise(_Random):
    """The base of what adds noise: a subclass gives `sample(size)`, a tensor of noise.

    Args:
        per_channel: whether each channel has noise of its own; else all channels of an image share it.
    """

    _checked = {"per_channel": _choice}

    def __init__(self, per_channel: bool = False, seed: int | None = None, **kwargs: Any):
        super().__init__(seed, **kwargs)
        self.per_channel = per_channel

    def forward(self, inp: Tensor) -> Tensor:
        n, c, h, w = images_of(self, inp).shape
        return inp + self.sample((n, c if self.per_channel else 1, h, w))

    def sample(self, size: tuple) -> Tensor:
        """Noise of this shape."""
        raise NotImplementedError(f"{type(self).__name__} needs sample(size)")


class AdditiveGaussianNoise(AdditiveElemwise):
    """Adds normal noise of a mean and a standard deviation.

    >>> from tengen import functional as F, module as M
    >>> M.AdditiveGaussianNoise(std=0.1, seed=0)(F.zeros((2, 3, 4, 4))).shape
    (2, 3, 4, 4)
    """

    def __init__(self, mean: float = 0.0, std: float = 1.0, per_channel: bool = False, seed: int | None = None):
        super().__init__(per_channel, seed)
        self.mean, self.std = mean, std

    def sample(self, size: tuple) -> Tensor:
        """Normal noise."""
        return self.rng.normal(self.mean, self.std, size)


class AdditiveLaplaceNoise(AdditiveElemwise):
    """Adds Laplace noise: its density falls by e for each `std` that it is away from `mean`."""

    def __init__(self, mean: float = 0.0, std: float = 1.0, per_channel: bool = False, seed: int | None = None):
        super().__init__(per_channel, seed)
        self.mean, self.std = mean, std

    def sample(self, size: tuple) -> Tensor:
        """Laplace noise, by the inverse of its cumulative function."""
        u = self.rng.uniform(-1.0, 1.0, size)  # [-1, 1): at -1 the logarithm would be infinite
        u = F.maximum(u, -1.0 + 2.0**-24)
        return self.mean - self.std * F.sign(u) * F.log1p(-F.abs(u))


class AdditivePoissonNoise(AdditiveElemwise):
    """Adds Poisson distributed numbers of the rate `lam`."""

    def __init__(self, lam: float = 1.0, per_channel: bool = False, seed: int | None = None):
        super().__init__(per_channel, seed)
        self.lam = lam

    def sample(self, size: tuple) -> Tensor:
        """Poisson distributed numbers."""
        return self.rng.poisson(self.lam, size)


class ActiveBlur(_Random):
    """The base of filters of 3 x 3 pixels: a subclass gives `get_kernel(inp, c)`, filters (C, 1, 1, 3, 3). Borders are reflected; integers
    are rounded towards zero, and clipped to what their dtype holds."""

    def forward(self, inp: Tensor) -> Tensor:
        c = images_of(self, inp).shape[1]
        x = inp if inp.dtype.is_float else inp.astype("float32")
        padded = F.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)), "reflect")
        y = F.conv2d(padded, self.get_kernel(inp, c).astype(x.dtype), groups=c)
        if inp.dtype.is_float:
            return y
        limits = np.iinfo(inp.dtype.numpy)
        return F.clip(y, float(limits.min), float(limits.max)).astype(inp.dtype)

    def get_kernel(self, inp: Tensor, c: int) -> Tensor:
        """The filters for c channels."""
        raise NotImplementedError(f"{type(self).__name__} needs get_kernel(inp, c)")

    def _blended(self, alpha: Tensor, effect: Tensor, c: int) -> Tensor:
        """A share `alpha` of an effect, and the rest of the image itself."""
        same = Tensor(np.array([[0, 0, 0], [0, 1, 0], [0, 0, 0]], np.float32))
        return REGISTRY["broadcast_to"](same * (1.0 - alpha) + effect * alpha, (c, 1, 1, 3, 3))


class Emboss(ActiveBlur):
    """Highlights and shadows along a diagonal, blended with the image.

    Args:
        alpha: the share of the effect: 0 is the image itself, 1 the effect alone. strength: of the effect. Each is a number, or the ends of
            an interval from which one is drawn for each call. seed: of the draws.
    """

    _checked = _limits("alpha", "strength")

    def __init__(self, alpha: Any, strength: Any, seed: int | None = None):
        super().__init__(seed)
        self.alpha, self.strength = alpha, strength

    def get_kernel(self, inp: Tensor, c: int) -> Tensor:
        """The filters for c channels."""
        alpha, s = self._drawn(self.alpha), self._drawn(self.strength)
        sign = Tensor(np.array([[-1, -1, 0], [-1, 0, 1], [0, 1, 1]], np.float32))
        return self._blended(alpha, sign * s + Tensor(np.array([[-1, 0, 0], [0, 1, 0], [0, 0, 1]], np.float32)), c)


class Sharpen(ActiveBlur):
    """Edges made stronger, blended with the image.

    Args:
        alpha: the share of the effect: 0 is the image itself, 1 the effect alone. lightness: of the effect. Each is a number, or the ends of
            an interval from which one is drawn for each call. seed: of the draws.
    """

    _checked = _limits("alpha", "lightness")

    def __init__(self, alpha: Any, lightness: Any, seed: int | None = None):
        super().__init__(seed)
        self.alpha, self.lightness = alpha, lightness

    def get_kernel(self, inp: Tensor, c: int) -> Tensor:
        """The filters for c channels."""
        alpha, light = self._drawn(self.alpha), self._drawn(self.lightness)
        middle = Tensor(np.array([[0, 0, 0], [0, 1, 0], [0, 0, 0]], np.float32))
        return self._blended(alpha, middle * (light + 9.0) - 1.0, c)


class LinearContrast(_Random):
    """middle + alpha (v - middle) of each value v. The middle is 127 for uint8, 0 for floats, -0.5 rounded to 0 for signed integers; uint8 is
    clipped to 0 .. 255, and integers are rounded towards zero.

    Args:
        alpha: a number, or the ends of an interval from which one is drawn for each image, or channel. per_channel: whether each channel has
            one of its own. seed: of the draws.
    Errors: DTypeError for integers of more than 16 bits, and for bools

    >>> from tengen import Tensor, module as M
    >>> M.LinearContrast(0.5)(Tensor([[[[27, 127, 227]]]], dtype="uint8")).tolist()
    [[[[77, 127, 177]]]]
    """

    _checked = {**_limits("alpha"), "per_channel": _choice}

    def __init__(self, alpha: Any, per_channel: bool = False, seed: int | None = None):
        super().__init__(seed)
        self.alpha, self.per_channel = alpha, per_channel

    def forward(self, inp: Tensor) -> Tensor:
        n, c = images_of(self, inp).shape[:2]
        alpha = self._drawn(self.alpha, (n, c if self.per_channel else 1, 1, 1))
        if inp.dtype.is_float:
            return (inp * alpha).astype(inp.dtype)
        if not inp.dtype.is_int or inp.dtype.bits > 16:
            raise DTypeError(f"LinearContrast takes floats, or integers of up to 16 bits, got {inp.dtype}; help: x.astype('float32')")
        limits = np.iinfo(inp.dtype.numpy)
        middle = float(limits.max // 2) if limits.min == 0 else 0.0
        y = middle + (inp.astype("float32") - middle) * alpha
        return F.clip(y, float(limits.min), float(limits.max)).astype(inp.dtype)


class Mixup(_Random):
    """Mixes two batches of images and of labels, each example by a share from the distribution Beta(beta, beta).

    Shapes: images (N, C, H, W), labels (N,) -> (images, labels)
    Source: Zhang et al., arXiv 1710.09412

    >>> from tengen import functional as F, module as M
    >>> data, label = M.Mixup(1.0, seed=0)(F.zeros((2, 1, 3, 3)), F.zeros(2), F.ones((2, 1, 3, 3)), F.ones(2))
    >>> bool((data[:, 0, 0, 0] == label).all())
    True
    """

    def __init__(self, beta: float, seed: int | None = None):
        super().__init__(seed)
        self.beta = beta

    def sample(self, batch: int) -> Tensor:
        """The shares of the first batch."""
        return self.rng.beta(self.beta, self.beta, (batch,))

    def forward(self, data1: Tensor, label1: Tensor, data2: Tensor, label2: Tensor) -> tuple[Tensor, Tensor]:
        n = images_of(self, data1).shape[0]
        share = self.sample(n)
        of_image = share.reshape(n, 1, 1, 1)
        return of_image * data1 + (1.0 - of_image) * data2, share * label1 + (1.0 - share) * label2


class Cutmix(Mixup):
    """Puts a box of the second batch's image into that of the first, and mixes the labels by shares from Beta(beta, beta); the box has the
    share of the second of the image's area, where it lies inside of the image whole.

    Shapes: images (N, C, H, W), labels (N,) -> (images, labels)
    Source: Yun et al., arXiv 1905.04899
    """

    def forward(self, data1: Tensor, label1: Tensor, data2: Tensor, label2: Tensor) -> tuple[Tensor, Tensor]:
        n, _, h, w = images_of(self, data1).shape
        share = self.sample(n)
        side = F.sqrt(1.0 - share)
        inside = []
        for size, axis in ((h, 2), (w, 3)):
            length, middle = F.floor(size * side), F.floor(self.rng.uniform(0, size, (n,)))
            low, high = F.clip(middle - F.floor(length / 2), 0, size), F.clip(middle + F.floor(length / 2), 0, size)
            at, shape = F.arange(size).reshape([-1 if i == axis else 1 for i in range(4)]), (n, 1, 1, 1)
            inside.append((at >= low.reshape(shape)) & (at < high.reshape(shape)))
        return F.where(inside[0] & inside[1], data2, data1), share * label1 + (1.0 - share) * label2


class GaussianBlur(Configured):
    """Blurs images by the filter of a normal distribution, for images (N, H, W, C).

    Args:
        kernel_size: one odd number of pixels, or two (height, width). sigma_x, sigma_y: standard deviations along the width and the height, in
            pixels; 0: 0.3 ((size - 1) / 2 - 1) + 0.8, and of sigma_y alone: sigma_x. border_mode: "REPLICATE", "REFLECT", "REFLECT_101" or
            "CONSTANT" (zeros).
    Errors: ShapeError for what are no images (N, H, W, C) of floats

    >>> from tengen import functional as F, module as M
    >>> round(M.GaussianBlur(3, 1.0)(F.ones((1, 4, 4, 2))), 4)[0, 0, 0].tolist()
    [1.0, 1.0]
    """

    _PADS = {"REPLICATE": "edge", "REFLECT": "symmetric", "REFLECT_101": "reflect", "CONSTANT": "constant"}
    _checked = {"kernel_size": _odd, "border_mode": one_of("border_mode", *_PADS)}

    def __init__(self, kernel_size: int | tuple[int, int], sigma_x: float = 0, sigma_y: float = 0, border_mode: str = "REPLICATE"):
        super().__init__()
        self.kernel_size, self.sigma_x, self.sigma_y, self.border_mode = kernel_size, sigma_x, sigma_y, border_mode

    def _weights(self, size: int, sigma: float) -> np.ndarray:
        sigma = sigma if sigma > 0 else 0.3 * ((size - 1) / 2 - 1) + 0.8
        w = np.exp(-((np.arange(size) - (size - 1) / 2) ** 2) / (2 * sigma**2))
        return w / w.sum()

    def forward(self, inp: Tensor) -> Tensor:
        if not isinstance(inp, Tensor) or inp.ndim != 4 or not inp.dtype.is_float:
            raise ShapeError(f"GaussianBlur takes images (N, H, W, C) of floats, got {getattr(inp, '_layout', inp)!r}")
        (kh, kw), c = self.kernel_size, inp.shape[3]
        x = inp.transpose(0, 3, 1, 2)
        padded = _bordered(x, (kh // 2, kw // 2), self._PADS[self.border_mode])
        weights = np.outer(self._weights(kh, self.sigma_y or self.sigma_x), self._weights(kw, self.sigma_x)).astype(inp.dtype.numpy)
        filters = REGISTRY["broadcast_to"](Tensor(weights), (c, 1, 1, kh, kw))
        return F.conv2d(padded, filters, groups=c).transpose(0, 2, 3, 1)


def _bordered(x: Tensor, pads: tuple[int, int], mode: str) -> Tensor:
    """Images (N, C, H, W) with so many rows and columns more on each side."""
    if mode == "constant":
        return F.pad(x, ((0, 0), (0, 0), *((p, p) for p in pads)))
    for axis, p in zip((2, 3), pads):
        at = np.pad(np.arange(x.shape[axis]), p, mode)
        x = F.take(x, Tensor(at), axis)
    return x


class CropAndPad(Configured):
    """Crops or pads each image by a share of its size on each side, and brings it back to its size.

    Args:
        mode: "bilinear" or "nearest". align_corners: whether the first and the last pixels of both sizes lie on each other, for "bilinear".

    It is called with images (N, C, H, W), shares `percent` (N,), above 0 to pad and below 0 to crop, and `pad_val` (N,), what is padded
    (default: 0).

    Errors: ShapeError for shares or values that are not one for each image

    >>> from tengen import Tensor, functional as F, module as M
    >>> M.CropAndPad("nearest")(F.ones((1, 1, 4, 4)), Tensor([0.5])).sum().item()
    4.0
    """

    _checked = {"mode": one_of("mode", "bilinear", "nearest")}

    def __init__(self, mode: str = "bilinear", align_corners: bool = False):
        super().__init__()
        self.mode, self.align_corners = mode, align_corners

    def forward(self, inp: Tensor, percent: Tensor, pad_val: Tensor | None = None) -> Tensor:
        n, _, h, w = images_of(self, inp).shape
        for what, t in (("percent", percent), ("pad_val", pad_val)):
            if t is not None and t.size and t.shape != (n,):
                raise ShapeError(f"CropAndPad: {what} {t.shape} must have the shape ({n},) for {inp._layout.type!r}")
        maps = []
        for size, axis in ((w, 2), (h, 1)):
            share, at = F.round(percent * size).reshape(n, 1, 1), F.arange(size).reshape([-1 if i == axis else 1 for i in range(3)])
            new = size + 2.0 * share
            if self.align_corners and self.mode == "bilinear" and size > 1:
                place = at * (new - 1.0) / (size - 1.0)
            else:
                place = (at + 0.5) * new / size - 0.5
            place = F.floor(place + 0.5) if self.mode == "nearest" else F.clip(place, 0.0, 1e9)
            place = F.minimum(place, new - 1.0) - share
            maps.append(REGISTRY["broadcast_to"](place, (n, h, w)))
        y = F.vision.remap(inp, F.stack(maps, 3), "constant", 0.0, "nearest" if self.mode == "nearest" else "linear")
        if pad_val is None or not pad_val.size:
            return y
        covered = F.vision.remap(F.ones_like(inp), F.stack(maps, 3), "constant", 0.0, "nearest" if self.mode == "nearest" else "linear")
        return y + (1.0 - covered) * pad_val.reshape(n, 1, 1, 1)
