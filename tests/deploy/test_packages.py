"""The other forms of an artifact: each is built by its own tools, and gives the model's bytes. What is not installed is skipped aloud."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import models
import numpy as np
import pytest
from exhaustive import but
from needs import needs
from recorded import dumped

import tengen
import tengen.module as M
from tengen import Tensor, deploy
from tengen.base.dtype import float32, int32
from tengen.base.errors import ConfigError, FileFormatError, TengenError
from tengen.codegen.targets import Target
from tengen.deploy import javascript, wrappers
from tengen.deploy.ctext import Interface, Region, example_text, header_text
from tengen.deploy.emulators import runners
from tengen.deploy.model import Port
from tengen.deploy.objects import read_object
from tengen.deploy.packages import FORMS, archive
from tengen.deploy.run import link_program
from tengen.loops.lang import var


@pytest.fixture(scope="module")
def mlp(tmp_path_factory):
    """(the model, its input, the bytes of its output, a folder that is made for each target)."""
    home = tmp_path_factory.mktemp("forms")
    f, x, y = models.mlp()
    f.dump(home / "mlp.tgn", arg_names=["image"], output_names=["scores"])
    return tengen.load_graph(home / "mlp.tgn"), x.numpy(), y.numpy().tobytes(), home


def made(mlp, target, *forms):
    model, _, _, home = mlp
    a = deploy.compile_model(model, target, home / target, "mlp")
    return home / target, [deploy.package(a, form) for form in forms]


def tool(name):
    return pytest.mark.skipif(shutil.which(name) is None, reason=f"{name} is not installed")


def call(*command, cwd, given=None):
    done = subprocess.run(list(map(str, command)), cwd=cwd, input=given, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    return done.stdout


def linked_before(target):
    """Skips a test that would make zig build Windows's C library, which takes minutes; what it has built once is kept."""
    home = Path(os.environ.get("ZIG_GLOBAL_CACHE_DIR") or Path.home() / ".cache" / "zig")
    if target.startswith("windows") and not any(home.glob("o/*/__mingw_fix_stat_path.obj")):
        pytest.skip("zig has not built a C library for Windows yet: python -m ziglang cc -target x86_64-windows-gnu a.c does")


@needs("ziglang")
def test_python(mlp):
    folder, _ = made(mlp, "x86-64-v3" if Target.machine().arch == "x86_64" else "aarch64", "python")
    spec = importlib.util.spec_from_file_location("mlp_by_ctypes", folder / "mlp.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    one, other = module.Model(), module.Model()  # several at once
    for model in (one, other):
        (scores,) = model.run(mlp[1])
        assert scores.tobytes() == mlp[2] and scores.shape == (3, 5) and scores.format == "f"
    for wrong in (mlp[1][:2], mlp[1].astype("f8"), mlp[1].view("i4"), np.zeros((3, 7, 2), "f2").astype("f4")):
        with pytest.raises(ValueError, match="84 bytes of format 'f'"):
            one.run(wrong)
    with pytest.raises(TypeError, match="2 inputs given, mlp takes 1"):
        one.run(mlp[1], mlp[1])
    (folder / "cut.bin").write_bytes((folder / "mlp.bin").read_bytes()[:-64])
    (folder / "other.bin").write_bytes((folder / "mlp.bin").read_bytes()[:-64] + b"\1" * 64)
    for file in ("cut.bin", "other.bin"):
        with pytest.raises(ValueError, match="not belong to libmlp.so"):
            module.Model(weights=folder / file)


@needs("ziglang")
def test_dtypes_in_python(tmp_path):
    x, z = np.random.default_rng(0).standard_normal((2, 3, 4)).astype("f4"), np.array([1 + 2j, 3 - 1j], "c8")
    f = lambda x, z, h, n: (x.astype("float16"), x > 0, x.sum(), n + 1, h.astype("float32"), z * z, x.astype("float64"))
    given = [x, z, x[0].astype("f2"), np.arange(5, dtype="i8")]
    dumped(f, [tengen.Tensor(a) for a in given], tmp_path / "m.tgn")
    m = tengen.load_graph(tmp_path / "m.tgn")
    deploy.package(deploy.compile_model(m, "native", tmp_path, "kinds"), "python")
    spec = importlib.util.spec_from_file_location("kinds_by_ctypes", tmp_path / "kinds.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for got, want in zip(module.Model().run(*given), m(*given)):
        want = want.numpy()
        assert np.asarray(got).tobytes() == want.tobytes() and got.shape[: want.ndim] == want.shape


@tool("g++")
@tool("cmake")
def test_cpp_static_library_and_cmake(mlp, tmp_path):
    folder, _ = made(mlp, "native", "static", "cpp", "cmake")
    (tmp_path / "main.cpp").write_text("""#include <vector>
#include "mlp.hpp"
int main(int argc, char **argv) {
    mlp::Model model(argc > 1 ? argv[1] : "mlp.bin"), missing("nothing.bin");
    std::vector<float> image(21), scores(15);
    if (!model.ok() || missing.ok() || std::fread(image.data(), 4, 21, stdin) != 21 || missing.run(image.data(), scores.data()) != 1) return 2;
    if (int code = model.run(image.data(), scores.data())) return code;
    return std::fwrite(scores.data(), 4, 15, stdout) != 15;
}
""")
    (tmp_path / "CMakeLists.txt").write_text(f"""cmake_minimum_required(VERSION 3.13)
project(t CXX)
set(CMAKE_CXX_STANDARD 17)
add_compile_options(-Wall -Wextra -Werror)
include("{folder}/mlp.cmake")
add_executable(by_object main.cpp)
target_link_libraries(by_object PRIVATE mlp)
add_executable(by_library main.cpp)
target_include_directories(by_library PRIVATE "{folder}")
target_link_libraries(by_library PRIVATE "{folder}/libmlp.a")
""")
    call("cmake", "-S", ".", "-B", "out", cwd=tmp_path)
    call("cmake", "--build", "out", cwd=tmp_path)
    for program in ("by_object", "by_library"):
        assert call(tmp_path / "out" / program, folder / "mlp.bin", cwd=tmp_path, given=mlp[1].tobytes()) == mlp[2]


@tool("gcc")
def test_weights_in_the_program(mlp, tmp_path):
    """And two models in one program: only their own names are visible."""
    folder, ((weights, header),) = made(mlp, "native", "section")
    deploy.compile_model(mlp[0], "native", folder, "other")
    (tmp_path / "main.c").write_text("""#include <stdio.h>
#include "mlp.h"
#include "mlp_weights.h"
#include "other.h"
static _Alignas(64) unsigned char workspace[MLP_WORKSPACE_BYTES];
int main(void) {
    float image[21], scores[15], again[15];
    if (sizeof mlp_weights != MLP_WEIGHTS_BYTES || mlp_check(mlp_weights, sizeof mlp_weights) || fread(image, 4, 21, stdin) != 21) return 2;
    if (mlp_run(mlp_weights, workspace, image, scores) || other_run(mlp_weights, workspace, image, again)) return 3;
    if (mlp_run(NULL, workspace, image, scores) != 1 || mlp_run(mlp_weights + 1, workspace, image, scores) != 2) return 4;
    return fwrite(scores, 4, 15, stdout) != 15 || fwrite(again, 4, 15, stdout) != 15;
}
""")
    files = ["main.c", folder / "mlp.o", weights, folder / "other.o"]
    call("gcc", "-Wall", "-Werror", f"-I{folder}", *files, "-o", "program", cwd=tmp_path)
    assert call(tmp_path / "program", cwd=tmp_path, given=mlp[1].tobytes()) == 2 * mlp[2] and Path(header).name == "mlp_weights.h"


@tool("cargo")
def test_rust(mlp, tmp_path):
    folder, _ = made(mlp, "native", "rust")
    crate = folder / "mlp-rust"
    (crate / "examples").mkdir(exist_ok=True)
    (crate / "examples" / "run.rs").write_text("""use std::io::{Read, Write};
fn main() {
    let mut bytes = Vec::new();
    std::io::stdin().read_to_end(&mut bytes).unwrap();
    let image: Vec<f32> = bytes.chunks(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect();
    let mut scores = vec![0f32; 15];
    let weights = include_bytes!("../mlp.bin");
    assert!(mlp::Model::new(&weights[64..]).is_err());
    let mut model = mlp::Model::new(weights).unwrap();
    assert_eq!(model.run(&image[1..], &mut scores), Err(-2));
    model.run(&image, &mut scores).unwrap();
    for s in scores { std::io::stdout().write_all(&s.to_le_bytes()).unwrap(); }
}
""")
    try:
        out = call("cargo", "run", "--offline", "-q", "--example", "run", "--target-dir", tmp_path, cwd=crate, given=mlp[1].tobytes())
    except AssertionError as e:
        if "no default" in str(e) or "could not be found" in str(e):
            pytest.skip(f"cargo does not run: {e}")
        raise
    assert out == mlp[2]


@needs("ziglang")
@tool("node")
@pytest.mark.parametrize("target", ["wasm32-exact"])
def test_javascript(mlp, target):
    folder, _ = made(mlp, target, "javascript")
    (folder / "run.mjs").write_text("""import { load } from './mlp.mjs';
import fs from 'node:fs';
const bytes = fs.readFileSync(0), image = new Float32Array(bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length));
const model = await load(), other = await load({ wasm: fs.readFileSync('mlp.wasm'), weights: fs.readFileSync('mlp.bin') });
const { scores } = model.run({ image }), again = other.run({ image }).scores;
if (Buffer.compare(Buffer.from(scores.buffer), Buffer.from(again.buffer))) throw new Error('two instances differ');
for (const wrong of [{}, { image: new Float32Array(3) }, { image: new Int32Array(21) }])
  try { model.run(wrong); throw new Error('taken'); } catch (e) { if (!(e instanceof TypeError)) throw e; }
try { await load({ weights: new Uint8Array(7) }); throw new Error('taken'); } catch (e) { if (!/has 7 bytes/.test(e.message)) throw e; }
fs.writeFileSync(1, Buffer.from(scores.buffer));
""")
    assert call("node", "run.mjs", cwd=folder, given=mlp[1].tobytes()) == mlp[2]
    types = (folder / "mlp.d.ts").read_text()
    assert "/** float32[3, 7] */\n  image: Float32Array;" in types and "scores: Float32Array;" in types


@but(every=2)
@needs("ziglang")
@pytest.mark.parametrize("target, form, names", [
    ("windows-x86-64", "shared", ["mlp.dll"]),
    ("macos-arm64", "shared", ["libmlp.dylib"]),
    ("riscv64", "shared", ["libmlp.so"]),
    ("android-arm64", "android", ["libmlp.so", "mlp.h", "mlp.bin"]),
])  # fmt: skip
def test_shared_libraries_of_other_systems(mlp, target, form, names):
    linked_before(target)
    _, (files,) = made(mlp, target, form)
    assert [Path(f).name for f in files] == names
    data = Path(files[0]).read_bytes()
    assert data[:2] == b"MZ" or data[:4] in (b"\x7fELF", b"\xcf\xfa\xed\xfe")
    assert b"mlp_run\0" in data and b"mlp_check\0" in data
    if tool := shutil.which("llvm-objdump"):
        text = call(tool, "-d", files[0], cwd=".").decode()
        assert {"windows-x86-64": "vfmadd", "riscv64": "fmadd.s"}.get(target, "fmla") in text


def test_arduino(mlp):
    folder, (files,) = made(mlp, "cortex-m4", "arduino")
    home = folder / "mlp-arduino"
    assert "precompiled=full" in (home / "library.properties").read_text()
    assert (home / "src" / "cortex-m4" / "libmlp.a").read_bytes()[:8] == b"!<arch>\n"
    assert len(files) == 5 and "mlp_weights[" in (home / "src" / "mlp_weights.c").read_text()


@needs("ziglang")
@pytest.mark.parametrize("target, ending", [("windows-x86-64", ".exe"), ("macos-arm64", "")])
def test_programs_of_other_systems_link(mlp, target, ending, tmp_path):
    linked_before(target)
    folder, _ = made(mlp, target)
    program = link_program(Target.named(target), [str(folder / "mlp_main.c"), str(folder / "mlp.o")], tmp_path / "mlp")
    assert program.name == f"mlp{ending}" and program.stat().st_size > 2000


@but(these=["x86-64"])
@needs("ziglang")
@pytest.mark.parametrize("target", ["x86-64", "wasm32"])
def test_the_first_op_that_differs_is_named(target, mlp, tmp_path):
    """Products of sums round twice on these targets: the first matrix product differs, as they say."""
    model, x, _, home = mlp
    deploy.compile_model(model, target, tmp_path, "mlp")
    deploy.compile_model(model, f"{target}-exact", tmp_path, "exact")
    if not runners(Target.named(target)):
        pytest.skip("no emulator is installed")
    v = deploy.verify_artifact(model, tmp_path, target=target)
    assert v.status == "different" and "the first op that differs is matmul(f32[3,7], f32[7,19])" in v.how and "no fused multiply-add" in v.how
    assert deploy.verify_artifact(model, tmp_path, target=f"{target}-exact").status == "equal"
    with pytest.raises(FileFormatError, match="holds no artifact for riscv64; help: tengen compile --target riscv64"):
        deploy.verify_artifact(model, tmp_path, target="riscv64")


@but(these=["cortex-m4"])
@needs("ziglang")
@pytest.mark.parametrize("target", ["cortex-m4", "cortex-m7"])
def test_weights_beyond_the_first_memory_of_the_board(target, tmp_path):
    """6 MB of weights; the board has 4 MB of memory, and more of a slower kind."""
    if not runners(Target.named(target)):
        pytest.skip("qemu-system-arm is not installed")
    x = Tensor(np.arange(1024, dtype="f4").reshape(1, 1024) / 1024)
    dumped(M.Linear(1024, 1500), [x], tmp_path / "large.tgn")
    deploy.compile_model(tmp_path / "large.tgn", target, tmp_path, "large")
    assert deploy.verify_artifact(tmp_path / "large.tgn", tmp_path, runs=1).status == "equal"


def test_windows_under_wine(mlp):
    target = Target.named("windows-x86-64")
    folder, _ = made(mlp, "windows-x86-64")
    if not runners(target):
        pytest.skip("wine is not installed")
    v = deploy.verify_artifact(mlp[0], folder)
    assert v.status == "equal", v


def test_an_archive_has_an_index(mlp):
    folder, _ = made(mlp, "native")
    data = (folder / "mlp.o").read_bytes()
    library = archive([("a.o", data), ("b.o", data + b"\0")])
    assert library == archive([("a.o", data), ("b.o", data + b"\0")])
    at = int.from_bytes(library[68:72], "big")
    assert at == 2 * len(read_object(data).defined)
    first, last = (int.from_bytes(library[i : i + 4], "big") for i in (72, 68 + 4 * at))
    assert library[first : first + 4] == b"a.o/" and library[last : last + 4] == b"b.o/" and library[first + 60 :][:4] == b"\x7fELF"


def face(inputs, outputs, opened=False):
    """An interface with everything in it: weights, a state, scratch memory, a pool; open: a batch too."""
    batch = var("batch") if opened else 2
    ports = lambda names: tuple(Port(name, (batch, 3), float32) for name in names)
    return Interface(
        "m", "x86-64-v3", "cpu", "Linux", 1, ports(inputs), ports(outputs), 64, 1, batch * 64, (Region(0, 64),), (Region(0, 64),), 0, 64, None,
        ranges={"batch": range(1, 9)} if opened else {}, pool=True,
    )  # fmt: skip


@tool("g++")
@pytest.mark.parametrize("opened", [False, True])
def test_inputs_of_every_name_make_texts_that_compile(opened, tmp_path):
    """Inputs named as each word that the texts use, as keywords of C and C++, and as macros of the headers."""
    neutral = face(["a"], ["b"], opened)
    texts = header_text(neutral) + example_text(neutral) + wrappers.cpp_text(neutral)
    words = {w for w in re.findall(r"[A-Za-z_]\w*", texts)} | {"m", "M_X_BYTES", "m_run", "image", "image_bytes"}
    words |= set("and asm bool catch char8_t class co_await concept const_cast delete explicit export friend int new operator private "
                 "register template this throw try typename typeof using virtual xor".split())  # fmt: skip
    includes = "".join(f"#include <{h}.h>\n" for h in ("stddef", "stdint", "stdio", "stdlib"))
    macros = call("gcc", "-dM", "-E", "-", cwd=tmp_path, given=includes.encode()).decode()
    words |= {line.split()[1] for line in macros.splitlines() if re.match(r"#define [A-Za-z]\w* ", line)}
    f = face(sorted(words), ["b", "out"], opened)
    for name, text in {"m.h": header_text(f), "m.hpp": wrappers.cpp_text(f), "m_main.c": example_text(f)}.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "use.cpp").write_text('#include "m.hpp"\nbool use() { m::Model model; return model.ok(); }\n')
    call("gcc", "-Wall", "-Wextra", "-Werror", "-c", "m_main.c", cwd=tmp_path)
    call("g++", "-std=c++20", "-Wall", "-Wextra", "-Werror", "-c", "use.cpp", cwd=tmp_path)
    if not opened:
        module = javascript.module_text(face(["x"], ["x"]))
        assert "const { x2 } = model.run({ x });" in module  # the names that the module takes and gives
        exec(compile(wrappers.python_text(f, "libm.so"), "m.py", "exec"), {"__file__": "m.py"})


def two(tmp_path, *forms):
    """Folders of two artifacts of one name, whose runs take inputs of the same types in another order."""
    given = [Tensor(np.zeros((2, 3), "f4"))] * 2
    for name, f in {"one": lambda image, mask: image - mask, "other": lambda mask, image: image - mask}.items():
        traced = tengen.trace(f, example_input=tuple(given))
        traced.dump(tmp_path / f"{name}.tgn", arg_names=["image", "mask"] if name == "one" else ["mask", "image"])
        made = deploy.compile_model(tmp_path / f"{name}.tgn", "native", tmp_path / name, "m")
        for form in forms:
            deploy.package(made, form)
    return tmp_path / "one", tmp_path / "other"


@tool("gcc")
@tool("g++")
def test_files_of_different_compilations_do_not_build(tmp_path):
    """A header, an object, a library or a wrapper that was left of an older compilation, whose run takes its arguments in another order."""
    one, other = two(tmp_path, "static", "cpp")
    build = lambda *words: subprocess.run([*words, "-o", tmp_path / "program"], capture_output=True, text=True)
    for code in ("m.o", "libm.a"):
        assert build("gcc", one / "m_main.c", one / code).returncode == 0
        done = build("gcc", one / "m_main.c", other / code)
        assert done.returncode and re.search("undefined reference to .m_run_[0-9a-f]{16}", done.stderr), done.stderr
    mixed = tmp_path / "mixed"
    mixed.mkdir()
    for name, file in {"m.h": one, "m_main.c": other, "m.hpp": other}.items():
        shutil.copy(file / name, mixed)
    (mixed / "use.cpp").write_text('#include "m.hpp"\nint main() { m::Model model; return !model.ok(); }\n')
    for compiler, file, of in (("gcc", "m_main.c", "m_main.c"), ("g++", "use.cpp", "m.hpp")):
        done = build(compiler, mixed / file, one / "m.o")
        assert done.returncode and f"{of} and m.h were made by different compilations; help: write both again" in done.stderr, done.stderr
    shutil.copy(one / "m.hpp", mixed)
    assert build("g++", mixed / "use.cpp", one / "m.o").returncode == 0


@needs("ziglang")
def test_a_library_of_another_compilation_is_not_called_from_python(tmp_path):
    one, other = two(tmp_path, "python")
    shutil.copy(other / "libm.so", one)
    spec = importlib.util.spec_from_file_location("mixed_by_ctypes", one / "m.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with pytest.raises(ValueError, match=r"libm\.so does not belong to this module: another compilation made it"):
        module.Model()


def test_the_digest_of_an_interface():
    """It follows what a caller passes, and nothing else: programs go on with the code of other weights."""
    base = face(["a", "b"], ["c"])
    assert base.digest == replace(base, weights_sum=5, model_sum="x", checks=("no",), target="aarch64").digest
    others = [
        face(["b", "a"], ["c"]), face(["a", "b"], ["d"]), face(["a"], ["b", "c"]), face(["a", "b"], ["c"], opened=True),
        replace(base, weights_bytes=128), replace(base, workspace_bytes=64), replace(base, state_bytes=128), replace(base, states=()),
        replace(base, inputs=tuple(Port(p.name, (3, 2), float32) for p in base.inputs)),
        replace(base, inputs=tuple(Port(p.name, (2, 3), int32) for p in base.inputs)),
        replace(face(["a", "b"], ["c"], opened=True), ranges={"batch": range(1, 5)}),
    ]  # fmt: skip
    assert len({base.digest, *(f.digest for f in others)}) == len(others) + 1


def test_a_users_own_file_is_not_replaced(mlp, tmp_path):
    """`mlp.py` may be the program that trained the network."""
    made = deploy.compile_model(mlp[0], "riscv64", tmp_path, "mlp")
    for form, name in (("c", "mlp.c"), ("cmake", "mlp.cmake"), ("rust", "mlp-rust/src/lib.rs")):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("mine, which imports tengen")
        with pytest.raises(ConfigError, match=f"{name} is there, and is not of Tengen's making; help: name= another one"):
            deploy.package(made, form)
        assert (tmp_path / name).read_text() == "mine, which imports tengen" and len(list(tmp_path.rglob("*.part"))) == 0
        (tmp_path / name).unlink()
        for _ in range(2):
            assert str(tmp_path / name) in deploy.package(made, form)
    f = face(["a"], ["b"])
    for text in (wrappers.python_text(f, "l.so"), javascript.module_text(f), javascript.types_text(f)):
        assert re.search("(compiled|made) by Tengen|Tengen compiled", text[:300])  # so these are asked for as well


def test_refusals(mlp, tmp_path):
    model, _, _, _ = mlp
    a = deploy.compile_model(model, "wasm32", tmp_path / "w", "mlp")
    m4 = deploy.compile_model(model, "cortex-m4", tmp_path / "m", "mlp")
    for artifact, form, message in [
        (a, "exe", "unknown form 'exe'; help: one of static, shared"), (a, "shared", r"no shared library is made for .* \(WebAssembly\)"),
        (a, "android", "is for wasm32; help: .*android-arm64"), (a, "arduino", "cortex-m4"), (m4, "javascript", "help: .*--target wasm32"),
        (m4, "shared", r"no shared library is made for cortex-m4 \(no operating system\); help: static"),
    ]:  # fmt: skip
        with pytest.raises(ConfigError, match=message):
            deploy.package(artifact, form)
    with pytest.raises(ConfigError, match="threads=2: artifacts for wasm32 have one thread"):
        deploy.compile_model(model, "wasm32", tmp_path, "mlp", threads=2)
    step, _ = models.counter()
    x = tengen.Tensor(np.ones(3, "f4"))
    step(x)
    step.dump(tmp_path / "step.tgn")
    with pytest.raises(TengenError, match="has states"):
        deploy.package(deploy.compile_model(tmp_path / "step.tgn", "wasm32", tmp_path, "step"), "javascript")
    assert set(FORMS) >= {"static", "shared", "cpp", "cmake", "python", "rust", "android", "arduino", "javascript"} and sys.version_info
