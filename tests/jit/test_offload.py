"""Traced programs with a budget that write values to files, and read them again: equal bits, no file left, clear errors."""

import errno
import gc
import os
import threading

import numpy as np
import pytest
from one_step import step_of

import tengen.functional as F
import tengen.module as M
from tengen import Tensor, trace
from tengen.base.errors import ArgumentError, BudgetError
from tengen.jit import memory_options
from tengen.passes import recompute, units
from tengen.runtime.paging import Pages


def network():
    """Wide layers, which cost more to compute again than to read, and convolutions, whose values lie in another order."""
    rng = np.random.default_rng(0)
    net = M.Sequential(
        M.Conv2d(3, 16, 3, padding=1), M.BatchNorm2d(16), M.ReLU(), M.Conv2d(16, 16, 3, padding=1), M.ReLU(), M.Conv2d(16, 8, 3, padding=1),
        M.Flatten(), *(m for i in range(6) for m in (M.Linear(512, 512), M.ReLU())), M.Linear(512, 4),
    )  # fmt: skip
    for p in net.parameters():
        p._reset(Tensor(rng.normal(size=p.shape, scale=0.05).astype("float32")))
    return net


def batch(seed=0, n=64):
    return Tensor(np.random.default_rng(seed).normal(size=(n, 3, 8, 8)).astype("float32"))


def trained(**options):
    net = network()
    step = trace(step_of(net), **options)
    losses = [step(batch(seed)).numpy().tobytes() for seed in range(2)]
    return losses + [t.numpy().tobytes() for t in (*net.parameters(), *net.buffers())], step


@pytest.fixture(scope="module")
def plain():
    return trained()[0], trained(memory_budget="1GB")[1].stats()[0].memory


@pytest.fixture
def eager_to_write(monkeypatch):
    """Files cost nothing, so that all is written that can be."""
    for m in (units, recompute):
        monkeypatch.setattr(m, "DISK_FLOPS", 0)
        monkeypatch.setattr(m, "PAGE_FLOPS", 0)


@pytest.fixture
def disk(tmp_path):
    """A folder, and what programs hold in it."""
    yield str(tmp_path), lambda: memory_options._pages[str(tmp_path)]._held
    assert os.listdir(tmp_path) == []  # a file without a name


def test_values_are_written_and_read_with_equal_bits(plain, eager_to_write, disk):
    bits, whole = plain
    folder, held = disk
    budget = whole.states + whole.results + whole.constants + int(whole.arena * 0.36)
    again = [trained(memory_budget=budget, offload=folder) for _ in range(2)]  # the second one finds its program in the cache
    for found, step in again:
        memory = step.stats()[0].memory
        assert found == bits and memory.bytes <= budget and memory.written > 0 and memory.read >= memory.written
        assert "are written to files" in repr(step.stats()) and memory == again[0][1].stats()[0].memory
    assert not held()
    graph = again[0][1]._last.run.graph
    assert all(n.op not in ("page_in", "page_out") for n in graph.nodes)  # the planner's, not the user's


def test_what_is_cheap_is_computed_again_and_what_is_dear_is_written(disk):
    def step(x, w):
        y = F.exp(x) * 2  # cheap
        z = F.exp(x) @ w  # dear: 2,048 products for each element
        big = F.sort(F.concat([x, x], 1), True)[0]  # what needs the memory
        return (big.sum() + (y * y).sum() + (F.sin(z) * z).sum()), y.sum(), z.sum()

    rng = np.random.default_rng(1)
    x, w = (Tensor(rng.normal(size=s).astype("float32")) for s in ((256, 2048), (2048, 1024)))
    wanted = [r.numpy().tobytes() for r in step(x, w)]
    t = trace(step, memory_budget="1GB")
    assert [r.numpy().tobytes() for r in t(x, w)] == wanted
    whole = t.stats()[0].memory
    small = trace(step, memory_budget=whole.bytes - (1 << 19), offload=disk[0])
    try:
        made = small(x, w)
    except BudgetError:
        pytest.skip("the kernels of this target leave nothing to spare")
    assert [r.numpy().tobytes() for r in made] == wanted


def test_two_threads_run_one_program(plain, eager_to_write, disk):
    _, whole = plain
    net = network().eval()

    f = lambda x: _folded(net, x)
    plan = trace(f, memory_budget="1GB")
    wanted = {s: plan(batch(s)).numpy().tobytes() for s in range(2)}
    m = plan.stats()[0].memory
    small = trace(f, memory_budget=m.bytes - m.arena // 4, offload=disk[0])
    small(batch(0))
    assert small.stats()[0].memory.written
    found = []

    def run(s):
        for _ in range(20):
            found.append(small(batch(s)).numpy().tobytes() == wanted[s])

    threads = [threading.Thread(target=run, args=(s,)) for s in range(2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert found == [True] * 40 and not disk[1]()


def _folded(net, x):
    """A network all of whose hidden values are read again at the end, the first one last."""
    hidden = [net[:7](x)]
    for m in net[7:-1]:
        hidden.append(m(hidden[-1]))
    y = F.sort(hidden[-1], True)[0]
    for h in reversed(hidden):
        y = F.sort(y + h, True)[0]
    return y


def test_a_full_disk_is_an_error_and_harms_no_later_run(plain, eager_to_write, disk, monkeypatch):
    bits, whole = plain
    net = network()
    step = trace(step_of(net), memory_budget=whole.bytes - int(whole.arena * 0.64), offload=disk[0])
    count, write = 0, os.pwrite

    def full(fd, part, at):
        nonlocal count
        count += 1
        if count == 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(fd, part, at)

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(BudgetError, match="cannot be written to .*: No space left on device; help: offload= another folder"):
        step(batch(0))
    assert not disk[1]()  # what was written is let go of
    monkeypatch.setattr(os, "pwrite", write)
    assert step(batch(1)).numpy().tobytes() == bits[1]  # the step before was made all the same
    assert [t.numpy().tobytes() for t in (*net.parameters(), *net.buffers())] == bits[2:]


def test_an_interrupted_step_is_a_whole_one_and_keeps_no_page(plain, eager_to_write, disk, monkeypatch):
    bits, whole = plain
    net = network()
    step = trace(step_of(net), memory_budget=whole.bytes - int(whole.arena * 0.64), offload=disk[0])
    calls = {"pwrite": os.pwrite, "preadv": os.preadv}
    count = 0

    def interrupted(name):
        def call(*args):
            nonlocal count
            count += 1
            if count in (3, 5):  # the second one while the first is raised
                raise KeyboardInterrupt(name)
            return calls[name](*args)

        return call

    for seed, name in enumerate(calls):
        count = 0
        monkeypatch.setattr(os, name, interrupted(name))
        with pytest.raises(KeyboardInterrupt, match=name):
            step(batch(seed))
        monkeypatch.setattr(os, name, calls[name])
        assert not disk[1]()
    assert [t.numpy().tobytes() for t in (*net.parameters(), *net.buffers())] == bits[2:]


def test_the_file_is_gone_with_its_store(tmp_path):
    pages = Pages(str(tmp_path))
    a = np.arange(1000, dtype="float32")
    region = pages._spool.write(a.ctypes.data, a.nbytes)
    b = np.zeros_like(a)
    pages._spool.read(region, b.ctypes.data)
    assert (a == b).all() and os.listdir(tmp_path) == []
    fd = pages._spool._fd
    os.ftruncate(fd, 10)
    with pytest.raises(BudgetError, match="its file was cut"):
        pages._spool.read(region, b.ctypes.data)
    del pages, region
    gc.collect()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)


def test_options_that_do_not_fit():
    with pytest.raises(ArgumentError, match="offload='disk' without a budget writes nothing"):
        trace(abs, offload="disk")
    with pytest.raises(ValueError, match="offload='/nowhere/at/all' is no folder"):
        trace(abs, memory_budget=5, offload="/nowhere/at/all")
    with pytest.raises(ValueError, match='offload=3 is no folder; help: a folder that is there, or "disk"'):
        trace(abs, memory_budget=5, offload=3)
    assert "offload='disk'" in repr(trace(abs, memory_budget=5, offload="disk"))
