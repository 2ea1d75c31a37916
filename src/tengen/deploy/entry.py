"""The C entry of an artifact as LLVM IR: it looks at its arguments, and calls the program with the buffers in order.

In: an `Interface`, a program. Out: the text of ``name_run``, of the checks of memory, ``name_reset`` and the functions of sizes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np

from tengen.codegen.llvm import emit_kernel
from tengen.compiler.program import Program
from tengen.deploy.ctext import ALIGN, CANCELLED, FIRST_CHECK, OUTSIDE, Argument, Interface
from tengen.deploy.extents import Computed

_GOLDEN, _MIX1, _MIX2 = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB  # splitmix64's


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


def internal(text: str, keep: Sequence[str] = ()) -> str:
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
    return internal(emit_kernel(kernel, program.target)) + "\n" + "\n".join(lines) + "\n"


def _ints_ir(extents: int, more: int) -> str:
    """A run's integers in memory: the extents, and room for those that follow."""
    lines = [f"  %ints = alloca [{extents + more} x i64], align {ALIGN}"]
    lines += [f"  %e{i}.p = getelementptr i64, ptr %ints, i64 {i}\n  store i64 %e{i}, ptr %e{i}.p" for i in range(extents)]
    return "\n".join(lines)


def entry_ir(face: Interface, program: Program, made: Computed) -> str:
    """``name_run``, ``name_check``, ``name_check_workspace`` and, with states, ``name_check_state`` and ``name_reset``; with open extents,
    functions of sizes."""
    p = face.prefix
    ints = [] if made.ranges else program.integers([])
    if made.ranges:
        text = _numbers_ir(face, program, made)
    else:
        numbers = ", ".join(f"i64 {n}" for n in [*ints, 0])
        text = f"@{p}.ints = internal constant [{len(ints) + 1} x i64] [{numbers}], align 64\n"
    text += _run_ir(face, made, ints) + _linked_ir(face, "run")
    if face.threads == 1:
        text += _SERIAL.replace("$P$", p)
    if face.pool:
        text += _run_ir(face, made, ints, pool=True) + _linked_ir(face, "run_with", ["ptr %pool"]) + _POOL.replace("$P$", p)
    if face.weights_bytes:
        text += _check_text(face, program.target.architecture.pointer_bytes)
    for a in face.memory():
        text += _fits_text(face, a, program.target.architecture.pointer_bytes)
    if face.states:
        text += _RESET.replace("$P$", p).replace("$FROM$", str(face.state_offset)).replace("$N$", str(face.state_bytes))
    return text


def _run_ir(face: Interface, made: Computed, ints: Sequence[int], pool: bool = False) -> str:
    """``name_run``, or with `pool` ``name_run_with``: behind the run's integers, where a program that logs its launches finds the word that
    it passes on, lies the address of what `_POOL` keeps of a run."""
    p, opened, arguments = face.prefix, len(made.ranges), face.arguments()
    flags = len(face.checks)
    n_buffers = len(face.inputs) + len(face.states) + len(face.constants) + len(face.outputs) + bool(flags) + 1
    parameters = [*(f"i64 %e{i}" for i in range(opened)), *(f"ptr %a{i}" for i in range(len(arguments)))]
    name = f"{p}_run_with" if pool else f"{p}_run"
    lines = [f"define i32 @{name}({', '.join(['ptr %pool'] * pool + parameters)}) nounwind {{"]
    if opened:
        lines.append(_ints_ir(opened, len(made.integers) + max(1, sum(a.open for a in arguments))))
        lines.append(f"  %ok = call i1 @{p}.numbers(ptr %ints)\n  br i1 %ok, label %inside, label %outside")
        lines.append(f"outside:\n  ret i32 {OUTSIDE}\ninside:")
    lines += [f"  %buffers = alloca [{n_buffers} x ptr], align 16"]
    if pool:
        lines.append(_of_pool(ints, opened, len(made.integers)))
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
    parallel = f"{p}.shared" if pool else f"{p}_parallel" if face.threads > 1 else f"{p}.serial"
    where_ints = "%ints" if opened or pool else f"@{p}.ints"
    lines.append(f"  call void @run(ptr %buffers, ptr {where_ints}, ptr @{parallel})\n  %code{flags} = add i32 0, 0")
    for i in reversed(range(flags)):  # the first check that failed is what is returned
        lines.append(f"  %flag{i}.p = getelementptr i8, ptr %flags, i64 {i}\n  %flag{i} = load i8, ptr %flag{i}.p")
        lines.append(f"  %failed{i} = icmp ne i8 %flag{i}, 0")
        lines.append(f"  %code{i} = select i1 %failed{i}, i32 {FIRST_CHECK + i}, i32 %code{i + 1}")
    if pool:
        lines.append("  %flag = load i32, ptr %run.flag\n  %cancelled = icmp ne i32 %flag, 0")
        lines.append(f"  %answer = select i1 %cancelled, i32 {CANCELLED}, i32 %code0\n  ret i32 %answer")
    else:
        lines.append("  ret i32 %code0")
    if pool or any(a.open or a.bytes for a in arguments):
        lines.append("missing:\n  ret i32 1")
    if any(a.open or a.bytes for a in arguments):
        lines.append("unaligned:\n  ret i32 2")
    return "\n".join([*lines, "}", ""])


def _linked_ir(face: Interface, function: str, more: Sequence[str] = ()) -> str:
    """The run under the name by which a program that was compiled with the header finds it. more: parameters before the others."""
    parameters = ", ".join([*more, *(f"i64 %e{i}" for i in range(len(face.ranges))), *(f"ptr %a{i}" for i in range(len(face.arguments())))])
    return f"""define i32 @{face.linked(function)}({parameters}) nounwind {{
  %code = call i32 @{face.prefix}_{function}({parameters})
  ret i32 %code
}}
"""


def _of_pool(ints: Sequence[int], opened: int, computed: int) -> str:
    """What a run keeps for its pool, and the integers with its address behind them."""
    lines = ["  %nobody = icmp eq ptr %pool, null\n  br i1 %nobody, label %missing, label %pooled\npooled:"]
    lines.append("  %run = alloca { ptr, i32 }, align 16\n  %run.flag = getelementptr { ptr, i32 }, ptr %run, i32 0, i32 1")
    lines.append("  store ptr %pool, ptr %run\n  store i32 0, ptr %run.flag")
    if not opened:
        lines.append(f"  %ints = alloca [{len(ints) + 1} x i64], align {ALIGN}")
        lines += [f"  %n{i}.p = getelementptr i64, ptr %ints, i64 {i}\n  store i64 {n}, ptr %n{i}.p" for i, n in enumerate(ints)]
    at = opened + computed if opened else len(ints)
    lines.append(f"  %word.p = getelementptr i64, ptr %ints, i64 {at}\n  %word = ptrtoint ptr %run to i64\n  store i64 %word, ptr %word.p")
    return "\n".join(lines)


_SERIAL = """\
define internal void @$P$.serial(ptr %kernel, ptr %buffers, ptr %ints, i64 %pieces) nounwind {
  call void %kernel(ptr %buffers, ptr %ints, i64 0, i64 %pieces)
  ret void
}
"""

# The application's threads: a pool is (context, share, cancelled), as the header says. What a run keeps is (pool, what `cancelled` said).
_POOL = """\
define internal void @$P$.shared(ptr %kernel, ptr %buffers, ptr %ints, i64 %pieces) nounwind {
entry:
  %job = alloca [3 x ptr], align 16
  %run.p = getelementptr ptr, ptr %buffers, i64 -2
  %run = load ptr, ptr %run.p
  %flag.p = getelementptr { ptr, i32 }, ptr %run, i32 0, i32 1
  %flag = load i32, ptr %flag.p
  %stopped = icmp ne i32 %flag, 0
  br i1 %stopped, label %end, label %look
look:
  %pool = load ptr, ptr %run
  %context = load ptr, ptr %pool
  %ask.p = getelementptr ptr, ptr %pool, i64 2
  %ask = load ptr, ptr %ask.p
  %never = icmp eq ptr %ask, null
  br i1 %never, label %go, label %asking
asking:
  %answer = call i32 %ask(ptr %context)
  store i32 %answer, ptr %flag.p
  %stop = icmp ne i32 %answer, 0
  br i1 %stop, label %end, label %go
go:
  %share.p = getelementptr ptr, ptr %pool, i64 1
  %share = load ptr, ptr %share.p
  %alone = icmp eq ptr %share, null
  %few = icmp sle i64 %pieces, 1
  %here = or i1 %alone, %few
  br i1 %here, label %self, label %others
self:
  call void %kernel(ptr %buffers, ptr %ints, i64 0, i64 %pieces)
  br label %end
others:
  %job.1 = getelementptr ptr, ptr %job, i64 1
  %job.2 = getelementptr ptr, ptr %job, i64 2
  store ptr %kernel, ptr %job
  store ptr %buffers, ptr %job.1
  store ptr %ints, ptr %job.2
  call void %share(ptr %context, ptr @$P$.work, ptr %job, i64 %pieces)
  br label %end
end:
  ret void
}

define internal void @$P$.work(ptr %job, i64 %begin, i64 %end) nounwind {
  %job.1 = getelementptr ptr, ptr %job, i64 1
  %job.2 = getelementptr ptr, ptr %job, i64 2
  %kernel = load ptr, ptr %job
  %buffers = load ptr, ptr %job.1
  %ints = load ptr, ptr %job.2
  call void %kernel(ptr %buffers, ptr %ints, i64 %begin, i64 %end)
  ret void
}
"""

_RESET = """\
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
define i32 @$P$_reset(ptr %weights, ptr %state) nounwind {
  %no.weights = icmp eq ptr %weights, null
  %no.state = icmp eq ptr %state, null
  %null = or i1 %no.weights, %no.state
  br i1 %null, label %missing, label %given
missing:
  ret i32 1
given:
  %a = ptrtoint ptr %weights to i64
  %b = ptrtoint ptr %state to i64
  %both = or i64 %a, %b
  %low = and i64 %both, 63
  %odd = icmp ne i64 %low, 0
  br i1 %odd, label %unaligned, label %good
unaligned:
  ret i32 2
good:
  %from = getelementptr i8, ptr %weights, i64 $FROM$
  call void @llvm.memcpy.p0.p0.i64(ptr align 64 %state, ptr align 64 %from, i64 $N$, i1 false)
  ret i32 0
}
"""

_FITS = """\
define i32 @$P$_check_$NAME$($EXTENTS$ptr %memory, $SIZE$ %bytes) nounwind {
  %wanted = $WANTED$
  %outside = icmp slt i64 %wanted, 0
  br i1 %outside, label %extent, label %inside
extent:
  ret i32 $OUTSIDE$
inside:
  %null = icmp eq ptr %memory, null
  br i1 %null, label %missing, label %given
missing:
  ret i32 3
given:
  %address = ptrtoint ptr %memory to i64
  %low = and i64 %address, $LOW$
  %odd = icmp ne i64 %low, 0
  br i1 %odd, label %unaligned, label %aligned
unaligned:
  ret i32 4
aligned:
  %have = zext $SIZE$ %bytes to i128
  %need = zext i64 %wanted to i128
  %small = icmp ult i128 %have, %need
  %code = zext i1 %small to i32
  ret i32 %code
}
"""

_CHECK = """\
define i32 @$P$_check(ptr %weights, $SIZE$ %bytes) nounwind {
entry:
  %null = icmp eq ptr %weights, null
  br i1 %null, label %missing, label %given
missing:
  ret i32 3
given:
  %address = ptrtoint ptr %weights to i64
  %low = and i64 %address, 7
  %odd = icmp ne i64 %low, 0
  br i1 %odd, label %unaligned, label %aligned
unaligned:
  ret i32 4
aligned:
  %fits = icmp eq $SIZE$ %bytes, $BYTES$
  br i1 %fits, label %words, label %size
size:
  ret i32 1
words:
  br label %next
next:
  %i = phi i64 [0, %words], [%i1, %next]
  %sum = phi i64 [0, %words], [%sum1, %next]
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


def _fits_text(face: Interface, a: Argument, pointer_bytes: int) -> str:
    opened = range(len(face.ranges)) if a.open else range(0)
    extents = "".join(f"i64 %e{i}, " for i in opened)
    wanted = f"call i64 @{face.prefix}_{a.name}_bytes({extents.removesuffix(', ')})" if a.open else f"add i64 {a.bytes}, 0"
    values = {
        "P": face.prefix, "NAME": a.name, "EXTENTS": extents, "SIZE": f"i{8 * pointer_bytes}", "WANTED": wanted, "OUTSIDE": OUTSIDE,
        "LOW": ALIGN - 1,
    }  # fmt: skip
    return _filled(_FITS, values)


def _check_text(face: Interface, pointer_bytes: int) -> str:
    values = {
        "P": face.prefix, "BYTES": face.weights_bytes, "WORDS": face.weights_bytes // 8, "SUM": face.weights_sum,
        "SIZE": f"i{8 * pointer_bytes}", "GOLDEN": _GOLDEN, "MIX1": _MIX1, "MIX2": _MIX2,
    }  # fmt: skip
    return _filled(_CHECK, values)


def _filled(text: str, values: Mapping[str, object]) -> str:
    """A text with a value for each name between dollars."""
    for k, v in values.items():
        text = text.replace(f"${k}$", str(v))
    return text
