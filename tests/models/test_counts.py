"""What whole networks are compiled to, counted: a pass or a strategy that gets worse shows here, whatever the machine.

Counted are launches in a run, those that only copy (layouts, halos), bytes that kernels read and write (what `tengen.profile`
shows), and the arena.
"""

import functools
import re
from collections import Counter
from itertools import product

import numpy as np
import pytest
from exhaustive import but

import tengen
import tengen.functional as F
from tengen import Tensor
from tengen.autodiff import GradManager
from tengen.codegen.targets import Target
from tengen.compiler.arena import Temporaries
from tengen.kernels.steps import every_leaf
from tengen.loops.cost import cost
from tengen.loops.lang import as_int
from tengen.optimizer import SGD
from tengen.passes.hoist import hoist
from tengen.passes.lower import lower
from tengen.passes.pipeline import optimize
from tengen.tensor.recorder import Recorder

TARGET = Target.named("x86-64-v4")


def inference(name, shape):
    net = tengen.models.create(name).eval()
    with Recorder(name, constants=True) as rec:
        return rec.finish([("y", net(rec.argument("x", Tensor(np.zeros(shape, np.float32)))))])


def training(name, shape):
    net = tengen.models.create(name).train()
    gm, opt = GradManager().attach(net.parameters()), SGD(net.parameters(), lr=0.1, momentum=0.9)
    x, label = Tensor(np.zeros(shape, np.float32)), Tensor(np.zeros(shape[0], np.int32))
    with Recorder(name) as rec:
        x, label = rec.argument("x", x), rec.argument("label", label)
        with gm:
            loss = F.loss.cross_entropy(net(x), label)
            gm.backward(loss)
        opt.step().clear_grad()
        return rec.finish([("loss", loss)])


def counted(graph):
    """(launches by kind, MB that kernels read and write, MB of the arena, MB prepared of constants) of a program for constant
    weights."""
    g = optimize(graph)
    lo, _ = lower(g, TARGET)
    _, prepared = hoist(lo, {("const", c.name): c.data.nbytes for c in g.constants.values()})
    known = functools.cache(cost)  # many launches have one kernel
    moved = sum(bytes_of(leaf, known) for leaf in every_leaf(lo.steps))
    made = sum(int(as_int(n)) * d.size for id, (d, n) in lo.temps.items() if id in prepared)
    for id in prepared:
        del lo.temps[id]
    kinds = Counter(re.sub(r"_\d+$", "", launch.kernel.name) for launch in lo.launches)
    temps = Temporaries.of(lo)
    return kinds, moved / 1e6, temps.place(temps.sizes)[1] / 1e6, made / 1e6


def bytes_of(leaf, cost):
    """What a launch reads and writes in all iterations of its loops."""
    counts = [range(as_int(loop.count)) for loop in leaf.loops]
    return sum(cost(leaf.launch.kernel, iterations).bytes for iterations in product(*counts))


IMAGE = (1, 3, 224, 224)
INFERENCE = {  # launches, those that convert a layout, those that only pad, MB moved, MB of the arena, MB prepared of constants
    "resnet18": (23, 1, 0, 81, 4.1, 54),
    "resnet50": (56, 1, 0, 233, 7.3, 110),
    "mobilenet_v2": (54, 1, 0, 70, 6.1, 14.1),
    "vit_tiny": (90, 1, 0, 76, 1.0, 22.7),
}


@but(these=["resnet18", "vit_tiny"])
@pytest.mark.parametrize("name", INFERENCE)
def test_inference(name):
    kinds, moved, arena, made = counted(inference(name, IMAGE))
    launches, layouts, pads, most_moved, most_arena, most_made = INFERENCE[name]
    assert sum(kinds.values()) <= launches
    assert kinds["channels_last"] + kinds["copy"] <= layouts and kinds["pad"] <= pads
    assert not any("pack" in k or "filter" in k for k in kinds)  # weights are prepared when the program is loaded
    assert moved <= most_moved and arena <= most_arena and made <= most_made


TRAINING = {"resnet18": ((2, 3, 224, 224), 463, 1155, 90), "mobilenet_v2": ((2, 3, 224, 224), 1081, 890, 116)}


@but(these=["resnet18"])
@pytest.mark.parametrize("name", TRAINING)
def test_training(name):
    shape, launches, most_moved, most_arena = TRAINING[name]
    kinds, moved, arena, _ = counted(training(name, shape))
    assert sum(kinds.values()) <= launches and moved <= most_moved and arena <= most_arena
    assert kinds["pad"] == kinds["fill"] == 0
    # A norm's activation and both its gradients are one pass each: nothing of it is stored but its result.
    assert kinds["sub"] == 0 and kinds["mul_add"] <= 2 * kinds["mean"]
