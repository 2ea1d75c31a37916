"""Pictures in other sizes: Resize, Upsample, GridSample, AffineGrid."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import tengen.functional as F
from tengen.base.dtype import dtype
from tengen.base.errors import TraceError
from tengen.interop.networks.places import modest, product
from tengen.interop.networks.values import shape_array
from tengen.interop.onnx.reader import NodeOf
from tengen.interop.onnx.registry import op
from tengen.interop.onnx.values import Value, as_tensor, ints, known
from tengen.loops.lang import Expr, unguarded
from tengen.ops.reduce import extent
from tengen.tensor import Tensor


def positions(n: NodeOf, size: int, out: int, scale: Any, roi: tuple[Any, Any], number: Any = np.float64) -> np.ndarray:
    """For each pixel of the result, where it lies in the input, computed in the dtype `number`."""
    modest(out)
    at, scale, roi = np.arange(out, dtype=number), number(scale), (number(roi[0]), number(roi[1]))
    match n.get("coordinate_transformation_mode", "asymmetric"):
        case "half_pixel":
            return (at + 0.5) / scale - 0.5
        case "pytorch_half_pixel":
            return (at + 0.5) / scale - 0.5 if out > 1 else np.zeros(out, number)
        case "half_pixel_symmetric":
            adjusted = number(out) / (size * scale)
            return number(size / 2) * (1 - adjusted) + (at + 0.5) / scale - 0.5
        case "align_corners":
            return at * (size - 1) / (size * scale - 1) if out > 1 else np.zeros(out, number)
        case "asymmetric":
            return at / scale
        case "tf_half_pixel_for_nn":
            return (at + 0.5) / scale
        case "tf_crop_and_resize":
            start, end = roi
            if out > 1:
                return start * (size - 1) + at * (end - start) * (size - 1) / (out - 1)
            return np.full(out, 0.5 * (start + end) * (size - 1), number)
    raise ValueError(f"coordinate_transformation_mode={n['coordinate_transformation_mode']!r} is unknown")


NEAREST: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}


def cubic(d: np.ndarray, a: float) -> np.ndarray:
    """Keys' kernel at a distance."""
    d = np.abs(d)
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((d - 5) * d + 8) * d * a - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0.0))


def taps(n: NodeOf, size: int, out: int, scale: float, roi: tuple[float, float]) -> tuple[np.ndarray, np.ndarray]:
    """Indices and weights of the pixels that make each pixel of the result: (out, taps)."""
    mode = n["mode"]
    if mode == "nearest":  # in float32, as scales are: (1 + .5) / .6 - .5 is 2 there, and below it in float64
        x = positions(n, size, out, scale, roi, np.float32)
        early = n.op == "Upsample" or n.since < 11  # these had one rule: down when the picture grows, up when it shrinks
        index = NEAREST["ceil" if early and scale < 1 else "floor" if early else n.get("nearest_mode", "round_prefer_floor")](x)[:, None]
        return np.clip(index, 0, size - 1).astype(np.int64), np.ones((out, 1))
    x = positions(n, size, out, scale, roi)
    shrink = min(scale, 1.0) if n.get("antialias", 0) else 1.0
    reach = (2 if mode == "cubic" else 1) / shrink
    first = np.floor(x).astype(np.int64) - int(np.ceil(reach)) + 1
    index = first[:, None] + np.arange(2 * int(np.ceil(reach)))[None]
    distance = (x[:, None] - index) * shrink
    weight = cubic(distance, n.get("cubic_coeff_a", -0.75)) if mode == "cubic" else np.maximum(0, 1 - np.abs(distance))
    outside = (index < 0) | (index >= size)
    if n.get("exclude_outside", 0):
        weight = np.where(outside, 0, weight)
    if n.get("exclude_outside", 0) or n.get("antialias", 0):
        weight = weight / weight.sum(1, keepdims=True)
    return np.clip(index, 0, size - 1), weight


def resampled(t: Tensor, axis: int, index: np.ndarray, weight: np.ndarray) -> Tensor:
    """One axis made anew: a sum over taps."""
    if index.shape[1] == 1 and (weight == 1).all():
        return F.take(t, as_tensor(index[:, 0]), axis)
    shape = [-1 if a == axis else 1 for a in range(len(t.shape))]
    total: Any = None
    for k in range(index.shape[1]):
        if not weight[:, k].any():
            continue
        w = as_tensor(weight[:, k].reshape(shape).astype(t.dtype.numpy))
        part = F.take(t, as_tensor(index[:, k]), axis) * w
        total = part if total is None else total + part
    return total


# -- extents that are open --------------------------------------------------------------------------------------------------
def number_of(v: Any, kind: str) -> Any:
    """A number, or an open extent as a scalar tensor."""
    return extent(unguarded(v), dtype(kind)) if isinstance(v, Expr) else v.astype(kind) if isinstance(v, Tensor) else float(v)


def open_positions(n: NodeOf, size: Any, out: Any, scale: Any, kind: str) -> Tensor:
    """`positions` where the extents are open, by the same arithmetic.

    Errors: TraceError for a transformation that needs their numbers.
    """
    at, mode = F.arange(out, dtype="int64").astype(kind), n.get("coordinate_transformation_mode", "asymmetric")
    size, several, scale = number_of(size, kind), F.greater(as_tensor(shape_array([out])), 1), number_of(scale, kind)
    match mode:
        case "half_pixel":
            return (at + 0.5) / scale - 0.5
        case "pytorch_half_pixel":
            return F.where(several, (at + 0.5) / scale - 0.5, 0.0)
        case "align_corners":
            return F.where(several, at * (size - 1) / (size * scale - 1), 0.0)
        case "asymmetric":
            return at / scale
    raise TraceError(f"coordinate_transformation_mode={mode!r} needs the numbers of the extents")


def open_taps(n: NodeOf, size: Any, out: Any, scale: Any) -> list[tuple[Tensor, Tensor | None]]:
    """`taps` where the extents are open: for each pixel that makes one of the result its index, and its weight (None: 1)."""
    mode, last = n["mode"], lambda kind: number_of(size, kind) - 1
    inside = lambda index, kind: F.minimum(F.maximum(index, 0.0), last(kind)).astype("int64")
    if mode == "nearest":
        x = open_positions(n, size, out, scale, "float32")
        early = n.op == "Upsample" or n.since < 11
        rule = "ceil" if early and scale < 1 else "floor" if early else n.get("nearest_mode", "round_prefer_floor")
        ways = {"round_prefer_floor": (-0.5, F.ceil), "round_prefer_ceil": (0.5, F.floor), "floor": (0.0, F.floor), "ceil": (0.0, F.ceil)}
        return [(inside(ways[rule][1](x + ways[rule][0]), "float32"), None)]
    if n.get("antialias", 0):
        raise TraceError("antialias needs the numbers of the extents")
    x = open_positions(n, size, out, scale, "float64")
    reach = 2 if mode == "cubic" else 1
    indices = [F.floor(x) + float(k - reach + 1) for k in range(2 * reach)]
    weights = [open_cubic(x - i, n.get("cubic_coeff_a", -0.75)) if mode == "cubic" else F.maximum(0.0, 1 - F.abs(x - i)) for i in indices]
    if n.get("exclude_outside", 0):
        weights = [F.where(F.logical_or(i < 0, i > last("float64")), 0.0, w) for i, w in zip(indices, weights)]
        total = functools.reduce(operator.add, weights)
        weights = [w / total for w in weights]
    return [(inside(i, "float64"), w) for i, w in zip(indices, weights)]


def open_cubic(d: Tensor, a: float) -> Tensor:
    """`cubic` of a tensor."""
    d = F.abs(d)
    near, far = ((a + 2) * d - (a + 3)) * d * d + 1, ((d - 5) * d + 8) * d * a - 4 * a
    return F.where(d <= 1, near, F.where(d < 2, far, 0.0))


def openly_resampled(t: Tensor, axis: int, parts: Sequence[tuple[Tensor, Tensor | None]]) -> Tensor:
    """`resampled` by tensors: pixels that have no weight anywhere are left out here, too."""
    shape, total = [-1 if a == axis else 1 for a in range(len(t.shape))], None
    for index, weight in parts:
        part = F.take(t, index, axis)
        if weight is None:
            return part
        part = part * weight.astype(t.dtype).reshape(*shape)
        total = part if total is None else F.where(F.max(F.abs(weight)) > 0, total + part, total)
    assert total is not None
    return total


def ratio(out: Any, size: Any) -> Any:
    """How many times as large an axis becomes: a number, or a tensor of float64 where one of them is open."""
    if not isinstance(out, Expr) and not isinstance(size, Expr):
        return out / size
    return number_of(out, "float64") / number_of(size, "float64")


def scaled(size: Any, scale: float) -> Any:
    """An extent times a scale, rounded down, in float32 as shapes are inferred. Open extents take whole scales."""
    if isinstance(size, Expr) and scale == int(scale):
        return size * int(scale)
    return int(np.floor(np.float32(int(size)) * np.float32(scale)))


def same_extent(a: Any, b: Any) -> bool:
    """Whether two extents are known to be equal."""
    return unguarded(a) is unguarded(b) if isinstance(a, Expr) or isinstance(b, Expr) else a == b


@op("Resize", "Upsample")
def resize(n: NodeOf, x: Value, roi: Value = None, scales: Value = None, sizes: Value = None) -> Value:
    """By sizes or by scales, axis by axis."""
    t = as_tensor(x)
    if n.op == "Upsample" or n.since == 10:
        scales, roi = (np.asarray(n["scales"]) if n.since < 9 and n.op == "Upsample" else roi), None
    axes = [a % len(t.shape) for a in (n.get("axes") or range(len(t.shape)))]
    extents = [t.shape[a] for a in axes]
    if sizes is not None and np.size(known(sizes)):
        outs = ints(sizes)
        by = [1.0 if same_extent(o, e) else ratio(o, e) for o, e in zip(outs, extents)]
        policy = n.get("keep_aspect_ratio_policy", "stretch")
        if policy != "stretch":
            extents = [int(e) for e in extents]
            one = min(by) if policy == "not_larger" else max(by)
            by, outs = [one] * len(by), [int(np.floor(one * e + 0.5)) for e in extents]
    else:
        by = [float(s) for s in known(scales).reshape(-1)]
        outs = [scaled(e, s) for e, s in zip(extents, by)]
    crop = n.get("coordinate_transformation_mode") == "tf_crop_and_resize"
    region = [] if roi is None else [float(r) for r in known(roi).reshape(-1)]
    if crop and len(region) != 2 * len(axes):
        raise ValueError(f"tf_crop_and_resize needs 2 numbers of roi for each of {len(axes)} axes, got {len(region)}")
    region = region or [0.0] * len(axes) + [1.0] * len(axes)
    given = t
    t = t if t.dtype.is_inexact or n["mode"] == "nearest" else t.astype("float32")
    outside = None
    for i, (a, e, o, s) in enumerate(zip(axes, extents, outs, by)):
        window = (region[i], region[i + len(axes)])
        if same_extent(e, o) and not isinstance(s, Tensor) and s == 1 and not crop:
            continue
        if not crop and (isinstance(e, Expr) or isinstance(o, Expr)):
            t = openly_resampled(t, a, open_taps(n, e, o, s))
            continue
        t = resampled(t, a, *taps(n, e, o, s, window))
        if crop:
            x_ = positions(n, e, o, s, window)
            off = ((x_ < 0) | (x_ > e - 1)).reshape([-1 if b == a else 1 for b in range(len(t.shape))])
            outside = off if outside is None else outside | off
    if outside is not None:
        t = F.where(as_tensor(outside), np.asarray(n["extrapolation_value"], t.dtype.numpy), t)
    return t if t.dtype == given.dtype else F.round(t).astype(given.dtype)


def unnormalised(v: Tensor, size: Any, align: bool) -> Tensor:
    """Places in -1 to 1 as pixels."""
    return (v + 1) * ((size - 1) / 2) if align else ((v + 1) * size - 1) / 2


def reflected(v: Tensor, size: int, align: bool) -> Tensor:
    """Places outside thrown back at the borders."""
    low, high = (0.0, float(size - 1)) if align else (-0.5, size - 0.5)
    span = high - low
    if span == 0:
        return F.zeros_like(v)
    off = F.abs(v - low)
    turns, rest = F.floor(off / span), F.mod(off, span)
    return F.where(F.equal(F.mod(turns, 2.0), 0), rest + low, high - rest)


@op("GridSample")
def grid_sample(n: NodeOf, x: Value, grid: Value) -> Value:
    """Pictures of two or three dimensions at the places of a grid, whose last axis is (x, y) or (x, y, z)."""
    t, at = as_tensor(x), as_tensor(grid)
    rank, align = len(t.shape) - 2, bool(n["align_corners"])
    mode = {"bilinear": "linear", "bicubic": "cubic"}.get(n["mode"], n["mode"])
    extents = [int(e) for e in t.shape[2:]]
    places = [unnormalised(at[..., rank - 1 - i].astype(t.dtype), extents[i], align) for i in range(rank)]
    if n["padding_mode"] == "border" and mode != "cubic":
        places = [F.clip(p, 0, e - 1) for p, e in zip(places, extents)]
    if n["padding_mode"] == "reflection" and mode != "cubic":
        places = [F.clip(reflected(p, e, align), 0, e - 1) for p, e in zip(places, extents)]
    lines = [line(p, mode) for p in places]
    flat = t.reshape(t.shape[0], t.shape[1], -1)
    return summed(n, flat, lines, extents, align)


def line(p: Tensor, mode: str) -> list[tuple[Tensor, Any]]:
    """The pixels along one axis that make the value at a place, with their weights."""
    if mode == "nearest":
        return [(F.round(p), None)]
    base = F.floor(p)
    if mode == "linear":
        return [(base + d, 1 - F.abs(p - (base + d))) for d in (0, 1)]
    found = []
    for d in (-1, 0, 1, 2):
        off, a = F.abs(p - (base + d)), -0.75
        near, far = ((a + 2) * off - (a + 3)) * off * off + 1, ((off - 5) * off + 8) * off * a - 4 * a
        found.append((base + d, near if d in (0, 1) else far))
    return found


def summed(n: NodeOf, flat: Tensor, lines: Sequence[list], extents: Sequence[int], align: bool) -> Tensor:
    """The sum over all pixels that contribute: (N, C, *places)."""
    combos: list[list[tuple[Tensor, Any]]] = [[]]
    for one in lines:
        combos = [[*c, tap] for c in combos for tap in one]
    total: Any = None
    for combo in combos:
        place: Any = 0
        weight: Any = None
        inside: Any = None
        for (p, w), e in zip(combo, extents):
            if n["padding_mode"] == "reflection":
                p = F.clip(reflected(p, e, align), 0, e - 1)
            here = F.logical_and(F.greater_equal(p, 0), F.less(p, e))
            inside = here if inside is None else F.logical_and(inside, here)
            place = place * e + F.clip(p, 0, e - 1).astype("int64")
            weight = w if weight is None else weight if w is None else weight * w
        shape = place.shape
        index = F.broadcast_to(place.reshape(shape[0], 1, -1), (flat.shape[0], flat.shape[1], int(np.prod(shape[1:]))))
        value = F.gather(flat, 2, index.astype("int32")).reshape(flat.shape[0], flat.shape[1], *shape[1:])
        if n["padding_mode"] == "zeros":
            value = F.where(F.expand_dims(inside, 1), value, F.zeros_like(value))
        value = value if weight is None else value * F.expand_dims(weight, 1)
        total = value if total is None else total + value
    return total


@op("AffineGrid")
def affine_grid(n: NodeOf, theta: Value, size: Value) -> Value:
    """The grid of an affine map, for pictures of two or three dimensions."""
    m, extents = as_tensor(theta), ints(size)[2:]
    rank = len(extents)
    modest(product(extents))
    axes = []
    for e in extents:
        v = np.linspace(-1, 1, e) if n["align_corners"] else (np.arange(e) * 2 + 1) / e - 1
        axes.append(v)
    mesh = np.meshgrid(*axes, indexing="ij")
    points = np.stack([*mesh[::-1], np.ones(extents)], -1).reshape(1, -1, rank + 1).astype(m.dtype.numpy)
    return F.matmul(as_tensor(points), F.transpose(m, [0, 2, 1])).reshape(m.shape[0], *extents, rank)
