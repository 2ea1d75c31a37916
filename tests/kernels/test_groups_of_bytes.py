"""Contractions in groups of four integers of 8 bits against NumPy's int64: both signs of the first operand, whether the format
takes them as they are or moved by 128; every layout, chunks that end within a group, targets, the interpreter, any extents."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np
import pytest
from launching import array_of
from test_contraction import HOST, V3, contracted, image_windows

from tengen.base.dtype import dtype, int8, int32, uint8
from tengen.codegen.targets import Target
from tengen.kernels.contraction import problem
from tengen.kernels.contraction.contract import contract
from tengen.kernels.contraction.formats import FORMATS, dot_format
from tengen.kernels.lowering import Lowering
from tengen.loops.lang import DOTS
from tengen.loops.text import print_kernel

BYTES = [f for f in FORMATS if f.group == 4]
ARM = Target.named("aarch64")
QUADS = replace(ARM, features=f"{ARM.features},+dotprod,+i8mm")


def drawn(shape, dtype: str, seed: int = 0):
    info = np.iinfo(dtype)
    return np.random.default_rng(seed).integers(info.min, info.max, shape, dtype, endpoint=True)


def check(f, a, b, axes, out=None, modes=(False, True), **kw):
    g, m, k, n = axes
    gs, ms, ks, ns = a.shape[:g], a.shape[g : g + m], a.shape[g + m :], b.shape[g + k :]
    wide = a.astype("int64").reshape(prod(gs), prod(ms), prod(ks)) @ b.astype("int64").reshape(prod(gs), prod(ks), prod(ns))
    want = wide.reshape(*gs, *ms, *ns).astype("int32")
    for symbolic in modes:
        z = np.full(want.shape, 7, "int32") if out is None else out
        z[...] = 7
        got = contracted(a, b, z, axes, symbolic, format=f, **kw)
        assert np.array_equal(got, want), (f.name, a.dtype, a.shape, b.shape, axes, symbolic, kw)


@pytest.mark.parametrize("f", BYTES, ids=lambda f: f.op)
@pytest.mark.parametrize("sign", ["uint8", "int8"])
def test_sizes_and_layouts(f, sign, monkeypatch):
    monkeypatch.setattr(problem, "EXACT_TERMS", {2: 64, 4: 64})
    for m, k, n in [(1, 1, 1), (15, 7, 17), (1, 201, 40)]:
        check(f, drawn((m, k), sign), drawn((k, n), "int8", 1), (0, 1, 1, 1), modes=(k == 201,))
    x, y = drawn((40, 71), sign), drawn((71, 50), "int8", 1)
    turned = lambda v: np.ascontiguousarray(v.T).T
    for a, b in [(turned(x), y), (x, turned(y)), (x[:, ::-1], turned(y)), (x[:, :68], turned(y)[:68]), (x, y[:, ::2])]:
        check(f, a, b, (0, 1, 1, 1), modes=(False,))
    check(f, drawn((2, 3, 5, 7), sign), drawn((2, 3, 7, 4), "int8", 1), (2, 1, 1, 1), modes=(False,))
    check(f, x, y, (0, 1, 1, 1), np.zeros((50, 40), "int32").T, modes=(False,))


@pytest.mark.parametrize("n,h,w,c,o,k,stride,dilation", [
    (1, 7, 7, 70, 20, (3, 3), 2, 1), (2, 9, 20, 3, 40, (3, 2), 1, 2), (1, 5, 5, 64, 32, (3, 3), 1, 1),
])  # fmt: skip
def test_windows(n, h, w, c, o, k, stride, dilation):
    for f in BYTES:
        for sign in ("uint8", "int8"):
            a = image_windows(drawn((n, h, w, c), sign), k, stride, dilation)
            check(f, a, drawn((o, c, *k), "int8", 1).transpose(2, 3, 1, 0), (0, 3, 3, 1), modes=(False,))


def test_two_rows_by_two_columns_are_taken_where_there_is_an_instruction():
    """Where rows are read along k; of one row, and of rows along m, half of the products would be for nothing, or not lie together."""
    for sign in ("int8", "uint8"):
        f = dot_format(dtype(sign), "int32", int8, QUADS)
        for m, k, n in [(15, 23, 33), (2, 8, 16), (6, 90, 20)]:
            check(f, drawn((m, k), sign), drawn((k, n), "int8", 1), (0, 1, 1, 1), modes=(False,), target=QUADS, interpreted=True)
        a, b = drawn((6, 24), sign), drawn((24, 20), "int8", 1)
        assert multiplied(f, a, b, QUADS) == {"int8": "quad4i", "uint8": "quad4u"}[sign]
        assert multiplied(f, a[:1], b, QUADS) == multiplied(f, np.asfortranarray(a), b, QUADS) == f.op


def multiplied(f, a, b, target) -> str:
    """The operation that multiplies."""
    lo, arrays = Lowering(target), [array_of(x, name)[0] for name, x in (("a", a), ("b", b), ("out", np.zeros((len(a), b.shape[1]), "int32")))]
    contract(lo, *arrays, 0, 1, 1, 1, format=f)
    text = print_kernel(lo.steps[-1].kernel)
    (op,) = {op for op in DOTS if f"{op}(" in text}
    return op


def test_the_interpreter_and_other_targets():
    for f in BYTES:
        for sign in ("uint8", "int8"):
            for more in ({"interpreted": True}, {"target": V3}, {"target": replace(HOST, l2_bytes=1 << 8)}):
                check(f, drawn((15, 23), sign), drawn((23, 33), "int8", 1), (0, 1, 1, 1), modes=(False,), **more)


def test_which_format_is_taken():
    class Some:
        def __init__(self, *ops):
            self.ops = ops

        def computes(self, op, at_once=False):
            return op in self.ops

    name = lambda *args: dot_format(*args).op
    assert name(int8, "int32", int8, Some("dot4u")) == "dot4u" == name(uint8, "int32", int8, Some("dot4u", "dot4i"))
    assert name(int8, "int32", int8, Some("dot4u", "dot4i")) == "dot4i" == name(uint8, "int32", int8, Some("dot4i"))
    assert name(int8, "int32", int8, Some()) == "dot2i" == name(uint8, "int32", uint8, Some("dot4u")) == name(int8, "int32")
    assert dot_format(int8, "int32").total is int32
