"""Expressions of the kernel language as straight-line LLVM IR.

In: expressions of `loops/lang.py` and the SSA names of the variables they read. Out: lines of text, and the name that holds the
result. The meaning is lang's, to the bit, whatever the target: no fast-math flag is ever set, and what LLVM leaves undefined
(shifts, divisions, conversions) is guarded here. An instruction that was already emitted where it dominates is used again.

Registers hold f32, f64 and integers as such, bool as i1, and the storage dtypes float16 and bfloat16 as their bits, i16.
Read next: `llvm.py` (statements, memory, kernels).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Set

import numpy as np

from tengen.base.dtype import DType, bool_, float16, float32, float64, int32, int64, uint64
from tengen.base.errors import CompileError
from tengen.codegen import lacking, of_bytes
from tengen.codegen.targets.architecture import VectorForm
from tengen.codegen.types import int32s, is_storage, literal, mangled, scalar_type, type_of, vector
from tengen.loops.calls import expand
from tengen.loops.lang import LANES, OPS, SHUFFLES, Expr
from tengen.loops.ranges import ANY, Range

_PLAIN = {
    "f": {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv"},
    "i": {"add": "add", "sub": "sub", "mul": "mul", "and": "and", "or": "or", "xor": "xor"},
    "b": {"and": "and", "or": "or", "xor": "xor", "min": "and", "max": "or"},
}
_PLAIN["u"] = _PLAIN["i"] | {"quo": "udiv", "rem": "urem"}
_INTRINSICS = {"fma": "fma", "sqrt": "sqrt", "floor": "floor", "ceil": "ceil", "trunc": "trunc", "rint": "roundeven"}
_COMPARE = {
    "f": {"eq": "oeq", "ne": "une", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge"},
    "i": {"eq": "eq", "ne": "ne", "lt": "slt", "le": "sle", "gt": "sgt", "ge": "sge"},
    "u": {"eq": "eq", "ne": "ne", "lt": "ult", "le": "ule", "gt": "ugt", "ge": "uge"},
}
_COMPARE["b"] = _COMPARE["u"]
_starts: dict[tuple[str, str, int], str] = {}  # how instructions of `_PLAIN` begin, by op, dtype and lanes
_INTEGER = re.compile(r"(?:splat \(\w+ )?(-?\d+)\)?")  # a literal, or a vector of it
RAMP = "<" + ", ".join(f"i64 {i}" for i in range(LANES)) + ">"


def _never_nan(operand: str) -> bool:
    """Whether an operand is a float literal other than NaN."""
    return "0x" in operand and "0x7FF8000000000000" not in operand


class Values:
    """Emits expressions into `lines`.

    Args:
        name: of the kernel, for messages. forms: by operation, the instructions that the target has for it on all lanes. lacks: what
            it has no instruction for (`lacking.py`). keeping: how functions in place of such instructions are called, as
            `Target.keeping` says. ranges: says between which numbers an expression lies (`loops/ranges.py`).

    Attributes:
        lines: the text so far. env: the SSA name of each variable in scope.
    """

    def __init__(
        self,
        name: str,
        forms: Mapping[str, VectorForm],
        lacks: Set[str] = frozenset(),
        keeping: str = "",
        ranges: Callable[[Expr], Range] = lambda e: ANY,
    ):
        self.name, self._forms, self._lacks, self.keeping, self.ranges = name, forms, lacks, keeping, ranges
        self._outer: set[Expr] = set()  # fmas of math functions
        self.lines: list[str] = []
        self.env: dict[Expr, str] = {}
        self._known: dict[str, str] = {}  # emitted instructions that dominate what is emitted now -> their names
        self._scopes: list[list[str]] = [[]]  # those of them that each enclosing block has
        self._calls: dict[Expr, Expr] = {}
        self._leaves: dict[Expr, str] = {}  # literals
        self._filled: dict[str, str] = {}  # by the name of a vector, the scalar that is in all its lanes
        self.meanings: dict[Expr, Expr] = {}  # of variables that are defined once
        self._count = 0

    # ---- lines

    def fresh(self, text: str, hint: str = "v") -> str:
        """Emits an instruction and names its result."""
        self._count += 1
        r = f"%{hint}.{self._count}"
        self.lines.append(f"  {r} = {text}")
        return r

    def pure(self, text: str) -> str:
        """The result of an instruction without effects, emitted unless it is known here."""
        if (r := self._known.get(text)) is None:
            r = self._known[text] = self.fresh(text)
            self._scopes[-1].append(text)
        return r

    def intrinsic(self, name: str, result: str, *args: str) -> str:
        """A call of a pure LLVM intrinsic; `args` are typed operands."""
        return self.pure(f"call {result} @llvm.{name}({', '.join(args)})")

    def convert(self, how: str, x: str, source: str, target: str) -> str:
        """A conversion instruction."""
        return self.pure(f"{how} {source} {x} to {target}")

    def choose(self, cond: str, a: str, b: str, ty: str, lanes: int) -> str:
        """Lanewise a where cond, else b."""
        return self.pure(f"select {vector('i1', lanes)} {cond}, {ty} {a}, {ty} {b}")

    def splat(self, x: str, scalar: str) -> str:
        """All lanes equal to x."""
        if x[0] != "%":
            return f"splat ({scalar} {x})"
        v = f"<{LANES} x {scalar}>"
        one = self.pure(f"insertelement {v} poison, {scalar} {x}, i64 0")
        filled = self.pure(f"shufflevector {v} {one}, {v} poison, <{LANES} x i32> zeroinitializer")
        self._filled[filled] = x
        return filled

    def in_all_lanes(self, x: str) -> str | None:
        """The scalar that a vector was filled with by `splat`; None: its lanes may differ."""
        return self._filled.get(x)

    # ---- expressions

    def value(self, e: Expr) -> str:
        """The operand that holds `e`. Each node of the expression is visited once; deep ones are fine."""
        if not e.args:
            return self._leaf(e)
        if e.op != "call" and not any([a.args for a in e.args]):  # most are so, and need no stack
            return self._node(e, [self._leaf(a) for a in reversed(e.args)][::-1])
        done: dict[Expr, str] = {}
        stack = [e]
        while stack:
            x = stack[-1]
            if x in done:
                stack.pop()
                continue
            args = x.args if x.op != "call" else (self._expanded(x),)
            ready = True
            for a in reversed(args):
                if a in done:
                    continue
                if a.args:
                    stack.append(a)
                    ready = False
                else:
                    done[a] = self._leaf(a)
            if ready:
                done[x] = done[args[0]] if x.op == "call" else self._node(x, [done[a] for a in args])
                stack.pop()
        return done[e]

    def _leaf(self, e: Expr) -> str:
        """The operand that holds an expression without operands."""
        if e.op == "var":
            return self.variable(e)
        if (text := self._leaves.get(e)) is None:
            text = self._leaves[e] = RAMP if e.op == "ramp" else literal(e.dtype, e.attr)
        return text

    def _expanded(self, e: Expr) -> Expr:
        if e not in self._calls:
            self._calls[e] = expand(e)
            if "inner fma" in self._lacks:
                self._outer |= lacking.of_functions(self._calls[e], e.args)
        return self._calls[e]

    def _node(self, e: Expr, args: list[str]) -> str:
        op, dt, lanes = e.op, e.dtype, e.lanes
        if lanes == LANES and (form := self._forms.get(op)) is not None:
            return form.emit(self, args)
        if lanes == LANES and op in ("or", "add", "cast") and (found := of_bytes.emit(self, e, self._forms)) is not None:
            return found
        if op == "fma" and "inner fma" in self._lacks and e not in self._outer:
            return self.op("add", dt, lanes, [self.op("mul", dt, lanes, args[:2]), args[2]])
        if op in ("quo", "rem") and dt.kind == "i":
            return self.index_divide(e, args)
        if op in OPS:
            if args[0] == RAMP and op == "lt":
                return self.lanes_before(e, args)
            return self.op(op, e.args[0].dtype, lanes, args)
        match op:
            case "splat":
                return self.splat(args[0], scalar_type(dt))
            case "select":
                return self.choose(args[0], args[1], args[2], type_of(dt, lanes), lanes)
            case "cast":
                narrow = 32 if "narrow" in self._lacks else 1  # LLVM makes one instruction of two steps
                if lanes > 1 and e.args[0].dtype is float32 and dt.is_int and narrow <= dt.bits <= 32:
                    low, high, nan = _range(e.args[0])
                    if _holds(dt, low, high):
                        return self._in_range(args[0], nan, dt, lanes)
                return self.cast(args[0], e.args[0].dtype, dt, lanes)
            case "bitcast":
                source, target = type_of(e.args[0].dtype, lanes), type_of(dt, lanes)
                return args[0] if source == target else self.convert("bitcast", args[0], source, target)
            case "lane":
                return self.pure(f"extractelement {type_of(dt, LANES)} {args[0]}, i64 {e.attr}")
            case "shuffle":
                ty, mask = type_of(dt, LANES), ", ".join(f"i32 {i}" for i in SHUFFLES[str(e.attr)])
                return self.pure(f"shufflevector {ty} {args[0]}, {ty} {args[1]}, <{LANES} x i32> <{mask}>")
            case "lookup":
                return lacking.lookup(self, args[0], args[1])
            case "fold":
                return self.fold(str(e.attr), dt, args[0])
            case "dot2":
                return lacking.dot2(self, args[0], args[1], args[2], lanes)
            case "dot2i":
                return lacking.integer_dot(self, args[0], args[1], args[2], lanes, 16)
            case "dot4i" | "dot4u":
                return lacking.integer_dot(self, args[0], args[1], args[2], lanes, 8, op == "dot4i")
            case "dot4n":
                return lacking.integer_dot(self, args[0], args[1], args[2], lanes, 8, least=-127)
            case "quad4i" | "quad4u":
                return lacking.quad_dot(self, args[0], args[1], args[2], op == "quad4i")
            case "dot2h":
                return lacking.dot2h(self, args[0], args[1], args[2], lanes)
            case "dot4s":
                return lacking.dot4s(self, args[0], args[1], args[2], lanes)
            case "swizzle":
                return lacking.swizzle(self, args[0], args[1])
        raise CompileError(f"{self.name}: LLVM IR for an unknown operation {op!r}")

    def lanes_before(self, e: Expr, args: list[str]) -> str:
        """The lanes whose numbers are less than a vector."""
        return self.op("lt", int64, LANES, args)

    def beside(self, first: str, second: str) -> str | None:
        """Bytes of two vectors in turns, each as an int16, from memory, where they lie near each other there; None elsewhere."""
        return None

    def variable(self, e: Expr) -> str:
        """The SSA name of a variable."""
        if e not in self.env:
            raise CompileError(f"{self.name}: the variable {e.attr} is used where it has no value")
        return self.env[e]

    def fold(self, op: str, dt: DType, x: str) -> str:
        """All 16 lanes combined: lane i with lane i + 8, then + 4, + 2, + 1."""
        n = LANES
        while n > 1:
            ty = type_of(dt, n)
            n //= 2
            low, high = (
                self.pure(f"shufflevector {ty} {x}, {ty} poison, <{n} x i32> <{', '.join(f'i32 {i + at}' for i in range(n))}>")
                if n > 1
                else self.pure(f"extractelement {ty} {x}, i64 {at}")
                for at in (0, n)
            )
            x = self.op(op, dt, n, [low, high])
        return x

    def op(self, op: str, dt: DType, lanes: int, args: list[str]) -> str:
        """One op of `OPS` on operands of `dt`."""
        if (start := _starts.get((op, dt.name, lanes))) is not None:
            return self.pure(f"{start}{args[0]}, {args[1]}")
        if is_storage(dt):
            if op == "fma":
                raise CompileError(f"{self.name}: fma on {dt} does not round once; help: cast the operands to float32")
            r = self.op(op, float32, lanes, [self.cast(a, dt, float32, lanes) for a in args])
            return r if op in _COMPARE["f"] else self.cast(r, float32, dt, lanes)
        ty, kind = type_of(dt, lanes), dt.kind
        if plain := _PLAIN[kind].get(op):
            start = _starts[op, dt.name, lanes] = f"{plain} {ty} "
            return self.pure(f"{start}{args[0]}, {args[1]}")
        if op in _COMPARE["f"]:
            return self.compare(_COMPARE[kind][op], dt, lanes, *args)
        if op == "fma" and "fma" in self._lacks and dt is float32:
            return lacking.fma(self, lanes, *args)
        if op in lacking.ROUNDINGS and "round" in self._lacks:
            return lacking.rounded(self, op, dt, lanes, args[0])
        if name := _INTRINSICS.get(op):
            return self.intrinsic(f"{name}.{mangled(dt, lanes)}", ty, *(f"{ty} {a}" for a in args))
        match op:
            case "min" | "max":
                return self.extremum(op, dt, lanes, *args)
            case "neg":
                return self.pure(f"fneg {ty} {args[0]}" if kind == "f" else f"sub {ty} {literal(dt, 0, lanes)}, {args[0]}")
            case "abs" if kind == "f":
                return self.intrinsic(f"fabs.{mangled(dt, lanes)}", ty, f"{ty} {args[0]}")
            case "abs":
                return self.intrinsic(f"abs.{mangled(dt, lanes)}", ty, f"{ty} {args[0]}", "i1 false")
            case "not":
                return self.pure(f"xor {ty} {args[0]}, {literal(dt, 1 if dt is bool_ else -1, lanes)}")
            case "shl" | "shr":
                return self.shift(op, dt, lanes, *args)
            case "floordiv" | "floormod":
                return self.floor_divide(op, dt, lanes, *args)
        raise CompileError(f"{self.name}: LLVM IR for an unknown operation {op!r}")

    def compare(self, predicate: str, dt: DType, lanes: int, a: str, b: str) -> str:
        """A comparison by LLVM's predicate name."""
        return self.pure(f"{'fcmp' if dt.kind == 'f' else 'icmp'} {predicate} {type_of(dt, lanes)} {a}, {b}")

    def extremum(self, op: str, dt: DType, lanes: int, a: str, b: str) -> str:
        """a if a is NaN or a beats b, else b."""
        ty = type_of(dt, lanes)
        if dt.kind != "f" and lanes == 1:  # of which FastISel, which makes quick code, knows no intrinsic
            beats = {"min": "lt", "max": "gt"}[op]
            return self.choose(self.compare(("s" if dt.kind == "i" else "u") + beats, dt, 1, a, b), a, b, ty, 1)
        if dt.kind != "f":
            return self.intrinsic(f"{'s' if dt.kind == 'i' else 'u'}{op}.{mangled(dt, lanes)}", ty, f"{ty} {a}", f"{ty} {b}")
        beats = "lt" if op == "min" else "gt"
        if _never_nan(b):  # one comparison that is also true for NaN
            return self.choose(self.compare("u" + beats, dt, lanes, a, b), a, b, ty, lanes)
        best = self.choose(self.compare("o" + beats, dt, lanes, a, b), a, b, ty, lanes)  # x86's min and max instructions
        nan = literal(dt, float("nan"), lanes)  # not a itself, or LLVM would make one choice of the two, and compare twice
        return self.choose(self.compare("uno", dt, lanes, a, literal(dt, 0.0, lanes)), nan, best, ty, lanes)

    def shift(self, op: str, dt: DType, lanes: int, x: str, by: str) -> str:
        """Shifts; by the width or more, or by less than 0, gives 0, or the sign."""
        ty, width = type_of(dt, lanes), literal(dt, dt.bits, lanes)
        how = "shl" if op == "shl" else "ashr" if dt.kind == "i" else "lshr"
        if (number := _INTEGER.fullmatch(by)) and 0 <= int(number[1]) < dt.bits:
            return self.pure(f"{how} {ty} {x}, {by}")
        if how == "ashr":
            most = literal(dt, dt.bits - 1, lanes)
            by = self.intrinsic(f"umin.{mangled(dt, lanes)}", ty, f"{ty} {by}", f"{ty} {most}")
            return self.pure(f"ashr {ty} {x}, {by}")
        fits = self.pure(f"icmp ult {ty} {by}, {width}")
        return self.choose(fits, self.pure(f"{how} {ty} {x}, {by}"), literal(dt, 0, lanes), ty, lanes)

    def floor_divide(self, op: str, dt: DType, lanes: int, x: str, y: str) -> str:
        """Division that rounds down, as Python's; by zero 0, and the smallest integer by -1 wraps."""
        ty, zero, one = type_of(dt, lanes), literal(dt, 0, lanes), literal(dt, 1, lanes)
        by_zero = self.pure(f"icmp eq {ty} {y}, {zero}")
        unsafe = by_zero
        if dt.kind == "i":
            flags = vector("i1", lanes)
            least = self.pure(f"icmp eq {ty} {x}, {literal(dt, 1 << (dt.bits - 1), lanes)}")
            minus = self.pure(f"icmp eq {ty} {y}, {literal(dt, -1, lanes)}")
            overflow = self.pure(f"and {flags} {least}, {minus}")
            unsafe = self.pure(f"or {flags} {by_zero}, {overflow}")
        safe = self.choose(unsafe, one, y, ty, lanes)  # x // 1 is also what the overflow wraps to
        q = self.pure(f"{'s' if dt.kind == 'i' else 'u'}div {ty} {x}, {safe}")
        r = self.pure(f"sub {ty} {x}, {self.pure(f'mul {ty} {q}, {safe}')}")
        if dt.kind == "i":
            inexact = self.pure(f"icmp ne {ty} {r}, {zero}")
            signs = self.pure(f"icmp slt {ty} {self.pure(f'xor {ty} {r}, {safe}')}, {zero}")
            down = self.pure(f"and {flags} {inexact}, {signs}")
            if op == "floordiv":
                q = self.pure(f"add {ty} {q}, {self.convert('sext', down, flags, ty)}")
            else:
                r = self.pure(f"add {ty} {r}, {self.choose(down, safe, zero, ty, lanes)}")
        return self.choose(by_zero, zero, q if op == "floordiv" else r, ty, lanes)

    def index_divide(self, e: Expr, args: list[str]) -> str:
        """`quo` or `rem` of signed integers. What is known not to be negative is divided as unsigned."""
        (x, y), ty, lanes, divisor = args, type_of(e.dtype, e.lanes), e.lanes, e.args[1]
        if self.ranges(e.args[0])[0] >= 0:
            return self.pure(f"{'udiv' if e.op == 'quo' else 'urem'} {ty} {x}, {y}")
        n = (divisor.args[0] if divisor.op == "splat" else divisor).attr
        if isinstance(n, int) and n > 0 and not n & (n - 1):
            how, bits = ("ashr", n.bit_length() - 1) if e.op == "quo" else ("and", n - 1)
            return self.pure(f"{how} {ty} {x}, {literal(e.dtype, bits, lanes)}")
        q, zero = self.pure(f"sdiv {ty} {x}, {y}"), literal(e.dtype, 0, lanes)
        r = self.pure(f"sub {ty} {x}, {self.pure(f'mul {ty} {q}, {y}')}")
        up = self.pure(f"icmp slt {ty} {r}, {zero}")  # q was rounded up
        if e.op == "quo":
            return self.pure(f"add {ty} {q}, {self.convert('sext', up, vector('i1', lanes), ty)}")
        return self.pure(f"add {ty} {r}, {self.choose(up, y, zero, ty, lanes)}")

    # ---- casts

    def cast(self, x: str, source: DType, target: DType, lanes: int) -> str:
        """A value in another dtype, as `lang.cast` says."""
        if source is target:
            return x
        if is_storage(source):
            return self.cast(self._widen(x, source, lanes), float32, target, lanes)
        s, t = type_of(source, lanes), type_of(target, lanes)
        if target is bool_:
            return self.compare("une" if source.is_float else "ne", source, lanes, x, literal(source, 0, lanes))
        if source is bool_:
            return self.choose(x, literal(target, 1, lanes), literal(target, 0, lanes), t, lanes)
        if is_storage(target):
            return self._narrow(self._for_narrowing(x, source, lanes), target, lanes)
        if source.is_float and target.is_float:
            return self.convert("fpext" if target.bits > source.bits else "fptrunc", x, s, t)
        if source.is_float and target.bits < source.bits and "narrow" in self._lacks:
            return lacking.saturated(self, x, source, target, lanes)
        if source.is_float and lanes > 1 and (target is int32 or target.bits < 32):
            return self._integers(x, source, target, lanes)
        if source.is_float:
            sign = "s" if target.kind == "i" else "u"
            return self.intrinsic(f"fpto{sign}i.sat.{mangled(target, lanes)}.{mangled(source, lanes)}", t, f"{s} {x}")
        if target.is_float:
            return self.convert("sitofp" if source.kind == "i" else "uitofp", x, s, t)
        if s == t:
            return x
        return self.convert("trunc" if target.bits < source.bits else "sext" if source.kind == "i" else "zext", x, s, t)

    def _integers(self, x: str, source: DType, target: DType, lanes: int) -> str:
        """A vector of floats as integers that int32 holds: saturated, NaN gives 0. LLVM's saturating conversion, which means the same,
        becomes one of each lane on some processors; here what is out of range is replaced before or after a plain one."""
        s, i32, info = type_of(source, lanes), type_of(int32, lanes), np.iinfo(target.numpy)
        low, high = (literal(source, float(v), lanes) for v in (info.min, info.max + (target is int32)))
        zero = literal(source, 0.0, lanes)
        number = x if info.min == 0 else self.choose(self.compare("ord", source, lanes, x, zero), x, zero, s, lanes)
        if target is not int32:  # whose ends the float holds exactly. A choice of what is greater, or else the bound, is x86's MAXPS
            inside = self.choose(self.compare("ogt", source, lanes, number, low), number, low, s, lanes)
            inside = self.choose(self.compare("olt", source, lanes, inside, high), inside, high, s, lanes)
            return self.convert("fptosi" if target.kind == "i" else "fptoui", inside, s, type_of(target, lanes))
        above = self.compare("oge", source, lanes, x, high)
        inside = self.choose(self.compare("olt", source, lanes, x, low), low, number, s, lanes)
        whole = self.convert("fptosi", self.choose(above, zero, inside, s, lanes), s, i32)
        return self.choose(above, literal(int32, int(info.max), lanes), whole, i32, lanes)

    def _in_range(self, x: str, nan: bool, target: DType, lanes: int) -> str:
        """A vector of float32 that the target holds, or NaN where `nan`, as integers: nothing has to be saturated."""
        s, i32 = type_of(float32, lanes), type_of(int32, lanes)
        if nan:
            zero = literal(float32, 0.0, lanes)
            x = self.choose(self.compare("ord", float32, lanes, x, zero), x, zero, s, lanes)
        if target.bits == 32:
            return self.convert("fptosi", x, s, i32)
        return self.convert("fptosi" if target.kind == "i" else "fptoui", x, s, type_of(target, lanes))  # nothing to be masked off

    def _widen(self, x: str, source: DType, lanes: int) -> str:
        """A 16-bit float's bits as float32, exactly."""
        i16, i32, f32 = vector("i16", lanes), vector("i32", lanes), vector("float", lanes)
        if source is float16 and "half" in self._lacks:
            return lacking.widened(self, x, lanes)
        if source is float16:
            half = vector("half", lanes)
            return self.convert("fpext", self.convert("bitcast", x, i16, half), half, f32)
        bits = self.pure(f"shl {i32} {self.convert('zext', x, i16, i32)}, {int32s(16, lanes)}")
        return self.convert("bitcast", bits, i32, f32)

    def _narrow(self, x: str, target: DType, lanes: int) -> str:
        """A float32 as a 16-bit float's bits, to nearest even; bfloat16 by integers, as x86's instruction flushes denormals."""
        i16, i32, f32 = vector("i16", lanes), vector("i32", lanes), vector("float", lanes)
        if target is float16 and "half" in self._lacks:
            return lacking.narrowed(self, x, lanes)
        if target is float16:
            half = vector("half", lanes)
            return self.convert("bitcast", self.convert("fptrunc", x, f32, half), half, i16)
        sixteen = int32s(16, lanes)
        bits = self.convert("bitcast", x, f32, i32)
        high = self.pure(f"lshr {i32} {bits}, {sixteen}")
        odd = self.pure(f"and {i32} {high}, {int32s(1, lanes)}")
        near = self.pure(f"add {i32} {self.pure(f'add {i32} {bits}, {int32s(0x7FFF, lanes)}')}, {odd}")
        quiet = self.pure(f"or {i32} {high}, {int32s(0x40, lanes)}")
        nan = self.compare("uno", float32, lanes, x, literal(float32, 0.0, lanes))
        rounded = self.choose(nan, quiet, self.pure(f"lshr {i32} {near}, {sixteen}"), i32, lanes)
        return self.convert("trunc", rounded, i32, i16)

    def _for_narrowing(self, x: str, source: DType, lanes: int) -> str:
        """A value as a float32 that rounds to 16 bits as the value itself would: inexact steps on the way round to odd."""
        if source is float32:
            return x
        if source.is_int and source.bits <= 16:
            return self.cast(x, source, float32, lanes)
        if source.is_int and source.bits == 64:
            x = self._sticky(x, source, lanes)
        x = self.cast(x, source, float64, lanes)
        f32, f64, i32 = vector("float", lanes), vector("double", lanes), vector("i32", lanes)
        near = self.convert("fptrunc", x, f64, f32)
        back = self.convert("fpext", near, f32, f64)
        bits = self.convert("bitcast", near, f32, i32)
        even = self.pure(f"icmp eq {i32} {self.pure(f'and {i32} {bits}, {int32s(1, lanes)}')}, {int32s(0, lanes)}")
        inexact = self.compare("one", float64, lanes, x, back)
        size = [self.intrinsic(f"fabs.{mangled(float64, lanes)}", f64, f"{f64} {v}") for v in (back, x)]
        away = self.compare("ogt", float64, lanes, *size)
        step = self.choose(away, int32s(-1, lanes), int32s(1, lanes), i32, lanes)
        flags = vector("i1", lanes)
        odd = self.pure(f"add {i32} {bits}, {step}")
        fix = self.pure(f"and {flags} {even}, {inexact}")
        return self.convert("bitcast", self.choose(fix, odd, bits, i32, lanes), i32, f32)

    def _sticky(self, x: str, source: DType, lanes: int) -> str:
        """A 64-bit integer that float64 holds: where it is large its low 16 bits become one that says whether any was set."""
        ty = type_of(source, lanes)
        number = lambda n: literal(int64, n, lanes)
        high = self.pure(f"and {ty} {x}, {number(-65536)}")
        low = self.pure(f"and {ty} {x}, {number(65535)}")
        any_low = self.convert("zext", self.pure(f"icmp ne {ty} {low}, {number(0)}"), vector("i1", lanes), ty)
        short = self.pure(f"or {ty} {high}, {self.pure(f'shl {ty} {any_low}, {number(16)}')}")
        top = self.pure(f"{'lshr' if source is uint64 else 'ashr'} {ty} {x}, {number(40)}")
        small = self.pure(f"icmp ult {ty} {self.pure(f'add {ty} {top}, {number(1)}')}, {number(2)}")
        return self.choose(small, x, short, ty, lanes)


def _holds(target: DType, low: float, high: float) -> bool:
    """Whether an integer dtype, and int32, hold what floats in low..high are truncated to."""
    info = np.iinfo(target.numpy)
    return max(int(info.min), -(1 << 31)) <= low and high <= min(int(info.max), (1 << 31) - 129)


def _range(e: Expr, deep: int = 4) -> tuple[float, float, bool]:
    """(least, largest, whether it may be NaN) of a float expression, as far as `deep` comparisons with constants say."""
    if not deep:
        return -math.inf, math.inf, True
    e = e.args[0] if e.op == "splat" else e
    if e.op == "const" and isinstance(e.attr, float) and not math.isnan(e.attr):
        return e.attr, e.attr, False
    if e.op in ("min", "max"):
        (low, high, nan), (other_low, other_high, other_nan) = (_range(x, deep - 1) for x in e.args)
        choose = min if e.op == "min" else max
        return (-math.inf, math.inf, True) if other_nan else (choose(low, other_low), choose(high, other_high), nan)
    if e.op == "select" and e.args[0].op == "gt" and e.args[0].args == e.args[1:]:  # a > b, which a NaN is not: the larger
        low, high, nan = _range(e.args[2], deep - 1)
        return low, max(high, _range(e.args[1], deep - 1)[1]), nan
    return -math.inf, math.inf, True
