"""Compiled artifacts: the same bits as the model, nothing but libc, and a C interface that says what it takes.

Most tests load the object into this process, which links nothing; those that link use the `ziglang` wheel.
"""

import ctypes
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import models
import numpy as np
import pytest
from exhaustive import but
from models import same
from needs import needs, of_zigs_libraries, on_targets

import tengen
import tengen.functional as F
import tengen.module as M
from tengen import Tensor, deploy, load_graph, trace
from tengen.base.errors import CompileError, ConfigError, DTypeError, FileFormatError, ShapeError
from tengen.codegen.targets import Target
from tengen.deploy import compile as aot
from tengen.deploy import run as link
from tengen.deploy.ctext import c_name
from tengen.deploy.objects import read_object
from tengen.deploy.run import linker
from tengen.deploy.verify import differing, random_inputs, verify
from tengen.runtime.compile import compile_object, load_object

HOST = Target.host()


class Net(M.Module):
    """A convolution net: its outputs lie channels-last in memory here, and row by row in C."""

    def __init__(self):
        super().__init__()
        self.conv = M.Conv2d(3, 5, 3, padding=1)
        self.pool = M.MaxPool2d(2, 2)
        self.fc = M.Linear(5 * 4 * 3, 7)

    def forward(self, x):
        y = self.pool(F.relu(self.conv(x)))
        return y, F.softmax(self.fc(y.reshape(y.shape[0], -1)), axis=1)


def dense(t):
    """A tensor's values row by row."""
    return np.asarray(t.numpy(), order="C")


def dumped(f, path, *example, **names):
    f = f if isinstance(f, trace) else trace(f, example_input=example)
    f.dump(path, **names)
    return tengen.load_graph(path)


@pytest.fixture(scope="module")
def net(tmp_path_factory):
    x = Tensor(models.images((2, 3, 8, 6)))
    path = tmp_path_factory.mktemp("net") / "net.tgn"
    m = dumped(Net(), path, x, arg_names=["image"], output_names=["features", "probability"])
    return m, x, path


class InProcess:
    """An artifact for this processor, called through ctypes."""

    def __init__(self, artifact):
        self.a = artifact
        self.code = load_object(Path(artifact.files[0]).read_bytes(), Target.named(artifact.target))
        self.blob = np.fromfile(artifact.files[2], np.uint8)
        self.weights = self.aligned(max(len(self.blob), 1))
        self.weights[: len(self.blob)] = self.blob
        self.workspace = self.aligned(max(artifact.workspace_bytes, 1))

    @staticmethod
    def aligned(n, dtype=np.uint8):
        raw = np.zeros(n + 64, np.uint8)
        return raw[-raw.ctypes.data % 64 :][:n].view(dtype)

    def function(self, name, result=ctypes.c_int):
        address = self.code.address(f"{self.a.name}_{name}")
        return lambda *args: ctypes.CFUNCTYPE(result, *[type(x) for x in args])(address)(*args)

    def run(self, *inputs, state=None):
        outs = [np.full(p.shape, 77).astype(p.dtype.numpy) for p in self.a.outputs]
        own = [self.weights] * bool(len(self.blob)) + [state] * (state is not None)
        own += [self.workspace] * bool(self.a.workspace_bytes)
        args = [ctypes.c_void_p(x.ctypes.data) for x in [*own, *map(np.ascontiguousarray, inputs), *outs]]
        code = self.function("run")(*args)
        assert code == 0, code
        return outs


@pytest.mark.parametrize("target", on_targets("x86-64-v3", "x86-64-v4", "native"))
def test_same_bits_in_process(net, target, tmp_path):
    m, x, path = net
    a = deploy.compile_model(path, target, tmp_path, "net")
    got = InProcess(a).run(x.numpy())
    for g, want, p in zip(got, m(x), a.outputs):
        assert not differing(g, dense(want)).any(), p


@but(first_of="target")
@needs("ziglang")
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("target", ["x86-64-v3", "x86-64-v4", "aarch64", "riscv64"])
def test_same_bits_linked(net, target, threads, tmp_path):
    m, x, path = net
    a = deploy.compile_model(path, target, tmp_path, "net", threads)
    if threads > 1 and target in ("aarch64", "riscv64"):  # with one thread it is linked without a C library
        of_zigs_libraries(target)
    v = verify(m, tmp_path)
    if v.status == "skipped":
        pytest.skip(v.how)
    assert (v.status, v.differing, v.runs) == ("equal", 0, 4) and v.values == 4 * (2 * 5 * 4 * 3 + 14)
    got = deploy.run_artifact(a, [x.numpy()])
    assert all(same(g, dense(w)) for g, w in zip(got, m(x)))


@pytest.mark.parametrize("target", ["x86-64-v3", "x86-64-v4", "aarch64"])
@pytest.mark.parametrize("threads", [1, 2])
def test_the_object_needs_only_libc(net, target, threads, tmp_path):
    a = deploy.compile_model(net[0], target, tmp_path, "net", threads)
    data = Path(a.files[0]).read_bytes()
    made = read_object(data)
    defined, needed = made.defined, made.needed
    assert made.machine == Target.named(target).architecture.elf_machine
    mine = {"net_run", a.interface.linked(), "net_check", "net_check_workspace"}
    assert defined == mine | ({"net_set_threads", "net_stop_threads"} if threads > 1 else set())
    assert all(s.startswith("pthread_") or s in {"memcpy", "memset", "clock_gettime", "sched_yield"} for s in needed)
    assert threads > 1 or not needed - {"memcpy", "memset"}
    assert a.code_bytes == made.code_bytes and 500 < a.code_bytes < 32 << 10


def test_it_holds_only_the_kernels_it_uses(net, tmp_path):
    small = dumped(lambda x: x + 1.0, tmp_path / "add.tgn", Tensor(models.images()))
    a = deploy.compile_model(small, "x86-64-v3", tmp_path / "add", "add")
    assert a.kernels == 1 and a.code_bytes < 1500 and a.weights_bytes == 0
    assert "weights" not in Path(a.files[1]).read_text().split("int add_run")[1].split(";")[0]


def test_checks(net, tmp_path):
    p = InProcess(deploy.compile_model(net[0], "native", tmp_path, "net"))
    check = p.function("check")
    pointer, size = ctypes.c_void_p(p.weights.ctypes.data), ctypes.c_size_t(len(p.blob))
    assert check(pointer, size) == 0 and check(pointer, ctypes.c_size_t(len(p.blob) - 1)) == 1
    for at in (0, len(p.blob) // 2, len(p.blob) - 1):
        p.weights[at] ^= 0x80
        assert check(pointer, size) == 2
        p.weights[at] ^= 0x80
    null = ctypes.c_void_p(None)
    assert check(null, size) == 3 and check(null, ctypes.c_size_t(0)) == 3
    assert [check(ctypes.c_void_p(p.weights.ctypes.data + by), size) for by in (1, 4, 7)] == [4, 4, 4]
    args = [p.weights, p.workspace, np.zeros((2, 3, 8, 6), "f4"), np.zeros((2, 5, 4, 3), "f4"), np.zeros((2, 7), "f4")]
    run = p.function("run")
    call = lambda a: run(*[ctypes.c_void_p(v) for v in a])
    addresses = [a.ctypes.data for a in args]
    assert call(addresses) == 0
    for i in range(len(args)):
        assert call([*addresses[:i], None, *addresses[i + 1 :]]) == 1
        assert call([*addresses[:i], addresses[i] + 2, *addresses[i + 1 :]]) == 2
    refuses_other_memory(p, "workspace", p.workspace.ctypes.data, p.a.workspace_bytes)


def refuses_other_memory(p, what, address, need):
    """``name_check_what``: memory that is too small, that is none, and that is not aligned, each with a code."""
    fits = lambda at, size: p.function(f"check_{what}")(ctypes.c_void_p(at), ctypes.c_size_t(size))
    assert [fits(address, size) for size in (need, need + 1, 1 << 40, 2**64 - 1)] == [0] * 4
    assert need > 0 and [fits(address, size) for size in (need - 1, 1, 0)] == [1] * 3
    assert fits(None, need) == fits(None, 0) == 3
    assert [fits(address + by, need) for by in (1, 4, 32, 63)] == [4] * 4


def test_states(tmp_path):
    step, total = models.counter()
    x = Tensor(np.array([1, 2, 3], "f4"))
    step(x)
    m = dumped(step, tmp_path / "m", arg_names=["data"])
    p = InProcess(deploy.compile_model(m, "native", tmp_path, "count"))
    state = p.aligned(64)
    reset = lambda *at: p.function("reset")(*map(ctypes.c_void_p, at))
    assert reset(p.weights.ctypes.data, state.ctypes.data) == 0
    before = state.tobytes()
    assert reset(None, state.ctypes.data) == reset(p.weights.ctypes.data, None) == 1
    assert reset(p.weights.ctypes.data + 4, state.ctypes.data) == reset(p.weights.ctypes.data, state.ctypes.data + 32) == 2
    assert state.tobytes() == before
    refuses_other_memory(p, "state", state.ctypes.data, int(re.search(r"COUNT_STATE_BYTES (\d+)", Path(p.a.files[1]).read_text())[1]))
    for _ in range(3):
        assert same(p.run(x.numpy(), state=state)[0], step(x))
    if importlib.util.find_spec("ziglang"):
        assert verify(m, tmp_path, name="count").status == "equal"


@pytest.mark.parametrize("d", ["float64", "float16", "bfloat16", "int64", "int8", "uint8", "bool"])
def test_dtypes(d, tmp_path):
    rng = np.random.default_rng(0)
    w, x = (Tensor(rng.integers(0, 2, 37)).astype(d) for _ in range(2))
    f = (lambda x: F.where(x, w, x)) if d == "bool" else lambda x: F.maximum(x * w, x + w)
    m = dumped(f, tmp_path / "m", x)
    p = InProcess(deploy.compile_model(m, "native", tmp_path, "t"))
    assert same(p.run(x.numpy())[0], m(x))
    for target in ("x86-64-v3", "aarch64"):
        deploy.compile_model(m, target, tmp_path, "t")  # its helpers, too, are all inside


def test_odd_models(tmp_path):
    x = Tensor(np.zeros((0, 3), "f4"))
    cases = {
        "empty": (lambda x: x * 2.0, (x,)),
        "scalar": (lambda a: F.exp(a), (Tensor(np.float32(0.5)),)),
        "same": (lambda a: a, (Tensor(np.ones(3, "f4")),)),
        "view": (lambda a: a.reshape(3, 2).transpose(1, 0), (Tensor(np.arange(6, dtype="i4")),)),
        "twice": (lambda a: (a + a, a + a, a), (Tensor(np.arange(6, dtype="i4")),)),
        "unused": (lambda a, b: b + b, (Tensor(np.ones(3, "f4")), Tensor(np.ones(2, "f4")))),
    }
    for name, (f, example) in cases.items():
        m = dumped(f, tmp_path / name, *example)
        p = InProcess(deploy.compile_model(m, "native", tmp_path, name))
        want = m(*example)
        got = p.run(*[e.numpy() for e in example])
        for g, w in zip(got, want if isinstance(want, tuple) else (want,)):
            assert same(g, dense(w)), name


def test_names_in_c(tmp_path):
    x = Tensor(np.ones(3, "f4"))
    m = dumped(lambda a, b, c: a + b + c, tmp_path / "m", x, x, x, arg_names=["for", "weights", "Über 1"], output_names=["for"])
    a = deploy.compile_model(m, "native", tmp_path)
    assert a.name == "m_lambda" or a.name == "lambda"
    text = Path(a.files[1]).read_text()
    names = re.search(r"_run\(([^)]*)\)", text)[1]
    assert names == "const float *for_, const float *weights_, const float *ber_1, float *for_2", names
    for bad in ("3x", "a b", "int", "", "a-b"):
        with pytest.raises(ConfigError, match="cannot begin names in C"):
            deploy.compile_model(m, "native", tmp_path, bad)
    assert c_name("µ") == "model"


def test_bad_arguments(net, tmp_path):
    with pytest.raises(ConfigError, match="unknown target 'sparc'"):
        deploy.compile_model(net[0], "sparc", tmp_path)
    with pytest.raises(ConfigError, match="threads=0"):
        deploy.compile_model(net[0], "native", tmp_path, threads=0)
    with pytest.raises(FileNotFoundError):
        deploy.compile_model(tmp_path / "none", "native", tmp_path)
    a = deploy.compile_model(net[0], "native", tmp_path)
    with pytest.raises(ShapeError):
        deploy.run_artifact(a, [np.zeros((1, 3, 8, 6), "f4")])
    with pytest.raises(DTypeError):
        deploy.run_artifact(a, [np.zeros((2, 3, 8, 6))])
    with pytest.raises(CompileError, match="would need memchr"):
        text = f'target triple = "{HOST.triple}"\ndeclare ptr @memchr()\ndefine void @f() {{ call ptr @memchr() ret void }}'
        aot._check_symbols(read_object(compile_object(text, HOST)), set(), HOST.system)


def test_verify_sees_what_is_wrong(net, tmp_path, monkeypatch):
    m, x, _ = net
    with pytest.raises(FileFormatError, match="holds no artifact"):
        verify(m, tmp_path)
    a = deploy.compile_model(m, "native", tmp_path, "net")
    other = dumped(lambda x: x + 1.0, tmp_path / "other.tgn", x)
    with pytest.raises(FileFormatError, match="another model"):
        verify(other, tmp_path)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setenv("PATH", "")
    v = verify(m, tmp_path)
    assert v.status == "skipped" and "neither cc nor gcc nor clang is in PATH" in v.how
    monkeypatch.undo()
    foreign = "aarch64" if HOST.arch == "x86_64" else "x86-64-v3"
    deploy.compile_model(m, foreign, tmp_path, "net")
    monkeypatch.setenv("PATH", "")
    v = verify(m, tmp_path)
    assert v.status == "skipped" and "qemu" in v.how
    with pytest.raises(deploy.CannotRun, match="qemu"):
        deploy.run_artifact(deploy.compile_model(m, foreign, tmp_path, "net"), [x.numpy()])
    os.unlink(a.files[2])
    with pytest.raises(FileFormatError, match=r"no net\.bin"):
        verify(m, tmp_path)


@needs("ziglang")
def test_verify_counts_what_differs(net, tmp_path):
    m, _, path = net
    graph = m.graph.copy()
    data = {name: np.array(a) for name, a in m.weights.items()}
    data["fc.bias"][0] += 1
    for c in graph.constants.values():
        c.data = data.get(c.name, c.data)
    deploy.compile_model(deploy.Model(graph, {}), "native", tmp_path, "net")
    v = verify(m, tmp_path, inputs=[{"image": models.images((2, 3, 8, 6))}])
    assert v.status == "different" and 0 < v.differing <= 14 and v.how.startswith("run 0, probability[0, ")
    assert "no op differs when it is compiled anew: the artifact was made from another model" in v.how


def test_differing():
    nan = np.array([0x7FC00000, 0xFFC00001, 0, 0x80000000], "u4").view("f4")
    assert differing(nan, nan[[1, 0, 2, 3]]).sum() == 0
    assert differing(nan, nan[[0, 1, 3, 2]]).tolist() == [False, False, True, True]
    assert differing(np.float32(1), np.float32(2)).tolist() == [True]


@pytest.mark.skipif(shutil.which("gcc") is None, reason="no C compiler")
def test_the_c_is_clean(net, tmp_path):
    a = deploy.compile_model(net[0], "native", tmp_path, "net", threads=2)
    flags = ["-std=c11", "-Wall", "-Wextra", "-pedantic", "-Werror", "-fsyntax-only"]
    subprocess.run(["gcc", *flags, a.files[3]], check=True)
    assert len(Path(a.files[3]).read_text().splitlines()) < 45


def test_random_inputs_are_the_same_again(net):
    a, b = (random_inputs(net[0], 2, 3) for _ in range(2))
    assert all(same(x, y) for p, q in zip(a, b) for x, y in zip(p, q))


def test_random_bytes_are_of_their_whole_range(tmp_path):
    given = [Tensor(np.zeros((64, 64), d)) for d in ("uint8", "int8", "int32")]
    dumped(lambda *xs: sum(x.astype("int32") for x in xs), tmp_path / "m.tgn", *given)
    ends = lambda file: [(int(a.min()), int(a.max())) for a in random_inputs(load_graph(tmp_path / file), 1, 0)[0]]
    assert ends("m.tgn") == [(0, 255), (-128, 127), (0, 1)]
    table = Tensor(np.arange(6, dtype="f4"))  # an index is looked at: larger ones would be errors
    dumped(lambda i: table[i.astype("int32")], tmp_path / "i.tgn", Tensor(np.zeros(30, "u1")))
    assert ends("i.tgn") == [(0, 1)]
    deploy.compile_model(tmp_path / "i.tgn", "native", tmp_path, "i")
    assert verify(tmp_path / "i.tgn", tmp_path).status == "equal"


def test_empty_path(net, tmp_path):
    code = "import sys; from tengen import deploy; deploy.compile_model(sys.argv[1], 'aarch64', sys.argv[2], 'net')"
    subprocess.run([sys.executable, "-c", code, net[2], tmp_path], env={**os.environ, "PATH": ""}, check=True)
    assert sorted(os.listdir(tmp_path)) == ["net.bin", "net.h", "net.o", "net_main.c"]


def test_a_compiler_that_makes_no_program_is_passed_over(tmp_path, monkeypatch):
    here = Target.machine()
    for name, lines in (("cc", "echo 'fatal error: stdio.h: No such file' >&2; exit 1"), ("gcc", "exit 0")):
        (tmp_path / name).write_text(f"#!/bin/sh\n{lines}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert linker(here)[0] == str(tmp_path / "gcc")
    (tmp_path / "gcc").unlink()
    if importlib.util.find_spec("ziglang"):
        assert "ziglang" in linker(here)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(deploy.CannotRun, match=r"cc does not make a program \(fatal error: stdio\.h: No such file\); help: pip install"):
        linker(here)


@needs("ziglang")
def test_zig_is_called_in_one_folder(tmp_path, monkeypatch):
    """It would build its C library once more for each folder that it lies below. Files may be named from where the caller is."""
    called, call = [], link._call
    monkeypatch.setattr(link, "_call", lambda command, data, what, folder=None: called.append(folder) or call(command, data, what, folder))
    (tmp_path / "a.c").write_text("void _start(void) {}")
    command = [sys.executable, "-m", "ziglang", "cc", "-target", "x86_64-freestanding-none", "-nostdlib"]  # it builds no library here
    for folder, file in ((tmp_path, "a.c"), (tmp_path.parent, f"{tmp_path.name}/a.c")):
        monkeypatch.chdir(folder)
        assert link.link_program(Target.named("x86-64-v3"), [file], Path("program"), command).is_file() and (folder / "program").is_file()
    assert called == [Path(importlib.util.find_spec("ziglang").origin).parent] * 2


def test_an_artifact_that_needs_libm_says_so(tmp_path):
    """A float64 fma where the processor has none is the C library's; a program of integers needs no such library."""
    f64, ints = Tensor(np.linspace(-3, 3, 16)), Tensor(np.arange(4, dtype="i4"))
    dumped(F.exp, tmp_path / "f.tgn", f64)
    dumped(lambda x: x + 1, tmp_path / "i.tgn", ints)
    for name, needed in (("f", True), ("i", False)):
        a = deploy.compile_model(tmp_path / f"{name}.tgn", "x86-64", tmp_path / name, name)
        header, example = (Path(a.files[i]).read_text() for i in (1, 3))
        assert ("fma" in read_object(Path(a.files[0]).read_bytes()).needed) is needed
        assert ("needs only libc and libm." in header) is needed and (" -lm " in example) is needed
        assert ("INTERFACE m)" in Path(deploy.package(a, "cmake")[0]).read_text()) is needed
        assert "and functions before or behind it" not in header
        if HOST.arch == "x86_64":
            assert verify(tmp_path / f"{name}.tgn", tmp_path / name).status == "equal"
