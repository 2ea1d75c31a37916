"""Compiles a model ahead of time: an object file, a C header, a blob of weights, and an example that uses them.

In: a model and a target. Out: files that need no Python and nothing but libc. The object holds the kernels that the program
calls, the program itself, a C entry to it, and the thread pool when it may use several threads: the text that runs in this
process, so the same bits. The caller owns all memory: nothing is allocated inside.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Set
from dataclasses import field, replace
from typing import Any

from tengen.base.errors import CompileError, ConfigError
from tengen.base.files import File, read_regular, replacing_set
from tengen.base.record import record
from tengen.codegen.targets import Target
from tengen.codegen.targets.system import LINUX, System
from tengen.compiler.driver import compile_graph
from tengen.compiler.program import Program
from tengen.compiler.program_ir import ASK_DECLARED, ASK_NOBODY
from tengen.compiler.schedules import tuned_schedules
from tengen.deploy.ctext import ALIGN, Interface, Region, c_name, example_text, header_text
from tengen.deploy.entry import checksum, entry_ir, internal
from tengen.deploy.extents import Computed, as_ranges, check_shapes
from tengen.deploy.loader import load_graph
from tengen.deploy.model import Model, Port
from tengen.deploy.objects import Object, read_object
from tengen.deploy.processing import Processing, with_processing
from tengen.ir.graph import Check
from tengen.loops.lang import var
from tengen.ops.define import lookup
from tengen.runtime import native
from tengen.runtime.cache import compiled
from tengen.runtime.threads import MAX_THREADS, threads_ir
from tengen.tensor.executable import constant_buffers

LIBC = {"memcpy", "memset", "memmove", "clock_gettime", "sched_yield", "fma"}  # and pthread_*: all that an object may ask for
OPERATORS = r"_ops\d+\.(c|obj)"  # ends of the names of files that define users' operators


@record(frozen=True)
class Artifact:
    """What was written.

    Attributes:
        files: their paths: object, header, weights, example. target, name: as compiled. kernels: how many it holds.
        code_bytes: of machine code. object_bytes, weights_bytes, workspace_bytes: of the object, the blob, the scratch memory.
        inputs, outputs: what it takes and gives. extents: the ranges of extents that are open in it; workspace_bytes is for the
            largest. operators: paths of the C and object files that define the C functions of users' operators, which are linked with
            it. interface: what the header says. text: the LLVM IR that the object was made of.
    """

    files: tuple[str, str, str, str]
    name: str
    target: str
    threads: int
    kernels: int
    code_bytes: int
    object_bytes: int
    weights_bytes: int
    workspace_bytes: int
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    extents: dict[str, range] = field(default_factory=dict)
    operators: tuple[str, ...] = ()
    interface: Interface = field(repr=False, kw_only=True)
    text: str = field(repr=False, kw_only=True)


def compile_model(
    model: Model | File,
    target: str = "x86-64-v3",
    out_dir: str | os.PathLike = ".",
    name: str | None = None,
    threads: int = 1,
    extents: Mapping[str, int | range] | None = None,
    pool: bool = False,
    preprocess: Processing | None = None,
    postprocess: Processing | None = None,
    example_input: Any = None,
) -> Artifact:
    """Writes ``name.o``, ``name.h``, ``name.bin`` and ``name_main.c``.

    They replace those of an earlier compilation together: where that is cut short, ``name.h`` is missing, and a C compiler says so.

    Args:
        model: a model, or its file (a path, or open for reading bytes).
        target: a name that ``tengen targets`` lists: ``x86-64-v3`` (AVX2 and fma), ``aarch64``, ``native`` ...
        name: prefix of every C name; default: the model's. threads: how many the program may use; with 1 it needs no pthread.
        extents: a number or a range for each of the model's open extents. With numbers alone the artifact is compiled for these
            shapes. An extent with a range stays open: it is an argument of the C function, which looks whether it is in the range,
            and what it decides (bytes of scratch memory, of arrays) are functions in the header.
        pool: also make ``name_run_with``, which is given threads of the application, and a function that ends a run; with `threads` 1,
            for targets of 64 bits.
        preprocess, postprocess, example_input: functions that become parts of the program, and what the first is recorded with, as
            `with_processing` takes them.

    Errors: ConfigError for an unknown target, an impossible name, missing extents, or ranges that are none; ShapeError where shapes
        do not fit with numbers of a range; CompileError; OSError when a file cannot be written.

    Numerics: the same bits as the model has in this process, on every target and with any number of threads.
    """
    if not isinstance(model, Model):
        model = load_graph(model)
    processed, source = preprocess is not None or postprocess is not None, model.checksum
    if processed:
        model = with_processing(model, preprocess, postprocess, example_input)
    model, given, ranges = _with_extents(model, dict(extents or {}))
    chosen = _target(target, threads, pool)
    prefix = c_name(model.name) if name is None else name
    if c_name(prefix) != prefix:
        raise ConfigError(f"{prefix!r} cannot begin names in C; help: {c_name(prefix)!r} can")
    program = _program(model, chosen, threads, ranges, pool)
    computed = Computed.of(program, ranges)
    blob, constants, states, state_offset, state_bytes = _layout(program, model)
    operators = _operators(model, chosen, prefix)
    face = Interface(
        prefix, target, chosen.cpu, chosen.system.name, threads, model.inputs, model.outputs, len(blob), checksum(blob), computed.arena,
        tuple(constants), tuple(states), state_offset, state_bytes, source, tuple(map(_message, program.checks)),
        given, ranges, pool, tuple(operators), processed=processed,
    )  # fmt: skip
    text = _text(face, program, computed)
    data = compiled(text, chosen, parts=False)
    made = read_object(data)
    face = replace(face, libm="fma" in made.needed and chosen.system is LINUX)
    _check_symbols(made, {f.symbol for f in _c_functions(model)}, chosen.system)
    files, beside = _write(os.fspath(out_dir), face, data, blob, operators)
    sizes = made.code_bytes, len(data), len(blob), computed.at(face.workspace_bytes, computed.largest)
    ports = model.inputs, model.outputs
    return Artifact(files, prefix, target, threads, program.kernels, *sizes, *ports, ranges, beside, interface=face, text=text)


def _with_extents(model: Model, extents: dict[str, int | range]) -> tuple[Model, dict[str, int], dict[str, range]]:
    """(the model, numbers of its extents, ranges of those that stay open): all are numbers, which the model then has, or all are ranges."""
    if any(isinstance(n, range) for n in extents.values()):
        ranges = as_ranges(model.graph, extents)
        check_shapes(model.graph, ranges)
        return model, {}, ranges
    given: dict[str, Any] = extents  # numbers, as `at` finds
    return model.at(**given), given, {}


def _target(target: str, threads: int, pool: bool) -> Target:
    """The target of a name. Errors: ConfigError where it has no such threads."""
    if not 1 <= threads <= MAX_THREADS:
        raise ConfigError(f"threads={threads}: a number from 1 to {MAX_THREADS} is needed")
    chosen = Target.named(target)
    if threads > 1 and not (chosen.system.threads and chosen.architecture.pointer_bytes == 8):
        raise ConfigError(f"threads={threads}: artifacts for {target} have one thread; help: threads=1")
    if pool and (threads > 1 or chosen.architecture.pointer_bytes != 8):
        raise ConfigError(f"pool=True is for targets of 64 bits and threads=1; this is {target} with threads={threads}")
    return chosen


def _program(model: Model, target: Target, threads: int, open_extents: Iterable[str], pool: bool) -> Program:
    """The program of a model. Errors: ConfigError for a pool whose run could not be ended."""
    schedules = tuned_schedules(target, threads).also(model.schedules)
    names = [var(e) for e in open_extents]
    how: dict[str, Any] = {"fold": True, "schedules": schedules, "row_major": True, "log_launches": pool}
    program, _ = compile_graph(model.graph, None, names, model.name, target, **how)
    if pool and ASK_DECLARED in program.text:
        raise ConfigError(f"pool=True: {model.name} has a loop that a value ends, which a cancelled run would never leave; help: pool=False")
    return program


def _text(face: Interface, program: Program, computed: Computed) -> str:
    """The LLVM IR of an object file: the program, its entry, and the threads that it has of its own."""
    text = internal(program.text).replace(ASK_DECLARED, ASK_NOBODY) + entry_ir(face, program, computed)
    if face.threads > 1:
        threads = threads_ir(program.target, face.prefix, face.threads, at_fork=True)
        text += internal(threads, keep=("set_threads", "stop_threads"))
    return text


def _write(
    folder: str, face: Interface, data: bytes, blob: bytes, operators: Mapping[str, bytes]
) -> tuple[tuple[str, str, str, str], tuple[str, ...]]:
    """Writes an artifact: the paths of its four files, and of those that define users' operators. A compiler checks none of them against
    another one, so they are a set, whose entry is the header."""
    os.makedirs(folder, exist_ok=True)
    base = os.path.join(folder, face.prefix)
    files = (f"{base}.o", f"{base}.h", f"{base}.bin", f"{base}_main.c")
    beside = tuple(os.path.join(folder, name) for name in operators)
    contents = (data, header_text(face).encode(), blob, example_text(face).encode(), *operators.values())
    with replacing_set(files[1]) as written:
        for file, content in zip((*files, *beside), contents):
            written.new(file).write(content)
        for old in os.listdir(folder):
            if re.fullmatch(re.escape(face.prefix) + OPERATORS, old) and old not in operators:
                written.remove(os.path.join(folder, old))
    return files, beside


def _c_functions(model: Model) -> list[Any]:
    """The C functions of users' operators in a model, each once."""
    ops = dict.fromkeys(n.op for g in model.graph.graphs() for n in g.nodes if n.op != "fused")
    return [f for name in ops if (f := lookup(name).c_function) is not None]


def _operators(model: Model, target: Target, prefix: str) -> dict[str, bytes]:
    """The files that define the C functions of a model: their names and contents. Errors: CompileError for a function that has none
    for the target."""
    found: dict[bytes, str] = {}
    for f in _c_functions(model):
        if (file := f.objects.get(target.arch)) is not None:
            content, end = read_regular(file), ".obj"
        elif f.source is not None:
            content, end = f.source.encode(), ".c"
        else:
            raise CompileError(
                f"the C function {f.symbol} is known in this process alone; help: give its operator source=, or objects= with an object "
                f"file for {target.arch}"
            )
        found.setdefault(content, f"{prefix}_ops{len(found)}{end}")
    return {name: content for content, name in found.items()}


def _message(c: Check) -> str:
    return f"{c.error}: {c.message}" + (f" [at {c.where}]" if c.where else "")


def _layout(program: Program, model: Model) -> tuple[bytes, list[Region], list[Region], int, int]:
    """The blob: the constants that kernels read, then the states' first values, each on 64 bytes."""
    parts: list[bytes] = []
    at = 0

    def place(data: bytes, base: int) -> Region:
        nonlocal at
        region = Region(at - base, len(data))
        parts.append(data + bytes(-len(data) % ALIGN))
        at += len(parts[-1])
        return region

    constants = [place(native.read(buffer, n), 0) for buffer, n in constant_buffers(program)]
    start = at
    states = [place(model.initial[name].tobytes(), start) for name in model.graph.states]
    return b"".join(parts), constants, states, start, at - start


def _check_symbols(made: Object, known: Set[str], system: System) -> None:
    """CompileError where an object needs what neither libc nor the compiler's own library defines."""
    mine = ("pthread_", *system.library)
    needed = {s for s in made.needed if s not in LIBC and s not in known and not s.startswith(mine)}
    if needed:
        raise CompileError(f"the object would need {', '.join(sorted(needed))} from elsewhere; help: report it with the model")
