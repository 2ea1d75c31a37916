"""Sizes of loaded models and of traces with named axes that are called often: each gets a program of its own, in the background."""

import os
import subprocess
import sys

import numpy as np
import pytest

import tengen.functional as F
import tengen.module as M
from tengen import Tensor, load_graph, trace
from tengen.deploy import model as models
from tengen.runtime import native
from tengen.tensor import executable


def floats(*shape):
    return np.random.default_rng(sum(shape)).standard_normal(shape, np.float32)


def bits(x):
    return x.numpy().tobytes()


@pytest.fixture
def network(monkeypatch):
    """A network whose first run of a size is hot."""
    monkeypatch.setattr(executable, "HOT_RUNS", 0)
    return M.Sequential(M.Linear(72, 160), M.ReLU(), M.Linear(160, 48)).eval()


def loaded(net, path, x):
    trace(net, dynamic_axes={0: "batch"}, example_input=Tensor(x)).dump(path)
    return load_graph(path)


def test_a_model_makes_programs_for_hot_sizes_and_no_more_than_some(network, tmp_path, monkeypatch):
    monkeypatch.setattr(models, "MOST_HOT", 2)
    model = loaded(network, tmp_path / "m.tgn", floats(3, 72))
    for n in (5, 5, 5, 9, 9, 17, 17, 1, 1, 5, 0, 9):
        assert bits(model(floats(n, 72))) == bits(network(Tensor(floats(n, 72)))), n
    run = model._executable
    assert run.programs == 4 and set(run._alone) == {(5,), (9,), (0,)}, "the one of no elements is not asked for"


def test_the_programs_of_a_model_share_what_they_make_of_weights(network, tmp_path):
    model = loaded(network, tmp_path / "m.tgn", floats(3, 72))
    model(floats(64, 72)), model(floats(64, 72))
    opened, alone = model._executable._constants, model._executable._alone[64,]._constants
    known = {native.read(b, n): b for b, n in opened}
    alike = [(known[data], b) for b, n in alone if (data := native.read(b, n)) in known]
    assert alike and all(native.address(one) == native.address(other) for one, other in alike)
    assert bits(model(floats(64, 72))) == bits(network(Tensor(floats(64, 72))))


def test_a_model_with_states(monkeypatch, tmp_path):
    monkeypatch.setattr(executable, "HOT_RUNS", 0)

    class Count(M.Module):
        def __init__(self):
            super().__init__()
            self.total = Tensor(np.zeros(4, "float32"))

        def forward(self, x):
            self.total += x.sum(0)
            return x * self.total

    net = Count()
    model, mine = loaded(net, tmp_path / "m.tgn", floats(3, 4)), Count()
    mine.total = Tensor(model.states[next(iter(model.states))].numpy())
    for n in (2, 3, 2, 2, 5, 3):
        x = floats(n, 4)
        assert bits(model(x)) == bits(mine(Tensor(x)))
    assert model._executable.programs > 1


def test_traces_with_named_axes_do_so_too(network):
    run = trace(network, dynamic_axes={0: "batch"}, max_programs=3)
    for n in (5, 5, 9, 9, 17, 17, 1):
        assert bits(run(Tensor(floats(n, 72)))) == bits(network(Tensor(floats(n, 72)))), n
    assert run.stats().programs == 3
    one = trace(lambda x: F.softmax(x, 1), dynamic_axes={0: "batch"}, max_programs=1)
    for n in (5, 5, 9, 9):
        one(Tensor(floats(n, 72)))
    assert one.stats().programs == 1


@pytest.mark.parametrize("cache", ["1", "0"])
def test_nobody_waits_for_them(tmp_path, cache):
    """A call lowers and compiles nothing for its size: another thread lowers, other processes compile."""
    script = """
import sys, threading
import numpy as np
import tengen, tengen.module as M
from tengen import Tensor, load_graph, trace
from tengen.tensor import executable
x = np.ones((6, 40), "float32")
net = M.Sequential(M.Linear(40, 64), M.ReLU(), M.Linear(64, 64), M.ReLU()).eval()
trace(net, dynamic_axes={0: "n"}, example_input=Tensor(x)).dump(sys.argv[1])
model = load_graph(sys.argv[1])
first = model(x).numpy().tobytes()
tengen.jit.wait_for_compilation()
executable.HOT_RUNS, lowered, make = 0, [], executable.Executable._for
executable.Executable._for = lambda self, values: lowered.append(threading.get_ident()) or make(self, values)
y = np.concatenate([x, x])
seen = {model(y).numpy().tobytes() for _ in range(3)}
assert tengen.jit.wait_for_compilation()
assert lowered and threading.get_ident() not in lowered, lowered
assert model._executable.programs == 2 and (12,) in model._executable._alone
seen.add(model(y).numpy().tobytes())
assert len(seen) == 1 and seen.pop()[:len(first)] == first
print("done")
"""
    knobs = {"QUICK_COMPILE": "1", "CACHE": cache, "CACHE_DIR": str(tmp_path / "cache"), "FINISH": "0"}
    environ = {**os.environ, **{f"TENGEN_{k}": v for k, v in knobs.items()}}
    command = [sys.executable, "-c", script, str(tmp_path / "m.tgn")]
    made = subprocess.run(command, capture_output=True, text=True, env=environ, timeout=300)
    assert made.stdout == "done\n", made.stderr
