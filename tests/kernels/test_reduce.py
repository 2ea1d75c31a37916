"""Reductions against an independent NumPy model of the lane and chunk rule, as bits, for every strategy and layout."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from launching import Symbols, array_of, run

import tengen
import tengen.functional as F
from tengen import Tensor
from tengen.base.dtype import dtype, float32
from tengen.codegen.targets import Target
from tengen.kernels.lowering import Array, Lowering
from tengen.kernels.reduction.reduce import reduce
from tengen.kernels.source import Elementwise, Leaf, broadcast
from tengen.loops.lang import cast

OPS = {"add": np.add, "mul": np.multiply, "min": np.minimum, "max": np.maximum, "and": np.bitwise_and, "or": np.bitwise_or}


def start(op: str, dt: np.dtype):
    if op == "add":
        return dt.type(-0.0 if dt.kind == "f" else 0)
    if op == "mul":
        return dt.type(1)
    if op in ("and", "or"):
        return np.bool_(op == "and") if dt.kind == "b" else dt.type(-1 if op == "and" else 0)
    if dt.kind == "f":
        return dt.type(np.inf if op == "min" else -np.inf)
    return np.iinfo(dt).max if op == "min" else np.iinfo(dt).min


def model(op: str, x: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    """Lanes, tree, chunks, written as the contract says them."""
    f, s = OPS[op], start(op, x.dtype)
    rest = [a for a in range(x.ndim) if a not in axes]
    rows = x.transpose(*rest, *sorted(axes)).reshape(*[x.shape[a] for a in rest], -1)
    n = rows.shape[-1]
    if n == 0:
        return np.full(rows.shape[:-1], 0 if op == "add" else s, x.dtype)
    total = np.full(rows.shape[:-1], s, x.dtype)
    with np.errstate(all="ignore"):
        for c in range(0, n, 4096):
            chunk = rows[..., c : c + 4096]
            lanes = np.full((*rows.shape[:-1], 16), s, x.dtype)
            for i in range(0, chunk.shape[-1], 16):
                part = chunk[..., i : i + 16]
                w = part.shape[-1]
                lanes[..., :w] = f(lanes[..., :w], part)
            for half in (8, 4, 2, 1):
                lanes = f(lanes[..., :half], lanes[..., half : 2 * half])
            total = f(total, lanes[..., 0])
    return total


def same(a: np.ndarray, b: np.ndarray) -> bool:
    if a.dtype.kind == "f":
        nan = np.isnan(a)
        if (nan != np.isnan(b)).any():
            return False
        a, b = np.where(nan, a.dtype.type(0), a), np.where(nan, b.dtype.type(0), b)
    return a.tobytes() == b.tobytes()


def reduced(op, x, axes, symbolic=False, backwards=False, out_order=None, **kw):
    a, mem = array_of(x, "x")
    shape = [d for i, d in enumerate(x.shape) if i not in axes]
    out = np.full(shape, 55, x.dtype)
    if out_order is not None:
        out = np.full([shape[i] for i in out_order], 55, x.dtype).transpose(np.argsort(out_order))
    o, omem = array_of(out, "out")
    sym = Symbols()
    if symbolic:
        a, o = sym.array(a), sym.array(o)
    lo = Lowering(None, list(sym.values))
    reduce(lo, op, Leaf(a), o, axes, **kw)
    run(lo, {"x": mem, "out": omem}, sym.values, backwards)
    return out


def data(shape, dt="float32", seed=0):
    rng = np.random.default_rng(seed)
    if dt == "bool":
        return rng.integers(0, 8, shape) > 0
    if np.dtype(dt).kind in "iu":
        return rng.integers(0, 100, shape).astype(dt)
    return (rng.standard_normal(shape) * 10.0 ** rng.integers(-3, 4, shape)).astype(dt)


SIZES = [0, 1, 15, 16, 17, 33, 4095, 4096, 4097, 9000]


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("n", SIZES)
def test_each_direction(n, symbolic):
    for shape, axes in [((n,), (0,)), ((3, n), (1,)), ((n, 18), (0,)), ((2, n, 5), (1,))]:
        x = data(shape)
        assert same(reduced("add", x, axes, symbolic), model("add", x, axes)), (shape, axes)


@pytest.mark.parametrize("op", ["add", "mul", "min", "max"])
@pytest.mark.parametrize("dt", ["float32", "float64", "int64", "int32", "int8", "uint8"])
def test_operations_and_dtypes(op, dt):
    x = data((5, 7, 19), dt)
    for axes in [(2,), (0,), (0, 2), (0, 1, 2), (1,)]:
        assert same(reduced(op, x, axes), model(op, x, axes)), axes


@pytest.mark.parametrize("op", ["and", "or"])
def test_logic(op):
    x = data((5, 33), "bool")
    x[0] = op == "and"
    for axes in [(0,), (1,), (0, 1)]:
        assert same(reduced(op, x, axes), model(op, x, axes))


@pytest.mark.parametrize("symbolic", [False, True])
def test_layouts(symbolic):
    x = data((6, 10, 34))
    nhwc = data((3, 5, 6, 17)).transpose(0, 3, 1, 2)
    layouts = [x[:, ::-1], x[::2, 1:, ::3], x.transpose(2, 0, 1), x.transpose(1, 2, 0)[::-1], nhwc]
    for v in [*layouts, np.broadcast_to(x[:, :1], x.shape)]:
        for axes in [(0,), (v.ndim - 1,), (0, v.ndim - 1), (0, 1), tuple(range(v.ndim)), (1, 2), ()]:
            assert same(reduced("add", v, axes, symbolic), model("add", v, axes)), (v.shape, v.strides, axes)


@pytest.mark.parametrize("symbolic", [False, True])
def test_runs_that_do_not_line_up_with_lanes(symbolic):
    for shape in [(90, 4, 7), (3, 4, 49), (2, 3, 3000), (40, 2, 16 * 13), (5, 2, 4097)]:
        x = data(shape)
        assert same(reduced("add", x, (0, 2), symbolic), model("add", x, (0, 2))), shape
        y = data((shape[0], shape[2] + 2, 18))[:, 1:-1]
        if y.size < 1e5:
            assert same(reduced("add", y, (0, 1), symbolic), model("add", y, (0, 1))), shape


@pytest.mark.parametrize("symbolic", [False, True])
def test_rows_side_by_side(symbolic):
    """Enough rows that some are folded at a time, and some that are left over; several runs of a row, which turn lanes."""
    for shape, axes in [((128, 37), (1,)), ((131, 70), (1,)), ((133, 4097), (1,)), ((2, 130, 19), (0, 2))]:
        x = data(shape)
        assert same(reduced("add", x, axes, symbolic, backwards=True), model("add", x, axes)), shape


@pytest.mark.parametrize("symbolic", [False, True])
def test_long_rows_are_cut_into_pieces_of_any_order(symbolic):
    x = data((2, 20000))
    for v, axes in [(x, (1,)), (x, (0, 1)), (x.T, (0,)), (x.reshape(10000, 4), (0,)), (x.reshape(2500, 16), (0,))]:
        want = model("add", v, axes)
        assert same(reduced("add", v, axes, symbolic), want)
        assert same(reduced("add", v, axes, symbolic, backwards=True), want)


def test_windows():
    x = data((2, 9, 9, 20))
    w = np.lib.stride_tricks.sliding_window_view(x, (3, 3), (1, 2))[:, ::2, ::2]
    for op in ("max", "add"):
        assert same(reduced(op, w, (4, 5)), model(op, w, (4, 5)))
    v = np.lib.stride_tricks.sliding_window_view(x.transpose(0, 3, 1, 2), (2, 2), (2, 3))
    assert same(reduced("max", v, (4, 5), out_order=(0, 2, 3, 1)), model("max", v, (4, 5)))
    big = np.lib.stride_tricks.sliding_window_view(x, (9, 8), (1, 2))
    assert same(reduced("add", big, (4, 5)), model("add", big, (4, 5)))


def test_values_that_need_care():
    x = np.array([[-0.0] * 20, [0.0] + [-0.0] * 19, [np.inf, -np.inf] * 10, [np.nan] + [1.0] * 19, [-np.inf] * 20], np.float32)
    for op in ("add", "max", "min", "mul"):
        for v, axis in [(x, 1), (x.T, 0), (np.asfortranarray(x), 1)]:
            assert same(reduced(op, v, (axis,)), model(op, v, (axis,))), op
    assert np.signbit(reduced("add", x, (1,))[0]) and not np.signbit(reduced("add", x[:, :0], (1,))).any()
    assert not np.signbit(reduced("add", x[:, :0], (1,), symbolic=True)).any()


def test_one_row_has_the_bits_of_many():
    x = data((33, 5000))
    all_rows = reduced("add", x, (1,))
    columns = reduced("add", np.asfortranarray(x), (1,))
    assert same(all_rows, columns)
    for i in (0, 17, 32):
        assert same(all_rows[i : i + 1], reduced("add", x[i : i + 1], (1,)))


def test_fused_source_finish_and_cast():
    x, y = np.clip(data((6, 40)), -9, 9), data((6, 1)) / 1000
    a, am = array_of(x, "x")
    b, bm = array_of(y, "y")
    z, zm = array_of(data((4, 6)).T, "z")
    for out_dt in ("float32", "float16"):
        for axes, shape, zv in [((1,), (6,), z), ((0,), (40,), None)]:
            out = np.zeros(shape, out_dt)
            o, om = array_of(out, "out")
            lo = Lowering(None)
            src = Elementwise(lambda p, q: p * p + q, [Leaf(a), broadcast(Leaf(b), a.shape)], a.shape, a.dtype)

            def finish(k, v, at, zv=zv, out_dt=out_dt):
                if zv is not None:
                    v = v + at.load(k, replace(zv, shape=zv.shape[:1], strides=zv.strides[:1]))
                return cast(v * 0.125, dtype(out_dt))

            reduce(lo, "add", src, o, axes, finish)
            run(lo, {"x": am, "y": bm, "z": zm, "out": om})
            want = model("add", x * x + y, axes)
            if zv is not None:
                want = want + data((4, 6)).T[:, 0]
            assert same(out, (want * np.float32(0.125)).astype(out_dt))


@pytest.mark.parametrize("shape, copied", [((2, 48, 9, 7), True), ((1, 300, 5, 6), True), ((3, 15, 8, 8), False), ((2, 64, 1, 1), False)])
def test_images_that_lie_channels_last_are_folded_in_logical_order(shape, copied):
    """All of an image, or of each image: the bits of the same numbers where they lie in logical order."""
    n, c, h, w = shape
    x = np.random.default_rng(c).standard_normal((n, h, w, c)).astype("float32")
    x[0, 0, 0, :3] = -0.0, 0.0, -0.0
    reductions = [
        lambda x: x.sum(), lambda x: x.sum((1, 2, 3)), lambda x: x.max(), lambda x: F.mean(x * x), lambda x: F.argmax(x), lambda x: x.var(),
        lambda x: x.astype("float16").prod((1, 2, 3)), lambda x: (x > 2).any(),
    ]  # fmt: skip
    all_of_them = lambda x: tuple(f(x) for f in reductions)
    traced = tengen.trace(lambda x: all_of_them(x.transpose(0, 3, 1, 2)))
    out = traced(Tensor(x))
    for got, want in zip(out, all_of_them(Tensor(np.ascontiguousarray(x.transpose(0, 3, 1, 2))))):
        assert got.numpy().tobytes() == want.numpy().tobytes()
    lo = Lowering(Target.host())
    source = Array("x", float32, shape, (h * w * c, 1, w * c, c))
    reduce(lo, "add", Leaf(source), Array("y", float32, (), ()), (0, 1, 2, 3))
    assert any("in_order" in launch.kernel.name for launch in lo.launches) == copied
