"""C sources in place of objects: a C compiler makes programs of them that give the bytes of eager calls."""

from __future__ import annotations

import shutil
import subprocess

import numpy as np
import pytest
from exhaustive import but
from models import mlp

import tengen.functional as F
import tengen.module as M
from tengen import Tensor, load_graph, random, trace
from tengen.base.errors import CompileError, ConfigError
from tengen.deploy import compile_model, package
from tengen.deploy.csource import c_source
from tengen.models import lenet
from tengen.quantization import ptq

COMPILER = shutil.which("gcc") or shutil.which("cc")
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="no C compiler")
STRICT = ["-std=c99", "-O1", "-ffp-contract=off", "-Wall", "-Wextra", "-Werror", "-Wno-unused", "-Wno-unknown-pragmas"]


def drawn(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype("float32")


def floats():
    random.seed(2)
    return lenet().eval(), (drawn(1, 1, 32, 32),)


def sequence():
    random.seed(3)
    cells = M.LSTM(5, 9)
    return lambda x: cells(x)[0], (drawn(4, 2, 5),)


def numbers():
    """Casts of what does not fit, comparisons with NaN, shifts, quotients, math functions, gathers and rows that are not whole vectors."""
    special = [np.nan, np.inf, -np.inf, -0.0, 1e30, -1e30, 2.5, -3.5, 127.6, -0.4]

    def f(x, i):
        wide = F.astype(x, "float64")
        return (
            F.astype(x, "int8"), F.astype(x, "uint16"), F.astype(wide, "int64"), F.astype(x * 1e6, "uint32"), F.astype(wide * 3.7, "float32"),
            F.where(x < 1.5, x, -x), F.maximum(x, 0.25), F.floor(x) + F.round(x), F.sqrt(F.abs(x)), F.exp(x), F.tanh(x), F.sin(x),
            i // 3, i % -5, i << 2, i >> 1, i * i, F.astype(i, "int16") * F.astype(i, "int16"), F.sum(x[:3], axis=0), i[i % 7],
            F.astype(x > 0, "int32"), F.mean(F.reshape(wide, (2, -1)), axis=1),
        )  # fmt: skip

    x = np.resize(np.array([*special, *drawn(13) * 9], "float32"), 38)
    return f, (x, np.arange(-19, 19, dtype="int32") * 40507 % 90001 - 45000)


def made(folder, f, inputs, target):
    """(the program's outputs as bytes, those of the eager calls)."""
    xs = [Tensor(x) for x in inputs]
    trace(f, example_input=tuple(xs)).dump(folder / "m.tgn")
    return ran(folder, folder / "m.tgn", inputs, target), f(*xs)


def ran(folder, model, inputs, target="riscv64", **how):
    a = compile_model(model, target, folder, name="m", **how)
    assert package(a, "c") == [str(folder / "m.c")]
    files = [str(folder / "m_main.c"), str(folder / "m.c")]
    subprocess.run([COMPILER, *STRICT, "-o", str(folder / "m"), *files, "-lm"], check=True)
    data = b"".join(x.tobytes() for x in inputs)
    return subprocess.run([str(folder / "m"), str(folder / "m.bin")], input=data, capture_output=True, check=True).stdout


@but(these=["floats"])
@needs_compiler
@pytest.mark.parametrize("case, target", [(floats, "riscv64"), (sequence, "x86-64-v3"), (numbers, "riscv64")])
def test_bytes_are_those_of_eager_calls(case, target, tmp_path):
    got, want = made(tmp_path, *case(), target)
    at = 0
    for t in want if isinstance(want, tuple) else (want,):
        a = t.numpy()
        b = np.frombuffer(got[at : at + a.nbytes], a.dtype).reshape(a.shape)
        at += a.nbytes
        same = (a.view(f"u{a.itemsize}") == b.view(f"u{a.itemsize}")) | ((a != a) & (b != b))  # a NaN has no promised payload
        assert same.all(), (a, b)
    assert at == len(got)


@needs_compiler
def test_integers(tmp_path):
    random.seed(4)
    x = drawn(2, 1, 32, 32)
    q = ptq(lenet().eval(), Tensor(x))
    q.save(tmp_path / "m.tgn")
    assert {"conv_int", "matmul_int"} <= {n.op for n in q.graph.nodes}
    got = ran(tmp_path, tmp_path / "m.tgn", [x], extents={"batch": 2})
    assert got == load_graph(tmp_path / "m.tgn")(Tensor(x)).numpy().tobytes()


def test_what_c_cannot_say_is_told(tmp_path):
    mlp()[0].dump(tmp_path / "m.tgn")
    for how, why in (({"threads": 2}, "for 2 threads"), ({"pool": True}, "for a pool")):
        with pytest.raises(ConfigError, match=why):
            package(compile_model(tmp_path / "m.tgn", "riscv64", tmp_path, **how), "c")
    body = "define void @f(ptr %a) {{\nentry:\n{}\n  ret void\n}}"
    for line, why in [
        ("  %v = load half, ptr %a, align 2", "no type half"),
        ("  %v = atomicrmw add ptr %a, i64 1 seq_cst", "atomicrmw"),
        ("  %v = call <8 x i32> @llvm.x86.avx2.pmadd.wd(<16 x i16> zeroinitializer, <16 x i16> zeroinitializer)", "of one processor"),
        ("  %v = add i128 1, 2", "128 bits"),
    ]:
        with pytest.raises(CompileError, match=why):
            c_source(body.format(line))
    with pytest.raises(CompileError, match="threads=1"):
        c_source("@lock = internal global i32 0")
