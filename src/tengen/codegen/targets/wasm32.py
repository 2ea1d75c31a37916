"""WebAssembly with vectors of 16 bytes (SIMD128), addresses of 32 bits.

Bits: every operation of WebAssembly on float32 and float64 rounds once to nearest even and keeps subnormal numbers, in every engine;
only the payload of NaNs is open. It has no fused multiply-add, and no conversion of float16. Code for `wasm32-exact` writes both
out: a float32 fma in some twenty instructions of float64, rounded to odd first, so that it rounds once; a float64 fma is the C
library's. Code for `wasm32` does so in the math functions, whose errors are as everywhere, and rounds the products that sums are
made of: sums of products (matrix products, convolutions) differ in their last bits, and integers do not.

Memory: one thread; SharedArrayBuffer is not used.
"""

from __future__ import annotations

from tengen.codegen.targets.architecture import QUARTER, Architecture, Emitter, Level, Registers, VectorForm, by_quarters

_FEATURES = "+simd128,+nontrapping-fptoint,+sign-ext,+bulk-memory,+mutable-globals"
_TESTED = "run by node and by wasmtime, compared as bytes"


def _dot2i(emit: Emitter, args: list[str]) -> str:
    """Four i32x4.dot_i16x8_s, which wraps where all four operands of a sum are -32768, and an addition."""
    products = lambda a, b: emit.intrinsic("wasm.dot", QUARTER, f"<8 x i16> {a}", f"<8 x i16> {b}")
    return by_quarters(emit, args, "<8 x i16>", lambda total, a, b: emit.pure(f"add {QUARTER} {total}, {products(a, b)}"))


WASM32 = Architecture(
    name="wasm32",
    data_layout="e-m:e-p:32:32-p10:8:8-p20:8:8-i64:64-i128:128-n32:64-S128-ni:1:10:20",
    levels={
        "wasm32": Level(
            "wasm32", "generic", _FEATURES, system="unknown-unknown", lacks=("half", "fma", "inner fma"), tested=_TESTED,
            bits="integers and single operations as everywhere; sums of products round each product (no fused multiply-add)",
        ),
        "wasm32-exact": Level("wasm32-exact", "generic", _FEATURES, system="unknown-unknown", lacks=("half", "fma"), tested=_TESTED),
    },
    registers=(Registers("", 16, 16),),
    masked=(),
    forms=(VectorForm("dot2i", "simd128", _dot2i),),
    pause='fence syncscope("singlethread") seq_cst',
    fence="",
    elf_machine=0,
    linking=None,
    c_triple="wasm32-wasi",
    emulators=("node", "wasmtime"),
    notable=(),
    cpuinfo=(),
)  # fmt: skip
