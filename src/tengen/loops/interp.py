"""What a kernel means, as plain Python: the definition that every code generator and every fast strategy is tested against.

In: a `Kernel`, flat NumPy arrays (changed in place), integers. `evaluate` gives the value of one expression, over arrays of any
length. A vector is an array whose last axis holds the lanes; a scalar has no such axis. A dtype is the NumPy dtype of the same
name (bfloat16 from ml_dtypes); bool buffers are uint8 zeros and ones, or NumPy's bool. Results are exact: each operation
rounds once, on any machine (`operations.py`). A NaN's sign and payload mean nothing.

Operations and statements become Python functions once (`Step`), which then run for each piece and iteration.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from tengen.base.dtype import bool_, float32, float64
from tengen.base.errors import IndexOutOfRange, VerifyError
from tengen.base.record import record
from tengen.loops import external
from tengen.loops.calls import expand
from tengen.loops.exact import convert, fma32
from tengen.loops.lang import LANES, LOOKUPS, Expr
from tengen.loops.operations import OF_SCALARS, function, gives_scalars
from tengen.loops.statements import Assign, Buffer, Declare, External, For, If, Kernel, Let, Load, Prefetch, Store
from tengen.loops.verify import describe, verify

Slots = list  # the values of a run, each at its number: constants, variables, results of operations, buffers
Step = Callable[[Slots], None]


def _step(f: Callable, out: int, operands: Sequence[int]) -> Step:
    """Puts f of the values of `operands` at `out`."""

    def of_none(r: Slots) -> None:
        r[out] = f()

    def of_one(r: Slots) -> None:
        r[out] = f(r[a])

    def of_two(r: Slots) -> None:
        r[out] = f(r[a], r[b])

    def of_three(r: Slots) -> None:
        r[out] = f(r[a], r[b], r[c])

    a, b, c = (*operands, 0, 0, 0)[:3]
    return (of_none, of_one, of_two, of_three)[len(operands)]


class _Expressions:
    """Expressions as steps, each of which computes one operation.

    Attributes:
        slots: what a run begins with, one value for each number. where: the numbers of the expressions that are known at this place, which
            are not computed again. steps: those of this block so far. changing: expressions that depend on a variable that was declared.
    """

    def __init__(self) -> None:
        self.slots: Slots = []
        self.where: dict[Expr, int] = {}
        self.steps: list[Step] = []
        self.changing: set[Expr] = set()
        self._brief: list[Expr] = []
        self._expanded: dict[Expr, Expr] = {}

    def slot(self, value: object = None) -> int:
        """A number of its own, for a value."""
        self.slots.append(value)
        return len(self.slots) - 1

    def put(self, f: Callable, operands: Sequence[int], out: int | None = None) -> int:
        """A step that puts f of these values at `out`, by default a number of its own."""
        out = self.slot() if out is None else out
        self.steps.append(_step(f, out, operands))
        return out

    def value(self, e: Expr) -> int:
        """The number of an expression's value, after the steps that compute it: operands before their use."""
        stack = [e]
        while stack:
            x = stack[-1]
            if x not in self.where:
                operands = (expand(x, self._expanded),) if x.op == "call" else x.args
                missing = [a for a in operands if a not in self.where]
                if missing:
                    stack.extend(missing)
                    continue
                self.where[x] = self.known(operands[0]) if x.op == "call" else self.computed(x)
                if not self.changing.isdisjoint(operands):
                    self.changing.add(x)
                    self._brief.append(x)
            stack.pop()
        return self.known(e)

    def known(self, x: Expr) -> int:
        """The number of a value that the next step reads."""
        return self.where[x]

    def forget(self) -> None:
        """Behind a statement: what depends on a declared variable may be another value in the next one."""
        for x in self._brief:
            del self.where[x]
        self._brief = []

    def computed(self, x: Expr) -> int:
        """The number of the value of an operation whose operands are known, or of a literal."""
        if x.op == "var":
            raise VerifyError(f"the variable {x.attr} has no value")
        if x.op == "const":
            src = float64 if x.dtype.is_float else x.dtype
            return self.slot(src.numpy.type(x.attr) if src is x.dtype else convert(np.array(x.attr, src.numpy), src, x.dtype)[()])
        f = function(x)
        if x.lanes > 1 or gives_scalars(x):
            return self.step(f, x.args)
        return self.step(lambda *xs: f(*xs)[()], x.args)  # a scalar, and not an array without axes

    def step(self, f: Callable, operands: Sequence[Expr]) -> int:
        """A step that puts f of these expressions, which are known, at a number of its own."""
        return self.put(f, [self.known(x) for x in operands])


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
    made = _Expressions()
    made.where = {x: made.slot(np.asarray(v).astype(x.dtype.numpy)[()]) for x, v in env.items()}
    result = made.value(e)
    with np.errstate(all="ignore"):
        for step in made.steps:
            step(made.slots)
    return made.slots[result]


# ---- kernels ----------------------------------------------------------------------------------------------------------


class TooLong(Exception):
    """A run of more statements than it was to have."""


def _full(x: np.ndarray) -> np.ndarray:
    """A vector whose equal lanes may be held as one, with each of them."""
    every = np.empty(LANES, x.dtype)
    every[:] = x
    return every


@record(slots=True)
class _Fma:
    """A vector of float32 that becomes a * b + c: the numbers of the values. narrow: which operands hold equal lanes as one."""

    out: int
    operands: tuple[int, int, int]
    narrow: tuple[bool, ...]


def _fmas(group: list[_Fma]) -> Step:
    """Several fmas, none of which reads what another one gives: NumPy takes little longer for all than for one."""
    outs, operands = [x.out for x in group], list(zip(*(x.operands for x in group)))
    shapes = [(len(group), 1 if narrow else LANES) for narrow in group[0].narrow]

    def step(r: Slots) -> None:
        values = fma32(*(np.concatenate([r[i] for i in at]).reshape(shape) for at, shape in zip(operands, shapes)))
        for out, value in zip(outs, values):
            r[out] = value

    return step


class _Kernel(_Expressions):
    """A kernel as steps, which are made once and run for each piece.

    What is known in a block is not computed again there, nor in the blocks inside, unless it depends on a variable that was declared: what
    is made of those is forgotten after each statement. Fmas of vectors wait (`waiting`) for others like them, until a step reads what one
    of them gives, or changes what one of them takes; together they read all that they take before one of them gives anything.

    Steps hold numbers of values, and never this object: it holds them, and both would stay until Python's garbage collector looks.
    """

    def __init__(self, kernel: Kernel):
        super().__init__()
        self.kernel = kernel
        self.left = self.slot()
        self.narrow: set[int] = set()  # vectors whose equal lanes are held as one
        self.waiting: list[_Fma] = []
        self.awaited: set[int] = set()  # what those that wait give
        self.memory = {b: self.slot() for b in [*kernel.buffers, *kernel.scratch]}
        self.where = {v: self.slot() for v in kernel.ints}
        self.ints, self.items = list(self.where.values()), self.value(kernel.pieces)
        self.before, self.steps = self.steps, []
        self.piece = self.where[kernel.piece] = self.slot()
        self.body = self.block(kernel.body)

    def run(self, arrays: Arrays, ints: Ints, pieces: Iterable[int] | None, most: int | None) -> None:
        """Runs the kernel once, as `interpret` says."""
        r = self.slots.copy()
        for b, a in zip(self.kernel.buffers, _arrays(self.kernel, arrays)):
            r[self.memory[b]] = a
        for at, n in zip(self.ints, _numbers(self.kernel, ints)):
            r[at] = n
        r[self.left] = math.inf if most is None else most
        for step in self.before:
            step(r)
        n = int(r[self.items])
        for piece in range(n) if pieces is None else pieces:
            if not 0 <= piece < n:
                raise VerifyError(f"kernel {self.kernel.name}: piece {piece} of {n}")
            for b in self.kernel.scratch:
                r[self.memory[b]] = _undefined(b)
            r[self.piece] = np.int64(piece)
            for step in self.body:
                step(r)

    # ---- expressions

    def known(self, x: Expr) -> int:
        at = self.where[x]
        if at in self.awaited:
            self.flush()
        return at

    def computed(self, x: Expr) -> int:
        at = super().computed(x) if x.lanes > 1 or x.op not in OF_SCALARS else self.step(OF_SCALARS[x.op], x.args)
        vectors = [self.where[a] for a in x.args if a.lanes > 1]
        if x.op == "splat" or (x.lanes > 1 and x.op not in ("shuffle", *LOOKUPS) and vectors and self.narrow.issuperset(vectors)):
            self.narrow.add(at)
        return at

    def vector(self, e: Expr) -> int:
        """The number of a value, of which a vector has each of its lanes."""
        at = self.value(e)
        return self.put(_full, (at,)) if at in self.narrow else at

    def flush(self) -> None:
        """Computes what waits."""
        if self.waiting:
            self.steps.append(_fmas(self.waiting))
            self.waiting, self.awaited = [], set()

    # ---- statements

    def block(self, body: Sequence) -> list[Step]:
        """The steps of a block. What is known in it is not known behind it."""
        outer = self.where, self.steps
        self.where, self.steps = dict(self.where), []
        self.steps.append(self.counted(len(body) + 1))
        for s in body:
            self.statement(s)
            self.forget()
        self.flush()
        steps = self.steps
        self.where, self.steps = outer
        return steps

    def counted(self, n: int) -> Step:
        left, name = self.left, self.kernel.name

        def step(r: Slots) -> None:
            r[left] -= n
            if r[left] < 0:
                raise TooLong(f"kernel {name} runs more statements than it may")

        return step

    def statement(self, s: object) -> None:
        match s:
            case Let():
                self.where[s.var] = self.assigned(s.value)
            case Declare():
                self.changing.add(s.var)
                self.where[s.var] = self.assigned(s.value, self.slot())
            case Assign():
                self.assigned(s.value, self.where[s.var])
            case Load():
                self.where[s.var] = self.load_group(s) if s.group > 1 else self.load(s)
            case Store():
                self.store(s)
            case Prefetch():
                pass
            case External():
                self.external(s)
            case For():
                self.loop(s)
            case If():
                self.branch(s)

    def assigned(self, e: Expr, out: int | None = None) -> int:
        """Puts a value at `out`, or at a number that no step changes later."""
        waits = e.op == "fma" and e.dtype is float32 and e.lanes > 1 and e not in self.where
        operands = tuple(self.value(x) for x in e.args) if waits else ()
        if waits and not self.narrow.issuperset(operands):
            narrow = tuple(at in self.narrow for at in operands)
            out = self.slot() if out is None else out
            if any(narrow != f.narrow for f in self.waiting):
                self.flush()
            self.waiting.append(_Fma(out, operands, narrow))
            self.awaited.add(out)
            return out
        at = self.value(e) if out is None else self.vector(e)
        if out is None and not (e.op == "var" and e in self.changing):
            return at
        if out in self.awaited or any(out in f.operands for f in self.waiting):
            self.flush()
        return self.put(lambda x: x, (at,), out)

    def loop(self, s: For) -> None:
        start, stop = self.value(s.start), self.value(s.stop)
        self.flush()
        self.forget()
        var = self.where[s.var] = self.slot()
        body = self.block(s.body)
        del self.where[s.var]

        def step(r: Slots) -> None:
            for i in range(int(r[start]), int(r[stop]), s.step):
                r[var] = np.int64(i)
                for inner in body:
                    inner(r)

        self.steps.append(step)

    def branch(self, s: If) -> None:
        cond = self.value(s.cond)
        self.flush()
        self.forget()
        body, orelse = self.block(s.body), self.block(s.orelse)

        def step(r: Slots) -> None:
            for inner in body if r[cond] else orelse:
                inner(r)

        self.steps.append(step)

    def external(self, s: External) -> None:
        places = [(self.memory[buffer], self.value(index)) for buffer, index in s.places]
        shapes, numbers = [self.value(n) for n in s.shapes], [self.value(n) for n in s.numbers]
        out = self.where[s.var] = self.slot()

        def step(r: Slots) -> None:
            addresses = [r[m].ctypes.data + int(r[i]) * r[m].itemsize for m, i in places]
            extents = np.array([r[n] for n in shapes], np.int64)
            r[out] = np.int32(external.call(s.symbol, [*addresses, extents.ctypes.data], [r[n].item() for n in numbers]))

        self.steps.append(step)

    # ---- memory

    def places(self, s: Load | Store, lanes: int) -> Callable[[Slots], int | slice | np.ndarray]:
        """From the values to what is touched: one index, those in a row, or those of a vector; checked against the buffer's size."""
        index, memory = self.vector(s.index), self.memory[s.buffer]
        count, outside = None if s.count is None else self.value(s.count), self.outside(s)

        def one(r: Slots) -> int:
            i = r[index]
            if not 0 <= i < r[memory].size:
                outside(r, i)
            return int(i)

        def row(r: Slots) -> slice:
            i, n = int(r[index]), LANES if count is None else min(max(int(r[count]), 0), LANES)
            size = r[memory].size
            if n and not 0 <= i <= size - n:
                outside(r, i if i < 0 else max(i, size))
            return slice(i, i + n) if n else slice(0, 0)

        def each(r: Slots) -> np.ndarray:
            at = r[index] if count is None else r[index][: min(max(int(r[count]), 0), LANES)]
            size = r[memory].size
            if len(at) and (at.min() < 0 or at.max() >= size):
                outside(r, at[(at < 0) | (at >= size)][0])
            return at

        return one if lanes == 1 else row if s.index.lanes == 1 else each

    def outside(self, s: Load | Store) -> Callable[[Slots, int], None]:
        """What raises the error for an index that is outside of the buffer of a load or store."""
        name, piece, memory = self.kernel.name, self.piece, self.memory[s.buffer]

        def fail(r: Slots, index: int) -> None:
            raise IndexOutOfRange(
                f"kernel {name}, piece {r[piece]}: {describe(s)}: index {index} is outside buffer "
                f"{s.buffer.name} of {r[memory].size} elements"
            )

        return fail

    def load(self, s: Load) -> int:
        places, memory, out = self.places(s, s.var.lanes), self.memory[s.buffer], self.slot()
        other = 0 if s.other is None else self.value(s.other)
        flags, whole = s.buffer.dtype is bool_, s.var.lanes == 1 or s.count is None

        def step(r: Slots) -> None:
            at = places(r)
            got = r[memory][at]
            if flags:
                got = got != 0
            elif type(at) is slice:
                got = got.copy()  # what is stored later does not change it
            if not whole and len(got) < LANES:
                every = np.empty(LANES, got.dtype)
                every[:] = r[other]
                every[: len(got)] = got
                got = every
            r[out] = got

        self.steps.append(step)
        return out

    def load_group(self, s: Load) -> int:
        index, memory, out = self.value(s.index), self.memory[s.buffer], self.slot()
        bits, dtype, n = s.buffer.dtype.bits, s.var.dtype.numpy, s.group * s.var.lanes
        outside = self.outside(s)

        def step(r: Slots) -> None:
            first, size = int(r[index]), r[memory].size
            if first < 0 or first + n > size:
                outside(r, min(first, size) if first < 0 else max(first, size))
            parts = r[memory][first : first + n].view(f"u{bits // 8}").astype(dtype).reshape(-1, s.group)
            got = np.bitwise_or.reduce(parts << np.arange(0, s.group * bits, bits, dtype), axis=1)
            r[out] = got if s.var.lanes > 1 else got[0]

        self.steps.append(step)
        return out

    def store(self, s: Store) -> None:
        value, places, memory = self.vector(s.value), self.places(s, s.value.lanes), self.memory[s.buffer]

        def one(r: Slots) -> None:
            at = places(r)
            r[memory][at] = r[value]

        def row(r: Slots) -> None:
            at = places(r)
            r[memory][at] = r[value][: at.stop - at.start]

        def each(r: Slots) -> None:
            for p, v in zip(places(r), r[value]):  # in lane order, so the last of equal indices stays
                r[memory][p] = v

        self.steps.append(one if s.value.lanes == 1 else row if s.index.lanes == 1 else each)


Arrays = Mapping[str, np.ndarray] | Sequence[np.ndarray]
Ints = Mapping[str, int] | Sequence[int]


def _arrays(kernel: Kernel, given: Arrays) -> list[np.ndarray]:
    """The memory of each buffer, checked."""
    names = [b.name for b in kernel.buffers]
    table = given if isinstance(given, Mapping) else dict(zip(names, given, strict=True))
    if set(table) != set(names):
        raise VerifyError(f"kernel {kernel.name} has the buffers {names}, got {list(table)}")
    for b in kernel.buffers:
        a = table[b.name]
        fits = a.dtype in (np.uint8, np.bool_) if b.dtype is bool_ else a.dtype == b.dtype.numpy
        if a.ndim != 1 or not fits:
            raise VerifyError(f"kernel {kernel.name}: buffer {b.name} is a flat array of {b.dtype}, got {a.dtype}, {a.ndim}-d")
    return [table[name] for name in names]


def _numbers(kernel: Kernel, given: Ints) -> list[np.int64]:
    """The value of each integer parameter, checked."""
    params = [str(v.attr) for v in kernel.ints]
    values = given if isinstance(given, Mapping) else dict(zip(params, given, strict=True))
    if set(values) != set(params):
        raise VerifyError(f"kernel {kernel.name} has the parameters {params}, got {list(values)}")
    return [np.int64(values[name]) for name in params]


def _undefined(b: Buffer) -> np.ndarray:
    """What scratch memory holds at the start of a piece: values that show when they are used."""
    fill = {"f": np.nan, "b": 1}.get(b.dtype.kind, 0x55)
    return np.full(b.size or 0, fill, b.dtype.numpy)


def interpreter(kernel: Kernel) -> Callable[..., None]:
    """A function that runs a kernel as `interpret` does, with the same arguments but the first: for a kernel that runs several times.

    Errors: VerifyError for a kernel that breaks the language's rules.
    """
    verify(kernel)
    with np.errstate(all="ignore"):
        code = _Kernel(kernel)

    def run(arrays: Arrays, ints: Ints = (), pieces: Iterable[int] | None = None, most: int | None = None) -> None:
        with np.errstate(all="ignore"):
            code.run(arrays, ints, pieces, most)

    return run


def interpret(
    kernel: Kernel, arrays: Arrays, ints: Ints = (), pieces: Iterable[int] | None = None, most: int | None = None
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
    interpreter(kernel)(arrays, ints, pieces, most)
