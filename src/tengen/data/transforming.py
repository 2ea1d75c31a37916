"""The bases of transforms: of samples, and of images with what belongs to them. `transform.py` has their names for users.

In: samples, which are items or tuples of items. Out: the same, changed. A `VisionTransform` is told by `order` what each item
of a sample is, and gives the image, its mask, its boxes and its coordinates the same treatment.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from tengen.data.draws import rng, select

# What an item of a sample may be, and the ends of other names in an `order`, such as "image_category", whose items are passed on.
KINDS = ("image", "coords", "boxes", "mask", "keypoints", "polygons")
PASSED_ON = ("category", "info")


class UnknownKindError(ValueError, NotImplementedError):
    """A kind of item that a transform does not know."""


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
        ValueError: positions outside of the list, or shuffling together with `batch_compose`. TypeError: what is no transform.

    >>> from tengen.data.transform import CenterCrop, ToMode
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
        if odd := [t for t in self.transforms if not callable(getattr(t, "apply", None))]:
            raise TypeError(f"Compose: a {type(odd[0]).__name__} is no transform: it has no apply method")
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
            y), "boxes" (N x 4, corners x0 y0 x1 y1), "keypoints", "polygons"; items whose names end in "category" or "info", and those
            past the end of `order`, are passed on. Default: ("image",).

    Errors:
        ValueError: an order that is not a sequence of names. ValueError that is a NotImplementedError too: a kind of item that there
            is not, or that this transform cannot follow.

    >>> from tengen.data.transform import RandomHorizontalFlip
    >>> image, boxes = np.zeros((4, 6, 3)), np.array([[1, 0, 2, 3]])
    >>> RandomHorizontalFlip(prob=1, order=("image", "boxes", "image_category")).apply((image, boxes, 7))[1:]
    (array([[4, 0, 5, 3]]), 7)
    """

    geometric = True  # False: only colours change, or the order of axes, and every item but the image is passed on

    def __init__(self, order: Sequence[str] | None = None):
        self.order = self.check_order(("image",) if order is None else order)

    def check_order(self, order: Sequence[str]) -> tuple[str, ...]:
        """`order` as a tuple, if this transform knows how to treat what it names.

        Errors: ValueError for what is no sequence of names, UnknownKindError (a ValueError) for other names
        """
        if isinstance(order, str) or not all(isinstance(kind, str) for kind in order):
            raise ValueError(f"{type(self).__name__}: order must be a sequence of names, got {order!r}")
        for kind in order:
            own_boxes = type(self)._apply_boxes is not VisionTransform._apply_boxes
            needs = "_apply_coords" if kind == "boxes" and not own_boxes else f"_apply_{kind}"
            if self.geometric and kind in KINDS and not hasattr(self, needs):
                raise UnknownKindError(f"{type(self).__name__} does not transform {kind!r}")
            if kind not in KINDS and not kind.endswith(PASSED_ON) and not hasattr(self, needs):
                what = f"{type(self).__name__}: order names {kind!r}, which is none of {', '.join(KINDS)}"
                raise UnknownKindError(f"{what}; help: names that end in category or info are passed on, as 'image_category' is")
        return tuple(order)

    def apply(self, input: Any) -> Any:
        items = input if isinstance(input, tuple) else (input,)
        for kind, item in zip(self.order, items):
            if kind in ("image", "mask"):
                if len(shape := np.shape(item)) < 2:
                    raise ValueError(f"{type(self).__name__}: {kind} must have rows and columns, got a {type(item).__name__} of shape {shape}")
                self.prepare(*shape[:2])
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
