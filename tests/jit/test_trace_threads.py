"""trace and threads: programs that several of Python's threads record and run at once, and any number of threads of a program."""

import threading

import numpy as np
import pytest

import tengen
from tengen import Tensor, trace
from tengen import functional as F


@pytest.fixture(autouse=True)
def _enabled():
    yield
    trace.enabled = True


def test_two_python_threads_run_traced_programs_at_once():
    x = [Tensor(np.random.default_rng(i).normal(size=(64, 64)).astype(np.float32)) for i in range(2)]
    want = [(a @ a @ a).numpy().tobytes() for a in x]
    f = trace(lambda a: a @ a @ a)
    f(x[0])
    errors = []

    def work(i):
        for _ in range(30):
            if f(x[i]).numpy().tobytes() != want[i]:
                errors.append(i)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not errors


def test_one_thread_records_while_another_computes():
    started, done, seen = threading.Event(), threading.Event(), []

    def work():
        started.wait(10)
        a = Tensor([1.0, 2.0])
        seen.append(((a + a) * 3 - 1).tolist())
        done.set()

    thread = threading.Thread(target=work)
    thread.start()

    @trace
    def f(x):
        started.set()
        assert done.wait(10)
        return (x + x) * 3 - 1

    assert f(Tensor([1.0, 2.0])).tolist() == [5, 11] and seen == [[5, 11]]
    thread.join()
    assert f.graph.nodes and len(f.stats()) == 1


def test_many_threads_trace_at_once():
    results = [None] * 4

    def work(i):
        g = trace(lambda x: F.softmax(x * (i + 1), -1))
        results[i] = (
            g(Tensor([[0.0, 1.0]])).numpy().tobytes() == F.softmax(Tensor([[0.0, 1.0]]) * (i + 1), -1).numpy().tobytes()
        )

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert results == [True] * 4


@pytest.mark.parametrize("n", [1, 2, 3, 8])
def test_any_number_of_threads_gives_the_same_bits(n):
    old = tengen.base.config.config.threads
    r = np.random.default_rng(0)
    x, w = Tensor(r.normal(size=(4, 8, 20, 20)).astype(np.float32)), Tensor(r.normal(size=(16, 8, 3, 3)).astype(np.float32))

    @trace
    def f(x, w):
        y = F.relu(F.conv2d(x, w, padding=1))
        return y, F.softmax(y.reshape(4, -1), -1), (y * y).sum(), y.mean((0, 2, 3))

    try:
        tengen.set_threads(1)
        want = [t.numpy().tobytes() for t in f(x, w)]
        tengen.set_threads(n)
        assert [t.numpy().tobytes() for t in f(x, w)] == want
        trace.enabled = False
        assert [t.numpy().tobytes() for t in f(x, w)] == want
    finally:
        tengen.set_threads(old)
