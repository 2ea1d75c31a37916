"""`grid_sample` and `affine_grid` of volumes (N, C, D, H, W); those of images (N, C, H, W) are Tengen's own, which these hand them to."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

from tengen import functional as F
from tengen.base.errors import ArgumentError, ShapeError
from tengen.functional.vision import grid_sample as of_images
from tengen.ops.calls import all_with_line
from tengen.ops.widths import narrowed, widened
from tengen.tensor import Tensor


def affine_grid(theta: Tensor, size: Sequence[int], align_corners: bool | None = None) -> Tensor:
    """Where an affine map takes each pixel of a result, for `grid_sample`.

    Shapes: theta (N, 2, 3) and a size (N, C, H, W) -> (N, H, W, 2); (N, 3, 4) and (N, C, D, H, W) -> (N, D, H, W, 3)
    Errors: ShapeError for others

    >>> affine_grid(F.ones((1, 3, 4)), (1, 1, 1, 1, 1)).tolist()
    [[[[[1.0, 1.0, 1.0]]]]]
    """
    if len(size) != 5:
        return F.affine_grid(theta, size, bool(align_corners))
    n, _, *space = size
    if theta.shape != (n, 3, 4):
        raise ShapeError(f"affine_grid: theta of shape {theta.shape} for the size {tuple(size)}; help: ({n}, 3, 4)")
    axes = [_middles(extent, bool(align_corners), theta.dtype) for extent in reversed(space)]  # x, y, z
    spread = [F.broadcast_to(a.reshape([-1 if i == 2 - k else 1 for i in range(3)]), tuple(space)) for k, a in enumerate(axes)]
    places = F.stack([*spread, F.ones(tuple(space), theta.dtype)], -1).reshape((1, -1, 4))
    return F.matmul(places, F.swapaxes(theta, 1, 2)).reshape((n, *space, 3))


def _middles(n: int, align_corners: bool, dtype: Any) -> Tensor:
    """Coordinates in [-1, 1] of the middles of n pixels; of the corner pixels -1 and 1 with align_corners."""
    if align_corners:
        return F.linspace(-1.0, 1.0, n, dtype) if n > 1 else F.zeros((1,), dtype)
    return (F.arange(n, dtype=dtype) * 2.0 + 1.0) / n - 1.0


def grid_sample(
    input: Tensor, grid: Tensor, mode: str = "bilinear", padding_mode: str = "zeros", align_corners: bool | None = None
) -> Tensor:
    """An image or a volume read at places of a grid, whose coordinates go from -1 to 1, x first.

    Shapes: (N, C, H, W) and (N, h, w, 2) -> (N, C, h, w); (N, C, D, H, W) and (N, d, h, w, 3) -> (N, C, d, h, w)
    Args: mode: "bilinear" (of a volume the eight pixels around), "nearest", or "bicubic" of images alone. padding_mode: "zeros", "border" or
        "reflection". align_corners: -1 and 1 are the middles of the corner pixels, and not their edges.
    Gradient: to input and grid
    Errors: ShapeError for other shapes, ArgumentError for other words

    >>> grid_sample(F.ones((1, 1, 2, 2, 2)), F.zeros((1, 1, 1, 1, 3))).tolist()
    [[[[[1.0]]]]]
    """
    if input.ndim != 5:
        return of_images(input, grid, mode, padding_mode, bool(align_corners))
    if grid.ndim != 5 or grid.shape[-1] != 3 or grid.shape[0] != input.shape[0]:
        raise ShapeError(f"grid_sample: a grid of shape {grid.shape} for a volume {input.shape}; help: ({input.shape[0]}, D, H, W, 3)")
    if mode not in ("bilinear", "nearest") or padding_mode not in ("zeros", "border", "reflection"):
        what = f"mode={mode!r}, padding_mode={padding_mode!r} of a volume"
        raise ArgumentError(f"grid_sample: {what}; help: 'bilinear' or 'nearest'; 'zeros', 'border' or 'reflection'")
    x, where = widened(input), widened(grid)
    space = input.shape[2:]
    at = [_brought_in(_place(where[..., 2 - i], n, bool(align_corners)), n, padding_mode, bool(align_corners)) for i, n in enumerate(space)]
    taps = []  # for each axis (index, weight) of the pixels that are read
    for p in at:
        low = F.floor(p) if mode == "bilinear" else F.round(p)
        taps.append([(low, low + 1.0 - p), (low + 1.0, p - low)] if mode == "bilinear" else [(low, None)])
    return narrowed(_weighed(x, taps), input)


def _place(c: Tensor, n: int, align_corners: bool) -> Tensor:
    """A coordinate in [-1, 1] as a place among n pixels."""
    return (c + 1.0) * ((n - 1) / 2) if align_corners else ((c + 1.0) * n - 1.0) / 2


def _brought_in(p: Tensor, n: int, padding_mode: str, align_corners: bool) -> Tensor:
    """A place as `padding_mode` brings it among the pixels."""
    if padding_mode == "reflection":
        low, span = (0.0, n - 1.0) if align_corners else (-0.5, float(n))
        if span == 0:
            return p * 0.0
        p = F.abs(p - low)
        turns = F.floor(p.detach() / span)
        rest = p - turns * span
        p = F.where(F.equal(F.mod(turns, 2.0), 0.0), rest, span - rest) + low
    return p if padding_mode == "zeros" else F.clip(p, 0.0, n - 1.0)


def _weighed(x: Tensor, taps: list) -> Tensor:
    """The sum of the pixels at all combinations of taps, times their weights; those outside count as 0."""
    n, c, *space = x.shape
    flat, total = x.reshape((n, c, -1)), None
    for corner in product(*taps):
        index, weight, inside = 0, None, None
        for (i, w), extent in zip(corner, space):
            within = F.logical_and(i >= 0, i <= extent - 1)
            index = index * extent + F.clip(i.detach(), 0, extent - 1).astype("int64")
            inside = within if inside is None else F.logical_and(inside, within)
            weight = w if weight is None else weight * w
        shape = index.shape[1:]
        where = F.broadcast_to(index.reshape((n, 1, -1)), (n, c, index.size // n))
        picked = F.gather(flat, 2, where).reshape((n, c, *shape))
        factor = F.expand_dims(inside.astype(x.dtype) if weight is None else F.where(inside, weight, 0.0), 1)
        total = picked * factor if total is None else total + picked * factor
    return total


__all__ = ["affine_grid", "grid_sample"]
all_with_line(globals(), __all__)
