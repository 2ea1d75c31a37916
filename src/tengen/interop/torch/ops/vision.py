"""torchvision's operators, and embedding bags."""

from __future__ import annotations

from typing import Any

import numpy as np

import tengen.functional as F
from tengen.base.errors import ArgumentError
from tengen.interop.torch.registry import op
from tengen.tensor import Tensor


@op("nms", domain="torchvision")
def nms(boxes: Tensor, scores: Tensor, threshold: float) -> Tensor:
    """The boxes that are kept, best first. How many depends on the values."""
    if boxes.shape[0] == 0:
        return F.zeros((0,), "int64")
    return F.vision.nms(boxes, scores, float(threshold)).astype("int64")


@op("roi_align", domain="torchvision")
def roi_align(x: Tensor, rois: Tensor, scale: float, height: int, width: int, samples: int, aligned: bool) -> Tensor:
    """Regions of images, sampled and averaged. Where samples <= 0, each region has as many as its size asks for, which depends on values.

    Unlike `functional.roi_align`, a sample up to one pixel outside of the image counts as one at its border.
    """
    start = rois[:, 1:3] * float(scale) - (0.5 if aligned else 0.0)  # x, y
    size = (rois[:, 3:5] - rois[:, 1:3]) * float(scale)
    size = size if aligned else F.maximum(size, 1.0)
    bins, image = (height, width), rois[:, 0].astype("int64")
    if samples > 0:
        return _sampled(x, image, start, size, bins, (samples, samples))
    grids = [tuple(g) for g in np.maximum(np.ceil(size.numpy()[:, ::-1] / bins), 1).astype(int).tolist()]
    made: list[Any] = [None] * len(grids)
    for grid in set(grids):
        which = [i for i, g in enumerate(grids) if g == grid]
        at = Tensor(np.array(which, np.int64))
        found = _sampled(x, F.take(image, at, 0), F.take(start, at, 0), F.take(size, at, 0), bins, grid)
        for k, i in enumerate(which):
            made[i] = found[k]
    return F.stack(made, 0) if made else F.zeros((0, x.shape[1], height, width), x.dtype)


def _sampled(x: Tensor, image: Tensor, start: Tensor, size: Tensor, bins: tuple[int, int], grid: tuple[int, int]) -> Tensor:
    """(K, C, *bins): the means of grid[0] x grid[1] samples in each bin of K regions."""
    k, axes = image.shape[0], []
    for axis, (n, count) in enumerate(zip(bins, grid)):  # rows, then columns
        extent, column = x.shape[2 + axis], 1 - axis
        steps = Tensor(((np.arange(n * count) + 0.5) / (n * count)).astype(x.dtype.numpy))
        at = start[:, column].reshape(-1, 1) + size[:, column].reshape(-1, 1) * steps
        inside = F.logical_and(F.greater_equal(at, -1.0), F.less_equal(at, float(extent))).astype(x.dtype)
        at = F.clip(at, 0.0, float(extent - 1))
        low = F.minimum(F.floor(at).astype("int64"), extent - 1)
        part = (at - low.astype(x.dtype)) * inside
        axes.append([(low, inside - part), (F.minimum(low + 1, extent - 1), part)])
    total: Any = None
    for row, by_row in axes[0]:
        for column, by_column in axes[1]:
            found = x[image.reshape(-1, 1, 1), :, F.expand_dims(row, 2), F.expand_dims(column, 1)]  # (K, rows, columns, C)
            term = found * (F.expand_dims(by_row, 2) * F.expand_dims(by_column, 1)).reshape(k, *found.shape[1:3], 1)
            total = term if total is None else total + term
    parts = total.reshape(k, bins[0], grid[0], bins[1], grid[1], x.shape[1])
    return F.permute(F.mean(parts, (2, 4)), (0, 3, 1, 2))


@op("deform_conv2d", domain="torchvision")
def deform_conv2d(
    x: Tensor, weight: Tensor, offset: Tensor, mask: Tensor, bias: Tensor, sh: int, sw: int, ph: int, pw: int, dh: int, dw: int,
    groups: int, offset_groups: int, use_mask: bool,
) -> Tensor:  # fmt: skip
    """A convolution whose windows' pixels are moved. Errors: ArgumentError for several groups of offsets."""
    if offset_groups != 1:
        raise ArgumentError(f"deform_conv2d with {offset_groups} groups of offsets has no meaning here; 1 has")
    taps = weight.shape[2] * weight.shape[3]
    n, _, rows, columns = offset.shape
    mask = mask if use_mask else F.ones((n, taps, rows, columns), x.dtype)
    if groups > 1:
        weight = weight.reshape(groups, weight.shape[0] // groups, *weight.shape[1:])
    return F.deformable_conv2d(x, weight, offset, mask, bias.reshape(1, -1, 1, 1), (sh, sw), (ph, pw), (dh, dw), groups)


@op("_embedding_bag", "_embedding_bag_forward_only", wants=True)
def embedding_bag(
    weight: Tensor, index: Tensor, offsets: Tensor, by_frequency: bool = False, mode: int = 0, sparse: bool = False,
    weights: Tensor | None = None, include_last: bool = False, padding: int = -1, *, wanted: frozenset[int],
) -> tuple[Tensor | None, ...]:  # fmt: skip
    """Sums, means or largest of bags of rows. A bag begins at its offset; rows `padding` count as none; an empty bag gives 0.

    Errors: ArgumentError where the further outputs are used, which PyTorch's own gradient alone reads.
    """
    if wanted - {0}:
        raise ArgumentError("of _embedding_bag only the first output has a meaning here")
    count = offsets.shape[0] - int(include_last)
    bag = F.searchsorted(offsets[:count], F.arange(index.shape[0], dtype=offsets.dtype), right=True) - 1
    real = F.expand_dims(F.not_equal(index, padding) if padding >= 0 else F.full(index.shape, True, "bool"), 1)
    rows = F.take(weight, index, 0)
    rows = rows if weights is None else rows * weights.reshape(-1, 1)
    shape, at = (count, weight.shape[1]), F.broadcast_to(bag.reshape(-1, 1), rows.shape)
    sizes = F.scatter(F.zeros((count,), "int64"), 0, bag, real.astype("int64").reshape(-1), "add").reshape(-1, 1)
    if mode == 2:
        found = F.scatter(F.full(shape, -np.inf, weight.dtype), 0, at, F.where(real, rows, -np.inf), "max")
        return F.where(F.equal(sizes, 0), 0.0, found), None, None, None
    total = F.scatter(F.zeros(shape, weight.dtype), 0, at, F.where(real, rows, 0.0), "add")
    return (total if mode == 0 else total / F.maximum(sizes, 1).astype(total.dtype)), None, None, None
