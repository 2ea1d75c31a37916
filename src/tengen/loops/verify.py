"""The rules of the kernel language: what a well-formed kernel is.

In: a `Kernel`, from a lowering or from the parser. Out: nothing, or a `VerifyError` that names the kernel and the statement.
`result_type` is the one place that types an expression from its operands; the parser builds expressions through it.

Read next: `interp.py` (what a kernel that passes means).
"""

from __future__ import annotations

from tengen.base.dtype import DType, bool_, float64, int32, int64, uint32
from tengen.base.errors import VerifyError
from tengen.loops.lang import DOTS, FOLDS, GROUPS, LANES, LOOKUPS, OPS, QUADS, SHUFFLES, Expr, expr
from tengen.loops.statements import Assign, Buffer, Declare, External, For, If, Kernel, Let, Load, Prefetch, Store

# Ops whose result is rounded. 16-bit floats are storage, so these must be computed in float32 (one cast, one rounding).
ROUNDING = {"add", "sub", "mul", "div", "fma", "sqrt"}


def brief(e: object, depth: int = 4) -> str:
    """An expression for a message: like `lang.show`, but cut below `depth`, so that a large DAG stays one line."""
    if not isinstance(e, Expr):
        return repr(e)
    if e.op in ("const", "var"):
        return str(e.attr)
    head = e.op if e.attr is None else f"{e.op}.{e.attr}"
    return f"{head}({', '.join(brief(a, depth - 1) for a in e.args) if depth > 1 else '...'})"


def describe(s: object) -> str:
    """A statement in one line, for messages."""
    match s:
        case Let():
            return f"let {brief(s.var)} = {brief(s.value)}"
        case Load():
            return f"load {brief(s.var)} = {s.buffer.name}[{brief(s.index)}]"
        case Store():
            return f"store {s.buffer.name}[{brief(s.index)}] = {brief(s.value)}"
        case Prefetch():
            return f"prefetch {s.buffer.name}[{brief(s.index)}]"
        case External():
            return f"extern {brief(s.var)} = {s.symbol}"
        case Declare():
            return f"var {brief(s.var)} = {brief(s.value)}"
        case Assign():
            return f"set {brief(s.var)} = {brief(s.value)}"
        case For():
            return f"for {brief(s.var)} in range({brief(s.start)}, {brief(s.stop)}, {s.step})"
        case If():
            return f"if {brief(s.cond)}"
    return repr(s)


# ---- expressions -----------------------------------------------------------------------------------------------------


def result_type(op: str, args: tuple[Expr, ...], attr: object = None) -> tuple[DType, int]:
    """The dtype and lane count of an operation on these operands (every op but `const` and `var`, which carry their own).

    Errors: VerifyError when the operands do not fit the op.
    """
    if op in OPS:
        return _plain_type(op, args, attr)
    shape = {"select": 3, "cast": 1, "bitcast": 1, "splat": 1, "ramp": 0, "lane": 1, "fold": 1, "shuffle": 2}
    shape |= dict.fromkeys(DOTS, 3) | dict.fromkeys(LOOKUPS, 2)
    if op == "call":
        return _call_type(args, attr)
    if op not in shape:
        raise VerifyError(f"there is no op {op!r}")
    if len(args) != shape[op]:
        raise VerifyError(f"{op} takes {shape[op]} operands, got {len(args)}")
    if op in ("select", "splat", "ramp", *LOOKUPS, *DOTS) and attr is not None:
        raise VerifyError(f"{op} has no attribute, got {attr!r}")
    if op == "ramp":
        return int64, LANES
    a = args[0]
    if op == "select":
        if a.dtype is not bool_:
            raise VerifyError(f"select needs a predicate, got {a.dtype}")
        return _common("select", args[1:])[0], _lanes("select", args)
    if op in DOTS:
        total = DOTS[op]
        if tuple(x.dtype for x in args) != (total, uint32, uint32):
            raise VerifyError(f"{op} takes {total}, uint32 and uint32, got {', '.join(str(x.dtype) for x in args)}")
        if op in QUADS and any(x.lanes != LANES for x in args):
            raise VerifyError(f"{op} takes vectors")
        return total, _lanes(op, args)
    if op in ("cast", "bitcast"):
        if not isinstance(attr, DType):
            raise VerifyError(f"{op} needs a dtype, got {attr!r}")
        if op == "bitcast" and attr.bits != a.dtype.bits:
            raise VerifyError(f"bitcast from {a.dtype} to {attr} changes the width")
        return attr, a.lanes
    if op == "splat":
        if a.lanes != 1:
            raise VerifyError("splat takes a scalar")
        return a.dtype, LANES
    if any(x.lanes != LANES for x in args):
        raise VerifyError(f"{op} takes a vector")
    if op == "shuffle":
        if attr not in SHUFFLES:
            raise VerifyError(f"shuffle {attr!r} is not one of {', '.join(SHUFFLES)}")
        return _common(op, args)
    if op in LOOKUPS:
        if tuple(x.dtype for x in args) != LOOKUPS[op]:
            raise VerifyError(f"{op} takes {' and '.join(map(str, LOOKUPS[op]))}, got {' and '.join(str(x.dtype) for x in args)}")
        return a.dtype, LANES
    if op == "lane":
        if type(attr) is not int or not 0 <= attr < LANES:
            raise VerifyError(f"lane {attr!r} is not one of 0..{LANES - 1}")
    elif attr not in FOLDS:
        raise VerifyError(f"fold {attr!r} is not one of {', '.join(FOLDS)}")
    else:
        _check_kind(attr, a.dtype)
    return a.dtype, 1


def _plain_type(op: str, args: tuple[Expr, ...], attr: object) -> tuple[DType, int]:
    n, _, result = OPS[op]
    if len(args) != n or attr is not None:
        raise VerifyError(f"{op} takes {n} operands and no attribute, got {len(args)} and {attr!r}")
    dt, lanes = _common(op, args)
    _check_kind(op, dt)
    return (bool_ if result == "bool" else dt), lanes


def _call_type(args: tuple[Expr, ...], attr: object) -> tuple[DType, int]:
    if not isinstance(attr, str) or not attr.isidentifier():
        raise VerifyError(f"a call needs the name of a function, got {attr!r}")
    if not args:
        raise VerifyError(f"{attr} needs an operand")
    dt, lanes = _common(attr, args)
    if dt.kind != "f" or dt.bits == 16:
        raise VerifyError(f"{attr} takes float32 or float64, got {dt}")
    return dt, lanes


def _check_kind(op: str, dt: DType) -> None:
    if dt.kind not in OPS[op][1]:
        raise VerifyError(f"{op} does not take {dt}")
    if dt.kind == "f" and dt.bits == 16 and op in ROUNDING:
        raise VerifyError(f"{op} does not take {dt}, which is for storage; help: cast to float32, and once back")


def _common(op: str, args: tuple[Expr, ...]) -> tuple[DType, int]:
    dtypes = [a.dtype for a in args]
    if any(d is not dtypes[0] for d in dtypes):
        raise VerifyError(f"{op} has operands of dtypes {', '.join(map(str, dtypes))}")
    return dtypes[0], _lanes(op, args)


def _lanes(op: str, args: tuple[Expr, ...]) -> int:
    if any(a.lanes != args[0].lanes for a in args):
        raise VerifyError(f"{op} mixes scalars and vectors")
    return args[0].lanes


def typed(op: str, args: tuple[Expr, ...], attr: object = None) -> Expr:
    """The expression `op(args)` exactly as it is written, checked, and without the folding of `lang`'s constructors."""
    dt, lanes = result_type(op, args, attr)
    return expr(op, args, dt, lanes, attr)


def _check_leaf(e: Expr) -> None:
    if e.args:
        raise VerifyError(f"{e.op} has operands")
    if not isinstance(e.dtype, DType):
        raise VerifyError(f"{e.dtype!r} is not a dtype")
    if e.op == "var":
        _check_name(e.attr, "variable")
        if e.lanes not in (1, LANES):
            raise VerifyError(f"variable {e.attr} has {e.lanes} lanes")
        return
    v, d = e.attr, e.dtype
    if e.lanes != 1:
        raise VerifyError("a literal is a scalar; help: splat it")
    low = -(1 << (d.bits - 1)) if d.kind == "i" else 0
    right = {"f": float, "b": bool}.get(d.kind, int)
    if type(v) is not right or (right is int and not low <= v < low + (1 << d.bits)):
        raise VerifyError(f"literal {v!r} is not a value of {d}")


def _check_name(name: object, what: str) -> None:
    if not isinstance(name, str) or not name or not name.isprintable() or "`" in name:
        raise VerifyError(f"{name!r} is not a name for a {what}")


def check_expr(e: object, good: set[Expr]) -> list[Expr]:
    """Checks every node under `e`, those in `good` excepted (they are known to be right), and returns its variables."""
    if not isinstance(e, Expr):
        raise VerifyError(f"{e!r} is not an expression")
    seen, stack, found = {e}, [e], []
    while stack:
        x = stack.pop()
        if x not in good:
            if x.op in ("const", "var"):
                _check_leaf(x)
            else:
                dt, lanes = result_type(x.op, x.args, x.attr)
                if dt is not x.dtype or lanes != x.lanes:
                    raise VerifyError(f"{brief(x, 2)} says {x.dtype} x {x.lanes}, but its operands give {dt} x {lanes}")
            good.add(x)
        if x.op == "var":
            found.append(x)
        for a in x.args:
            if a not in seen:
                seen.add(a)
                stack.append(a)
    return found


# ---- kernels ---------------------------------------------------------------------------------------------------------


class _Checker:
    """The state of one verification: variables in scope, those that may change, and every name given so far."""

    def __init__(self, kernel: Kernel):
        self.kernel = kernel
        self.scope: set[Expr] = set()
        self.mutable: set[Expr] = set()
        self.names: set[str] = set()
        self.good: set[Expr] = set()
        self.buffers: set[Buffer] = set()

    def value(self, e: object, dt: DType | None = None, lanes: int | None = None, what: str = "the value") -> Expr:
        for v in check_expr(e, self.good):
            if v not in self.scope:
                raise VerifyError(f"variable {v.attr} is not defined here")
        assert isinstance(e, Expr)
        if dt is not None and e.dtype is not dt:
            raise VerifyError(f"{what} is {e.dtype}, not {dt}")
        if lanes is not None and e.lanes != lanes:
            raise VerifyError(f"{what} has {e.lanes} lanes, not {lanes}")
        return e

    def name(self, name: object, what: str) -> None:
        _check_name(name, what)
        if name in self.names:
            raise VerifyError(f"the name {name} is given twice")
        self.names.add(name)

    def define(self, v: object, dt: DType, lanes: int, what: str = "the variable") -> None:
        if not isinstance(v, Expr) or v.op != "var":
            raise VerifyError(f"{brief(v)} is not a variable")
        check_expr(v, self.good)
        if v.dtype is not dt or v.lanes != lanes:
            raise VerifyError(f"{what} {v.attr} is {v.dtype} x {v.lanes}, its value {dt} x {lanes}")
        self.name(v.attr, "variable")
        self.scope.add(v)

    def head(self) -> None:
        k = self.kernel
        _check_name(k.name, "kernel")
        for b in [*k.buffers, *k.scratch]:
            if not isinstance(b, Buffer) or not isinstance(b.dtype, DType):
                raise VerifyError(f"{b!r} is not a buffer")
            self.name(b.name, "buffer")
            self.buffers.add(b)
            roles = ("in", "out") if b in k.buffers else ("scratch",)
            if b.role not in roles:
                raise VerifyError(f"buffer {b.name} has role {b.role!r}, not {' or '.join(roles)}")
            if (b.size is None and b.role == "scratch") or (b.size is not None and (type(b.size) is not int or b.size < 1)):
                raise VerifyError(f"buffer {b.name} has size {b.size!r}")
        for v in k.ints:
            self.define(v, int64, 1, "the parameter")
        self.value(k.pieces, int64, 1, "the number of pieces")
        self.define(k.piece, int64, 1, "the piece")

    def block(self, body: object) -> None:
        """Checks the statements of a block. Variables that it defines are not known behind it."""
        if not isinstance(body, list):
            raise VerifyError(f"{body!r} is not a list of statements")
        outer = set(self.scope)
        for s in body:
            try:
                inner = self.statement(s)
            except VerifyError as e:
                raise VerifyError(f"kernel {self.kernel.name}: {describe(s)}: {e}") from None
            for b in inner:
                self.block(b)
            if isinstance(s, For):
                self.scope.discard(s.var)
        self.scope = outer

    def statement(self, s: object) -> list[list]:
        """Checks one statement; returns the blocks inside it."""
        match s:
            case Let() | Declare():
                value = self.value(s.value)
                self.define(s.var, value.dtype, value.lanes)
                if isinstance(s, Declare):
                    self.mutable.add(s.var)
            case Assign():
                if s.var not in self.mutable or s.var not in self.scope:
                    raise VerifyError(f"{brief(s.var)} is not a variable that was declared here")
                self.value(s.value, s.var.dtype, s.var.lanes)
            case Load():
                self.access(s.buffer, s.index, s.count, getattr(s.var, "lanes", 0))
                check_expr(s.var, self.good)
                if (s.other is None) != (s.count is None):
                    raise VerifyError("`count` and `other` come together")
                if s.other is not None:
                    self.value(s.other, s.buffer.dtype, what="`other`")
                if s.group > 1 and (s.count is not None or s.index.lanes > 1):
                    raise VerifyError("groups of elements are loaded from one index on, without a count")
                self.define(s.var, GROUPS[s.buffer.dtype] if s.group > 1 else s.buffer.dtype, s.var.lanes)
            case Store():
                value = self.value(s.value)
                self.access(s.buffer, s.index, s.count, value.lanes)
                self.value(value, s.buffer.dtype)
                if s.buffer.role == "in":
                    raise VerifyError(f"buffer {s.buffer.name} is read only")
            case Prefetch():
                self.access(s.buffer, s.index, None, 1)
            case External():
                self.external(s)
            case For():
                self.value(s.start, int64, 1, "the start")
                self.value(s.stop, int64, 1, "the stop")
                if type(s.step) is not int or not 1 <= s.step < 1 << 62:
                    raise VerifyError(f"the step {s.step!r} is not a positive literal")
                self.define(s.var, int64, 1, "the loop variable")
                return [s.body]
            case If():
                self.value(s.cond, bool_, 1, "the condition")
                return [s.body, s.orelse]
            case _:
                raise VerifyError("this is not a statement")
        return []

    def external(self, s: External) -> None:
        if not isinstance(s.symbol, str) or not s.symbol.isascii() or not s.symbol.isidentifier():
            raise VerifyError(f"{s.symbol!r} is no name of a C function")
        for buffer, index in s.places:
            self.access(buffer, index, None, 1)
        for n in s.shapes:
            self.value(n, int64, 1, "a number of the shapes")
        for n in s.numbers:
            if self.value(n, None, 1, "a number").dtype not in (int64, float64):
                raise VerifyError(f"the number {brief(n)} is {n.dtype}, not i64 or f64")
        self.define(s.var, int32, 1)

    def access(self, buffer: object, index: object, count: object, lanes: int) -> None:
        if buffer not in self.buffers:
            raise VerifyError(f"the buffer {getattr(buffer, 'name', buffer)} is not the kernel's")
        i = self.value(index, int64, what="the index")
        if i.lanes > lanes:
            raise VerifyError("a vector index with a scalar value")
        if count is not None:
            self.value(count, int64, 1, "the count")
            if lanes != LANES:
                raise VerifyError("`count` goes with vectors only")


def verify(kernel: Kernel) -> None:
    """Checks every rule of the kernel language.

    Variables are defined once, before use and in scope; every type follows from `OPS`; indices and counts are int64; only
    declared variables are assigned; only "out" and "scratch" buffers are stored to; names are unique; the number
    of pieces depends on the integer parameters alone; 16-bit floats are not computed in.

    Errors: VerifyError, naming the kernel and the statement.
    """
    c = _Checker(kernel)
    try:
        c.head()
    except VerifyError as e:
        raise VerifyError(f"kernel {kernel.name}: {e}") from None
    c.block(kernel.body)
