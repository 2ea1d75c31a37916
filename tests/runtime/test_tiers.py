"""Quick code runs first, good code takes its place when processes in the background have made it, and no bit tells them apart."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from exhaustive import exhaustive

import tengen
import tengen.functional as F
from tengen import Tensor, trace
from tengen.base.config import config
from tengen.codegen.targets import Target
from tengen.compiler import plans
from tengen.compiler.program import Program
from tengen.deploy.compile import compile_model
from tengen.runtime import cache, llvm, module_parts, parallel_compile, tiers, workers
from tengen.runtime import compile as compiler
from tengen.runtime.report import config_table
from tengen.tensor import hide_plans, restore_plans

pytestmark = pytest.mark.skipif(Target.host().architecture.linking is None, reason="LLVM links code for this architecture")


@pytest.fixture
def fresh(monkeypatch, tmp_path):
    """Quick code first, in an empty cache, without a program or a plan; nothing is left in the background."""
    monkeypatch.setattr(plans, "_programs", {})
    monkeypatch.setattr(tiers, "statistics", tiers.Statistics())
    monkeypatch.setattr(tiers.background, "_delay_s", 0.0)
    monkeypatch.setattr(tiers, "SMALL", 0)
    monkeypatch.setattr(module_parts, "LEAST", 1 << 40)  # a program is one module; see the test of shared kernels
    (tmp_path / "cache").mkdir(mode=0o700)
    known = hide_plans()
    noise(1)  # the runtime is there
    with config.scope(quick_compile=True, cache_dir=str(tmp_path / "cache"), debug=0):
        yield tmp_path / "cache"
        assert tengen.jit.wait_for_compilation(300)
    restore_plans(known)


@pytest.fixture
def held(fresh, monkeypatch):
    """The same, and what would be compiled in the background: it is compiled when the list's members are called."""
    jobs = []
    submit = parallel_compile.Build._submit
    monkeypatch.setattr(parallel_compile.Build, "_submit", lambda self: jobs.append(lambda: submit(self)))
    monkeypatch.setattr(tiers, "SHARE", float("inf"))
    return jobs


def noise(*shape):
    return Tensor(np.random.default_rng(sum(shape)).standard_normal(shape, np.float32))


def entries(directory):
    return sorted(f.name for f in directory.iterdir() if f.suffix == ".o")


def programs():
    return [p for p, _ in plans._programs.values()]


def words(program: Program) -> dict[str, int]:
    """Where each function of a program's code jumps to."""
    import ctypes

    return {name: ctypes.c_int64.from_address(cell).value for name, cell in program._loaded._cells.items()}


def test_good_code_takes_the_place_of_quick_code(held, fresh):
    x, y = noise(19, 33), noise(33, 21)
    before = compiler.compilations
    quick = F.matmul(x, y).numpy().tobytes()
    (program,) = programs()
    assert program._loaded.replaceable and len(held) == 1 and tiers.statistics == tiers.Statistics(quick=1)
    assert compiler.compilations == before + 1
    text, address, first = program.text, program.address, words(program)
    name = cache.object_name(text, program.target)
    assert entries(fresh) == [cache.object_name(text, program.target, llvm.QUICK)] and "run" in first
    held[0]()
    assert tengen.jit.wait_for_compilation()
    assert tiers.statistics == tiers.Statistics(quick=1, replaced=1) and compiler.compilations == before + 1
    second = words(program)
    assert program.address == address and first.keys() == second.keys()
    assert not set(first.values()) & set(second.values())  # every function runs other code
    assert entries(fresh) == [name] and cache.found(text, program.target) == compiler.compile_object(text, program.target)
    assert F.matmul(x, y).numpy().tobytes() == quick
    plans._programs.clear()
    known = hide_plans()  # as in a later process
    assert F.matmul(x, y).numpy().tobytes() == quick
    restore_plans(known)
    assert tiers.statistics == tiers.Statistics(quick=1, replaced=1, good=1) and not programs()[0]._loaded.replaceable
    told = dict(config_table())["programs"]
    assert told.startswith("1 loaded with good code, ") and "1 with quick code, which was replaced in 1; 0 modules" in told


def test_kernels_that_programs_share_are_compiled_once_in_each_tier(held, fresh, monkeypatch):
    """Two programs of one product, which differ in what comes behind: their kernel is a module of its own."""
    monkeypatch.setattr(module_parts, "LEAST", 1 << 14)
    x, y = noise(19, 33), noise(33, 21)
    before = compiler.compilations
    one = trace(lambda x, y: F.matmul(x, y), name="one")
    two = trace(lambda x, y: F.matmul(x, y), name="two")
    quick = one(x, y).numpy().tobytes()
    assert len(entries(fresh)) == 2 and compiler.compilations == before + 2  # the program, and its kernel
    assert two(x, y).numpy().tobytes() == quick and compiler.compilations <= before + 3
    for job in held:
        job()
    assert tengen.jit.wait_for_compilation()
    assert tiers.statistics.replaced == tiers.statistics.quick and one(x, y).numpy().tobytes() == quick == two(x, y).numpy().tobytes()
    assert not any(cache.found(k, Target.host(), llvm.QUICK) for k in module_parts.apart(text_of(one))[1])


def test_a_call_waits_when_quick_code_has_run_for_long(held, fresh, monkeypatch):
    """Never the first one; who waits compiles what no worker has begun with."""
    x, y = noise(19, 33), noise(33, 21)
    monkeypatch.setattr(tiers, "SHARE", 0.0)
    before = compiler.compilations
    quick = F.matmul(x, y).numpy().tobytes()
    assert tiers.statistics == tiers.Statistics(quick=1) and compiler.compilations == before + 1
    assert F.matmul(x, y).numpy().tobytes() == quick
    assert tiers.statistics == tiers.Statistics(quick=1, replaced=1, waited=1) and compiler.compilations == before + 2
    assert F.matmul(x, y).numpy().tobytes() == quick and tiers.statistics.waited == 1 and not tiers._upgrades
    held.clear()


def test_calls_are_timed_until_good_code_is_there(held, fresh):
    x = noise(40, 48)
    F.exp(x)
    (plan,) = [p for p in restored_plans() if type(p.call) is tiers.Timed]
    upgrade = plan.call.upgrade
    F.exp(x)
    assert 0 < upgrade.spent < 60 and tiers.bare(plan.call) is plan.call
    held[0]()
    assert tengen.jit.wait_for_compilation()
    assert upgrade.done and type(plan.call).__name__ == "builtin_function_or_method" and not upgrade._then


def restored_plans():
    """The plans that there are."""
    known = hide_plans()
    restore_plans(known)
    import gc

    return [o for o in gc.get_objects() if isinstance(o, plans.Plan)]


def test_what_is_small_is_compiled_well_at_once(held, fresh, monkeypatch):
    monkeypatch.setattr(tiers, "SMALL", 1 << 40)
    F.matmul(noise(19, 33), noise(33, 21))
    assert tiers.statistics == tiers.Statistics(good=1) and not held


def test_a_process_that_ended_too_early_leaves_its_quick_code(held, fresh):
    x = noise(7, 23)
    first = F.softmax(x, axis=1).numpy().tobytes()
    assert len(held) == 1 and len(entries(fresh)) == 1
    plans._programs.clear()
    known, before = hide_plans(), compiler.compilations
    assert F.softmax(x, axis=1).numpy().tobytes() == first and compiler.compilations == before
    restore_plans(known)
    assert tiers.statistics == tiers.Statistics(quick=2) and len(held) == 2
    for job in held:  # the second one finds what the first has made
        job()
        assert tengen.jit.wait_for_compilation()
    assert tiers.statistics == tiers.Statistics(quick=2, replaced=2) and len(entries(fresh)) == 1


def test_a_large_program_is_compiled_in_parts(held, fresh, monkeypatch):
    for limits in (parallel_compile.PART, parallel_compile.LARGE):
        monkeypatch.setitem(limits, llvm.GOOD, 8000)

    @trace
    def f(x):
        return F.softmax(F.matmul(F.sin(x) + 1, x.T), 1).sum(0), F.sort(x, descending=True)[0]

    x = noise(24, 40)
    quick = [t.numpy().tobytes() for t in f(x)]
    parts, found = [], []
    submit = tiers.background.submit

    def counted(*jobs):
        parts.extend(job.text for job in jobs)
        for i, job in enumerate(jobs):
            find = job.find
            job.find = lambda find=find: found.append(find()) or found[-1]
            if len(parts) > len(jobs) or i != 1:  # the second is lost with its process
                submit(job)

    monkeypatch.setattr(tiers.background, "submit", counted)
    held.pop()()
    assert tengen.jit.wait_for_compilation()
    n = len(parts)
    assert n > 2 and tiers.statistics.replaced == 0 and len(entries(fresh)) == 1 + n - 1
    target = Target.host()
    tiers.compile_in_background(text_of(f), target, lambda data: None)
    held.pop()()
    assert tengen.jit.wait_for_compilation()
    assert parts[n:] == parts[:n] and cache.found(text_of(f), target) is not None
    assert [data is None for data in found] == [True] * (n - 1) + [i == 1 for i in range(n)]  # the others were there
    assert len(entries(fresh)) == 2
    tiers.compile_in_background(text_of(f), target, lambda data: None)
    held.pop()()
    assert tengen.jit.wait_for_compilation() and len(found) == 3 * n - 1 and None not in found[-n:]  # they are in the whole
    assert len(entries(fresh)) == 2
    assert [t.numpy().tobytes() for t in f(x)] == quick


def text_of(f):
    return f._last.run.program.text


def test_a_training_step_goes_on(fresh):
    """The same numbers, step by step, as good code gives from the first one on. The backward pass is traced; with the update, the
    program is a step of a loop, and as it is small it has good code at once."""
    from tengen.autodiff import GradManager
    from tengen.module import Linear
    from tengen.optimizer import SGD

    def losses():
        tengen.random.seed(5)
        net = Linear(30, 20)
        gm, opt = GradManager().attach(net.parameters()), SGD(net.parameters(), lr=0.1, momentum=0.9)

        def backward(x):
            with gm:
                loss = (F.gelu(net(x)) ** 2).mean()
                gm.backward(loss)
            return loss

        def step(x):
            loss = run(x)
            opt.step().clear_grad()
            return loss

        run = trace(backward) if not whole else backward
        step = trace(step) if whole else step
        for i in range(4):
            yield step(noise(8, 30)).numpy().tobytes()
            if i == 1:
                assert tengen.jit.wait_for_compilation()

    whole = False
    quick = list(losses())
    assert tiers.statistics.quick == tiers.statistics.replaced >= 1
    whole, before = True, tiers.statistics.quick
    assert list(losses()) == quick and len(set(quick)) == 4
    assert tiers.statistics.quick == before
    with config.scope(quick_compile=False, cache=False):
        assert list(losses()) == quick


def test_a_step_begins_with_quick_code_where_it_does_little(held, fresh, monkeypatch):
    """Of a large program: a bias has few elements to be updated, and a matrix many. `run` is long, so it has quick code for good."""
    from tengen.autodiff import GradManager
    from tengen.module import Linear
    from tengen.optimizer import SGD

    def losses():
        tengen.random.seed(5)
        net = Linear(200, 300)
        gm, opt = GradManager().attach(net.parameters()), SGD(net.parameters(), lr=0.1, momentum=0.9)

        @trace
        def step(x):
            with gm:
                loss = (net(x) ** 2).mean()
                gm.backward(loss)
            opt.step().clear_grad()
            return loss

        for i in range(4):
            if i == 2:
                for job in held:
                    job()
                assert tengen.jit.wait_for_compilation()
            yield step(noise(8, 200)).numpy().tobytes()

    with config.scope(quick_compile=False, cache=False):
        good = list(losses())
    tiers.statistics = tiers.Statistics()
    made: list[tuple[str, int]] = []
    compile_object = compiler.compile_object
    here = lambda text, target, level=1, count=True: made.append((text, level)) or compile_object(text, target, level, count)
    monkeypatch.setattr(parallel_compile, "compile_object", here)
    monkeypatch.setattr(module_parts, "MOST", 0)
    monkeypatch.setattr(module_parts, "LONG_ENTRY", 0)
    assert list(losses()) == good and len(set(good)) == 4
    assert tiers.statistics.quick == tiers.statistics.replaced >= 1
    step = [level for text, level in made if "@mul_add_sub(" in text or "@mul_add_sub_" in text]
    assert sorted(set(step)) == [llvm.QUICK, llvm.GOOD]
    assert {level for text, level in made if "define void @run(" in text} == {llvm.QUICK}


def test_the_knob_turns_it_off(fresh):
    with config.scope(quick_compile=False):
        F.matmul(noise(19, 33), noise(33, 21))
    assert tiers.statistics == tiers.Statistics(good=1) and tiers.background.pending == 0
    assert not programs()[0]._loaded.replaceable


@pytest.mark.parametrize("executable", ["/usr/bin/editor", None])
def test_without_an_interpreter_all_code_is_good(executable, fresh, monkeypatch):
    monkeypatch.setattr(sys, "executable", executable)
    F.exp(noise(5, 5))
    assert tiers.statistics == tiers.Statistics(good=1)


def test_where_no_process_can_be_started_good_code_is_made_here(fresh, monkeypatch):
    def fail(*args, **options):
        raise BlockingIOError(11, "Resource temporarily unavailable")

    for pid in tiers.background.pids():
        os.kill(pid, 9)
    monkeypatch.setattr(subprocess, "Popen", fail)
    x = noise(3, 50)
    quick = F.cumsum(x, 1).numpy().tobytes()
    assert tengen.jit.wait_for_compilation(300)
    assert tiers.statistics == tiers.Statistics(quick=1, replaced=1) and F.cumsum(x, 1).numpy().tobytes() == quick


def test_what_workers_cannot_compile_keeps_its_quick_code_and_says_so(fresh, monkeypatch, tmp_path):
    told = []
    monkeypatch.setattr(tiers, "_warn", told.append)
    (tmp_path / "llvm.py").write_text("raise SystemExit(3)")
    for pid in tiers.background.pids():
        os.kill(pid, 9)
    monkeypatch.setattr(workers.llvm, "__file__", str(tmp_path / "llvm.py"))
    x = noise(3, 51)
    quick = F.cumsum(x, 1).numpy().tobytes()
    assert tengen.jit.wait_for_compilation(300)
    assert tiers.statistics == tiers.Statistics(quick=1, failed=1) and "2 times" in told[0]
    assert F.cumsum(x, 1).numpy().tobytes() == quick and programs()[0]._loaded.replaceable


def test_the_warning():
    with pytest.warns(RuntimeWarning, match="keeps the code it has.*: why; its results are right; help: set TENGEN_QUICK_COMPILE=0"):
        tiers._warn("why")


def test_a_hot_plan_gets_its_program_from_the_background(held, fresh, monkeypatch):
    monkeypatch.setattr(plans, "HOT_AFTER_S", 0.0)
    x, y = noise(19, 33), noise(33, 21)
    first = F.matmul(x, y).numpy().tobytes()
    assert F.matmul(x, y).numpy().tobytes() == first and len(programs()) == 1  # the time of quick code does not count
    held[0]()
    assert tengen.jit.wait_for_compilation()
    assert F.matmul(x, y).numpy().tobytes() == first
    assert len(programs()) == 2 and len(held) == 2  # the pattern's good code, and the program for these numbers
    generic, special = programs()
    assert generic._loaded is not None and special._loaded is None and special.text
    for _ in range(3):
        assert F.matmul(x, y).numpy().tobytes() == first
    assert len(held) == 2 and special._loaded is None  # asked for once
    held[1]()
    assert tengen.jit.wait_for_compilation()
    assert special._loaded is not None and not special._loaded.replaceable
    assert tiers.statistics == tiers.Statistics(quick=1, replaced=1, postponed=1)
    ran = []
    monkeypatch.setattr(Program, "plan", lambda *a, **k: ran.append(a))
    assert F.matmul(x, y).numpy().tobytes() == first and not ran


def test_hot_plans_of_many_kinds(fresh, monkeypatch):
    monkeypatch.setattr(plans, "HOT_AFTER_S", 0.0)
    x, w = noise(2, 5, 11, 13), noise(6, 5, 3, 3)
    calls = [lambda: F.softmax(x, axis=1), lambda: F.conv2d(x, w, padding=1), lambda: F.topk(x, 3)[0], lambda: F.gelu(x.T).sum(0)]
    first = [c().numpy().tobytes() for c in calls]
    for _ in range(3):
        assert tengen.jit.wait_for_compilation(300)
        assert [c().numpy().tobytes() for c in calls] == first
    assert tiers.statistics.postponed >= 3 and tiers.statistics.failed == 0
    assert tiers.statistics.quick == tiers.statistics.replaced


def test_a_profile_has_good_code(fresh):
    x = noise(40, 48)
    want = F.matmul(x, x.T).numpy().tobytes()
    assert tiers.statistics.quick == 1
    with tengen.profile() as p:
        assert F.matmul(x, x.T).numpy().tobytes() == want
    assert p.rows and tiers.statistics.quick == 1 and tiers.statistics.good == 1


def test_what_is_shipped_is_good_code(fresh, tmp_path):
    f = trace(lambda x: F.exp(x) + 1)
    f(noise(5, 6))
    f.dump(str(tmp_path / "f.tgn"))
    made = []
    for quick in (True, False):
        with config.scope(quick_compile=quick, cache=False):
            made.append(Path(compile_model(str(tmp_path / "f.tgn"), "native", tmp_path / str(quick)).files[0]).read_bytes())
    assert made[0] == made[1] and tiers.statistics == tiers.Statistics(quick=1, good=0, replaced=tiers.statistics.replaced)


SCRIPT = """
import os, sys, time
import numpy as np, tengen, tengen.functional as F
from tengen.runtime import tiers
tiers.background._delay_s = 60  # nothing begins before it is waited for
x = tengen.Tensor(np.arange(600, dtype=np.float32).reshape(20, 30))
first = F.matmul(x, x.T).numpy().tobytes()
"""


def ran(script, directory, before="", **environ):
    env = {**os.environ, "TENGEN_QUICK_COMPILE": "1", "TENGEN_CACHE_DIR": str(directory), "TENGEN_NUM_THREADS": "2", **environ}
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", before + SCRIPT + script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=env)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout.split()


def test_a_short_process_starts_no_other(tmp_path):
    script = "print(tiers.statistics.quick, tiers.statistics.good, tiers.background.started)"
    assert ran(script, tmp_path / "c") == ["1", "0", "0"]
    assert ran("tengen.jit.wait_for_compilation(); " + script, tmp_path / "c") == ["1", "0", "1"]
    assert ran(script, tmp_path / "c") == ["0", "1", "0"]
    assert ran(script, tmp_path / "d", TENGEN_QUICK_COMPILE="0") == ["0", "1", "0"]


@exhaustive
def test_the_next_process_has_the_text_that_one_left(tmp_path):
    """It lowers and emits nothing, has quick code at once, and makes it good. What it leaves is good code alone."""
    files = lambda: sorted(f.suffix for f in (tmp_path / "c").iterdir() if f.name not in ("key", "lock"))
    ran("", tmp_path / "c")
    assert ".l" in files()
    script = "print(tiers.statistics.quick, tiers.statistics.good, tengen.jit.wait_for_compilation(), tiers.statistics.replaced)"
    no_emission = "import tengen.compiler.building as b; b.emit_module = None\n"
    assert ran(script, tmp_path / "c", before=no_emission) == ["1", "0", "True", "1"]
    assert ".l" not in files()
    assert ran(script, tmp_path / "c", before=no_emission) == ["0", "1", "True", "0"]


def test_a_forked_child_makes_its_own_code_good(tmp_path):
    script = """
if not os.fork():
    assert tiers.background.pending >= 1 and not tiers.background.pids()
    assert tengen.jit.wait_for_compilation() and F.matmul(x, x.T).numpy().tobytes() == first
    print("child", tiers.statistics.replaced, flush=True)
    os._exit(0)
assert os.wait()[1] == 0
assert tengen.jit.wait_for_compilation() and F.matmul(x, x.T).numpy().tobytes() == first
print("parent", tiers.statistics.replaced)
"""
    assert ran(script, tmp_path / "c") == ["child", "1", "parent", "1"]


def test_quick_code_only(tmp_path):
    """It is kept, and found by a later process that wants no more; one that wants good code makes its own."""
    script = """
from tengen.runtime import compile as compiler
s = tiers.statistics
print(s.quick, s.good, s.replaced, tiers.background.started, compiler.compilations, first.hex())
"""
    (*only, bits), (*again, _) = [ran(script, tmp_path / "c", TENGEN_QUICK_COMPILE="only") for _ in range(2)]
    (*good, good_bits), (*good_again, _) = [ran(script, tmp_path / "c", TENGEN_QUICK_COMPILE="0") for _ in range(2)]
    (*later, _) = ran(script, tmp_path / "c", TENGEN_QUICK_COMPILE="only")
    assert only[:4] == ["1", "0", "0", "0"] and good[:4] == ["0", "1", "0", "0"] and bits == good_bits
    assert int(only[4]) > 0 and int(good[4]) > 0
    assert [x[4] for x in (again, good_again, later)] == ["0", "0", "0"]
