"""Images enlarged, made smaller and read at other places."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tengen.functional as F
from tengen.base.errors import ArgumentError
from tengen.functional import volumes
from tengen.functional.resized import cubic, linear, nearest
from tengen.interop.torch.registry import op
from tengen.tensor import Tensor

for rank in (1, 2, 3):
    op(f"upsample_nearest{rank}d.vec")(nearest("nearest"))
    op(f"_upsample_nearest_exact{rank}d.vec")(nearest("nearest-exact"))
    op(f"upsample_nearest{rank}d")(lambda x, size, *scales, f=nearest("nearest"): _by_scales(f, x, size, scales))
    op(f"_upsample_nearest_exact{rank}d")(lambda x, size, *scales, f=nearest("nearest-exact"): _by_scales(f, x, size, scales))


def _by_scales(f: Any, x: Tensor, size: Any, scales: Sequence[Any], *more: Any) -> Tensor:
    """A call with both extents and factors, of which the factors decide."""
    given = [s for s in scales if s is not None]
    return f(x, None, *more, given) if len(given) == x.ndim - 2 else f(x, size, *more, None)


for name in ("upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d"):
    op(f"{name}.vec")(linear)
    op(name)(lambda x, size, align, *scales: _by_scales(linear, x, size, scales, align))


op("upsample_bicubic2d.vec")(cubic)
op("upsample_bicubic2d")(lambda x, size, align, *scales: _by_scales(cubic, x, size, scales, align))


def _smoothed(mode: str) -> Any:
    """Made smaller with a filter as wide as the step between pixels (`antialias=True`)."""

    def resized(x: Tensor, size: Any, align_corners: bool, factors: Sequence[float] | None = None) -> Tensor:
        extents = zip(x.shape[2:], factors or ())
        if not all(isinstance(n, int) and float(n * f).is_integer() for n, f in extents):
            raise ArgumentError(f"factors {list(factors or ())} of {tuple(x.shape)} with antialias, which are no whole extents; help: size=")
        return F.interpolate(x, size, factors, mode, align_corners, antialias=True)

    return resized


for name in ("bilinear", "bicubic"):
    op(f"_upsample_{name}2d_aa.vec")(_smoothed(name))
    op(f"_upsample_{name}2d_aa")(lambda x, size, align, *scales, f=_smoothed(name): _by_scales(f, x, size, scales, align))


@op("grid_sampler_2d", "grid_sampler_3d", "grid_sampler")
def grid_sampler(x: Tensor, grid: Tensor, mode: int, padding: int, align_corners: bool) -> Tensor:
    """Images, or volumes, read at the places of a grid."""
    words = ("bilinear", "nearest", "bicubic")[mode], ("zeros", "border", "reflection")[padding]
    return volumes.grid_sample(x, grid, *words, align_corners)


op("affine_grid_generator")(lambda theta, size, align: volumes.affine_grid(theta, tuple(size), align))
