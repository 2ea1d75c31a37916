"""Scans against a plain loop, as bits."""

from __future__ import annotations

import numpy as np
import pytest
from exhaustive import but
from launching import Symbols, array_of, run
from test_reduce import OPS, data, same

from tengen.kernels.lowering import Lowering
from tengen.kernels.reduction.scan import scan
from tengen.kernels.source import Leaf


def loop(op, x, axis, reverse, exclusive):
    x = np.moveaxis(x, axis, 0)
    x = x[::-1] if reverse else x
    out = np.zeros_like(x)
    state = None
    for i in range(len(x)):
        if exclusive:
            first = {"add": 0, "mul": 1, "min": np.inf, "max": -np.inf}[op]
            out[i] = first if state is None else state
        with np.errstate(all="ignore"):
            state = x[i] if state is None else OPS[op](state, x[i])
        if not exclusive:
            out[i] = state
    return np.moveaxis(out[::-1] if reverse else out, 0, axis)


@but(every=2)
@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("n", [0, 1, 2, 17, 33])
def test_against_a_loop(n, symbolic):
    for shape in [(n,), (3, n), (n, 20), (2, n, 19), (n, 3)]:
        base = data(shape)
        for x in (base, base[::-1], base.T):
            for axis in range(x.ndim):
                for op, reverse, exclusive in [("add", 0, 0), ("add", 1, 1), ("mul", 1, 0), ("max", 0, 1), ("min", 1, 0)]:
                    a, mem = array_of(x, "x")
                    out = np.full(x.shape, 55, x.dtype)
                    o, omem = array_of(out, "out")
                    sym = Symbols()
                    if symbolic:
                        a, o = sym.array(a), sym.array(o)
                    lo = Lowering(None, list(sym.values))
                    scan(lo, op, Leaf(a), o, axis, bool(reverse), bool(exclusive))
                    run(lo, {"x": mem, "out": omem}, sym.values)
                    assert same(out, loop(op, x, axis, reverse, exclusive)), (x.shape, x.strides, axis, op)
