"""Launches that are repeated, and the LSTM made of them: interpreted, compiled, for open extents, in either direction."""

from dataclasses import replace

import numpy as np
import pytest
from launching import array_of, compile_and_run, run

from tengen.codegen.target import Target
from tengen.kernels.lowering import Lowering
from tengen.kernels.pointwise import pointwise
from tengen.kernels.recurrent import lstm
from tengen.kernels.source import Elementwise, Leaf
from tengen.loops.lang import var
from tengen.passes.hoist import hoist
from tengen.runtime.arena import Temporaries


def running_sums(lo, x, y, steps):
    """y[i] = x[0] + ... + x[i], a step at a time, through a temporary; what is made once of x is made before."""
    total, copies = lo.temp(x.dtype, ()), []
    row = lambda a, i: type(a)(a.id, a.dtype, (), (), i)

    def doubled():
        copies.append(lo.temp(x.dtype, x.shape))
        pointwise(lo, [Elementwise(lambda v: v * 2, [Leaf(x)], x.shape, x.dtype)], copies, "doubled")
        return copies[0]

    pointwise(lo, [Elementwise(lambda v: v - v, [Leaf(row(x, 0))], (), x.dtype)], [total], "zero")
    with lo.repeat(steps, [x]) as i:
        twice = lo.once(x, "doubled", doubled)
        assert lo.once(x, "doubled", doubled) is twice and len(copies) == 1
        add = Elementwise(lambda a, b: a + b, [Leaf(total), Leaf(row(twice, i))], (), x.dtype)
        pointwise(lo, [add, add], [total, row(y, i)], "step")
    assert [n.kernel.name for n in lo.launches] == ["zero", "doubled", "step"]


@pytest.mark.parametrize("way", [run, compile_and_run])
@pytest.mark.parametrize("steps", [0, 1, 7])
def test_repeat(way, steps):
    x, y = np.arange(1, 8, dtype=np.float32), np.zeros(7, np.float32)
    for count, values in ((steps, {}), (var("n"), {var("n"): steps})):
        lo = Lowering(Target.host(), list(values))
        (a, xs), (b, ys) = array_of(x, "x"), array_of(y, "y")
        running_sums(lo, a, b, count)
        y[:] = 0
        way(lo, {"x": xs, "y": ys}, values)
        assert y.tolist() == [*np.cumsum(2 * x)[:steps], *[0] * (7 - steps)]


def test_what_a_repeat_needs_lives_as_long_as_it():
    x, y = (array_of(np.zeros(7, np.float32), id)[0] for id in "xy")
    lo = Lowering(Target.host())
    running_sums(lo, x, y, 7)
    with lo.repeat(2), pytest.raises(ValueError, match="inside a repeat"), lo.repeat(2):
        pass
    temps = Temporaries.of(lo)
    assert len(set(temps.place(temps.sizes)[0])) == 2  # the total of one step is read by the next
    setup, prepared = hoist(lo, {"x": 28})
    assert [n.kernel.name for n in setup.launches] == ["doubled"] and len(prepared) == 1
    assert [n.repeat is None for n in lo.launches] == [True, False]


@pytest.mark.parametrize("way", [run, compile_and_run])
@pytest.mark.parametrize("reverse", [False, True])
def test_lstm_for_open_extents(way, reverse):
    rng = np.random.default_rng(0)
    t, n, h = 3, 2, 5
    values = {var("t"): t}
    projected, state, states = (t, n, 4 * h), (n, h), (t + 1, n, h)
    shapes = {"p": projected, "w": (4 * h, h), "h": state, "c": state, "hs": states, "cs": states, "z": projected}

    def results(sym):
        memory, arrays = {}, []
        for id in shapes:
            a, memory[id] = array_of(data[id].copy(), id)
            steps_open = sym and id in ("p", "z")
            arrays.append(replace(a, shape=(var("t"), *a.shape[1:])) if steps_open else a)
        lo = Lowering(Target.host(), list(values) if sym else [])
        lstm(lo, *arrays, reverse)
        way(lo, memory, values if sym else {})
        return [memory[id] for id in ("hs", "cs", "z")]

    data = {id: rng.uniform(-1, 1, s).astype(np.float32) for id, s in shapes.items()}
    for a, b in zip(results(False), results(True)):
        assert a.tobytes() == b.tobytes()
