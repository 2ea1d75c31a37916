"""`tengen.memory.plan`: the table of a program's memory says what the program's plan is."""

import sys

import numpy as np
import pytest

import tengen
import tengen.functional as F
import tengen.module as M
from tengen import Tensor, memory, trace
from tengen.autodiff import GradManager
from tengen.optimizer import SGD


@pytest.fixture(scope="module")
def step():
    net = M.Sequential(*(m for _ in range(5) for m in (M.Linear(32, 32), M.ReLU())))
    gm, opt = GradManager().attach(net.parameters()), SGD(net.parameters(), lr=0.01)

    def step(x):
        with gm:
            loss = F.sum(net(x) ** 2)
            gm.backward(loss)
        opt.step().clear_grad()
        return loss

    return net, step, Tensor(np.ones((64, 32), "float32"))


def test_plan_is_that_of_the_program(step):
    net, f, x = step
    before = [p.numpy().tobytes() for p in net.parameters()]
    p = memory.plan(f, x)
    assert [p.numpy().tobytes() for p in net.parameters()] == before  # nothing ran
    traced = trace(f)
    traced(x)
    program = traced._last.run.program
    assert p.arena == program.arena_bytes(()) and p.results == 4
    assert p.states == sum(t.size * 4 for t in net.parameters()) + 4  # and the learning rate
    assert p.bytes == p.arena + p.states + p.results + p.constants
    assert max(p.held) <= p.arena and p.lower_bound <= p.bytes
    assert sum(a.bytes for a in p.alive) == p.held[p.peak] == max(p.held)
    assert all(a.first <= p.peak <= a.last for a in p.alive)
    counted = [0] * len(p.held)  # from the program's own lives, one launch after another
    for size, life in zip(program.temps.sizes, program.temps.lives):
        for first, last in life:
            for at in range(first, last + 1):
                counted[at] += size
    assert counted == list(p.held)


def test_plan_of_a_budget(step, tmp_path):
    _, f, x = step
    whole = memory.plan(f, x)
    assert whole.recomputed is None
    budget = whole.bytes - whole.arena // 3
    p = memory.plan(trace(f, memory_budget=budget), x)
    assert p.bytes == p.recomputed.bytes <= budget and p.recomputed.lower_bound <= p.bytes
    text = str(p)
    assert "budget: " in text and "no plan for these kernels needs less than" in text and "test_memory_plan.py" in text
    assert text.count("peak") >= 2 and "####" in text
    p.save(tmp_path / "plan.txt")
    assert (tmp_path / "plan.txt").read_text() == text + "\n"


def test_picture_needs_matplotlib(step, tmp_path, monkeypatch):
    _, f, x = step
    p = memory.plan(f, x)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError):
        p.save(tmp_path / "plan.png")
    monkeypatch.undo()
    pytest.importorskip("matplotlib", reason="matplotlib is not installed: no picture is drawn")
    p.save(tmp_path / "plan.png")
    assert (tmp_path / "plan.png").read_bytes().startswith(b"\x89PNG")


def test_figures_of_the_pool():
    F.ones((1 << 20,))  # the numbers that it needs stay
    tengen.memory.trim()
    tengen.reset_max_memory_stats()
    before = memory.stats()
    assert before.allocated == before.max_allocated == tengen.get_allocated_memory()
    x = F.ones((1 << 20,))
    now = memory.stats()
    assert now.allocated - before.allocated == 4 << 20 and now.max_reserved >= now.reserved >= now.allocated
    assert now.resident > now.allocated
    del x
    assert memory.stats().reserved - memory.stats().allocated >= 4 << 20
    assert memory.trim() >= 4 << 20 and memory.stats().reserved == memory.stats().allocated
    assert tengen.get_max_reserved_memory() == memory.stats().max_reserved >= before.allocated + (4 << 20)
