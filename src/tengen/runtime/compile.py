"""LLVM IR text to machine code, and machine code into this process.

In: a module's text and a target, or an object file's bytes. Out: an object file, or the addresses of its functions. llvmlite is
imported on first use. A process that only loads objects compiles nothing, and `compilations` counts what is compiled.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import os
import re
import struct
import threading
from collections.abc import Collection, Mapping
from typing import Any

from tengen.base.errors import CompileError
from tengen.codegen.targets import Target
from tengen.loops import external
from tengen.runtime import llvm, object_loader

compilations = 0  # modules that LLVM has compiled in this process
_lock = threading.Lock()


def _forget_lock() -> None:
    """In a forked child: a thread of its parent may have held it."""
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_forget_lock)


def _culprit(ir_text: str, message: str) -> str:
    """The function that an LLVM message is about, by line number or by name."""
    lines = ir_text.splitlines()
    if m := re.search(r":(\d+):\d+: error", message):
        lines = lines[: int(m[1])]
    elif not (m := re.search(r"@([\w.$]+)", message)):
        return ""
    else:
        return f" in {m[1]}"
    for line in reversed(lines):
        if m := re.match(r"define [^@]*@([\w.$]+)", line):
            return f" in {m[1]}"
    return ""


def _optimised(ir_text: str, target: Target, level: int):
    try:
        return llvm.optimised(ir_text, target.triple, target.cpu, target.features, level, target.system.relocation)
    except RuntimeError as e:
        raise CompileError(f"LLVM refused a module{_culprit(ir_text, str(e))}: {e}") from None


def compile_object(ir_text: str, target: Target, level: int = 1, count: bool = True) -> bytes:
    """Compiles a module's text to a relocatable object file.

    Args:
        ir_text: LLVM IR. target: what to compile for.
        level: `llvm.QUICK`, `llvm.GOOD`, or `llvm.PIPELINE`, which also inlines (for hand-written IR).
        count: whether it counts as one of the `compilations`; false for a part of one.
    Errors: CompileError, naming the function, for text that LLVM does not accept.
    """
    global compilations
    with _lock:
        module, machine = _optimised(ir_text, target, level)
        data = machine.emit_object(module)
        compilations += count
    return data


def assembly(ir_text: str, target: Target, level: int = 1) -> str:
    """The assembly that `compile_object` would assemble, for people to read."""
    with _lock:
        module, machine = _optimised(ir_text, target, level)
        return machine.emit_assembly(module)


# ---- objects into this process


@functools.cache
def _linker():
    """The one in-process linker. It generates no code."""
    binding = llvm.llvmlite()
    triple = binding.get_process_triple()
    llvm.initialize(triple.split("-")[0])
    return binding.create_lljit_compiler(
        binding.Target.from_triple(triple).create_target_machine(jit=True), suppress_errors=True
    )


_serial = itertools.count()
_extra_symbols: dict[str, int] = {}


def add_symbols(symbols: Mapping[str, int]) -> None:
    """Makes names known to objects that are loaded later: name -> address. Those of libc are known already."""
    _extra_symbols.update(symbols)


class Loaded:
    """Machine code in this process. It stays as long as this object is referenced.

    Attributes:
        upgrade: what brings better code into its place (`tiers.py`), if anything does.
    """

    def __init__(self, addresses: Any, functions: Collection[str], memory: Any = None, cells: Mapping[str, int] | None = None):
        self._addresses, self._functions, self._memory = addresses, functions, memory
        self._cells = cells or {}
        self._better: Loaded | None = None
        self.upgrade: Any = None

    @property
    def replaceable(self) -> bool:
        """Whether other code can take the place of this one."""
        return bool(self._cells)

    def replace(self, better: Loaded) -> None:
        """From now on, whoever calls a function of this code runs that of `better`, at the next call, in any thread: at the next
        program, the next kernel, and the next piece of a kernel that runs. Addresses stay. Who is inside of the old code ends
        there, so it stays as long as this object. Both have to compute the same from the same arguments, and keep no state.

        Errors: KeyError where `better` does not define all functions of this code; then nothing has changed.
        """
        found = {cell: better.address(name) for name, cell in self._cells.items()}
        for cell, address in found.items():
            ctypes.c_int64.from_address(cell).value = address  # an aligned word, which is written at once
        self._better = better

    def address(self, name: str) -> int:
        """Where a function or variable of the object is.

        Errors: KeyError if the object does not define it.
        """
        if name not in self._functions:
            raise KeyError(f"{name!r} is not defined by this object; it has {', '.join(sorted(self._functions))}")
        return self._addresses[name]


def load_object(data: bytes, target: Target, replaceable: bool = False) -> Loaded:
    """Links an object file of `compile_object`, or several of `parallel_compile.py`, into this process: by `object_loader.py`,
    or by LLVM where that cannot.

    Args:
        target: what it was compiled for. replaceable: whether `Loaded.replace` is wanted; `Loaded.replaceable` says whether it can be
            had: not where LLVM links.

    Errors: CompileError for a target that this processor does not run (its code would end the process), for bytes that are no
    object file of this machine's kind, or a symbol that nobody defines.
    """
    if why := target.why_not_here():
        raise CompileError(f"code for {target.name} cannot run here: {why}; help: compile for 'native'")
    objects = object_loader.objects_of(data)
    addresses: dict[str, int] = {}
    cells: dict[str, int] = {}
    memory = []
    known = lambda name: addresses[name] if name in addresses else _address(name)
    for one in reversed(objects):  # the first one knows the others
        code = object_loader.load(one, target.architecture, known, replaceable)
        if code is None:
            return _load_by_llvm(objects)
        addresses |= code.addresses
        cells |= code.cells
        memory.append(code.memory)
    return Loaded(addresses, addresses, memory, cells)


def _address(name: str) -> int | None:
    """The address of a symbol that the process or its libraries define."""
    if name in _extra_symbols:
        return _extra_symbols[name]
    if (there := external.address(name)) is not None:
        return there
    found = getattr(_process(), name, None)
    return None if found is None else ctypes.cast(found, ctypes.c_void_p).value


@functools.cache
def _process() -> ctypes.CDLL:
    return ctypes.CDLL(None)


def _load_by_llvm(objects: list[bytes]) -> Loaded:
    symbols = [elf_symbols(data) for data in objects]
    defined = frozenset[str]().union(*(d for d, _ in symbols))
    wanted = frozenset[str]().union(*(w for _, w in symbols)) - defined
    with _lock:
        linker = _linker()
        library = llvm.llvmlite().orcjit.JITLibraryBuilder().add_current_process()
        for data in objects:
            library.add_object_img(data)
        for name in defined:
            library.export_symbol(name)
        for name in wanted:
            there = _extra_symbols.get(name) or external.address(name)
            if there is not None:
                library.import_symbol(name, there)
        try:
            tracker = library.link(linker, f"tengen{next(_serial)}")
        except RuntimeError as e:
            names = [", ".join(sorted(n)) or "nothing" for n in (defined, wanted)]
            raise CompileError(f"cannot load an object that defines {names[0]} and needs {names[1]}: {e}") from None
    return Loaded(tracker, defined)


def elf_symbols(data: bytes) -> tuple[frozenset[str], frozenset[str]]:
    """The global symbols of a 64-bit little-endian ELF object: (those it defines, those it needs).

    Errors: CompileError if `data` is not such an object.
    Source: System V ABI, generic part, chapters 4 (object files) and 5 (symbol table).
    """
    defined: set[str] = set()
    needed: set[str] = set()
    try:
        if data[:6] != b"\x7fELF\x02\x01":
            raise ValueError
        table, size, count = struct.unpack_from("<Q", data, 40)[0], *struct.unpack_from("<HH", data, 58)
        for n in range(count):
            kind, _, _, at, length, link = struct.unpack_from("<IQQQQI", data, table + n * size + 4)
            if kind != 2:  # the symbol table
                continue
            names = struct.unpack_from("<Q", data, table + link * size + 24)[0]
            for name, info, _, section, _, _ in struct.iter_unpack("<IBBHQQ", data[at : at + length]):
                if info >> 4:  # global or weak
                    start = names + name
                    (defined if section else needed).add(data[start : data.index(b"\0", start)].decode())
    except (ValueError, struct.error):
        raise CompileError("not an object file of a 64-bit little-endian machine") from None
    return frozenset(defined), frozenset(needed)
