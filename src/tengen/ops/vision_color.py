"""Colours: `cvt_color`, in integers for a camera's pictures (uint8), and in floats.

The formulas are those that MegEngine 1.13 computes, found by comparing its results: fixed-point numbers of 14 bits (OpenCV's) for
packed colours, of 8 bits for planes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np

from tengen.base.dtype import int32, uint8
from tengen.base.errors import DTypeError, ShapeError
from tengen.loops.lang import as_int
from tengen.ops.attributes import Color
from tengen.ops.define import Case, composite
from tengen.ops.elementwise import add, astype, maximum, minimum, mul, sub
from tengen.ops.joining import concat
from tengen.ops.logic import right_shift
from tengen.ops.shape import broadcast_to, permute, reshape, strided_slice
from tengen.ops.widths import rounded_once

if TYPE_CHECKING:
    from tengen.tensor import Tensor

FLOAT_MODES = ("RGB2GRAY", "BGR2GRAY", "GRAY2RGB", "RGB2YUV", "YUV2RGB")
CHANNELS = {"RGB": 3, "BGR": 3, "YUV": 3, "RGBA": 4, "GRAY": 1}  # of a packed picture
PLANES = ("NV12", "NV21", "YU12", "YV12")  # a plane of brightness, then colours at half the size


def _channel(x: Tensor, i: int) -> Tensor:
    """Channel i of (N, H, W, C), as (N, H, W, 1)."""
    n, h, w, _ = x.shape
    return strided_slice(x, (0, 0, 0, i), (n, h, w, 1), (1, 1, 1, 1))


def _shifted(x: Tensor, bits: int) -> Tensor:
    """x / 2^bits, rounded to nearest, halves up."""
    return right_shift(add(x, 1 << (bits - 1)), bits)


def _gray(r: Tensor, g: Tensor, b: Tensor) -> Tensor:
    if r.dtype.is_float:
        return add(add(mul(r, 0.299), mul(g, 0.587)), mul(b, 0.114))
    return _shifted(add(add(mul(r, 4899), mul(g, 9617)), mul(b, 1868)), 14)


def _packed(x: Tensor, source: str, target: str) -> list[Tensor]:
    """The channels (N, H, W, 1) of a picture (N, H, W, C) in other colours."""
    channels = [_channel(x, i) for i in range(CHANNELS[source])][:3]
    if source == "GRAY":
        return channels * 3
    if target in ("RGB", "BGR") and source != "YUV":
        return channels if target in source else channels[::-1]
    first, second, third = channels if x.dtype.is_float else (astype(c, int32) for c in channels)
    if {source, target} == {"RGB", "YUV"}:
        return _to_yuv(first, second, third) if target == "YUV" else _from_yuv(first, second, third)
    return [_gray(third, second, first) if source == "BGR" else _gray(first, second, third)]


def _to_yuv(b: Tensor, g: Tensor, r: Tensor) -> list[Tensor]:
    """MegEngine's "RGB2YUV" takes the first channel for blue."""
    y = _gray(r, g, b)
    if b.dtype.is_float:
        return [y, add(mul(sub(b, y), 0.492), 0.5), add(mul(sub(r, y), 0.877), 0.5)]
    return [y, *(_shifted(add(mul(sub(c, y), k), 128 << 14), 14) for c, k in ((b, 8061), (r, 14369)))]


def _from_yuv(y: Tensor, u: Tensor, v: Tensor) -> list[Tensor]:
    """Its "YUV2RGB" gives blue first."""
    if y.dtype.is_float:
        u, v = sub(u, 0.5), sub(v, 0.5)
        return [add(y, mul(u, 2.032)), sub(sub(y, mul(u, 0.395)), mul(v, 0.581)), add(y, mul(v, 1.14))]
    u, v = sub(u, 128), sub(v, 128)
    terms = [mul(u, 33292), add(mul(u, -6472), mul(v, -9519)), mul(v, 18678)]
    return [add(y, _shifted(t, 14)) for t in terms]


def _from_planes(x: Tensor, planes: str, target: str, studio: bool) -> list[Tensor]:
    """The channels of a picture (N, 3 H / 2, W, 1) of planes: (N, H, W, 1) if it is one, else (N, H / 2, 2, W / 2, 2, 1), so that each
    colour is read where it lies, for four pixels. studio: brightness in 16..235 (BT.601), else in 0..255."""
    n, rows, w, _ = x.shape
    h = rows // 3 * 2
    y = strided_slice(x, (0, 0, 0, 0), (n, h, w, 1), (1, 1, 1, 1))
    if target == "GRAY":
        return [y]
    rest = strided_slice(x, (0, h, 0, 0), (n, h // 2, w, 1), (1, 1, 1, 1))
    order = (1, 0) if planes in ("NV21", "YV12") else (0, 1)  # V before U, or behind
    if planes.startswith("NV"):
        pairs = reshape(rest, (n, h // 2, w // 2, 2))
        u, v = (strided_slice(pairs, (0, 0, 0, i), (n, h // 2, w // 2, 1), (1,) * 4) for i in order)
    else:
        halves = reshape(rest, (n, 2, h // 2, w // 2))
        u, v = (strided_slice(halves, (0, i, 0, 0), (n, 1, h // 2, w // 2), (1,) * 4) for i in order)
    fours = (n, h // 2, 2, w // 2, 2, 1)
    y = astype(reshape(y, fours), int32)
    u, v = (sub(astype(broadcast_to(reshape(c, (n, h // 2, 1, w // 2, 1, 1)), fours), int32), 128) for c in (u, v))
    if studio:  # with the half that rounds the shift, in what is computed once for four pixels
        light, half = mul(y, 298), 128 - 16 * 298
        r, b = (add(light, add(mul(c, k), half)) for c, k in ((v, 409), (u, 516)))
        g = sub(light, sub(add(mul(u, 100), mul(v, 208)), half))
        r, g, b = (right_shift(c, 8) for c in (r, g, b))
    else:
        r, b = add(y, right_shift(mul(v, 359), 8)), add(y, right_shift(mul(u, 454), 8))
        g = sub(y, right_shift(add(mul(u, 88), mul(v, 183)), 8))
    return [r, g, b] if target == "RGB" else [b, g, r]


@composite(functional="vision nn")
@rounded_once
def cvt_color(inp: Tensor, mode: Color, format: Literal["NHWC", "NCHW"] = "NHWC") -> Tensor:
    """Pictures in other colours.

    Shapes:   (N, H, W, C) -> (N, H, W, C'); from planes (NV12, NV21, YU12 or I420, YV12, YCrCb) (N, 3 H / 2, W, 1) -> (N, H, W, C'). With
        format="NCHW" channels are axis 1 of both.
    Args:     mode: from what to what. float32 pictures have "RGB2GRAY", "BGR2GRAY", "GRAY2RGB", "RGB2YUV" and "YUV2RGB". What cameras
        give is mostly "BT601_YUV2RGB_NV12": brightness in 16..235, one plane of it, then pairs (U, V) for each 2 x 2 pixels.
    Dtypes:   uint8, or floats
    Numerics: the bits of MegEngine 1.13 in uint8, also where its "RGB2YUV" and "YUV2RGB" take the first channel of RGB for blue; "BT601_"
        differ by at most 2 from it, and by at most 1 from OpenCV, which takes a brightness below 16 for 16. YUV of floats has its middle
        at 0.5

    >>> from tengen import Tensor, functional as F
    >>> F.vision.cvt_color(Tensor([[[[10, 20, 30]]]], dtype="uint8"), "RGB2GRAY").tolist()
    [[[[18]]]]
    """
    studio = mode.startswith("BT601_")
    source, target = mode.removeprefix("BT601_").split("2", 1)
    target, _, planes = target.partition("_")
    planes = "NV21" if source == "YCrCb" else planes
    x = inp if format == "NHWC" else permute(inp, (0, 2, 3, 1))
    channels = _from_planes(x, planes, target, studio) if planes else _packed(x, source, target)
    if not inp.dtype.is_float:
        channels = [c if c.dtype is uint8 else astype(minimum(maximum(c, 0), 255), uint8) for c in channels]
    n, h, w, _ = x.shape
    h, count = h // 3 * 2 if planes else h, len(channels)
    if format == "NHWC":
        return reshape(concat(channels, channels[0].ndim - 1), (n, h, w, count))
    return reshape(concat([reshape(c, (n, 1, *c.shape[1:-1])) for c in channels], 1), (n, count, h, w))


@cvt_color.canon
def _(types, mode, format):
    x, mode = types[0], mode.replace("I420", "YU12")  # two names of one order
    if x.dtype is not uint8 and not (x.dtype.is_float and mode in FLOAT_MODES):
        raise DTypeError(f"mode {mode!r} takes uint8{' or floats' if mode in FLOAT_MODES else ''}, got {x}")
    source = mode.removeprefix("BT601_").split("2", 1)[0]
    planar = source == "YCrCb" or mode.rpartition("_")[2] in PLANES
    channels = 1 if planar else CHANNELS[source]
    axis, rows = (3, 1) if format == "NHWC" else (1, 2)
    if x.ndim != 4 or as_int(x.shape[axis]) != channels:
        wanted = f"(N, H, W, {channels})" if format == "NHWC" else f"(N, {channels}, H, W)"
        raise ShapeError(f"mode {mode!r} takes pictures {wanted}, got {x}")
    if planar and (as_int(x.shape[rows] % 3) not in (0, None) or as_int(x.shape[rows + 1] % 2) not in (0, None)):
        raise ShapeError(f"mode {mode!r} takes planes of 3 H / 2 rows with an even W, got {x}")
    return {"mode": mode, "format": format}


# ---- reference and samples -------------------------------------------------------------------------------------------


def _np_planes(x, planes):
    """(y, u, v) of each pixel, from the file's bytes one by one."""
    n, rows, w, _ = x.shape
    h = rows * 2 // 3
    flat = x.reshape(n, rows * w)
    y, u, v = (np.zeros((n, h, w)) for _ in range(3))
    for i, j in np.ndindex(h, w):
        y[:, i, j] = flat[:, i * w + j]
        if planes.startswith("NV"):
            at = [h * w + i // 2 * w + j // 2 * 2 + o for o in (0, 1)]
        else:
            at = [h * w + o * (h * w // 4) + i // 2 * (w // 2) + j // 2 for o in (0, 1)]
        first, second = (flat[:, a] for a in at)
        u[:, i, j], v[:, i, j] = (second, first) if planes in ("NV21", "YV12") else (first, second)
    return y, u - 128, v - 128


def _np_cvt_color(x, mode, format="NHWC"):
    if format == "NCHW":
        return _np_cvt_color(x.transpose(0, 2, 3, 1), mode).transpose(0, 3, 1, 2)
    mode = mode.replace("I420", "YU12")
    whole, x = x.dtype.kind != "f", x.astype(np.float64)
    picture = (lambda *c: np.clip(np.stack(c, -1), 0, 255)) if whole else (lambda *c: np.stack(c, -1))
    name, _, planes = mode.removeprefix("BT601_").partition("_")
    source, target = name.split("2")
    turn = (lambda r, g, b: picture(r, g, b)) if target == "RGB" else (lambda r, g, b: picture(b, g, r))
    if source == "YCrCb" or planes:
        y, u, v = _np_planes(x, planes or "NV21")
        if target == "GRAY":
            return y[..., None]
        if mode.startswith("BT601_"):
            y = 298 * (y - 16) + 128
            return turn(*(np.floor(c / 256) for c in (y + 409 * v, y - 100 * u - 208 * v, y + 516 * u)))
        return turn(y + np.floor(359 * v / 256), y - np.floor((88 * u + 183 * v) / 256), y + np.floor(454 * u / 256))
    if source == "GRAY":
        return np.repeat(x, 3, -1)
    a, b, c = x[..., 0], x[..., 1], x[..., 2]
    half = (lambda t: np.floor(t / 2**14 + 0.5)) if whole else None
    gray = lambda r, g, b: half(4899 * r + 9617 * g + 1868 * b) if half else 0.299 * r + 0.587 * g + 0.114 * b
    if target == "YUV":
        y = gray(c, b, a)
        if half:
            return picture(y, half((a - y) * 8061 + (128 << 14)), half((c - y) * 14369 + (128 << 14)))
        return picture(y, (a - y) * 0.492 + 0.5, (c - y) * 0.877 + 0.5)
    if source == "YUV":
        if half:
            u, v = b - 128, c - 128
            return picture(a + half(33292 * u), a + half(-6472 * u - 9519 * v), a + half(18678 * v))
        u, v = b - 0.5, c - 0.5
        return picture(a + 2.032 * u, a - 0.395 * u - 0.581 * v, a + 1.14 * v)
    r, g, b = (c, b, a) if source == "BGR" else (a, b, c)
    return gray(r, g, b)[..., None] if target == "GRAY" else turn(r, g, b)


cvt_color.reference(_np_cvt_color)
cvt_color.known(lambda arrays, **attrs: {3})  # the colours, as many as its gradient joins
_bytes = lambda *shape: lambda r: (r.integers(0, 256, shape).astype(np.uint8),)
cvt_color.cases(
    *(Case(_bytes(2, 3, 17, CHANNELS[m.split("2")[0]]), {"mode": m}, grad=False) for m in (*FLOAT_MODES, "RGBA2BGR", "BGR2RGB")),
    *(Case(_bytes(1, 6, 4, 1), {"mode": m}, grad=False) for m in ("YUV2RGB_NV12", "YUV2BGR_YV12", "BT601_YUV2RGB_YU12", "YCrCb2RGB")),
    Case(_bytes(2, 1, 6, 4), {"mode": "BT601_YUV2BGR_I420", "format": "NCHW"}, grad=False),
    Case(_bytes(2, 3, 5, 7), {"mode": "RGB2GRAY", "format": "NCHW"}, grad=False),
    *(Case(lambda r, n=CHANNELS[m.split("2")[0]]: (r.uniform(0, 1, (2, 3, 2, n)),), {"mode": m}) for m in FLOAT_MODES),
)
