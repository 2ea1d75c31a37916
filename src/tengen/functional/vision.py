"""Images: sampling, warping, colours, regions. Under MegEngine's names, and PyTorch's `grid_sample` and `affine_grid`."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tengen.base.dtype import promote
from tengen.base.errors import ArgumentError, DeviceError, ShapeError
from tengen.functional.export import export
from tengen.ops import vision_regions as _regions
from tengen.ops import vision_resample as _resample
from tengen.ops import vision_resize as _resize
from tengen.ops import vision_warp as _warp
from tengen.ops.attributes import Shape
from tengen.ops.calls import all_with_line
from tengen.ops.define import REGISTRY
from tengen.ops.masks import true_positions
from tengen.tensor import Tensor

if TYPE_CHECKING:
    from tengen.functional.vision_ops import *  # noqa: F403  (a generated stub of the ops that stand here)


def _image(name: str, inp: Tensor, format: str) -> bool:
    """Whether channels come last; an error unless it is an image of this format."""
    if format not in ("NCHW", "NHWC"):
        raise ArgumentError(f"{name}: format={format!r} must be 'NCHW' or 'NHWC'")
    if inp.ndim != 4:
        raise ShapeError(f"{name} takes images ({', '.join(format)}), got {inp.shape}")
    return format == "NHWC"


def resize(inp: Tensor, target_shape: Shape, format: str = "NCHW", imode: str = "linear", antialias: bool = False) -> Tensor:
    """Images of another size.

    Shapes:   (N, C, H, W) -> (N, C, *target_shape); with format="NHWC" (N, H, W, C) -> (N, *target_shape, C)
    Args:
        imode: "linear", "nearest", "nearest-exact", "cubic" or "area". As PyTorch's `interpolate` with align_corners=False, and OpenCV's
            INTER_LINEAR, INTER_NEAREST, INTER_NEAREST_EXACT, INTER_CUBIC and INTER_AREA; integers differ from theirs by at most 1, because
            these round weights or sums in between.
        antialias: for "linear" and "cubic": a filter as wide as the step between pixels, as in PyTorch. See `interpolate` and `resample`,
            which this is.
    Errors: ArgumentError for another format or imode, or "area" with a larger size

    >>> from tengen import Tensor, functional as F
    >>> F.vision.resize(Tensor([[[[1.0], [3.0]]]]), (1, 4), "NHWC").reshape(-1).tolist()
    [1.0, 1.5, 2.5, 3.0]
    """
    last = _image("resize", inp, format)
    modes = {"linear": "bilinear", "nearest": "nearest", "nearest-exact": "nearest-exact", "cubic": "bicubic", "area": "area"}
    if imode not in modes:
        raise ArgumentError(f"resize: imode={imode!r} must be one of {', '.join(map(repr, modes))}")
    if antialias and imode not in ("linear", "cubic"):
        raise ArgumentError(f"resize: antialias=True is for 'linear' and 'cubic', not {imode!r}")
    if antialias or imode == "area" or (imode in ("linear", "cubic") and inp.dtype.is_int):
        return _resample.resample(inp, target_shape, imode, format, antialias or imode == "area")
    x = REGISTRY["permute"](inp, (0, 3, 1, 2)) if last else inp
    y = _resize.interpolate(x, target_shape, None, modes[imode])
    return REGISTRY["permute"](y, (0, 2, 3, 1)) if last else y


def flip(inp: Tensor, vertical: bool = True, horizontal: bool = True, format: str = "NHWC") -> Tensor:
    """Images turned over: top to bottom (vertical), left to right (horizontal).

    Args: format: "NHWC" or "NCHW". Errors: ArgumentError for another format

    >>> from tengen import Tensor, functional as F
    >>> F.vision.flip(Tensor([[[[0], [1]], [[2], [3]]]]), horizontal=False).reshape(-1).tolist()
    [2, 3, 0, 1]
    """
    rows = 1 if _image("flip", inp, format) else 2
    axes = [axis for axis, wanted in ((rows, vertical), (rows + 1, horizontal)) if wanted]
    return REGISTRY["flip"](inp, axes) if axes else inp


def rot90(inp: Tensor, clockwise: bool = True, format: str = "NHWC") -> Tensor:
    """Images turned by a right angle: H and W change places.

    Args: format: "NHWC" or "NCHW". Errors: ArgumentError for another format

    >>> from tengen import Tensor, functional as F
    >>> F.vision.rot90(Tensor([[[[0], [1]], [[2], [3]]]])).reshape(-1).tolist()
    [2, 0, 3, 1]
    """
    order, rows = ((0, 2, 1, 3), 1) if _image("rot90", inp, format) else ((0, 1, 3, 2), 2)
    return REGISTRY["flip"](REGISTRY["permute"](inp, order), rows + 1 if clockwise else rows)


def rotate(inp: Tensor, angle: float, format: str = "NCHW", interp_mode: str = "bilinear") -> Tensor:
    """Images turned about their middle by `angle` degrees, counterclockwise; what comes from outside is 0.

    Args: interp_mode: "bilinear", "nearest" or "bicubic". format: "NCHW" or "NHWC".
    Numerics: a warp by the matrix of the rotation, whose numbers are computed in float64 and rounded once. MegEngine 1.13.0 has the
        name without the function.
    Errors: ArgumentError for another format or interp_mode

    >>> from tengen import Tensor, functional as F
    >>> F.vision.rotate(Tensor([[[[0.0, 1.0], [2.0, 3.0]]]]), 180).round().tolist()
    [[[[3.0, 2.0], [1.0, 0.0]]]]
    """
    last = _image("rotate", inp, format)
    modes = {"bilinear": "linear", "nearest": "nearest", "bicubic": "cubic"}
    if interp_mode not in modes:
        raise ArgumentError(f"rotate: interp_mode={interp_mode!r} must be one of {', '.join(map(repr, modes))}")
    h, w = inp.shape[1:3] if last else inp.shape[2:]
    c, s, x, y = math.cos(math.radians(angle)), math.sin(math.radians(angle)), (w - 1) / 2, (h - 1) / 2
    d = promote(inp.dtype, Tensor(0.0).dtype) if inp.dtype.is_float else "float32"
    turn = Tensor([[[c, -s, x - c * x + s * y], [s, c, y - s * x - c * y]]], dtype=d)
    mat = REGISTRY["broadcast_to"](turn, (inp.shape[0], 2, 3))
    return _warp.warp_affine(inp, mat, (h, w), "constant", 0.0, format, modes[interp_mode])


def nms(boxes: Tensor, scores: Tensor, iou_thresh: float, max_output: int | None = None) -> Tensor:
    """Non-maximum suppression: of overlapping boxes those with the highest scores.

    A box is kept unless one that was kept before overlaps it by more than iou_thresh (intersection over union).

    Shapes:   boxes (N, 4) of (x1, y1, x2, y2), scores (N) -> (K), int64
    Args:     max_output: the most boxes that are returned.
    Returns:  the numbers of the boxes that are kept, in descending order of their scores; of equal scores the first box comes first. A box
        with a NaN overlaps none, so it is kept, and NaN scores come first, as in PyTorch
    Errors:   TraceError inside of a trace: how many boxes are kept is known only when they are
    Errors: ShapeError for what are no boxes and scores, ArgumentError for a negative max_output

    >>> from tengen import Tensor, functional as F
    >>> boxes = Tensor([[0.0, 0.0, 4.0, 4.0], [0.0, 0.0, 4.0, 5.0], [9.0, 9.0, 10.0, 10.0]])
    >>> F.vision.nms(boxes, Tensor([0.5, 0.9, 0.7]), 0.5).tolist()
    [1, 2]
    """
    if boxes.ndim != 2 or boxes.shape[1] != 4 or tuple(scores.shape) != tuple(boxes.shape[:1]):
        raise ShapeError(f"nms takes boxes (N, 4) and scores (N), got {boxes.shape} and {scores.shape}")
    if max_output is not None and max_output < 0:
        raise ArgumentError(f"nms: max_output={max_output} must not be negative")
    order = REGISTRY["argsort"](scores.detach(), True)
    ordered = REGISTRY["take"](boxes.detach(), order, 0)
    kept = true_positions(_regions.nms_keep(ordered, iou_thresh))
    return REGISTRY["take"](order, kept if max_output is None else kept[:max_output], 0)


def nvof(src: Tensor, precision: int = 1) -> Tensor:
    """The optical flow of NVIDIA's hardware, which is not here. Errors: DeviceError, always."""
    raise DeviceError("nvof is computed by the optical flow unit of an NVIDIA GPU; Tengen runs on CPUs; help: F.vision.correlation")


__all__ = ["flip", "nms", "nvof", "resize", "rot90", "rotate", *export(globals(), "vision")]
all_with_line(globals(), __all__)
