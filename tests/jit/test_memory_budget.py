"""Budgets of memory for traced programs: they are kept, to the byte, and no bit changes."""

import numpy as np
import pytest
from exhaustive import but
from one_step import step_of
from recorded import graph_of

import tengen
import tengen.functional as F
import tengen.module as M
from tengen import Tensor, jit, trace
from tengen.autodiff import GradManager
from tengen.base.errors import ArgumentError, BudgetError
from tengen.compiler.driver import compile_graph
from tengen.compiler.memory_plan import Budget
from tengen.optimizer import SGD
from tengen.passes import recompute, units
from tengen.passes.lower import lowering_passes
from tengen.passes.pipeline import optimize
from tengen.passes.run import run_passes
from tengen.runtime import native

WIDTH, ROWS = 16, 256


def chain(depth):
    return M.Sequential(*(m for _ in range(depth) for m in (M.Linear(WIDTH, WIDTH), M.ReLU())))


def batch(shape=(ROWS, WIDTH), seed=0):
    return Tensor(np.random.default_rng(seed).normal(size=shape).astype("float32"))


def network():
    """Convolutions, batch norm, dropout, a shortcut: states that are read and written, and random numbers."""
    tengen.random.seed(3)
    block = lambda: M.Sequential(M.Conv2d(8, 8, 3, padding=1), M.BatchNorm2d(8), M.ReLU(), M.Dropout(0.25))
    first, blocks, last = M.Conv2d(3, 8, 3, padding=1), M.Sequential(*(block() for _ in range(3))), M.Linear(8, 5)

    class Net(M.Module):
        def __init__(self):
            super().__init__()
            self.first, self.blocks, self.last = first, blocks, last

        def forward(self, x):
            x = self.first(x)
            for b in self.blocks:
                x = x + b(x)
            return self.last(F.mean(x, axis=(2, 3)))

    return Net()


def trained(steps=2, **options):
    """(bits of losses, parameters, buffers and momenta after some steps; the plan of its memory)."""
    net = network()
    step = trace(step_of(net), **options)
    losses = [step(batch((4, 3, 16, 16), seed)).numpy().tobytes() for seed in range(steps)]
    state = [t.numpy().tobytes() for t in (*net.parameters(), *net.buffers())]
    return losses + state, step


@pytest.fixture(scope="module")
def plain():
    return trained()[0], trained(memory_budget="1GB")[1].stats()[0].memory


@but(every=2)
@pytest.mark.parametrize("share", [0.8, 0.6])
def test_budget_is_kept_and_no_bit_changes(plain, share):
    bits, whole = plain
    budget = whole.states + whole.results + whole.constants + int(whole.arena * share)
    found, step = trained(memory_budget=budget)
    memory, run = step.stats()[0].memory, step._last.run
    assert found == bits
    assert memory.bytes <= budget < whole.bytes and memory.recomputed_flops > 0 and memory.recomputed
    assert memory.arena == run.program.arena_bytes(()) + sum(run.program.setup.output_bytes if run.program.setup else [])
    assert "computed again" in repr(step.stats()) and "test_memory_budget.py" in memory.recomputed[0].where


def test_program_of_a_budget_is_read_back_with_its_plan(plain):
    bits, whole = plain
    again = [trained(memory_budget=whole.bytes * 3 // 4) for _ in range(2)]
    assert again[0][0] == again[1][0] == bits
    assert again[0][1].stats()[0].memory == again[1][1].stats()[0].memory


def test_budget_that_is_enough_computes_nothing_again(plain):
    _, whole = plain
    assert whole.recomputed == () and whole.recomputed_flops == 0


def test_budget_that_cannot_be_met_names_the_smallest_that_can(plain):
    bits, whole = plain
    words = r"step: memory_budget=1000 bytes cannot be met; the smallest that can is \d+ bytes .* operations more"
    with pytest.raises(BudgetError, match=words) as e:
        trained(memory_budget="1 KB")
    smallest = int(str(e.value).split("the smallest that can is ")[1].split()[0])
    assert smallest < whole.bytes
    found, step = trained(memory_budget=smallest)
    assert found == bits and step.stats()[0].memory.bytes <= smallest


def test_the_gradient_of_a_loss_lies_over_the_logits():
    classes, rows = 512, 64
    logits = 4 * classes * rows
    label = Tensor(np.random.default_rng(2).integers(0, classes, rows).astype("int32"))

    def steps(**options):
        tengen.random.seed(3)
        net = M.Sequential(M.Linear(WIDTH, WIDTH), M.ReLU(), M.Linear(WIDTH, classes))
        gm, opt = GradManager().attach(net.parameters()), SGD(net.parameters(), lr=0.01)

        def step(x):
            with gm:
                loss = F.loss.cross_entropy(net(x), label)
                gm.backward(loss)
            opt.step().clear_grad()
            return loss

        run = trace(step, **options)
        return [run(batch((rows, WIDTH), i)).numpy().tobytes() for i in range(2)] + [p.numpy().tobytes() for p in net.parameters()], run

    bits, _ = steps()
    assert steps(memory_budget="1GB")[1].stats()[0].memory.arena > 2 * logits
    states = steps(memory_budget="1GB")[1].stats()[0].memory.states
    found, run = steps(memory_budget=states + logits * 9 // 5)
    assert found == bits and run.stats()[0].memory.arena < 1.8 * logits


def memory_of(depth, budget):
    return compile_graph(graph_of(step_of(chain(depth)), batch()), None, [], "g", budget=budget)[0].memory


def test_memory_grows_with_the_square_root_of_the_depth():
    shallow, deep = (memory_of(depth, Budget(None)) for depth in (16, 144))
    assert deep.without - deep.states > 8.5 * (shallow.without - shallow.states)
    assert deep.arena < 3.6 * shallow.arena  # 9 times the layers
    assert deep.recomputed_flops < 0.45 * deep.flops


def test_peak_of_a_plan_is_that_of_its_runs_counted_one_by_one():
    f = optimize(graph_of(step_of(chain(6)), batch()))
    u = units.units_of(run_passes(f, lowering_passes(native.TARGET)[:-1]))
    order = units.freeing_order(u)
    assert sorted(order) == list(range(len(u.nodes)))
    whole = units.peak(u, [units.Run(i, u.outs[i]) for i in order])
    runs = units.pruned(u, recompute.plan(u, order, whole // 2))
    held, read_after = {}, [set() for _ in runs]
    later = {v for v, h in enumerate(u.held) if h}
    for at in reversed(range(len(runs))):
        read_after[at] = set(later)
        later -= {v for v in runs[at].wanted if not u.held[v]}
        later |= set(u.ins[runs[at].unit])
    most = 0
    for at, r in enumerate(runs):
        assert all(v in held for v in u.ins[r.unit])  # an operand is there when it is read
        held.update((v, u.size[v]) for v in r.wanted)
        over = u.over.get(r.unit)  # a result may lie over an operand that nobody reads later
        most = max(most, sum(held.values()) - (0 if over is None or over in read_after[at] else u.size[over]))
        held = {v: n for v, n in held.items() if v in read_after[at]}
    assert most == units.peak(u, runs) <= whole // 2


def test_counted_operations():
    x, w = batch((2, 3, 8, 8)), batch((5, 3, 3, 3))
    count = lambda f, *xs: sum(map(units.flops, graph_of(f, *xs).nodes))
    assert count(lambda a, b: F.matmul(a, b), batch((4, 6)), batch((6, 7))) == 2 * 4 * 6 * 7
    assert count(lambda a, b: F.conv2d(a, b, padding=1), x, w) == 2 * (2 * 5 * 8 * 8) * (3 * 3 * 3)
    assert count(lambda a: F.exp(a), x) == 2 * 3 * 8 * 8

    def grads(a, b):
        gm = GradManager().attach([a, b])
        with gm:
            gm.backward(F.sum(F.conv2d(a, b, padding=1)))
        return a.grad, b.grad

    nodes = {n.op: units.flops(n) for n in graph_of(lambda a, b: grads(a.detach(), b.detach()), x, w).nodes}
    assert nodes["conv_transposed"] == nodes["conv_weight_grad"] == nodes["conv"]


def test_megengine_options(plain):
    bits, whole = plain
    found, step = trained(sublinear_memory_config=jit.SublinearMemoryConfig())
    memory = step.stats()[0].memory
    assert found == bits and memory.budget is None and memory.bytes < whole.bytes
    assert memory.recomputed_flops < 0.5 * memory.flops
    found, step = trained(dtr_config=jit.DTRConfig(eviction_threshold=whole.bytes - 1))
    assert found == bits and step.stats()[0].memory.bytes < whole.bytes
    step = trace(step_of(network()), dtr_config=jit.DTRConfig(eviction_threshold=1))
    assert step(batch((4, 3, 16, 16))).shape == () and step.stats()[0].memory.recomputed  # it is aimed for, and no error


@pytest.mark.parametrize("bad", ["much", "400 M B", "4 kbytes", "-3", -3, 1.5, True, "4 IB"])
def test_budgets_that_are_none(bad):
    with pytest.raises(ValueError, match="memory_budget=.* is no size; help: a number of bytes"):
        trace(abs, memory_budget=bad)


def test_budgets_as_texts():
    for text, n in {"400MB": 400_000_000, "4 kib": 4096, "1.5GiB": 3 << 29, "2G": 2 * 10**9, "17": 17, "17 B": 17, "17 bytes": 17}.items():
        assert trace(abs, memory_budget=text).budget == Budget(n)


def test_options_that_do_not_fit():
    with pytest.raises(ArgumentError, match="an open extent is none"):
        trace(abs, memory_budget=5, dynamic_axes={0: "n"})
    with pytest.raises(ArgumentError, match="memory_budget and dtr_config are given"):
        trace(abs, memory_budget=5, dtr_config=jit.DTRConfig(eviction_threshold=5))
    with pytest.raises(ArgumentError, match="is no SublinearMemoryConfig"):
        trace(abs, sublinear_memory_config=3)


def test_each_shape_is_planned_by_itself():
    f = trace(lambda x: F.sum(F.exp(x)), memory_budget="1MB")
    for n in (3, 4, 5):
        assert f(F.ones((n,))).numpy().tobytes() == F.sum(F.exp(F.ones((n,)))).numpy().tobytes()
    assert [s.extents for s in f.stats()] == [{}] * 3
    assert repr(f).startswith("<trace of <lambda>(memory_budget='1MB')")
