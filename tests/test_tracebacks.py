"""What a user sees of an error: in which layer it arose, and their own lines without Tengen's between them."""

import subprocess
import sys
import threading

import pytest

import tengen
from tengen import Tensor
from tengen import functional as F
from tengen import module as M
from tengen.base import tracebacks
from tengen.base.config import config
from tengen.base.errors import ShapeError

PROGRAM = """
from tengen import functional as F, module as M
class Block(M.Module):
    def __init__(self):
        self.layers = [M.Linear(4, 8), M.ReLU()]
        self.head = M.Sequential(M.Linear(8, 64), M.ReLU(), M.Linear(63, 32))
    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.head(x)  # the user's line
net = Block()
net(F.zeros((2, 4)))
"""


def ended(tmp_path, **environ):
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)
    import os

    done = subprocess.run([sys.executable, file], capture_output=True, text=True, env={**os.environ, **environ})
    assert done.returncode == 1
    return done.stderr


def test_a_program_shows_the_users_lines(tmp_path):
    text = ended(tmp_path)
    files = [line for line in text.splitlines() if line.startswith("  File ")]
    assert len(files) == 2 and all("program.py" in f for f in files) and "# the user's line" in text
    assert "in Block.head.2: Linear(in_features=63, out_features=32, bias=True)" in text
    assert "lines inside of tengen are not shown; TENGEN_TRACEBACK=full shows them" in text
    whole = ended(tmp_path, TENGEN_TRACEBACK="full")
    assert "eager.py" in whole and "not shown" not in whole and "def matmul(" in whole  # a generated call stands at its definition


def test_a_thread_shows_the_users_lines(capfd, monkeypatch):
    monkeypatch.setattr(threading, "excepthook", tracebacks._thread_ended)
    t = threading.Thread(target=lambda: F.matmul(F.zeros((2, 3)), F.zeros((2, 3))))
    t.start()
    t.join()
    text = capfd.readouterr().err
    assert "ShapeError" in text and "are not shown" in text and "run_slow" not in text


def test_errors_of_other_kinds_are_shown_whole():
    def wrong():
        raise KeyError("x")

    class Layer(M.Module):
        def forward(self, x):
            wrong()

    with pytest.raises(KeyError) as found:
        Layer()(1)
    assert tracebacks.shortened(found.value) == 0
    assert found.value.__notes__ == ["in Layer()"]


def test_the_layer_is_named_once_for_each_error():
    net = M.Sequential(M.ReLU(), M.Sequential(M.Linear(3, 2)))
    with pytest.raises(ShapeError) as found:
        net(F.zeros((2, 4)))
    assert found.value.__notes__ == ["in Sequential.1.0: Linear(in_features=3, out_features=2, bias=True)"]
    with config.scope(traceback="full"):
        assert tracebacks.shortened(found.value) == 0
    assert tracebacks.shortened(found.value) > 3

    class Outer(M.Module):
        def __init__(self):
            self.made = [lambda: M.Linear(3, 2)]

        def forward(self, x):
            return self.made[0]()(x)  # a layer that is none of its attributes

    with pytest.raises(ShapeError) as found:
        Outer()(F.zeros((2, 4)))
    assert found.value.__notes__ == ["in Outer.(Linear): Linear(in_features=3, out_features=2, bias=True)"]


def test_hooks_of_others_stay(monkeypatch):
    own = lambda *args: None
    monkeypatch.setattr(sys, "excepthook", own)
    monkeypatch.setattr(threading, "excepthook", own)
    tracebacks.install()
    assert sys.excepthook is own and threading.excepthook is own


def test_what_dir_shows():
    names = dir(tengen)
    assert {"Tensor", "trace", "functional", "module", "load"} <= {*names}
    assert all(hasattr(tengen, name) for name in names)
    assert not {"importlib", "sys", "methods", "TYPE_CHECKING", "tracebacks"} & {*names}


def test_html():
    x = Tensor([[0.0, -2.0], [float("nan"), 4.0]])
    html = x._repr_html_()
    assert html.count("<td") == 4 and "nan" in html and "f32[2,2]" in html and "<script" not in html
    assert F.zeros((100, 100))._repr_html_().count("<td") < 500
    assert "&lt;" in M.Sequential(type("A<b>", (M.Module,), {})())._repr_html_()
    net = M.Sequential(M.Linear(3, 2), M.Sequential(M.ReLU()))
    html = net._repr_html_()
    assert html.count("<details") == 2 and "8 parameters" in html and "Linear" in html
    assert "traced" in tengen.trace(lambda x: (kept.append(x._repr_html_()), x)[1], symbolic=True)(x).__class__.__name__ + kept[0]


kept: list[str] = []
