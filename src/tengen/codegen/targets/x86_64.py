"""x86-64: every processor of it (SSE2), and those of the levels v3 (AVX2 and fma) and v4 (AVX-512).

Bits: in the state that a process begins with (MXCSR), arithmetic of SSE, AVX and AVX-512 rounds once and keeps subnormal
numbers, and F16C converts float16, subnormal numbers too. VDPBF16PS is `dot2` of the kernel language, which was defined
by it: it takes and gives zeros for subnormal numbers. The conversion to bfloat16 (VCVTNEPS2BF16) does that too, where
the language keeps them, so it is no form of a cast. SSE2 has no fused multiply-add, no rounding to an integer and no float16:
these are written out for `x86-64-exact`, whose code has the bits of all, at a price (a float64 fma is the C library's). Code for `x86-64`
does so in the math functions, and rounds the products that sums are made of, as that for `wasm32`.

Memory: stores become visible in their order, except those past the caches, which need a fence before other threads are told.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from tengen.codegen.targets.architecture import (
    QUARTER,
    ROUNDS,
    Architecture,
    Emitter,
    Level,
    Linking,
    Registers,
    VectorForm,
    by_quarters,
)

_V3_FEATURES = ("avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe")
_V4_FEATURES = (*_V3_FEATURES, "avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512cd")
_RUN = "run natively, compared as bytes"
_RUN_OLD = f"{_RUN}; and by qemu-x86_64 as a processor without AVX"
_V1 = Level(
    "x86-64", "x86-64", lacks=("half", "round", "fma", "inner fma"), tested=_RUN_OLD,
    bits="integers and single operations as everywhere; sums of products round each product (no fused multiply-add)",
)  # fmt: skip
_V1_EXACT = Level("x86-64-exact", "x86-64", lacks=("half", "round", "fma"), tested=_RUN_OLD)
_V3 = Level("x86-64-v3", "x86-64-v3", implied=_V3_FEATURES, tested=_RUN)
_V4 = Level("x86-64-v4", "x86-64-v4", implied=_V4_FEATURES, tested=f"{_RUN}, where the processor has AVX-512")
_WINDOWS = Level(
    "windows-x86-64", "x86-64-v3", implied=_V3_FEATURES, system="pc-windows-gnu", c_triple="x86_64-windows-gnu",
    emulators=("wine", "wine64"), tested="linked to a program and a DLL, and disassembled; run where wine is installed",
)  # fmt: skip


def _dot2(emit: Emitter, args: list[str]) -> str:
    """VDPBF16PS: 16 float32 totals, and two vectors of 32 bfloat16."""
    total, a, b = args
    f32, pairs = "<16 x float>", "<32 x bfloat>"
    a, b = (emit.convert("bitcast", x, "<16 x i32>", pairs) for x in (a, b))
    return emit.intrinsic("x86.avx512bf16.dpbf16ps.512", f32, f"{f32} {total}", f"{pairs} {a}", f"{pairs} {b}")


def _lanes(first: int, count: int) -> str:
    """A mask that takes so many lanes from `first` on."""
    return f"<{count} x i32> <{', '.join(f'i32 {first + i}' for i in range(count))}>"


def _half(emit: Emitter, x: str, which: int) -> str:
    """The first or second 8 of 16 lanes."""
    return emit.pure(f"shufflevector <16 x i32> {x}, <16 x i32> poison, {_lanes(8 * which, 8)}")


def _multiplied(emit: Emitter, args: list[str], width: int, name: str) -> str:
    """Sums of pairs of products of int16, `width` of them, by VPMADDWD."""
    pairs = f"<{2 * width} x i16>"
    a, b = (emit.convert("bitcast", x, f"<{width} x i32>", pairs) for x in args)
    return emit.intrinsic(name, f"<{width} x i32>", f"{pairs} {a}", f"{pairs} {b}")


def _dot2i_512(emit: Emitter, args: list[str]) -> str:
    """VPMADDWD on 512 bits, and an addition; LLVM makes one VPDPWSSD of both where the processor has VNNI."""
    products = _multiplied(emit, args[1:], 16, "x86.avx512.pmaddw.d.512")
    return emit.pure(f"add <16 x i32> {args[0]}, {products}")


def _dot2i_256(emit: Emitter, args: list[str]) -> str:
    """Two VPMADDWD on 256 bits, and an addition."""
    low, high = (_multiplied(emit, [_half(emit, x, i) for x in args[1:]], 8, "x86.avx2.pmadd.wd") for i in (0, 1))
    products = emit.pure(f"shufflevector <8 x i32> {low}, <8 x i32> {high}, {_lanes(0, 16)}")
    return emit.pure(f"add <16 x i32> {args[0]}, {products}")


def _dot2i_128(emit: Emitter, args: list[str]) -> str:
    """Four PMADDWD on 128 bits, and an addition."""
    multiplied = lambda a, b: emit.intrinsic("x86.sse2.pmadd.wd", QUARTER, f"<8 x i16> {a}", f"<8 x i16> {b}")
    return by_quarters(emit, args, "<8 x i16>", lambda total, a, b: emit.pure(f"add {QUARTER} {total}, {multiplied(a, b)}"))


def _bytes_dot(emit: Emitter, args: list[str], width: int, name: str) -> str:
    """VPDPBUSD: `width` int32 totals, and so many groups of four uint8 and of four int8."""
    i32, bytes_ = f"<{width} x i32>", f"<{4 * width} x i8>"
    a, b = (emit.convert("bitcast", x, i32, bytes_) for x in args[1:])
    return emit.intrinsic(name, i32, f"{i32} {args[0]}", f"{bytes_} {a}", f"{bytes_} {b}")


def _dot4u_512(emit: Emitter, args: list[str]) -> str:
    """VPDPBUSD on 512 bits."""
    return _bytes_dot(emit, args, 16, "x86.avx512.vpdpbusd.512")


def _dot4u_256(emit: Emitter, args: list[str]) -> str:
    """Two VPDPBUSD on 256 bits, in AVX's encoding."""
    low, high = (_bytes_dot(emit, [_half(emit, x, i) for x in args], 8, "x86.avx512.vpdpbusd.256") for i in (0, 1))
    return emit.pure(f"shufflevector <8 x i32> {low}, <8 x i32> {high}, {_lanes(0, 16)}")


def _dot4n(emit: Emitter, args: list[str], width: int, sum_bytes: str, sum_pairs: str, negate: Callable[[str, str, str], str]) -> str:
    """VPABSB, `negate` (the second operand, where the first is negative), VPMADDUBSW, VPMADDWD by ones, and an addition, on `width` int32.
    An operand that all lanes share is bounded once, in front of what uses it."""
    i32, i16, i8 = f"<{width} x i32>", f"<{2 * width} x i16>", f"<{4 * width} x i8>"
    a, b = (emit.convert("bitcast", x, i32, i8) for x in args[1:])
    b = negate(a, emit.intrinsic(f"smax.v{4 * width}i8", i8, f"{i8} {b}", f"{i8} splat (i8 -127)"), i8)
    a = emit.intrinsic(f"abs.v{4 * width}i8", i8, f"{i8} {a}", "i1 false")
    pairs = emit.intrinsic(sum_bytes, i16, f"{i8} {a}", f"{i8} {b}")
    products = emit.intrinsic(sum_pairs, i32, f"{i16} {pairs}", f"{i16} splat (i16 1)")
    return emit.pure(f"add {i32} {args[0]}, {products}")


def _dot4n_512(emit: Emitter, args: list[str]) -> str:
    """On 512 bits, for which there is no VPSIGNB: a subtraction under a mask."""

    def negate(a: str, b: str, i8: str) -> str:
        negative = emit.pure(f"icmp slt {i8} {a}, zeroinitializer")
        return emit.pure(f"select <64 x i1> {negative}, {i8} {emit.pure(f'sub {i8} zeroinitializer, {b}')}, {i8} {b}")

    return _dot4n(emit, args, 16, "x86.avx512.pmaddubs.w.512", "x86.avx512.pmaddw.d.512", negate)


def _dot4n_256(emit: Emitter, args: list[str]) -> str:
    """On two halves of 256 bits, by VPSIGNB."""
    negate = lambda a, b, i8: emit.intrinsic("x86.avx2.psign.b", i8, f"{i8} {b}", f"{i8} {a}")
    halves = ([_half(emit, x, i) for x in args] for i in (0, 1))
    low, high = (_dot4n(emit, half, 8, "x86.avx2.pmadd.ub.sw", "x86.avx2.pmadd.wd", negate) for half in halves)
    return emit.pure(f"shufflevector <8 x i32> {low}, <8 x i32> {high}, {_lanes(0, 16)}")


def _dot2h(emit: Emitter, args: list[str], width: int, name: str) -> str:
    """VPMADDUBSW and VPADDW on `width` int32. Masking the first operand takes no instruction where it is known to have 7 bits."""
    i32, i16, i8 = f"<{width} x i32>", f"<{2 * width} x i16>", f"<{4 * width} x i8>"
    masked = emit.pure(f"and {i32} {args[1]}, <{', '.join([f'i32 {0x7F7F7F7F}'] * width)}>")
    a, b = (emit.convert("bitcast", x, i32, i8) for x in (masked, args[2]))
    total, products = emit.convert("bitcast", args[0], i32, i16), emit.intrinsic(name, i16, f"{i8} {a}", f"{i8} {b}")
    return emit.convert("bitcast", emit.pure(f"add {i16} {total}, {products}"), i16, i32)


def _dot2h_512(emit: Emitter, args: list[str]) -> str:
    """On 512 bits."""
    return _dot2h(emit, args, 16, "x86.avx512.pmaddubs.w.512")


def _dot2h_256(emit: Emitter, args: list[str]) -> str:
    """On two halves of 256 bits."""
    low, high = (_dot2h(emit, [_half(emit, x, i) for x in args], 8, "x86.avx2.pmadd.ub.sw") for i in (0, 1))
    return emit.pure(f"shufflevector <8 x i32> {low}, <8 x i32> {high}, {_lanes(0, 16)}")


def _dot4s_256(emit: Emitter, args: list[str]) -> str:
    """Two VPMADDUBSW on 256 bits, VPMADDWD by ones, and an addition."""
    i8, i16, i32 = "<32 x i8>", "<16 x i16>", "<8 x i32>"
    sums = []
    for half in (0, 1):
        a, b = (emit.convert("bitcast", _half(emit, x, half), i32, i8) for x in args[1:])
        pairs = emit.intrinsic("x86.avx2.pmadd.ub.sw", i16, f"{i8} {a}", f"{i8} {b}")
        sums.append(emit.intrinsic("x86.avx2.pmadd.wd", i32, f"{i16} {pairs}", f"{i16} splat (i16 1)"))
    products = emit.pure(f"shufflevector {i32} {sums[0]}, {i32} {sums[1]}, {_lanes(0, 16)}")
    return emit.pure(f"add <16 x i32> {args[0]}, {products}")


def _swizzle(emit: Emitter, args: list[str]) -> str:
    """PSHUFB."""
    return emit.intrinsic("x86.ssse3.pshuf.b.128", "<16 x i8>", *(f"<16 x i8> {x}" for x in args))


def _lookup_512(emit: Emitter, args: list[str]) -> str:
    """VPERMPS on 512 bits, by the numbers of lanes in the whole register."""
    at = emit.pure(f"and {_I32} {args[1]}, splat (i32 7)")
    at = emit.pure(f"or {_I32} {at}, <{', '.join(f'i32 {i // 8 * 8}' for i in range(16))}>")
    return emit.intrinsic("x86.avx512.permvar.sf.512", _F32, f"{_F32} {args[0]}", f"{_I32} {at}")


def _lookup_256(emit: Emitter, args: list[str]) -> str:
    """VPERMPS on each half."""
    parts = []
    for i in (0, 1):
        table = emit.pure(f"shufflevector {_F32} {args[0]}, {_F32} poison, {_lanes(8 * i, 8)}")
        parts.append(emit.intrinsic("x86.avx2.permps", "<8 x float>", f"<8 x float> {table}", f"<8 x i32> {_half(emit, args[1], i)}"))
    return emit.pure(f"shufflevector <8 x float> {parts[0]}, <8 x float> {parts[1]}, {_lanes(0, 16)}")


_F32, _I32, _I8 = "<16 x float>", "<16 x i32>", "<16 x i8>"


def _chosen(emit: Emitter, comparison: str, x: str, number: float) -> str:
    """x where it compares so with a number, which elsewhere takes its place."""
    flags = emit.pure(f"fcmp {comparison} {_F32} {x}, splat (float {number!r})")
    return emit.pure(f"select <16 x i1> {flags}, {_F32} {x}, {_F32} splat (float {number!r})")


def _whole_512(emit: Emitter, x: str) -> str:
    """VCVTPS2DQ on 512 bits: what int32 does not hold, and NaN, becomes -2^31."""
    return emit.intrinsic("x86.avx512.mask.cvtps2dq.512", _I32, f"{_F32} {x}", f"{_I32} zeroinitializer", "i16 -1", "i32 4")


def _whole_256(emit: Emitter, x: str) -> str:
    """The same twice on 256 bits."""
    halves = (emit.pure(f"shufflevector {_F32} {x}, {_F32} poison, {_lanes(8 * i, 8)}") for i in (0, 1))
    low, high = (emit.intrinsic("x86.avx.cvt.ps2dq.256", "<8 x i32>", f"<8 x float> {half}") for half in halves)
    return emit.pure(f"shufflevector <8 x i32> {low}, <8 x i32> {high}, {_lanes(0, 16)}")


def _as_bytes(emit: Emitter, x: str, *bounds: tuple[str, int]) -> str:
    """int32 cut off at bounds: of VPMOVUSDB or VPMOVSDB, or of the packings of int32 and int16, which LLVM makes of this."""
    for name, bound in bounds:
        x = emit.intrinsic(f"{name}.v16i32", _I32, f"{_I32} {x}", f"{_I32} splat (i32 {bound})")
    return emit.convert("trunc", x, _I32, _I8)


def _round_to_uint8_512(emit: Emitter, args: list[str]) -> str:
    """What is too large becomes -2^31, of which VPMOVUSDB, for which it is 2^31, makes 255."""
    return _as_bytes(emit, _whole_512(emit, _chosen(emit, "ogt", args[0], -0.25)), ("umin", 255))


def _round_to_uint8_256(emit: Emitter, args: list[str]) -> str:
    """NaN is not greater than 255, and becomes -2^31, of which the packing makes 0."""
    return _as_bytes(emit, _whole_256(emit, _chosen(emit, "ult", args[0], 255.0)), ("smax", 0), ("umin", 255))


def _round_to_int8(whole: Callable[[Emitter, str], str]) -> Callable[[Emitter, list[str]], str]:
    """What is too small becomes -2^31, of which the packing makes -128."""

    def form(emit: Emitter, args: list[str]) -> str:
        x = _chosen(emit, "olt", _chosen(emit, "ord", args[0], 0.0), 127.0)
        return _as_bytes(emit, whole(emit, x), ("smax", -128), ("smin", 127))

    return form


def _stub(distance: int) -> bytes:
    """jmp [rip + the rest of the distance], and two bytes that stop whoever runs into them."""
    return b"\xff\x25" + struct.pack("<i", distance - 6) + b"\xcc\xcc"


X86_64 = Architecture(
    name="x86_64",
    data_layout="e-m:e-p270:32:32-p271:32:32-p272:64:64-i64:64-i128:128-f80:128-n8:16:32:64-S128",
    levels={"x86-64-v3": _V3, "x86-64": _V1, "x86-64-exact": _V1_EXACT, "x86-64-v4": _V4, "windows-x86-64": _WINDOWS},
    registers=(Registers("avx512vl", 64, 32), Registers("avx2", 32, 16), Registers("", 16, 16)),
    masked=(("avx512bw", 1), ("avx2", 4)),
    forms=(
        VectorForm("dot2", "avx512bf16", _dot2),
        VectorForm("dot2i", "avx512bw", _dot2i_512),
        VectorForm("dot2i", "avx2", _dot2i_256),
        VectorForm("dot2i", "", _dot2i_128),
        VectorForm("dot2h", "avx512bw", _dot2h_512),
        VectorForm("dot2h", "avx2", _dot2h_256),
        VectorForm("dot4n", "avx512bw", _dot4n_512),
        VectorForm("dot4n", "avx2", _dot4n_256),
        VectorForm("dot4s", "avx2", _dot4s_256),
        VectorForm("swizzle", "avx2", _swizzle),
        VectorForm("dot4u", "avx512vnni", _dot4u_512),
        VectorForm("dot4u", "avxvnni", _dot4u_256),
        VectorForm("lookup", "avx512bw", _lookup_512),
        VectorForm("lookup", "avx2", _lookup_256),
        VectorForm(ROUNDS["uint8"], "avx512bw", _round_to_uint8_512),
        VectorForm(ROUNDS["uint8"], "avx2", _round_to_uint8_256),
        VectorForm(ROUNDS["int8"], "avx512bw", _round_to_int8(_whole_512)),
        VectorForm(ROUNDS["int8"], "avx2", _round_to_int8(_whole_256)),
    ),
    pause="call void @llvm.x86.sse2.pause()",
    fence="call void @llvm.x86.sse.sfence()",
    elf_machine=62,
    linking=Linking(relative=2, call=4, table=(9, 41, 42), absolute=1, unwind=0x70000001, stub=_stub),
    c_triple="x86_64-linux-musl",
    emulators=("qemu-x86_64", "qemu-x86_64-static"),
    notable=("fma", "avx2", "avx512f", "avx512vl", "avx512bw", "avx512vnni", "avx512bf16"),
    cpuinfo=("vendor_id", "cpu family", "model", "model name", "stepping", "microcode", "flags"),
    hosts=True,
    lacking=("x86-64-exact", ("fma", "f16c")),
    keeping=("preserve_allcc", "avx"),
)
