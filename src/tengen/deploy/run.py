"""Runs an artifact: links its example program by a C compiler of this system or the `ziglang` wheel, and feeds it, here or under qemu.

In: the files that `compile_model` wrote, inputs. Out: outputs, or `CannotRun` with the reason (no linker, no emulator).
"""

from __future__ import annotations

import functools
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from tengen.base.errors import DTypeError, ShapeError, TengenError
from tengen.codegen.targets import Target
from tengen.codegen.targets.system import ANDROID, LINUX, WASM, WINDOWS
from tengen.deploy import bare, freestanding
from tengen.deploy.compile import OPERATORS, Artifact
from tengen.deploy.emulators import CannotRun, runner
from tengen.ir.types import TensorType
from tengen.loops.extents import Numbers
from tengen.loops.lang import var
from tengen.passes.extents import extents_of
from tengen.runtime.progress import progress

STACK_BYTES = 1 << 20  # of a module of WebAssembly
LIMIT_S = 600  # for linking, and for running


def run_artifact(artifact: Artifact, inputs: Sequence[Any]) -> list[np.ndarray]:
    """Runs a compiled model once, in a process of its own without Python.

    Args:
        inputs: arrays or tensors, one for each of `artifact.inputs`.

    Errors: CannotRun when this machine cannot link or run it; ShapeError or DTypeError for other inputs; TengenError when the
    program fails.
    """
    arrays = [np.asarray(x, order="C") for x in inputs]
    if len(arrays) != len(artifact.inputs):
        raise ShapeError(f"{artifact.name}: {len(arrays)} inputs given, it takes {artifact.inputs}")
    for p, a in zip(artifact.inputs, arrays):
        if a.dtype != p.dtype.numpy:
            raise DTypeError(f"{artifact.name}: input {p!r} was given {a.dtype}")
        if not artifact.extents and a.shape != p.shape:
            raise ShapeError(f"{artifact.name}: input {p!r} was given shape {a.shape}")
    types = [TensorType(p.shape, p.dtype) for p in artifact.inputs]
    extents = extents_of(types, [a.shape for a in arrays], [f"{artifact.name}: input {p.name}" for p in artifact.inputs])
    for name, r in artifact.extents.items():
        if extents[name] not in r:
            raise ShapeError(f"{artifact.name} is compiled for {name} in {r}, it was given {extents[name]}")
    number = Numbers({var(name): n for name, n in extents.items()})
    outputs = [(tuple(map(number, p.shape)), p.dtype) for p in artifact.outputs]
    folder = Path(artifact.files[0]).parent
    numbers = [extents[name] for name in artifact.extents]
    got = run_program(folder, artifact.name, artifact.target, b"".join(a.tobytes() for a in arrays), numbers)[0]
    if len(got) != sum(prod(shape) * dtype.size for shape, dtype in outputs):
        raise TengenError(f"{artifact.name}: the program wrote {len(got)} bytes, not {artifact.outputs}")
    found, at = [], 0
    for shape, dtype in outputs:
        n = prod(shape) * dtype.size
        found.append(np.frombuffer(got, np.uint8, n, at).view(dtype.numpy).reshape(shape))
        at += n
    return found


def run_program(folder: Path, name: str, target: str, data: bytes, extents: Sequence[int] = ()) -> tuple[bytes, str]:
    """(what the example program answers to these bytes, how it was run). extents: numbers for those that are open. CannotRun,
    TengenError."""
    made_for = Target.named(target)
    command, how = runner(made_for)
    with tempfile.TemporaryDirectory(prefix="tengen-run-") as build:
        program = _link(folder, name, made_for, Path(build))
        weights = Path(build, "weights.bin")
        shutil.copyfile(folder / f"{name}.bin", weights)
        arguments = [str(weights) if made_for.system.files else weights.name, *map(str, extents)]
        out = call_program(made_for, command, program, arguments, data)
    return out, how


def linker(target: Target) -> list[str]:
    """The command that makes a program of C and object files, to be run by `runner`: a C compiler of this system's, else zig's.

    zig takes this machine's libc for this machine, where that is glibc (2.17 or newer); otherwise a static one, which it builds when
    it is first asked: half a minute of processor time, and then it is kept. `link_program` needs it for programs with threads, and for
    those that call more of it than an example does (`freestanding.py`).

    Errors: CannotRun where there is neither.
    """
    mine, arch, system = Target.machine(), target.architecture, target.system
    own = arch is mine.architecture and system is mine.system
    names = ("cc", "gcc", "clang") if own else (f"{arch.name}-linux-gnu-gcc",) if system is LINUX else ()
    cannot = ""  # what a compiler that is there says
    for found in filter(None, map(shutil.which, names)):
        command = [found, "-O1", "-pthread", *([] if own else ["-static"])]
        complaint = _complaint(tuple(command))
        if not complaint:
            return command
        cannot = cannot or f"; {found} does not make a program ({complaint})"
    if importlib.util.find_spec("ziglang") is None:
        compilers = "there is no cross compiler"
        if names:
            working = "that works " if cannot else ""
            compilers = f"{'no' if cannot else 'neither'} {(' or ' if cannot else ' nor ').join(names)} {working}is in PATH"
        raise CannotRun(
            f"nothing here links a program for {arch.name}: {compilers}, nor is the wheel `ziglang` installed{cannot}; "
            "help: pip install 'tengen[deploy]'"
        )
    zig = [sys.executable, "-m", "ziglang", "cc", "-O1"]
    if own and platform.libc_ver()[0] == "glibc":
        return [*zig, "-lpthread", "-target", f"{arch.name}-linux-gnu.2.17"]
    return [*zig, "-target", *(target.level.c_triple or arch.c_triple).split(), *(["-lpthread", "-static"] if system.threads else [])]


def linked_by(target: Target) -> str:
    """The name of what `linker` calls. Errors: CannotRun."""
    command = linker(target)
    return "zig" if "ziglang" in command else os.path.basename(command[0])


@functools.cache
def _complaint(command: tuple[str, ...]) -> str:
    """What a C compiler says where it cannot make a small program with the headers that an example includes, as one without the C
    library's headers; "" where it can."""
    with tempfile.TemporaryDirectory(prefix="tengen-cc-") as folder:
        source = Path(folder, "a.c")
        source.write_text("#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\nint main(void) { return puts(strerror(0)) < 0; }\n")
        try:
            done = _call([*command, "-o", str(Path(folder, "a")), str(source)], b"", "a test of the compiler")
        except TengenError as e:
            return str(e)
        return _last(done.stderr) if done.returncode else ""


def _link(folder: Path, name: str, target: Target, build: Path) -> Path:
    own = sorted(str(p) for p in folder.iterdir() if re.fullmatch(re.escape(name) + OPERATORS, p.name))
    files = [str(folder / f"{name}_main.c"), str(folder / f"{name}.o"), *own, *(["-lm"] if own else [])]
    command = [*linker(target), "-O2", "-ffp-contract=off"] if own else _command(target, files, build)
    by = "zig" if "ziglang" in command else command[0]
    slow = by == "zig" and "-ffreestanding" not in command and target.architecture is not Target.machine().architecture
    by += ", which builds a C library for it when it is first asked" if slow else ""
    with progress.waiting(f"linking {name} for {target.name} by {by}"):
        return link_program(target, files, build / name, command)


def link_program(target: Target, files: Sequence[str], program: Path, command: Sequence[str] | None = None) -> Path:
    """Links C and object files to a program, by the command of `linker`; by zig without a C library where `freestanding.py` is enough.
    Errors: CannotRun without a linker; TengenError where it fails."""
    program = Path(os.path.abspath(program))
    command = _command(target, files, program.parent) if command is None else command
    command = [*command, *([] if target.system.files else bare.linking(program.parent))]
    program = program.with_suffix(".exe") if target.system is WINDOWS else program
    math = ["-lm"] if "fma" in target.lacks and target.system is LINUX and "-ffreestanding" not in command else []  # fma of float64
    done = _called(command, program, [*files, *math])
    if done.returncode:
        raise TengenError(f"linking {program.name} for {target.name} failed: {_last(done.stderr)}")
    return program


def _command(target: Target, files: Sequence[str], folder: Path) -> list[str]:
    """How these files are linked. folder: for more files, which are linked too."""
    command = linker(target)
    if "ziglang" not in command or target.architecture is Target.machine().architecture or not freestanding.enough(target, files):
        return command
    return [*command[: command.index("cc") + 1], *freestanding.linking(target, folder)]


def link_library(target: Target, files: Sequence[str], library: Path, exported: Sequence[str] = ()) -> Path:
    """Links object files to a shared library, or a module of WebAssembly that gives out some names. Errors: as `link_program`."""
    command = linker(target)
    if target.system is WASM:
        i = command.index("-target")
        command[i + 1] = command[i + 1].replace("wasi", "freestanding")
        options = ["-s", "-Wl,--no-entry", "-Wl,--export-memory", f"-Wl,-z,stack-size={STACK_BYTES}"]
        options += [f"-Wl,--export={name}" for name in exported]
    else:
        names = {LINUX: f"-Wl,-soname,{library.name}", ANDROID: f"-Wl,-soname,{library.name}", WINDOWS: "-Wl,--export-all-symbols"}
        options = ["-shared", *filter(None, [names.get(target.system)])]
        if "-static" in command:  # zig's C library, which is another than that of the process that loads this: it has what is needed
            command = [c for c in command if c not in ("-static", "-lpthread")]
            options.append("-nostdlib")
    done = _called([*command, *options], library, files)
    if done.returncode:
        raise TengenError(f"linking {library.name} for {target.name} failed: {_last(done.stderr)}")
    return library


def _called(command: Sequence[str], made: Path, files: Sequence[str]) -> subprocess.CompletedProcess:
    """Calls a linker. zig is called in its own folder: it keeps what it has built of its C library under the name that the library's
    sources have from where it is called, and would build it once more for each folder that it lies below."""
    spec = importlib.util.find_spec("ziglang") if "ziglang" in command else None
    home = Path(spec.origin).parent if spec is not None and spec.origin else None
    paths = [f if f.startswith("-") else os.path.abspath(f) for f in files]
    return _call([*command, "-o", os.path.abspath(made), *paths], b"", "linking", home)


def call_program(target: Target, command: Sequence[str], program: Path, arguments: Sequence[str], data: bytes) -> bytes:
    """What a program answers to its standard input, run by a command of `runners`. Errors: TengenError where it fails."""
    if target.system.files:
        return _run([*command, str(program), *arguments], data)
    folder = program.parent
    (folder / bare.INPUT).write_bytes(data)
    _run([*command, *bare.running(program, list(arguments))], b"", folder)
    return (folder / bare.OUTPUT).read_bytes()


def _run(command: list[str], data: bytes, folder: Path | None = None) -> bytes:
    done = _call(command, data, "running", folder)
    if done.returncode:
        raise TengenError(f"the program ended with code {done.returncode}: {_last(done.stderr)}")
    return done.stdout


def _call(command: list[str], data: bytes, what: str, folder: Path | None = None) -> subprocess.CompletedProcess:
    try:
        return subprocess.run(command, input=data, capture_output=True, timeout=LIMIT_S, cwd=folder)
    except (OSError, subprocess.TimeoutExpired) as e:
        raise TengenError(f"{what} failed: {e}") from e


def _last(text: bytes) -> str:
    lines = text.decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else "it said nothing"
