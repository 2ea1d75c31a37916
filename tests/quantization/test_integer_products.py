"""Products of matrices and convolutions of integers against NumPy's exact sums: every layout, odd and even sums, depthwise and
grouped, sums that nearly fill int32; tables of 256 entries; what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from exhaustive import but

import tengen.functional as F
from tengen import Tensor, trace
from tengen.base.errors import DTypeError, ShapeError
from tengen.ops.define import REGISTRY

RANGES = {"int8": (-128, 128), "uint8": (0, 256), "int16": (-255, 256)}


@pytest.mark.parametrize("first, second", [("int8", "int8"), ("uint8", "int8"), ("int16", "int8"), ("int8", "int16")])
def test_products(first, second):
    rng = np.random.default_rng(0)
    for m, k, n in [(3, 5, 4), (17, 513, 33), (1, 100, 50), (64, 64, 1)]:
        a, b = rng.integers(*RANGES[first], (m, k)).astype(first), rng.integers(*RANGES[second], (k, n)).astype(second)
        want = a.astype("int64") @ b.astype("int64")
        for turned in (False, True):
            x, y = (Tensor(np.ascontiguousarray(v.T) if turned else v) for v in (a, b))
            got = F.matmul_int(x, y, turned, turned).numpy()
            assert got.dtype == np.int32
            np.testing.assert_array_equal(got, want)


def test_long_sums_of_largest_products_are_exact():
    k = 131_071
    x, y = np.full((1, k), -128, "int8"), np.full((k, 1), -128, "int8")
    assert F.matmul_int(Tensor(x), Tensor(y)).item() == k * 128 * 128
    with pytest.raises(ShapeError, match="131072 products of int8 and int8 may not fit int32, which holds 131071"):
        F.matmul_int(Tensor(np.zeros((1, k + 1), "int8")), Tensor(np.zeros((k + 1, 1), "int8")))
    with pytest.raises(ShapeError, match="uint8 and int8 may not fit int32, which holds 65793"):
        F.matmul_int(Tensor(np.zeros((1, k), "uint8")), Tensor(np.zeros((k, 1), "int8")))


CONVOLUTIONS = [
    ((2, 16, 9, 9), (32, 16, 3, 3), {"padding": 1}),
    ((2, 3, 17, 15), (24, 3, 3, 3), {"padding": 1, "stride": 2}),
    ((1, 64, 7, 7), (48, 64, 1, 1), {}),
    ((2, 32, 9, 9), (32, 1, 1, 3, 3), {"groups": 32, "padding": 1}),
    ((2, 8, 9, 9), (2, 6, 4, 3, 3), {"groups": 2, "padding": 1, "stride": 2}),
    ((1, 5, 8, 8), (7, 5, 3, 3), {"dilation": 2, "padding": 2}),
]


@but(every=2)
@pytest.mark.parametrize("image, filters, attrs", CONVOLUTIONS)
def test_convolutions(image, filters, attrs):
    """Against float64, in which these sums are exact."""
    rng = np.random.default_rng(1)
    w = rng.integers(-128, 128, filters).astype("int8")
    for name, (low, high) in RANGES.items():
        x = rng.integers(low, high, image).astype(name)
        want = REGISTRY["conv"](Tensor(x.astype("float64")), Tensor(w.astype("float64")), **attrs).numpy()
        last = Tensor(np.ascontiguousarray(x.transpose(0, 2, 3, 1))).transpose(0, 3, 1, 2)
        for t in (Tensor(x), last):
            np.testing.assert_array_equal(F.conv_int(t, Tensor(w), **attrs).numpy(), want)


def test_one_weight_for_operands_of_both_signs():
    """Each has a packed copy of its own."""
    rng = np.random.default_rng(2)
    a, b, w = (rng.integers(*RANGES[d], shape).astype(d) for d, shape in (("int8", (9, 40)), ("uint8", (9, 40)), ("int8", (40, 48))))
    y = Tensor(w)
    both = trace(lambda x, z: (F.matmul_int(x, y), F.matmul_int(z, y)), capture_as_const=True)
    for _ in range(2):
        for got, x in zip(both(Tensor(a), Tensor(b)), (a, b)):
            np.testing.assert_array_equal(got.numpy(), x.astype("int64") @ w.astype("int64"))


def test_other_dtypes_are_refused():
    for x in (Tensor([[1.0]]), Tensor([[1]], "int32"), Tensor([[True]])):
        with pytest.raises(DTypeError, match="multiplies int8, uint8 and int16"):
            F.matmul_int(x, Tensor([[1]], "int8"))


def test_lookup_of_uint8_and_what_is_refused():
    table = Tensor(np.arange(256)[::-1].astype("uint8").copy())
    assert F.lookup_codes(Tensor([0, 255, 3], "uint8"), table).tolist() == [255, 0, 252]
    with pytest.raises(DTypeError, match="takes numbers, a scale of floats .* to float32"):
        F.quantize_linear(Tensor([1.0]), Tensor(1.0), dtype="float32")
    with pytest.raises(DTypeError, match="int8 or uint8"):
        F.lookup_codes(Tensor([0], "int32"), table)
    with pytest.raises(ShapeError, match=r"must have \(256,\)"):
        F.lookup_codes(Tensor([0], "int8"), table[:255])
