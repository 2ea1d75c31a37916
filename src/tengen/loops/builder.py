"""How kernels are written: Python control flow that records the kernel language.

    k = Builder("scale")
    x, y = k.input("x", float32), k.output("y", float32)
    n = k.int("n")
    k.split(cdiv(n, 1024))                      # independent pieces; k.piece is the number of one
    with k.loop(k.piece * 1024, minimum(n, k.piece * 1024 + 1024)) as i:
        k.store(y, i, k.load(x, i) * 2.0)
    kernel = k.build()
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence

from tengen.base.dtype import DType, int32, int64
from tengen.base.errors import VerifyError
from tengen.loops.calls import expand
from tengen.loops.lang import GROUPS, LANES, QUAD, Expr, Index, const, is_const, shuffle, splat, var
from tengen.loops.rewriting import map_expr, rebuild
from tengen.loops.statements import Assign, Buffer, Declare, External, For, If, Kernel, Let, Load, Prefetch, Store


def as_expr(i: Index) -> Expr:
    """An index as an expression."""
    return i if isinstance(i, Expr) else const(i)


MOST_SCRATCH_BYTES = 1 << 20  # of a kernel, at most


class Variable:
    """A mutable variable of a kernel: `v.value` reads it where the statement runs, `v.set(e)` assigns."""

    __slots__ = ("_builder", "value")

    def __init__(self, builder: Builder, value: Expr):
        self._builder, self.value = builder, value

    def set(self, value) -> None:
        if not isinstance(value, Expr):
            value = const(value, self.value.dtype)
        self._builder.emit(Assign(self.value, splat(value) if self.value.lanes > 1 else value))


class Builder:
    """Records one kernel."""

    def __init__(self, name: str):
        self.name = name
        self.buffers: list[Buffer] = []
        self.scratches: list[Buffer] = []
        self.ints: list[Expr] = []
        self.piece = var("piece")
        self.pieces: Expr = const(1)
        self._names: dict[str, int] = {"piece": 1}
        self._body: list = []
        self._stack: list[list] = [self._body]
        self._decided: tuple[list | None, int, bool] = (None, 0, False)  # the last if_ whose condition was known

    def emit(self, stmt) -> None:
        self._stack[-1].append(stmt)

    def fresh(self, hint: str) -> str:
        """A name that no other variable, buffer or parameter of the kernel has."""
        n = self._names.get(hint, 0)
        self._names[hint] = n + 1
        name = f"{hint}{n}" if n else hint
        if n and name in self._names:
            return self.fresh(hint)
        self._names.setdefault(name, 1)
        return name

    # parameters
    def input(self, name: str, dt: DType) -> Buffer:
        return self._buffer(Buffer(self.fresh(name), dt, "in"), self.buffers)

    def output(self, name: str, dt: DType) -> Buffer:
        return self._buffer(Buffer(self.fresh(name), dt, "out"), self.buffers)

    def scratch(self, name: str, dt: DType, size: int) -> Buffer:
        """Memory that belongs to one piece, on the stack of the thread that runs it. A kernel should have at most 64 KiB of it.

        Errors: VerifyError where it is more than 1 MiB in sum, which a stack may not hold.
        """
        b = self._buffer(Buffer(self.fresh(name), dt, "scratch", size), self.scratches)
        if (total := sum((x.size or 0) * x.dtype.size for x in self.scratches)) > MOST_SCRATCH_BYTES:
            raise VerifyError(
                f"kernel {self.name}: {total} bytes of scratch memory with {name!r}, more than {MOST_SCRATCH_BYTES}; "
                "help: take a temporary"
            )
        return b

    def _buffer(self, b: Buffer, where: list[Buffer]) -> Buffer:
        where.append(b)
        return b

    def int(self, name: str) -> Expr:
        """An int64 parameter."""
        v = var(self.fresh(name))
        self.ints.append(v)
        return v

    def split(self, pieces: Index) -> Expr:
        """Declares how many independent pieces there are, as an expression over the int parameters."""
        self.pieces = as_expr(pieces)
        return self.piece

    # statements
    def let(self, value: Expr, name: str = "t") -> Expr:
        """A variable that holds the value, computed here. Literals and variables are returned as they are."""
        if value.op in ("const", "var", "splat") and not (value.op == "splat" and value.args[0].op not in ("const", "var")):
            return value
        v = var(self.fresh(name), value.dtype, value.lanes)
        self.emit(Let(v, value))
        return v

    def abreast(self, makers: Sequence[Callable[[], Expr]]) -> list[Expr]:
        """The values that these functions write the statements for. Where all write statements of the same kinds, the
        statements are interleaved: the first one of each, then the second one of each. While one of them waits for its
        operands, a processor then finds others to execute, even if it does not look far ahead."""
        values, bodies = [], []
        for make in makers:
            self._stack.append([])
            values.append(make())
            bodies.append(self._stack.pop())
        same_kinds = len({tuple(type(s) for s in body) for body in bodies}) == 1
        for stmts in zip(*bodies) if same_kinds else ((s,) for body in bodies for s in body):
            if len(stmts) > 1 and isinstance(stmts[0], Let):
                self._lets(stmts)
            else:
                self._stack[-1].extend(stmts)
        return values

    def _lets(self, stmts: Sequence[Let]) -> None:
        """Writes several values. Where their expressions have the same operations, these are interleaved: the first operation
        of each value, then the second one of each."""
        found: list[dict[Expr, int]] = []  # for each value its subexpressions, operands first, and their numbers
        for s in stmts:
            seen: dict[Expr, int] = {}
            map_expr(expand(s.value), lambda e, _, seen=seen: len(seen), seen)
            found.append(seen)
        shapes = [[(e.op, e.attr if e.args else None, *(seen[a] for a in e.args)) for e in seen] for seen in found]
        if any(shape != shapes[0] for shape in shapes):
            return self._stack[-1].extend(stmts)
        made: list[Sequence[Expr]] = []
        for es in zip(*found):
            if not es[0].args or len(set(es)) == 1:
                made.append(es)
                continue
            args = [[made[seen[a]][i] for a in e.args] for i, (e, seen) in enumerate(zip(es, found))]
            made.append([self.let(rebuild(e, tuple(own))) for e, own in zip(es, args)])
        for s, value in zip(stmts, made[-1]):
            self.emit(Let(s.var, value))

    def transpose(self, rows: Sequence[Expr]) -> list[Expr]:
        """The columns of LANES vectors: lane j of row i becomes lane i of column j. In a square of quads by quads (four lanes of
        four rows) the quads change places, then each is transposed: no lane leaves its quad but with all of it, which registers
        of 16 bytes, and parts of longer ones, do in one instruction."""
        quads = [self.transpose_quads(rows[i::QUAD]) for i in range(QUAD)]
        return [column for some in zip(*quads) for column in self.transpose_within_quads(some)]

    def transpose_within_quads(self, rows: Sequence[Expr]) -> list[Expr]:
        """Of four vectors, each quad transposed: lane 4 q + j of row i becomes lane 4 q + i of vector j."""
        a, b, c, d = rows
        evens, odds = ([self.let(shuffle(x, *pair)) for x in ("low_of_quads", "high_of_quads")] for pair in ((a, c), (b, d)))
        return [self.let(shuffle(x, *pair)) for pair in zip(evens, odds) for x in ("low_of_quads", "high_of_quads")]

    def transpose_quads(self, rows: Sequence[Expr]) -> list[Expr]:
        """The columns of four vectors of four quads: quad j of row i becomes quad i of column j."""
        a, b, c, d = rows
        evens, odds = ([self.let(shuffle(x, *pair)) for pair in ((a, b), (c, d))] for x in ("even_quads", "odd_quads"))
        return [self.let(shuffle(x, *pair)) for x in ("even_quads", "odd_quads") for pair in (evens, odds)]

    def load(self, buffer: Buffer, index: Index, lanes: int = 1, count: Index | None = None, other=0, name: str = "v") -> Expr:
        """buffer[index]; `lanes=LANES`, or a vector index, gives a vector. See `statements.Load`."""
        index = as_expr(index)
        lanes = max(lanes, index.lanes)
        v = var(self.fresh(name), buffer.dtype, lanes)
        if count is not None and is_const(count, LANES):
            count = None
        fill = None
        if count is not None:
            fill = other if isinstance(other, Expr) else const(other, buffer.dtype)
        self.emit(Load(v, buffer, index, None if count is None else as_expr(count), fill))
        return v

    def load_group(self, buffer: Buffer, index: Index, lanes: int = 1, name: str = "v") -> Expr:
        """Groups of elements from buffer[index] on, one in each lane, as the dtype of `lang.GROUPS`. See `statements.Load`."""
        v = var(self.fresh(name), GROUPS[buffer.dtype], lanes)
        self.emit(Load(v, buffer, as_expr(index)))
        return v

    def store(self, buffer: Buffer, index: Index, value: Expr, count: Index | None = None, stream: bool = False) -> None:
        """buffer[index] = value. See `statements.Store`."""
        index = as_expr(index)
        if value.dtype is not buffer.dtype:
            raise VerifyError(f"{self.name}: store of {value.dtype} into {buffer.name} of {buffer.dtype}")
        if index.lanes > 1:
            value = splat(value)
        if count is not None and is_const(count, LANES):
            count = None
        self.emit(Store(buffer, index, value, None if count is None else as_expr(count), stream))

    def prefetch(self, buffer: Buffer, index: Index) -> None:
        """Says that buffer[index] will be read soon. See `statements.Prefetch`."""
        self.emit(Prefetch(buffer, as_expr(index)))

    def external(
        self, symbol: str, places: Sequence[tuple[Buffer, Index]], shapes: Sequence[Index], numbers: Sequence[Expr], name: str = "code"
    ) -> Expr:  # fmt: skip
        """What a C function returns. See `statements.External`."""
        v = var(self.fresh(name), int32)
        at = tuple((b, as_expr(i)) for b, i in places)
        self.emit(External(v, symbol, at, tuple(map(as_expr, shapes)), tuple(numbers)))
        return v

    def var(self, value, dt: DType = int64, name: str = "m") -> Variable:
        """A mutable variable."""
        value = value if isinstance(value, Expr) else const(value, dt)
        v = var(self.fresh(name), value.dtype, value.lanes)
        self.emit(Declare(v, value))
        return Variable(self, v)

    @contextlib.contextmanager
    def loop(self, start: Index, stop: Index, step: int = 1, name: str = "i"):
        """for i in range(start, stop, step)."""
        stmt = For(var(self.fresh(name)), as_expr(start), as_expr(stop), step)
        self.emit(stmt)
        self._stack.append(stmt.body)
        yield stmt.var
        self._stack.pop()

    @contextlib.contextmanager
    def if_(self, cond: Expr):
        """Runs the block when `cond` holds."""
        if is_const(cond):
            self._stack.append(self._stack[-1] if cond.attr else [])
            yield
            self._stack.pop()
            self._decided = (self._stack[-1], len(self._stack[-1]), bool(cond.attr))
            return
        stmt = If(cond)
        self.emit(stmt)
        self._stack.append(stmt.body)
        yield
        self._stack.pop()

    @contextlib.contextmanager
    def else_(self):
        """The other branch of the `if_` just above."""
        body, n, held = self._decided
        if body is self._stack[-1] and n == len(body):  # the condition was known: nothing stands here
            self._stack.append([] if held else body)
            yield
            self._stack.pop()
            return
        stmt = self._stack[-1][-1]
        if not isinstance(stmt, If) or stmt.orelse:
            raise VerifyError(f"{self.name}: else_ must follow if_ directly")
        self._stack.append(stmt.orelse)
        yield
        self._stack.pop()

    def vector_loop(self, start: Index, stop: Index, name: str = "i", several: int = 1):
        """``for i, count in k.vector_loop(a, b)``, where a <= b: the body is written twice, for whole vectors (count None) and for the
        rest, in which `count` lanes exist. several: whole vectors of an iteration, before those that are left over go one by one."""
        start, stop = as_expr(start), as_expr(stop)
        if several > 1:
            step, first = several * LANES, start
            start = self.let(first + (stop - first) // step * step, "several")
            with self.loop(first, start, step, name) as i:
                for j in range(several):
                    yield i + j * LANES, None
        n = stop - start
        whole = self.let(start + n // LANES * LANES, "whole")
        if not (is_const(n) and n.attr < LANES):
            with self.loop(start, whole, LANES, name) as i:
                yield i, None
        if is_const(n) and n.attr % LANES == 0:
            return
        with self.if_(whole < stop):
            yield whole, n % LANES

    def build(self) -> Kernel:
        return Kernel(self.name, self.buffers, self.ints, self.pieces, self.piece, self._body, self.scratches)
