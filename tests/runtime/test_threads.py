"""The thread pool: every piece once, whoever runs it; asleep when idle; forks, several callers, a clean end."""

import os
import resource
import threading
import time

import numpy as np
import pytest
from exhaustive import but

from tengen.base import config as knobs
from tengen.base.config import config
from tengen.base.errors import ConfigError
from tengen.runtime import native
from tengen.runtime.threads import MAX_THREADS, threads_ir


def squares(programs, pieces):
    slots = np.full(max(pieces, 1), -1, np.int64)
    native.call(programs.address("squares"), [slots.ctypes.data], [pieces])
    return slots[:pieces]


def counts(programs, pieces, times):
    slots = np.zeros(pieces, np.int64)
    native.call(programs.address("counts"), [slots.ctypes.data], [pieces, times])
    return slots


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
def test_every_piece_once(programs, threads):
    native.set_threads(threads)
    assert config.threads == threads
    for pieces in (0, 1, 2, 3, 7, 64, 1000, 100_003):
        i = np.arange(pieces)
        np.testing.assert_array_equal(squares(programs, pieces), i * i + 1)


@pytest.mark.parametrize("threads", [2, 3, 8])
def test_thousands_of_tiny_calls(programs, threads):
    native.set_threads(threads)
    for pieces in (2, 5, 40):
        assert (counts(programs, pieces, 5000) == 5000).all()


def test_sleep_and_wake(programs):
    native.set_threads(3)
    for i in range(40):
        time.sleep(0.0003 * (i % 3))  # around the time after which a worker goes to sleep
        assert (counts(programs, 9, 3) == 3).all()


@pytest.mark.parametrize("rest", [0, 0.01])
def test_threads_do_run_at_once(programs, rest):
    """Two pieces wait for each other: they can only meet when a worker, awake or asleep before, takes one."""
    native.set_threads(2)
    for _ in range(5):
        time.sleep(rest)
        slots = np.zeros(4, np.int64)
        native.call(programs.address("meet"), [slots.ctypes.data], [2, 20_000_000])
        assert slots.tolist() == [1, 1, 1, 1]


def test_serial_plans_use_no_worker(programs):
    native.set_threads(2)
    slots = np.zeros(4, np.int64)
    native.call(programs.address("meet"), [slots.ctypes.data], [2, 1000], parallel=False)
    assert slots.tolist() == [1, 1, 0, 1]


def test_workers_start_when_needed_and_stop(programs):
    native.set_threads(1)
    before = len(os.listdir("/proc/self/task"))
    native.set_threads(5)
    assert len(os.listdir("/proc/self/task")) == before
    squares(programs, 1)
    assert len(os.listdir("/proc/self/task")) == before
    squares(programs, 10)
    assert len(os.listdir("/proc/self/task")) == before + 4
    native.set_threads(2)
    for _ in range(1000):  # joined threads leave the kernel's list a moment later
        if len(os.listdir("/proc/self/task")) == before:
            break
        time.sleep(0.001)
    squares(programs, 10)
    assert len(os.listdir("/proc/self/task")) == before + 1


def test_changing_the_number_often(programs):
    for i in range(60):
        native.set_threads(1 + i % 4)
        assert (counts(programs, 30, 3) == 3).all()


def test_refused_numbers():
    before = config.threads
    for n in (0, -1, 1.5, True, "many", None, MAX_THREADS + 1):
        with pytest.raises(ConfigError, match="threads"):
            native.set_threads(n)
    assert config.threads == before


def test_the_knob_is_the_number_of_threads(programs):
    """`config.threads = n` was kept, and programs went on with the number that they had."""
    with config.scope(threads=3):
        squares(programs, 100)
        three = len(os.listdir("/proc/self/task"))
        config.threads = 1
        squares(programs, 100)
        assert len(os.listdir("/proc/self/task")) == three - 2


def test_idle_threads_use_no_cpu(programs):
    native.set_threads(4)
    squares(programs, 100)
    time.sleep(0.05)
    before = resource.getrusage(resource.RUSAGE_SELF)
    time.sleep(0.3)
    after = resource.getrusage(resource.RUSAGE_SELF)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 0.02


@pytest.mark.parametrize("callers", [2, 4])
def test_python_threads_at_once(programs, callers):
    native.set_threads(3)
    wrong = []

    def work(seed):
        rng = np.random.default_rng(seed)
        for _ in range(150):
            pieces = int(rng.integers(1, 300))
            i = np.arange(pieces)
            if not (squares(programs, pieces) == i * i + 1).all() or not (counts(programs, pieces, 7) == 7).all():
                wrong.append(pieces)

    all_ = [threading.Thread(target=work, args=(s,)) for s in range(callers)]
    for t in all_:
        t.start()
    for _ in range(20):
        native.set_threads(2)
        native.set_threads(3)
    for t in all_:
        t.join()
    assert not wrong


def test_a_forked_child_has_its_own_pool(run_python):
    out = run_python("""
import warnings
warnings.filterwarnings("ignore", message=".*fork.*", category=DeprecationWarning)  # since Python 3.12, where there are threads
native.set_threads(3)
def meet():
    slots = (ctypes.c_int64 * 4)()
    native.call(programs.address("meet"), [ctypes.addressof(slots)], [2, 20_000_000])
    return list(slots) == [1, 1, 1, 1]
assert sums(100) and meet()
for k in range(6):
    time.sleep((0, 0.001, 0.02)[k % 3])
    child = os.fork()
    if child == 0:
        ok = len(os.listdir("/proc/self/task")) == 1 and sums(1000) and meet() and len(os.listdir("/proc/self/task")) == 3
        if k == 4:
            native.set_threads(2); ok = ok and meet()
        if k == 5:
            grandchild = os.fork()
            if grandchild == 0:
                os._exit(0 if sums(50) and meet() else 1)
            ok = ok and os.waitpid(grandchild, 0)[1] == 0
        os._exit(0 if ok else 1)
    assert sums(500)
    assert os.waitpid(child, 0)[1] == 0, k
    assert meet()
print("done")
""")
    assert out == "done\n"


def test_fork_while_another_thread_computes(run_python):
    run_python("""
import warnings
warnings.simplefilter("ignore")
native.set_threads(3)
stop = False
def busy():
    slots = (ctypes.c_int64 * 64)()
    while not stop:
        native.call(programs.address("counts"), [ctypes.addressof(slots)], [64, 500])
t = threading.Thread(target=busy); t.start()
for k in range(15):
    child = os.fork()
    if child == 0:
        os._exit(0 if sums(1000) else 1)
    assert os.waitpid(child, 0)[1] == 0
stop = True
t.join()
""")


@but(every=4)
@pytest.mark.parametrize(
    "ending",
    [
        "sums(1000)",  # workers still spin
        "sums(1000); time.sleep(0.01)",  # workers sleep
        "import atexit; atexit.register(lambda: sums(100)); sums(100)",
        "keep = [native.view(native.new_buffer(100), 8) for _ in range(10)]; sys.keep = keep; sums(10)",
        "threading.Thread(target=lambda: [sums(100) for _ in range(100)]).start()",
        "threading.Thread(target=lambda: [sums(100) for _ in range(10**9)], daemon=True).start(); time.sleep(0.05)",
        "sums(100); sys.exit(0)",
        "sums(100); os._exit(0)",
    ],
)
def test_clean_exit(run_python, ending):
    run_python(f"native.set_threads(4)\n{ending}\n", timeout=20)


def test_signals_reach_the_main_thread(run_python):
    out = run_python("""
import signal
native.set_threads(4)
assert sums(1000)
signal.signal(signal.SIGALRM, lambda *a: (_ for _ in ()).throw(KeyboardInterrupt()))
signal.setitimer(signal.ITIMER_REAL, 0.05)
start = time.perf_counter()
try:
    time.sleep(5)
except KeyboardInterrupt:
    print(time.perf_counter() - start < 2)
""")
    assert out == "True\n"


def test_the_number_is_the_least_of_what_is_asked_and_allowed(monkeypatch):
    monkeypatch.setattr(knobs, "_cpu_limit", lambda: 6)
    for environ, n in (
        ({}, 6), ({"TENGEN_NUM_THREADS": "3"}, 3), ({"TENGEN_NUM_THREADS": "9"}, 6), ({"OMP_NUM_THREADS": "2"}, 2),
        ({"OMP_NUM_THREADS": "4,2", "TENGEN_NUM_THREADS": "5"}, 4), ({"OMP_NUM_THREADS": "many"}, 6), ({"OMP_NUM_THREADS": "0"}, 6),
    ):  # fmt: skip
        assert knobs.Config(environ).threads == n, environ


def test_the_number_comes_from_the_knob(run_python):
    out = run_python("sums(10); print(len(os.listdir('/proc/self/task')))", TENGEN_NUM_THREADS="1")
    more = run_python("native.set_threads(4); sums(10); print(len(os.listdir('/proc/self/task')))", TENGEN_NUM_THREADS="1")
    assert int(more) == int(out) + 3


def test_worker_stacks_are_large(programs):
    """Kernels may keep 6 MiB of scratch arrays; a libc's own default may be as little as 128 KiB."""
    native.set_threads(3)
    for _ in range(50):
        slots = np.zeros(16, np.int64)
        native.call(programs.address("deep"), [slots.ctypes.data], [16])
        assert (slots == np.arange(16)).all()


@pytest.mark.parametrize("name", ["x86-64-v3", "aarch64"])
def test_the_pool_needs_only_libc(name):
    """The same text for other targets: a module of its own, names with the prefix, nothing of Python's."""
    import llvmlite.binding as llvm

    from tengen.codegen.targets import Target
    from tengen.runtime.compile import compile_object

    target = Target.named(name)
    ir = threads_ir(target, prefix="model", threads=2, at_fork=True)
    head = target.head
    data = compile_object(head + ir, target)
    assert data[:4] == b"\x7fELF" and len(data) < 10_000
    module = llvm.parse_assembly(head + ir, llvm.create_context())
    module.verify()
    outside = {f.name for f in module.functions if f.is_declaration and not f.name.startswith("llvm.")}
    assert all(n.startswith("pthread_") or n in ("clock_gettime", "sched_yield") for n in outside)
    public = {f.name for f in module.functions if not f.is_declaration and "internal" not in str(f).split("@")[0]}
    assert public == {f"model_{n}" for n in ("parallel", "serial", "set_threads", "stop_threads", "forget_threads")}
