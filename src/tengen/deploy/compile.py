"""Compiles a model ahead of time: an object file, a C header, a blob of weights, and an example that uses them.

In: a model and a target. Out: files that need no Python and nothing but libc. The object holds the kernels that the program
calls, the program itself, a C entry to it, and the thread pool when it may use several threads: the text that runs in this
process, so the same bits. The caller owns all memory: nothing is allocated inside.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tengen.base.errors import CompileError, ConfigError
from tengen.base.files import File, read_regular, replacing
from tengen.codegen.llvm import emit_kernel
from tengen.codegen.targets import Target
from tengen.compiler.driver import compile_graph
from tengen.compiler.program import Program
from tengen.compiler.program_ir import ASK_DECLARED, ASK_NOBODY
from tengen.compiler.schedules import tuned_schedules
from tengen.deploy.ctext import FIRST_CHECK, OUTSIDE, Interface, Region, c_name, example_text, header_text
from tengen.deploy.elf import sections
from tengen.deploy.extents import Computed, as_ranges, check_shapes
from tengen.deploy.loader import load_graph
from tengen.deploy.model import Model, Port
from tengen.ir.graph import Check
from tengen.loops.lang import var
from tengen.ops.define import lookup
from tengen.runtime import native
from tengen.runtime.cache import compiled
from tengen.runtime.compile import elf_symbols
from tengen.runtime.threads import MAX_THREADS, threads_ir
from tengen.tensor.executable import constant_buffers

ALIGN = 64
LIBC = {"memcpy", "memset", "memmove", "clock_gettime", "sched_yield"}  # and pthread_*: all that an object may ask for
OPERATORS = r"_ops\d+\.(c|obj)"  # ends of the names of files that define users' operators
_GOLDEN, _MIX1, _MIX2 = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB  # splitmix64's


@dataclass(frozen=True)
class Artifact:
    """What was written.

    Attributes:
        files: their paths: object, header, weights, example. target, name: as compiled. kernels: how many it holds.
        code_bytes: of machine code. object_bytes, weights_bytes, workspace_bytes: of the object, the blob, the scratch memory.
        inputs, outputs: what it takes and gives. extents: the ranges of extents that are open in it; workspace_bytes is for the
            largest. operators: paths of the C and object files that define the C functions of users' operators, which are linked with
            it.
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


def compile_model(
    model: Model | File,
    target: str = "x86-64",
    out_dir: str | os.PathLike = ".",
    name: str | None = None,
    threads: int = 1,
    extents: Mapping[str, int | range] | None = None,
) -> Artifact:
    """Writes ``name.o``, ``name.h``, ``name.bin`` and ``name_main.c``.

    Args:
        model: a model, or its file (a path, or open for reading bytes).
        target: ``x86-64`` (v3, the floor), ``x86-64-v4``, ``aarch64``, ``native``.
        name: prefix of every C name; default: the model's. threads: how many the program may use; with 1 it needs no pthread.
        extents: a number or a range for each of the model's open extents. With numbers alone the artifact is compiled for these
            shapes. An extent with a range stays open: it is an argument of the C function, which looks whether it is in the range,
            and what it decides (bytes of scratch memory, of arrays) are functions in the header.

    Errors: ConfigError for an unknown target, an impossible name, missing extents, or ranges that are none; ShapeError where shapes
        do not fit with numbers of a range; CompileError; OSError when a file cannot be written.

    Numerics: the same bits as the model has in this process, on every target and with any number of threads.
    """
    if not isinstance(model, Model):
        model = load_graph(model)
    given, ranges = dict(extents or {}), {}
    if any(isinstance(n, range) for n in given.values()):
        ranges, given = as_ranges(model.graph, given), {}
        check_shapes(model.graph, ranges)
    else:
        model = model.at(**given)
    if not 1 <= threads <= MAX_THREADS:
        raise ConfigError(f"threads={threads}: a number from 1 to {MAX_THREADS} is needed")
    chosen = Target.named(target)
    prefix = c_name(model.name) if name is None else name
    if c_name(prefix) != prefix:
        raise ConfigError(f"{prefix!r} cannot begin names in C; help: {c_name(prefix)!r} can")
    schedules = tuned_schedules(chosen, threads).also(model.schedules)
    names = [var(e) for e in ranges]
    program, _ = compile_graph(model.graph, None, names, model.name, chosen, fold=True, schedules=schedules, row_major=True)
    made = Computed.of(program, ranges)
    blob, constants, states, state_offset, state_bytes = _layout(program, model)
    operators = _operators(model, chosen, prefix)
    face = Interface(
        prefix, target, chosen.cpu, threads, model.inputs, model.outputs, len(blob), checksum(blob), made.arena,
        tuple(constants), tuple(states), state_offset, state_bytes, model.checksum, tuple(map(_message, program.checks)),
        given, ranges, tuple(operators),
    )  # fmt: skip
    text = _internal(program.text).replace(ASK_DECLARED, ASK_NOBODY) + entry_ir(face, program, made)
    if threads > 1:
        text += _internal(threads_ir(chosen, prefix, threads, at_fork=True), keep=("set_threads", "stop_threads"))
    data = compiled(text, chosen, parts=False)
    _check_symbols(data, {f.symbol for f in _c_functions(model)})
    os.makedirs(out_dir, exist_ok=True)
    for old in os.listdir(out_dir):
        if re.fullmatch(re.escape(prefix) + OPERATORS, old):
            os.remove(os.path.join(out_dir, old))
    files = tuple(os.path.join(out_dir, prefix + end) for end in (".o", ".h", ".bin", "_main.c"))
    beside = tuple(os.path.join(out_dir, f) for f in operators)
    contents = (data, header_text(face).encode(), blob, example_text(face).encode(), *operators.values())
    for file, content in zip((*files, *beside), contents):
        with replacing(file) as f:
            f.write(content)
    code = sum(s.size for s in sections(data) if s.executable)
    sizes = code, len(data), len(blob), made.at(face.workspace_bytes, made.largest)
    return Artifact(files, prefix, target, threads, program.kernels, *sizes, model.inputs, model.outputs, ranges, beside)


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


def checksum(blob: bytes) -> int:
    """The sum of splitmix64's mixing of every 64-bit word, numbered: what ``name_check`` computes on the device."""
    total = np.uint64(0)
    words = np.frombuffer(blob, "<u8")
    with np.errstate(over="ignore"):
        for begin in range(0, len(words), 1 << 16):
            w = words[begin : begin + (1 << 16)]
            x = w + (np.arange(begin + 1, begin + 1 + len(w), dtype=np.uint64) * np.uint64(_GOLDEN))
            x = (x ^ (x >> np.uint64(30))) * np.uint64(_MIX1)
            x = (x ^ (x >> np.uint64(27))) * np.uint64(_MIX2)
            total += (x ^ (x >> np.uint64(31))).sum(dtype=np.uint64)
    return int(total)


# ---- the C entry as LLVM IR -----------------------------------------------------------------------------------------------


def _internal(text: str, keep: Sequence[str] = ()) -> str:
    """Definitions that the linker does not show, so that two models can be linked into one program."""

    def one(m: re.Match) -> str:
        shown = any(m[2].endswith(k) for k in keep)
        return m[0] if shown or m[1].startswith("internal") else f"define internal {m[1]}@{m[2]}("

    return re.sub(r"^define ([^@\n]*)@([\w.$]+)\(", one, text, flags=re.M)


def _numbers_ir(face: Interface, program: Program, made: Computed) -> str:
    """The kernel that computes a run's numbers from open extents; ``name.numbers``, which fills them in behind the extents and
    returns whether these are in their ranges; and the functions that give one of the sizes."""
    p, n, total = face.prefix, len(made.ranges), len(made.integers)
    opened = [a for a in face.arguments() if a.open]
    kernel = made.kernel("open_numbers", [a.bytes for a in opened])
    lines = [f"define internal i1 @{p}.numbers(ptr %ints) nounwind {{\n  %args = alloca ptr\n  %ok0 = icmp eq i1 true, true"]
    for i, r in enumerate(made.ranges.values()):
        lines.append(f"  %p{i} = getelementptr i64, ptr %ints, i64 {i}\n  %v{i} = load i64, ptr %p{i}\n  %d{i} = sub i64 %v{i}, {r[0]}")
        lines.append(f"  %in{i} = icmp ule i64 %d{i}, {r[-1] - r[0]}\n  %rem{i} = urem i64 %d{i}, {r.step}\n  %is{i} = icmp eq i64 %rem{i}, 0")
        lines.append(f"  %both{i} = and i1 %in{i}, %is{i}\n  %ok{i + 1} = and i1 %ok{i}, %both{i}")
    lines.append(f"  br i1 %ok{n}, label %inside, label %outside\ninside:\n  %to = getelementptr i64, ptr %ints, i64 {n}")
    lines.append(f"  store ptr %to, ptr %args\n  call void @{kernel.name}(ptr %args, ptr %ints, i64 0, i64 1)")
    lines.append("  ret i1 true\noutside:\n  ret i1 false\n}")
    parameters = ", ".join(f"i64 %e{i}" for i in range(n))
    for j, a in enumerate(opened):
        lines.append(f"define i64 @{p}_{a.name}_bytes({parameters}) nounwind {{\n{_ints_ir(n, total + len(opened))}")
        lines.append(f"  %ok = call i1 @{p}.numbers(ptr %ints)\n  %at = getelementptr i64, ptr %ints, i64 {n + total + j}")
        lines.append("  br i1 %ok, label %inside, label %outside\ninside:\n  %size = load i64, ptr %at\n  ret i64 %size")
        lines.append(f"outside:\n  ret i64 {OUTSIDE}\n}}")
    return _internal(emit_kernel(kernel, program.target)) + "\n" + "\n".join(lines) + "\n"


def _ints_ir(extents: int, more: int) -> str:
    """A run's integers in memory: the extents, and room for those that follow."""
    lines = [f"  %ints = alloca [{extents + more} x i64], align {ALIGN}"]
    lines += [f"  %e{i}.p = getelementptr i64, ptr %ints, i64 {i}\n  store i64 %e{i}, ptr %e{i}.p" for i in range(extents)]
    return "\n".join(lines)


def entry_ir(face: Interface, program: Program, made: Computed) -> str:
    """``name_run``, ``name_check`` and, with states, ``name_reset``; with open extents, functions of sizes."""
    p = face.prefix
    opened = len(made.ranges)
    ints = [] if opened else program.integers([])
    arguments = face.arguments()
    flags = len(face.checks)
    n_buffers = len(face.inputs) + len(face.states) + len(face.constants) + len(face.outputs) + bool(flags) + 1
    parameters = [*(f"i64 %e{i}" for i in range(opened)), *(f"ptr %a{i}" for i in range(len(arguments)))]
    lines = [f"define i32 @{p}_run({', '.join(parameters)}) nounwind {{"]
    if opened:
        lines.append(_ints_ir(opened, len(made.integers) + sum(a.open for a in arguments)))
        lines.append(f"  %ok = call i1 @{p}.numbers(ptr %ints)\n  br i1 %ok, label %inside, label %outside")
        lines.append(f"outside:\n  ret i32 {OUTSIDE}\ninside:")
    lines += [f"  %buffers = alloca [{n_buffers} x ptr], align 16"]
    where = {a.key: f"%a{i}" for i, a in enumerate(arguments)}
    for i, a in enumerate(arguments):
        if a.open or a.bytes:
            lines.append(f"  %null{i} = icmp eq ptr %a{i}, null\n  br i1 %null{i}, label %missing, label %has{i}\nhas{i}:")
            lines.append(f"  %i{i} = ptrtoint ptr %a{i} to i64\n  %low{i} = and i64 %i{i}, {a.align - 1}")
            lines.append(f"  %odd{i} = icmp ne i64 %low{i}, 0\n  br i1 %odd{i}, label %unaligned, label %good{i}\ngood{i}:")
    slots = [where[("in", i)] for i in range(len(face.inputs))]
    for kind, regions in (("state", face.states), ("weights", face.constants)):
        for j, r in enumerate(regions):
            base = where.get((kind, 0))
            if not r.bytes or base is None:
                slots.append("null")
                continue
            lines.append(f"  %{kind}{j} = getelementptr i8, ptr {base}, i64 {r.offset}")
            slots.append(f"%{kind}{j}")
    slots += [where[("out", i)] for i in range(len(face.outputs))]
    if flags:
        lines.append(f"  %flags = alloca [{flags} x i8], align {ALIGN}\n  store [{flags} x i8] zeroinitializer, ptr %flags")
        slots.append("%flags")
    slots.append(where.get(("workspace", 0), "null"))
    for i, s in enumerate(slots):
        lines.append(f"  %slot{i} = getelementptr ptr, ptr %buffers, i64 {i}\n  store ptr {s}, ptr %slot{i}")
    parallel = f"{p}_parallel" if face.threads > 1 else f"{p}.serial"
    where_ints = "%ints" if opened else f"@{p}.ints"
    lines.append(f"  call void @run(ptr %buffers, ptr {where_ints}, ptr @{parallel})\n  %code{flags} = add i32 0, 0")
    for i in reversed(range(flags)):  # the first check that failed is what is returned
        lines.append(f"  %flag{i}.p = getelementptr i8, ptr %flags, i64 {i}\n  %flag{i} = load i8, ptr %flag{i}.p")
        lines.append(f"  %failed{i} = icmp ne i8 %flag{i}, 0")
        lines.append(f"  %code{i} = select i1 %failed{i}, i32 {FIRST_CHECK + i}, i32 %code{i + 1}")
    lines.append("  ret i32 %code0")
    if any(a.open or a.bytes for a in arguments):
        lines.append("missing:\n  ret i32 1\nunaligned:\n  ret i32 2")
    lines.append("}")
    numbers = ", ".join(f"i64 {n}" for n in ints)
    table = f"[{max(len(ints), 1)} x i64] {f'[{numbers}]' if ints else 'zeroinitializer'}"
    text = "\n".join(lines) + "\n"
    text = text + _numbers_ir(face, program, made) if opened else f"@{p}.ints = internal constant {table}, align 64\n{text}"
    if face.threads == 1:
        text += _SERIAL.replace("$P$", p)
    if face.weights_bytes:
        text += _check_text(face)
    if face.states:
        text += _RESET.replace("$P$", p).replace("$FROM$", str(face.state_offset)).replace("$N$", str(face.state_bytes))
    return text


_SERIAL = """\
define internal void @$P$.serial(ptr %kernel, ptr %buffers, ptr %ints, i64 %pieces) nounwind {
  call void %kernel(ptr %buffers, ptr %ints, i64 0, i64 %pieces)
  ret void
}
"""

_RESET = """\
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
define void @$P$_reset(ptr %weights, ptr %state) nounwind {
  %from = getelementptr i8, ptr %weights, i64 $FROM$
  call void @llvm.memcpy.p0.p0.i64(ptr align 64 %state, ptr align 64 %from, i64 $N$, i1 false)
  ret void
}
"""

_CHECK = """\
define i32 @$P$_check(ptr %weights, i64 %bytes) nounwind {
entry:
  %fits = icmp eq i64 %bytes, $BYTES$
  br i1 %fits, label %next, label %size
size:
  ret i32 1
next:
  %i = phi i64 [0, %entry], [%i1, %next]
  %sum = phi i64 [0, %entry], [%sum1, %next]
  %i1 = add i64 %i, 1
  %at = getelementptr i64, ptr %weights, i64 %i
  %w = load i64, ptr %at, align 8
  %n = mul i64 %i1, $GOLDEN$
  %x0 = add i64 %w, %n
  %s0 = lshr i64 %x0, 30
  %x1 = xor i64 %x0, %s0
  %x2 = mul i64 %x1, $MIX1$
  %s2 = lshr i64 %x2, 27
  %x3 = xor i64 %x2, %s2
  %x4 = mul i64 %x3, $MIX2$
  %s4 = lshr i64 %x4, 31
  %x5 = xor i64 %x4, %s4
  %sum1 = add i64 %sum, %x5
  %more = icmp ult i64 %i1, $WORDS$
  br i1 %more, label %next, label %end
end:
  %same = icmp eq i64 %sum1, $SUM$
  %code = select i1 %same, i32 0, i32 2
  ret i32 %code
}
"""


def _check_text(face: Interface) -> str:
    values = {
        "P": face.prefix, "BYTES": face.weights_bytes, "WORDS": face.weights_bytes // 8, "SUM": face.weights_sum,
        "GOLDEN": _GOLDEN, "MIX1": _MIX1, "MIX2": _MIX2,
    }  # fmt: skip
    text = _CHECK
    for k, v in values.items():
        text = text.replace(f"${k}$", str(v))
    return text


def _check_symbols(data: bytes, known: Set[str] = frozenset()) -> None:
    needed = {s for s in elf_symbols(data)[1] if s not in LIBC and s not in known and not s.startswith("pthread_")}
    if needed:
        raise CompileError(f"the object would need {', '.join(sorted(needed))} from elsewhere; help: report it with the model")
