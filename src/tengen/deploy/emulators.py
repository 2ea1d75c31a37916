"""What runs a program that was made for another machine: an emulator, an engine, or nothing where this machine does.

In: a target. Out: a command that is followed by the program and its arguments, or `CannotRun` with the reason.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys

from tengen.base.errors import TengenError
from tengen.codegen.targets import Target

# Engines of WebAssembly, as programs that take a module and its arguments, and give it the standard streams and all files.
_NODE = """
const {WASI} = require('wasi'), {readFileSync} = require('fs'), [file, ...args] = process.argv.slice(1);
const wasi = new WASI({version: 'preview1', args: [file, ...args], preopens: {'/': '/'}, returnOnExit: true});
WebAssembly.instantiate(readFileSync(file), {wasi_snapshot_preview1: wasi.wasiImport})
  .then(({instance}) => { process.exitCode = wasi.start(instance); });
"""
_WASMTIME = """
import sys, wasmtime
engine = wasmtime.Engine()
linker, store, wasi = wasmtime.Linker(engine), wasmtime.Store(engine), wasmtime.WasiConfig()
linker.define_wasi()
wasi.argv = sys.argv[1:]
wasi.inherit_stdin(), wasi.inherit_stdout(), wasi.inherit_stderr(), wasi.preopen_dir('/', '/')
store.set_wasi(wasi)
start = linker.instantiate(store, wasmtime.Module.from_file(engine, sys.argv[1])).exports(store)['_start']
try:
    start(store)
except wasmtime.ExitTrap as e:
    sys.exit(e.code)
"""


class CannotRun(TengenError):
    """An artifact that cannot run on this machine, with the reason: no linker, no emulator, another processor."""


def runners(target: Target) -> list[tuple[list[str], str]]:
    """Every way that this machine has: (the command before the program, its name)."""
    found: list[tuple[list[str], str]] = []
    mine = Target.machine()
    if target.architecture is mine.architecture and target.system is mine.system:
        return [] if target.why_not_here() else [([], "natively")]
    for name in emulators(target):
        if name == "wasmtime":
            if importlib.util.find_spec("wasmtime"):
                found.append(([sys.executable, "-c", _WASMTIME], "wasmtime"))
        elif there := shutil.which(name):
            engine = ["--no-warnings", "-e", _NODE, "--"] if name == "node" else list(target.level.emulator_options)
            found.append(([there, *engine], os.path.basename(there)))
    return found


def emulators(target: Target) -> tuple[str, ...]:
    """The names of programs that run code of a target on another machine."""
    return target.level.emulators or (target.architecture.emulators if target.system.emulated else ())


def runner(target: Target) -> tuple[list[str], str]:
    """The first way of `runners`. Errors: CannotRun."""
    if found := runners(target):
        return found[0]
    mine = Target.machine()
    if target.architecture is mine.architecture and target.system is mine.system:
        raise CannotRun(target.why_not_here())
    names = emulators(target)
    if not names:
        raise CannotRun(f"nothing here runs programs of {target.system.name}; help: link it there")
    which = {"qemu-system-arm": "qemu-system-arm", "node": "nodejs", "wine": "wine wine64"}.get(names[0], "qemu-user")
    raise CannotRun(f"{names[0]}, which runs it on this {mine.arch} machine, is not in PATH; help: apt install {which}")
