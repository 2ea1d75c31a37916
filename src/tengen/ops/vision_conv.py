"""Convolutions whose windows or filters vary from place to place, and correlations of two images. They are contractions of
windows: views, or samples of a `tap_sum`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from tengen.base.errors import DTypeError, ShapeError, Undecided
from tengen.ir.types import Dim, TensorType
from tengen.loops.lang import as_int
from tengen.ops.attributes import Count, Naturals, Positive, Positives
from tengen.ops.contract import matmul
from tengen.ops.define import Case, check_floats, check_shape, composite, lookup
from tengen.ops.elementwise import abs, add, astype, mul, sub, where
from tengen.ops.logic import equal
from tengen.ops.reduce import sum_
from tengen.ops.shape import permute, reshape, strided_slice
from tengen.ops.views import sliding_window, windows
from tengen.ops.vision_coords import computed_in, iota, tap_by_tap, taps_at
from tengen.ops.vision_taps import tap_sum
from tengen.ops.widths import rounded_once

if TYPE_CHECKING:
    from tengen.tensor import Tensor

Pair = tuple[int, int]


def _pair(v: Any) -> Pair:
    return (v, v) if isinstance(v, int) else tuple(v)


def _pairs(**given: Any) -> dict[str, Pair]:
    """Attributes that are one number for both axes, or two."""
    found = {name: _pair(v) for name, v in given.items()}
    for name, v in found.items():
        if len(v) != 2:
            raise ShapeError(f"{name}={v} must be an int or 2 ints")
    return found


def _numbers(*extents: Dim) -> tuple[int, ...]:
    """Extents of a filter, which decide what the body is: a program for other filters is another one."""
    if any(as_int(d) is None for d in extents):
        raise Undecided(f"the extents {extents} of a filter")
    return tuple(int(d) for d in extents)


def _outputs(size: Sequence[Dim], kernel: Sequence[Dim], stride: Pair, padding: Pair, dilation: Pair) -> list[Dim]:
    """How many windows there are along each axis."""
    found = []
    for n, k, s, p, d in zip(size, kernel, stride, padding, dilation):
        extent = as_int(n + 2 * p - d * (k - 1))
        if extent is not None and extent < 1:
            raise ShapeError(f"a filter of extent {k} (dilation {d}) does not fit an image of extent {n} with padding {p}")
        found.append((n + 2 * p - d * (k - 1) - 1) // s + 1)
    return found


def _contract(columns: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """The product of windows (N, C, KH, KW, PH, PW) and filters (O, C, KH, KW) or (G, O/G, C/G, KH, KW)."""
    n, c, kh, kw, ph, pw = columns.shape
    g, o = (1, weight.shape[0]) if weight.ndim == 4 else weight.shape[:2]
    terms = c // g * kh * kw
    y = matmul(reshape(weight, (1, g, o, terms)), reshape(columns, (n, g, terms, ph * pw)))
    y = reshape(y, (n, g * o, ph, pw))
    return y if bias is None else add(y, bias)


def _check_filter(x: TensorType, weight: TensorType, groups: int | None) -> tuple[Dim, Dim]:
    """The filter's extents of space; an error where it does not fit the image."""
    if x.ndim != 4 or weight.ndim != (4 if groups is None else 5):
        form = "(O, C, KH, KW)" if groups is None else "(G, O/G, C/G, KH, KW)"
        raise ShapeError(f"takes images (N, C, H, W) and filters {form}, got {x} and {weight}")
    channels = weight.shape[1] if groups is None else weight.shape[0] * weight.shape[2]
    if as_int(channels) != as_int(x.shape[1]) or (groups is not None and as_int(weight.shape[0]) != groups):
        raise ShapeError(f"images {x} and filters {weight} do not fit for groups={groups or 1}")
    return weight.shape[-2], weight.shape[-1]


def _check_bias(bias: TensorType | None, channels: Dim) -> None:
    if bias is not None:
        check_shape("the bias", bias.shape, (1, channels, 1, 1))


# ---- deformable ------------------------------------------------------------------------------------------------------


@composite(functional="nn", autocast="low", own=(2,))  # offsets are coordinates, which float16 is too coarse for
def deformable_conv2d(
    inp: Tensor,
    weight: Tensor,
    offset: Tensor,
    mask: Tensor,
    bias: Tensor | None = None,
    stride: Positives = 1,
    padding: Naturals = 0,
    dilation: Positives = 1,
    groups: Positive = 1,
    conv_mode: Literal["cross_correlation"] = "cross_correlation",
    compute_mode: Literal["default", "float32"] = "default",
) -> Tensor:
    """Convolution whose windows' pixels are moved by offsets and weighed by a mask.

    Shapes:   inp (N, C, H, W), weight (O, C, KH, KW) or with groups (G, O/G, C/G, KH, KW), offset (N, D 2 KH KW, PH, PW), mask
        (N, D KH KW, PH, PW), bias (1, O, 1, 1) -> (N, O, PH, PW)
    Args:
        offset: for each of D groups of channels and each element of the filter: rows down, then columns to the right, in pixels.
        mask: what each is multiplied by.
    Numerics: pixels are linear between their middles and 0 outside of the image; then a product as `matmul`
    Source:   Zhu et al., arXiv 1811.11168

    >>> from tengen import functional as F
    >>> x, none, all_ = F.ones((1, 1, 3, 3)), F.zeros((1, 2, 3, 3)), F.ones((1, 1, 3, 3))
    >>> F.deformable_conv2d(x, 2 * F.ones((1, 1, 1, 1)), none + 0.5, all_).numpy()[0, 0, 2].tolist()
    [1.0, 1.0, 0.5]
    """
    n, c, h, w = inp.shape
    kh, kw = _numbers(*weight.shape[-2:])
    ph, pw = offset.shape[2:]
    k, d = kh * kw, computed_in(offset.dtype, inp.dtype)
    many = offset.shape[1] // (2 * k)
    moved = reshape(astype(offset, d), (n * many, k, 2, ph, pw))

    def at(axis: int, element: Tensor, outputs: Dim, place: Sequence[Dim]) -> Tensor:
        """The coordinates along an axis, (N D, 1, K, PH, PW)."""
        shift = reshape(strided_slice(moved, (0, 0, axis, 0, 0), (n * many, k, 1, ph, pw), (1,) * 5), (n * many, 1, k, ph, pw))
        first = sub(mul(iota(outputs), stride[axis]), padding[axis])
        whole = add(reshape(mul(element, dilation[axis]), (1, 1, k, 1, 1)), reshape(first, place))
        return add(astype(whole, d), shift)

    rows, columns = lookup("floor_div")(iota(k), kw), lookup("mod")(iota(k), kw)
    cy, cx = at(0, rows, ph, (1, 1, 1, ph, 1)), at(1, columns, pw, (1, 1, 1, 1, pw))
    index, share = tap_by_tap([taps_at(cy, h, "constant", "linear"), taps_at(cx, w, "constant", "linear")], [h, w], False)
    share = mul(share, reshape(astype(mask, d), (n * many, 1, k, ph, pw)))
    sampled = tap_sum(reshape(inp, (n * many, c // many, h * w)), None, index, astype(share, inp.dtype))
    return _contract(reshape(sampled, (n, c, kh, kw, ph, pw)), weight, bias)


@deformable_conv2d.canon
def _(types, stride, padding, dilation, groups, **attrs):
    x, weight, offset, mask, bias = types
    check_floats(x, weight, offset, mask, bias)
    kh, kw = _check_filter(x, weight, None if groups == 1 and weight.ndim == 4 else groups)
    pairs = _pairs(stride=stride, padding=padding, dilation=dilation)
    outputs = _outputs(x.shape[2:], (kh, kw), **pairs)
    many = offset.shape[1] // (2 * kh * kw) if offset.ndim == 4 else 0
    if as_int(many) == 0 or as_int(x.shape[1] % many) != 0:
        raise ShapeError(f"offsets {offset} do not fit images {x} and filters {weight}")
    check_shape("the offset", offset.shape, (x.shape[0], many * 2 * kh * kw, *outputs))
    check_shape("the mask", mask.shape, (x.shape[0], many * kh * kw, *outputs))
    _check_bias(bias, weight.shape[0] if weight.ndim == 4 else weight.shape[0] * weight.shape[1])
    return {**attrs, **pairs, "groups": groups}


# ---- filters of their own for each place, and regions ----------------------------------------------------------------


@composite(functional="nn", autocast="low")
def local_conv2d(
    inp: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Positives = 1,
    padding: Naturals = 0,
    dilation: Positives = 1,
    conv_mode: Literal["cross_correlation"] = "cross_correlation",
) -> Tensor:
    """Convolution with another filter at each place (a locally connected layer).

    Shapes: inp (N, C, H, W), weight (PH, PW, C, KH, KW, O) or with groups (G, PH, PW, C/G, KH, KW, O/G), bias (1, O, 1, 1) ->
        (N, O, PH, PW)

    >>> from tengen import Tensor, functional as F
    >>> weight = Tensor([1.0, 10.0]).reshape(1, 2, 1, 1, 1, 1)
    >>> F.local_conv2d(Tensor([[[[3.0, 4.0]]]]), weight).tolist()
    [[[[3.0, 40.0]]]]
    """
    w = weight if weight.ndim == 7 else reshape(weight, (1, *weight.shape))
    g, ph, pw, c, *kernel, o = w.shape
    kh, kw = _numbers(*kernel)
    n = inp.shape[0]
    found = sliding_window(inp, (kh, kw), padding, stride, dilation)
    x = permute(reshape(found, (n, g, c, ph, pw, kh, kw)), (1, 3, 4, 0, 2, 5, 6))
    y = matmul(reshape(x, (g, ph, pw, n, c * kh * kw)), reshape(w, (g, ph, pw, c * kh * kw, o)))
    y = reshape(permute(y, (3, 0, 4, 1, 2)), (n, g * o, ph, pw))
    return y if bias is None else add(y, bias)


@local_conv2d.canon
def _(types, stride, padding, dilation, **attrs):
    x, weight, bias = types
    check_floats(x, weight, bias)
    if x.ndim != 4 or weight.ndim not in (6, 7):
        raise ShapeError(f"takes images (N, C, H, W) and filters (PH, PW, C, KH, KW, O), got {x} and {weight}")
    g, ph, pw, c, kh, kw, o = weight.shape if weight.ndim == 7 else (1, *weight.shape)
    pairs = _pairs(stride=stride, padding=padding, dilation=dilation)
    outputs = _outputs(x.shape[2:], (kh, kw), **pairs)
    check_shape("the image", x.shape, (x.shape[0], g * c, *x.shape[2:]))
    check_shape("the filter's first part", (ph, pw), outputs)
    _check_bias(bias, g * o)
    return {**attrs, **pairs}


@composite(functional="nn", autocast="low", own=(2, 3))
def region_restricted_conv(
    inp: Tensor,
    weight: Tensor,
    rin: Tensor,
    rout: Tensor,
    bias: Tensor | None = None,
    stride: Positives = 1,
    padding: Naturals = 0,
    dilation: Positives = 1,
    groups: Positive = 1,
    conv_mode: Literal["cross_correlation"] = "cross_correlation",
    compute_mode: Literal["default", "float32"] = "default",
) -> Tensor:
    """Convolution in which a result sees only pixels of its own region: those with rin[n, y, x] == rout[n, py, px].

    Shapes: inp (N, C, H, W), weight (G, O/G, C/G, KH, KW), rin (N, H, W), rout (N, PH, PW), integers, bias (1, O, 1, 1) ->
        (N, O, PH, PW)

    >>> from tengen import Tensor, functional as F
    >>> x, regions = F.ones((1, 1, 1, 4)), Tensor([[[0, 0, 1, 1]]])
    >>> F.region_restricted_conv(x, F.ones((1, 1, 1, 1, 3)), regions, regions, padding=(0, 1)).tolist()
    [[[[2.0, 2.0, 2.0, 2.0]]]]
    """
    n, _, h, w = inp.shape
    kernel = _numbers(*weight.shape[-2:])
    found = sliding_window(inp, kernel, padding, stride, dilation)
    regions = sliding_window(reshape(rin, (n, 1, h, w)), kernel, padding, stride, dilation)
    mine = reshape(rout, (n, 1, *rout.shape[1:], 1, 1))
    kept = where(equal(regions, mine), found, 0.0)
    return _contract(permute(kept, (0, 1, 4, 5, 2, 3)), weight, bias)


@region_restricted_conv.canon
def _(types, stride, padding, dilation, groups, **attrs):
    x, weight, rin, rout, bias = types
    check_floats(x, weight, bias)
    kernel = _check_filter(x, weight, groups)
    if not (rin.dtype.is_int and rout.dtype is rin.dtype):
        raise DTypeError(f"regions must be integers of one dtype, got {rin} and {rout}")
    pairs = _pairs(stride=stride, padding=padding, dilation=dilation)
    check_shape("rin", rin.shape, (x.shape[0], *x.shape[2:]))
    check_shape("rout", rout.shape, (x.shape[0], *_outputs(x.shape[2:], kernel, **pairs)))
    _check_bias(bias, weight.shape[0] * weight.shape[1])
    return {**attrs, **pairs, "groups": groups}


# ---- correlation -----------------------------------------------------------------------------------------------------


@composite(functional="vision nn")
@rounded_once
def correlation(
    data1: Tensor,
    data2: Tensor,
    kernel_size: Positive = 1,
    max_displacement: Count = 1,
    stride1: Positive = 1,
    stride2: Positive = 1,
    pad_size: Count = 0,
    is_multiply: bool = True,
) -> Tensor:
    """How alike the patches of one image are to those of another around them: the mean, over channels and patch, of products (or of
    absolute differences).

    Shapes:   (N, C, H, W) twice -> (N, D D, PH, PW), where D = 2 (max_displacement // stride2) + 1
    Args:
        kernel_size: of a patch, odd. max_displacement: pixels up to which patches of data2 are moved, in steps of stride2; along W
            first. stride1: between patches of data1. pad_size: zeros around both. is_multiply: products; False: differences.
    Source:   Dosovitskiy et al., FlowNet, arXiv 1504.06852

    >>> from tengen import Tensor, functional as F
    >>> x = Tensor([[[[1.0, 2.0, 3.0]]]])
    >>> F.vision.correlation(x, x, pad_size=1).numpy()[0, 3:6, 0].tolist()
    [[0.0, 2.0, 6.0], [1.0, 4.0, 9.0], [2.0, 6.0, 0.0]]
    """
    n, c, h, w = data1.shape
    k, reach = kernel_size, max_displacement // stride2
    many = 2 * reach + 1
    ph, pw = (_places(s, data1.shape, **_sizes(k, max_displacement, stride1, pad_size)) for s in (h, w))

    def patches(x: Tensor, start: Dim, more: Dim) -> Tensor:
        """The pixels of all patches from `start` on, (N, C, K, K, ., .), of which each step of stride1 and `more` further pixels are read."""
        pads = ((0, 0), (0, 0), (pad_size, pad_size), (pad_size, pad_size))
        padded = x if as_int(pad_size) == 0 else lookup("pad")(x, pads)
        sizes = [(p - 1) * stride1 + 1 + more + k - 1 for p in (ph, pw)]
        part = strided_slice(padded, (0, 0, start, start), (n, c, *sizes), (1,) * 4)
        return permute(windows(part, (k, k), (1, 1), (1, 1)), (0, 1, 4, 5, 2, 3))

    mine = windows(patches(data1, max_displacement, 0), (1, 1), (stride1, stride1), (1, 1))
    others = patches(data2, max_displacement - reach * stride2, 2 * reach * stride2)
    others = windows(others, (many, many), (stride1, stride1), (stride2, stride2))
    alike = mul(mine, others) if is_multiply else abs(sub(mine, others))
    terms = c * (k * k)
    total = lookup("div")(sum_(alike, (1, 2, 3)), astype(lookup("extent_op")(terms, data1.dtype), data1.dtype))
    return reshape(permute(total, (0, 3, 4, 1, 2)), (n, many * many, ph, pw))


def _sizes(kernel_size: Dim, max_displacement: Dim, stride1: Dim, pad_size: Dim) -> dict[str, Dim]:
    return {"border": max_displacement + (kernel_size - 1) // 2, "stride": stride1, "pad": pad_size}


def _places(size: Dim, shape: Sequence[Dim], border: Dim, stride: Dim, pad: Dim) -> Dim:
    """How many patches of data1 there are along an axis."""
    inner = size + 2 * pad - 2 * border
    if (known := as_int(inner)) is not None and known < 1:
        raise ShapeError(f"images of shape {tuple(shape)} with padding {pad} have no pixel {border} pixels from the border")
    return (inner - 1) // stride + 1


@correlation.canon
def _(types, kernel_size, max_displacement, stride1, pad_size, **attrs):
    x, y = types
    check_floats(x, y)
    if x.ndim != 4 or kernel_size % 2 == 0:
        raise ShapeError(f"takes images (N, C, H, W) and an odd kernel_size, got {x} and {kernel_size}")
    check_shape("data2", y.shape, x.shape)
    sizes = _sizes(kernel_size, max_displacement, stride1, pad_size)
    for n in x.shape[2:]:
        _places(n, x.shape, **sizes)
    return {**attrs, "kernel_size": kernel_size, "max_displacement": max_displacement, "stride1": stride1, "pad_size": pad_size}


correlation.named(lambda arrays, **attrs: ("kernel_size", "max_displacement", "stride1", "stride2", "pad_size"))


# ---- references and samples ------------------------------------------------------------------------------------------


def _np_windows_of(x, kernel, stride, padding, dilation):
    """Yields (py, px, rows, columns) of each window in the image padded with zeros, and that image."""
    (kh, kw), (sy, sx), (p, q), (dy, dx) = kernel, *(np.broadcast_to(v, 2) for v in (stride, padding, dilation))
    x = np.pad(x, ((0, 0),) * (x.ndim - 2) + ((p, p), (q, q)))
    ph, pw = (x.shape[-2] - dy * (kh - 1) - 1) // sy + 1, (x.shape[-1] - dx * (kw - 1) - 1) // sx + 1
    places = [(i, j, i * sy + np.arange(kh) * dy, j * sx + np.arange(kw) * dx) for i in range(ph) for j in range(pw)]
    return x, (ph, pw), places


def _np_grouped(window, weight):
    """A window (N, C, KH, KW) times filters."""
    weight = weight[None] if weight.ndim == 4 else weight
    parts = np.split(window, len(weight), 1)
    return np.concatenate([np.einsum("nckl,ockl->no", part, w) for part, w in zip(parts, weight)], 1)


def _np_deformable(x, weight, offset, mask, bias=None, stride=1, padding=0, dilation=1, groups=1, **ignored):
    kernel = weight.shape[-2:]
    _, size, places = _np_windows_of(x, kernel, stride, padding, dilation)
    pad = np.broadcast_to(padding, 2)
    many = offset.shape[1] // (2 * kernel[0] * kernel[1])
    out = np.zeros((len(x), weight.shape[0] * (weight.shape[1] if weight.ndim == 5 else 1), *size))
    for i, j, rows, columns in places:
        window = np.zeros((*x.shape[:2], *kernel))
        for n, c, a, b in np.ndindex(*window.shape):
            e = c * many // x.shape[1] * kernel[0] * kernel[1] + a * kernel[1] + b
            y, z = rows[a] - pad[0] + offset[n, 2 * e, i, j], columns[b] - pad[1] + offset[n, 2 * e + 1, i, j]
            for r in (int(np.floor(y)), int(np.floor(y)) + 1):
                for s in (int(np.floor(z)), int(np.floor(z)) + 1):
                    if 0 <= r < x.shape[2] and 0 <= s < x.shape[3]:
                        window[n, c, a, b] += mask[n, e, i, j] * x[n, c, r, s] * (1 - np.abs(y - r)) * (1 - np.abs(z - s))
        out[:, :, i, j] = _np_grouped(window, weight)
    return out if bias is None else out + bias


def _np_local(x, weight, bias=None, stride=1, padding=0, dilation=1, conv_mode=""):
    w = weight if weight.ndim == 7 else weight[None]
    padded, size, places = _np_windows_of(x, w.shape[4:6], stride, padding, dilation)
    out = np.zeros((len(x), w.shape[0] * w.shape[6], *size))
    for i, j, rows, columns in places:
        window = padded[:, :, rows[:, None], columns]
        out[:, :, i, j] = _np_grouped(window, np.moveaxis(w[:, i, j], -1, 1))
    return out if bias is None else out + bias


def _np_region(x, weight, rin, rout, bias=None, stride=1, padding=0, dilation=1, groups=1, **ignored):
    padded, size, places = _np_windows_of(x, weight.shape[-2:], stride, padding, dilation)
    regions = _np_windows_of(rin, weight.shape[-2:], stride, padding, dilation)[0]
    out = np.zeros((len(x), weight.shape[0] * weight.shape[1], *size))
    for i, j, rows, columns in places:
        same = regions[:, rows[:, None], columns] == rout[:, i, j, None, None]
        out[:, :, i, j] = _np_grouped(padded[:, :, rows[:, None], columns] * same[:, None], weight)
    return out if bias is None else out + bias


def _np_correlation(a, b, kernel_size=1, max_displacement=1, stride1=1, stride2=1, pad_size=0, is_multiply=True):
    a, b = (np.pad(t, ((0, 0), (0, 0), (pad_size,) * 2, (pad_size,) * 2)) for t in (a, b))
    border, reach = max_displacement + kernel_size // 2, max_displacement // stride2
    ph, pw = (-(-(n - 2 * border) // stride1) for n in a.shape[2:])
    steps = [s * stride2 for s in range(-reach, reach + 1)]
    out = np.zeros((len(a), len(steps) ** 2, ph, pw))
    for d, i, j in np.ndindex(*out.shape[1:]):
        y, x = i * stride1 + max_displacement, j * stride1 + max_displacement
        dy, dx = steps[d // len(steps)], steps[d % len(steps)]
        p = a[:, :, y : y + kernel_size, x : x + kernel_size]
        q = b[:, :, y + dy : y + dy + kernel_size, x + dx : x + dx + kernel_size]
        out[:, d, i, j] = (p * q if is_multiply else np.abs(p - q)).mean((1, 2, 3))
    return out


def _offsets(r, *shape):
    """Offsets away from whole numbers, at which slopes change."""
    return r.integers(-6, 6, shape) / 4 + 0.125


deformable_conv2d.reference(_np_deformable)
deformable_conv2d.cases(
    Case(
        lambda r: (
            r.normal(size=(2, 4, 4, 5)), r.normal(size=(3, 4, 2, 2)), _offsets(r, 2, 16, 3, 4), r.uniform(0, 1, (2, 8, 3, 4)), None,
        )
    ),
    Case(
        lambda r: (
            r.normal(size=(1, 4, 4, 5)), r.normal(size=(2, 3, 2, 3, 3)), _offsets(r, 1, 18, 2, 3), r.uniform(0, 1, (1, 9, 2, 3)),
            r.normal(size=(1, 6, 1, 1)),
        ),
        {"stride": 2, "padding": 1, "groups": 2},
    ),
)  # fmt: skip
local_conv2d.reference(_np_local)
local_conv2d.cases(
    Case(lambda r: (r.normal(size=(2, 2, 4, 5)), r.normal(size=(3, 3, 2, 2, 3, 4)), None)),
    Case(
        lambda r: (r.normal(size=(1, 4, 5, 4)), r.normal(size=(2, 3, 2, 2, 3, 3, 2)), r.normal(size=(1, 4, 1, 1))),
        {"stride": 2, "padding": 1},
    ),
)
region_restricted_conv.reference(_np_region)
region_restricted_conv.cases(
    Case(
        lambda r: (
            r.normal(size=(2, 4, 4, 5)), r.normal(size=(2, 3, 2, 3, 3)), r.integers(0, 2, (2, 4, 5)), r.integers(0, 2, (2, 4, 5)),
            r.normal(size=(1, 6, 1, 1)),
        ),
        {"padding": 1, "groups": 2},
    ),
)  # fmt: skip
correlation.reference(_np_correlation)
_two = lambda r: (r.normal(size=(2, 3, 5, 6)), r.normal(size=(2, 3, 5, 6)))
correlation.cases(
    Case(_two),
    Case(_two, {"kernel_size": 3, "max_displacement": 2, "stride1": 2, "stride2": 2, "pad_size": 3}),
    Case(_two, {"max_displacement": 3, "stride2": 2, "pad_size": 2, "is_multiply": False}),
)
