"""A `while_loop` that never ends hears Ctrl-C: traced and called eagerly, cheap iterations and dear ones, in a loop around it; what a
signal's handler raises is what is raised; handlers that raise nothing let it go on."""

import os
import signal
import subprocess
import sys

import pytest
import which_code
from exhaustive import but

from tengen import Tensor, trace
from tengen import functional as F
from tengen.base.config import config
from tengen.deploy import compile_model
from tengen.deploy.verify import verify

CHILD = """
import os, signal, sys, threading, time
import numpy as np
from tengen import Tensor, trace, functional as F

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's job in the background ignores it, and so do its children

def endless(x):
    return F.while_loop(lambda a: a.sum() >= 0, lambda a: F.abs(a), x)

def twice(x):
    return F.scan(lambda c, _: (F.while_loop(lambda a: a.sum() >= 0, lambda a: F.abs(a), c), None), x, x)[0]

small, large = Tensor([1.0, 2.0]), Tensor(np.ones((1000, 1000), "float32"))
finite = trace(lambda x: F.while_loop(lambda a: a.sum() < 100, lambda a: a + 1, x))
wanted = finite(small).tolist()
state = Tensor([1.0, 2.0])

def changes(x):
    state[:] = F.while_loop(lambda a: a.sum() >= 0, lambda a: F.abs(a) + 1, state + x)
    return state.sum()

def inner_endless(x):  # the loop around is quick, until a + 1 is a
    inner = lambda a: F.while_loop(lambda b: b.sum() <= a.sum(), lambda b: b + 1, a)
    return F.while_loop(lambda a: a.sum() >= 0, inner, x * 0 + (2.0**24 - 200000))

calls, seen = [trace(endless), endless, trace(twice), trace(endless), trace(changes), trace(inner_endless)], []

def interrupt(times, which=signal.SIGINT):
    def later():
        for _ in range(times):
            time.sleep(0.4)
            os.kill(os.getpid(), which)
    threading.Thread(target=later, daemon=True).start()

def stopped(call, x, error=KeyboardInterrupt):
    start = time.monotonic()
    try:
        call(x)
    except error as e:
        return time.monotonic() - start < 60
    return False

for call, x in zip(calls, (small, small, small, large, small, small)):
    interrupt(1)
    seen.append(stopped(call, x))
    seen.append(finite(small).tolist() == wanted and small.tolist() == state.tolist() == [1.0, 2.0])

class Mine(Exception):
    pass

heard = []
def handler(number, frame):
    heard.append(number)
    if len(heard) == 3:
        raise Mine("the third one")
signal.signal(signal.SIGUSR1, handler)
interrupt(3, signal.SIGUSR1)
seen.append(stopped(calls[0], small, Mine) and len(heard) == 3)
print(seen)
"""


def test_an_endless_loop_hears_signals(tmp_path):
    env = {**os.environ, "TENGEN_CACHE_DIR": str(tmp_path / "cache")}
    (tmp_path / "cache").mkdir(mode=0o700)
    made = subprocess.run([sys.executable, "-c", CHILD], capture_output=True, text=True, timeout=100, env=env)
    assert made.stdout.strip() == str([True] * 13), (made.stdout, made.stderr)
    assert "Exception ignored" not in made.stderr


@but(every=2)
@pytest.mark.parametrize("tier", [which_code.QUICK, which_code.GOOD])
def test_a_program_that_was_kept_on_disk_hears_them_too(tier, tmp_path):
    """The second process reads the program, and does not make it."""
    text = CHILD.split("class Mine")[0].replace("calls, seen = [", "calls, seen = [trace(endless)], []; _ = [") + "print(seen)"
    env = {**os.environ, "TENGEN_CACHE_DIR": str(tmp_path / "cache"), which_code.VARIABLE: tier}
    (tmp_path / "cache").mkdir(mode=0o700)
    for _ in range(2):
        made = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=100, env=env)
        assert made.stdout.strip() == "[True, True]", (made.stdout, made.stderr)


def test_loops_that_end_ask_few_times_and_keep_their_values(monkeypatch):
    monkeypatch.setattr(config, "cache", False)  # a program from the cache has no text
    f = lambda x, n: F.while_loop(lambda i, a: i < n, lambda i, a: (i + 1, a * 0.5 + 1), Tensor(0), x)[1]
    run, x = trace(f), Tensor([1.0, -3.0])
    for n in (0, 1, 2, 5, 1000):
        wanted = x
        for _ in range(n):
            wanted = wanted * 0.5 + 1
        assert run(x, Tensor(n)).numpy().tobytes() == f(x, Tensor(n)).numpy().tobytes() == wanted.numpy().tobytes()
    text = run._last.run.program.text
    assert text.count("call i32 @tengen_stop") == 1
    assert "tengen_stop" not in trace(lambda x: F.scan(lambda c, v: (c + v, None), x[0], x)[0]).trace(x)._last.run.program.text


def test_an_artifact_asks_nobody(tmp_path):
    run = trace(lambda x: F.while_loop(lambda a: a.sum() < 100, lambda a: a * 2 + 1, x))
    run(Tensor([1.0, 2.0]))
    run.dump(tmp_path / "m.tgn")
    compile_model(tmp_path / "m.tgn", "x86-64-v3", tmp_path / "out")
    found = verify(tmp_path / "m.tgn", tmp_path / "out", inputs=[[Tensor([1.0, 2.0])]])
    assert found.status in ("equal", "skipped"), found


@pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="there are no signals of the user's")
def test_the_main_thread_hears_while_another_runs():
    heard = []
    old = signal.signal(signal.SIGUSR1, lambda *_: heard.append(1))
    try:
        run = trace(lambda x: F.while_loop(lambda a: a.sum() < 3e6, lambda a: a + 1, x))
        os.kill(os.getpid(), signal.SIGUSR1)
        run(Tensor([0.0]))
        assert heard == [1]
    finally:
        signal.signal(signal.SIGUSR1, old)
