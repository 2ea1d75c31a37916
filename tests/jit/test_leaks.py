"""Tensors that a traced function keeps outside of it. Where a program is asked for (symbolic=True) they are warned of, with what words, and
which are not; else the function is run in parts, and they have the values of eager calls."""

import gc
import re
import sys
import warnings
from types import ModuleType

import numpy as np
import pytest

from tengen import Parameter, Tensor, random, trace
from tengen import functional as F
from tengen import module as M
from tengen.autodiff import GradManager
from tengen.base.errors import TraceError, TraceWarning
from tengen.optimizer import Adam

X = np.linspace(-1, 1, 12, dtype="float32").reshape(4, 3)


class Box:
    pass


class Slots:
    __slots__ = ("h",)


def told(function, *args):
    """What recording it as one program warns of: (message, line)."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        trace(function, symbolic=True)(Tensor(X), *args)
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
    """Of a module that is imported now: the collector does not look at this one, which is older than the first test (`conftest.py`)."""
    module = sys.modules["module_of_test_leaks"] = ModuleType("module_of_test_leaks")
    exec(compile("def f(x):\n    global h\n    h = x * 2\n", __file__, "exec"), vars(module))
    return module.f


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
    kept: list = []
    found = told(make(kept))
    sys.modules.pop("module_of_test_leaks", None)
    assert [m.partition(" (")[0] for m, _ in found] == ["the trace kept the result of mul"]


def in_a_cache_that_grows(kept):
    box = Box()
    box.h = None

    def f(x):
        box.h = x if box.h is None else F.concat([box.h, x])
        return box.h.sum(0)

    kept.append(box)
    return f


def in_a_mean_that_moves(kept):
    net = M.Linear(3, 2)
    net.mean = Tensor(np.zeros(3, "float32"))
    kept.append(net)

    def f(x):
        net.mean = 0.9 * net.mean + 0.1 * x.mean(0)
        return x - net.mean

    return f


@pytest.mark.parametrize("make", [
    in_a_list, in_nested_holders, as_an_attribute, as_a_slot, of_a_module, in_a_closure_that_lives, in_an_object_of_the_result,
    in_a_cache_that_grows, in_a_mean_that_moves,
])  # fmt: skip
def test_by_default_what_is_kept_has_the_values_of_eager_calls(make):
    def run(traced):
        kept: list = []
        f, out = make(kept), []
        f = trace(f) if traced else f
        for i in range(3):
            y = f(Tensor(X + i))
            out.append(y.h if isinstance(y, Box) else y)
        return [_told(x) for x in [*out, *kept]]

    assert run(True) == run(False)


def test_the_line_of_what_is_kept_is_told():
    seen = []

    @trace
    def f(x):
        y = x * 2
        seen.append(y + 1)
        return y

    f(Tensor(X))
    line = f.function.__code__.co_firstlineno + 3
    assert f.stats().effects == (f"{__file__}:{line}",)
    with pytest.raises(TraceError, match=f"would not repeat .*:{line}.*return what is kept"):
        _ = f.graph


def _told(x):
    if isinstance(x, Tensor):
        return x.tolist()
    if isinstance(x, Slots):
        return x.h.tolist()
    if isinstance(x, dict | tuple):
        return [_told(y) for y in (x.values() if isinstance(x, dict) else x)]
    if isinstance(x, M.Module):
        return _told(getattr(x, "last", None) if hasattr(x, "last") else x.mean)
    if callable(x):
        return x().tolist()
    return None if x is None else x.h.tolist()


def test_a_program_stays_one_where_nothing_is_kept():
    """Results, gradients, states written in place, and what dies with the call, are nothing that is kept."""
    net, seen = M.Sequential(M.Linear(3, 4), M.BatchNorm1d(4), M.Linear(4, 2)), []
    gm, opt = GradManager().attach(net.parameters()), Adam(net.parameters(), lr=0.1)

    @trace
    def step(x):
        with gm:
            ring = [h := net(x)]
            ring.append(ring)
            loss = (h * h).mean()
            gm.backward(loss)
        opt.step().clear_grad()
        seen.append(x.shape)
        return {"loss": loss, "h": [h]}

    for _ in range(3):
        step(Tensor(X))
    assert len(step.stats()) == 1 and not step.stats().parts and seen == [(4, 3)]
    forward = trace(net)
    with gm:
        gm.backward(forward(Tensor(X)).sum())
    assert len(forward.stats()) == 1 and not forward.stats().parts


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
    f = trace(lambda x: kept.append(x * 2), symbolic=True)
    for n in (2, 3):
        with pytest.warns(TraceWarning):
            f(Tensor([1.0] * n))
        f(Tensor([1.0] * n))  # warnings are errors here


def test_as_an_error_nothing_is_recorded():
    kept = []
    f = trace(lambda x: kept.append(x * 2), symbolic=True)
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
