"""Transforms of samples, on NumPy arrays: images as height x width x channels (or height x width), as OpenCV holds them.

In: samples, which are items or tuples of items. Out: the same, changed. A `VisionTransform` is told by `order` what each item
of a sample is, and gives the image, its mask, its boxes and its coordinates the same treatment. Random ones draw from
`tengen.data.rng()`, so a sample's augmentation depends on seed, epoch and index alone.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from tengen.data.draws import rng, select

# What an item of a sample may be; any other name in an `order`, such as "image_category", is passed on unchanged.
KINDS = ("image", "coords", "boxes", "mask", "keypoints", "polygons")


class Transform(ABC):
    """The base of transforms: define `apply` for one sample.

    >>> class Double(Transform):
    ...     def apply(self, input): return input * 2
    >>> Double().apply_batch([1, 2])
    [2, 4]
    """

    @abstractmethod
    def apply(self, input: Any) -> Any:
        """The sample, changed."""

    def apply_batch(self, inputs: Sequence[Any]) -> list[Any]:
        """The samples of a batch, changed; each draws from a generator of its own."""
        out = []
        for i, sample in enumerate(inputs):
            select(i)
            out.append(self.apply(sample))
        return out


class PseudoTransform(Transform):
    """Changes nothing."""

    def apply(self, input: Any) -> Any:
        return input


class Compose(Transform):
    """Transforms one after the other.

    Args:
        transforms: the transforms.
        batch_compose: give each transform the whole batch, for transforms that mix samples.
        shuffle_indices: groups of positions (from 1, as in MegEngine) whose transforms run in a random order for each sample.
        order: the `order` that every vision transform in it takes.

    Errors:
        ValueError: positions outside of the list, or shuffling together with `batch_compose`.

    >>> Compose([CenterCrop(2), ToMode("CHW")]).apply(np.zeros((4, 4, 3))).shape
    (3, 2, 2)
    """

    def __init__(
        self,
        transforms: Sequence[Transform] = (),
        batch_compose: bool = False,
        shuffle_indices: Sequence[Sequence[int]] | None = None,
        *,
        order: Sequence[str] | None = None,
    ):
        self.transforms = list(transforms)
        self.batch_compose = batch_compose
        self.shuffle_indices = [list(group) for group in shuffle_indices or ()]
        if self.shuffle_indices and batch_compose:
            raise ValueError("Compose: shuffle_indices orders the transforms of each sample, so it excludes batch_compose")
        if any(not 1 <= i <= len(self.transforms) for group in self.shuffle_indices for i in group):
            raise ValueError(f"Compose: shuffle_indices must be from 1 to {len(self.transforms)}, got {shuffle_indices}")
        for t in self.transforms:
            if order is not None and isinstance(t, VisionTransform):
                t.order = t.check_order(order)

    def apply(self, input: Any) -> Any:
        sequence = list(self.transforms)
        for group in self.shuffle_indices:
            for at, source in zip(group, rng().permutation(group)):
                sequence[at - 1] = self.transforms[source - 1]
        for t in sequence:
            input = t.apply(input)
        return input

    def apply_batch(self, inputs: Sequence[Any]) -> list[Any]:
        if not self.batch_compose:
            return super().apply_batch(inputs)
        for t in self.transforms:
            inputs = t.apply_batch(inputs)
        return list(inputs)


class VisionTransform(Transform):
    """The base of image transforms: define `_apply_image`, and `_apply_mask`, `_apply_coords` where they apply.

    Args:
        order: what the items of a sample are: "image", "mask" (as an image, without interpolation), "coords" (N x 2, x then
            y), "boxes" (N x 4, corners x0 y0 x1 y1), "keypoints", "polygons"; other names, and items past the end of
            `order`, are passed on. Default: ("image",).

    Errors:
        ValueError: an order that is not a sequence of names, or a kind of item that this transform cannot follow.

    >>> image, boxes = np.zeros((4, 6, 3)), np.array([[1, 0, 2, 3]])
    >>> RandomHorizontalFlip(prob=1, order=("image", "boxes", "image_category")).apply((image, boxes, 7))[1:]
    (array([[4, 0, 5, 3]]), 7)
    """

    geometric = True  # False: only colours change, or the order of axes, and every item but the image is passed on

    def __init__(self, order: Sequence[str] | None = None):
        self.order = self.check_order(("image",) if order is None else order)

    def check_order(self, order: Sequence[str]) -> tuple[str, ...]:
        """`order` as a tuple, if this transform knows how to treat what it names."""
        if isinstance(order, str) or not all(isinstance(kind, str) for kind in order):
            raise ValueError(f"{type(self).__name__}: order must be a sequence of names, got {order!r}")
        for kind in order:
            own_boxes = type(self)._apply_boxes is not VisionTransform._apply_boxes
            needs = "_apply_coords" if kind == "boxes" and not own_boxes else f"_apply_{kind}"
            if self.geometric and kind in KINDS and not hasattr(self, needs):
                raise ValueError(f"{type(self).__name__} does not transform {kind!r}")
        return tuple(order)

    def apply(self, input: Any) -> Any:
        items = input if isinstance(input, tuple) else (input,)
        for kind, item in zip(self.order, items):
            if kind in ("image", "mask"):
                self.prepare(*np.shape(item)[:2])
                break
        out = [self._apply_item(kind, item) for kind, item in zip(self.order, items)]
        out.extend(items[len(self.order) :])
        return tuple(out) if isinstance(input, tuple) else out[0]

    def _apply_item(self, kind: str, item: Any) -> Any:
        method = getattr(self, f"_apply_{kind}", None)
        return item if method is None else method(item)

    def prepare(self, height: int, width: int) -> None:
        """Called once for a sample, with its image's size, before its items: draw here what all of them share."""

    def _apply_boxes(self, boxes: np.ndarray) -> np.ndarray:
        """Boxes follow their corners."""
        if not hasattr(self, "_apply_coords"):  # then it moves nothing, as `check_order` made sure
            return boxes
        boxes = np.asarray(boxes)
        corners = self._apply_coords(boxes[:, [0, 1, 2, 1, 0, 3, 2, 3]].reshape(-1, 2)).reshape(-1, 4, 2)
        return np.concatenate([corners.min(1), corners.max(1)], axis=1)


class ToMode(VisionTransform):
    """Height x width x channels to channels x height x width ("CHW"), or back ("HWC"). A grey image gains a channel axis."""

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


class Normalize(VisionTransform):
    """``(image - mean) / std`` in float32; `mean` and `std` are numbers, or one for each channel of the last axis."""

    geometric = False

    def __init__(self, mean: Any = 0.0, std: Any = 1.0, *, order: Sequence[str] | None = None):
        super().__init__(order)
        self.mean, self.std = np.asarray(mean, np.float32), np.asarray(std, np.float32)
        if (self.std == 0).any():
            raise ValueError("Normalize: std must not be 0")

    def _apply_image(self, image: np.ndarray) -> np.ndarray:
        return (np.asarray(image, np.float32) - self.mean) / self.std


class Pad(VisionTransform):
    """A frame of `value` around the image.

    Args:
        size: pixels on all sides; or (bottom, right); or (top, bottom, left, right).
        value: fills the image; a number, or one for each channel.
        mask_value: fills the mask.
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
    """

    def __init__(self, output_size: Any, interpolation: str | int = "linear", *, order: Sequence[str] | None = None):
        super().__init__(order)
        self.output_size = _pair("Resize", output_size)
        self.keeps_ratio = np.ndim(output_size) == 0
        self.interpolation = _interpolation("Resize", interpolation)

    def prepare(self, height: int, width: int) -> None:
        self._from = (height, width)
        if self.keeps_ratio:
            scale = self.output_size[0] / min(height, width)
            self._to = (max(1, int(height * scale + 0.5)), max(1, int(width * scale + 0.5)))
        else:
            self._to = self.output_size

    def _apply_image(self, image: np.ndarray) -> np.ndarray:
        return resize(image, self._to, self.interpolation)

    def _apply_mask(self, mask: np.ndarray) -> np.ndarray:
        return resize(mask, self._to, "nearest")

    def _apply_coords(self, coords: np.ndarray) -> np.ndarray:
        return coords * np.array([self._to[1] / self._from[1], self._to[0] / self._from[0]])


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
        self._window = ((height - h) // 2, (width - w) // 2, h, w)


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


class _Light(VisionTransform):
    """Draws `self._factor` from [max(0, 1 - value), 1 + value]; results are kept in 0 to 255 and in the image's dtype."""

    geometric = False

    def __init__(self, value: float = 0.0, *, order: Sequence[str] | None = None):
        super().__init__(order)
        if value < 0:
            raise ValueError(f"{type(self).__name__}: value must be >= 0, got {value}")
        self.value = value

    def prepare(self, height: int, width: int) -> None:
        self._factor = np.float32(rng().uniform(max(0.0, 1 - self.value), 1 + self.value))

    def _apply_image(self, image: np.ndarray) -> np.ndarray:
        if self.value == 0:
            return image
        return self._lit(image.astype(np.float32)).clip(0, 255).astype(image.dtype)

    def _lit(self, image: np.ndarray) -> np.ndarray:
        raise NotImplementedError  # each of them says how


class BrightnessTransform(_Light):
    """The image times a random factor from [max(0, 1 - value), 1 + value], for images of 0 to 255."""

    def _lit(self, image: np.ndarray) -> np.ndarray:
        return image * self._factor


class ContrastTransform(_Light):
    """The image's distance from its mean grey times a random factor from [max(0, 1 - value), 1 + value], for 0 to 255.

    Three channels are blue, green and red; grey is their luma by ITU-R BT.601.
    """

    def _lit(self, image: np.ndarray) -> np.ndarray:
        grey = image @ np.array([0.114, 0.587, 0.299], np.float32) if image.ndim == 3 and image.shape[2] == 3 else image
        return image * self._factor + grey.mean(dtype=np.float64).astype(np.float32) * (1 - self._factor)


def resize(image: np.ndarray, size: Sequence[int], interpolation: str = "linear") -> np.ndarray:
    """An image (height x width, and channels if any) in another size; integers are rounded to the nearest.

    A pixel is its centre: row i of the result lies at row ``(i + 0.5) * height / size[0] - 0.5``.

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
