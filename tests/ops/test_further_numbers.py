"""Numbers that a program takes when it runs give the bits of a program that was made for them, and the values of the reference.

An eager call is one of a program with names for these numbers; a trace of the call has them as constants. `test_further_sizes.py` counts
that no further program is made; here each call is compared as bytes, result and gradients.
"""

import warnings

import numpy as np
import pytest
from checking import EPS
from exhaustive import but

import tengen.functional as F
from tengen import Tensor, trace
from tengen.autodiff import vjp
from tengen.base.errors import ArgumentError
from tengen.ops.define import REGISTRY


def image(*shape):
    return lambda r: r.uniform(-1, 1, shape)


def boxes(images, n, size):
    """Regions (image, x1, y1, x2, y2) whose ends lie a little off the pixels, where no slope changes."""

    def made(r):
        at = r.integers(0, 2 * size, (n, 2)) / 4.0
        ends = at + r.integers(1, 2 * size, (n, 2)) / 4.0
        return np.concatenate([r.integers(0, images, (n, 1)), at + 0.0625, ends + 0.0625], 1)

    return made


CALLS = {  # op -> calls: (what makes each operand, attributes); the first ones have numbers of their own, which the others share programs with
    "roi_align": [
        ((image(2, 3, 9, 8), boxes(2, 5, 8)), {"output_shape": (3, 2), "sample_points": 2}),
        ((image(1, 2, 6, 7), boxes(1, 4, 6)), {"output_shape": (5, 4), "sample_points": (3, 2), "mode": "max"}),
        ((image(2, 17, 12, 11), boxes(2, 3, 9)), {"output_shape": 7, "sample_points": (1, 4), "aligned": False}),
        ((image(2, 3, 5, 5), boxes(2, 3, 5)), {"output_shape": 1, "sample_points": 17}),
    ],
    "roi_pooling": [
        ((image(2, 3, 9, 8), boxes(2, 5, 8)), {"output_shape": (3, 2)}),
        ((image(1, 2, 6, 7), boxes(1, 4, 6)), {"output_shape": 5, "mode": "average", "scale": 0.5}),
        ((image(2, 17, 12, 11), boxes(2, 3, 9)), {"output_shape": (1, 7)}),
    ],
    "deformable_psroi_pooling": [
        (
            (image(2, 4, 6, 5), boxes(2, 3, 5), image(3, 4, p, p)),
            {"no_trans": no, "part_size": p, "pooled_h": h, "pooled_w": w, "sample_per_part": s, "spatial_scale": 0.9375},
        )
        for p, h, w, s, no in ((2, 3, 2, 2, False), (3, 5, 4, 3, False), (1, 2, 7, 5, False), (4, 6, 6, 1, True))
    ],
    "correlation": [
        ((image(2, 3, 9, 8),) * 2, {"max_displacement": 2, "pad_size": 2}),
        ((image(1, 5, 12, 9),) * 2, {"kernel_size": 3, "max_displacement": 4, "stride1": 2, "stride2": 2, "pad_size": 5}),
        (
            (image(1, 2, 16, 18),) * 2,
            {"kernel_size": 5, "max_displacement": 3, "stride1": 3, "stride2": 3, "pad_size": 4, "is_multiply": False},
        ),
    ],
    "windows": [
        ((image(2, 9, 12),), {"kernel_size": (3, 2), "stride": (2, 3), "dilation": (1, 2)}),
        ((image(3, 17, 19),), {"kernel_size": (5, 3), "stride": (3, 5), "dilation": (2, 4)}),
        ((image(1, 40, 7),), {"kernel_size": (4, 7), "stride": (7, 1), "dilation": (3, 1)}),
    ],
    "unfold": [
        ((image(2, 3, 6, 7),), {"kernel_size": 3, "padding": 1, "stride": 2}),
        ((image(1, 2, 11, 13),), {"kernel_size": 4, "padding": 3, "stride": 3, "dilation": 2}),
    ],
    "resample": [
        ((image(2, 3, h, w),), {"size": (a, b), "filter": f})
        for f in ("area", "linear", "cubic")
        for h, w, a, b in ((9, 7, 4, 3), (40, 50, 7, 4), (33, 40, 32, 3), (5, 6, 5, 6) if f == "area" else (4, 5, 9, 11))
    ],
    "var": [((image(3, n),), {"axis": 1, "correction": c}) for n, c in ((17, 1), (5, 2), (33, 3), (4, 3))],
}  # fmt: skip
EACH = [pytest.param(name, *call, id=f"{name}-{i}") for name, calls in CALLS.items() for i, call in enumerate(calls)]


def result_and_gradients(op, attrs):
    """A function of an op's operands that gives its result, and the gradients for one that is no constant."""

    def run(*operands):
        y, pull = vjp(lambda *some: op.call(*some, **attrs), *operands)
        return (y, *(g for g in pull(y * 0.5 + 1) if g is not None))

    return run


@but(every=6)
@pytest.mark.parametrize("name, makers, attrs", EACH)
def test_number(name, makers, attrs):
    op, r = REGISTRY[name], np.random.default_rng(3)
    given = [make(r).astype("float32") for make in makers]
    operands = [Tensor(a) for a in given]
    run = result_and_gradients(op, attrs)
    eager, traced = run(*operands), trace(run)(*operands)
    assert len(eager) == len(traced) > 1
    for a, b in zip(eager, traced):
        assert a.shape == b.shape and a.numpy().tobytes() == b.numpy().tobytes()
    with np.errstate(all="ignore"), warnings.catch_warnings():  # NumPy tells of a variance of too few numbers
        warnings.simplefilter("ignore", RuntimeWarning)
        want = op.rules.reference(*(a.astype("float64") for a in given), **attrs)
    np.testing.assert_allclose(eager[0].numpy(), want, rtol=1e-5, atol=EPS["float32"] * max(1.0, np.abs(want[np.isfinite(want)]).max()))


def test_the_count_that_a_variance_divides_by_is_rounded_once():
    x = Tensor((np.arange(2051) % 7).astype("float16"))  # float16 has 2050 and 2052, and no number between them
    eager, traced = (f(x).numpy() for f in (lambda t: t.var(correction=1), trace(lambda t: t.var(correction=1))))
    assert eager.tobytes() == traced.tobytes()
    assert abs(eager - np.var(np.arange(2051) % 7, ddof=1)) < 2.0**-8  # the step of float16 from 4 on


def test_images_of_any_size_are_resampled_by_one_program():
    small = trace(lambda x: F.vision.resample(x, (5, 4), "area"), dynamic_axes={2: "height", 3: "width"})
    for height, width in ((9, 7), (31, 40), (5, 4)):
        x = np.random.default_rng(1).uniform(-1, 1, (1, 2, height, width)).astype("float32")
        assert small(Tensor(x)).numpy().tobytes() == F.vision.resample(Tensor(x), (5, 4), "area").numpy().tobytes()
    assert small.stats().programs == 1
    with pytest.raises(ArgumentError, match="makes images smaller"):
        small(Tensor(x[:, :, :4]))
