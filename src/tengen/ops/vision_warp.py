"""Images read at computed coordinates: `remap`, affine and perspective warps, and PyTorch's grids.

Each op computes coordinates in pixels, (x, y) with 0 in the middle of the first pixel, and hands them to `sample`. Gradients reach
the image, and the map, the matrix or the grid through the coordinates.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from tengen.base.dtype import DType, int64
from tengen.base.errors import DTypeError, ShapeError
from tengen.ir.types import Dim, TensorType
from tengen.loops.lang import as_int
from tengen.ops.attributes import Extent, Shape
from tengen.ops.define import Case, composite, differ
from tengen.ops.elementwise import add, astype, div, fma, mul, sub, where
from tengen.ops.indexing import outside_range
from tengen.ops.joining import stack
from tengen.ops.logic import equal, less
from tengen.ops.reduce import extent, sum_
from tengen.ops.shape import permute, reshape, strided_slice
from tengen.ops.vision_coords import as_pixels, as_pixels_read, computed_in, grid, iota, tap_by_tap, taps_at, weights_for
from tengen.ops.vision_resize import np_cubic
from tengen.ops.vision_samples import linear_samples
from tengen.ops.vision_taps import tap_sum
from tengen.ops.widths import rounded_once

if TYPE_CHECKING:
    from tengen.ops.rules import Canon
    from tengen.tensor import Tensor

MOST_SAMPLED_CHANNELS = 4  # for more, where their taps lie is better computed once
BORDERS = ("replicate", "constant", "reflect", "reflect_101", "wrap")


def sample(x: Tensor, image: Tensor | None, cx: Tensor, cy: Tensor, mode: str, value: float, interp: str) -> Tensor:
    """The image (N, C, H, W) at coordinates cx, cy (M, 1, PH, PW): (M, C, PH, PW) of its dtype."""
    n, c, h, w = x.shape
    read = as_pixels_read(x)
    zeros = mode == "constant" and not value
    few = 0 < (as_int(c) or 0) <= MOST_SAMPLED_CHANNELS
    if few and interp == "linear" and (zeros or mode == "replicate") and weights_for(read, cx) is cx:
        return as_pixels(linear_samples(reshape(read, (n, c, h * w)), image, cy, cx, (h, w), zeros), x.dtype)
    if interp == "cubic":
        cx, cy = (reshape(a, (a.shape[0], *a.shape[2:])) for a in (cx, cy))
    taps = [taps_at(cy, h, mode, interp), taps_at(cx, w, mode, interp)]
    index, weight = grid(taps, [h, w]) if interp == "cubic" else tap_by_tap(taps, [h, w], mode != "constant")
    weight = weights_for(read, weight)
    y = tap_sum(reshape(read, (n, c, h * w)), image, index, weight)
    if mode == "constant" and value:
        border = sum_(where(less(index, 0), weight, 0.0), 1, True)
        y = fma(border, value, y)
    return as_pixels(y, x.dtype)


def _check_image(x: TensorType, name: str = "an image (N, C, H, W)") -> None:
    if x.ndim != 4:
        raise ShapeError(f"takes {name}, got {x}")


def _check_coordinates(t: TensorType, what: str) -> None:
    if not t.dtype.is_float:
        raise DTypeError(f"{what} must be floats, got {t}; help: cast with .astype('float32')")


def _check_pixels(x: TensorType, size: Sequence[Dim]) -> None:
    if any(as_int(d) == 0 for d in x.shape[2:]) and all(as_int(d) != 0 for d in (*x.shape[:2], *size)):
        raise ShapeError(f"an image without pixels, {x}, cannot be read")


def _places_for(what: str) -> Canon:
    """The rule `canon` of an op that reads images (N, C, H, W) at places (N, PH, PW, 2): it checks both."""

    def canon(types: Sequence[Any], /, **attrs: Any) -> dict[str, Any]:
        x, at = types
        _check_image(x)
        _check_coordinates(at, what)
        if at.ndim != 4 or as_int(at.shape[3]) != 2 or differ(at.shape[0], x.shape[0]):
            raise ShapeError(f"takes {what} (N, PH, PW, 2) with one image for each of {x}, got {at}")
        _check_pixels(x, at.shape[1:3])
        return attrs

    return canon


def _component(t: Tensor, i: int) -> Tensor:
    """t[:, None, ..., i]."""
    lead = t.ndim - 1
    return reshape(strided_slice(t, (0,) * lead + (i,), (*t.shape[:-1], 1), (1,) * t.ndim), (t.shape[0], 1, *t.shape[1:-1]))


# ---- a map -----------------------------------------------------------------------------------------------------------


@composite(functional="vision nn", own=(1,))
def remap(
    inp: Tensor,
    map_xy: Tensor,
    border_mode: Literal["replicate", "constant", "reflect", "reflect_101", "wrap"] = "replicate",
    scalar: float = 0.0,
    interp_mode: Literal["linear", "nearest", "cubic"] = "linear",
) -> Tensor:
    """Images read at the places that a map names: out[n, c, i, j] = inp[n, c] at (x, y) = map_xy[n, i, j].

    Shapes:   inp (N, C, H, W), map_xy (N, PH, PW, 2) -> (N, C, PH, PW)
    Args:
        map_xy: floats, in pixels: (0, 0) is the middle of the first pixel, x goes along W.
        border_mode: what lies outside of an image abcd: "replicate" aaa|abcd|ddd, "reflect" cba|abcd|dcb, "reflect_101"
            dcb|abcd|cba, "wrap" bcd|abcd|abc, "constant" `scalar`.
        interp_mode: "linear" (the four pixels around), "nearest" (halves to even), "cubic" (sixteen; Keys, a = -0.75).
    Returns:  inp's dtype; integers of up to 16 bits are computed in float32 and rounded, halves to even
    Numerics: a NaN among the coordinates gives NaN (0 in integers); an infinite one is border, and NaN where borders repeat
    Gradient: of the image and, but for "nearest", of the map

    >>> from tengen import Tensor, functional as F
    >>> F.vision.remap(Tensor([[[[1.0, 2.0]]]]), Tensor([[[[0.5, 0.0], [1.0, 0.0], [3.0, 0.0]]]])).tolist()
    [[[[1.5, 2.0, 2.0]]]]
    """
    at = astype(map_xy, computed_in(map_xy.dtype, inp.dtype))
    return sample(inp, None, _component(at, 0), _component(at, 1), border_mode, scalar, interp_mode)


remap.canon(_places_for("a map"))
remap.known(lambda arrays, **attrs: {2})  # the coordinates of a place, as many as its gradient joins


# ---- matrices --------------------------------------------------------------------------------------------------------


def _pixel_grid(size: Any, d: DType) -> tuple[Tensor, Tensor]:
    """The columns (1, 1, 1, PW) and rows (1, 1, PH, 1) of an image, as floats."""
    rows, columns = (astype(iota(n), d) for n in size)
    return reshape(columns, (1, 1, 1, size[1])), reshape(rows, (1, 1, size[0], 1))


def _linear_form(mat: Tensor, row: int, u: Tensor, v: Tensor) -> Tensor:
    """mat[:, row] applied to (u, v, 1): fma(m0, u, fma(m1, v, m2))."""
    ones = (1,) * (u.ndim - 1)
    m = [reshape(strided_slice(mat, (0, row, i), (mat.shape[0], 1, 1), (1, 1, 1)), (mat.shape[0], *ones)) for i in range(3)]
    return fma(m[0], u, fma(m[1], v, m[2]))


def _channels_first(x: Tensor, layout: str) -> Tensor:
    return permute(x, (0, 3, 1, 2)) if layout == "NHWC" else x


def _channels_back(x: Tensor, layout: str) -> Tensor:
    return permute(x, (0, 2, 3, 1)) if layout == "NHWC" else x


def _check_warp(types, rows: int, out_shape, layout: str) -> tuple[Dim, Dim]:
    x, mat, *rest = types
    _check_image(x, f"an image ({', '.join(layout)})")
    _check_coordinates(mat, "a matrix")
    images = x.shape[0] if not rest or rest[0] is None else rest[0].shape[0] if rest[0].ndim == 1 else None
    if images is None or (rest and rest[0] is not None and not rest[0].dtype.is_int):
        raise ShapeError(f"mat_idx must be a vector of integers, got {rest[0]}")
    if mat.ndim != 3 or tuple(mat.shape[1:]) != (rows, 3) or differ(mat.shape[0], images):
        raise ShapeError(f"takes matrices ({images}, {rows}, 3), one for each result, got {mat}")
    size = (out_shape[0],) * 2 if len(out_shape) == 1 else tuple(out_shape)
    if len(size) != 2:
        raise ShapeError(f"out_shape={tuple(out_shape)} must be the two extents (PH, PW) of the result")
    n, c, h, w = (x.shape[0], x.shape[3], *x.shape[1:3]) if layout == "NHWC" else x.shape
    _check_pixels(TensorType((images, c, h, w), x.dtype), size)
    return size


@composite(functional="vision nn", own=(1,))
def warp_affine(
    inp: Tensor,
    mat: Tensor,
    out_shape: Shape,
    border_mode: Literal["replicate", "constant", "reflect", "reflect_101", "wrap"] = "replicate",
    border_val: float = 0.0,
    format: Literal["NHWC", "NCHW"] = "NHWC",
    interp_mode: Literal["linear", "nearest", "cubic"] = "linear",
) -> Tensor:
    """Images under affine maps: the result at row i and column j is the image at (x, y) = mat (j, i, 1).

    Shapes:   inp (N, H, W, C), mat (N, 2, 3) -> (N, *out_shape, C); with format="NCHW" (N, C, H, W) -> (N, C, *out_shape)
    Args:     as in `remap`
    Numerics: x = fma(m0, j, fma(m1, i, m2)), exact to that; MegEngine's rounds coordinates of NHWC to 1/32 of a pixel

    >>> from tengen import Tensor, functional as F
    >>> x = Tensor([[[[1.0, 2.0, 4.0]]]])
    >>> F.vision.warp_affine(x, Tensor([[[1.0, 0.0, 0.5], [0.0, 1.0, 0.0]]]), (1, 2), format="NCHW").tolist()
    [[[[1.5, 3.0]]]]
    """
    d = computed_in(mat.dtype, inp.dtype)
    u, v = _pixel_grid(out_shape, d)
    m = astype(mat, d)
    cx, cy = (_linear_form(m, row, u, v) for row in range(2))
    y = sample(_channels_first(inp, format), None, cx, cy, border_mode, border_val, interp_mode)
    return _channels_back(y, format)


@warp_affine.canon
def _(types, out_shape, format, **attrs):
    return {**attrs, "format": format, "out_shape": _check_warp(types, 2, out_shape, format)}


@composite(functional="vision nn", own=(1, 2))
def warp_perspective(
    inp: Tensor,
    mat: Tensor,
    out_shape: Shape,
    mat_idx: Tensor | None = None,
    border_mode: Literal["replicate", "constant", "reflect", "reflect_101", "wrap"] = "replicate",
    border_val: float = 0.0,
    format: Literal["NHWC", "NCHW"] = "NCHW",
    interp_mode: Literal["linear", "nearest", "cubic"] = "linear",
) -> Tensor:
    """Images under perspective maps: the result at row i and column j is the image at (x / z, y / z) with (x, y, z) = mat (j, i, 1).

    Shapes:   inp (N, C, H, W), mat (M, 3, 3), mat_idx (M) -> (M, C, *out_shape); with format="NHWC" channels come last
    Args:     mat_idx: which image each matrix is for; None: M = N, each for its own. Others as in `remap`
    Errors:   IndexOutOfRange for an image that there is not

    >>> from tengen import Tensor, functional as F
    >>> x, shift = Tensor([[[[1.0, 2.0, 4.0]]]]), Tensor([[[1.0, 0.0, 1.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]])
    >>> F.vision.warp_perspective(x, shift, (1, 2)).tolist()
    [[[[2.0, 4.0]]]]
    """
    d = computed_in(mat.dtype, inp.dtype)
    u, v = _pixel_grid(out_shape, d)
    m = astype(mat, d)
    x, y, z = (_linear_form(m, row, u, v) for row in range(3))
    out = sample(_channels_first(inp, format), mat_idx, div(x, z), div(y, z), border_mode, border_val, interp_mode)
    return _channels_back(out, format)


@warp_perspective.canon
def _(types, out_shape, format, **attrs):
    return {**attrs, "format": format, "out_shape": _check_warp(types, 3, out_shape, format)}


@warp_perspective.check
def _(inputs, **attrs):
    return () if inputs[2] is None else outside_range("warp_perspective", inputs[2], inputs[0].shape[0], 0)


# ---- PyTorch's grids -------------------------------------------------------------------------------------------------

_PADDINGS = {"zeros": "constant", "border": "replicate"}


def _unnormalized(c: Tensor, n: Dim, align_corners: bool) -> Tensor:
    """Coordinates in [-1, 1] as pixels: (c + 1) (n - 1) / 2, or ((c + 1) n - 1) / 2."""
    if align_corners:
        return mul(add(c, 1.0), mul(astype(extent(n - 1, int64), c.dtype), 0.5))
    return mul(fma(add(c, 1.0), astype(extent(n, int64), c.dtype), -1.0), 0.5)


@composite(functional="vision nn", own=(1,))
def grid_sample(
    inp: Tensor,
    grid: Tensor,
    mode: Literal["bilinear", "nearest", "bicubic"] = "bilinear",
    padding_mode: Literal["zeros", "border", "reflection"] = "zeros",
    align_corners: bool = False,
) -> Tensor:
    """Images read at the places of a grid, as PyTorch's: (-1, -1) and (1, 1) are an image's corners.

    Shapes:   inp (N, C, H, W), grid (N, PH, PW, 2) of (x, y) -> (N, C, PH, PW)
    Args:
        mode: "bilinear", "nearest" (halves to even) or "bicubic" (Keys, a = -0.75).
        padding_mode: outside of the image "zeros", the nearest pixel ("border"), or the image mirrored ("reflection").
        align_corners: True: corners are the middles of the corner pixels; False: their outer edges.
    Numerics: a NaN in the grid counts as -1, as in PyTorch
    Gradient: of the image and, but for "nearest", of the grid

    >>> from tengen import Tensor, functional as F
    >>> F.vision.grid_sample(Tensor([[[[1.0, 3.0]]]]), Tensor([[[[0.0, 0.0], [-0.5, 0.0], [9.0, 0.0]]]])).tolist()
    [[[[2.0, 1.0, 0.0]]]]
    """
    at = astype(grid, computed_in(grid.dtype, inp.dtype))
    at = where(equal(at, at), at, -1.0)
    border = _PADDINGS.get(padding_mode, "reflect_101" if align_corners else "reflect")
    cx, cy = (_unnormalized(_component(at, i), inp.shape[3 - i], align_corners) for i in (0, 1))
    return sample(inp, None, cx, cy, border, 0.0, {"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode))


grid_sample.canon(_places_for("a grid"))
grid_sample.known(lambda arrays, **attrs: {2})


@composite(functional="vision nn")
@rounded_once
def affine_grid(theta: Tensor, size: Sequence[Extent], align_corners: bool = False) -> Tensor:
    """The grid of `grid_sample` for affine maps, as PyTorch's: grid[n, i, j] = theta[n] (x, y, 1), where (x, y) is the place of row i and
    column j in the result.

    Shapes:   theta (N, 2, 3), size (N, C, PH, PW) -> (N, PH, PW, 2)

    >>> from tengen import Tensor, functional as F
    >>> F.vision.affine_grid(Tensor([[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]]), (1, 1, 1, 2)).tolist()
    [[[[-0.5, 0.0], [0.5, 0.0]]]]
    """
    d = theta.dtype
    axes = []
    for n in size[2:]:
        many = extent(n, int64)
        twice = sub(mul(iota(n), 2), sub(many, 1))  # 2 i - (n - 1): the place times n, or times n - 1
        lower = (many if as_int(n) == 1 else sub(many, 1)) if align_corners else many
        axes.append(div(astype(twice, d), astype(lower, d)))
    u, v = reshape(axes[1], (1, 1, size[3])), reshape(axes[0], (1, size[2], 1))
    return stack([_linear_form(theta, row, u, v) for row in range(2)], 3)


@affine_grid.canon
def _(types, size, align_corners):
    theta = types[0]
    _check_coordinates(theta, "theta")
    if len(size) != 4 or theta.ndim != 3 or tuple(theta.shape[1:]) != (2, 3) or as_int(size[0]) not in (None, as_int(theta.shape[0])):
        raise ShapeError(f"takes theta (N, 2, 3) and a size (N, C, PH, PW), got {theta} and {tuple(size)}; volumes have no grid here")
    return {"size": tuple(size), "align_corners": align_corners}


# ---- references and samples ------------------------------------------------------------------------------------------


def _np_border(i, n, mode):
    """One pixel number brought into the image by walking, None where it is constant."""
    if mode == "constant":
        return i if 0 <= i < n else None
    if mode == "replicate":
        return min(max(i, 0), n - 1)
    if mode == "wrap":
        return i % n
    while not 0 <= i < n:
        i = -i - (mode == "reflect") if i < 0 else 2 * n - 1 - i - (mode == "reflect_101")
        if n == 1:
            return 0
    return i


def _np_kernel(interp, x):
    """The weight of a pixel at distance x."""
    return max(0.0, 1 - abs(x)) if interp == "linear" else float(np_cubic(np.float64(x)))


def _np_sample(x, image, cx, cy, mode="replicate", value=0.0, interp="linear"):
    """x (N, C, H, W) at coordinates (M, PH, PW), pixel by pixel."""
    out = np.zeros((len(cx), x.shape[1], *cx.shape[1:]))
    for m, i, j in np.ndindex(*cx.shape):
        img = x[m if image is None else image[m]].astype(np.float64)
        a, b = cx[m, i, j], cy[m, i, j]
        if interp == "nearest":
            near = [(int(np.round(b)), int(np.round(a)), 1.0)]
        else:
            r = 1 if interp == "linear" else 2
            rows, columns = (range(int(np.floor(c)) - r + 1, int(np.floor(c)) + r + 1) for c in (b, a))
            near = [(p, q, _np_kernel(interp, b - p) * _np_kernel(interp, a - q)) for p in rows for q in columns]
        for p, q, weight in near:
            p, q = _np_border(p, x.shape[2], mode), _np_border(q, x.shape[3], mode)
            out[m, :, i, j] += weight * (value if p is None or q is None else img[:, p, q])
    if x.dtype.kind == "f":
        return out
    return np.clip(np.round(out), np.iinfo(x.dtype).min, np.iinfo(x.dtype).max).astype(x.dtype)


def _np_remap(x, map_xy, border_mode="replicate", scalar=0.0, interp_mode="linear"):
    return _np_sample(x, None, map_xy[..., 0], map_xy[..., 1], border_mode, scalar, interp_mode)


def _np_warp(x, mat, image, out_shape, mode, value, layout, interp):
    x = np.moveaxis(x, 3, 1) if layout == "NHWC" else x
    i, j = np.mgrid[: out_shape[0], : out_shape[1]]
    p = np.einsum("nrk,kij->nrij", mat, np.stack([j, i, np.ones_like(i)]))
    z = p[:, 2] if mat.shape[1] == 3 else 1
    out = _np_sample(x, image, p[:, 0] / z, p[:, 1] / z, mode, value, interp)
    return np.moveaxis(out, 1, 3) if layout == "NHWC" else out


def _np_grid_sample(x, grid, mode="bilinear", padding_mode="zeros", align_corners=False):
    c = [(grid[..., i] + 1) / 2 * (x.shape[3 - i] - 1) if align_corners else ((grid[..., i] + 1) * x.shape[3 - i] - 1) / 2 for i in (0, 1)]
    border = _PADDINGS.get(padding_mode, "reflect_101" if align_corners else "reflect")
    return _np_sample(x, None, *c, border, 0.0, {"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode))


def _np_affine_grid(theta, size, align_corners=False):
    place = lambda n: np.linspace(-1, 1, n) if align_corners and n > 1 else (np.arange(n) * 2 + 1) / n - 1
    v, u = np.meshgrid(place(size[2]), place(size[3]), indexing="ij")
    return np.einsum("nrk,kij->nijr", theta, np.stack([u, v, np.ones_like(u)]))


remap.reference(_np_remap)
warp_affine.reference(
    lambda x, mat, out_shape, border_mode="replicate", border_val=0.0, format="NHWC", interp_mode="linear": _np_warp(
        x, mat, None, out_shape, border_mode, border_val, format, interp_mode
    )
)
warp_perspective.reference(
    lambda x, mat, image, out_shape, border_mode="replicate", border_val=0.0, format="NCHW", interp_mode="linear": _np_warp(
        x, mat, image, out_shape, border_mode, border_val, format, interp_mode
    )
)
grid_sample.reference(_np_grid_sample)
affine_grid.reference(_np_affine_grid)


def _places(r, shape, low, high):
    """Coordinates whose distance to whole and half numbers is at least 1/8, so that differences and other dtypes see the same pixels."""
    return r.integers(4 * low, 4 * high, shape) / 4 + 0.125


def _mapped(n, c, h, w, *size):
    return lambda r: (r.normal(size=(n, c, h, w)), _places(r, (n, *size, 2), -3, max(h, w) + 3))


remap.cases(
    Case(_mapped(2, 3, 4, 5, 3, 6)),
    *(Case(_mapped(1, 2, 3, 4, 2, 17), {"border_mode": m, "scalar": 0.5}) for m in BORDERS[1:]),
    Case(_mapped(1, 2, 4, 3, 3, 3), {"interp_mode": "nearest", "border_mode": "constant", "scalar": 2.0}),
    Case(_mapped(1, 1, 5, 4, 2, 4), {"interp_mode": "cubic", "border_mode": "reflect_101"}),
    Case(_mapped(1, 2, 1, 1, 2, 2), {"border_mode": "wrap"}),
    Case(_mapped(0, 2, 3, 3, 2, 2)),
)
_turn = np.array([[1.0, 0.25, 0.375], [-0.25, 1.0, 0.625]])
_view = np.array([[1.0, 0.25, 0.375], [-0.25, 1.0, 0.625], [0.0, 0.0, 2.0]])
warp_affine.cases(
    Case(lambda r: (r.normal(size=(2, 4, 5, 3)), np.stack([_turn, _turn + 0.0625])), {"out_shape": (3, 4)}),
    Case(
        lambda r: (r.normal(size=(1, 2, 4, 5)), _turn[None]),
        {"out_shape": (5, 6), "format": "NCHW", "border_mode": "constant", "border_val": 1.5},
    ),
)
warp_perspective.cases(
    Case(lambda r: (r.normal(size=(2, 3, 4, 5)), np.stack([_view, _view + 0.0625]), None), {"out_shape": (3, 4)}),
    Case(
        lambda r: (r.normal(size=(2, 4, 5, 17)), np.stack([_view] * 3), np.array([1, 0, 1])),
        {"out_shape": (3, 4), "format": "NHWC", "border_mode": "reflect"},
    ),
)
_gridded = lambda r: (r.normal(size=(2, 3, 4, 5)), _places(r, (2, 3, 6, 2), -2, 2) * 0.71)
grid_sample.cases(
    Case(_gridded),
    Case(_gridded, {"padding_mode": "border", "align_corners": True}),
    Case(_gridded, {"padding_mode": "reflection"}),
    Case(_gridded, {"padding_mode": "reflection", "align_corners": True, "mode": "bicubic"}),
    Case(_gridded, {"mode": "nearest"}),
)
affine_grid.cases(
    Case(lambda r: (r.normal(size=(2, 2, 3)),), {"size": (2, 3, 4, 5)}),
    Case(lambda r: (r.normal(size=(1, 2, 3)),), {"size": (1, 1, 1, 3), "align_corners": True}),
)
