"""Launches that are repeated, and the LSTM made of them: interpreted, compiled, for open extents, in either direction."""

from dataclasses import replace

import numpy as np
import pytest
from launching import array_of, compile_and_run, run
from needs import needs

from tengen.codegen.targets import Target
from tengen.compiler.arena import Temporaries
from tengen.compiler.program import value_of
from tengen.kernels.axes import store_at
from tengen.kernels.contraction.contract import contract
from tengen.kernels.lowering import Lowering
from tengen.kernels.pointwise import pointwise
from tengen.kernels.recurrent.gate_product import gate_product
from tengen.kernels.recurrent.lstm import lstm, lstm_grad
from tengen.kernels.source import Elementwise, Leaf
from tengen.kernels.steps import Loop
from tengen.loops.lang import var
from tengen.passes.hoist import hoist


def running_sums(lo, x, y, steps):
    """y[i] = x[0] + ... + x[i], a step at a time, through a temporary; what is made once of x is made before."""
    total, copies = lo.temp(x.dtype, ()), []
    row = lambda a, i: type(a)(a.id, a.dtype, (), (), i)

    def doubled():
        copies.append(lo.temp(x.dtype, x.shape))
        pointwise(lo, [Elementwise(lambda v: v * 2, [Leaf(x)], x.shape, x.dtype)], copies, "doubled")
        return copies[0]

    pointwise(lo, [Elementwise(lambda v: v - v, [Leaf(row(x, 0))], (), x.dtype)], [total], "zero")
    with lo.loop(steps, [x]) as i:
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
    temps = Temporaries.of(lo)
    assert len(set(temps.place(temps.sizes)[0])) == 2  # the total of one step is read by the next
    setup, prepared = hoist(lo, {"x": 28})
    assert [n.kernel.name for n in setup.launches] == ["doubled"] and len(prepared) == 1
    assert [isinstance(s, Loop) for s in lo.steps] == [False, True]


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


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_a_step_at_once_has_the_bits_of_one_by_parts(dtype):
    rng = np.random.default_rng(0)
    for t, n, h in ((2, 5, 17), (1, 7, 16)):  # a vector of units that is not full; tiles of two heights
        projected, state, states = (t, n, 4 * h), (n, h), (t + 1, n, h)
        shapes = {"p": projected, "w": (4 * h, h), "h": state, "c": state, "hs": states, "cs": states, "z": projected}
        data = {id: rng.uniform(-1, 1, s).astype(dtype) for id, s in shapes.items()}
        found = {}
        known, open_ = ("x86-64", "x86-64-v3", "x86-64-v4", "aarch64"), ("x86-64-v3", "x86-64-v4")
        for target, batch in (*((x, n) for x in known), *((x, var("n")) for x in open_)):
            memory, arrays, values = {}, [], {} if batch is n else {batch: n}
            for id in shapes:
                a, memory[id] = array_of(data[id].copy(), id)
                arrays.append(replace(a, shape=tuple(batch if d == n and id != "w" else d for d in a.shape)))
            lo = Lowering(Target.named(target), list(values))
            lstm(lo, *arrays, False)
            names = {n.kernel.name for n in lo.launches}
            assert ("lstm_step" in names) == (target != "x86-64") and ("lstm_gates" in names) == (target == "x86-64")
            run(lo, memory, values)
            found[target, batch] = b"".join(memory[id].tobytes() for id in ("hs", "cs", "z"))
        assert len(set(found.values())) == 1


@pytest.mark.parametrize("reverse", [False, True])
def test_a_step_back_at_once_has_the_bits_of_one_in_two_kernels(reverse):
    rng = np.random.default_rng(0)
    for t, n, h in ((3, 5, 17), (2, 7, 40), (0, 5, 16)):  # a vector that is not full; two in a panel; no steps
        states, gates, state = (t + 1, n, h), (t, n, 4 * h), (n, h)
        shapes = {"gh": states, "gc": states, "gg": gates, "w": (4 * h, h), "cs": states, "g": gates}
        outs = {"dz": gates, "dh": state, "dc": state}
        data = {id: rng.uniform(-1, 1, s).astype("float32") for id, s in shapes.items()}
        if t == 0:
            data["w"][:] = np.inf  # nothing is multiplied with it
        found = []
        for target, batch, rows in (("x86-64-v3", n, n), ("x86-64-v4", n, n), ("x86-64-v4", var("n"), n), ("x86-64-v4", 3, 3)):
            memory, arrays, values = {}, [], {batch: n} if batch is not rows else {}
            steps = var("t") if values else t
            values |= {steps: t} if values else {}
            for id, shape in (shapes | outs).items():
                part = data[id] if id in data else np.zeros(shape, "float32")
                part = part if id == "w" else part[:, :rows] if len(shape) == 3 else part[:rows]
                a, memory[id] = array_of(part.copy(), id)
                extents = [batch if d == rows and i == len(shape) - 2 else d for i, d in enumerate(a.shape)]
                if len(shape) == 3:
                    extents[0] = steps + (shape[0] - t)
                arrays.append(a if id == "w" else replace(a, shape=tuple(extents)))
            lo = Lowering(Target.named(target), list(values))
            lstm_grad(lo, *arrays, reverse)
            assert ("lstm_grad_step" in {n.kernel.name for n in lo.launches}) == (rows == n)
            run(lo, memory, values)
            found.append([memory[id].reshape(-1, rows, outs[id][-1])[:, :3].tobytes() for id in outs])
        assert all(x == found[0] for x in found)


@pytest.mark.parametrize("target", [pytest.param(x, marks=needs(x)) for x in ("x86-64-v3", "x86-64-v4")])
def test_a_long_sum_is_added_chunk_by_chunk(target):
    rng = np.random.default_rng(1)
    n, depth = 6, 600
    a, b = (rng.uniform(-1, 1, s).astype(np.float32) for s in ((n, depth), (depth, 64)))
    out, want = np.zeros((n, 64), np.float32), np.zeros((n, 64), np.float32)
    lo = Lowering(Target.named(target))
    arrays = {id: array_of(x, id) for id, x in (("a", a), ("b", b), ("out", out), ("want", want))}
    x, y, z, w = (arrays[id][0] for id in ("a", "b", "out", "want"))
    parts = [replace(z, shape=(n, 16), offset=16 * j) for j in range(4)]

    def finish(k, values, at):
        for part, value in zip(parts, values):
            store_at(k, part, at, value)

    gate_product(lo, x, y, 4, finish, "parts")
    contract(lo, x, y, w, 0, 1, 1, 1)
    compile_and_run(lo, {id: memory for id, (_, memory) in arrays.items()}, {})
    assert arrays["out"][1].tobytes() == arrays["want"][1].tobytes() and arrays["out"][1].any()


@pytest.mark.parametrize("target", ["x86-64-v3", "x86-64-v4"])
def test_gates_over_the_projected_input_and_gradients_over_gates(target):
    rng = np.random.default_rng(2)
    for t, n, h in ((2, 5, 17), (1, 1, 257)):  # a sum of two chunks
        states, gates, state = (t + 1, n, h), (t, n, 4 * h), (n, h)
        shapes = {"p": gates, "w": (4 * h, h), "h": state, "c": state, "hs": states, "cs": states}
        data = {id: rng.uniform(-1, 1, s).astype("float32") for id, s in shapes.items()}
        data |= {"dh": np.zeros(state, "float32"), "dc": np.zeros(state, "float32"), "z": np.zeros(gates, "float32")}
        found = []
        for z, dz in (("z", "p"), ("p", "p")):  # dz over p where z lies elsewhere, or all in one buffer
            memory, a = {}, {}
            for id, x in data.items():
                a[id], memory[id] = array_of(x.copy(), id)
            lo = Lowering(Target.named(target))
            lstm(lo, *(a[id] for id in ("p", "w", "h", "c", "hs", "cs", z)), False)
            lstm_grad(lo, a["hs"], None, None, a["w"], a["cs"], a[z], a[dz], a["dh"], a["dc"], False)
            if h > 256 and not lo.target.why_not_here():  # long for the interpreter
                compile_and_run(lo, memory, {})
            else:
                run(lo, memory)
            found.append([memory[id].tobytes() for id in ("hs", "cs", dz, "dh", "dc")])
        assert found[0] == found[1]


def test_rows_stay_with_a_thread_where_its_cache_holds_all_weights():
    rng = np.random.default_rng(3)
    t, n, h = 2, 35, 17  # two blocks of 17 and 18 rows, tiles of two heights
    states, gates, state = (t + 1, n, h), (t, n, 4 * h), (n, h)
    shapes = {"p": gates, "w": (4 * h, h), "h": state, "c": state, "hs": states, "cs": states, "z": gates, "dz": gates}
    data = {id: rng.uniform(-1, 1, s).astype("float32") for id, s in (shapes | {"dh": state, "dc": state}).items()}
    wide, batch = Target.named("x86-64-v4"), var("n")
    found = []
    for bytes_, rows in ((wide.l2_all, n), (1 << 12, n), (wide.l2_all, batch), (1 << 12, batch)):
        memory, a, values = {}, {}, {} if rows is n else {batch: n}
        for id, x in data.items():
            whole, memory[id] = array_of(x.copy(), id)
            a[id] = replace(whole, shape=tuple(rows if d == n else d for d in whole.shape))
        lo = Lowering(replace(wide, l2_all=bytes_), list(values))
        lstm(lo, *(a[id] for id in ("p", "w", "h", "c", "hs", "cs", "z")), False)
        lstm_grad(lo, a["hs"], None, None, a["w"], a["cs"], a["z"], a["dz"], a["dh"], a["dc"], False)
        pieces = {x.kernel.name: value_of(x.kernel.pieces, list(values), list(values.values())) for x in lo.launches}
        near = bytes_ == wide.l2_all
        assert (pieces["lstm_step"], pieces["lstm_grad_step"]) == ((4, 2) if near else (6, 3))
        run(lo, memory, values)
        found.append([memory[id].tobytes() for id in ("hs", "cs", "z", "dz", "dh", "dc")])
    assert all(x == found[0] for x in found)
