"""Kernels by chance, mostly of fmas, run by the interpreter and by a definition that takes one statement after the other: the interpreter
keeps what it knows and lets fmas wait for one another, and no order of reads, assignments, loads and stores may show that."""

import gc
from types import FunctionType

import numpy as np
import pytest

from tengen.base.dtype import float32, int64
from tengen.loops import interp
from tengen.loops.interp import evaluate, interpret
from tengen.loops.lang import LANES, Expr, cast, const, fma, fold, lane, ramp, splat, var
from tengen.loops.statements import Assign, Buffer, Declare, For, If, Kernel, Let, Load, Store

SIZE = 64


def run(body: list, memory: dict, env: dict) -> None:
    """What statements mean: each computes all of its expressions anew."""
    value = lambda e: np.broadcast_to(evaluate(e, env), () if e.lanes == 1 else (LANES,))
    places = lambda s, lanes: int(value(s.index)) + (np.arange(LANES) if lanes > 1 else 0)
    for s in body:
        match s:
            case Let() | Declare() | Assign():
                env[s.var] = value(s.value)
            case Load():
                env[s.var] = memory[s.buffer][places(s, s.var.lanes)]
            case Store():
                memory[s.buffer][places(s, s.value.lanes)] = value(s.value)
            case For():
                for i in range(int(value(s.start)), int(value(s.stop)), s.step):
                    env[s.var] = np.int64(i)
                    run(s.body, memory, env)
            case If():
                run(s.body if value(s.cond) else s.orelse, memory, env)


class Chance:
    """A kernel of statements by chance over one buffer, which is read and written."""

    def __init__(self, seed: int):
        self.rng, self.count = np.random.default_rng(seed), 0
        self.buffer, self.n = Buffer("y", float32, "out"), var("n")
        self.scalars, self.vectors, self.numbers = [const(0.5, float32)], [splat(const(1.5, float32))], [self.n, const(3)]
        self.declared: list[Expr] = []
        body = self.block(14, 2)
        self.kernel = Kernel("chance", [self.buffer], [self.n], const(1), var("piece"), body)

    def one_of(self, some: list):
        return some[self.rng.integers(len(some))]

    def new(self, dtype=float32, lanes: int = 1) -> Expr:
        self.count += 1
        return var(f"v{self.count}", dtype, lanes)

    def vector(self) -> Expr:
        a, b, c = (self.one_of(self.vectors) for _ in range(3))
        forms = [
            lambda: fma(a, b, c), lambda: fma(splat(self.scalar()), b, c), lambda: a - b, lambda: a, lambda: splat(self.scalar()),
            lambda: fma(fma(a, b, c), b, c) + a, lambda: cast(ramp() * splat(self.number()), float32),
        ]  # fmt: skip
        return self.one_of([*forms, forms[0], forms[0], forms[1]])()

    def scalar(self) -> Expr:
        forms = [lambda: self.one_of(self.scalars), lambda: fold("add", self.one_of(self.vectors)), lambda: lane(self.one_of(self.vectors), 3)]
        return self.one_of(forms)()

    def number(self) -> Expr:
        return self.one_of([lambda: self.one_of(self.numbers), lambda: (self.one_of(self.numbers) * 5 + 7) % 48])()

    def statement(self, depth: int):
        kind = self.one_of("fma fma fma let declare assign assign assign load load store scalar for if".split())
        if kind in ("for", "if") and depth == 0:
            kind = "assign"
        if kind == "assign" and not self.declared:
            kind = "declare"
        match kind:
            case "assign":
                return Assign(self.one_of(self.declared), self.vector())
            case "store":
                return Store(self.buffer, self.number() % 48, self.vector())
            case "for":
                loop = For(self.new(int64), const(0), self.one_of([const(2), self.n % 4]), 1)
                loop.body = self.block(6, depth - 1, [loop.var])
                return loop
            case "if":
                return If(self.scalar() < self.scalar(), self.block(5, depth - 1), self.block(5, depth - 1))
            case "scalar":
                s = Let(self.new(), self.scalar())
                self.scalars.append(s.var)
                return s
        v = self.new(float32, LANES)
        a, b, c = (self.one_of(self.vectors) for _ in range(3))
        s = {
            "fma": lambda: Let(v, fma(a, b, c)), "let": lambda: Let(v, self.vector()), "declare": lambda: Declare(v, self.vector()),
            "load": lambda: Load(v, self.buffer, self.number() % 48),
        }[kind]()  # fmt: skip
        self.vectors.append(v)
        if kind == "declare":
            self.declared.append(v)
        return s

    def block(self, size: int, depth: int, numbers: tuple | list = ()) -> list:
        known = self.scalars, self.vectors, self.numbers, self.declared
        self.scalars, self.vectors, self.numbers, self.declared = (list(k) for k in known)
        self.numbers += numbers
        body = [self.statement(depth) for _ in range(size)]
        self.scalars, self.vectors, self.numbers, self.declared = known
        return body


@pytest.mark.parametrize("first", range(0, 120, 40))
def test_statements_mean_what_they_mean_one_by_one(first):
    batches = 0
    for seed in range(first, first + 40):
        made = Chance(seed)
        start = np.random.default_rng(seed).standard_normal(SIZE).astype(np.float32)
        for n in (5, 11):
            got, want = start.copy(), start.copy()
            interpret(made.kernel, [got], [n])
            with np.errstate(all="ignore"):
                run(made.kernel.body, {made.buffer: want}, {made.n: np.int64(n), made.kernel.piece: np.int64(0)})
            nan = np.isnan(got) & np.isnan(want)
            assert got[~nan].tobytes() == want[~nan].tobytes(), (seed, n)
            batches += (got != start).sum() > 20
    assert batches > 20  # most kernels write most of the buffer


def test_what_is_interpreted_leaves_no_cycles():
    """A kernel's steps go with their kernel. Each kernel that a test interprets is made of thousands of objects, which would stay until
    Python's garbage collector looks at all of them. What another thread or an earlier test leaves for the collector is not counted."""
    made, start = Chance(1), np.zeros(SIZE, np.float32)
    functions = lambda: [x for x in gc.get_objects() if isinstance(x, FunctionType) and x.__module__ == interp.__name__]
    gc.collect()
    gc.disable()
    try:
        before = len(functions())
        run_it = interp.interpreter(made.kernel)
        run_it([start], [5])
        assert len(functions()) > before + 50  # its steps
        del run_it
        assert len(functions()) <= before
    finally:
        gc.enable()
