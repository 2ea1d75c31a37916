"""Transforms that change colours. Every item but the image is passed on.

In: images as height x width x channels (or height x width), as OpenCV holds them: three channels are blue, green and red. Random
ones draw from `tengen.data.rng()`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tengen.data.draws import rng
from tengen.data.transforming import Compose, VisionTransform

LUMA = np.array([0.114, 0.587, 0.299], np.float32)  # of blue, green and red: ITU-R BT.601


class Normalize(VisionTransform):
    """``(image - mean) / std`` in float32; `mean` and `std` are numbers, or one for each channel of the last axis.

    Errors: ValueError for a standard deviation of 0, and for NaN and infinity
    """

    geometric = False

    def __init__(self, mean: Any = 0.0, std: Any = 1.0, *, order: Sequence[str] | None = None):
        super().__init__(order)
        self.mean, self.std = np.asarray(mean, np.float32), np.asarray(std, np.float32)
        if (self.std == 0).any() or not (np.isfinite(self.mean).all() and np.isfinite(self.std).all()):
            raise ValueError(f"Normalize: mean and std must be finite, and std must not be 0, got {mean} and {std}")

    def _apply_image(self, image: np.ndarray) -> np.ndarray:
        return (np.asarray(image, np.float32) - self.mean) / self.std


class _Light(VisionTransform):
    """Draws `self._factor` from [max(0, 1 - value), 1 + value]; results are kept in 0 to 255 and in the image's dtype."""

    geometric = False

    def __init__(self, value: float = 0.0, *, order: Sequence[str] | None = None):
        super().__init__(order)
        if not 0 <= value < math.inf:
            raise ValueError(f"{type(self).__name__}: value must be finite and >= 0, got {value}")
        self.value = value

    def prepare(self, height: int, width: int) -> None:
        self._factor = np.float32(rng().uniform(max(0.0, 1 - self.value), 1 + self.value))

    def _apply_image(self, image: np.ndarray) -> np.ndarray:
        if self.value == 0:
            return image
        return self._lit(image.astype(np.float32)).clip(0, 255).astype(image.dtype)

    def _lit(self, image: np.ndarray) -> np.ndarray:
        raise NotImplementedError(f"{type(self).__name__} needs _lit(image)")


class BrightnessTransform(_Light):
    """The image times a random factor from [max(0, 1 - value), 1 + value], for images of 0 to 255."""

    def _lit(self, image: np.ndarray) -> np.ndarray:
        return image * self._factor


class ContrastTransform(_Light):
    """The image's distance from its mean grey times a random factor from [max(0, 1 - value), 1 + value], for 0 to 255.

    Three channels are blue, green and red; grey is their luma by ITU-R BT.601.
    """

    def _lit(self, image: np.ndarray) -> np.ndarray:
        grey = image @ LUMA if image.ndim == 3 and image.shape[2] == 3 else image
        return image * self._factor + grey.mean(dtype=np.float64).astype(np.float32) * (1 - self._factor)


class SaturationTransform(_Light):
    """The image's distance from its own grey times a random factor from [max(0, 1 - value), 1 + value], for images of three channels
    and 0 to 255. Grey images stay as they are."""

    def _lit(self, image: np.ndarray) -> np.ndarray:
        if image.ndim != 3 or image.shape[2] != 3:
            return image
        return image * self._factor + (image @ LUMA)[..., None] * (1 - self._factor)


class HueTransform(VisionTransform):
    """The hue of an image of three channels and 0 to 255 turned by a random share of the circle from [-value, value]; value is from 0
    to 0.5. Grey images stay as they are. Computed in float32 by way of HSV, and rounded to nearest for integers.

    Errors: ValueError for a value outside of [0, 0.5]
    """

    geometric = False

    def __init__(self, value: float, *, order: Sequence[str] | None = None):
        super().__init__(order)
        if not 0 <= value <= 0.5:
            raise ValueError(f"HueTransform: value must be from 0 to 0.5, got {value}")
        self.value = value

    def prepare(self, height: int, width: int) -> None:
        self._turn = rng().uniform(-self.value, self.value)

    def _apply_image(self, image: np.ndarray) -> np.ndarray:
        if self.value == 0 or image.ndim != 3 or image.shape[2] != 3:
            return image
        out = turn_hue(image.astype(np.float32), self._turn)
        return (np.rint(out) if image.dtype.kind in "iu" else out).clip(0, 255).astype(image.dtype)


def turn_hue(image: np.ndarray, turn: float) -> np.ndarray:
    """A float image of blue, green and red whose hue is turned by a share of the circle; saturation and value stay.

    >>> turn_hue(np.array([[[0.0, 0.0, 90.0]]]), 1 / 3).round(3).tolist()  # red becomes green
    [[[0.0, 90.0, 0.0]]]
    """
    blue, green, red = np.moveaxis(image, -1, 0)
    top, spread = image.max(-1), image.max(-1) - image.min(-1)
    safe = np.where(spread > 0, spread, 1)
    hue = np.where(
        top == red, (green - blue) / safe % 6, np.where(top == green, (blue - red) / safe + 2, (red - green) / safe + 4)
    )  # of 6
    hue = hue + image.dtype.type(turn * 6)
    channel = lambda n: top - spread * np.clip(np.minimum((n + hue) % 6, 4 - (n + hue) % 6), 0, 1)
    return np.stack([channel(1), channel(3), channel(5)], -1).astype(image.dtype)


class ColorJitter(VisionTransform):
    """Brightness, contrast, saturation and hue changed at random, in a random order: see the transforms of each.

    Args: brightness, contrast, saturation: at least 0. hue: from 0 to 0.5. 0 leaves one as it is.
    """

    geometric = False

    def __init__(
        self, brightness: float = 0, contrast: float = 0, saturation: float = 0, hue: float = 0, *, order: Sequence[str] | None = None
    ):
        super().__init__(order)
        kinds = (BrightnessTransform, brightness), (ContrastTransform, contrast), (SaturationTransform, saturation), (HueTransform, hue)
        parts = [kind(value, order=order) for kind, value in kinds if value != 0]
        self.transforms = Compose(parts, shuffle_indices=[range(1, len(parts) + 1)] if parts else None)

    def apply(self, input: Any) -> Any:
        return self.transforms.apply(input)


class Lighting(VisionTransform):
    """AlexNet's noise along the principal components of ImageNet's colours, for images of three channels and 0 to 255.

    Args: scale: the standard deviation of each component's share; 0.1 in the paper.
    Source: Krizhevsky et al., 2012, section 4.1; the components as PyTorch's examples have them.
    Errors: ValueError for a negative scale
    """

    geometric = False
    VALUES = np.array([0.2175, 0.0188, 0.0045], np.float32)
    VECTORS = np.array([[-0.5836, -0.6948, 0.4203], [-0.5808, -0.0045, -0.8140], [-0.5675, 0.7192, 0.4009]], np.float32)  # B, G, R

    def __init__(self, scale: float, *, order: Sequence[str] | None = None):
        super().__init__(order)
        if not 0 <= scale < math.inf:
            raise ValueError(f"Lighting: scale must be finite and >= 0, got {scale}")
        self.scale = scale

    def prepare(self, height: int, width: int) -> None:
        self._shares = rng().normal(0, self.scale * 255, 3).astype(np.float32)

    def _apply_image(self, image: np.ndarray) -> np.ndarray:
        if self.scale == 0:
            return image
        if image.ndim != 3 or image.shape[2] != 3:
            raise ValueError(f"Lighting takes images of three channels, got shape {image.shape}")
        out = image.astype(np.float32) + self.VECTORS @ (self._shares * self.VALUES)
        return out.clip(0, 255).astype(image.dtype)


class GaussianNoise(VisionTransform):
    """The image plus 255 times normal noise, kept in 0 to 255 and in the image's dtype.

    Args: mean, std: of the noise before it is multiplied; a number, or one for each channel.
    Errors: ValueError for a negative standard deviation
    """

    geometric = False

    def __init__(self, mean: Any = 0.0, std: Any = 1.0, *, order: Sequence[str] | None = None):
        super().__init__(order)
        self.mean, self.std = np.asarray(mean, np.float32), np.asarray(std, np.float32)
        if not ((self.std >= 0) & np.isfinite(self.std)).all() or not np.isfinite(self.mean).all():
            raise ValueError(f"GaussianNoise: mean and std must be finite, and std >= 0, got {mean} and {std}")

    def _apply_image(self, image: np.ndarray) -> np.ndarray:
        noise = (rng().normal(self.mean, self.std, image.shape) * 255).astype(np.float32)
        return (image.astype(np.float32) + noise).clip(0, 255).astype(image.dtype)


class TorchTransformCompose(VisionTransform):
    """Transforms of torchvision, or others that take an image of Pillow or an array, one after the other. They get the image in Pillow's
    form, of red, green and blue; what they give is brought back to an array of blue, green and red. Needs Pillow.

    Args: transforms: functions of an image.
    """

    geometric = False

    def __init__(self, transforms: Sequence[Callable[[Any], Any]], *, order: Sequence[str] | None = None):
        super().__init__(order)
        self.transforms = list(transforms)

    def _apply_image(self, image: np.ndarray) -> np.ndarray:
        from PIL import Image

        wide = image.ndim == 3 and image.shape[0] == 3 and image.shape[2] != 3  # channels first
        rows = image.transpose(1, 2, 0) if wide else image
        made: Any = Image.fromarray(_other_way(np.ascontiguousarray(rows).astype(np.uint8)))
        for t in self.transforms:
            made = t(made)
        return _other_way(np.asarray(made))


def _other_way(image: np.ndarray) -> np.ndarray:
    """Blue, green and red as red, green and blue, or back, wherever the channels are; a grey image as it is."""
    if image.ndim == 3 and image.shape[2] == 3:
        return np.ascontiguousarray(image[..., ::-1])
    return np.ascontiguousarray(image[::-1]) if image.ndim == 3 and image.shape[0] == 3 else image
