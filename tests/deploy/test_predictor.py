"""`Predictor`: every request has the bits of the model called for it alone, however requests are joined, split and run at once; bounds
on waiting, time and memory hold."""

import os
import threading
import time

import numpy as np
import pytest

import tengen
from tengen import Predictor, Tensor, load_graph, trace
from tengen.base.errors import ConfigError, IndexOutOfRange, ShapeError, TengenError
from tengen.deploy import predictor
from tengen.deploy.model import Model
from tengen.deploy.predictor import Overloaded
from tengen.module import Linear, ReLU, Sequential
from tengen.runtime import native

RNG = np.random.default_rng(3)


def noise(*shape):
    return RNG.standard_normal(shape).astype("float32")


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    net, out = Sequential(Linear(6, 8), ReLU()), Linear(8, 3)
    f = trace(lambda x: (out(net(x).mean(1)), net(x).max(1)), capture_as_const=True, dynamic_axes={"x": {0: "batch", 1: "height"}})
    f(Tensor(noise(2, 5, 6)))
    path = tmp_path_factory.mktemp("predictor") / "net.tgn"
    f.dump(path, arg_names=["x"], output_names=["scores", "most"])
    return path


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    rows = Tensor(noise(5, 4))
    f = trace(lambda i: rows[i], capture_as_const=True, dynamic_axes={"i": {0: "batch"}})
    f(Tensor([1, 2]))
    path = tmp_path_factory.mktemp("predictor") / "table.tgn"
    f.dump(path, arg_names=["i"])
    return path


def same(got, want):
    assert len(got) == len(want)
    for a, b in zip(got, want):
        assert type(a) is np.ndarray and a.dtype == b.numpy().dtype and a.shape == b.shape and a.tobytes() == b.numpy().tobytes()


def test_one_request_has_the_models_bits(file):
    model = load_graph(file)
    with Predictor(file) as p:
        p.warm_up(batch=2, height=5)
        for x in (noise(3, 5, 6), noise(1, 9, 6)):
            same(p(x), model(x))
            same(p(x=Tensor(x)), model(x))
            same(p.predict_async(x).result(), model(x))
        torch = pytest.importorskip("torch", reason="PyTorch is not installed: its tensors are not passed by DLPack here")
        same(p(torch.from_numpy(x)), model(x))


def test_memory_of_arguments_and_results_is_not_copied(file, tmp_path, monkeypatch):
    class Foreign:
        def __init__(self, a):
            self.a = a

        def __dlpack__(self, **how):
            return self.a.__dlpack__(**how)

        def __dlpack_device__(self):
            return self.a.__dlpack_device__()

    model, seen, run = load_graph(file), [], Model.__call__

    def watched(self, *tensors):
        made = run(self, *tensors)
        seen[:] = [native.address(t._data) for t in (*tensors, *made)]
        return made

    monkeypatch.setattr(Model, "__call__", watched)
    with Predictor(model) as p:
        x = noise(4, 5, 6)
        for given in (x, Foreign(x)):
            scores, most = p(given)
            assert seen == [x.ctypes.data, scores.ctypes.data, most.ctypes.data] and not scores.flags.writeable
        odd = np.frombuffer(b"\0" + x.tobytes(), "float32", offset=1).reshape(x.shape)  # not on four bytes
        want = run(model, x)
        for given in (odd, np.asfortranarray(x), x.astype(">f4")):
            same(p(given), want)
            assert seen[0] != given.ctypes.data
    monkeypatch.undo()
    as_it_is = trace(lambda x: (x, x * 2))
    as_it_is(Tensor(x))
    as_it_is.dump(tmp_path / "same.tgn")
    with Predictor(tmp_path / "same.tgn") as p:
        first, double = p(x)
        kept = x.copy()
        x[:] = 7
        assert first.tobytes() == kept.tobytes() and double.tobytes() == (kept * 2).tobytes()


def test_several_threads_lose_no_count(table):
    with Predictor(table, threads=4) as p:
        want = p(np.array([1, 4], "int64")).tobytes()
        asks = [p.predict_async(np.array([1, 4 if i % 5 else 9], "int64")) for i in range(400)]
        errors = [f.exception(60) for f in asks]
        assert all(f.result().tobytes() == want for f, e in zip(asks, errors) if e is None)
        assert [type(e) for e in errors] == [IndexOutOfRange if i % 5 == 0 else type(None) for i in range(400)]
        s = p.statistics
        assert (s.requests, s.failed, s.runs, s.examples) == (321, 80, 401, 642)


@pytest.mark.parametrize("threads, max_batch, wait", [(1, 4, 0.0), (2, 8, 0.01), (3, None, 0.0)])
def test_requests_of_many_threads(file, threads, max_batch, wait):
    model = load_graph(file)
    requests = [noise(n, h, 6) for n, h in [(1, 5), (3, 5), (2, 7), (9, 5), (1, 7), (17, 7), (4, 5)] * 2]
    want = [model(x) for x in requests]
    got = [None] * len(requests)
    with Predictor(model, threads=threads, max_batch=max_batch, wait=wait) as p:
        threads = [threading.Thread(target=lambda i=i, x=x: got.__setitem__(i, p(x, timeout=60))) for i, x in enumerate(requests)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        futures = [p.predict_async(x) for x in requests]  # closing answers what waits
    for some in (got, [f.result(0) for f in futures]):
        for a, b in zip(some, want):
            same(a, b)
    assert p.statistics.failed == 0
    assert max_batch is not None or p.statistics.runs == 2 * len(requests)


def test_a_call_that_need_not_wait_runs_in_its_own_thread(file, monkeypatch):
    """No other thread is woken for it. What must wait, may be given up, or counts memory is put in line, and all share the runs at once."""
    model, run, seen, now, most = load_graph(file), Model.__call__, [], [0], [0]
    begun, go = threading.Event(), threading.Event()

    def watched(self, *tensors):
        now[0] += 1
        most[0] = max(most[0], now[0])
        seen.append(threading.current_thread())
        begun.set()
        go.wait(60)
        try:
            return run(self, *tensors)
        finally:
            now[0] -= 1

    monkeypatch.setattr(Model, "__call__", watched)
    x, own = noise(2, 5, 6), threading.current_thread()
    go.set()
    with Predictor(model) as p:
        for given, mine in (({}, True), ({"timeout": 60}, False), ({}, True)):
            p(x, **given)
            assert (seen[-1] is own) == mine
        seen.clear()
        begun.clear()
        go.clear()
        asking = threading.Thread(target=p, args=(x,))
        asking.start()
        assert begun.wait(60)
        queued = [p.predict_async(x) for _ in range(3)]  # a run is in their way, which is another thread's
        assert p.waiting == 3 and [t is asking for t in seen] == [True]
        go.set()
        want = run(model, x)
        for f in queued:
            same(f.result(60), want)
        asking.join()
        assert most[0] == 1 and len({*seen}) == 2 and own not in seen
        assert (p.statistics.requests, p.statistics.runs, p.statistics.failed, p._running) == (7, 7, 0, 0)
    with pytest.raises(TengenError, match="is closed"):
        p(x)
    begun.clear()
    go.clear()
    p = Predictor(model)
    asking = threading.Thread(target=p, args=(x,))
    asking.start()
    assert begun.wait(60)
    closing = threading.Thread(target=p.close)
    closing.start()
    closing.join(0.02)
    assert closing.is_alive()  # it ends behind the last run
    go.set()
    closing.join(60)
    assert not closing.is_alive() and p.statistics.requests == 1
    for how in ({"budget": "1GB"}, {"max_batch": 4, "wait": 0.001}):
        with Predictor(model, **how) as p:
            p(x)
            assert seen[-1] is not own
    with Predictor(model, max_batch=4) as p:
        p(x)
        assert seen[-1] is own
        same(p(noise(0, 5, 6)), run(model, noise(0, 5, 6)))
        p(noise(9, 5, 6))
        assert seen[-1] is not own and p.statistics.runs == 5


def test_a_run_that_fails_in_its_own_thread_is_counted(table):
    with Predictor(table) as p:
        for _ in range(2):
            with pytest.raises(IndexOutOfRange):
                p(np.array([9], "int64"))
            assert p(np.array([4], "int64")).shape == (1, 4)
        with pytest.raises(ShapeError):
            p(np.array(4, "int64"))  # is no run
        assert (p.statistics.failed, p.statistics.requests, p.statistics.runs, p._running) == (2, 2, 4, 0)


def test_a_result_that_memory_is_missing_for_is_its_requests_error(file, monkeypatch):
    """The thread that ran it goes on; nobody waits for ever."""
    model, answers, missing = load_graph(file), predictor._answers, [MemoryError("no memory for a copy")]

    def scarce(made, tensors):
        if missing:
            raise missing.pop()
        return answers(made, tensors)

    monkeypatch.setattr(predictor, "_answers", scarce)
    x = noise(2, 5, 6)
    with Predictor(model) as p:
        with pytest.raises(MemoryError, match="for a copy"):
            p.predict_async(x).result(30)
        same(p.predict_async(x).result(30), model(x))
        assert (p.statistics.failed, p.statistics.requests) == (1, 1)


def test_small_requests_share_a_run(file):
    with Predictor(file, max_batch=8, wait=5.0) as p:
        x = noise(8, 5, 6)
        futures = [p.predict_async(x[i : i + 1]) for i in range(8)]  # the last one fills the batch, so that nobody waits longer
        same([np.concatenate([f.result(30)[k] for f in futures]) for k in range(2)], load_graph(file)(x))
        assert (p.statistics.runs, p.statistics.requests, p.statistics.examples) == (1, 8, 8)
        assert "8 requests, 1 runs" in repr(p)


def test_a_mistake_is_no_other_requests(table):
    with Predictor(table, max_batch=6, wait=5.0) as p:
        futures = [p.predict_async(np.array(i)) for i in ([0, 1], [9], [4, 4, 2])]
        assert futures[0].result(30).shape == (2, 4) and futures[2].result(30).shape == (3, 4)
        with pytest.raises(IndexOutOfRange):
            futures[1].result(30)
        with pytest.raises(IndexOutOfRange):  # one part of a request that is split
            p.predict(np.array([0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 0, 77]))
        with pytest.raises(ShapeError, match="input i: i64"):
            p.predict(np.array(3))
        with pytest.raises(TypeError, match="unknown: j"):
            p.predict_async(j=[1])
        assert p.statistics.failed == 2


def test_time_and_waiting_are_bounded(file, monkeypatch):
    model = load_graph(file)
    x, run = noise(1, 5, 6), type(model).__call__
    begin, go = threading.Event(), threading.Event()

    def slow(self, *args):
        begin.set()
        assert go.wait(60)
        return run(self, *args)

    monkeypatch.setattr(type(model), "__call__", slow)
    p = Predictor(model, max_waiting=2, timeout=0.05)
    first = p.predict_async(x)
    assert begin.wait(60)
    with pytest.raises(TimeoutError, match="no answer within 0.05 s: .* taken back"):
        p(x)
    second, third = p.predict_async(x), None
    with pytest.raises(Overloaded, match="2 requests wait, at most 2 may"):
        third = p.predict_async(x)
    assert third is None
    go.set()
    same(first.result(60), run(model, x)), same(second.result(60), run(model, x))
    p.close()
    with pytest.raises(TengenError, match="closed"):
        p(x)


def test_a_budget_of_memory(file):
    model = load_graph(file)
    need = model.bytes_of_run({"batch": 4, "height": 16})
    assert need > 4 * 8 * 16  # bytes: more than its results
    x = noise(4, 16, 6)
    with Predictor(model, threads=3, budget=need) as p:
        for f in [p.predict_async(x) for _ in range(5)]:
            same(f.result(60), model(x))
        with pytest.raises(ConfigError, match="the budget has .*; help: a budget of at least"):
            p(noise(5, 16, 6))
    with Predictor(model, max_batch=4, budget=f"{need}B") as p:  # in parts it fits
        big = noise(11, 16, 6)
        same(p(big), model(big))
    assert Predictor(model, budget="1.5 MiB").budget == 3 << 19
    for bad in ("much", "0", -1, "3 XB", float("nan"), True, 2.5):
        with pytest.raises(ConfigError, match="must be a positive number of bytes"):
            Predictor(model, budget=bad)


def test_what_it_cannot_serve(file, tmp_path):
    fixed = load_graph(file).at(batch=2, height=5)
    with pytest.raises(ConfigError, match="one open extent along axis 0"):
        Predictor(fixed, max_batch=4)
    nan, odd = float("nan"), ({"threads": 0}, {"threads": True}, {"threads": 1.5}, {"max_batch": 0}, {"max_waiting": 0})
    times = [{k: v} for k in ("wait", "timeout") for v in (-1, -1.0, nan, True, "1", [1])]
    for wrong in (*odd, *times, {"wait": None}, {"wait": float("inf")}):
        with pytest.raises(ConfigError, match=f"{next(iter(wrong))}=.* at least"):
            Predictor(fixed, **wrong)
    with Predictor(fixed) as p:
        x = noise(2, 5, 6)
        for bad in (-1, nan, True, "1"):
            with pytest.raises(ConfigError, match="timeout=.* at least 0"):
                p(x, timeout=bad)
        assert p.statistics.requests == 0  # refused before anything is asked
        for long in (1e30, float("inf"), np.float32(60)):
            same(p(x, timeout=long), fixed(x))
    with pytest.raises(TypeError, match="too many: ndarray$"):
        fixed(noise(2, 5, 6), noise(2, 5, 6))
    count = Tensor([0.0])

    def counting(x):
        count[0] = count[0] + 1
        return x + count

    f = trace(counting)
    f(Tensor([1.0]))
    f.dump(tmp_path / "c.tgn")
    with pytest.raises(ConfigError, match="states that each call updates"):
        Predictor(tmp_path / "c.tgn")
    with pytest.raises(ConfigError, match="open extents"):
        Predictor(fixed).warm_up(batch=3)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork: a child of one is not tried here")
def test_after_a_fork(file):
    p, x = Predictor(file), noise(2, 5, 6)
    want = p(x)[0].tobytes()
    if (child := os.fork()) == 0:
        try:
            os._exit(0 if p.predict(x, timeout=60)[0].tobytes() == want else 1)
        finally:
            os._exit(2)
    for _ in range(600):
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            break
        time.sleep(0.1)
    assert done and os.waitstatus_to_exitcode(status) == 0
    assert p(x)[0].tobytes() == want and tengen.Predictor is Predictor
