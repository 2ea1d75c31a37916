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
from tengen.base.files import read_regular
from tengen.codegen.targets import ARCHITECTURES, Architecture, Target
from tengen.deploy.compile import OPERATORS, Artifact
from tengen.deploy.elf import machine
from tengen.ir.types import TensorType
from tengen.loops.extents import Numbers
from tengen.loops.lang import var
from tengen.passes.extents import extents_of
from tengen.runtime.progress import progress

LIMIT_S = 600  # for linking, and for running


class CannotRun(TengenError):
    """An artifact that cannot run on this machine, with the reason: no linker, no emulator, another processor."""


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
    arch = ARCHITECTURES[machine(read_regular(folder / f"{name}.o"))]
    runner = _runner(target, arch)
    with tempfile.TemporaryDirectory(prefix="tengen-run-") as build:
        program = _link(folder, name, arch, Path(build))
        out = _run([*runner, str(program), str(folder / f"{name}.bin"), *map(str, extents)], data)
    return out, " ".join(os.path.basename(r) for r in runner) or "natively"


def _runner(target: str, arch: Architecture) -> list[str]:
    """The command before the program. CannotRun."""
    host = Target.machine()
    if arch is host.architecture:
        if why := Target.named(target).why_not_here():
            raise CannotRun(why)
        return []
    for emulator in arch.emulators:
        if found := shutil.which(emulator):
            return [found]
    raise CannotRun(f"{arch.emulators[0]}, which runs it on this {host.arch} machine, is not in PATH; help: apt install qemu-user")


def linker(arch: Architecture) -> list[str]:
    """The command that makes a program of C and object files, to be run by `_runner`: a C compiler of this system's, else zig's.

    zig takes this machine's libc for this machine, where that is glibc (2.17 or newer); otherwise a static one, which it builds when
    it is first asked: a minute of processor time, and then it is kept.

    Errors: CannotRun where there is neither.
    """
    own = arch.name == Target.machine().arch
    names = ("cc", "gcc", "clang") if own else (f"{arch.name}-linux-gnu-gcc",)
    cannot = ""  # what a compiler that is there says
    for found in filter(None, map(shutil.which, names)):
        command = [found, "-O1", "-pthread", *([] if own else ["-static"])]
        complaint = _complaint(tuple(command))
        if not complaint:
            return command
        cannot = cannot or f"; {found} does not make a program ({complaint})"
    if importlib.util.find_spec("ziglang") is None:
        raise CannotRun(
            f"nothing here links a program for {arch.name}: {'no' if cannot else 'neither'} {(' or ' if cannot else ' nor ').join(names)} "
            f"{'that works ' if cannot else ''}is in PATH, nor is the wheel `ziglang` installed{cannot}; help: pip install 'tengen[deploy]'"
        )
    libc = [f"{arch.name}-linux-gnu.2.17"] if own and platform.libc_ver()[0] == "glibc" else [arch.c_triple, "-static"]
    return [sys.executable, "-m", "ziglang", "cc", "-O1", "-lpthread", "-target", *libc]


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


def _link(folder: Path, name: str, arch: Architecture, build: Path) -> Path:
    program = build / name
    command = linker(arch)
    by = "zig, which builds a C library for it when it is first asked" if "ziglang" in command else command[0]
    with progress.waiting(f"linking {name} for {arch.name} by {by}"):
        own = sorted(str(p) for p in folder.iterdir() if re.fullmatch(re.escape(name) + OPERATORS, p.name))
        command += ["-O2", "-ffp-contract=off"] if own else []
        more = [*own, "-lm"] if own else []
        files = [str(folder / f"{name}_main.c"), str(folder / f"{name}.o"), *more]
        done = _call([*command, "-o", str(program), *files], b"", "linking")
    if done.returncode:
        raise TengenError(f"linking {folder / name}.o failed: {_last(done.stderr)}")
    return program


def _run(command: list[str], data: bytes) -> bytes:
    done = _call(command, data, "running")
    if done.returncode:
        raise TengenError(f"the program ended with code {done.returncode}: {_last(done.stderr)}")
    return done.stdout


def _call(command: list[str], data: bytes, what: str) -> subprocess.CompletedProcess:
    try:
        return subprocess.run(command, input=data, capture_output=True, timeout=LIMIT_S)
    except (OSError, subprocess.TimeoutExpired) as e:
        raise TengenError(f"{what} failed: {e}") from e


def _last(text: bytes) -> str:
    lines = text.decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else "it said nothing"
