"""`tengen.profile` and what it is made of: who is seen, what is counted, that no bit and no unprofiled program changes."""

import json
import sys
import threading

import numpy as np
import pytest

import tengen
import tengen.functional as F
import tengen.module as M
from tengen import Tensor, trace
from tengen.autodiff import GradManager
from tengen.base.dtype import float32, int64
from tengen.base.errors import TraceError
from tengen.codegen.targets import Target
from tengen.compiler import plans
from tengen.compiler.building import build
from tengen.kernels.contraction.contract import contract
from tengen.kernels.lowering import Array, Lowering
from tengen.kernels.pointwise import pointwise
from tengen.kernels.source import Elementwise, Leaf
from tengen.loops.builder import Builder
from tengen.loops.cost import cost
from tengen.loops.interp import evaluate
from tengen.loops.lang import LANES, call, fma, fold, minimum, splat, var
from tengen.loops.statements import For, If, Load, Store
from tengen.optimizer import SGD
from tengen.profiling import roof as roofs
from tengen.profiling.result import Result, _time
from tengen.profiling.roof import Roof, measure, roof
from tengen.runtime import launch_log
from tengen.tensor import eager


def data(*shape, seed=0):
    return Tensor(np.random.default_rng(seed).standard_normal(shape).astype("f4"))


# ---- costs


def brute(kernel, **ints):
    """Flops and bytes by running every iteration in Python: an independent count, for kernels that share no expressions."""
    weights = {"fma": 2, "add": 1, "mul": 1, "sub": 1, "max": 1, "fold": LANES - 1}
    seen, total = {}, 0

    def flops(e, here):
        if e in here:
            return 0
        here.add(e)
        own = weights.get(e.op, 0) * e.lanes if e.dtype.is_float else 0
        return own + sum(flops(a, here) for a in e.args)

    def block(body, env):
        nonlocal total
        for s in body:
            if isinstance(s, For):
                for i in range(int(evaluate(s.start, env)), int(evaluate(s.stop, env)), s.step):
                    block(s.body, {**env, s.var: i})
            elif isinstance(s, If):
                block(s.body if evaluate(s.cond, env) else s.orelse, env)
            else:
                if not isinstance(s, Load):
                    total += flops(s.value, set())
                    if not s.value.dtype.is_float and not isinstance(s, Store):
                        env = {**env, s.var: evaluate(s.value, env)}
                if isinstance(s, (Load, Store)):
                    lanes = s.var.lanes if isinstance(s, Load) else s.value.lanes
                    n = lanes if s.count is None else min(int(evaluate(s.count, env)), lanes)
                    seen.setdefault(s.buffer, set()).update(range(int(evaluate(s.index, env)), int(evaluate(s.index, env)) + n))

    env = {v: ints[str(v.attr)] for v in kernel.ints}
    for piece in range(int(evaluate(kernel.pieces, env))):
        block(kernel.body, {**env, kernel.piece: piece})
    return total, sum(len(s) * b.dtype.size for b, s in seen.items())


def triangle():
    """Pieces of unequal work, a loop whose bound depends on another loop, a tail, a condition."""
    k = Builder("triangle")
    x, y = k.input("x", float32), k.output("y", float32)
    n = k.int("n")
    piece = k.split((n + 6) // 7)
    with k.loop(piece * 7, minimum(n, piece * 7 + 7)) as i:
        with k.loop(0, i + 1, name="j") as j:
            with k.if_(j % 3 < 2):
                k.store(y, i, k.load(x, j) * 2.0 + 1.0)
            with k.else_():
                k.store(y, i, k.load(x, j) * 2.0)
        for at, count in k.vector_loop(0, n):
            v = k.load(x, at, LANES, count)
            k.store(y, at, fma(v, v, splat(k.load(x, i))), count)
        k.store(y, i, fold("add", k.load(x, 0, LANES)))
    return k.build()


@pytest.mark.parametrize("n", [16, 17, 40, 61])
def test_costs_are_those_of_every_iteration(n):
    c = cost(triangle(), [n])
    assert c.exact and (c.flops, c.bytes) == brute(triangle(), n=n)


def test_cost_of_elementwise():
    n = var("n")
    for shape, args in (((1000,), []), ((n,), [1000])):
        lo = Lowering(Target.host(), [n] if args else [])
        x, y = (Array(i, float32, shape, (1,)) for i in "xy")
        pointwise(lo, [Elementwise(lambda v: v * v + 1.0, [Leaf(x)], shape, float32)], [y], "f")
        c = cost(lo.launches[0].kernel, args)
        assert c.exact and c.bytes == 8000 and 2000 <= c.flops < 2000 + 2 * 16


@pytest.mark.parametrize("m, k, n", [(96, 128, 64), (97, 131, 67), (1, 1, 1), (5, 300, 3)])
def test_cost_of_a_product(m, k, n):
    lo = Lowering(Target.host())
    a, b, c = Array("a", float32, (m, k), (k, 1)), Array("b", float32, (k, n), (n, 1)), Array("c", float32, (m, n), (n, 1))
    contract(lo, a, b, c, 0, 1, 1, 1)
    found = [cost(launch.kernel) for launch in lo.launches]
    assert all(f.exact for f in found)
    # lanes of vectors and rows of tiles are filled up; chunks are added
    assert 2 * m * k * n <= sum(f.flops for f in found) <= 2 * (m + 15) * (k + 2) * (n + 63)
    assert sum(f.bytes for f in found) >= 4 * (m * k + k * n + m * n)


def test_cost_expands_functions_and_says_what_data_decides():
    k = Builder("odd")
    x, y, i = k.input("x", float32), k.output("y", float32), k.input("i", int64)
    k.store(y, 0, call("exp", k.load(x, 0)))
    c = cost(k.build())
    assert c.exact and c.flops > 5 and c.bytes == 8
    with k.loop(0, k.load(i, 0)) as j:
        k.store(y, j, k.load(x, j) + 1.0)
    assert not cost(k.build()).exact
    empty = Builder("empty")
    empty.split(empty.int("n"))
    assert cost(empty.build(), {"n": 0}).flops == 0


# ---- programs


def relu_program(record):
    lo = Lowering(Target.host())
    x, y = (Array(i, float32, (40,), (1,)) for i in "xy")
    for name in ("one", "two"):
        pointwise(lo, [Elementwise(lambda v: v + 1.0, [Leaf(x)], (40,), float32)], [y], name)
    return build(lo, ["x"], ["y"], "relu", record)


def test_only_the_entry_point_differs():
    plain, recorded = relu_program(False), relu_program(True)
    assert plain.launches is None and [x.launch.kernel.name for x in recorded.launches] == ["one", "two"]
    split = lambda p: p.text.split("define void @run(")
    assert split(plain)[0] == split(recorded)[0] and split(plain)[1] != split(recorded)[1]
    assert "%launch" not in plain.text and "call void @one(" in plain.text  # called directly, not through a recorder


# ---- profiles


def everything():
    """Eager calls, a composite, a traced step that writes states."""
    tengen.random.seed(3)
    random, net = data(33, 40), M.Linear(40, 8)
    gm, opt = GradManager().attach(net.parameters()), SGD(net.parameters(), lr=0.1)

    @trace
    def step(x):
        with gm:
            loss = (net(x) ** 2).mean()
            gm.backward(loss)
        opt.step().clear_grad()
        return loss

    out = [step(random), step(random), F.softmax(random @ random.T, axis=1), random + 1, F.gather(random, 1, Tensor([[0]] * 33))]
    return [t.numpy().tobytes() for t in [*out, *net.parameters()]]


def test_bits_do_not_change_and_everything_comes_back():
    want = everything()
    before = dict(eager._plans)
    for _ in range(2):
        with tengen.profile() as p:
            assert plans.recording() and everything() == want
    assert not plans.recording() and eager._plans == before and everything() == want
    names = {r.program for r in p.rows}
    assert {"step", "softmax", "matmul", "add", "gather"} <= names
    assert sum(r.calls for r in p.rows if r.program == "gather") == 1


def test_rows():
    f = trace(lambda x: F.relu(x * 2) + 1)
    x = data(200, 100)
    f(x)
    with tengen.profile() as p:
        for _ in range(3):
            f(x)
        y = x + x; line = user_line_here()  # noqa: E702  (two statements of one line)
        z = x + y  # noqa: F841  (only its kernel counts)
    fused, *_ = [r for r in p.rows if r.program == "<lambda>"]
    assert fused.calls == 3 and fused.bytes == 2 * 80000 and fused.exact and __file__ in fused.where
    assert 0 < fused.least <= fused.time / 3 <= fused.most <= p.seconds and fused.busy > 0
    adds = [r for r in p.rows if r.program == "add"]
    assert len(adds) == 2 and {r.where for r in adds} == {line, f"{__file__}:{int(line.rpartition(':')[2]) + 1}"}
    assert all(r.calls == 1 and r.flops >= 20000 and r.bytes == 3 * 80000 for r in adds)
    assert fused.gbytes == pytest.approx(3 * 160000 / fused.time / 1e9)
    assert fused.share_of(Roof(1e30, 1e9)) == pytest.approx(fused.gbytes)
    assert p.kernel_seconds <= p.seconds
    assert [r.time for r in p.rows] == sorted((r.time for r in p.rows), reverse=True)
    assert p.sorted("calls")[0] is fused
    with pytest.raises(ValueError, match="cannot sort by 'name'; help: one of time"):
        p.table(sort="name")


def user_line_here():
    f = sys._getframe(1)
    return f"{f.f_code.co_filename}:{f.f_lineno}"


def test_a_step_back_counts_its_product():
    from tengen.ops.recurrent import lstm_grad

    steps, n, h = 3, 8, 32
    back = trace(lambda g, w, c, z: lstm_grad(g, None, None, w, c, z))
    arrays = data(steps + 1, n, h), data(4 * h, h), data(steps + 1, n, h), data(steps, n, 4 * h)
    with tengen.profile() as p:
        back(*arrays)
    product = 2 * n * 4 * h * h
    found = [r.flops for r in p.rows if r.kernel.startswith(("lstm_grad_step", "lstm_grad_matmul")) and "pack" not in r.kernel]
    assert found and all(product <= flops < 1.5 * product for flops in found)


def test_a_loaded_model_and_threads(tmp_path):
    w = data(300, 300)
    f = trace(lambda x: F.exp(x @ w), example_input=w, capture_as_const=True)
    f.dump(tmp_path / "f.tgn")
    before = tengen.config.threads
    try:
        for n in (1, 3):
            tengen.set_threads(n)
            m = tengen.load_graph(tmp_path / "f.tgn")
            with tengen.profile() as p:  # loaded and compiled inside
                inside = m(w)
            assert inside.numpy().tobytes() == m(w).numpy().tobytes()
            assert p.threads == n and 1 <= len(set(p.launches.thread)) <= n
            own = p.launches.share == 0
            assert (p.launches.begin <= p.launches.end).all() and (p.launches.begin[own][1:] >= p.launches.end[own][:-1]).all()
            for launch in np.unique(p.launches.launch):
                mine = p.launches.launch == launch
                whole = mine & own
                assert whole.sum() == 1 and (mine & ~own).sum() >= 1
                assert p.launches.begin[mine].min() == p.launches.begin[whole][0]
                assert p.launches.end[mine].max() == p.launches.end[whole][0]
    finally:
        tengen.set_threads(before)


def test_other_threads_are_seen():
    x = data(50, 50)
    f = trace(lambda x: F.exp(x))
    f(x)
    with tengen.profile() as p:
        workers = [threading.Thread(target=lambda: [f(x) for _ in range(20)]) for _ in range(3)]
        [w.start() for w in workers]
        [w.join() for w in workers]
    assert sum(r.calls for r in p.rows) == 60


def test_nesting_and_reuse():
    x = data(4)
    p = tengen.profile()
    with p:
        x + x
        with pytest.raises(TraceError, match="a profile is active already"):
            tengen.profile().__enter__()
    assert len(p.rows) == 1
    with p:
        pass
    assert p.rows == [] and "0 launches" in str(p) and len(str(p).splitlines()) == 2

    @trace
    def f(x):
        with tengen.profile():
            return x + 1

    with pytest.raises(TraceError, match="cannot begin inside a traced function"):
        f(x)
    with pytest.raises(ZeroDivisionError), tengen.profile() as p:
        x + x
        1 / 0  # noqa: B018  (only its error counts)
    assert launch_log.active is None and len(p.rows) == 1


def test_records_that_do_not_fit_are_counted(monkeypatch):
    x = data(4)
    real = launch_log._next
    with tengen.profile() as p:
        x + x
        real().value = launch_log.CAPACITY  # as if so many had been written
        x + x
    assert p.lost == 2 and "2 records did not fit" in p.summary()
    assert [r.calls for r in p.rows] == [1]


def test_files(tmp_path):
    x = data(300, 300)
    with tengen.profile() as p:
        F.softmax(x @ x, axis=1)
    p.save(tmp_path / "t.json")
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    whole = [e for e in events if "args" in e and "flops" in e["args"]]
    assert sum(e["dur"] for e in whole) == pytest.approx(1e6 * p.kernel_seconds)
    assert all(__file__ in e["args"]["line"] for e in whole) and {e["cat"] for e in whole} == {"matmul", "softmax"}
    assert {e["name"] for e in events if e["ph"] == "M"} == {"thread_name"}
    pytest.importorskip("matplotlib")
    p.plot(tmp_path / "t.png")
    assert (tmp_path / "t.png").read_bytes().startswith(b"\x89PNG")
    Result().plot(tmp_path / "empty.png")


def test_times_as_text():
    assert [_time(t) for t in (0, 1.5e-7, 2.5e-4, 0.0123, 2, 4000)] == ["0.0 us", "0.1 us", "250.0 us", "12.3 ms", "2 s", "4000 s"]


# ---- the roof


def test_roof_is_measured_once(monkeypatch):
    before, measured = tengen.config.threads, []
    monkeypatch.setattr(roofs, "measure", lambda n: measured.append(n) or measure(n))
    roof.cache_clear()
    found = roof(1)
    assert 1e8 < found.flops < 1e12 and 1e8 < found.bytes < 1e12
    assert roof(1) is found and measured == [1] and tengen.config.threads == before


def test_transfers_have_tracks_in_the_file_and_in_the_picture(tmp_path):
    from tengen.base.spans import note_span

    x = Tensor(np.ones((8, 8), np.float32))
    with tengen.profile() as p:
        _ = x + 1
        for name, begin, end in (("first", 0, 5), ("second", 2, 4), ("third", 6, 7)):  # the second one while the first one goes on
            note_span(name, p._begin + 1000 * begin, p._begin + 1000 * end)
    note_span("behind the profile", 0, 1)
    assert [name for name, _, _ in p.transfers] == ["first", "second", "third"]
    events = [e for e in p._events() if e.get("cat") == "transfer"]
    assert [(e["name"], e["dur"]) for e in events] == [("first", pytest.approx(5)), ("third", pytest.approx(1)), ("second", pytest.approx(2))]
    assert events[0]["tid"] == events[1]["tid"] != events[2]["tid"]
    pytest.importorskip("matplotlib")
    p.plot(tmp_path / "t.svg")
    assert (tmp_path / "t.svg").stat().st_size > 1000
