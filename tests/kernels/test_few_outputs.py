"""Convolutions with few channels of results by pixels: the bits of those by channels, for rows in blocks, borders, open batches."""

from dataclasses import replace

import numpy as np
import pytest
from exhaustive import but
from launching import array_of, compile_and_run, run

from tengen.codegen.targets import Target
from tengen.kernels.convolution import few_outputs
from tengen.kernels.lowering import Lowering
from tengen.loops.lang import const, maximum, var
from tengen.ops.conv import conv, conv_transposed

CASES = [  # image, filter, attributes
    ((2, 3, 9, 31), (5, 3, 3, 3), {"padding": (1, 0)}),
    ((1, 1, 8, 19), (2, 1, 5, 5), {}),  # one channel; a vector that is not full
    ((2, 30, 4, 12), (1, 30, 3, 3), {}),  # several chunks
    ((1, 2, 6, 32), (8, 2, 5, 3), {"dilation": (1, 2), "padding": (3, 2)}),
]


def shaped(x, extents):
    return replace(x, shape=tuple(extents))


def lowered(op, target, case, batch, way, epilogue=None):
    """The result's bytes and the kernels' names; where `batch` is open, its number is given then."""
    image, filters, attrs = case
    rng = np.random.default_rng(0)
    x, w = (rng.uniform(-1, 1, s).astype(np.float32) for s in (image, filters))
    attrs = {"stride": (1, 1), "padding": (0, 0), "dilation": (1, 1), "groups": 1} | attrs
    rows = lambda s, k, p, d: s + 2 * p - d * (k - 1)
    if op is conv_transposed:  # the same extents the other way round: from few channels of results
        w = np.ascontiguousarray(w.transpose(1, 0, 2, 3))
        rows = lambda s, k, p, d: s - 2 * p + d * (k - 1)
        attrs["output_padding"] = (0, 0)
    space = [rows(*a) for a in zip(image[2:], filters[2:], attrs["padding"], attrs["dilation"])]
    y = np.zeros((image[0], *space, filters[0]), np.float32).transpose(0, 3, 1, 2)
    last = np.ascontiguousarray(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
    arrays = [array_of(a, id) for a, id in ((last, "x"), (w, "w"), (y, "y"))]
    values = {} if isinstance(batch, int) else {batch: image[0]}
    lo = Lowering(Target.named(target) if isinstance(target, str) else target, list(values))
    ins = [shaped(arrays[0][0], (batch, *image[1:])), arrays[1][0]]
    out = shaped(arrays[2][0], (batch, *y.shape[1:]))
    if epilogue is None:
        op.lower_to(lo, [*ins, None][: 3 if op is conv_transposed else 2], [out], attrs)
    else:
        op.lower_to(lo, ins, [out], attrs, epilogue)
    way(lo, {a.id: memory for a, memory in arrays}, values)
    return arrays[2][1].tobytes(), [k.kernel.scratch for k in lo.launches]


def planes(scratches) -> bool:
    return any(b.name == "planes" for some in scratches for b in some)


@but(every=2)
@pytest.mark.parametrize("op", [conv, conv_transposed], ids=["conv", "conv_transposed"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_pixels_have_the_bits_of_channels(op, case, monkeypatch):
    found = []
    for target, batch in (
        ("x86-64-v4", case[0][0]),
        ("x86-64-v4", var("n")),
        ("x86-64-v3", case[0][0]),
        ("aarch64", case[0][0]),
    ):
        result, scratches = lowered(op, target, case, batch, run)
        assert planes(scratches) or target != "x86-64-v4"  # where there are fewer registers, channels may be better
        found.append(result)
    found.append(lowered(op, Target.host(), case, case[0][0], compile_and_run)[0])
    monkeypatch.setattr(few_outputs, "LEAST_TAPS", 1 << 10)
    by_channels, scratches = lowered(op, "x86-64-v4", case, case[0][0], run)
    assert not planes(scratches) and all(x == by_channels for x in found)
    assert np.frombuffer(by_channels, np.float32).any()


def test_rows_in_blocks_and_an_epilogue(monkeypatch):
    case = ((1, 2, 18, 20), (3, 2, 3, 3), {"padding": (1, 1)})

    def epilogue(k, value, at):
        return maximum(value, const(0.0, value.dtype, value.lanes))

    whole, _ = lowered(conv, "x86-64-v4", case, 1, run, epilogue)
    monkeypatch.setattr(few_outputs, "PLANES_BYTES", 2 * 8 * 22 * 4)
    blocks, scratches = lowered(conv, "x86-64-v4", case, 1, run, epilogue)
    assert planes(scratches) and blocks == whole and min(np.frombuffer(whole, np.float32)) == 0


def test_planes_that_lie_in_l2(monkeypatch):
    """Where too few rows fit L1 for what is copied, the planes are larger, and the bits the same."""
    case = CASES[0]
    near, scratches = lowered(conv, "x86-64-v4", case, 2, run)
    monkeypatch.setattr(few_outputs, "PLANES_BYTES", 1)
    far, others = lowered(conv, "x86-64-v4", case, 2, run)
    assert planes(others) and others != scratches and far == near


@pytest.mark.parametrize(
    "filters, space, want",
    [
        ((3, 39, 8, 8), (172, 264), 2),  # two rows beside two more are worth their copy for 117 taps
        ((3, 3, 1, 1), (172, 264), 4),  # ... and for 9 taps four are
        ((5, 5, 8, 1), (172, 264), 2),  # in L2
        ((9, 9, 32, 3), (224, 224), 1),
        ((3, 3, 1, 8), (9, 17), None),  # two vectors for 17 pixels are no gain over half a vector for each
        ((3, 3, 256, 1), (64, 640), None),  # no row fits
    ],
)
def test_rows_of_a_piece(filters, space, want):
    lo = Lowering(Target.named("x86-64-v4"), [])
    w = array_of(np.zeros(filters, np.float32), "w")[0]
    out = array_of(np.zeros((1, filters[3], *space), np.float32), "y")[0]
    made = few_outputs.sizes(lo, w, out, (1, 1))
    assert (made.rows if made else None) == want
