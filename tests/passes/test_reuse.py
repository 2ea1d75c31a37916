"""What is launched again for arrays of the same extents and strides is what would have been launched anew: equal programs, as bytes."""

import numpy as np
import pytest

import tengen.functional as F
import tengen.module as M
from tengen import Tensor, trace
from tengen.autodiff import GradManager
from tengen.codegen.targets import Target
from tengen.compiler.arena import Temporaries
from tengen.compiler.building import build
from tengen.compiler.driver import evaluate
from tengen.kernels.lowering import Lowering
from tengen.kernels.steps import leaves
from tengen.ops.define import REGISTRY
from tengen.optimizer import SGD
from tengen.passes.lower import lower
from tengen.passes.pipeline import optimize

R = np.random.default_rng(0)
lstm = REGISTRY["lstm"]


def data(*shape):
    return Tensor(R.uniform(-1, 1, shape).astype(np.float32))


def blocks(n, x, w):
    """The same block again and again; the weight is packed once."""
    for _ in range(n):
        x = F.relu(F.matmul(x, w)) + x
    return x


def pairs(x, y):
    """Operands that are one array, or two."""
    return (
        F.matmul(x, y),
        F.matmul(x, x),
        F.matmul(y, y),
        F.matmul(y, x),
        F.softmax(x + x) + F.softmax(x + y) + F.softmax(y + y),
    )


def numbers(*xs):
    """Kernels that differ in a number alone."""
    return [F.exp(x * k) for x, k in zip(xs, (1.0, 2.0, 0.0, -0.0, float("nan"), 2.0))]


def layers(p, w, h):
    """Equal loops of the program."""
    a = lstm(p * 2.0, w, h, h)[0]
    b = lstm(p * 3.0 + a.sum(), w, h, h)[0]
    return a, b


def over(x):
    """Results over an operand, or not."""
    put, i, v = REGISTRY["index_put"], Tensor(np.array([1, 3, 1])), Tensor(np.ones((3, 64), np.float32))
    one, two, three = x * 2.0, x * 3.0, x * 4.0
    return put([i], one, v, (0,), 0, "add"), put([i], two, v, (0,), 0, "add") + two, put([i], three, v, (0,), 0, "add")


def parts(run):
    """The texts of a recorded function's program, and what else was decided while it was lowered."""
    graph = optimize(run.graph, evaluate)
    lo, outs = lower(graph, Target.named("x86-64-v3"), _ints(run))
    choices = {c.problem_key: (str(c.taken), sorted(c.nodes)) for c in lo.choices.values()}
    launched = [(x.launch.ids, x.launch.where, x.launch.node, [s.invariant for s in x.loops]) for x in leaves(lo.steps)]
    facts = lo.temps, choices, launched, outs
    ids = [*(("in", i) for i in range(len(graph.inputs))), *(("state", n) for n in graph.states)]
    ids += [("const", n) for n in graph.constants]
    temps = Temporaries.of(lo)
    return facts, temps.lives, build(lo, ids, [("out", i) for i in range(len(outs))], "p").text


def _ints(run):
    from tengen.passes.extents import open_extents

    return open_extents(run.graph)


def step():
    net = M.Sequential(*(M.Conv2d(8, 8, 3, padding=1) if i % 2 else M.BatchNorm2d(8) for i in range(6)))
    manager, update = GradManager().attach(net.parameters()), SGD(net.parameters(), lr=0.1, momentum=0.9)

    def train(x):
        with manager:
            loss = (net(x) ** 2.0).mean()
            manager.backward(loss)
        update.step()
        return loss

    return train


@pytest.mark.parametrize(
    ("make", "args", "how"),
    [
        (lambda: lambda x, w: blocks(4, x, w), [(64, 64), (64, 64)], {}),
        (lambda: lambda x, w: blocks(4, x, w), [(64, 64), (64, 64)], {"dynamic_axes": {"x": {0: "batch"}}}),
        (lambda: pairs, [(48, 48), (48, 48)], {}),
        (lambda: numbers, [(17, 5)] * 6, {}),
        (lambda: layers, [(3, 4, 64), (64, 16), (4, 16)], {}),
        (lambda: over, [(5, 64)], {}),
        (step, [(4, 8, 6, 6)], {}),
    ],
    ids=["blocks", "open", "pairs", "numbers", "layers", "over", "step"],
)
def test_the_same_program_as_without(make, args, how, monkeypatch):
    run = trace(make(), **how)
    run(*(data(*shape) for shape in args))
    with monkeypatch.context() as m:
        m.setattr(Lowering, "reuse", lambda lo, problem, arrays, run: run(lo))
        anew = parts(run)
    again, old = [], Lowering._launch_pattern
    monkeypatch.setattr(Lowering, "_launch_pattern", lambda lo, p, ids: (again.append(p), old(lo, p, ids)))
    assert parts(run) == anew
    assert again, "nothing was reused"
