"""What a kernel means, as plain Python: the definition that every code generator and every fast strategy is tested against.

In: a `Kernel`, flat NumPy arrays (changed in place), integers. `evaluate` gives the value of one expression, over arrays of any
length. A vector is an array whose last axis holds the lanes; a scalar has no such axis. A dtype is the NumPy dtype of the same
name (bfloat16 from ml_dtypes); bool buffers are uint8 zeros and ones, or NumPy's bool. Results are exact: each operation
rounds once, on any machine (`exact.py`). A NaN's sign and payload mean nothing.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

import numpy as np

from tengen.base.dtype import DType, bool_, float32, float64
from tengen.base.errors import IndexOutOfRange, VerifyError
from tengen.loops import external
from tengen.loops.calls import expand
from tengen.loops.exact import convert, dot2, dot2i, dot4, floor_division, fma32, fma64, index_division, shift_left, shift_right
from tengen.loops.lang import LANES, OPS, Expr
from tengen.loops.statements import Assign, Buffer, Declare, External, For, If, Kernel, Let, Load, Prefetch, Store
from tengen.loops.verify import describe, verify

# ---- operations -------------------------------------------------------------------------------------------------------


def _beats(compare):
    return lambda a, b: np.where((a != a) | compare(a, b), a, b)


_FUNCTIONS: dict[str, Callable] = {
    # fmt: off
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": np.divide,
    "floordiv": lambda a, b: floor_division(a, b, False), "floormod": lambda a, b: floor_division(a, b, True),
    "quo": lambda a, b: index_division(a, b, False), "rem": lambda a, b: index_division(a, b, True),
    "min": _beats(operator.lt), "max": _beats(operator.gt),
    "neg": np.negative, "abs": np.abs, "sqrt": np.sqrt,
    "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc, "rint": np.rint,
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor, "not": np.invert,
    "shl": shift_left, "shr": shift_right,
    "eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge,
    "fma": lambda a, b, c: fma32(a, b, c) if a.dtype == np.float32 else fma64(a, b, c),
    # fmt: on
}


def _lanes(x) -> np.ndarray:
    """All lanes of a vector, of which equal ones may be held as one."""
    x = np.asarray(x)
    return np.broadcast_to(x, (*x.shape[:-1], LANES)) if x.shape[-1] == 1 else x


def _plain(op: str, dt: DType) -> Callable:
    """An op of `OPS` on operands of dtype `dt`. 16-bit floats are computed in float32 and rounded once."""
    f = _FUNCTIONS[op]
    if dt.kind != "f" or dt.bits != 16:
        return f
    if OPS[op][2] == "bool":
        return lambda *xs: f(*(np.asarray(x).astype(np.float32) for x in xs))
    return lambda *xs: convert(f(*(np.asarray(x).astype(np.float32) for x in xs)), float32, dt)


def _fold(f: Callable) -> Callable:
    def tree(x):
        x, half = _lanes(x), LANES // 2
        if x.shape[-1] != LANES:
            raise VerifyError(f"fold of {x.shape[-1]} lanes")
        while half:
            x = np.asarray(f(x[..., :half], x[..., half : 2 * half]))
            half //= 2
        return x[..., 0]

    return tree


def _interleave(half: slice) -> Callable:
    def join(a, b):
        a, b = np.broadcast_arrays(_lanes(a)[..., half], _lanes(b)[..., half])
        return np.stack((a, b), -1).reshape(*a.shape[:-1], LANES)

    return join


def _function(e: Expr) -> Callable:
    """The function from the values of `e`'s operands to its value."""
    if e.op in OPS:
        return _plain(e.op, e.args[0].dtype)
    match e.op:
        case "select":
            return np.where
        case "dot2":
            return dot2
        case "dot2i":
            return dot2i
        case "dot4i" | "dot4u":
            return partial(dot4, signed=e.op == "dot4i")
        case "cast":
            return lambda x: convert(x, e.args[0].dtype, e.dtype)
        case "bitcast":
            return lambda x: np.asarray(x).view(e.dtype.numpy)
        case "splat":
            return lambda x: np.asarray(x)[..., None]
        case "ramp":
            return lambda: np.arange(LANES, dtype=np.int64)
        case "lane":
            return lambda x: _lanes(x)[..., e.attr]
        case "interleave":
            return _interleave(slice(0, LANES // 2) if e.attr == "low" else slice(LANES // 2, LANES))
        case "fold":
            return _fold(_plain(str(e.attr), e.dtype))
    raise VerifyError(f"{e.op} has no value")


class _Plan:
    """An expression as a list of steps over numbered slots: leaves first, every operand before its use."""

    def __init__(self, e: Expr, known: Iterable[Expr] = ()):
        known = set(known)
        if _has_call(e, known):
            e = expand(e)
        slots: dict[Expr, int] = {}
        self.values: list = []
        self.free: list[tuple[int, Expr]] = []
        self.steps: list[tuple[int, Callable, Callable]] = []  # (where the value goes, what computes it, what gives its operands)
        stack = [e]
        while stack:
            x = stack[-1]
            leaf = x in known or x.op in ("var", "const")
            todo = [] if leaf else [a for a in x.args if a not in slots]
            if todo and x not in slots:
                stack.extend(todo)
                continue
            stack.pop()
            if x in slots:
                continue
            slots[x] = len(self.values)
            self.values.append(None)
            if x in known or x.op == "var":
                self.free.append((slots[x], x))
            elif x.op == "const":
                src = float64 if x.dtype.is_float else x.dtype
                self.values[-1] = convert(np.array(x.attr, src.numpy), src, x.dtype)[()] if src is not x.dtype else (
                    src.numpy.type(x.attr))  # fmt: skip
            else:
                at = [slots[a] for a in x.args]
                of = operator.itemgetter(*at) if len(at) > 1 else operator.itemgetter(slice(at[0], at[0] + 1) if at else slice(0))
                self.steps.append((slots[x], _function(x), of))
        self.result = slots[e]

    def run(self, env: Mapping[Expr, object]):
        """The value for these values of the free variables."""
        values = self.values.copy()
        for i, x in self.free:
            values[i] = env[x]
        for i, f, operands in self.steps:
            r = f(*operands(values))
            values[i] = r[()] if type(r) is np.ndarray and r.ndim == 0 else r
        return values[self.result]


def _has_call(e: Expr, known: set[Expr]) -> bool:
    seen, stack = set(known), [e]
    while stack:
        x = stack.pop()
        if x not in seen:
            if x.op == "call":
                return True
            seen.add(x)
            stack.extend(x.args)
    return False


def evaluate(e: Expr, env: Mapping[Expr, object] | None = None):
    """The value of an expression where variables have the given values.

    Args:
        env: for each variable (or any other sub-expression that is to be taken as known) a number or an array of any shape;
            arrays are broadcast, so thousands of points are evaluated at once.
    Returns: a NumPy scalar or array of `e`'s dtype.
    Errors: VerifyError for a variable that has no value.

    >>> from tengen.loops.lang import var
    >>> x = var("x", float32)
    >>> evaluate(x * x + 1.0, {x: [1.0, 2.0, 3.0]})
    array([ 2.,  5., 10.], dtype=float32)
    """
    env = env or {}
    plan = _Plan(e, env)
    for _, x in plan.free:
        if x not in env:
            raise VerifyError(f"the variable {x.attr} has no value")
    with np.errstate(all="ignore"):
        return plan.run({x: np.asarray(v).astype(x.dtype.numpy)[()] for x, v in env.items()})


# ---- kernels ----------------------------------------------------------------------------------------------------------


class TooLong(Exception):
    """A run of more statements than it was to have."""


class _Machine:
    """One run of a kernel: memory, the values of variables, and the plans of the expressions met so far."""

    def __init__(self, kernel: Kernel, memory: dict[Buffer, np.ndarray], env: dict[Expr, object], most: int | None = None):
        self.kernel, self.memory, self.env, self.left = kernel, memory, env, most
        self.plans: dict[Expr, _Plan] = {}

    def value(self, e: Expr, lanes: int = 1):
        if e.op == "var":
            return self.env[e]
        plan = self.plans.get(e)
        if plan is None:
            plan = self.plans[e] = _Plan(e)
        v = plan.run(self.env)
        if e.lanes == 1 or v.shape == (LANES,):
            return v
        every = np.empty(LANES, v.dtype)
        every[:] = v
        return every

    def block(self, body: list) -> None:
        if self.left is not None:
            self.left -= len(body) + 1
            if self.left < 0:
                raise TooLong(f"kernel {self.kernel.name} runs more statements than it may")
        for s in body:
            match s:
                case Let() | Declare() | Assign():
                    self.env[s.var] = self.value(s.value)
                case Load():
                    self.env[s.var] = self.load(s)
                case Store():
                    self.store(s)
                case Prefetch():
                    pass
                case External():
                    self.external(s)
                case For():
                    for i in range(int(self.value(s.start)), int(self.value(s.stop)), s.step):
                        self.env[s.var] = np.int64(i)
                        self.block(s.body)
                case If():
                    self.block(s.body if self.value(s.cond) else s.orelse)

    def external(self, s: External) -> None:
        addresses = []
        for buffer, index in s.places:
            a, i = self.memory[buffer], int(self.value(index))
            addresses.append(a.ctypes.data + i * a.itemsize)
        shapes = np.array([self.value(n) for n in s.shapes], np.int64)
        code = external.call(s.symbol, [*addresses, shapes.ctypes.data], [self.value(n).item() for n in s.numbers])
        self.env[s.var] = np.int32(code)

    def places(self, s: Load | Store, lanes: int) -> int | slice | np.ndarray:
        """What is touched: one index, those in a row, or those of a vector; checked against the buffer's size."""
        index = self.value(s.index)
        size = self.memory[s.buffer].size
        if lanes == 1:
            if not 0 <= index < size:
                self.out_of_range(s, index, size)
            return int(index)
        n = LANES if s.count is None else min(max(int(self.value(s.count)), 0), LANES)
        if s.index.lanes == 1:
            first = int(index)
            if n and not 0 <= first <= size - n:
                self.out_of_range(s, first if first < 0 else max(first, size), size)
            return slice(first, first + n) if n else slice(0, 0)
        places = index[:n]
        if n and (places.min() < 0 or places.max() >= size):
            self.out_of_range(s, places[(places < 0) | (places >= size)][0], size)
        return places

    def out_of_range(self, s: Load | Store, index, size: int):
        raise IndexOutOfRange(
            f"kernel {self.kernel.name}, piece {self.env[self.kernel.piece]}: {describe(s)}: index {index} is outside buffer "
            f"{s.buffer.name} of {size} elements"
        )

    def load(self, s: Load):
        if s.group > 1:
            return self.load_group(s)
        places = self.places(s, s.var.lanes)
        got = self.memory[s.buffer][places]
        if s.buffer.dtype is bool_:
            got = got != 0
        elif type(places) is slice:
            got = got.copy()  # what is stored later does not change it
        if s.var.lanes == 1 or len(got) == LANES:
            return got
        assert s.other is not None
        r = np.array(np.broadcast_to(self.value(s.other), (LANES,)))
        r[: len(got)] = got
        return r

    def load_group(self, s: Load):
        first, size, n = int(self.value(s.index)), self.memory[s.buffer].size, s.group * s.var.lanes
        if first < 0 or first + n > size:
            self.out_of_range(s, min(first, size) if first < 0 else max(first, size), size)
        bits, dtype = s.buffer.dtype.bits, s.var.dtype.numpy
        parts = self.memory[s.buffer][first : first + n].view(f"u{bits // 8}").astype(dtype).reshape(-1, s.group)
        got = np.bitwise_or.reduce(parts << np.arange(0, s.group * bits, bits, dtype), axis=1)
        return got if s.var.lanes > 1 else got[0]

    def store(self, s: Store) -> None:
        value = self.value(s.value)
        places = self.places(s, s.value.lanes)
        if s.value.lanes == 1:
            self.memory[s.buffer][places] = value
            return
        if isinstance(places, slice):
            self.memory[s.buffer][places] = value[: places.stop - places.start]
            return
        for p, v in zip(places, value):  # in lane order, so the last of equal indices stays
            self.memory[s.buffer][p] = v


def _bind(kernel: Kernel, arrays, ints) -> tuple[dict[Buffer, np.ndarray], dict[Expr, object]]:
    names = [b.name for b in kernel.buffers]
    table = arrays if isinstance(arrays, Mapping) else dict(zip(names, arrays, strict=True))
    if set(table) != set(names):
        raise VerifyError(f"kernel {kernel.name} has the buffers {names}, got {list(table)}")
    memory = {}
    for b in kernel.buffers:
        a = table[b.name]
        fits = a.dtype in (np.uint8, np.bool_) if b.dtype is bool_ else a.dtype == b.dtype.numpy
        if a.ndim != 1 or not fits:
            raise VerifyError(f"kernel {kernel.name}: buffer {b.name} is a flat array of {b.dtype}, got {a.dtype}, {a.ndim}-d")
        memory[b] = a
    params = [str(v.attr) for v in kernel.ints]
    values = ints if isinstance(ints, Mapping) else dict(zip(params, ints, strict=True))
    if set(values) != set(params):
        raise VerifyError(f"kernel {kernel.name} has the parameters {params}, got {list(values)}")
    return memory, {v: np.int64(values[str(v.attr)]) for v in kernel.ints}


def _undefined(b: Buffer) -> np.ndarray:
    """What scratch memory holds at the start of a piece: values that show when they are used."""
    fill = {"f": np.nan, "b": 1}.get(b.dtype.kind, 0x55)
    return np.full(b.size or 0, fill, b.dtype.numpy)


def interpret(
    kernel: Kernel,
    arrays: Mapping[str, np.ndarray] | Sequence[np.ndarray],
    ints: Mapping[str, int] | Sequence[int] = (),
    pieces: Iterable[int] | None = None,
    most: int | None = None,
) -> None:
    """Runs a kernel on flat arrays, in place.

    Args:
        arrays: one 1-d array per buffer of `kernel.buffers`, by name or in order, of the buffer's dtype (bool: uint8 or bool).
        ints: the integer parameters, by name or in order.
        pieces: which pieces to run, in this order; default: all of them, from the first. most: statements at most, about; None:
            any.
    Errors: VerifyError for a kernel that breaks the language's rules or arrays that do not fit it; IndexOutOfRange, naming
        kernel, piece, statement, buffer and index, for an access outside a buffer; `TooLong`.
    """
    verify(kernel)
    memory, env = _bind(kernel, arrays, ints)
    machine = _Machine(kernel, memory, env, most)
    with np.errstate(all="ignore"):
        n = int(machine.value(kernel.pieces))
        for piece in range(n) if pieces is None else pieces:
            if not 0 <= piece < n:
                raise VerifyError(f"kernel {kernel.name}: piece {piece} of {n}")
            memory.update({b: _undefined(b) for b in kernel.scratch})
            env[kernel.piece] = np.int64(piece)
            machine.block(kernel.body)
