"""The tree of a program's steps: what each kind means, compiled and interpreted; memory; text; rules."""

import functools

import numpy as np
import pytest
from launching import array_of, compile_and_run, run

from tengen.base.dtype import bool_, int32
from tengen.base.errors import VerifyError
from tengen.codegen.targets import Target
from tengen.compiler.arena import Temporaries
from tengen.compiler.building import build
from tengen.kernels.lowering import Array, Lowering
from tengen.kernels.pointwise import pointwise
from tengen.kernels.source import Elementwise, Leaf
from tengen.kernels.steps import Call, Flag, Function, If, Launch, Loop, While, functions, lifetimes, verify_steps
from tengen.kernels.steps_text import parse_steps, print_steps
from tengen.loops.lang import equal, var

N = 5  # elements of a buffer


class Chance:
    """Random programs: every temporary is written before it is read, on every way through the program."""

    def __init__(self, seed: int, ints=()):
        self.rng = np.random.default_rng(seed)
        self.lo = Lowering(Target.host(), list(ints))
        self.counts = [0, 1, 2, 3, *ints]
        self.outs = [Array(f"out{i}", int32, (N,), (1,)) for i in range(3)]
        self.ready = [Array("x", int32, (N,), (1,)), *self.outs]  # what holds values
        self.steps: list = []  # numbers of the iterations around
        self.functions: list = []

    def pick(self, some):
        return some[self.rng.integers(len(some))]

    def program(self):
        for _ in range(2):
            self.function()
        self.block(0, 6)
        return self.lo

    def mix(self, out):
        """out = 3 a + b + table[iteration : iteration + N]."""
        at = self.pick([*self.steps, int(self.rng.integers(8))])
        table = Array("table", int32, (N,), (1,), at)
        sources = [Leaf(self.pick(self.ready)), Leaf(self.pick(self.ready)), Leaf(table)]
        pointwise(self.lo, [Elementwise(lambda a, b, t: a * 3 + b + t, sources, (N,), int32)], [out], "mix")
        if out not in self.ready:
            self.ready.append(out)

    def flag(self):
        flag = self.lo.temp(bool_, ())
        a = self.pick(self.ready)
        first = Leaf(Array(a.id, int32, (), ()))
        pointwise(self.lo, [Elementwise(lambda v: equal(v & 1, 0), [first], (), bool_)], [flag], "odd")
        return flag

    def block(self, depth: int, n: int):
        for _ in range(n):
            kinds = ["output", "output", "temp", "call"] + ["loop", "local", "branch", "repeated"] * (depth < 3)
            getattr(self, self.pick(kinds))(depth)

    def output(self, depth):
        self.mix(self.pick(self.outs))

    def temp(self, depth):
        self.mix(self.lo.temp(int32, (N,)))

    def loop(self, depth):
        ready = list(self.ready)
        with self.lo.loop(self.pick(self.counts)) as i:
            self.inside(depth, i)
        self.ready = ready

    def local(self, depth):
        """A loop whose iterations are independent: its temporaries are its own, and nothing else is read that it writes."""
        ready = self.ready
        self.ready = [ready[0]]
        with self.lo.loop(self.pick(self.counts), [ready[0]], independent=True) as i:
            self.steps.append(i)
            for _ in range(3):
                self.mix(self.lo.temp(int32, (N,)))
            a = self.lo.once(ready[0], "doubled", self.doubled)
            self.ready.append(a)
            self.mix(self.pick(self.outs))
            self.steps.pop()
        self.ready = ready

    def doubled(self):
        out = self.lo.temp(int32, (N,))
        x = Leaf(Array("x", int32, (N,), (1,)))
        pointwise(self.lo, [Elementwise(lambda v: v * 2, [x], (N,), int32)], [out], "doubled")
        return out

    def inside(self, depth, i):
        self.steps.append(i)
        self.block(depth + 1, 3)
        self.steps.pop()

    def branch(self, depth):
        ready, numbers = list(self.ready), self.lo.ints and self.rng.integers(2)
        flag = self.lo.ints[0] > int(self.rng.integers(4)) if numbers else self.flag()
        with self.lo.branch(flag) as branches:
            self.block(depth + 1, 2)
            if self.rng.integers(2):
                self.ready = list(ready)
                branches.otherwise()
                self.block(depth + 1, 2)
        self.ready = ready

    def repeated(self, depth):
        ready = list(self.ready)
        with self.lo.while_loop(limit=self.pick(self.counts)) as condition:
            self.steps.append(condition.iteration)
            self.mix(self.pick(self.outs))
            condition.holds(self.flag())
            self.block(depth + 1, 2)
            self.steps.pop()
        self.ready = ready

    def function(self, depth=0):
        a, b = (Array(("parameter", i), int32, (N,), (1,)) for i in range(2))

        def write():
            ready, self.ready, table = self.ready, [a, b], self.steps
            inner = self.lo.temp(int32, (N,))
            add = lambda out, *from_: pointwise(
                self.lo, [Elementwise(lambda u, v: u * 5 + v, [Leaf(x) for x in from_], (N,), int32)], [out], "add"
            )
            add(inner, a, b)
            if self.functions:
                self.lo.call(self.functions[-1], [inner, b])
            with self.lo.loop(2):
                add(b, inner, b)
            self.ready, self.steps = ready, table

        self.functions.append(self.lo.function(f"f{len(self.functions)}", [a, b], write))

    def call(self, depth):
        a, b = self.pick(self.ready), self.pick(self.outs)
        if a.id != b.id:
            self.lo.call(self.pick(self.functions), [a, b])


def results(way, lo, values=None):
    memory = {"x": np.arange(1, N + 1, dtype=np.int32), "table": np.arange(100, dtype=np.int32) ** 2}
    memory |= {f"out{i}": np.full(N, i, np.int32) for i in range(3)}
    way(lo, memory, values)
    return [memory[f"out{i}"].tolist() for i in range(3)]


@pytest.mark.parametrize("seed", range(25))
def test_random_programs(seed):
    lo = Chance(seed).program()
    verify_steps(lo.steps, lo.temps, lo.ints)
    want = results(run, lo)
    assert results(functools.partial(run, backwards=True), lo) == want
    assert results(compile_and_run, lo) == want
    text = print_steps(lo)
    again = parse_steps(text, Target.host())
    assert print_steps(again) == text and results(run, again) == want


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("n", [0, 1, 4])
def test_numbers_of_iterations_are_parameters(seed, n):
    v = var("n")
    lo = Chance(1000 + seed, [v]).program()
    assert " number " in print_steps(lo) or seed  # a branch by it
    assert results(compile_and_run, lo, {v: n}) == results(run, lo, {v: n})
    again = parse_steps(print_steps(lo), Target.host())
    assert print_steps(again) == print_steps(lo)


def test_the_generator_makes_every_kind():
    lowered = [Chance(seed).program() for seed in range(25)]
    kinds = set()

    def visit(steps, depth):
        for s in steps:
            kinds.add((type(s), depth > 0))
            for block in ([s.body] if isinstance(s, Loop) else [s.then, s.otherwise] if isinstance(s, If) else
                          [s.condition, s.body] if isinstance(s, While) else []):  # fmt: skip
                visit(block, depth + isinstance(s, (Loop, While)))

    for lo in lowered:
        visit(lo.steps, 0)
    assert kinds == {(kind, inside) for kind in (Launch, Loop, If, While, Call) for inside in (False, True)}
    assert all(len(functions(lo.steps)) <= 2 for lo in lowered)


def test_a_user_may_name_an_extent_step():
    step = var("step")
    lo = Lowering(Target.host(), [step])
    x, y = (Array(id, int32, (step,), (1,)) for id in "xy")
    with lo.loop(step) as i:
        assert i is not step
        at = lambda a: Array(a.id, int32, (), (), i)
        pointwise(lo, [Elementwise(lambda v: v + 1, [Leaf(at(x))], (), int32)], [at(y)], "next")
    a, b = np.arange(4, dtype=np.int32), np.zeros(4, np.int32)
    for way in (run, compile_and_run):
        b[:] = 0
        way(lo, {"x": a, "y": b}, {step: 4})
        assert b.tolist() == [1, 2, 3, 4]


# ---- memory ----------------------------------------------------------------------------------------------------------


def launch(*ids):
    return Launch(None, ids)


def test_lifetimes():
    a, b, c, d, e = "abcde"
    inner = Loop(3, (launch(b), launch(b, c), launch(c)), independent=True)
    carried = Loop(3, (launch(b), launch(d)))
    found = lambda *steps: lifetimes(steps, "abcde")
    assert found(launch(a), launch(b), launch(a)) == {a: ((0, 2),), b: ((1, 1),)}
    assert found(launch(a), inner, launch(a)) == {a: ((0, 4),), b: ((1, 2),), c: ((2, 3),)}  # b and c meet only in between
    assert found(inner, launch(b))[b] == ((0, 3),)  # used outside too: through the whole loop
    assert found(carried)[b] == found(carried)[d] == ((0, 1),)  # the next iteration may read it
    assert found(Loop(2, (inner, launch(e))))[e] == ((0, 3),)
    assert found(If(Flag(a), (launch(b),), (launch(c),))) == {a: ((0, 0),), b: ((1, 1),), c: ((2, 2),)}
    assert found(While((launch(b),), Flag(b), (launch(c),))) == {b: ((0, 2),), c: ((0, 2),)}


def test_a_function_keeps_nothing_between_calls():
    f = Function("f", ("p",), (launch("own", "p"),), frozenset({"own"}))
    steps = (Call(f, ("a",)), launch("b"), Call(f, ("b",)))
    assert lifetimes(steps, ["own", "a", "b"]) == {"own": ((0, 0), (2, 2)), "a": ((0, 0),), "b": ((1, 2),)}


def test_memory_between_calls_is_used_by_others():
    lo = Lowering(Target.host())
    big = lambda id: Array(id, int32, (1000,), (1,))
    fill = lambda out, *ins: pointwise(lo, [Elementwise(lambda *v: v[0] + 1, [Leaf(a) for a in ins], (1000,), int32)], [out], "fill")

    def write():
        inner = lo.temp(int32, (1000,))
        fill(inner, big("p"))
        fill(big("q"), inner)

    f = lo.function("f", [big("p"), big("q")], write)
    lo.call(f, [big("x"), big("y")])
    between = lo.temp(int32, (1000,))
    fill(between, big("y"))
    fill(big("y"), between)
    lo.call(f, [big("y"), big("x")])
    temps = Temporaries.of(lo)
    assert temps.place(temps.sizes)[1] == 4032
    x, y = np.arange(1000, dtype=np.int32), np.zeros(1000, np.int32)
    compile_and_run(lo, {"x": x, "y": y})
    assert (x == np.arange(1000) + 6).all() and (y == np.arange(1000) + 4).all()


# ---- rules -----------------------------------------------------------------------------------------------------------


def test_what_is_refused():
    lo = Lowering(Target.host())
    x = array_of(np.zeros(3, np.float32), "x")[0]
    with pytest.raises(VerifyError, match="one bool at a known place"), lo.branch(x):
        pass
    flag = lo.temp(bool_, ())
    with pytest.raises(VerifyError, match="needs a condition"), lo.while_loop():
        pass
    with pytest.raises(VerifyError, match="one `otherwise`"), lo.branch(flag) as branches:
        branches.otherwise()
        branches.otherwise()
    with pytest.raises(VerifyError, match="uses x, which is not its own"):
        lo.function("f", [], lambda: pointwise(lo, [Leaf(x)], [lo.temp(x.dtype, x.shape)], "copy"))
    assert not lo.steps
    with lo.loop(2, [x]):
        pointwise(lo, [Elementwise(lambda v: v + 1, [Leaf(x)], x.shape, x.dtype)], [x], "more")
    with pytest.raises(VerifyError, match="writes x, which it says is invariant"):
        verify_steps(lo.steps, lo.temps, lo.ints)
    with pytest.raises(VerifyError, match="takes the integers"):
        verify_steps(lo.steps[0].body, lo.temps, lo.ints)
    with pytest.raises(VerifyError, match="is no bool"):
        verify_steps([If(Flag(flag.id, 1), ())], lo.temps, [])


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "unexpected end"),
        ("program():\n    launch k(x)\n", "no kernel k"),
        ("program():\n    call f(x)\n", "no function f"),
        ("program():\n    if temp.0:\n        pass\n", "expected"),
        ("program():\n    while:\n        pass\n    loop 2:\n        pass\n", "needs a do"),
        ("program():\n    loop n:\n        pass\n", "n"),
        ("program():\n    loop 2:\n    loop 2:\n        pass\n", "expected a step"),
        ("program():\n    temp temp.0: f32[3]\n    temp temp.0: f32[3]\n", "given twice"),
        ("program():\n    jump 3\n", "expected launch"),
        ("program():\n    loop -2:\n        pass\n", "a loop of -2 iterations"),
    ],
)
def test_texts_that_are_no_program(text, message):
    with pytest.raises(VerifyError, match=message):
        parse_steps(text)


def test_a_text_gives_the_same_machine_code():
    lo = Chance(3).program()
    first = build(lo, ["x", "table", "out0", "out1", "out2"], [], "p").text
    assert build(parse_steps(print_steps(lo), Target.host()), ["x", "table", "out0", "out1", "out2"], [], "p").text == first
