"""Worker processes compile what this process would, and whatever becomes of one of them, an answer comes and nothing is left."""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from tengen.codegen.targets import Target
from tengen.runtime import compile as compiler
from tengen.runtime import llvm, workers

HOST = Target.host()
TEXT = "define i64 @f(i64 %x) {\n  %y = mul i64 %x, 3\n  ret i64 %y\n}\n"


@pytest.fixture
def pool():
    made = workers.Pool("test")
    yield made
    made.close()
    workers._pools.remove(made)


def answer(pool, text=TEXT, level=llvm.GOOD):
    """The answer to a job."""
    found = []
    pool.submit(workers.Job(text, HOST, level, found.append))
    assert pool.wait(60)
    return found[0]


def gone(pid, within=10.0):
    """Whether a process ends in so many seconds."""
    until = time.monotonic() + within
    while time.monotonic() < until:
        try:
            with open(f"/proc/{pid}/stat") as f:
                if f.read().rpartition(")")[2].split()[0] == "Z":  # only its parent is to take notice
                    return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.02)
    return False


@pytest.mark.parametrize("level", [llvm.QUICK, llvm.GOOD, llvm.PIPELINE])
def test_the_object_is_the_one_that_this_process_makes(pool, level):
    assert answer(pool, level=level).data == compiler.compile_object(TEXT, HOST, level)
    assert answer(pool, level=level).data and pool.started == 1


def test_jobs_are_shared_by_several_workers(pool, monkeypatch):
    monkeypatch.setattr(workers.config, "threads", 3)
    found = {}
    for i in range(9):
        pool.submit(workers.Job(TEXT.replace("3", str(i)), HOST, llvm.QUICK, lambda a, i=i: found.update({i: a.data})))
    assert pool.wait(60) and pool.pending == 0
    assert sorted(found) == list(range(9)) and None not in found.values() and 1 <= pool.started <= 2


def test_one_that_is_killed_is_replaced(pool):
    first = answer(pool).data
    (pid,) = pool.pids()
    os.kill(pid, signal.SIGKILL)
    assert answer(pool).data == first and pool.started == 2 and gone(pid)


def test_one_that_hangs_is_ended(pool, monkeypatch):
    first = answer(pool).data
    (pid,) = pool.pids()
    os.kill(pid, signal.SIGSTOP)
    monkeypatch.setattr(workers, "PATIENCE_S", 0.5)
    start = pool._new_worker

    def start_patiently():
        monkeypatch.setattr(workers, "PATIENCE_S", 60)
        return start()

    monkeypatch.setattr(pool, "_new_worker", start_patiently)
    assert answer(pool, f"; {'x' * 300_000}\n{TEXT}").data == first  # more than a pipe holds
    assert pool.started == 2 and gone(pid)


@pytest.mark.parametrize(
    "program", ["import time; time.sleep(60)", "raise SystemExit(3)", "import os; os.kill(os.getpid(), 9)", "print('x' * 99)"]
)
def test_a_module_that_ends_every_worker_is_given_up(program, pool, monkeypatch, tmp_path):
    (tmp_path / "llvm.py").write_text(program)
    monkeypatch.setattr(workers.llvm, "__file__", str(tmp_path / "llvm.py"))
    monkeypatch.setattr(workers, "PATIENCE_S", 0.3)
    found = answer(pool)
    assert found.data is None and not found.alone and "2 times" in found.why and pool.started == 2


def test_what_llvm_refuses_is_said(pool):
    found = answer(pool, TEXT.replace("%y\n}", "%z\n}"))
    assert found.data is None and not found.alone and "use of undefined value '%z'" in found.why
    assert answer(pool).data and pool.started == 1


@pytest.mark.parametrize("executable", ["/nowhere/python3", "/usr/bin/editor", "", None])
def test_a_process_that_knows_no_interpreter(executable, pool, monkeypatch):
    monkeypatch.setattr(sys, "executable", executable)
    found = answer(pool)
    assert found.data is None and found.alone and pool.started == 0


def test_a_limit_of_processes(pool, monkeypatch):
    def fail(*args, **options):
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(subprocess, "Popen", fail)
    found = answer(pool)
    assert found.data is None and found.alone and "temporarily unavailable" in found.why


def test_a_limit_of_threads(pool, monkeypatch):
    def fail(self):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as m:
        m.setattr(threading.Thread, "start", fail)
        found = answer(pool)
    assert found.data is None and found.alone and pool.pending == 0
    assert answer(pool).data


def test_they_end_without_work(pool, monkeypatch):
    monkeypatch.setattr(workers, "IDLE_S", 0.1)
    answer(pool)
    threads = list(pool._threads)
    pids = pool.pids()
    for t in threads:
        t.join(10)
    assert not pool.pids() and not pool._threads and all(map(gone, pids))
    assert answer(pool).data and pool.started == 2


def test_a_defect_in_what_takes_the_answer_is_shown_and_stops_nothing(pool, monkeypatch):
    shown = []
    monkeypatch.setattr(threading, "excepthook", shown.append)
    pool.submit(workers.Job(TEXT, HOST, llvm.QUICK, lambda a: 1 / 0))
    assert answer(pool).data and [s.exc_type for s in shown] == [ZeroDivisionError]


def test_who_waits_may_do_a_job(monkeypatch):
    """One that no worker has begun with; if he is interrupted it waits again. Of those in work he waits for the answer."""
    pool, told = workers.Pool("test", delay_s=60), []
    try:
        mine, other = (workers.Job(TEXT, HOST, llvm.QUICK, told.append) for _ in range(2))
        pool.submit(other, mine)
        assert pool.claim({mine: 1}) is mine and pool.pending == 2
        with pytest.raises(KeyboardInterrupt), pool.released(mine):
            raise KeyboardInterrupt
        assert pool.claim([mine]) is mine
        with pool.released(mine):
            pass
        assert pool.claim([mine]) is None and pool.pending == 1 and not told and not pool.pids()
        waiting = threading.Thread(target=pool.wait)
        waiting.start()
        assert pool.claim([other]) in (None, other)
        waiting.join(0.1)
    finally:
        pool.close()
        workers._pools.remove(pool)


def test_what_somebody_waits_for_goes_first():
    pool = workers.Pool("test", delay_s=60)
    try:
        a, b, c, d = jobs = [workers.Job(TEXT, HOST, llvm.QUICK, lambda answer: None) for _ in range(4)]
        pool.submit(*jobs)
        pool.prefer({d: 0, b: 1})
        assert [pool.claim(jobs) for _ in jobs] == [b, d, a, c]
    finally:
        pool.close()
        workers._pools.remove(pool)


def test_what_follows_an_answer_may_wait_for_other_answers(pool, monkeypatch):
    """Programs are made there, which takes locks that a thread may hold that waits."""
    monkeypatch.setattr(workers.config, "threads", 3)
    second, found = threading.Event(), []
    pool.submit(workers.Job(TEXT, HOST, llvm.QUICK, lambda a: lambda: found.append(second.wait(60))))
    pool.submit(workers.Job(TEXT, HOST, llvm.QUICK, lambda a: second.set()))
    assert pool.wait(60) and found == [True]


SCRIPT = """
import os, signal, sys, time
from tengen.codegen.targets import Target
from tengen.runtime import llvm, workers
TEXT = "define i64 @f(i64 %x) {\\n" + "".join(f"  %y{i} = mul i64 %{f'y{i - 1}' if i else 'x'}, {i + 2}\\n" for i in range(20000))
TEXT += "  ret i64 %y19999\\n}\\n"  # takes LLVM seconds
pool = workers.Pool("test")
def begin(text=TEXT):
    pool.submit(workers.Job(text, Target.host(), llvm.PIPELINE, print))
    while not pool.pids():
        time.sleep(0.01)
    print(*pool.pids(), flush=True)
"""


def start(script):
    """(a script's process, which leads a group; the first worker that it names)."""
    p = subprocess.Popen(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", SCRIPT + script],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    return p, int(p.stdout.readline().split()[0])


def test_none_is_left_when_the_parent_is_killed():
    p, worker = start("begin(); time.sleep(60)")
    p.kill()
    p.communicate()
    assert gone(worker)


def test_the_end_of_the_process_waits_for_nothing_and_says_nothing():
    p, worker = start("begin()")
    out, err = p.communicate(timeout=20)
    assert (p.returncode, out, err) == (0, "", "") and gone(worker)


def test_ctrl_c_reaches_the_parent_alone():
    p, worker = start(
        """
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's job in the background ignores it, and so do its children
try:
    begin(TEXT[:1] + TEXT[1:])
    pool.wait()
except KeyboardInterrupt:
    print(pool.pending, os.getpgid(pool.pids()[0]) != os.getpgrp(), flush=True)
    raise SystemExit(5)
"""
    )
    os.killpg(p.pid, signal.SIGINT)
    out, err = p.communicate(timeout=20)
    assert (p.returncode, out, err) == (5, "1 True\n", "") and gone(worker)


def test_a_forked_child_has_its_own():
    p, worker = start(
        """
SHORT = "define void @g() {\\n  ret void\\n}\\n"
told = lambda who: workers.Job(SHORT, Target.host(), llvm.QUICK, lambda a: print(who, len(a.data or b""), flush=True))
begin(SHORT)
pool.wait()
mine = pool.pids()
child = os.fork()
if not child:
    inherited = [f for f in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{f}") and "pipe" in os.readlink(f"/proc/self/fd/{f}")]
    assert pool.pids() == [] and len(inherited) <= 2, inherited
    pool.submit(told("child"))
    assert pool.wait(60) and not set(pool.pids()) & set(mine)
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0 and pool.pids() == mine
pool.submit(told("parent"))
assert pool.wait(60) and pool.started == 1
"""
    )
    out, err = p.communicate(timeout=60)
    lines = [line.split() for line in out.splitlines() if line.split()[0] in ("child", "parent")]
    assert p.returncode == 0 and err == "" and [who for who, n in lines if int(n)] == ["child", "parent"] and gone(worker)
