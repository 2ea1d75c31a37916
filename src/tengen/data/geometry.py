"""Transforms that move pixels: padding, resizing, cropping, mirroring. Masks, boxes and coordinates follow.

In: images as height x width x channels (or height x width), as OpenCV holds them. Random ones draw from `tengen.data.rng()`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tengen.data.draws import rng
from tengen.data.transforming import VisionTransform


class ToMode(VisionTransform):
    """Height x width x channels to channels x height x width ("CHW"), or back ("HWC"). A grey image gains a channel axis.

    Errors: ValueError for a mode that is not there
    """

    geometric = False

    def __init__(self, mode: str = "CHW", *, order: Sequence[str] | None = None):
        super().__init__(order)
        if mode not in ("CHW", "HWC"):
            raise ValueError(f"ToMode: mode must be 'CHW' or 'HWC', got {mode!r}")
        self.mode = mode

    def _apply_image(self, image: np.ndarray) -> np.ndarray:
        if image.ndim == 2:
            image = image[:, :, None] if self.mode == "CHW" else image[None]
        return np.ascontiguousarray(image.transpose(2, 0, 1) if self.mode == "CHW" else image.transpose(1, 2, 0))


class Pad(VisionTransform):
    """A frame of `value` around the image.

    Args:
        size: pixels on all sides; or (bottom, right); or (top, bottom, left, right).
        value: fills the image; a number, or one for each channel.
        mask_value: fills the mask.
    Errors: ValueError for a size that is not one, two or four integers >= 0
    """

    def __init__(self, size: Any = 0, value: Any = 0, mask_value: Any = 0, *, order: Sequence[str] | None = None):
        super().__init__(order)
        sizes = (size,) * 4 if np.ndim(size) == 0 else tuple(size)
        sizes = (0, sizes[0], 0, sizes[1]) if len(sizes) == 2 else sizes
        if len(sizes) != 4 or any(int(n) != n or n < 0 for n in sizes):
            raise ValueError(f"Pad: size must be one, two or four integers >= 0, got {size!r}")
        self.size, self.value, self.mask_value = tuple(int(n) for n in sizes), value, mask_value

    def _apply_image(self, image: np.ndarray) -> np.ndarray:
        return _framed(image, self.size, self.value)

    def _apply_mask(self, mask: np.ndarray) -> np.ndarray:
        return _framed(mask, self.size, self.mask_value)

    def _apply_coords(self, coords: np.ndarray) -> np.ndarray:
        return coords + np.array([self.size[2], self.size[0]], coords.dtype)


class Resize(VisionTransform):
    """The image in another size.

    Args:
        output_size: (height, width), or the length of the shorter side, whose ratio to the other is kept.
        interpolation: "linear" (between pixel centres, edges repeated, no smoothing before shrinking: OpenCV's INTER_LINEAR)
            or "nearest"; OpenCV's numbers 1 and 0 are taken too. A mask is always "nearest".
    Errors: ValueError for an image without pixels, whose sides have no ratio to keep
    """

    def __init__(self, output_size: Any, interpolation: str | int = "linear", *, order: Sequence[str] | None = None):
        super().__init__(order)
        self.output_size = _pair("Resize", output_size)
        self.keeps_ratio = np.ndim(output_size) == 0
        self.interpolation = _interpolation("Resize", interpolation)

    def prepare(self, height: int, width: int) -> None:
        self._from = (height, width)
        if self.keeps_ratio:
            size, least = self.output_size[0], min(height, width)
            if not least:
                raise ValueError(f"Resize: an image of {height} x {width} has no pixels")
            self._to = (size * height // least, size * width // least)
        else:
            self._to = self.output_size

    def _apply_image(self, image: np.ndarray) -> np.ndarray:
        return resize(image, self._to, self.interpolation)

    def _apply_mask(self, mask: np.ndarray) -> np.ndarray:
        return resize(mask, self._to, "nearest")

    def _apply_coords(self, coords: np.ndarray) -> np.ndarray:
        factors = np.array([self._to[1] / self._from[1], self._to[0] / self._from[0]])
        return coords * (factors.astype(coords.dtype) if coords.dtype.kind == "f" else factors)


class RandomResize(Resize):
    """The image's height and width times one random factor.

    Args:
        scale_range: (least, greatest) factor. interpolation: as in `Resize`.
    """

    def __init__(self, scale_range: Sequence[float], interpolation: str | int = "linear", *, order: Sequence[str] | None = None):
        super().__init__(1, interpolation, order=order)
        self.scale_range = _ascending("RandomResize", scale_range)

    def prepare(self, height: int, width: int) -> None:
        scale = rng().uniform(*self.scale_range)
        self._from = (height, width)
        self._to = (max(1, round(height * scale)), max(1, round(width * scale)))


class ShortestEdgeResize(Resize):
    """The image with a shorter side of random length, and its ratio kept; the longer side is at most `max_size`.

    Args:
        min_size: the shorter side's length; with sample_style "range" (least, greatest), with "choice" some to choose from.
        interpolation: as in `Resize`.
    Errors: ValueError for a sample_style that is not there, and for sizes below 1
    """

    def __init__(
        self, min_size: Any, max_size: int, sample_style: str = "range", interpolation: str | int = "linear", *,
        order: Sequence[str] | None = None,
    ):  # fmt: skip
        super().__init__(1, interpolation, order=order)
        if sample_style not in ("range", "choice"):
            raise ValueError(f"ShortestEdgeResize: sample_style={sample_style!r} must be 'range' or 'choice'")
        sizes = (min_size, min_size) if np.ndim(min_size) == 0 else tuple(min_size)
        self.sample_style, self.max_size = sample_style, max_size
        self.min_size = _ascending("ShortestEdgeResize", sizes) if sample_style == "range" else sizes
        if not sizes or min(sizes) < 1 or max_size < 1:
            raise ValueError(f"ShortestEdgeResize: sizes must be at least 1, got min_size={min_size!r}, max_size={max_size!r}")

    def prepare(self, height: int, width: int) -> None:
        if self.sample_style == "range":
            size = int(rng().integers(int(self.min_size[0]), int(self.min_size[1]) + 1))
        else:
            size = int(self.min_size[rng().integers(len(self.min_size))])
        scale = min(size / min(height, width), self.max_size / max(height, width))
        self._from = (height, width)
        self._to = (max(1, round(height * scale)), max(1, round(width * scale)))


class _Crop(VisionTransform):
    """Cuts the window (top, left, height, width) that `prepare` leaves in `self._window`."""

    _window = (0, 0, 0, 0)

    def _apply_image(self, image: np.ndarray) -> np.ndarray:
        top, left, height, width = self._window
        return np.ascontiguousarray(image[top : top + height, left : left + width])

    def _apply_mask(self, mask: np.ndarray) -> np.ndarray:
        return _Crop._apply_image(self, mask)

    def _apply_coords(self, coords: np.ndarray) -> np.ndarray:
        return coords - np.array([self._window[1], self._window[0]], coords.dtype)

    def _inside(self, size: tuple[int, int], height: int, width: int) -> None:
        if size[0] > height or size[1] > width:
            raise ValueError(f"{type(self).__name__}: cannot cut {size[0]} x {size[1]} from an image of {height} x {width}")


class CenterCrop(_Crop):
    """The middle of the image; `output_size` is (height, width), or one number for a square.

    Errors:
        ValueError: an image smaller than that.
    """

    def __init__(self, output_size: Any, *, order: Sequence[str] | None = None):
        super().__init__(order)
        self.output_size = _pair("CenterCrop", output_size)

    def prepare(self, height: int, width: int) -> None:
        self._inside(self.output_size, height, width)
        h, w = self.output_size
        self._window = (round((height - h) / 2), round((width - w) / 2), h, w)  # halves to even: MegEngine's and torchvision's window


class RandomCrop(_Crop):
    """A random window of the image, after a frame was put around it.

    Args:
        output_size: (height, width), or one number for a square.
        padding_size: the frame, as in `Pad`.
        padding_value, padding_maskvalue: what fills it.

    Errors:
        ValueError: an image that is smaller, with its frame.
    """

    def __init__(
        self,
        output_size: Any,
        padding_size: Any = 0,
        padding_value: Any = 0,
        padding_maskvalue: Any = 0,
        *,
        order: Sequence[str] | None = None,
    ):
        super().__init__(order)
        self.output_size = _pair("RandomCrop", output_size)
        self.pad = Pad(padding_size, padding_value, padding_maskvalue)

    def prepare(self, height: int, width: int) -> None:
        top, bottom, left, right = self.pad.size
        height, width = height + top + bottom, width + left + right
        h, w = self.output_size
        self._inside(self.output_size, height, width)
        self._window = (int(rng().integers(height - h + 1)), int(rng().integers(width - w + 1)), h, w)

    def _apply_image(self, image: np.ndarray) -> np.ndarray:
        return super()._apply_image(self.pad._apply_image(image))

    def _apply_mask(self, mask: np.ndarray) -> np.ndarray:
        return super()._apply_mask(self.pad._apply_mask(mask))

    def _apply_coords(self, coords: np.ndarray) -> np.ndarray:
        return super()._apply_coords(self.pad._apply_coords(coords))


class RandomResizedCrop(_Crop):
    """A random window of random area and shape, resized.

    Args:
        output_size: (height, width), or one number for a square.
        scale_range: the window's share of the image's area.
        ratio_range: its width over its height, drawn on a logarithmic scale.
        interpolation: as in `Resize`.

    Source: Szegedy et al., "Going deeper with convolutions", CVPR 2015, section 6.
    Errors: ValueError for scales or ratios out of range
    """

    def __init__(
        self,
        output_size: Any,
        scale_range: tuple[float, float] = (0.08, 1.0),
        ratio_range: tuple[float, float] = (3 / 4, 4 / 3),
        interpolation: str | int = "linear",
        *,
        order: Sequence[str] | None = None,
    ):
        super().__init__(order)
        self.output_size = _pair("RandomResizedCrop", output_size)
        for low, high in (scale_range, ratio_range):
            if not 0 < low <= high:
                raise ValueError(f"RandomResizedCrop: a range must be positive and ascending, got ({low}, {high})")
        self.scale_range, self.ratio_range = scale_range, ratio_range
        self.interpolation = _interpolation("RandomResizedCrop", interpolation)

    def prepare(self, height: int, width: int) -> None:
        low, high = self.ratio_range
        for _ in range(10):
            area = rng().uniform(*self.scale_range) * height * width
            ratio = math.exp(rng().uniform(math.log(low), math.log(high)))
            h, w = round(math.sqrt(area / ratio)), round(math.sqrt(area * ratio))
            if 0 < h <= height and 0 < w <= width:
                self._window = (int(rng().integers(height - h + 1)), int(rng().integers(width - w + 1)), h, w)
                return
        # no such window fits this image: the largest one in its middle whose shape is allowed
        ratio = min(max(width / height, low), high)
        h, w = min(height, max(1, round(width / ratio))), min(width, max(1, round(height * ratio)))
        self._window = ((height - h) // 2, (width - w) // 2, h, w)

    def _apply_image(self, image: np.ndarray) -> np.ndarray:
        return resize(super()._apply_image(image), self.output_size, self.interpolation)

    def _apply_mask(self, mask: np.ndarray) -> np.ndarray:
        return resize(super()._apply_mask(mask), self.output_size, "nearest")

    def _apply_coords(self, coords: np.ndarray) -> np.ndarray:
        _, _, h, w = self._window
        return super()._apply_coords(coords) * np.array([self.output_size[1] / w, self.output_size[0] / h])


class _Flip(VisionTransform):
    """Mirrors one axis of the image (0 or 1) with a probability."""

    axis = 0

    def __init__(self, prob: float = 0.5, *, order: Sequence[str] | None = None):
        super().__init__(order)
        if not 0 <= prob <= 1:
            raise ValueError(f"{type(self).__name__}: prob must be from 0 to 1, got {prob}")
        self.prob = prob

    def prepare(self, height: int, width: int) -> None:
        self._extent = (height, width)[self.axis]
        self._flips = rng().random() < self.prob

    def _apply_image(self, image: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(np.flip(image, self.axis)) if self._flips else image

    def _apply_mask(self, mask: np.ndarray) -> np.ndarray:
        return self._apply_image(mask)

    def _apply_coords(self, coords: np.ndarray) -> np.ndarray:
        if self._flips:
            coords = coords.copy()
            coords[:, 1 - self.axis] = self._extent - coords[:, 1 - self.axis]
        return coords


class RandomHorizontalFlip(_Flip):
    """Left and right exchanged, with probability `prob`."""

    axis = 1


class RandomVerticalFlip(_Flip):
    """Top and bottom exchanged, with probability `prob`."""

    axis = 0


def resize(image: np.ndarray, size: Sequence[int], interpolation: str = "linear") -> np.ndarray:
    """An image (height x width, and channels if any) in another size; integers are rounded to the nearest, uint8 as OpenCV rounds them.

    A pixel is its centre: row i of the result lies at row ``(i + 0.5) * height / size[0] - 0.5``.

    Errors: ValueError for an image without pixels

    >>> resize(np.array([[0.0, 4.0]]), (1, 4))
    array([[0., 1., 3., 4.]])
    """
    image = np.asarray(image)
    if 0 in image.shape[:2]:
        raise ValueError(f"resize: an image of {image.shape[0]} x {image.shape[1]} has no pixels")
    if tuple(size) == image.shape[:2]:
        return image
    if interpolation == "nearest":
        rows, columns = (np.minimum(np.arange(n) * m // n, m - 1) for n, m in zip(size, image.shape))
        return image[rows][:, columns]
    if image.dtype == np.uint8:
        return _resized_bytes(image, size)
    out = image if image.dtype == np.float64 else image.astype(np.float32)
    for axis in (0, 1):
        n, m = size[axis], image.shape[axis]
        at = np.clip((np.arange(n) + 0.5) * (m / n) - 0.5, 0, m - 1)
        low = np.minimum(at.astype(np.int64), max(m - 2, 0))
        weight = (at - low).astype(out.dtype).reshape([-1 if k == axis else 1 for k in range(image.ndim)])
        out = out.take(low, axis) * (1 - weight) + out.take(np.minimum(low + 1, m - 1), axis) * weight
    if image.dtype.kind in "iu":
        out = np.rint(out)
    return out.astype(image.dtype, copy=False)


def _resized_bytes(image: np.ndarray, size: Sequence[int]) -> np.ndarray:
    """uint8 by integers, with the bits of OpenCV's INTER_LINEAR: weights of 11 bits, along rows first; 4 of the 19 bits of a sum are cut off,
    16 of each product with a row's weight, and the last 2 are rounded."""
    y0, y1, b0, b1 = (v.reshape(-1, *(1,) * (image.ndim - 1)) for v in _weights(image.shape[0], size[0]))
    x0, x1, a0, a1 = _weights(image.shape[1], size[1])
    a0, a1 = (v.reshape(-1, *(1,) * (image.ndim - 2)) for v in (np.where(x1 > x0, a0, 1 << 11), np.where(x1 > x0, a1, 0)))  # or at an edge
    rows = image.take(x0, 1) * a0
    rows += image.take(x1, 1) * a1
    rows >>= 4
    upper, lower = rows.take(y0.ravel(), 0), rows.take(y1.ravel(), 0)
    for part, weight in ((upper, b0), (lower, b1)):
        part *= weight
        part >>= 16
    upper += lower
    upper += 2
    upper >>= 2
    return upper.astype(np.uint8)


def _weights(m: int, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """For n pixels out of m the two that each lies between, which are one beyond the edges, and their weights times 2,048, int32."""
    at = ((np.arange(n) + 0.5) * (1.0 / (n / m)) - 0.5).astype(np.float32)
    low = np.floor(at)
    part = at - low
    first = low.astype(np.int64)
    weights = (np.rint(w * np.float32(2048)).astype(np.int32) for w in (1 - part, part))
    return (np.clip(first, 0, m - 1), np.clip(first + 1, 0, m - 1), *weights)


def _framed(image: np.ndarray, size: tuple[int, ...], value: Any) -> np.ndarray:
    top, bottom, left, right = size
    if not any(size):
        return image
    h, w = image.shape[:2]
    out = np.empty((h + top + bottom, w + left + right, *image.shape[2:]), image.dtype)
    out[...] = np.asarray(value).astype(image.dtype)
    out[top : top + h, left : left + w] = image
    return out


def _pair(owner: str, size: Any) -> tuple[int, int]:
    sizes = (size, size) if np.ndim(size) == 0 else tuple(size)
    if len(sizes) != 2 or any(int(n) != n or n < 1 for n in sizes):
        raise ValueError(f"{owner}: output_size must be one or two integers >= 1, got {size!r}")
    return int(sizes[0]), int(sizes[1])


def _interpolation(owner: str, value: str | int) -> str:
    names = {"nearest": "nearest", "linear": "linear", 0: "nearest", 1: "linear"}
    if value not in names:
        raise ValueError(f"{owner}: interpolation must be 'linear' or 'nearest', got {value!r}")
    return names[value]


def _ascending(owner: str, values: Sequence[float]) -> tuple[float, float]:
    if len(values) != 2 or not 0 < values[0] <= values[1]:
        raise ValueError(f"{owner}: a range must be two positive numbers, ascending, got {tuple(values)}")
    return values[0], values[1]
