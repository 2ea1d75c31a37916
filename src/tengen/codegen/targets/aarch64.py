"""AArch64, with the vectors of 16 bytes that every processor of it has (NEON).

Bits: in the state that a process begins with (FPCR all zeros), arithmetic rounds once and keeps subnormal numbers, and FCVT
converts float16, subnormal numbers too. BFDOT is no form of `dot2`: without the extension EBF16 it rounds its sums to odd.

Memory: stores become visible in any order; the thread pool orders them by its own acquiring and releasing accesses, and what is
stored past the caches with them. Nothing else is needed.
"""

from __future__ import annotations

from tengen.codegen.targets.architecture import (
    LINUX_CALLS,
    QUARTER,
    Alone,
    Architecture,
    Emitter,
    Level,
    Registers,
    VectorForm,
    by_quarters,
    dot4i_by_pairs,
    joined,
    quarter,
)


def _dot(emit: Emitter, args: list[str], name: str) -> str:
    """Four SDOT or USDOT on 128 bits: each of four int32 totals, and four groups of four integers of 8 bits."""
    bytes_ = "<16 x i8>"
    dot = lambda total, a, b: emit.intrinsic(name, QUARTER, f"{QUARTER} {total}", f"{bytes_} {a}", f"{bytes_} {b}")
    return by_quarters(emit, args, bytes_, dot)


def _quad(emit: Emitter, args: list[str], name: str) -> str:
    """Four SMMLA or USMMLA on 128 bits: each of 2 by 2 int32 totals, 2 rows of eight integers of 8 bits, and 2 columns of as many."""
    return _dot(emit, args, f"aarch64.neon.{name}.v4i32.v16i8")


def _lookup(emit: Emitter, args: list[str]) -> str:
    """Four TBL, each of the 32 bytes of half a table, by the numbers of bytes."""
    i32, i8 = "<16 x i32>", "<16 x i8>"
    table = emit.convert("bitcast", args[0], "<16 x float>", i32)
    at = emit.pure(f"and {i32} {args[1]}, splat (i32 7)")
    at = emit.pure(f"add {i32} {emit.pure(f'mul {i32} {at}, splat (i32 {0x04040404})')}, splat (i32 {0x03020100})")
    quarters = [emit.convert("bitcast", quarter(emit, table, i), QUARTER, i8) for i in range(4)]
    parts = []
    for i in range(4):
        low, high = quarters[i // 2 * 2 : i // 2 * 2 + 2]
        index = emit.convert("bitcast", quarter(emit, at, i), QUARTER, i8)
        found = emit.intrinsic("aarch64.neon.tbl2.v16i8", i8, f"{i8} {low}", f"{i8} {high}", f"{i8} {index}")
        parts.append(emit.convert("bitcast", found, i8, QUARTER))
    return emit.convert("bitcast", joined(emit, parts), i32, "<16 x float>")


def _pairs_added(emit: Emitter, total: str, products: str) -> str:
    """SADALP: neighbouring ones of eight int16 are added to four int32."""
    sums = emit.intrinsic("aarch64.neon.saddlp.v4i32.v8i16", QUARTER, f"<8 x i16> {products}")
    return emit.pure(f"add {QUARTER} {total}, {sums}")


_ALONE = r"""
enum { READ = 63, WRITE = 64, OPENAT = 56, CLOSE = 57, MMAP = 222, EXIT = 94 };
#define NUMBER "x8"
#define REGISTER(i) "x" #i
#define CALL "svc 0"
__asm__(".globl _start\n_start:\n mov x29, #0\n mov x0, sp\n b begin\n");
"""

AARCH64 = Architecture(
    name="aarch64",
    data_layout="e-m:e-p270:32:32-p271:32:32-p272:64:64-i8:8:32-i16:16:32-i64:64-i128:128-n32:64-S128-Fn32",
    levels={
        "aarch64": Level("aarch64", "generic", "+neon", tested="run by qemu-aarch64, compared as bytes"),
        "android-arm64": Level(
            "android-arm64", "generic", "+neon", system="unknown-linux-android21", tested="linked to a shared library, and disassembled"
        ),
        "macos-arm64": Level(
            "macos-arm64", "apple-m1", "+neon", system="apple-macosx13.0.0", c_triple="aarch64-macos",
            tested="linked to a program and a shared library, and disassembled",
        ),
    },  # fmt: skip
    registers=(Registers("", 16, 32),),
    masked=(),
    forms=(
        VectorForm("dot4i", "dotprod", lambda emit, args: _dot(emit, args, "aarch64.neon.sdot.v4i32.v16i8")),
        VectorForm("dot4u", "i8mm", lambda emit, args: _dot(emit, args, "aarch64.neon.usdot.v4i32.v16i8")),
        VectorForm("quad4i", "i8mm", lambda emit, args: _quad(emit, args, "smmla")),
        VectorForm("quad4u", "i8mm", lambda emit, args: _quad(emit, args, "usmmla")),
        VectorForm("lookup", "neon", _lookup),
        VectorForm("dot4i", "neon", lambda emit, args: dot4i_by_pairs(emit, args, _pairs_added), at_once=False),
    ),
    pause="call void @llvm.aarch64.isb(i32 15)",
    fence="",
    elf_machine=183,
    linking=None,
    c_triple="aarch64-linux-musl",
    emulators=("qemu-aarch64", "qemu-aarch64-static"),
    notable=("neon", "dotprod", "i8mm", "bf16", "sve"),
    cpuinfo=("Features", "CPU implementer", "CPU architecture", "CPU variant", "CPU part", "CPU revision"),
    hosts=True,
    alone=Alone(("aarch64-freestanding-none", "-nostdlib"), _ALONE + LINUX_CALLS),
)
