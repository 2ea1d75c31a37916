"""Scattering against a plain loop in logical order, as bits."""

from __future__ import annotations

import numpy as np
import pytest
from launching import Symbols, array_of, run
from test_reduce import data

from tengen.kernels.indexing.scatter import index_put, scatter
from tengen.kernels.lowering import Lowering
from tengen.kernels.source import Leaf
from tengen.loops.lang import as_int

UPDATE = {"set": lambda a, b: b, "add": np.add, "max": np.maximum, "mul": np.multiply}


def launch(lower, arrays, shape, dt, layout, symbolic):
    named = [array_of(a, i) for i, a in enumerate(arrays)]
    out = np.full(shape, 55, dt, order="F" if layout == "fortran" else "C")
    o, omem = array_of(out, "out")
    sym = Symbols()
    views = [Leaf(sym.array(a) if symbolic else a) for a, _ in named]
    o = sym.array(o) if symbolic else o
    lo = Lowering(None, list(sym.values))
    lower(lo, views, o)
    run(lo, {**{i: m for i, (_, m) in enumerate(named)}, "out": omem}, sym.values, backwards=True)
    return out


@pytest.mark.parametrize("layout", ["plain", "fortran"])
@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("mode", list(UPDATE))
def test_scatter_along_an_axis(mode, symbolic, layout):
    base = data((4, 5, 18))
    for axis, shape in [(0, (9, 5, 18)), (1, (4, 7, 17)), (2, (3, 5, 40)), (1, (4, 0, 18))]:
        index = np.random.default_rng(0).integers(-base.shape[axis], base.shape[axis], shape)
        upd = data(shape, seed=1)
        want = base.copy()
        for at in np.ndindex(*shape):
            to = list(at)
            to[axis] = index[at]
            want[tuple(to)] = UPDATE[mode](want[tuple(to)], upd[at])
        lower = lambda lo, v, o, axis=axis: scatter(lo, v[0], v[1], v[2], o, axis, mode)
        got = launch(lower, [base, index, upd], base.shape, base.dtype, layout, symbolic)
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("layout", ["plain", "fortran"])
@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("mode", ["set", "add"])
def test_index_put(mode, symbolic, layout):
    shape = (5, 6, 20)
    rng = np.random.default_rng(0)
    for axes, position in [((0,), 0), ((1,), 1), ((2,), 2), ((0, 1), 0), ((0, 2), 0), ((0, 1, 2), 0), ((1,), 0)]:
        b = (3, 4)
        idx = [rng.integers(-shape[a], shape[a], b) for a in axes]
        rest = [d for i, d in enumerate(shape) if i not in axes]
        upd = data((*rest[:position], *b, *rest[position:]), seed=2)
        want = np.zeros(shape, np.float32)
        moved = np.moveaxis(upd, (position, position + 1), (0, 1))
        for at in np.ndindex(*b):
            where: list = [slice(None)] * 3
            for a, i in zip(axes, idx):
                where[a] = i[at]
            want[tuple(where)] = UPDATE[mode](want[tuple(where)], moved[at])
        lower = lambda lo, v, o, axes=axes, p=position: index_put(lo, None, dict(zip(axes, v[:-1])), p, v[-1], o, mode)
        np.testing.assert_array_equal(launch(lower, [*idx, upd], shape, np.float32, layout, symbolic), want)


@pytest.mark.parametrize(("rows", "updates", "pieces"), [(12, 1, 1), (256, 1, 1), (257, 1, 2), (12, 16, 1), (12, 300, 12)])
def test_few_updates_are_one_piece(rows, updates, pieces):
    """A cache of keys that gets one token: threads that meet take longer than the stores."""
    index, upd = np.arange(updates), np.zeros((rows, updates, 64), np.float32)
    lo = Lowering(None, [])
    (i, _), (u, _), (o, _) = (array_of(a, n) for a, n in ((index, "i"), (upd, "u"), (np.zeros((rows, 400, 64), np.float32), "out")))
    index_put(lo, Leaf(o), {1: Leaf(i)}, 1, Leaf(u), o, "set")
    assert [as_int(launch.kernel.pieces) for launch in lo.launches] == [pieces]


def test_half_floats_add_in_float32():
    upd = np.full(300, 0.25, np.float16)
    upd[0] = 2048
    lower = lambda lo, v, o: scatter(lo, None, v[0], v[1], o, 0, "add")
    got = launch(lower, [np.zeros(300, np.int64), upd], (2,), np.float16, "", False)
    assert got[0] == np.float16(2048 + 299 * 0.25) and got[1] == 0


def test_bad_indices_stay_inside():
    i, upd = np.array([9, -9, 1 << 62]), np.array([1, 2, 4], np.float32)
    got = launch(lambda lo, v, o: scatter(lo, None, v[0], v[1], o, 0, "add"), [i, upd], (3,), np.float32, "", False)
    np.testing.assert_array_equal(got, [2, 0, 5])
