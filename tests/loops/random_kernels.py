"""Hypothesis strategies for expressions and kernels of the kernel language, well formed by construction."""

from hypothesis import strategies as st

from tengen.base.dtype import ALL, bfloat16, bool_, float16, float32, float64, int32, int64, uint8
from tengen.loops.lang import FOLDS, LANES, OPS, SHUFFLES, const, expr, var
from tengen.loops.statements import Assign, Buffer, Declare, For, If, Kernel, Let, Load, Store
from tengen.loops.verify import ROUNDING, typed

DTYPES = (float32, float64, float16, bfloat16, int64, int32, uint8, bool_)
STORAGE = (float16, bfloat16)
HINTS = ["x", "i", "true", "f32", "math", "f32.inf", "a b", "é", "0", "load", "x.y", "ramp", "for"]
OPERATIONS = ["op", "op", "op", "compare", "select", "cast", "bitcast", "call", "lane", "fold", "splat", "shuffle", "lookup"]


def values(d):
    """Python values of a dtype's literals, edges included."""
    if d.is_float:
        return st.floats(width=64)
    if d is bool_:
        return st.booleans()
    low = -(1 << (d.bits - 1)) if d.kind == "i" else 0
    return st.integers(low, low + (1 << d.bits) - 1) | st.integers(max(low, -3), 3)


def literals(d):
    """Literals, as the constructor makes them."""
    return values(d).map(lambda v: const(v, d))


class Scope:
    """The variables that statements may use, by type."""

    def __init__(self, draw):
        self.draw, self.known, self.mutable, self.count = draw, [], [], 0

    def fresh(self, d, lanes=1):
        self.count += 1
        hint = self.draw(st.sampled_from(HINTS))
        return var(f"{hint}{self.count}" if self.draw(st.booleans()) or self.count > 1 else hint, d, lanes)

    def expr(self, d, lanes=1, depth=3):
        """An expression of this type."""
        draw = self.draw
        here = [v for v in self.known if v.dtype is d and v.lanes == lanes]
        if here and draw(st.integers(0, 2)) == 0:
            return draw(st.sampled_from(here))
        if depth == 0 or draw(st.integers(0, 5)) == 0:
            e = draw(literals(d))
            return e if lanes == 1 else typed("splat", (e,))
        e = self.operation(d, lanes, depth - 1)
        if draw(st.integers(0, 3)) == 0:  # share it
            self.known.append(e)
        return e

    def operation(self, d, lanes, depth):
        draw, sub = self.draw, lambda t, n=lanes: self.expr(t, n, depth)
        kind = draw(st.sampled_from(OPERATIONS))
        if kind == "lane" and lanes == 1:
            return typed("lane", (sub(d, LANES),), draw(st.integers(0, LANES - 1)))
        if kind == "fold" and lanes == 1:
            ops = [o for o in FOLDS if d.kind in OPS[o][1] and not (d in STORAGE and o in ROUNDING)]
            return typed("fold", (sub(d, LANES),), draw(st.sampled_from(ops)))
        if kind == "shuffle" and lanes > 1:
            return typed("shuffle", (sub(d), sub(d)), draw(st.sampled_from(list(SHUFFLES))))
        if kind == "lookup" and lanes > 1 and d is float32:
            return typed("lookup", (sub(d), sub(int32)))
        if kind == "lookup" and lanes > 1 and d is uint8:
            return typed("swizzle", (sub(d), sub(d)))
        if kind == "splat" and lanes > 1:
            return expr("ramp", (), int64, LANES) if d is int64 and draw(st.booleans()) else typed("splat", (sub(d, 1),))
        if kind == "call" and d in (float32, float64):
            return typed("call", (sub(d),), draw(st.sampled_from(["exp", "tanh"])))
        if kind == "compare" and d is bool_:
            t = draw(st.sampled_from(DTYPES))
            return typed(draw(st.sampled_from(["eq", "ne", "lt", "le", "gt", "ge"])), (sub(t), sub(t)))
        if kind == "bitcast":
            return typed("bitcast", (sub(draw(st.sampled_from([t for t in ALL if t.bits == d.bits]))),), d)
        if kind == "cast":
            return typed("cast", (sub(draw(st.sampled_from(DTYPES))),), d)
        if kind == "op":
            ops = [o for o, (_, kinds, result) in OPS.items() if result == "same" and d.kind in kinds]
            ops = [o for o in ops if d not in STORAGE or o not in ROUNDING]
            op = draw(st.sampled_from(ops))
            return typed(op, tuple(sub(d) for _ in range(OPS[op][0])))
        return typed("select", (sub(bool_), sub(d), sub(d)))


@st.composite
def kernels(draw, size: int = 6):
    """A well-formed kernel. It need not stay inside its buffers when it runs."""
    s = Scope(draw)
    k = Kernel(draw(st.sampled_from(["k", "a kernel", "kernel", "mul.d0"])), [], [], const(1), var("piece?"), [])
    for i in range(draw(st.integers(1, 3))):
        size_ = draw(st.none() | st.integers(1, 99))
        k.buffers.append(Buffer(f"b{i}", draw(st.sampled_from(DTYPES)), draw(st.sampled_from(["in", "out"])), size_))
    if draw(st.booleans()):
        k.scratch.append(Buffer("in", draw(st.sampled_from(DTYPES)), "scratch", draw(st.integers(1, 99))))
    k.ints = [var(f"n{i}") for i in range(draw(st.integers(0, 2)))]
    s.known = list(k.ints)
    k.pieces = s.expr(int64, 1, 2)
    s.known = [*k.ints, k.piece]
    k.body = block(draw, s, k, size, 2)
    return k


def block(draw, s: Scope, k: Kernel, size: int, depth: int) -> list:
    """Statements; what they define is forgotten afterwards."""
    outer, outer_mutable = list(s.known), list(s.mutable)
    body = [statement(draw, s, k, size, depth) for _ in range(draw(st.integers(0, size)))]
    s.known, s.mutable = outer, outer_mutable
    return body


def statement(draw, s: Scope, k: Kernel, size: int, depth: int):
    kinds = ["let", "var", "load", "store"] + ["set"] * bool(s.mutable) + ["for", "if"] * (depth > 0)
    kind = draw(st.sampled_from(kinds))
    d, lanes = draw(st.sampled_from(DTYPES)), draw(st.sampled_from([1, LANES]))
    outs = [b for b in [*k.buffers, *k.scratch] if b.role != "in"]
    if kind in ("let", "var") or (kind == "store" and not outs):
        value = s.expr(d, lanes)
        v = s.fresh(d, lanes)
        s.known.append(v)
        if kind == "var":
            s.mutable.append(v)
        return (Declare if kind == "var" else Let)(v, value)
    if kind == "set":
        v = draw(st.sampled_from(s.mutable))
        return Assign(v, s.expr(v.dtype, v.lanes))
    if kind in ("load", "store"):
        b = draw(st.sampled_from([*k.buffers, *k.scratch] if kind == "load" else outs))
        index = s.expr(int64, draw(st.sampled_from([1, lanes])))
        count = s.expr(int64, 1, 1) if lanes > 1 and draw(st.booleans()) else None
        if kind == "store":
            return Store(b, index, s.expr(b.dtype, lanes), count, draw(st.booleans()))
        other = None if count is None else s.expr(b.dtype, draw(st.sampled_from([1, LANES])), 1)
        v = s.fresh(b.dtype, lanes)
        s.known.append(v)
        return Load(v, b, index, count, other)
    if kind == "if":
        cond = s.expr(bool_)
        return If(cond, block(draw, s, k, size // 2, depth - 1), block(draw, s, k, size // 2, depth - 1))
    loop = For(s.fresh(int64), s.expr(int64), s.expr(int64), draw(st.integers(1, 64)))
    outer = list(s.known)
    s.known.append(loop.var)
    loop.body = block(draw, s, k, size // 2, depth - 1)
    s.known = outer
    return loop
