"""Objects are linked by the small loader where it can, and by LLVM where it cannot; both give code that does the same."""

import ctypes
import os
import subprocess
import sys
import threading

import pytest

from tengen.base.config import config
from tengen.base.errors import CompileError
from tengen.codegen.targets import Target, processor
from tengen.runtime import cache, llvm, module_parts, object_loader, parallel_compile, workers
from tengen.runtime import compile as compiler

HOST = Target.host().architecture
HERE = pytest.mark.skipif(HOST.linking is None, reason=f"LLVM links code for {HOST.name}")

# Constants, data that is written and data that is zero, a table of addresses, a call inside and one of a library's.
IR = """
declare i64 @time(ptr)
@seven = internal constant i64 7, align 8
@state = global i64 40
@count = internal global i64 0
@where = global ptr @inner
@wide = internal constant [4 x i64] [i64 1, i64 2, i64 3, i64 4], align 64
define internal i64 @inner(i64 %x) noinline {
  %c = load i64, ptr @count
  %n = add i64 %c, %x
  store i64 %n, ptr @count
  ret i64 %n
}
define i64 @f(i64 %i) {
  %now = call i64 @time(ptr null)
  %past = icmp sgt i64 %now, 0
  %one = zext i1 %past to i64
  %seven = load volatile i64, ptr @seven
  %n = mul i64 %one, %seven
  %s = load i64, ptr @state
  %p = getelementptr i64, ptr @wide, i64 %i
  %w = load i64, ptr %p
  %a = add i64 %n, %s
  %b = add i64 %a, %w
  %r = call i64 @inner(i64 %b)
  ret i64 %r
}
"""


def _calls(loaded):
    f = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(loaded.address("f"))
    inner = ctypes.c_void_p.from_address(loaded.address("where")).value
    g = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(inner)
    ctypes.c_int64.from_address(loaded.address("state")).value += 1
    return [f(0), f(3), g(5)]


@HERE
def test_the_same_as_llvm():
    data = compiler.compile_object(IR, Target.host())
    code = object_loader.load(data, HOST, compiler._address)
    assert code is not None and set(code.addresses) == set(compiler.elf_symbols(data)[0]) == {"f", "state", "where"}
    mine, llvm = compiler.load_object(data, Target.host()), compiler._load_by_llvm([data])
    assert mine._memory and llvm._memory is None
    assert _calls(mine) == _calls(llvm) == [49, 101, 106]
    again = compiler.load_object(data, Target.host())  # its own data
    assert _calls(again)[0] == 49 and _calls(mine)[0] == 156


SPIN = """
define void @run(ptr %buffers, ptr %ints, ptr %parallel) {
entry:
  br label %again
again:
  call void @kernel(ptr %buffers, ptr %ints, i64 0, i64 1)
  %now = load atomic i64, ptr %buffers acquire, align 8
  %old = icmp eq i64 %now, 1
  br i1 %old, label %again, label %end
end:
  ret void
}
define void @kernel(ptr %buffers, ptr %ints, i64 %begin, i64 %end) noinline {
  store atomic i64 VALUE, ptr %buffers release, align 8
  ret void
}
define ptr @which() {
  ret ptr @kernel
}
"""


@HERE
@pytest.mark.parametrize("level", [llvm.QUICK, llvm.GOOD])
def test_code_is_replaced_while_it_runs(level):
    """A program runs its kernel until that is another one's."""
    make = lambda value, **how: compiler.load_object(
        compiler.compile_object(SPIN.replace("VALUE", str(value)), Target.host(), level), Target.host(), **how
    )
    old, new = make(1, replaceable=True), make(2)
    assert old.replaceable and not new.replaceable
    before = {name: old.address(name) for name in ("run", "kernel", "which")}
    cell = ctypes.c_int64(0)
    run = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)(old.address("run"))
    thread = threading.Thread(target=run, args=(ctypes.addressof(cell), None, None), daemon=True)
    thread.start()
    while not cell.value:
        pass
    assert cell.value == 1 and thread.is_alive()
    old.replace(new)
    thread.join(60)
    assert not thread.is_alive() and cell.value == 2
    assert before == {name: old.address(name) for name in before}
    which = ctypes.CFUNCTYPE(ctypes.c_void_p)(old.address("which"))
    assert which() == new.address("kernel")


@HERE
@pytest.mark.parametrize("level", [llvm.QUICK, llvm.GOOD])
def test_the_next_piece_of_a_kernel_that_runs_is_the_new_code(level):
    text = """
define void @run(ptr %buffers, ptr %ints, ptr %parallel) {
  call void %parallel(ptr @kernel, ptr %buffers, ptr %ints, i64 4)
  ret void
}
define void @kernel(ptr %buffers, ptr %ints, i64 %begin, i64 %end) noinline {
  %p = getelementptr i64, ptr %buffers, i64 %begin
  store i64 VALUE, ptr %p
  ret void
}
"""
    old, new = (
        compiler.load_object(
            compiler.compile_object(text.replace("VALUE", str(value)), Target.host(), level), Target.host(), replaceable=value == 1
        )
        for value in (1, 2)
    )
    kernel = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)

    @ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
    def share(function, buffers, ints, n):
        for piece in range(n):
            if piece == 2:
                old.replace(new)
            kernel(function)(buffers, ints, piece, piece + 1)

    words = (ctypes.c_int64 * 4)()
    run = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)(old.address("run"))
    run(ctypes.addressof(words), None, ctypes.cast(share, ctypes.c_void_p))
    assert list(words) == [1, 1, 2, 2]


@HERE
def test_what_defines_less_replaces_nothing():
    text = "define i64 @f() {\n  ret i64 1\n}\n"
    old = compiler.load_object(
        compiler.compile_object(text + text.replace("@f", "@g"), Target.host()), Target.host(), replaceable=True
    )
    with pytest.raises(KeyError, match="'g' is not defined"):
        old.replace(compiler.load_object(compiler.compile_object(text.replace("1", "2"), Target.host()), Target.host()))
    assert ctypes.CFUNCTYPE(ctypes.c_int64)(old.address("f"))() == 1


@HERE
def test_replaceable_code_cannot_be_written_either():
    loaded = compiler.load_object(compiler.compile_object(IR, Target.host()), Target.host(), replaceable=True)
    assert _rights(loaded.address("f")) == "r-xp" and _rights(loaded._cells["f"]) == "rw-p"
    assert _calls(loaded) == [49, 101, 106]


def _rights(address):
    with open("/proc/self/maps") as f:
        for line in f:
            span, rights = line.split()[:2]
            first, end = (int(x, 16) for x in span.split("-"))
            if first <= address < end:
                return rights
    raise AssertionError("it is not mapped")


@HERE
def test_code_cannot_be_written():
    loaded = compiler.load_object(compiler.compile_object(IR, Target.host()), Target.host())
    rights = lambda name: _rights(loaded.address(name))
    assert rights("f") == "r-xp" and rights("state") == "rw-p"


@HERE
def test_what_it_leaves_to_a_linker():
    data = bytearray(compiler.compile_object(IR, Target.host()))
    assert object_loader.load(bytes(data), HOST, lambda name: None) is None  # nobody knows time
    for junk in (b"", b"\x7fELF", bytes(data[:200]), b"MZ" * 100):
        assert object_loader.load(junk, HOST, compiler._address) is None
    other = compiler.compile_object("define i64 @f() {\n  ret i64 1\n}\n", Target.named("aarch64"))
    assert object_loader.load(other, HOST, compiler._address) is None
    local = "@t = thread_local global i64 3\ndefine i64 @f() {\n  %x = load i64, ptr @t\n  ret i64 %x\n}\n"
    assert object_loader.load(compiler.compile_object(local, Target.host()), HOST, compiler._address) is None
    tables = [
        i
        for i in range(0, len(data) - 24)
        if data[i + 8 : i + 12] == b"\4\0\0\0" and data[i + 16 : i + 24] == b"\xfc" + b"\xff" * 7
    ]
    for i in tables:  # calls become a relocation of another kind
        data[i + 8] = 99
    assert tables and object_loader.load(bytes(data), HOST, compiler._address) is None
    with pytest.raises(CompileError):
        compiler.load_object(bytes(data[:200]), Target.host())


def test_what_llvm_says_is_asked_once():
    asked = []
    answer = ["x86_64-unknown-linux-gnu", "znver5", "+avx2,+avx512vl"]
    ask = lambda: asked.append(1) or answer
    assert processor.answers.recall("", ask) == answer and processor.answers.recall("", ask) == answer
    assert len(asked) == 2  # a machine that cannot be told from others is asked anew
    identity = f"of this test {os.getpid()}"
    assert processor.answers.recall(identity, ask) == answer and processor.answers.recall(identity, ask) == answer
    assert len(asked) == 3
    assert tuple(processor._ask_llvm()) == processor.description()  # what was remembered is what LLVM says


@HERE
def test_a_warm_process_loads_no_llvm(tmp_path):
    heavy = ("llvmlite.binding", "tengen.tensor.recorder", "tengen.functional")
    code = (
        f"import sys, tengen; x = tengen.Tensor([1.0, 2.0]); print((x + x).tolist(), *(m for m in {heavy} if m in sys.modules))"
    )
    env = {**os.environ, "TENGEN_CACHE_DIR": str(tmp_path / "cache")}
    first, second = (
        subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True) for _ in "12"
    )
    assert first.stdout == "[2.0, 4.0] llvmlite.binding\n" and second.stdout == "[2.0, 4.0]\n"


@pytest.mark.parametrize("told, found", [
    ({"0/level": "1", "0/size": "48K", "2/level": "2", "2/size": "1024K"}, 1 << 20),
    ({"1/level": "2", "1/size": "2M"}, 2 << 20),
    ({"0/level": "2", "0/size": "many"}, 0),
    ({"0/level": "2"}, 0),
    ({}, 0),
])  # fmt: skip
def test_the_second_cache_as_the_kernel_tells(monkeypatch, told, found):
    monkeypatch.setattr(processor, "_text", lambda file: told.get(file.partition("index")[2], ""))
    assert processor._kernel_says_l2() == found
    monkeypatch.setattr(os, "sysconf", lambda name: int(name))  # this build of Python does not know the name: ValueError
    assert processor.l2_bytes() == (found or 512 << 10)


LINES = "\n".join(f"  %x{i} = add i64 %x{i - 1}, {i}" for i in range(1, 60))
KERNEL = """define void @NAME(ptr noalias readonly %buffers, ptr readonly %ints, i64 %begin, i64 %end) noinline nounwind {
entry:
  %p = load ptr, ptr %buffers
  %x0 = load i64, ptr %p
LINES
  store i64 %x59, ptr %p
  ret void
}
""".replace("LINES", LINES)
RUN = """define void @run(ptr %buffers, ptr %ints, ptr %parallel) {
entry:
  call void @k0(ptr %buffers, ptr %ints, i64 0, i64 1)
  call void @k1(ptr %buffers, ptr %ints, i64 0, i64 1)
  call void %parallel(ptr @k2, ptr %buffers, ptr %ints, i64 1)
  ret void
}
"""


def make_small_parts(monkeypatch, threads, size=2000):
    """Modules of 1,000 characters are large, and their parts have `size`; workers are new ones."""
    pool = workers.Pool("test")
    workers._pools.remove(pool)
    monkeypatch.setattr(parallel_compile, "background", pool)
    for limits, n in ((parallel_compile.PART, size), (parallel_compile.SOME, 1000), (parallel_compile.LARGE, 1000)):
        monkeypatch.setitem(limits, llvm.GOOD, n)
    monkeypatch.setattr(workers, "IDLE_S", 0.0)
    monkeypatch.setattr(parallel_compile.config, "threads", threads)


def made_of_parts(text):
    """The object files of a module that nobody has compiled."""
    with config.scope(cache=False):
        return parallel_compile.Build(text, Target.host(), llvm.GOOD, cache).finish()


def test_a_large_module_in_parts(monkeypatch):
    head = Target.host().head
    text = "\n".join([head, *(KERNEL.replace("NAME", f"k{i}") for i in range(5)), RUN, "!0 = !{i32 1}\n"])
    found, _ = module_parts.split(text, 3, llvm.GOOD)
    assert len(found) == 3 and sum(t.count("\ndefine ") for t in found) == 6 and "declare void @k" in found[0]
    assert module_parts.split(text.replace("!0 =", "@x = global i64 0\n!0 ="), 3, llvm.GOOD)[0][1:] == []  # more than kernels: it stays whole
    make_small_parts(monkeypatch, 3, len(text) // 3)
    before = compiler.compilations
    several = made_of_parts(text)
    assert len(object_loader.objects_of(several)) == 3 and compiler.compilations <= before + 1
    for junk in (several[:20], several[:-1], several + b"x", several[:15] + b"\xff" * 30):
        assert object_loader.objects_of(junk) == [junk]
        with pytest.raises(CompileError):
            compiler.load_object(junk, Target.host())
    whole = compiler.compile_object(text, Target.host())
    monkeypatch.setattr(workers, "can_start", lambda: False)
    assert made_of_parts(text) == whole and object_loader.objects_of(whole) == [whole]
    share = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
    kernel = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
    serial = share(lambda f, buffers, ints, n: kernel(f)(buffers, ints, 0, n))
    for loaded in (
        compiler.load_object(whole, Target.host()),
        compiler.load_object(several, Target.host()),
        compiler._load_by_llvm(object_loader.objects_of(several)),
    ):
        value = ctypes.c_int64(5)
        buffers = (ctypes.c_void_p * 1)(ctypes.addressof(value))
        run = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)(loaded.address("run"))
        run(ctypes.addressof(buffers), None, ctypes.cast(serial, ctypes.c_void_p))
        assert value.value == 5 + 3 * sum(range(60))


@pytest.mark.parametrize("program", ["import time; time.sleep(60)", "raise SystemExit(3)"])
def test_what_a_worker_that_hangs_or_dies_was_to_do_is_done_here(program, monkeypatch, tmp_path):
    (tmp_path / "llvm.py").write_text(program)
    monkeypatch.setattr(workers.llvm, "__file__", str(tmp_path / "llvm.py"))
    monkeypatch.setattr(workers, "PATIENCE_S", 0.5)
    make_small_parts(monkeypatch, 2)
    text = "\n".join([*(KERNEL.replace("NAME", f"k{i}") for i in range(3)), RUN])
    made = object_loader.objects_of(made_of_parts(text))
    assert made == [compiler.compile_object(part, Target.host()) for part in module_parts.split(text, 2, llvm.GOOD)[0]]


def test_what_a_worker_cannot_do_is_done_here(monkeypatch):
    make_small_parts(monkeypatch, 2)
    monkeypatch.setattr(sys, "executable", "/nowhere/python3")
    text = "\n".join([KERNEL.replace("NAME", "k0"), KERNEL.replace("NAME", "k1"), KERNEL.replace("NAME", "k2"), RUN])
    assert len(object_loader.objects_of(made_of_parts(text))) == 2
    bad = KERNEL.replace("NAME", "k1").replace("%x59, ptr %p", "%x60, ptr %p")
    with pytest.raises(CompileError, match="in k1"):
        made_of_parts(text.replace(KERNEL.replace("NAME", "k1"), bad))
