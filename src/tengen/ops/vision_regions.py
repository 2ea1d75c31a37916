"""Parts of images: boxes that suppress one another, and regions that are pooled to one size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from tengen import kernels
from tengen.base.dtype import bool_, int64
from tengen.base.errors import ShapeError
from tengen.ir.types import Dim, TensorType
from tengen.loops.lang import as_int
from tengen.ops.attributes import Positive, Positives
from tengen.ops.conv_parts import per_axis
from tengen.ops.define import Case, Op, check_floats, composite, lookup, primitive
from tengen.ops.division import floor_div
from tengen.ops.elementwise import add, astype, div, floor, maximum, mul, sub, where
from tengen.ops.indexing import index, outside_range
from tengen.ops.logic import equal, greater, greater_equal, less, logical_and
from tengen.ops.reduce import extent, max_, mean, sum_
from tengen.ops.shape import permute, reshape, strided_slice
from tengen.ops.vision_coords import computed_in, grid, iota, taps_at
from tengen.ops.vision_taps import tap_sum
from tengen.ops.widths import rounded_once

if TYPE_CHECKING:
    from tengen.tensor import Tensor


@primitive
def nms_keep(boxes: Tensor, threshold: float) -> Tensor:
    """Which boxes are kept: each that overlaps no box kept before it by more than `threshold` of their union.

    Shapes: (N, 4) of (x1, y1, x2, y2), in descending order of scores -> (N), bool
    """


@nms_keep.infer
def _(boxes, threshold):
    check_floats(boxes)
    if boxes.ndim != 2 or as_int(boxes.shape[1]) != 4:
        raise ShapeError(f"takes boxes (N, 4), got {boxes}")
    return TensorType((boxes.shape[0],), bool_)


nms_keep.known(lambda arrays, threshold: {4})


@nms_keep.lower
def _(lo, ins, outs, threshold):
    kernels.indexing.suppress.suppress(lo, ins[0], threshold, outs[0])


nms_keep.no_vjp("a truth value is not differentiable")


# ---- regions of interest ---------------------------------------------------------------------------------------------


def _column(rois: Tensor, i: int) -> Tensor:
    """Column i of rois (K, 5), as (K, 1)."""
    return strided_slice(rois, (0, i), (rois.shape[0], 1), (1, 1))


def _check_regions(types) -> None:
    x, rois = types
    check_floats(x, rois)
    if x.ndim != 4 or rois.ndim != 2 or as_int(rois.shape[1]) != 5:
        raise ShapeError(f"takes images (N, C, H, W) and regions (K, 5) of (image, x1, y1, x2, y2), got {x} and {rois}")
    if any(as_int(d) == 0 for d in (x.shape[0], *x.shape[2:])) and as_int(rois.shape[0]) != 0:
        raise ShapeError(f"regions {rois} of images without pixels, {x}")


def _image_of(rois: Tensor) -> Tensor:
    """The numbers of the images, (K)."""
    return reshape(astype(_column(rois, 0), int64), (rois.shape[0],))


@composite(functional="vision nn", own=(1,))
@rounded_once(like="inp")
def roi_align(
    inp: Tensor,
    rois: Tensor,
    output_shape: Positives,
    mode: Literal["average", "max"] = "average",
    spatial_scale: float = 1.0,
    sample_points: Positives = 2,
    aligned: bool = True,
) -> Tensor:
    """Regions of images pooled to one size: each bin is the average, or the largest, of samples that lie in it evenly.

    Shapes:   inp (N, C, H, W), rois (K, 5) of (image, x1, y1, x2, y2) -> (K, C, *output_shape)
    Args:
        spatial_scale: what coordinates are multiplied by. sample_points: samples of a bin along each axis.
        aligned: coordinates are shifted by half a pixel, so that pixels are squares.
    Numerics: a sample is linear between pixels, and what lies outside of the image is 0; a region with a NaN is NaN
    Gradient: of the image and the regions
    Errors:   IndexOutOfRange for an image that there is not. MegEngine's sample_points=0, which gives zeros there, is an error here
    Source:   He et al., arXiv 1703.06870

    >>> from tengen import Tensor, functional as F
    >>> x = Tensor([[[[0.0, 1.0], [2.0, 3.0]]]])
    >>> F.vision.roi_align(x, Tensor([[0.0, 0.0, 0.0, 2.0, 2.0]]), 1).tolist()
    [[[[1.5]]]]
    """
    d = computed_in(rois.dtype, inp.dtype)
    n, c, h, w = inp.shape
    r = mul(astype(rois, d), spatial_scale)
    (ph, pw), (sh, sw) = output_shape, sample_points  # in canonical form
    k = rois.shape[0]

    def taps(axis: int, size: Dim, bins: Dim, points: Dim):
        """The taps of all samples along an axis, (K, bins * points)."""
        start, stop = (sub(_column(r, i), 0.5 if aligned else 0.0) for i in (axis, axis + 2))
        bin_ = div(sub(stop, start), extent(bins, d))
        steps = div(add(mul(astype(iota(bins * points), d), 2.0), 1.0), extent(2 * points, d))
        at = add(start, mul(bin_, reshape(steps, (1, bins * points))))
        return taps_at(at, size, "constant", "linear")

    (iy, wy), (ix, wx) = taps(2, h, ph, sh), taps(1, w, pw, sw)
    as_rows = lambda ts: [reshape(t, (k, ph * sh, 1)) for t in ts]
    as_columns = lambda ts: [reshape(t, (k, 1, pw * sw)) for t in ts]
    places, weight = grid([(as_rows(iy), as_rows(wy)), (as_columns(ix), as_columns(wx))], [h, w])
    samples = tap_sum(reshape(inp, (n, c, h * w)), _image_of(rois), places, astype(weight, inp.dtype))
    samples = reshape(samples, (k, c, ph, sh, pw, sw))
    return mean(samples, (3, 5)) if mode == "average" else max_(samples, (3, 5))


@composite(functional="vision nn", own=(1,))
@rounded_once(like="inp")
def roi_pooling(
    inp: Tensor, rois: Tensor, output_shape: Positives, mode: Literal["max", "average"] = "max", scale: float = 1.0
) -> Tensor:
    """Regions of images pooled to one size: each bin is the largest, or the average, of the pixels that it touches.

    Shapes:   inp (N, C, H, W), rois (K, 5) of (image, x1, y1, x2, y2) -> (K, C, *output_shape)
    Args:     scale: what coordinates are multiplied by; they are then rounded to pixels, halves away from 0, and both ends belong to the
        region.
    Returns:  a bin without pixels is 0, as those of a region outside of the image; a region with a coordinate that is NaN or inf is NaN
    Gradient: of the image; of the regions there is none
    Errors:   IndexOutOfRange for an image that there is not
    Source:   Girshick, arXiv 1504.08083

    >>> from tengen import Tensor, functional as F
    >>> F.vision.roi_pooling(Tensor([[[[0.0, 1.0], [2.0, 3.0]]]]), Tensor([[0.0, 0.0, 0.0, 1.0, 1.0]]), (1, 2)).tolist()
    [[[[2.0, 3.0]]]]
    """
    d = computed_in(rois.dtype)
    n, c, h, w = inp.shape
    r = _rounded(mul(astype(rois, d), scale))
    k, (ph, pw) = rois.shape[0], output_shape  # in canonical form

    def touched(axis: int, size: Dim, bins: Dim) -> Tensor:
        """Which pixels each bin touches, (K, bins, size)."""
        first, last = (_column(r, i) for i in (axis, axis + 2))
        length = div(maximum(add(sub(last, first), 1.0), 1.0), extent(bins, d))
        bin_ = reshape(astype(iota(bins), d), (1, bins))
        low = add(floor(mul(bin_, length)), first)
        high = add(lookup("ceil")(mul(add(bin_, 1.0), length)), first)
        pixel = reshape(astype(iota(size), d), (1, 1, size))
        return logical_and(greater_equal(pixel, reshape(low, (k, bins, 1))), less(pixel, reshape(high, (k, bins, 1))))

    rows, columns = touched(2, h, ph), touched(1, w, pw)
    x = index([_image_of(rois)], inp, (0,), 0)
    inside_columns, inside_rows = reshape(columns, (k, 1, 1, pw, w)), reshape(rows, (k, 1, ph, 1, h))
    empty = 0.0 if mode == "average" else float("-inf")
    pooled = sum_ if mode == "average" else max_
    across = pooled(where(inside_columns, reshape(x, (k, c, h, 1, w)), empty), 4)
    found = pooled(where(inside_rows, reshape(permute(across, (0, 1, 3, 2)), (k, c, 1, pw, h)), empty), 4)
    many = mul(*(reshape(sum_(astype(t, int64), 2), shape) for t, shape in ((rows, (k, 1, ph, 1)), (columns, (k, 1, 1, pw)))))
    found = div(found, astype(maximum(many, 1), inp.dtype)) if mode == "average" else found
    return _of_finite(r, where(greater(many, 0), found, 0.0))


@composite(functional="nn", own=(1, 2))
@rounded_once(like="inp")
def deformable_psroi_pooling(
    inp: Tensor,
    rois: Tensor,
    trans: Tensor,
    no_trans: bool,
    part_size: Positive,
    pooled_h: Positive,
    pooled_w: Positive,
    sample_per_part: Positive,
    spatial_scale: float,
    trans_std: float = 0.1,
) -> Tensor:
    """Regions of images pooled to one size, where each bin is moved by an offset: the average of samples of the bin.

    Shapes:   inp (N, C, H, W), rois (K, 5) of (image, x1, y1, x2, y2), trans (K, 2 G, part_size, part_size)
        -> (K, C, pooled_h, pooled_w)
    Args:
        trans: offsets of parts of a region, in x and in y, for each of G groups of channels; they count in widths and heights of the
            region, times trans_std. no_trans: bins are not moved, and trans is not read.
        sample_per_part: samples of a bin along each axis, at its low end and from there on in even steps.
        spatial_scale: what coordinates are multiplied by, after they were rounded to pixels, halves away from 0.
    Returns:  samples more than half a pixel outside of the image do not count; a bin without samples is 0, and
        a region with a coordinate that is NaN or inf is NaN
    Gradient: of the image and the offsets
    Errors:   ShapeError where trans does not fit; MegEngine takes one group, and trans of the pooled extents, which here too
        are those of
        the parts where all three are equal. IndexOutOfRange for an image that there is not
    Source:   Dai et al., "Deformable convolutional networks", arXiv 1703.06211

    >>> from tengen import Tensor, functional as F
    >>> x, region = Tensor([[[[0.0, 1.0], [2.0, 3.0]]]]), Tensor([[0.0, 0.0, 0.0, 1.0, 1.0]])
    >>> F.deformable_psroi_pooling(x, region, F.zeros((1, 2, 1, 1)), False, 1, 1, 1, 2, 1.0).tolist()
    [[[[0.75]]]]
    """
    d = computed_in(rois.dtype, inp.dtype)
    n, c, h, w = inp.shape
    k, g, s = rois.shape[0], 1 if no_trans else trans.shape[1] // 2, sample_per_part
    r = _rounded(astype(rois, d))

    def samples(axis: int, bins: Dim) -> Tensor:
        """The coordinates of samples along an axis, (K, G, pooled_h, pooled_w, samples)."""
        low = sub(mul(_column(r, axis), spatial_scale), 0.5)
        high = sub(mul(add(_column(r, axis + 2), 1.0), spatial_scale), 0.5)
        length = maximum(sub(high, low), 0.1)
        first = add(low, mul(div(length, extent(bins, d)), reshape(astype(iota(bins), d), (1, bins))))
        across = (k, 1, 1, bins, 1) if axis == 1 else (k, 1, bins, 1, 1)
        at = reshape(first, across)
        if not no_trans:
            part = lambda size: floor_div(mul(iota(size), extent(part_size, int64)), extent(size, int64))
            moved = index([reshape(part(pooled_h), (pooled_h, 1)), part(pooled_w)], trans, (2, 3), 2)
            own = strided_slice(reshape(moved, (k, g, 2, pooled_h, pooled_w)), (0, 0, axis - 1, 0, 0), (k, g, 1, pooled_h, pooled_w), (1,) * 5)
            offset = reshape(mul(astype(own, d), trans_std), (k, g, pooled_h, pooled_w, 1))
            at = add(at, mul(offset, reshape(length, (k, 1, 1, 1, 1))))
        step = reshape(div(length, extent(bins * s, d)), (k, 1, 1, 1, 1))
        return add(at, mul(step, reshape(astype(iota(s), d), (1, 1, 1, 1, s))))

    def axis_taps(axis: int, bins: Dim, size: Dim, shape: tuple):
        """(taps, whether each sample counts), of a shape that spreads them over both axes."""
        at = lookup("broadcast_to")(samples(axis, bins), (k, g, pooled_h, pooled_w, s))
        at = reshape(at, (k * g, pooled_h * pooled_w, *shape))
        top = lookup("sub")(extent(size, d), 1.0)
        inside = logical_and(greater_equal(at, -0.5), lookup("less_equal")(at, add(top, 0.5)))
        indices, shares = taps_at(lookup("minimum")(maximum(at, 0.0), top), size, "constant", "linear")
        return (indices, shares), inside

    ys, inside_y = axis_taps(2, pooled_h, h, (s, 1))
    xs, inside_x = axis_taps(1, pooled_w, w, (1, s))
    places, weight = grid([ys, xs], [h, w])
    counts = astype(logical_and(inside_y, inside_x), d)
    many = maximum(sum_(counts, (2, 3), True), 1.0)
    share = div(counts, many)
    weight = mul(weight, reshape(share, (k * g, 1, pooled_h * pooled_w, s, s)))
    groups = add(mul(reshape(_image_of(rois), (k, 1)), g), reshape(iota(g), (1, g)))
    found = tap_sum(reshape(inp, (n * g, c // g, h * w)), reshape(groups, (k * g,)), places, astype(weight, inp.dtype))
    return _of_finite(r, reshape(sum_(found, (3, 4)), (k, c, pooled_h, pooled_w)))


def _of_finite(r: Tensor, pooled: Tensor) -> Tensor:
    """The results (K, C, PH, PW), but NaN for regions (K, 5) with a coordinate that is NaN or inf."""
    zeros = [mul(_column(r, i), 0.0) for i in range(1, 5)]
    total = reshape(add(add(zeros[0], zeros[1]), add(zeros[2], zeros[3])), (r.shape[0], 1, 1, 1))
    return where(equal(total, total), pooled, float("nan"))


def _rounded(x: Tensor) -> Tensor:
    """Rounded to integers, halves away from 0."""
    return where(less(x, 0.0), lookup("neg")(floor(sub(0.5, x))), floor(add(x, 0.5)))


def _image_or_none(rois: Tensor) -> Tensor:
    """The image of each region; -1 where its number is NaN."""
    number = reshape(_column(rois, 0), (rois.shape[0],))
    return where(lookup("equal")(number, number), _image_of(rois), -1)


def _takes_regions(op: Op, *sizes: str) -> None:
    """Gives an op of images and regions its checks: of their types, and that the image of each region exists. `sizes`: attributes that
    are one number for both axes, or two; a program takes them when it runs."""

    def canon(types: Sequence[Any], /, **attrs: Any) -> dict[str, Any]:
        _check_regions(types)
        return {**attrs, **{name: per_axis(attrs[name], 2, name) for name in sizes}}

    op.canon(canon)
    op.named(lambda arrays, **attrs: sizes)
    op.check(lambda inputs, **attrs: outside_range(op.name, _image_or_none(inputs[1]), inputs[0].shape[0], 0, 0))


_takes_regions(roi_align, "output_shape", "sample_points")
_takes_regions(roi_pooling, "output_shape")


@deformable_psroi_pooling.canon
def _(types, /, **attrs):
    x, rois, trans = types
    _check_regions((x, rois))
    check_floats(trans)
    part, k = attrs["part_size"], rois.shape[0]
    if attrs["no_trans"]:
        return attrs
    groups = as_int(trans.shape[1]) if trans.ndim == 4 else 0
    if not groups or groups % 2 or as_int(x.shape[1] % (groups // 2)) not in (0, None) or [as_int(e) for e in trans.shape[2:]] != [part] * 2:
        raise ShapeError(f"takes offsets (K, 2 G, {part}, {part}) for G groups of the channels of {x}, got {trans}")
    if as_int(trans.shape[0]) is not None and as_int(k) is not None and as_int(trans.shape[0]) != as_int(k):
        raise ShapeError(f"offsets {trans} and regions {rois} are not as many")
    return attrs


deformable_psroi_pooling.named(lambda arrays, **attrs: ("part_size", "pooled_h", "pooled_w", "sample_per_part"))
deformable_psroi_pooling.check(
    lambda inputs, **attrs: outside_range("deformable_psroi_pooling", _image_or_none(inputs[1]), inputs[0].shape[0], 0, 0)
)


# ---- references and samples ------------------------------------------------------------------------------------------


def np_overlap(a, b):
    """The intersection of two boxes over their union."""
    sides = np.minimum(a[2:], b[2:]) - np.maximum(a[:2], b[:2])
    both = np.prod(np.maximum(sides, 0))
    return both / (np.prod(a[2:] - a[:2]) + np.prod(b[2:] - b[:2]) - both)


def _np_nms_keep(boxes, threshold):
    kept = []
    for i, b in enumerate(boxes):
        if all(np_overlap(boxes[j], b) <= threshold for j in kept):
            kept.append(i)
    return np.isin(np.arange(len(boxes)), kept)


def _np_roi_align(x, rois, output_shape, mode="average", spatial_scale=1.0, sample_points=2, aligned=True):
    (ph, pw), (sh, sw) = np.broadcast_to(output_shape, 2), np.broadcast_to(sample_points, 2)
    out = np.zeros((len(rois), x.shape[1], ph, pw))

    def read(img, y, x_):
        total = 0.0
        for r in (int(np.floor(y)), int(np.floor(y)) + 1):
            for c in (int(np.floor(x_)), int(np.floor(x_)) + 1):
                if 0 <= r < img.shape[1] and 0 <= c < img.shape[2]:
                    total = total + img[:, r, c] * (1 - abs(y - r)) * (1 - abs(x_ - c))
        return total + np.zeros(len(img))

    for k, (n, *box) in enumerate(rois):
        x1, y1, x2, y2 = np.array(box) * spatial_scale - (0.5 if aligned else 0)
        for i, j in np.ndindex(int(ph), int(pw)):
            ys = [y1 + (y2 - y1) / ph * (i + (s + 0.5) / sh) for s in range(sh)]
            xs = [x1 + (x2 - x1) / pw * (j + (s + 0.5) / sw) for s in range(sw)]
            samples = np.array([read(x[int(n)], a, b) for a in ys for b in xs])
            out[k, :, i, j] = samples.mean(0) if mode == "average" else samples.max(0)
    return out


def _np_roi_pooling(x, rois, output_shape, mode="max", scale=1.0):
    ph, pw = np.broadcast_to(output_shape, 2)
    out = np.zeros((len(rois), x.shape[1], ph, pw))
    away = lambda v: int(np.sign(v) * np.floor(abs(v) + 0.5))
    for k, (n, *box) in enumerate(rois):
        x1, y1, x2, y2 = (away(v * scale) for v in box)
        for i, j in np.ndindex(int(ph), int(pw)):
            spans = []
            for at, low, high, bins, size in ((i, y1, y2, ph, x.shape[2]), (j, x1, x2, pw, x.shape[3])):
                length = max(high - low + 1, 1) / bins
                a, b = int(np.floor(at * length)) + low, int(np.ceil((at + 1) * length)) + low
                spans.append(slice(min(max(a, 0), size), min(max(b, 0), size)))
            part = x[int(n)][:, spans[0], spans[1]]
            if part.size:
                out[k, :, i, j] = part.max((1, 2)) if mode == "max" else part.mean((1, 2))
    return out


def _np_bilinear(image, x, y):
    x0, y0 = int(np.floor(x)), int(np.floor(y))
    x1, y1, u, v = int(np.ceil(x)), int(np.ceil(y)), x - x0, y - y0
    return (1 - u) * (1 - v) * image[y0, x0] + (1 - u) * v * image[y1, x0] + u * (1 - v) * image[y0, x1] + u * v * image[y1, x1]


def _np_deformable(x, rois, trans, no_trans, part_size, pooled_h, pooled_w, sample_per_part, spatial_scale, trans_std=0.1):
    c, h, w = x.shape[1:]
    out, each = np.zeros((len(rois), c, pooled_h, pooled_w)), c // (1 if no_trans else trans.shape[1] // 2)
    away = lambda v: np.sign(v) * np.floor(abs(v) + 0.5)
    for (k, ch, i, j), _ in np.ndenumerate(out):
        b, *box = rois[k]
        x1, y1 = (away(v) * spatial_scale - 0.5 for v in box[:2])
        x2, y2 = ((away(v) + 1) * spatial_scale - 0.5 for v in box[2:])
        rw, rh = max(x2 - x1, 0.1), max(y2 - y1, 0.1)
        at = (ch // each * 2, i * part_size // pooled_h, j * part_size // pooled_w)
        dx, dy = (0, 0) if no_trans else (trans[k, at[0] + a, at[1], at[2]] * trans_std for a in (0, 1))
        found = []
        for a, e in np.ndindex(sample_per_part, sample_per_part):
            px = x1 + rw * (j / pooled_w + dx + e / pooled_w / sample_per_part)
            py = y1 + rh * (i / pooled_h + dy + a / pooled_h / sample_per_part)
            if -0.5 <= px <= w - 0.5 and -0.5 <= py <= h - 0.5:
                found.append(_np_bilinear(x[int(b), ch], min(max(px, 0), w - 1), min(max(py, 0), h - 1)))
        out[k, ch, i, j] = np.mean(found) if found else 0
    return out


def _boxes(r, n):
    return np.concatenate([(at := r.integers(0, 12, (n, 2)) / 4.0), at + r.integers(1, 20, (n, 2)) / 4.0], 1)


def _regions(r, images, n):
    """Regions whose ends and samples lie a little off the pixels, so that differences see one slope."""
    return np.concatenate([r.integers(0, images, (n, 1)) + 0.25, _boxes(r, n) + 0.0625], 1)


nms_keep.reference(_np_nms_keep)
nms_keep.cases(
    Case(lambda r: (_boxes(r, 33),), {"threshold": 0.3}),
    Case(lambda r: (_boxes(r, 7),), {"threshold": 0.0}),
    Case(lambda r: (_boxes(r, 0),), {"threshold": 0.5}),
)
roi_align.reference(_np_roi_align)
_pooled = lambda r: (r.normal(size=(2, 3, 6, 5)), _regions(r, 2, 4))
roi_align.cases(
    Case(_pooled, {"output_shape": (2, 2)}),
    Case(_pooled, {"output_shape": (3, 2), "mode": "max", "spatial_scale": 0.5, "sample_points": (1, 2), "aligned": False}),
    Case(lambda r: (r.normal(size=(1, 2, 4, 4)), np.zeros((0, 5))), {"output_shape": 2}),
)
roi_pooling.reference(_np_roi_pooling)
roi_pooling.cases(
    Case(_pooled, {"output_shape": (2, 2), "scale": 0.5}, grad=False),
    Case(_pooled, {"output_shape": 2, "mode": "average"}, grad=False),
)
deformable_psroi_pooling.reference(_np_deformable)
_moved = lambda r: (r.normal(size=(2, 4, 6, 5)), _regions(r, 2, 3), r.uniform(-1, 1, (3, 4, 2, 2)))
_bins = {"part_size": 2, "pooled_h": 3, "pooled_w": 2, "sample_per_part": 2, "spatial_scale": 0.9375}
deformable_psroi_pooling.cases(
    Case(_moved, {"no_trans": False, **_bins}),
    Case(_moved, {"no_trans": True, **_bins}, grad=False),  # the offsets have no part in it
)
