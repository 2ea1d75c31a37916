"""What a test needs of the machine beyond Python: an instruction set, an emulator, a C compiler. A test that lacks it is skipped
with the reason, which pytest prints at the end with the number of tests, so that nobody takes it for one that passed."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import shutil
import struct
from pathlib import Path

import pytest
from packaging.version import Version

from tengen.codegen.targets import Target
from tengen.deploy.run import CannotRun, linker

QEMU = shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static")
_WITHOUT = {
    "qemu": "" if QEMU else "qemu-aarch64 is not installed (Debian: apt-get install qemu-user)",
    "ziglang": "" if importlib.util.find_spec("ziglang") else "the wheel ziglang is not installed (pip install ziglang)",
}


def needs(*what: str) -> pytest.MarkDecorator:
    """A mark that skips a test where something is missing: "qemu", "ziglang", or a target whose code this processor cannot run."""
    reasons = [f"{w}: {why}" for w in what if (why := _WITHOUT[w] if w in _WITHOUT else Target.named(w).why_not_here())]
    return pytest.mark.skipif(bool(reasons), reason="; ".join(reasons))


def since(package: str, version: str, why: str) -> pytest.MarkDecorator:
    """A mark that skips a test where an older version of a package is installed. why: what that does otherwise."""
    try:
        found = importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        found = version
    return pytest.mark.skipif(Version(found) < Version(version), reason=f"{package} {found} is older than {version}: {why}")


def of_zigs_libraries(target: str) -> None:
    """Skips a test of programs with threads, or with C of users' own, for a target for which zig would have to build a C library, which
    takes half a minute of processor time, and is kept: where there is none yet, `.ci/run` alone runs it, which sets C_LIBRARIES."""
    try:
        builds = "ziglang" in linker(Target.named(target)) and not os.environ.get("C_LIBRARIES")
    except CannotRun:
        builds = False  # the test says what is missing
    if not builds:
        return
    wanted = Target.named(target).architecture
    home = Path(os.environ.get("ZIG_GLOBAL_CACHE_DIR") or Path.home() / ".cache" / "zig")
    for library in home.glob("o/*/libc.a"):
        with open(library, "rb") as f:
            head = f.read(1 << 20)
        at = head.find(b"\x7fELF")
        if at >= 0 and struct.unpack_from("<H", head, at + 18)[0] == wanted.elf_machine:
            return
    pytest.skip(f"zig has not built a C library for {target} yet: C_LIBRARIES=1 lets it")


def on_targets(*names: str):
    """Parameters for a test that runs machine code in this process: each target's name, skipped where it cannot run."""
    return [pytest.param(name, marks=needs(name)) for name in names or ("x86-64-v3", "x86-64-v4")]
