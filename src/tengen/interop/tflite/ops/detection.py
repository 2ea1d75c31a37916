"""Boxes: suppression of those that overlap better ones, and the decoding of detectors."""

from __future__ import annotations

from typing import Any

import numpy as np

from tengen.interop.networks.values import as_tensor, ints, known
from tengen.interop.tflite.flexbuffer import flat_map
from tengen.interop.tflite.reader import OpOf
from tengen.interop.tflite.registry import op
from tengen.tensor import Tensor


def kept(
    boxes: np.ndarray, scores: np.ndarray, most: int, overlap: float, least: float, sigma: float = 0.0
) -> tuple[np.ndarray, np.ndarray]:
    """The numbers of the boxes that are kept, best first, and their scores, in float32 as the reference: a box whose overlap with one that
    is kept is above a bound goes; with sigma > 0 the others' scores fall by a Gaussian of their overlap."""
    boxes, left = boxes.astype(np.float32), scores.astype(np.float32).copy()
    low, high = np.minimum(boxes[:, :2], boxes[:, 2:]), np.maximum(boxes[:, :2], boxes[:, 2:])
    area = (high - low).prod(1)
    alive = left > least
    found, found_scores = [], []
    fall = np.float32(-0.5 / sigma) if sigma > 0 else np.float32(0)
    while len(found) < most and alive.any():
        best = int(np.where(alive, left, -np.inf).argmax())
        found.append(best)
        found_scores.append(left[best])
        alive[best] = False
        side = np.maximum(np.minimum(high, high[best]) - np.maximum(low, low[best]), 0)
        common = side.prod(1)
        with np.errstate(divide="ignore", invalid="ignore"):
            iou = np.where((area > 0) & (area[best] > 0), common / (area + area[best] - common), 0).astype(np.float32)
        if sigma > 0:
            left = (left * np.exp(fall * iou * iou)).astype(np.float32)
        alive &= (iou < overlap) if sigma <= 0 else (iou < overlap) & (left > least)
    return np.array(found, np.int32), np.array(found_scores, np.float32)


@op("NON_MAX_SUPPRESSION_V4", "NON_MAX_SUPPRESSION_V5")
def non_max_suppression(
    n: OpOf, boxes: Any, scores: Any, most: Any, overlap: Any, least: Any, sigma: Any = None
) -> tuple[Tensor, ...]:
    """The numbers of the boxes that are kept, filled up with 0, and how many they are; version 5 gives their scores too."""
    count = ints(most)[0]
    number = lambda v: float(known(v).reshape(-1)[0])
    found, values = kept(
        known(boxes), known(scores), count, number(overlap), number(least), number(sigma) if sigma is not None else 0.0
    )
    places, marks = np.zeros(count, np.int32), np.zeros(count, np.float32)
    places[: len(found)], marks[: len(found)] = found, values
    made = as_tensor(places), as_tensor(marks), as_tensor(np.array(len(found), np.int32))
    return made if n.op.endswith("V5") else (made[0], made[2])


@op("custom TFLite_Detection_PostProcess")
def detection_post_process(n: OpOf, encodings: Any, predictions: Any, anchors: Any) -> tuple[Tensor, ...]:
    """The boxes, classes and scores of a detector, and how many they are: offsets from anchors become boxes, the best of which are kept."""
    options = flat_map(bytes(n.blob))
    most = int(options["max_detections"])
    code, score, anchor = (known(dequantised(n, i, v)) for i, v in enumerate((encodings, predictions, anchors)))
    scales = np.array([options[f"{k}_scale"] for k in "yxhw"], np.float32)
    centre = code[0, :, :2] / scales[:2] * anchor[:, 2:] + anchor[:, :2]
    half = np.float32(0.5) * np.exp(code[0, :, 2:4] / scales[2:]) * anchor[:, 2:]
    boxes = np.concatenate([centre - half, centre + half], 1).astype(np.float32)
    classes = int(options["num_classes"])
    background = score.shape[2] - classes
    of_class = score[0, :, background:]
    overlap, least = float(options["nms_iou_threshold"]), float(options["nms_score_threshold"])
    found: list[tuple[float, int, int]] = []  # score, class, box
    if options.get("use_regular_nms", False):
        each = int(options.get("detections_per_class", 100))
        for c in range(classes):
            places, values = kept(
                boxes, of_class[:, c], min(each, most), overlap, np.nextafter(np.float32(least), np.float32(-np.inf))
            )
            found += [(float(v), c, int(p)) for v, p in zip(values, places)]
        found = sorted(found, key=lambda f: -f[0])[:most]
    else:
        several = int(options.get("max_classes_per_detection", 1))
        order = np.argsort(-of_class, 1, kind="stable")[:, :several]
        places, _ = kept(boxes, of_class.max(1), most, overlap, np.nextafter(np.float32(least), np.float32(-np.inf)))
        found = [(float(of_class[p, c]), int(c), int(p)) for p in places for c in order[p]]
    size = int(n.out().shape[1]) if len(n.out().shape) == 3 else most
    made = np.zeros((size, 4), np.float32), np.zeros(size, np.float32), np.zeros(size, np.float32)
    for i, (value, c, p) in enumerate(found[:size]):
        made[0][i], made[1][i], made[2][i] = boxes[p], c, value
    return tuple(as_tensor(m[None]) for m in made) + (as_tensor(np.array([min(len(found), size)], np.float32)),)


def dequantised(n: OpOf, i: int, x: Any) -> Tensor:
    """An input as floats."""
    t, q = as_tensor(x), n.of(i).quant
    return t if q is None or t.dtype.is_inexact else (t.astype("float32") - float(q.zero)) * q.scale
