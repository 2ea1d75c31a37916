"""A kernel that was written by itself becomes one of a program: its integer parameters get values, its variables names that none of
the program's have, and its buffers places in the program's.

In: a verified `Kernel`, expressions for its integers, and for each of its buffers where the first element lies. Out: the kernel that a
program launches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tengen.base.errors import VerifyError
from tengen.loops.lang import Expr, Index, const, var
from tengen.loops.rewriting import map_expr, rebuild
from tengen.loops.statements import Assign, Buffer, Declare, External, For, If, Kernel, Let, Load, Prefetch, Store


def bound(
    kernel: Kernel, name: str, ints: Sequence[Expr], values: Mapping[str, Index], places: Mapping[str, tuple[Buffer, Index]]
) -> Kernel:
    """The kernel under another name, as one that takes the program's integers.

    Args:
        ints: those of the program. values: of the kernel's own, by name, as expressions over `ints`. places: for each of its buffers the
            one that stands for it, and the index of its first element there.
    """
    return _Binding(kernel, ints, values, places).kernel(name)


class _Binding:
    def __init__(self, kernel: Kernel, ints: Sequence[Expr], values: Mapping[str, Index], places: Mapping[str, tuple[Buffer, Index]]):
        self.source, self.ints, self.places = kernel, ints, places
        taken = {str(v.attr) for v in ints} | {b.name for b, _ in places.values()}
        self.prefix = "k_"
        while any(t.startswith(self.prefix) for t in taken):
            self.prefix += "_"
        self.memo: dict[Expr, Expr] = {}
        for v in kernel.ints:
            value = values[str(v.attr)]
            self.memo[v] = value if isinstance(value, Expr) else const(value)
        self.scratch = {b: Buffer(self.prefix + b.name, b.dtype, b.role, b.size) for b in kernel.scratch}

    def kernel(self, name: str) -> Kernel:
        k = self.source
        buffers = list(dict.fromkeys(b for b, _ in (self.places[b.name] for b in k.buffers)))
        return Kernel(name, buffers, list(self.ints), self(k.pieces), self(k.piece), self.block(k.body), list(self.scratch.values()))

    def __call__(self, e: Expr) -> Expr:
        return map_expr(e, self._node, self.memo)

    def _node(self, e: Expr, args: tuple[Expr, ...]) -> Expr:
        return var(self.prefix + str(e.attr), e.dtype, e.lanes) if e.op == "var" else rebuild(e, args)

    def place(self, b: Buffer, index: Expr) -> tuple[Buffer, Expr]:
        if b in self.scratch:
            return self.scratch[b], self(index)
        buffer, first = self.places[b.name]
        return buffer, self(index) + first

    def block(self, body: list) -> list:
        return [self.statement(s) for s in body]

    def statement(self, s: object) -> object:
        some = lambda e: None if e is None else self(e)
        match s:
            case Let() | Declare() | Assign():
                return type(s)(self(s.var), self(s.value))
            case Load():
                return Load(self(s.var), *self.place(s.buffer, s.index), some(s.count), some(s.other))
            case Store():
                return Store(*self.place(s.buffer, s.index), self(s.value), some(s.count), s.stream)
            case Prefetch():
                return Prefetch(*self.place(s.buffer, s.index))
            case External():
                places = tuple(self.place(b, i) for b, i in s.places)
                return External(self(s.var), s.symbol, places, tuple(map(self, s.shapes)), tuple(map(self, s.numbers)))
            case For():
                return For(self(s.var), self(s.start), self(s.stop), s.step, self.block(s.body))
            case If():
                return If(self(s.cond), self.block(s.body), self.block(s.orelse))
        raise VerifyError(f"{s!r} is not a statement")
