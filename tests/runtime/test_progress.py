"""The line about compiling: after a second, on a terminal, gone when done; never in a pipe."""

import io
import os
import subprocess
import sys
import time

import pytest

from tengen.base.config import config
from tengen.runtime import progress as module
from tengen.runtime.progress import ERASE, Progress

KERNELS = "declare void @f()\ndefine void @conv(ptr %a) {\n}\n\ndefine dso_local void @relu(ptr %a) {\n}\n"


class Terminal(io.StringIO):
    def isatty(self):
        return True


def ended(p):
    """Waits until the watching thread has nothing to show."""
    for _ in range(500):
        if p._thread is None:
            return True
        time.sleep(0.01)
    return False


def test_the_first_second_shows_nothing_and_the_next_what_is_compiled(monkeypatch):
    now = [0.0]
    p = Progress(Terminal(), clock=lambda: now[0])
    with p.compiling(KERNELS):
        assert p.line() == ""
        now[0] = 2.6
        assert p.line() == "tengen: compiling conv, 0 of 2 kernels done, 3 s"
        with p.compiling("define void @sum() {\n}\n"):
            assert p.line() == "tengen: compiling sum, 0 of 3 kernels done, 3 s"
        now[0] = 4.0
        assert p.line() == "tengen: compiling sum, 1 of 3 kernels done, 4 s"
    assert p.line() == ""
    now[0] = 4.5  # soon after: the same go
    with p.compiling(KERNELS):
        assert p.line() == "tengen: compiling conv, 3 of 5 kernels done, 4 s"
    now[0] = 10.0  # much later: another one
    with p.compiling(KERNELS):
        assert p.line() == ""


def test_a_thread_writes_it_and_what_is_shown_is_erased(monkeypatch):
    monkeypatch.setattr(module, "AFTER_S", 0.02)
    monkeypatch.setattr(module, "EVERY_S", 0.01)
    monkeypatch.setattr(module, "REST_S", 0.05)
    out = Terminal()
    p = Progress(out)
    with pytest.raises(RuntimeError), p.compiling(KERNELS):
        for _ in range(500):
            if "compiling conv" in out.getvalue():
                break
            time.sleep(0.01)
        raise RuntimeError
    text = out.getvalue()
    assert text.startswith(ERASE + "tengen: compiling conv, 0 of 2 kernels done") and text.endswith(ERASE)
    assert ended(p)
    with p.compiling(KERNELS):  # a thread anew
        assert p._thread is not None
    assert ended(p)


@pytest.mark.parametrize("stream, on", [(io.StringIO(), True), (Terminal(), False)])
def test_nothing_in_a_pipe_or_when_it_is_not_wanted(stream, on):
    with config.scope(progress=on):
        p = Progress(stream)
        with p.compiling(KERNELS):
            assert p._thread is None
    assert stream.getvalue() == ""


def test_what_is_compiled_in_the_background_is_counted():
    now = [0.0]
    p = Progress(Terminal(), clock=lambda: now[0])
    with p.compiling(KERNELS):
        now[0] = 2.0
        alone = p.line()
        p.elsewhere = lambda: 5
        assert p.line() == f"{alone}; 5 in background"


def test_a_line_fits_the_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "30")
    now = [0.0]
    p = Progress(Terminal(), clock=lambda: now[0])
    with p.compiling(KERNELS.replace("@conv", "@" + "c" * 100)):
        now[0] = 2.0
        assert p.line() == "tengen: compiling , 0 of 2 ke"
        monkeypatch.setenv("COLUMNS", "60")  # the name is cut, and no number
        assert p.line() == "tengen: compiling " + "c" * 15 + ", 0 of 2 kernels done, 2 s"


def test_parts_of_a_module_are_counted_when_they_are_there():
    now = [0.0]
    p = Progress(Terminal(), clock=lambda: now[0])
    with p.compiling(KERNELS) as part_done:
        now[0] = 2.0
        part_done("define void @conv(ptr %a) {\n}\n")
        assert p.line() == "tengen: compiling conv, 1 of 2 kernels done, 2 s"
        part_done(KERNELS)  # a part that two threads have made
        assert p.line() == "tengen: compiling conv, 2 of 2 kernels done, 2 s"
    with p.compiling(KERNELS):
        assert p.line() == "tengen: compiling conv, 2 of 4 kernels done, 2 s"


def test_who_waits_for_a_module_in_parts_hears_of_each(monkeypatch):
    from tengen.runtime import cache, llvm, parallel_compile

    monkeypatch.setattr(parallel_compile, "PART", {llvm.QUICK: 40, llvm.GOOD: 40})
    host = parallel_compile.Target.host()
    functions = "".join(f"define void @{name}(ptr %a, ptr %b, i64 %c, i64 %d) {{\n  ret void\n}}\n" for name in ("run", "one", "two"))
    heard = []
    build = parallel_compile.Build(f"{host.head}\n{functions}", host, llvm.QUICK, cache, begun=True)
    build.finish(heard.append)
    assert sorted(name for part in heard for name in module._NAME.findall(part)) == ["one", "run", "two"]


def test_a_forked_child_does_not_wait_for_its_parents_thread():
    p = Progress(Terminal())
    with p.compiling(KERNELS), p._lock:  # as the thread has it while it writes
        p.forget()
        with p.compiling(KERNELS):
            assert p._thread is not None
    code = (
        "import os\nfrom tengen.runtime.progress import progress\nprogress._lock.acquire()\npid = os.fork()\n"
        "if not pid:\n    os._exit(0 if progress._lock.acquire(timeout=5) else 1)\nprogress._lock.release()\n"
        "assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0"
    )
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_a_closed_stream_is_no_error():
    out = Terminal()
    p = Progress(out)
    out.close()
    with p.compiling(KERNELS):
        pass
    p.close()


def test_a_program_that_compiles_into_a_pipe_says_nothing(tmp_path):
    code = "import numpy as np, tengen; print((tengen.Tensor(np.ones(3)) * 2).tolist())"
    env = {**os.environ, "TENGEN_CACHE_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env)
    assert done.returncode == 0 and done.stderr == "" and done.stdout == "[2.0, 2.0, 2.0]\n"
