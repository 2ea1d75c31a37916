"""Python side effects that a trace would lose: which kept values are warned of, with what words, and which are not."""

import gc
import re
import sys
import warnings

import numpy as np
import pytest

from tengen import Parameter, Tensor, random, trace
from tengen import functional as F
from tengen import module as M
from tengen.autodiff import GradManager
from tengen.base.errors import TraceError, TraceWarning
from tengen.optimizer import Adam

pytestmark = pytest.mark.usefixtures("collector_of_this_file")

X = np.linspace(-1, 1, 12, dtype="float32").reshape(4, 3)
GLOBAL = None


class Box:
    pass


class Slots:
    __slots__ = ("h",)


def told(function, *args):
    """What recording it warns of: (message, line)."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        trace(function)(Tensor(X), *args)
    assert all(w.category is TraceWarning for w in found)
    return [(str(w.message), w.lineno) for w in found]


def test_the_words():
    kept = []

    def f(x):
        kept.append(F.relu(x))
        return x + 1

    line = f.__code__.co_firstlineno + 1
    [(message, at)] = told(f)
    assert at == line
    where = re.escape(f"{__file__}:{line}")
    assert re.fullmatch(
        rf"the trace kept the result of relu \(f32\[4,3\], made at {where}\) outside of it; "
        "runs of the trace will not update it; help: return it",
        message,
    )


def in_a_list(kept):
    return lambda x: kept.append(x * 2)


def in_nested_holders(kept):
    return lambda x: kept.append({"a": ({1: x * 2},)})


def as_an_attribute(kept):
    box = Box()
    kept.append(box)
    return lambda x: setattr(box, "h", x * 2)


def as_a_slot(kept):
    box = Slots()
    kept.append(box)
    return lambda x: setattr(box, "h", x * 2)


def of_a_module(kept):
    net = M.Linear(3, 2)
    kept.append(net)
    return lambda x: setattr(net, "last", x * 2)


def in_a_cell(kept):
    h = None

    def f(x):
        nonlocal h
        h = x * 2

    kept.append(f)
    return f


def in_a_closure_that_lives(kept):
    def f(x):
        h = x * 2
        kept.append(lambda: h)

    return f


def in_a_global(kept):
    def f(x):
        global GLOBAL
        GLOBAL = x * 2

    return f


def in_an_object_of_the_result(kept):
    def f(x):
        box = Box()
        box.h = x * 2
        return box

    return f


@pytest.mark.parametrize("make", [
    in_a_list, in_nested_holders, as_an_attribute, as_a_slot, of_a_module, in_a_cell, in_a_closure_that_lives, in_a_global,
    in_an_object_of_the_result,
])  # fmt: skip
def test_what_is_kept(make):
    global GLOBAL
    kept: list = []
    if make is in_a_global:  # `conftest.py` hides this module's dict, as it was before the first test, from the collector
        gc.unfreeze()
    found = told(make(kept))
    GLOBAL = None
    if make is in_a_global:
        gc.freeze()
    assert [m.partition(" (")[0] for m, _ in found] == ["the trace kept the result of mul"]


def test_once_for_each_place():
    kept = []

    def f(x):
        for i in range(3):
            kept.append(x * i)
        kept.append(x.sum())
        return x

    assert [m.split(" (")[0].split()[-1] for m, _ in told(f)] == ["mul", "sum"]


def test_an_argument_and_a_constant():
    box = Box()

    def f(x):
        box.x, box.c = x, Tensor(2.0)
        return x + 1

    assert sorted(m.split(" outside")[0] for m, _ in told(f)) == [
        "the trace kept the value of arg0 (f32[4,3])",
        "the trace kept the value of c.0 (f32[])",
    ]


def test_every_recording_tells_and_a_run_does_not():
    kept = []
    f = trace(lambda x: kept.append(x * 2))
    for n in (2, 3):
        with pytest.warns(TraceWarning):
            f(Tensor([1.0] * n))
        f(Tensor([1.0] * n))  # warnings are errors here


def test_as_an_error_nothing_is_recorded():
    kept = []
    f = trace(lambda x: kept.append(x * 2))
    for _ in range(2):
        with pytest.raises(TraceWarning):
            f(Tensor([1.0]))


def test_what_dies_with_the_call():
    def f(x):
        h = F.relu(x)
        ring = [h, lambda: h]
        ring.append(ring)
        return x + 1

    was = gc.isenabled()
    gc.disable()
    try:
        assert told(f) == []
    finally:
        gc.enable() if was else None


def test_an_exception_keeps_frames():
    kept = []

    def f(x):
        h = F.relu(x)
        box, several = Box(), [h]
        box.h = several
        try:
            raise ValueError("no")
        except ValueError as e:
            kept.append(e)
        return x + 1

    assert told(f) == []
    assert isinstance(kept[0].__traceback__.tb_frame.f_locals["h"], Tensor)


def test_a_generator_that_waits():
    kept = []

    def values(x):
        h = F.relu(x)
        yield h
        yield h

    def f(x):
        kept.append(values(x))
        return next(kept[0]) + 1

    assert told(f) == []


def test_a_frame_that_is_kept():
    seen = []

    def f(x):
        h = F.relu(x)
        seen.append(sys._getframe())
        return h + 1

    assert told(f) == []
    assert isinstance(seen[0].f_locals["h"], Tensor)


def test_a_training_step():
    random.seed(1)
    net = M.Sequential(M.Linear(3, 4), M.BatchNorm1d(4), M.Dropout(0.5), M.Linear(4, 2))
    extra = Parameter(np.ones(2, "float32"))
    gm = GradManager().attach([*net.parameters(), extra])
    opt = Adam([*net.parameters(), extra], lr=0.1)
    norms = []

    def step(x, y):
        with gm:
            loss = F.loss.cross_entropy(net(x) * extra, y)
            gm.backward(loss)
        norms.append(net[0].weight.grad.shape)
        opt.step()
        return loss, net[0].weight.grad

    assert told(step, Tensor(np.zeros(4, "int32"))) == []


def test_a_manager_that_records_on():
    gm = GradManager()

    def f(x):
        gm.attach(x)
        with gm:
            y = (F.exp(x) * F.softmax(x)).sum()
            gm.backward(y)
        return x.grad

    assert told(f) == []


def test_an_error_is_not_drowned():
    kept = []

    def f(x):
        kept.append(x * 2)
        return float(x.sum())

    with pytest.raises(TraceError, match="inside a trace"):
        trace(f, symbolic=True)(Tensor(X))
