"""The kernel language's expressions: pure, scalar or one vector; `statements.py` has the few statements that run them.

A value has a dtype and either one lane or `LANES` lanes, on every target. What an operation means is fixed here,
in IEEE-754 terms, and not left to a compiler; `interp.py` is the executable definition. An `Expr` is hash-consed: structurally
equal expressions are the same object, and only those are `==`.

Read next: `rewriting.py` (walks over them), `statements.py`,
then `builder.py` (how kernels are written) and `interp.py` (what they mean).
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable
from numbers import Number
from typing import Union

from tengen.base.dtype import DType, bfloat16, bool_, dtype, float32, int8, int16, int32, int64, uint8, uint32
from tengen.base.errors import SizeError, Undecided, VerifyError
from tengen.base.tables import Interned, intern
from tengen.loops.decisions import decisions

LANES = 16
QUAD = 4  # lanes that lie in one register of 16 bytes where they are float32

# op -> (number of operands, operand kinds, result): kinds are a string of dtype kinds ("f", "i", "u", "b").
# result "same" is the dtype of the operands, "bool" a predicate.
OPS: dict[str, tuple[int, str, str]] = {
    # fmt: off
    "add": (2, "fiu", "same"), "sub": (2, "fiu", "same"), "mul": (2, "fiu", "same"),   # integers wrap
    "div": (2, "f", "same"), "fma": (3, "f", "same"),                                  # fma rounds once
    "floordiv": (2, "iu", "same"), "floormod": (2, "iu", "same"),                      # by zero: 0
    "quo": (2, "iu", "same"), "rem": (2, "iu", "same"),          # index arithmetic: rounded down, divisor > 0
    "min": (2, "fiub", "same"), "max": (2, "fiub", "same"),      # a if a is NaN or beats b, else b
    "neg": (1, "fi", "same"), "abs": (1, "fi", "same"), "sqrt": (1, "f", "same"),
    "floor": (1, "f", "same"), "ceil": (1, "f", "same"), "trunc": (1, "f", "same"), "rint": (1, "f", "same"),
    "and": (2, "iub", "same"), "or": (2, "iub", "same"), "xor": (2, "iub", "same"), "not": (1, "iub", "same"),
    "shl": (2, "iu", "same"), "shr": (2, "iu", "same"),          # by the width or more (or < 0): 0, or the sign
    "eq": (2, "fiub", "bool"), "ne": (2, "fiub", "bool"), "lt": (2, "fiub", "bool"),
    "le": (2, "fiub", "bool"), "gt": (2, "fiub", "bool"), "ge": (2, "fiub", "bool"),
    # fmt: on
}
FOLDS = ("add", "mul", "min", "max", "and", "or")
# name -> for each lane of the result, a lane of the first of two vectors (0 to 15) or of the second (16 to 31). A quad is four lanes.
SHUFFLES = {
    "low_of_quads": tuple(i // 4 * 4 + i % 4 // 2 + i % 2 * LANES for i in range(LANES)),
    "high_of_quads": tuple(i // 4 * 4 + i % 4 // 2 + 2 + i % 2 * LANES for i in range(LANES)),
    "even_quads": tuple(i // 4 * 8 + i % 4 for i in range(LANES)),
    "odd_quads": tuple(i // 4 * 8 + 4 + i % 4 for i in range(LANES)),
    "quads_from_3": tuple(i // 4 * 8 + 3 + i % 4 for i in range(LANES)),
    "low_halves": tuple(i // 2 * 4 + i % 2 for i in range(LANES)),
    "high_halves": tuple(i // 2 * 4 + 2 + i % 2 for i in range(LANES)),
    "first_halves": tuple(i % (LANES // 2) + i // (LANES // 2) * LANES for i in range(LANES)),
    "second_halves": tuple(i % (LANES // 2) + i // (LANES // 2) * LANES + LANES // 2 for i in range(LANES)),
    **{f"lanes_of_quad_{q}": tuple(q * QUAD + i // QUAD for i in range(LANES)) for q in range(LANES // QUAD)},
    "first_of_quads": tuple(sorted(range(LANES), key=lambda i: (i % QUAD == QUAD - 1, i))),
}
# dtype of a buffer -> dtype of a variable, each lane of which holds several elements; see `Load`
GROUPS = {bfloat16: uint32, int16: uint32, int8: uint32, uint8: uint32}
# operation -> dtype of its total; it adds a dot product of two groups, each a uint32
DOTS = {"dot2": float32, "dot2h": uint32} | dict.fromkeys(("dot2i", "dot4i", "dot4n", "dot4u", "dot4s", "quad4i", "quad4u"), int32)
QUADS = ("quad4i", "quad4u")  # those whose lanes are no results of their own
LOOKUPS = {"swizzle": (uint8, uint8), "lookup": (float32, int32)}  # operation -> dtypes of a vector, and of the numbers of its lanes


class Expr:
    """A pure expression: an op of `OPS`, or one of
    `const` (attr: the value), `var` (attr: its name), `select` (cond, a, b), `cast` (attr: dtype; float to int saturates and
    NaN gives 0), `bitcast` (attr: dtype), `call` (attr: name of a function of `math.py`), `splat` (1 -> 16 lanes),
    `ramp` (int64 lanes 0..15), `lane` (attr: which), `fold` (attr: one of `FOLDS`; the fixed tree: halves are combined,
    lane i with lane i + 8, then + 4, + 2, + 1), `shuffle` (attr: one of `SHUFFLES`), or one of `LOOKUPS` or `DOTS` (see the functions).
    """

    __slots__ = ("op", "args", "dtype", "lanes", "attr", "__weakref__")
    op: str
    args: tuple[Expr, ...]
    dtype: DType
    lanes: int
    attr: object

    def __repr__(self) -> str:
        return show(self)

    # Arithmetic. `//` and `%` are index arithmetic (`quo`, `rem`): Python's, by divisors above 0.
    # What has arithmetic of its own (a tensor) does it.
    def __add__(self, o): return binary("add", self, o) if isinstance(o, Operand) else NotImplemented  # fmt: skip
    def __radd__(self, o): return binary("add", o, self)  # fmt: skip
    def __sub__(self, o): return binary("sub", self, o) if isinstance(o, Operand) else NotImplemented  # fmt: skip
    def __rsub__(self, o): return binary("sub", o, self)  # fmt: skip
    def __mul__(self, o): return binary("mul", self, o) if isinstance(o, Operand) else NotImplemented  # fmt: skip
    def __rmul__(self, o): return binary("mul", o, self)  # fmt: skip
    def __truediv__(self, o): return _quotient(self, o) if isinstance(o, Operand) else NotImplemented  # fmt: skip
    def __rtruediv__(self, o): return _quotient(o, self)  # fmt: skip
    def __pow__(self, o): return _power(self, o) if isinstance(o, Operand) else NotImplemented  # fmt: skip
    def __rpow__(self, o): return _power(o, self)  # fmt: skip
    def __floordiv__(self, o): return binary("quo", self, o)  # fmt: skip
    def __rfloordiv__(self, o): return binary("quo", o, self)  # fmt: skip
    def __mod__(self, o): return binary("rem", self, o)  # fmt: skip
    def __rmod__(self, o): return binary("rem", o, self)  # fmt: skip
    def __neg__(self): return unary("neg", self)  # fmt: skip
    def __abs__(self): return unary("abs", self)  # fmt: skip
    def __invert__(self): return unary("not", self)  # fmt: skip
    def __and__(self, o): return binary("and", self, o)  # fmt: skip
    def __or__(self, o): return binary("or", self, o)  # fmt: skip
    def __xor__(self, o): return binary("xor", self, o)  # fmt: skip
    def __lshift__(self, o): return binary("shl", self, o)  # fmt: skip
    def __rshift__(self, o): return binary("shr", self, o)  # fmt: skip
    def __lt__(self, o): return binary("lt", self, o)  # fmt: skip
    def __le__(self, o): return binary("le", self, o)  # fmt: skip
    def __gt__(self, o): return binary("gt", self, o)  # fmt: skip
    def __ge__(self, o): return binary("ge", self, o)  # fmt: skip

    def __bool__(self):
        if decisions.decide is not None:
            return decisions.decide(self if self.dtype is bool_ else not_equal(self, 0))
        raise Undecided(f"the expression {self!r} has no value while a kernel is being written")

    def __index__(self):
        raise Undecided(f"the extent {self!r} has no value while a kernel is being written")

    __int__ = __float__ = __index__

    # `==`, `in`, `index`, keys of dicts: whether it is the same expression, which `is` says, since expressions are hash-consed.
    # `equal` and `not_equal` compare values in the kernel. Extents that users see answer otherwise: `extents.OpenExtent`.


Operand = (Expr, int, float, Number)


def _quotient(a, b) -> Expr:
    if any(isinstance(x, Expr) and x.dtype is int64 for x in (a, b)):
        raise Undecided(f"the quotient {a!r} / {b!r} has no value before the program runs (// gives an extent)")
    return binary("div", a, b)


def _power(a, b) -> Expr:
    raise Undecided(f"the power {a!r} ** {b!r} has no value before the program runs")


_interned: dict[tuple, Interned] = {}


def expr(op: str, args: tuple[Expr, ...], dt: DType, lanes: int = 1, attr=None) -> Expr:
    """The one `Expr` with these parts. Call the typed constructors below instead."""
    key_attr = (attr.hex() if attr == attr else "nan") if isinstance(attr, float) else attr
    key = (op, args, dt.name, lanes, key_attr, type(attr))  # the name: it hashes without a call
    try:
        entry = _interned.get(key)
    except Undecided:  # an extent for users has no hash
        return expr(op, tuple(map(unguarded, args)), dt, lanes, attr)
    e = None if entry is None else entry()
    if e is None:
        e = Expr()
        e.op, e.args, e.dtype, e.lanes, e.attr = op, args, dt, lanes, attr
        intern(_interned, key, e)
    return e


Index = Union[Expr, int]


def const(value, dt: DType = int64, lanes: int = 1) -> Expr:
    """A literal of dtype `dt`. Integers wrap into the dtype; floats are rounded to it by whoever evaluates them."""
    if dt is int64 and lanes == 1 and type(value) is int:
        return _int64(value)
    if dt.kind == "f":
        value = float(value)
    elif dt is bool_:
        value = bool(value)
    else:
        value = int(value) & ((1 << dt.bits) - 1)
        if dt.kind == "i" and value >> (dt.bits - 1):
            value -= 1 << dt.bits
    e = expr("const", (), dt, 1, value)
    return e if lanes == 1 else splat(e)


@functools.lru_cache(1 << 12)
def _int64(value: int) -> Expr:
    return expr("const", (), int64, 1, ((value + (1 << 63)) & ((1 << 64) - 1)) - (1 << 63))


def var(name: str, dt: DType = int64, lanes: int = 1) -> Expr:
    """A variable. Two variables of one kernel have different names."""
    return expr("var", (), dt, lanes, name)


def is_const(e, value=None) -> bool:
    """Whether `e` is a literal (with this value, if one is given)."""
    if isinstance(e, Expr):
        if e.op != "const":
            return False
        e = e.attr
    return value is None or (e == value and not (isinstance(e, float) and math.copysign(1, e) != math.copysign(1, value)))


def as_int(e: Index) -> int | None:
    """The value of an index that is known now, else None."""
    if isinstance(e, int):
        return e
    return e.attr if e.op == "const" else None


def fits(n: int) -> bool:
    """Whether an int64 holds the number."""
    return -(1 << 63) <= n < 1 << 63


def splat(e: Expr) -> Expr:
    """All lanes equal to the scalar `e`."""
    return e if e.lanes == LANES else expr("splat", (e,), e.dtype, LANES)


def ramp() -> Expr:
    """The int64 vector 0, 1, ..., 15."""
    return expr("ramp", (), int64, LANES)


def unguarded(e):
    """An expression without the guard that a user's extent has (`extents.OpenExtent`); anything else as it is."""
    return e.expr if isinstance(e, Expr) and type(e) is not Expr else e


NO_VALUE = (
    "help: == and != between expressions say at once whether they are the same one; equal(a, b) and not_equal(a, b) compare values"
)


def _check_number(x, y) -> None:
    """Raises the error for a Python number `x` that is no operand beside `y`: a bool beside an expression, and beside an extent a
    float, or an int that does not fit 64 bits."""
    if type(x) is bool:
        raise VerifyError(f"the expression {y!r} beside the Python bool {x}; {NO_VALUE}, and const({x}, bool_) is an operand")
    if isinstance(x, float) and isinstance(y, Expr) and y.dtype is int64:
        raise Undecided(f"the extent {y!r} has no value before the program runs, so {x!r} cannot be combined with it")
    if type(x) is int and not fits(x) and isinstance(y, Expr) and y.dtype is int64:
        raise SizeError(f"the extent {y!r} cannot be combined with {x}, which does not fit 64 bits")


def _lift(a, b) -> tuple[Expr, Expr]:
    """Both operands as expressions of one dtype and one lane count; Python numbers take the other's dtype."""
    if type(a) is Expr and type(b) is int and -(1 << 62) < b < 1 << 62:  # the most frequent case; it fits 64 bits
        b = _int64(b) if a.dtype is int64 else const(b, a.dtype)
    elif type(a) is not Expr or type(b) is not Expr:
        a, b = unguarded(a), unguarded(b)
        _check_number(a, b)
        _check_number(b, a)
    if not isinstance(a, Expr):
        a = const(a, b.dtype)
    elif not isinstance(b, Expr):
        b = const(b, a.dtype)
    if a.dtype is not b.dtype:
        raise VerifyError(f"operands of dtypes {a.dtype} and {b.dtype}: {a!r}, {b!r}; help: cast one of them")
    if a.lanes != b.lanes:
        a, b = splat(a), splat(b)
    return a, b


def unary(op: str, a: Expr) -> Expr:
    """One-operand op of `OPS`."""
    n, kinds, _ = OPS[op]
    if n != 1 or a.dtype.kind not in kinds:
        raise VerifyError(f"{op} does not take {a.dtype}")
    if a.op == "const" and op == "neg" and a.dtype is int64 and fits(-a.attr):
        return const(-a.attr)
    if a.op == op == "neg" and a.dtype is int64:
        return a.args[0]
    if a.op == "splat":
        return splat(unary(op, a.args[0]))
    return expr(op, (a,), a.dtype, a.lanes)


_OF_LITERALS: dict[str, Callable] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "quo": operator.floordiv, "rem": operator.mod, "min": min, "max": max,
    "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge, "eq": operator.eq, "ne": operator.ne,
}  # fmt: skip


def _fold_index(op: str, a: Expr, b: Expr) -> Expr | None:
    """int64 arithmetic on literals and with neutral elements, so that known extents vanish while a kernel is written. What
    would wrap stays as it is written: a kernel's arithmetic wraps, and an extent that does is an error (`extents.py`)."""
    x = a.attr if a.op == "const" else None
    y = b.attr if b.op == "const" else None
    if x is not None and y is not None:
        if op in ("quo", "rem") and (x < 0 or y <= 0):  # of extents it is an error (`extents.py`)
            return None
        f = _OF_LITERALS.get(op)
        if f is None:
            return None
        r = f(x, y)
        return const(r, bool_) if isinstance(r, bool) else const(r) if fits(r) else None
    if op == "add":
        if x == 0:
            return b
        if y == 0:
            return a
        if y is not None and a.op == "add" and a.args[1].op == "const" and fits(a.args[1].attr + y):
            return a.args[0] + (a.args[1].attr + y)
        if x is not None:
            return b + a
    elif op == "sub":
        if y is not None and fits(-y):
            return a + (-y)
        (one, n), (other, m) = _moved(a), _moved(b)
        if one is other and fits(n - m):
            return const(n - m)
    elif op == "mul":
        if x == 0 or y == 0:
            return const(0)
        if x == 1:
            return b
        if y == 1:
            return a
        if x is not None:
            return b * a
        return _fold_product(a, b)
    elif op in ("quo", "rem"):
        if y == 1:
            return a if op == "quo" else const(0)
        if a is b:
            return const(1 if op == "quo" else 0)
        return _fold_quotient(op, a, b)
    elif op in ("min", "max") and a is b:
        return a
    return None


def _moved(e: Expr) -> tuple[Expr, int]:
    """e as a sum with a literal."""
    return (e.args[0], e.args[1].attr) if e.op == "add" and e.args[1].op == "const" else (e, 0)


def _scaled(e: Expr) -> tuple[Expr, int]:
    """e as a product with a literal."""
    return (e.args[0], e.args[1].attr) if e.op == "mul" and e.args[1].op == "const" else (e, 1)


def _fold_product(a: Expr, b: Expr) -> Expr | None:
    """Products have one literal, as the last factor: so extents that are equal are the same expression."""
    if is_const(b):
        x, n = _scaled(a)
        return None if x is a or not fits(n * b.attr) else x * (n * b.attr)
    (x, n), (y, m) = _scaled(a), _scaled(b)
    if (x is not a or y is not b) and fits(n * m):
        return (x * y) * (n * m)
    return b * a if a.op == b.op == "var" and str(a.attr) > str(b.attr) else None


def _fold_quotient(op: str, a: Expr, b: Expr) -> Expr | None:
    """Quotients without a rest. Divisors of index arithmetic are above 0, and it does not overflow."""
    if a.op == "mul" and b in a.args:
        return a.args[a.args[0] is b] if op == "quo" else const(0)
    (x, n), (y, m) = _scaled(a), (None, b.attr) if is_const(b) else _scaled(b)
    if not isinstance(m, int) or m < 1 or n < 1 or n % m or (y is not None and y is not x):
        return None if y is None or x.op != "mul" or m < 1 or n < 1 else _without_common_factors(op, x, n, y, m)
    if op == "rem":
        return const(0)
    return const(n // m) if y is x else x * (n // m)


def _without_common_factors(op: str, x: Expr, n: int, y: Expr, m: int) -> Expr | None:
    """The quotient or the rest of x n by y m where their products have factors in common; None where they have none."""
    over, under = _factors(x), []
    for f in _factors(y):
        if f in over:
            over.remove(f)
        else:
            under.append(f)
    if len(under) == len(_factors(y)):
        return None
    common = math.gcd(n, m)
    if op == "rem":
        return const(0) if not under and common == m else None
    top, bottom = (functools.reduce(operator.mul, of, const(1)) * (k // common) for of, k in ((over, n), (under, m)))
    return top // bottom


def _factors(e: Expr) -> list[Expr]:
    """The factors of a product that are no products."""
    return [f for a in e.args for f in _factors(a)] if e.op == "mul" else [e]


def binary(op: str, a, b) -> Expr:
    """Two-operand op of `OPS`; a Python number takes the other operand's dtype, a scalar is splat to a vector's lanes."""
    plain = type(a) is Expr and (type(b) is int or type(b) is Expr)  # values of these types are equal only where they mean the same
    return _known_binary(op, a, b) if plain else _binary(op, a, b)


def _binary(op: str, a, b) -> Expr:
    a, b = _lift(a, b)
    n, kinds, result = OPS[op]
    if n != 2 or a.dtype.kind not in kinds:
        raise VerifyError(f"{op} does not take {a.dtype}")
    if a.dtype is int64:
        if a.op == "splat" and b.op == "splat":
            return splat(binary(op, a.args[0], b.args[0]))
        if a.lanes == 1 and (folded := _fold_index(op, a, b)) is not None:
            return folded
        if op == "add" and b.op == "splat" and is_const(b.args[0], 0):
            return a
        if op == "mul" and b.op == "splat" and is_const(b.args[0], 1):
            return a
    return expr(op, (a, b), bool_ if result == "bool" else a.dtype, a.lanes)


_known_binary = functools.lru_cache(1 << 12)(_binary)  # a kernel computes most of its indices several times


def fma(a, b, c) -> Expr:
    """a * b + c, rounded once."""
    first = next(x for x in (a, b, c) if isinstance(x, Expr))
    xs = [x if isinstance(x, Expr) else const(x, first.dtype) for x in (a, b, c)]
    lanes = max(x.lanes for x in xs)
    if any(x.dtype is not first.dtype for x in xs) or not first.dtype.is_float:
        raise VerifyError(f"fma needs three floats of one dtype, got {[x.dtype for x in xs]}")
    return expr("fma", tuple(splat(x) if lanes > 1 else x for x in xs), xs[0].dtype, lanes)


def select(cond: Expr, a, b) -> Expr:
    """Lanewise `a` where `cond` holds, else `b`."""
    a, b = _lift(a, b)
    if not isinstance(cond, Expr):
        raise VerifyError(f"select needs a predicate, got {cond!r}; {NO_VALUE}")
    if cond.dtype is not bool_:
        raise VerifyError(f"select needs a predicate, got {cond.dtype}")
    if cond.op == "const":
        return a if cond.attr else b
    lanes = max(cond.lanes, a.lanes)
    if lanes > 1:
        cond, a, b = splat(cond), splat(a), splat(b)
    return expr("select", (cond, a, b), a.dtype, lanes)


def cast(a: Expr, dt) -> Expr:
    """The value in another dtype: floats round to nearest even, float to int truncates and saturates (NaN gives 0),
    integers wrap, anything to bool is `!= 0`."""
    dt = dtype(dt)
    if a.dtype is dt:
        return a
    if a.op == "splat":
        return splat(cast(a.args[0], dt))
    if a.op == "const" and dt.is_int and a.dtype.kind in "iub":
        return const(int(a.attr), dt)
    return expr("cast", (a,), dt, a.lanes, dt)


def bitcast(a: Expr, dt) -> Expr:
    """The same bits as another dtype of the same width."""
    dt = dtype(dt)
    if a.dtype.bits != dt.bits:
        raise VerifyError(f"bitcast from {a.dtype} to {dt} changes the width")
    return a if a.dtype is dt else expr("bitcast", (a,), dt, a.lanes, dt)


def call(name: str, *args) -> Expr:
    """A function of `tengen.loops.math`, by name; all operands and the result have one float dtype."""
    first = next(x for x in args if isinstance(x, Expr))
    xs = [x if isinstance(x, Expr) else const(x, first.dtype) for x in args]
    lanes = max(x.lanes for x in xs)
    if len({x.dtype for x in xs}) != 1:
        raise VerifyError(f"{name} needs operands of one dtype, got {[x.dtype for x in xs]}")
    return expr("call", tuple(splat(x) if lanes > 1 else x for x in xs), first.dtype, lanes, name)


def lane(a: Expr, i: int) -> Expr:
    """Lane `i` of a vector."""
    return expr("lane", (a,), a.dtype, 1, i)


def fold(op: str, a: Expr) -> Expr:
    """All lanes of a vector combined by the fixed tree."""
    if op not in FOLDS or a.lanes != LANES:
        raise VerifyError(f"fold {op} needs a vector and one of {FOLDS}")
    return expr("fold", (a,), a.dtype, 1, op)


def shuffle(name: str, a: Expr, b: Expr) -> Expr:
    """Lanes of two vectors. "low_of_quads": of each quad (four lanes) the first two lanes of a and of b in turn, a's first;
    "high_of_quads": the last two. "even_quads": quads 0 and 2 of a, then those of b; "odd_quads": quads 1 and 3;
    "quads_from_3": lanes 3 to 6 of each half of a, then of b. "low_halves": the first two lanes of each quad of a, then of b;
    "high_halves": the last two. "lanes_of_quad_0" to "_3": each lane of that quad of a, four times;
    "first_of_quads": the first three lanes of each quad of a, then the fourth ones."""
    if name not in SHUFFLES or a.lanes != LANES or b.lanes != LANES or a.dtype is not b.dtype:
        raise VerifyError(f"shuffle {name} needs two vectors of one dtype and one of {', '.join(SHUFFLES)}")
    return expr("shuffle", (a, b), a.dtype, LANES, name)


def swizzle(x: Expr, index: Expr) -> Expr:
    """Lanes of a vector of uint8 in another order: lane i is lane index[i] % 16 of x, or 0 where index[i] is 128 or more: x86's PSHUFB."""
    return _looked_up("swizzle", x, index)


def lookup(table: Expr, index: Expr) -> Expr:
    """Lanes of a vector of float32 by their numbers, an int32 each, of which the lowest three bits count: the number of a lane in the half of
    `table` in which the result's lane lies. (Registers of 32 bytes hold eight lanes: this is x86's VPERMPS, twice.)"""
    return _looked_up("lookup", table, index)


def _looked_up(op: str, table: Expr, index: Expr) -> Expr:
    wanted = LOOKUPS[op]
    if (table.dtype, index.dtype) != wanted or table.lanes != LANES or index.lanes != LANES:
        raise VerifyError(f"{op} takes vectors of {' and '.join(map(str, wanted))}, got {table!r} and {index!r}")
    return expr(op, (table, index), table.dtype, LANES)


def minimum(a, b) -> Expr:
    """The smaller; a NaN in either operand wins."""
    return binary("min", a, b)


def maximum(a, b) -> Expr:
    """The larger; a NaN in either operand wins."""
    return binary("max", a, b)


def equal(a, b) -> Expr:
    """Whether a == b; false with a NaN."""
    return binary("eq", a, b)


def not_equal(a, b) -> Expr:
    """Whether a != b; true with a NaN."""
    return binary("ne", a, b)


def cdiv(a: Index, b: Index) -> Index:
    """a / b rounded up, for sizes."""
    return (a + b - 1) // b


def show(e: Expr) -> str:
    """One line for messages; `text.py` prints kernels so that they parse back."""
    if e.op in ("const", "var"):
        return str(e.attr)
    head = e.op if e.attr is None else f"{e.op}.{e.attr}"
    return f"{head}({', '.join(map(show, e.args))})"
