"""Changes of images by shapes, as modules under MegEngine's names: `Dilation` by a structuring element, `FillPoly` of polygons."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tengen import functional as F
from tengen.base.errors import ShapeError
from tengen.module.augment import images_of
from tengen.module.settings import Configured, counts, one_of
from tengen.ops.define import REGISTRY
from tengen.tensor import Tensor


class Dilation(Configured):
    """The largest pixel among those that a structuring element covers.

    Args:
        iterations: how often. border_type: what lies outside: "BORDER_CONSTANT" (border_value), "BORDER_REPLICATE", "BORDER_REFLECT",
            "BORDER_REFLECT_101" or "BORDER_WRAP". border_value: as MegEngine's it counts like a pixel; MegEngine has infinity in the
            place of it in all channels but the first.

    It is called with images (N, C, H, W) and the element (KH, KW): where it is not 0 it covers pixels, around its middle (KH // 2, KW // 2).

    Errors: ShapeError for an element that is no matrix. An element that covers nothing gives the least number

    >>> from tengen import Tensor, functional as F, module as M
    >>> M.Dilation()(Tensor([[[[0.0, 0.0, 0.0], [0.0, 0.0, 5.0], [0.0, 0.0, 0.0]]]]), F.ones((1, 3))).tolist()
    [[[[0.0, 0.0, 0.0], [0.0, 5.0, 5.0], [0.0, 0.0, 0.0]]]]
    """

    _MODES = {
        "BORDER_CONSTANT": "constant", "BORDER_REPLICATE": "edge", "BORDER_REFLECT": "symmetric", "BORDER_REFLECT_101": "reflect",
        "BORDER_WRAP": "wrap",
    }  # fmt: skip
    _checked = {**counts("iterations"), "border_type": one_of("border_type", *_MODES)}

    def __init__(self, iterations: int = 1, border_type: str = "BORDER_CONSTANT", border_value: float = 0.0):
        super().__init__()
        self.iterations, self.border_type, self.border_value = iterations, border_type, border_value

    def forward(self, inp: Tensor, kernel: Tensor) -> Tensor:
        h, w = images_of(self, inp).shape[2:]
        if kernel.ndim != 2 or not kernel.size:
            raise ShapeError(f"Dilation: kernel has shape {kernel.shape}; help: a matrix (KH, KW)")
        (kh, kw), least = kernel.shape, _least(inp)
        covers = REGISTRY["not_equal"](kernel, 0)
        for _ in range(self.iterations):
            x = _around(inp, (kh // 2, (kh - 1) // 2), (kw // 2, (kw - 1) // 2), self._MODES[self.border_type], self.border_value)
            found = None
            for i in range(kh):
                for j in range(kw):
                    part = REGISTRY["where"](covers[i, j], x[:, :, i : i + h, j : j + w], least)
                    found = part if found is None else REGISTRY["maximum"](found, part)
            inp = found
        return inp


def _least(x: Tensor) -> Tensor:
    """The least number of a dtype."""
    d = x.dtype
    return F.full((), -float("inf") if d.is_float else bool(0) if d.kind == "b" else int(np.iinfo(d.numpy).min), d)


def _around(x: Tensor, rows: tuple[int, int], columns: tuple[int, int], mode: str, value: float) -> Tensor:
    """Images with more rows above and below, and more columns on both sides."""
    if mode == "constant":
        return F.pad(x, ((0, 0), (0, 0), rows, columns), constant_value=value)
    for axis, widths in ((2, rows), (3, columns)):
        x = F.take(x, Tensor(np.pad(np.arange(x.shape[axis]), widths, mode)), axis)
    return x


class FillPoly(Configured):
    """Paints polygons into images: their insides by the even-odd rule, and their outlines.

    It is called with images (N, C, H, W), polygons, a list of (K, 2) integers x and y each, and a color (C,), a number for each channel. All
    images are painted alike; what lies outside of them is cut.

    Errors: ShapeError for polygons and colors of other shapes
    Numerics: an outline's pixels are those nearest to the line between two points, a step of one pixel along its longer direction at a
        time, halves rounded up

    >>> from tengen import Tensor, functional as F, module as M
    >>> out = M.FillPoly()(F.zeros((1, 1, 4, 4)), [Tensor([[0, 0], [3, 0], [3, 3]])], Tensor([9.0]))
    >>> out[0, 0].tolist()
    [[9.0, 9.0, 9.0, 9.0], [0.0, 9.0, 9.0, 9.0], [0.0, 0.0, 9.0, 9.0], [0.0, 0.0, 0.0, 9.0]]
    """

    def forward(self, img: Tensor, pts: Sequence[Tensor], color: Tensor) -> Tensor:
        _, c, h, w = images_of(self, img).shape
        if color.shape != (c,):
            raise ShapeError(f"FillPoly: color has shape {color.shape}; help: ({c},) is expected, a number for each channel")
        if bad := [p.shape for p in pts if p.ndim != 2 or p.shape[1] != 2 or not p.shape[0]]:
            raise ShapeError(f"FillPoly: polygons have shapes {bad}; help: (K, 2), x and y of each point")
        x, y = F.arange(w).reshape(1, w, 1), F.arange(h).reshape(h, 1, 1)
        painted = None
        for polygon in pts:
            inside = _covered(x, y, polygon.astype("float32"))
            painted = inside if painted is None else F.logical_or(painted, inside)
        return img if painted is None else F.where(painted, color.astype(img.dtype).reshape(1, c, 1, 1), img)


def _covered(x: Tensor, y: Tensor, points: Tensor) -> Tensor:
    """Which pixels (H, W) a polygon covers: its edges are the last axis."""
    x1, y1 = points[:, 0], points[:, 1]
    x0, y0 = F.roll(x1, 1, 0), F.roll(y1, 1, 0)
    dx, dy = x1 - x0, y1 - y0
    crosses = F.logical_and(F.minimum(y0, y1) <= y, y < F.maximum(y0, y1))
    right = (x - x0) * F.abs(dy) > (y - y0) * dx * F.sign(dy)
    inside = F.sum(F.logical_and(crosses, right).astype("int32"), -1) % 2 == 1
    long = F.maximum(F.maximum(F.abs(dx), F.abs(dy)), 1.0)
    step = F.where(F.abs(dx) >= F.abs(dy), (x - x0) * F.sign(dx), (y - y0) * F.sign(dy))  # along the longer direction
    on = F.logical_and(F.floor(x0 + 0.5 + step * dx / long) == x, F.floor(y0 + 0.5 + step * dy / long) == y)
    return F.logical_or(inside, F.any(F.logical_and(on, F.logical_and(step >= 0, step <= long)), -1))
