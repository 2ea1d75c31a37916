"""Answers of the interpreter that are kept: they are those of a run, and whatever may change them has them computed anew."""

import numpy as np
import pytest
import remembered

from tengen.base.config import config
from tengen.base.dtype import float32
from tengen.base.errors import IndexOutOfRange
from tengen.codegen.targets import Target
from tengen.kernels.lowering import Lowering
from tengen.kernels.steps import Launch
from tengen.loops.interp import interpret
from tengen.loops.text import parse_kernel

KERNEL = """\
kernel scale(in x: f32, out y: f32, int n):
    each piece of n:
        load v: f32 = x[piece]
        store y[piece] = v * 2.0f32
"""
EXTERN = """\
kernel called(in x: f32, out y: f32, int n):
    each piece of 1:
        extern code = f(x[0], y[0]) () ()
"""


@pytest.fixture(autouse=True)
def a_cache_of_its_own(tmp_path):
    folder = tmp_path / "cache"
    with config.scope(cache_dir=str(folder)):
        yield


def ran(text=KERNEL, x=(1.0, 2.0, np.nan), n=3, more=()):
    """What the output holds after a run, and whether it was interpreted."""
    kernel, done = parse_kernel(text), []
    lo = Lowering(Target.host())
    lo.steps, lo.ints = [Launch(kernel, ("x", "y"))], list(kernel.ints)
    memory = {"x": np.array(x, np.float32), "y": np.full(3, 7, np.float32)}

    def compute():
        done.append(True)
        interpret(kernel, list(memory.values()), [n])
        return "a word"

    assert remembered.run(lo, memory, (n, *more), compute) == "a word"
    return memory["y"].tobytes(), bool(done)


def test_the_second_time_it_is_not_interpreted():
    want = np.array([2.0, 4.0, np.nan], "f4").tobytes()
    assert [ran() for _ in range(3)] == [(want, True), (want, False), (want, False)]
    assert ran(n=2) == (np.array([2.0, 4.0, 7.0], "f4").tobytes(), True)
    assert ran() == (want, False)


def test_what_may_change_the_answer_is_in_the_key():
    ran()
    for changed in (
        {"text": KERNEL.replace("2.0f32", "3.0f32")}, {"text": KERNEL.replace("v * 2", "v - v * 2")},
        {"text": KERNEL.replace("x[piece]", "x[0]")},
        {"x": (1.0, 2.0, 3.0)}, {"x": (-1.0, 2.0, np.nan)}, {"n": 1}, {"more": (True,)}, {"more": (1,)}, {"more": ("1",)},
    ):  # fmt: skip
        assert ran(**changed)[1], changed
        assert not ran(**changed)[1], changed


def test_another_interpreter_has_other_answers(tmp_path):
    files = [tmp_path / name for name in ("interp.py", "exact.py")]
    for f in files:
        f.write_text("one = 1\n")
    of = lambda *some: remembered.interpreter.__wrapped__(some)
    first = of(*files)
    assert of(*files) == first and np.__version__ in first
    files[1].write_text("one = 2\n")
    assert of(*files) != first and of(files[0]) != first
    names = {f"{f.parent.name}/{f.name}" for f in remembered.SOURCES}
    assert {"loops/interp.py", "loops/operations.py", "loops/exact.py", "base/dtype.py", "kernels/launching.py"} <= names


def test_errors_are_raised_each_time():
    for _ in range(2):
        with pytest.raises(IndexOutOfRange, match="index 3 is outside"):
            ran(n=4)


def test_what_no_key_says_is_interpreted(monkeypatch):
    x = np.zeros(6, np.float32)
    kernel = parse_kernel(KERNEL)
    lo = Lowering(Target.host())
    lo.steps, lo.ints = [Launch(kernel, ("x", "y"))], list(kernel.ints)
    key = lambda **memory: remembered._key(lo, memory, 3)
    assert key(x=x[:3], y=x[3:]) and key(x=x[:3], y=x[3:]) != key(y=x[3:], x=x[:3])
    assert key(x=x[:4], y=x[3:]) is None and key(x=x, y=x) is None  # one is written where the other is read
    assert key(x=x[::2], y=x[:0]) is None
    assert remembered._key(lo, {object(): x}, 3) is None and remembered._key(lo, {"x": x}, float32.numpy) is None
    lo.steps = [Launch(parse_kernel(EXTERN), ("x", "y"))]
    assert key(x=x[:3], y=x[3:]) is None
    ran()
    monkeypatch.setenv("INTERPRET_ANEW", "1")
    assert ran()[1]
