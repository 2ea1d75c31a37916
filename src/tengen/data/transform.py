"""Transforms of samples, on NumPy arrays: images as height x width x channels (or height x width), as OpenCV holds them.

In: samples, which are items or tuples of items. Out: the same, changed. A `VisionTransform` is told by `order` what each item
of a sample is, and gives the image, its mask, its boxes and its coordinates the same treatment. Random ones draw from
`tengen.data.rng()`, so a sample's augmentation depends on seed, epoch and index alone.
"""

from tengen.data.colour import (
    BrightnessTransform,
    ColorJitter,
    ContrastTransform,
    GaussianNoise,
    HueTransform,
    Lighting,
    Normalize,
    SaturationTransform,
    TorchTransformCompose,
)
from tengen.data.geometry import (
    CenterCrop,
    Pad,
    RandomCrop,
    RandomHorizontalFlip,
    RandomResize,
    RandomResizedCrop,
    RandomVerticalFlip,
    Resize,
    ShortestEdgeResize,
    ToMode,
    resize,
)
from tengen.data.transforming import Compose, PseudoTransform, Transform, VisionTransform

__all__ = [
    "BrightnessTransform", "CenterCrop", "ColorJitter", "Compose", "ContrastTransform", "GaussianNoise", "HueTransform",
    "Lighting", "Normalize", "Pad", "PseudoTransform", "RandomCrop", "RandomHorizontalFlip", "RandomResize",
    "RandomResizedCrop", "RandomVerticalFlip", "Resize", "SaturationTransform", "ShortestEdgeResize", "ToMode",
    "TorchTransformCompose", "Transform", "VisionTransform", "resize",
]  # fmt: skip
