"""Images between their pixels: what the warps share where each result is the sum of the four pixels around a place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from tengen import kernels
from tengen.base.errors import ShapeError
from tengen.ir.types import Dim, TensorType
from tengen.loops.lang import as_int
from tengen.ops.attributes import Shape
from tengen.ops.define import Case, check_floats, composite, differ, primitive
from tengen.ops.vision_coords import tap_by_tap, taps_at
from tengen.ops.vision_taps import bad_images, channels_where_read, counts, images_of, one_or_all, tap_sum
from tengen.ops.widths import rounded_once

if TYPE_CHECKING:
    from tengen.tensor import Tensor


@primitive(own=(1,))
def linear_samples(x: Tensor, image: Tensor | None, cy: Tensor, cx: Tensor, size: Shape, zeros: bool) -> Tensor:
    """out[m, c, *q] = x[image[m], c] at the row cy[m, 0, *q] and the column cx[m, 0, *q]: the sum of the four pixels around it, weighed.

    Shapes: x (N, C, H * W), size (H, W), image (M), or None: m itself; cy and cx (M, 1, *Q), each also (1, 1, *Q): the same for all. Result
        (M, C, *Q).
    Dtypes: x, cy and cx have one float dtype; or x has integers of up to 16 bits, and the result the coordinates' dtype.
    zeros: a pixel outside of the image counts as 0; otherwise it is the nearest one of the image.
    Numerics: as `tap_sum` of the four pixels in order of rows; a weight is that along the rows times that along the columns, of which one is
        the coordinate's fraction, and the other 1 less that. A coordinate that is NaN gives NaN.
    """


@linear_samples.infer
def _(x, image, cy, cx, size, zeros):
    d = check_floats(cy, cx) if counts(x.dtype) else check_floats(x, cy, cx)
    images = images_of(x, image, cy, coordinates=True)
    if len(size) != 2 or differ(size[0] * size[1], x.shape[2]):
        raise ShapeError(f"size={tuple(size)} must be the extents (H, W) of images (N, C, H * W), got {x}")
    for c in (cy, cx):
        if c.ndim != cy.ndim or as_int(c.shape[1]) != 1 or any(differ(a, b) for a, b in zip(c.shape[2:], cy.shape[2:])):
            raise ShapeError(f"takes rows and columns (M, 1, ...) of the same places, got {cy} and {cx}")
        one_or_all(c, images, "places")
    out = TensorType((images, x.shape[1], *cy.shape[2:]), d)
    if as_int(x.shape[2]) == 0 and all(as_int(n) != 0 for n in out.shape):
        raise ShapeError(f"nothing can be read from {x}, which has no pixels")
    return out


@linear_samples.source
def _(ins, out, size, zeros):
    return kernels.indexing.samples.LinearSamples(*ins, size, zeros, out.shape[0])


@linear_samples.check
def _(inputs, size, zeros):
    return bad_images("linear_samples", inputs[1], inputs[0].shape[0])


linear_samples.layout(lambda arrays, out, size, zeros: channels_where_read(arrays[0], out))


@composite(own=(1,))
@rounded_once
def linear_samples_of_taps(x: Tensor, image: Tensor | None, cy: Tensor, cx: Tensor, size: Shape, zeros: bool) -> Tensor:
    """What `linear_samples` gives, as sums of taps: its gradients are those of this."""
    mode = "constant" if zeros else "replicate"
    extents: Sequence[Dim] = size  # in canonical form
    index, weight = tap_by_tap([taps_at(c, n, mode, "linear") for c, n in zip((cy, cx), extents)], extents, not zeros)
    return tap_sum(x, image, index, weight)


linear_samples.same(linear_samples_of_taps)


# ---- reference and samples -------------------------------------------------------------------------------------------


def _np_linear_samples(x, image, cy, cx, size, zeros):
    """In float64, pixel by pixel."""
    images = len(x) if image is None else len(image)
    pictures = (x if image is None else x[image]).astype(np.float64).reshape(images, x.shape[1], *size)
    cy, cx = (np.broadcast_to(c[:, 0], (images, *c.shape[2:])).astype(np.float64) for c in (cy, cx))
    out = np.zeros((images, x.shape[1], *cy.shape[1:]))
    far = (lambda c, n: np.clip(c, -3, n + 2)) if zeros else (lambda c, n: np.clip(c, 0, n - 1))
    for m, *q in np.ndindex(*cy.shape):
        y, x_ = far(cy[(m, *q)], size[0]), far(cx[(m, *q)], size[1])
        for i in (int(np.floor(y)), int(np.floor(y)) + 1):
            for j in (int(np.floor(x_)), int(np.floor(x_)) + 1):
                inside = 0 <= i < size[0] and 0 <= j < size[1]
                if inside or not zeros:
                    pixel = pictures[m, :, min(max(i, 0), size[0] - 1), min(max(j, 0), size[1] - 1)]
                    out[(m, slice(None), *q)] += (1 - abs(y - i)) * (1 - abs(x_ - j)) * pixel
    return out


def _sampled(n, c, h, w, m, *q, shared=False, images=False):
    def inputs(r):
        # whose distance to whole numbers is at least 1/8, so that other dtypes see the same pixels
        cy, cx = (r.integers(-2, 4 * (s + 1), (1 if shared else m, 1, *q)) / 4 + 0.125 for s in (h, w))
        return r.normal(size=(n, c, h * w)), r.integers(0, n, m) if images else None, cy, cx

    return inputs


for _op in (linear_samples, linear_samples_of_taps):
    _op.reference(_np_linear_samples)
    _op.cases(
        Case(_sampled(2, 3, 4, 5, 2, 3, 7), {"size": (4, 5), "zeros": False}),
        Case(_sampled(1, 3, 4, 5, 1, 2, 21), {"size": (4, 5), "zeros": True}),
        Case(_sampled(2, 2, 3, 3, 5, 6, shared=True, images=True), {"size": (3, 3), "zeros": True}),
        Case(_sampled(1, 17, 3, 2, 1, 4), {"size": (3, 2), "zeros": False}),
        Case(_sampled(0, 3, 2, 2, 0, 3), {"size": (2, 2), "zeros": False}),
    )
