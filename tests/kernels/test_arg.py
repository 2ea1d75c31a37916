"""argmax and argmin against NumPy, in every direction, with ties and NaNs."""

from __future__ import annotations

import numpy as np
import pytest
from launching import Symbols, array_of, run

from tengen.kernels.lowering import Lowering
from tengen.kernels.reduction.arg import arg_reduce
from tengen.kernels.source import Leaf


def arg(which, x, axes, symbolic=False, dt="int64"):
    a, mem = array_of(x, "x")
    out = np.full([d for i, d in enumerate(x.shape) if i not in axes], 55, dt)
    o, omem = array_of(out, "out")
    sym = Symbols()
    if symbolic:
        a, o = sym.array(a), sym.array(o)
    lo = Lowering(None, list(sym.values))
    arg_reduce(lo, which, Leaf(a), o, axes)
    run(lo, {"x": mem, "out": omem}, sym.values)
    return out


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("which", ["max", "min"])
def test_against_numpy(which, symbolic):
    rng = np.random.default_rng(1)
    f = np.argmax if which == "max" else np.argmin
    for shape in [(1, 1), (3, 16), (17, 33), (70, 5)]:
        x = rng.integers(0, 9, shape).astype(np.float32)
        nans = np.where(rng.random(shape) < 0.05, np.float32(np.nan), x)
        flat = np.full(shape, -np.inf if which == "max" else np.inf, np.float32)
        for v in (x, nans, flat, x.astype(np.int32), x.astype(np.uint8), x > 4, np.asfortranarray(x), x[:, ::-1]):
            for axis in (0, 1):
                np.testing.assert_array_equal(arg(which, v, (axis,), symbolic), f(v, axis), f"{shape} {axis} {v.dtype}")
            assert arg(which, v, (0, 1), symbolic) == f(v)


def test_long_and_narrow():
    x = np.random.default_rng(2).standard_normal((9000, 3)).astype(np.float32)
    x[1234, 1] = x[8000, 1] = 50
    for s in (False, True):
        np.testing.assert_array_equal(arg("max", x, (0,), s, "int32"), x.argmax(0))
        assert arg("max", x, (0, 1), s) == x.argmax()
