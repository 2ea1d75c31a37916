"""The innermost loops of matrix products of int8, as each target's assembly has them: loads, dot products, and what counts and branches.
Nothing is converted, permuted or spilt there."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from tengen.base.dtype import float32, int8, int32, uint8
from tengen.codegen.llvm import emit_module
from tengen.codegen.targets import Target
from tengen.kernels.contraction.contract import contract
from tengen.kernels.contraction.formats import dot_format
from tengen.kernels.contraction.grouped_integers import grouped_integers
from tengen.kernels.lowering import Array, Lowering
from tengen.runtime.compile import assembly

# A target, features, the loads of its loop, and its dot products. On NEON, `dup` puts a pair of bytes in all lanes.
LOOPS = [
    ("aarch64", "", "ld2|ldr|dup", "smull|smull2|sadalp"),
    ("aarch64", ",+dotprod", "ldr|ldp|ld1r|ldur", "sdot"),
    ("aarch64", ",+dotprod,+i8mm", "ldr|ldp|ld1|ldur", "smmla"),  # `mov` puts two rows into one register
    ("armv7", "", r"vld2\.16|vld1\.32|ldr|vdup\.16|vmov\.32", r"vmull\.s8|vpadal\.s16"),
    ("riscv64-v", "", r"vlseg2e16\.v|lhu?", r"vwmacc\.vx"),
    ("wasm32", "", r"v128\.load(32_splat)?", r"i32x4\.dot_i16x8_s|i32x4\.add"),
    ("x86-64", "", r"mov(dqa|dqu|d|aps)|pshufd", "pmaddwd|paddd"),
    ("x86-64-v3", "", r"vpbroadcastd|vmovdqu", "vpmaddwd|vpaddd"),
]
COUNTS = (
    r"adds?|adc|lea[lq]|vsetvli|subs?|sbcs|addi|add[lq]|inc[lq]|mov|cmp[lq]?|slt|b(\.?(lt|ne|lo|ls))?|j(l|ne|b)|bltu?|prfu?m|pld|prefetch\w*"
    r"|loop|br_if|end_loop|local\.(get|set|tee)|i32\.(const|add|load|shl|and)|i64\.(const|add|load32_u|lt_[su]|ne)"
)


def text_of(target: Target) -> str:
    """The assembly of a product of 64 x 256 by 256 x 64 int8."""
    lo = Lowering(target)
    a, b, out = Array("a", int8, (64, 256), (256, 1)), Array("b", int8, (256, 64), (64, 1)), Array("out", int32, (64, 64), (64, 1))
    contract(lo, a, b, out, 0, 1, 1, 1, format=dot_format(int8, "int32", int8, target))
    return assembly(emit_module([step.kernel for step in lo.steps], target), target)


def loops(text: str) -> list[list[str]]:
    """The mnemonics of each loop without a label or another branch in it: from a label to a branch back to it."""
    found: list[list[str]] = []
    block: list[str] | None = None
    label = ""
    for line in text.splitlines():
        if line.endswith(":") or re.match(r"\.?L\w+:", line):
            label, block = line.split(":")[0], []
        elif block is not None and (words := line.split("@")[0].split("#")[0].split()) and not words[0].startswith("."):
            block.append(words[0])
            if label in words or words[0] == "br_if":
                found.append(block)
                block = None
    return found


@pytest.mark.parametrize("name, features, loads, dots", LOOPS, ids=lambda x: x)
def test_the_innermost_loops_hold_loads_and_dots(name, features, loads, dots):
    target = Target.named(name)
    some = [x for x in loops(text_of(replace(target, features=target.features + features))) if any(re.fullmatch(dots, w) for w in x)]
    assert some
    for loop in some:
        others = {w for w in loop if not re.fullmatch(f"{dots}|{loads}|{COUNTS}", w)}
        assert not others, (others, loop)
    longest = [w for w in max(some, key=len) if not w.startswith("local.")]  # which stand for registers
    dot, load = (sum(bool(re.fullmatch(form, w)) for w in longest) for form in (dots, loads))
    assert dot > len(longest) / 3, longest
    row = f"| {name}{features} | {dot} | {load} | {len(longest) - dot - load} |"
    assert row in (Path(__file__).parents[2] / "docs" / "quantization.md").read_text(), f"not in docs/quantization.md: {row}"


@pytest.mark.parametrize("name, features, dots", [
    ("aarch64", ",+dotprod", "sdot"), ("aarch64", ",+dotprod,+i8mm", "sdot"), ("x86-64-v4", ",+avx512vnni", "vpdpbusd"),
    ("x86-64-v3", "", "vpabsb|vpsignb|vpmaxsb|vpmaddwd|vpmaddubsw|vpaddd|vpaddw"),
], ids=lambda x: x)  # fmt: skip
def test_integer_weights_by_integer_rows_are_loads_and_dots(name, features, dots):
    """Four rows by weights of 8 and 4 bits in groups: beside loads and dot products, a mask and a shift for each word, or its turned signs.
    For AVX2 some sums are spilt, and AArch64 makes the mask of 4 bits anew (movi) where registers are short."""
    target = Target.named(name)
    target = replace(target, features=target.features + features)
    for bits in (8, 4):
        lo, words = Lowering(target), 256 * bits // 32
        x, out = Array("x", float32, (4, 256), (256, 1)), Array("out", float32, (4, 64), (64, 1))
        codes = Array("codes", int8 if bits == 8 else uint8, (1, words, 64, 4), (words * 256, 256, 4, 1))
        grouped_integers(lo, x, codes, Array("scale", float32, (1, 4, 64), (256, 64, 1)), out, bits, 64)
        text = assembly(emit_module([lo.steps[-1].kernel], target), target)
        loop = max((x for x in loops(text) if any(re.fullmatch(dots, w) for w in x)), key=len)
        rest = r"ld[rp]|ld1r|str|dup|movi|and|ushr|vpandq?|vps[r]l[dw]|vpxorq?|vpbroadcastd|vmov(dq[ua](64)?|ups)|mov|je|b\.eq"
        assert not {w for w in loop if not re.fullmatch(f"{dots}|{rest}|{COUNTS}", w)}, loop
        assert sum(bool(re.fullmatch(dots, w)) for w in loop) > 0.45 * len(loop), loop
