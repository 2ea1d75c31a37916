"""ARM of 32 bits: ARMv7-A (Cortex-A7 and later, with VFPv4 and NEON), and ARMv7E-M (Cortex-M4F and M7), which has no vectors and no
operating system.

Bits: VFP's arithmetic rounds once to nearest even, fuses multiply-adds, and keeps subnormal numbers, in the state that programs
begin with. NEON's does the same but for subnormal numbers of float32, which it takes for zeros and gives as zeros (whatever FPSCR
says). So code for `armv7`, which uses NEON, has the same bits wherever no subnormal float32 comes up, and code for `armv7-exact`, VFP
alone, always has. There are no instructions that round to an integer before ARMv8: that is written out.

ARMv7E-M: the Cortex-M4F and most M7s compute float32 alone; float64 is computed by the compiler's library. FPSCR must be as it is
after reset: rounding to nearest, subnormal numbers kept, no default NaN.

Memory: stores become visible in any order. Addresses have 32 bits; there are no threads.
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
    dot4i_by_pairs,
)

_LAYOUT = "e-m:e-p:32:32-Fi8-i64:64-v128:64:128-a:0:32-n32-S64"
_LINUX = "unknown-linux-gnueabihf"
_BARE = "unknown-none-eabihf"
_TESTED = "run by qemu-arm, compared as bytes"


def _pairs_added(emit: Emitter, total: str, products: str) -> str:
    """VPADAL: neighbouring ones of eight int16 are added to four int32."""
    return emit.intrinsic("arm.neon.vpadals.v4i32.v8i16", QUARTER, f"{QUARTER} {total}", f"<8 x i16> {products}")


def _dot2i(emit: Emitter, args: list[str]) -> str:
    """SMLAD in each of 16 lanes."""
    ty, found = "<16 x i32>", "poison"
    for i in range(16):
        total, a, b = (f"i32 {emit.pure(f'extractelement {ty} {x}, i64 {i}')}" for x in args)
        found = emit.pure(f"insertelement {ty} {found}, i32 {emit.intrinsic('arm.smlad', 'i32', a, b, total)}, i64 {i}")
    return found


_ALONE = r"""
enum { READ = 3, WRITE = 4, OPENAT = 322, CLOSE = 6, MMAP = 192, EXIT = 248 };
#define NUMBER "r7"
#define REGISTER(i) "r" #i
#define CALL "svc 0"
__asm__(".globl _start\n_start:\n mov r0, sp\n b begin\n");
"""

ARMV7 = Architecture(
    name="armv7",
    data_layout=_LAYOUT,
    levels={
        "armv7": Level(
            "armv7", "cortex-a7", "+neon,+vfp4", system=_LINUX, emulator_options=("-cpu", "max"), lacks=("round",), tested=_TESTED,
            bits="the bits of every other target where no subnormal float32 comes up, which NEON takes for zeros",
        ),
        "armv7-exact": Level(
            "armv7-exact", "cortex-a7", "-neon,+vfp4", system=_LINUX, emulator_options=("-cpu", "max"), lacks=("round",), tested=_TESTED
        ),
    },
    registers=(Registers("neon", 16, 16), Registers("", 4, 32)),
    masked=(),
    forms=(VectorForm("dot4i", "neon", lambda emit, args: dot4i_by_pairs(emit, args, _pairs_added), at_once=False),),
    pause="call void @llvm.arm.hint(i32 1)",
    fence="",
    elf_machine=40,
    linking=None,
    c_triple="arm-linux-musleabihf",
    emulators=("qemu-arm", "qemu-arm-static"),
    notable=("neon", "vfp4"),
    cpuinfo=("Features", "CPU implementer", "CPU architecture", "CPU variant", "CPU part", "CPU revision"),
    alone=Alone(("arm-freestanding-eabihf", "-mcpu=cortex_a7"), _ALONE + LINUX_CALLS),
)  # fmt: skip

THUMBV7EM = Architecture(
    name="thumbv7em",
    data_layout=_LAYOUT,
    levels={
        "cortex-m4": Level(
            "cortex-m4", "cortex-m4", system=_BARE, c_triple="thumb-freestanding-eabihf -mcpu=cortex_m4+vfp4d16sp",
            emulator_options=("-M", "mps2-an386"), lacks=("round",), tested="run by qemu-system-arm (mps2-an386), compared as bytes",
        ),
        "cortex-m7": Level(
            "cortex-m7", "cortex-m7", "-fp64", system=_BARE, c_triple="thumb-freestanding-eabihf -mcpu=cortex_m7+fp_armv8d16sp",
            emulator_options=("-M", "mps2-an500"), lacks=("round",), tested="run by qemu-system-arm (mps2-an500), compared as bytes",
        ),
    },
    registers=(Registers("", 4, 32),),
    masked=(),
    forms=(VectorForm("dot2i", "", _dot2i),),
    pause="call void @llvm.arm.hint(i32 1)",
    fence="",
    elf_machine=40,
    linking=None,
    c_triple="thumb-freestanding-eabihf",
    emulators=("qemu-system-arm",),
    notable=(),
    cpuinfo=(),
)  # fmt: skip
