"""RISC-V of 64 bits, as Linux needs it (RV64GC), and with vectors (V 1.0).

Bits: additions, products, quotients, roots and fused multiply-adds round as the register frm says, to nearest even unless a program
changes it, and keep subnormal numbers; vectors do the same. There is no conversion of float16 in RV64GC (Zfhmin has it): it is
written out, so that code for the floor and code for others agree.

Vectors: V has registers of at least 128 bits, of which LLVM groups as many as 16 lanes take where registers are that short. So
code for it runs with every length of register, and uses as much of long ones as 16 lanes fill. Rounding to
an integer would change frm and change it back: it is written out. Conversions to narrower integers take two steps, as QEMU 7.2 stops at the
instruction that takes one (vfncvt.rtz.x.f.w, "insn_start != NULL"). It stops in the same way where two conversions of vectors to integers
follow one another (vfcvt.rtz.x.f.v), which int8 networks need: those were not run.

Memory: stores become visible in any order; the thread pool orders them by its own acquiring and releasing accesses.
"""

from __future__ import annotations

from tengen.codegen.targets.architecture import LINUX_CALLS, Alone, Architecture, Emitter, Level, Registers, VectorForm, picked

_FLOOR = "+m,+a,+f,+d,+c"
_QEMU = "rv64,v=true,vext_spec=v1.0,vlen=128"


def _dot2i(emit: Emitter, args: list[str]) -> str:
    """Two VWMACC, which multiply int16 and add to int32: of the first elements of all lanes, then of the second."""
    i16, i32, total = "<16 x i16>", "<16 x i32>", args[0]
    for which in (0, 1):
        a, b = (emit.convert("sext", _elements(emit, x, which), i16, i32) for x in args[1:])
        total = emit.pure(f"add {i32} {total}, {emit.pure(f'mul {i32} {a}, {b}')}")
    return total


def _elements(emit: Emitter, x: str, which: int) -> str:
    """The first or second int16 of each lane of a `<16 x i32>`, as a `<16 x i16>`."""
    if (scalar := emit.in_all_lanes(x)) is None:
        return picked(emit, emit.convert("bitcast", x, "<16 x i32>", "<32 x i16>"), "<32 x i16>", range(which, 32, 2))
    high = emit.pure(f"lshr i32 {scalar}, 16") if which else scalar
    one = emit.pure(f"insertelement <16 x i16> poison, i16 {emit.convert('trunc', high, 'i32', 'i16')}, i64 0")
    return picked(emit, one, "<16 x i16>", [0] * 16)


_ALONE = r"""
enum { READ = 63, WRITE = 64, OPENAT = 56, CLOSE = 57, MMAP = 222, EXIT = 94 };
#define NUMBER "a7"
#define REGISTER(i) "a" #i
#define CALL "ecall"
__asm__(".globl _start\n_start:\n mv a0, sp\n tail begin\n");
"""

RISCV64 = Architecture(
    name="riscv64",
    data_layout="e-m:e-p:64:64-i64:64-i128:128-n32:64-S128",
    levels={
        "riscv64": Level("riscv64", "generic-rv64", _FLOOR, lacks=("half",), tested="run by qemu-riscv64, compared as bytes"),
        "riscv64-v": Level(
            "riscv64-v", "generic-rv64", f"{_FLOOR},+v", emulator_options=("-cpu", _QEMU), lacks=("half", "round", "narrow"),
            tested="run by qemu-riscv64 with registers of 128 bits, compared as bytes; not int8 networks, at which QEMU 7.2 fails",
        ),
    },  # fmt: skip
    registers=(Registers("v", 16, 32), Registers("", 4, 32)),
    masked=(),
    forms=(VectorForm("dot2i", "v", _dot2i, at_once=False),),  # pairs that differ from lane to lane are taken apart for each product
    pause='fence syncscope("singlethread") seq_cst',
    fence="",
    elf_machine=243,
    linking=None,
    c_triple="riscv64-linux-musl",
    emulators=("qemu-riscv64", "qemu-riscv64-static"),
    notable=("v",),
    cpuinfo=("isa", "uarch"),
    alone=Alone(("riscv64-freestanding-none", "-nostdlib"), _ALONE + LINUX_CALLS),
)
