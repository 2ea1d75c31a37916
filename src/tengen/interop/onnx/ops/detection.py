"""Boxes and regions of pictures, and decoding of pictures."""

from __future__ import annotations

import io

import numpy as np

import tengen.functional as F
from tengen.base.errors import ArgumentError
from tengen.interop.onnx.reader import NodeOf
from tengen.interop.onnx.registry import op
from tengen.interop.onnx.values import Value, as_tensor, ints, known
from tengen.tensor import Tensor


@op("NonMaxSuppression")
def nms(n: NodeOf, boxes: Value, scores: Value, most: Value = None, overlap: Value = None, least: Value = None) -> Value:
    """The boxes that are kept, as (picture, class, box)."""
    b, s = as_tensor(boxes), as_tensor(scores)
    limit = ints(most)[0] if most is not None else 0
    iou = float(known(overlap).reshape(-1)[0]) if overlap is not None else 0.0
    floor = float(known(least).reshape(-1)[0]) if least is not None else None
    if n.get("center_point_box", 0):
        centre, half = b[..., :2], b[..., 2:] / 2
        b = F.concat([centre - half, centre + half], 2)
    else:
        b = F.concat([F.minimum(b[..., :2], b[..., 2:]), F.maximum(b[..., :2], b[..., 2:])], 2)
    found = []
    for i in range(s.shape[0]) if limit else ():
        for c in range(s.shape[1]):
            kept = np.arange(s.shape[2]) if floor is None else np.flatnonzero(known(s[i, c]) > floor)
            if not len(kept):
                continue
            chosen = as_tensor(kept)
            order = F.nms(F.take(b[i], chosen, 0), F.take(s[i, c], chosen), iou, min(limit, len(kept)))
            rows = kept[known(order)]
            found.append(np.stack([np.full(len(rows), i), np.full(len(rows), c), rows], 1))
    return as_tensor(np.concatenate(found).astype(np.int64) if found else np.zeros((0, 3), np.int64))


@op("RoiAlign")
def roi_align(n: NodeOf, x: Value, rois: Value, batch: Value) -> Value:
    """Averages or maxima of samples in the cells of regions (torchvision's definition)."""
    t, boxes, of = as_tensor(x), as_tensor(rois), as_tensor(batch)
    oh, ow, ratio, scale = n["output_height"], n["output_width"], n["sampling_ratio"], n["spatial_scale"]
    half = (
        0.5
        if n.get("coordinate_transformation_mode", "half_pixel" if n.since >= 16 else "output_half_pixel") == "half_pixel"
        else 0.0
    )
    edges = boxes * scale - half
    x1, y1, x2, y2 = (edges[:, i] for i in range(4))
    w, h = x2 - x1, y2 - y1
    if not half:
        w, h = F.maximum(w, 1.0), F.maximum(h, 1.0)
    outs = []
    for r in range(boxes.shape[0]):
        counts = [ratio or max(1, int(np.ceil(float(known(v[r])) / o))) for v, o in ((h, oh), (w, ow))]
        ys, xs = samples(y1[r], h[r], oh, counts[0]), samples(x1[r], w[r], ow, counts[1])
        plane = F.take(t, of[r : r + 1].astype("int64"), 0)[0]
        values = bilinear(plane, ys, xs, n["mode"] == "max").reshape(t.shape[1], oh, counts[0], ow, counts[1])
        outs.append(F.max(values, [2, 4]) if n["mode"] == "max" else F.mean(values, [2, 4]))
    return F.stack(outs, 0)


def samples(start: Tensor, extent: Tensor, cells: int, count: int) -> Tensor:
    """Where the samples of all cells lie along an axis."""
    at = (np.arange(cells)[:, None] + (np.arange(count)[None] + 0.5) / count).reshape(-1) / cells
    return start + extent * as_tensor(at.astype(np.float32))


def bilinear(plane: Tensor, ys: Tensor, xs: Tensor, largest: bool) -> Tensor:
    """(C, H, W) at all pairs of places; for a maximum the four weighted neighbours' largest."""
    height, width = int(plane.shape[1]), int(plane.shape[2])

    def axis(p: Tensor, size: int):
        off = F.logical_or(F.less(p, -1), F.greater(p, size))
        p = F.maximum(p, 0.0)
        low = F.minimum(F.floor(p), size - 1)
        high = F.minimum(low + 1, size - 1)
        part = F.where(F.greater_equal(low, size - 1), F.zeros_like(p), p - low)
        keep = F.where(off, F.zeros_like(p), F.ones_like(p))
        return (low.astype("int64"), (1 - part) * keep), (high.astype("int64"), part * keep)

    found = None
    for y, wy in axis(ys, height):
        rows = F.take(plane, y, 1)
        for x, wx in axis(xs, width):
            value = F.take(rows, x, 2) * wy.reshape(1, -1, 1) * wx.reshape(1, 1, -1)
            found = value if found is None else F.maximum(found, value) if largest else found + value
    assert found is not None
    return found


@op("MaxRoiPool")
def max_roi_pool(n: NodeOf, x: Value, rois: Value) -> Value:
    """The largest in each cell of each region; regions are (picture, x1, y1, x2, y2)."""
    return F.roi_pooling(as_tensor(x), as_tensor(rois), tuple(n["pooled_shape"]), "max", n["spatial_scale"])


@op("ImageDecoder")
def image_decoder(n: NodeOf, data: Value) -> Value:
    """A picture file's pixels (H, W, channels), by Pillow."""
    try:
        from PIL import Image
    except ImportError:
        raise ArgumentError("decoding pictures needs Pillow; help: pip install pillow") from None
    kind = n.get("pixel_format", "RGB")
    with Image.open(io.BytesIO(known(data).tobytes())) as file:
        picture = np.asarray(file.convert("L" if kind == "Grayscale" else "RGB"))
    picture = picture[..., None] if picture.ndim == 2 else picture
    return as_tensor(np.ascontiguousarray(picture[..., ::-1] if kind == "BGR" else picture))
