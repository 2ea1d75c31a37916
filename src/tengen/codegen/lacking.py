"""Operations of the kernel language for processors that have no instruction for them: by others that round once, dot products and lanes by
their numbers by plain arithmetic.

In: an emitter (`values.py`) and operands. Out: the name of the result, whose bits are those of the instruction; NaNs are NaNs.
`targets/architecture.py` (`Level.lacks`) says who needs which.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tengen.base.dtype import DType, float32, float64, int16, int32, int64, uint32, uint64
from tengen.codegen.types import int32s, literal, mangled, taken, type_of, vector
from tengen.loops.lang import LANES, Expr

if TYPE_CHECKING:
    from tengen.codegen.values import Values

FOUR = 4  # lanes of float32 in a register of 16 bytes
_FMA = "tengen.fma"
ROUNDINGS = ("floor", "ceil", "trunc", "rint")


def of_functions(body: Expr, arguments: Sequence[Expr]) -> set[Expr]:
    """The fmas of a math function's body; not those of its arguments."""
    found: set[Expr] = set()
    seen, stack = set(arguments), [body]
    while stack:
        e = stack.pop()
        if e in seen:
            continue
        seen.add(e)
        stack += e.args
        if e.op == "fma":
            found.add(e)
    return found


class _Emitter:
    """Instructions on so many lanes, by short names."""

    def __init__(self, values: Values, lanes: int):
        self.values, self.lanes = values, lanes

    def number(self, dt: DType, value: float) -> str:
        return literal(dt, value, self.lanes)

    def op(self, op: str, dt: DType, *args: str) -> str:
        return self.values.op(op, dt, self.lanes, list(args))

    def cast(self, x: str, source: DType, target: DType) -> str:
        return self.values.cast(x, source, target, self.lanes)

    def bits(self, x: str, source: DType, target: DType) -> str:
        return self.values.convert("bitcast", x, type_of(source, self.lanes), type_of(target, self.lanes))

    def select(self, cond: str, a: str, b: str, dt: DType) -> str:
        return self.values.choose(cond, a, b, type_of(dt, self.lanes), self.lanes)

    def logical(self, op: str, a: str, b: str) -> str:
        """Of two conditions."""
        return self.values.pure(f"{op} {'i1' if self.lanes == 1 else f'<{self.lanes} x i1>'} {a}, {b}")

    def shift_right(self, x: str, by: int) -> str:
        return self.values.pure(f"lshr {type_of(int32, self.lanes)} {x}, {self.number(int32, by)}")


def fma(values: Values, lanes: int, a: str, b: str, c: str) -> str:
    """a * b + c of float32 with one rounding, by a function of one or four lanes (`functions`): written out in each place it made code
    ten times as large. Where functions can keep their callers' registers it does: saving them around each call made code a third larger."""
    ty = type_of(float32, min(lanes, FOUR))
    call = f"call {values.keeping} {ty} @{_FMA}{min(lanes, FOUR)}".replace("  ", " ")
    if lanes == 1:
        return values.pure(f"{call}({ty} {a}, {ty} {b}, {ty} {c})")
    wide, parts = type_of(float32, lanes), []
    for first in range(0, lanes, FOUR):
        some = (values.pure(f"shufflevector {wide} {x}, {wide} poison, {taken(range(first, first + FOUR))}") for x in (a, b, c))
        parts.append(values.pure(f"{call}({', '.join(f'{ty} {x}' for x in some)})"))
    while len(parts) > 1:
        size = lanes // len(parts)
        ty, mask = type_of(float32, size), taken(range(2 * size))
        parts = [values.pure(f"shufflevector {ty} {x}, {ty} {y}, {mask}") for x, y in zip(parts[::2], parts[1::2])]
    return parts[0]


def functions(text: str, values: Callable[[], Values]) -> str:
    """The definitions of what a module's kernels call. values: makes an emitter."""
    found = []
    for lanes in (1, FOUR):
        if f"@{_FMA}{lanes}(" not in text:
            continue
        ty, emitter = type_of(float32, lanes), values()
        result = _fma(emitter, lanes, "%a", "%b", "%c")
        head = f"define internal {emitter.keeping} {ty} @{_FMA}{lanes}({ty} %a, {ty} %b, {ty} %c)".replace("  ", " ")
        head += " noinline nounwind willreturn memory(none) {"
        found.append("\n".join([head, *emitter.lines, f"  ret {ty} {result}", "}\n"]))
    return "".join(found)


def _fma(values: Values, lanes: int, a: str, b: str, c: str) -> str:
    """The product is exact in float64. The sum is rounded to nearest there; where that is
    inexact and its last bit is 0, the neighbour on the side of the exact sum is taken instead, so that the sum is rounded to odd.
    That has more than two bits more than float32, so rounding it once more is rounding the exact sum.

    Source: Boldo, Melquiond: Emulation of FMA and correctly rounded sums: proved algorithms using rounding to odd, 2008.
    """
    e = _Emitter(values, lanes)
    f64 = lambda op, *args: e.op(op, float64, *args)
    x, y, z = (e.cast(v, float32, float64) for v in (a, b, c))
    p = f64("mul", x, y)
    s = f64("add", p, z)
    back = f64("sub", s, p)
    error = f64("add", f64("sub", p, f64("sub", s, back)), f64("sub", z, back))  # of the sum, exactly
    zero, one, bits = e.number(float64, 0.0), e.number(int64, 1), e.bits(s, float64, int64)
    inexact = e.logical("or", f64("lt", error, zero), f64("gt", error, zero))  # false for NaN: there is inf among them
    even = e.op("eq", int64, e.op("and", int64, bits, one), e.number(int64, 0))
    away = e.logical("xor", f64("lt", error, zero), f64("gt", s, zero))  # the exact sum is farther from zero
    odd = e.op("add", int64, bits, e.select(away, one, e.number(int64, -1), int64))
    fixed = e.select(e.logical("and", inexact, even), odd, bits, int64)
    return e.cast(e.bits(fixed, int64, float64), float64, float32)


def rounded(values: Values, op: str, dt: DType, lanes: int, x: str) -> str:
    """x as an integer: to nearest even by adding and subtracting a number above which there are only integers, then one back."""
    e = _Emitter(values, lanes)
    large, one = e.number(dt, 2.0**52 if dt is float64 else 2.0**23), e.number(dt, 1.0)
    size = e.op("abs", dt, x)
    near = e.op("sub", dt, e.op("add", dt, size, large), large)
    near = e.select(e.op("lt", dt, size, large), near, size, dt)
    if op == "trunc":
        near = e.select(e.op("gt", dt, near, size), e.op("sub", dt, near, one), near, dt)
    signed = _with_sign(values, near, x, dt, lanes)
    if op in ("floor", "ceil"):
        beyond, step = ("gt", "sub") if op == "floor" else ("lt", "add")
        moved = e.select(e.op(beyond, dt, signed, x), e.op(step, dt, signed, one), signed, dt)
        return _with_sign(values, moved, x, dt, lanes)
    return signed


def _with_sign(values: Values, x: str, sign: str, dt: DType, lanes: int) -> str:
    ty = type_of(dt, lanes)
    return values.intrinsic(f"copysign.{mangled(dt, lanes)}", ty, f"{ty} {x}", f"{ty} {sign}")


def saturated(values: Values, x: str, source: DType, target: DType, lanes: int) -> str:
    """A float as a narrower integer: as one of its own width first, whose ends are then cut."""
    e = _Emitter(values, lanes)
    wide = {("i", 32): int32, ("i", 64): int64, ("u", 32): uint32, ("u", 64): uint64}[target.kind, source.bits]
    whole = e.cast(x, source, wide)
    whole = e.op("min", wide, whole, e.number(wide, (1 << target.bits - (target.kind == "i")) - 1))
    if target.kind == "i":
        whole = e.op("max", wide, whole, e.number(wide, -(1 << target.bits - 1)))
    return e.cast(whole, wide, target)


def widened(values: Values, x: str, lanes: int) -> str:
    """float16, as its bits in an i16, as float32: the exponent is shifted by an exact product, also of subnormal numbers."""
    e = _Emitter(values, lanes)
    h = e.op("and", int32, e.cast(x, int16, int32), e.number(int32, 0xFFFF))
    rest = e.op("and", int32, h, e.number(int32, 0x7FFF))
    moved = e.op("shl", int32, rest, e.number(int32, 13))
    finite = e.bits(e.op("mul", float32, e.bits(moved, int32, float32), e.number(float32, 2.0**112)), float32, int32)
    special = e.op("or", int32, moved, e.number(int32, 0x7F800000))
    size = e.select(e.op("ge", int32, rest, e.number(int32, 0x7C00)), special, finite, int32)
    sign = e.op("shl", int32, e.op("and", int32, h, e.number(int32, 0x8000)), e.number(int32, 16))
    return e.bits(e.op("or", int32, size, sign), int32, float32)


def narrowed(values: Values, x: str, lanes: int) -> str:
    """float32 as the bits of a float16, to nearest even: by integers, and where the result is subnormal by adding 0.5, whose unit in
    the last place is that of subnormal numbers of float16."""
    e = _Emitter(values, lanes)
    i32 = lambda op, *args: e.op(op, int32, *args)
    bits = e.bits(x, float32, int32)
    size = i32("and", bits, e.number(int32, 0x7FFFFFFF))
    odd = i32("and", e.shift_right(size, 13), e.number(int32, 1))
    normal = e.shift_right(i32("add", i32("add", size, e.number(int32, 0xFFF - (112 << 23))), odd), 13)
    half = e.op("add", float32, e.bits(size, int32, float32), e.number(float32, 0.5))
    small = i32("sub", e.bits(half, float32, int32), e.number(int32, 0x3F000000))
    found = e.select(i32("lt", size, e.number(int32, 113 << 23)), small, normal, int32)
    found = e.select(i32("ge", size, e.number(int32, 143 << 23)), e.number(int32, 0x7C00), found, int32)
    found = e.select(i32("gt", size, e.number(int32, 0x7F800000)), e.number(int32, 0x7E00), found, int32)
    sign = i32("and", e.shift_right(bits, 16), e.number(int32, 0x8000))
    return e.cast(i32("or", found, sign), int32, int16)


# ---- dot products, and lanes by their numbers


def dot2(values: Values, total: str, a: str, b: str, lanes: int) -> str:
    """`dots.dot2` by arithmetic of float32."""
    for half in (1, 0):
        x, y, total = (_flush(values, v, v, lanes) for v in (_half(values, a, half, lanes), _half(values, b, half, lanes), total))
        # Whether the sum is small with any exponent shows where there is room below it; 2^64 is room enough, and where a
        # factor gets too large to be scaled no sum is small but zero.
        room, f32 = literal(float32, 2.0**64, lanes), vector("float", lanes)
        scaled = [values.pure(f"fmul {f32} {v}, {room}") for v in (x, total)]
        fma = lambda *xs: values.op("fma", float32, lanes, list(xs))
        total = _flush(values, fma(x, y, total), fma(scaled[0], y, scaled[1]), lanes, 2.0**-62)
    return total


def integer_dot(
    values: Values, total: str, a: str, b: str, lanes: int, bits: int, signed: bool = True, least: int | None = None
) -> str:
    """`dots.dot2i`, `dot4i`, `dot4n` and `dot4u` by arithmetic of int32. bits: of an element.
    signed: whether those of `a` have a sign. least: what smaller elements of `b` count as."""
    i32, down = vector("i32", lanes), int32s(32 - bits, lanes)
    for up in range(0, 32, bits):
        x, y = (v if not up else values.pure(f"shl {i32} {v}, {int32s(up, lanes)}") for v in (a, b))
        x = values.pure(f"{'ashr' if signed else 'lshr'} {i32} {x}, {down}")
        y = values.pure(f"ashr {i32} {y}, {down}")
        if least is not None:
            y = values.op("max", int32, lanes, [y, int32s(least, lanes)])
        total = values.pure(f"add {i32} {total}, {values.pure(f'mul {i32} {x}, {y}')}")
    return total


def quad_dot(values: Values, total: str, a: str, b: str, signed: bool) -> str:
    """`dots.quad4i` and `quad4u` by arithmetic of int32: the lanes of each half of a row, and of a
    column, are brought to the results that they are a term of."""
    ty, lanes = vector("i32", LANES), range(LANES)
    for half in (0, 1):
        places = [i // 2 * 2 + half for i in lanes], [i // 4 * 4 + i % 2 * 2 + half for i in lanes]
        x, y = (values.pure(f"shufflevector {ty} {v}, {ty} poison, {taken(at)}") for v, at in zip((a, b), places))
        total = integer_dot(values, total, x, y, LANES, 8, signed)
    return total


def dot2h(values: Values, total: str, a: str, b: str, lanes: int) -> str:
    """`dots.dot2h` by arithmetic of int16."""
    i16, eight, seven_bits = vector("i16", 2 * lanes), "splat (i16 8)", "splat (i16 127)"
    total, a, b = (values.convert("bitcast", x, vector("i32", lanes), i16) for x in (total, a, b))
    odd = values.pure(f"lshr {i16} {a}, {eight}"), b
    for x, y in ((a, values.pure(f"shl {i16} {b}, {eight}")), odd):
        x, y = values.pure(f"and {i16} {x}, {seven_bits}"), values.pure(f"ashr {i16} {y}, {eight}")
        total = values.pure(f"add {i16} {total}, {values.pure(f'mul {i16} {x}, {y}')}")
    return values.convert("bitcast", total, i16, vector("i32", lanes))


def dot4s(values: Values, total: str, a: str, b: str, lanes: int) -> str:
    """`dots.dot4s` by arithmetic of int32."""
    i32, down, mangling = vector("i32", lanes), int32s(24, lanes), f"v{lanes}i32" if lanes > 1 else "i32"
    for first in (0, 16):
        products = []
        for up in (24 - first, 16 - first):  # which brings a byte to the highest bits
            x, y = (v if not up else values.pure(f"shl {i32} {v}, {int32s(up, lanes)}") for v in (a, b))
            x, y = values.pure(f"lshr {i32} {x}, {down}"), values.pure(f"ashr {i32} {y}, {down}")
            products.append(values.pure(f"mul {i32} {x}, {y}"))
        pair = values.pure(f"add {i32} {products[0]}, {products[1]}")
        for name, bound in (("smax", -(1 << 15)), ("smin", (1 << 15) - 1)):
            pair = values.intrinsic(f"{name}.{mangling}", i32, f"{i32} {pair}", f"{i32} {int32s(bound, lanes)}")
        total = values.pure(f"add {i32} {total}, {pair}")
    return total


def swizzle(values: Values, x: str, index: str) -> str:
    """`lang.swizzle` lane by lane."""
    ty, made = vector("i8", LANES), "zeroinitializer"
    for i in range(LANES):
        at = values.pure(f"extractelement {ty} {index}, i64 {i}")
        lane = values.pure(f"extractelement {ty} {x}, i8 {values.pure(f'and i8 {at}, 15')}")
        lane = values.choose(values.pure(f"icmp slt i8 {at}, 0"), "0", lane, "i8", 1)
        made = values.pure(f"insertelement {ty} {made}, i8 {lane}, i64 {i}")
    return made


def _half(values: Values, x: str, which: int, lanes: int) -> str:
    """The first or second bfloat16 of a pair as float32."""
    i32 = vector("i32", lanes)
    bits = values.pure(f"and {i32} {x}, {int32s(-65536, lanes)}" if which else f"shl {i32} {x}, {int32s(16, lanes)}")
    return values.convert("bitcast", bits, i32, vector("float", lanes))


def _flush(values: Values, x: str, size: str, lanes: int, least: float = 2.0**-126) -> str:
    """x, or a zero of its sign where |size| is less than `least`."""
    f32, i32 = vector("float", lanes), vector("i32", lanes)
    small = values.compare("olt", float32, lanes, values.op("abs", float32, lanes, [size]), literal(float32, least, lanes))
    sign = values.pure(f"and {i32} {values.convert('bitcast', x, f32, i32)}, {int32s(-(1 << 31), lanes)}")
    return values.choose(small, values.convert("bitcast", sign, i32, f32), x, f32, lanes)


def lookup(values: Values, table: str, index: str) -> str:
    """`lang.lookup` lane by lane."""
    ty, i32, half, x = type_of(float32, LANES), vector("i32", LANES), LANES // 2, "poison"
    at = values.pure(f"and {i32} {index}, {int32s(half - 1, LANES)}")
    at = values.pure(f"or {i32} {at}, <{', '.join(f'i32 {i // half * half}' for i in range(LANES))}>")
    for i in range(LANES):
        one = values.pure(f"extractelement {ty} {table}, i32 {values.pure(f'extractelement {i32} {at}, i64 {i}')}")
        x = values.pure(f"insertelement {ty} {x}, float {one}, i64 {i}")
    return x
