"""Kernels that differ in numbers: one with parameters takes their place, and with the numbers it is each of them again."""

from dataclasses import replace

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from random_kernels import kernels

import tengen.functional as F
from tengen import Tensor, trace
from tengen.base.dtype import float32, int64
from tengen.compiler import program_ir
from tengen.loops.builder import Builder
from tengen.loops.form import form
from tengen.loops.interp import interpret
from tengen.loops.lang import LANES, Expr, const, expr, ramp, splat
from tengen.loops.share import MOST_NUMBERS, shared
from tengen.loops.statements import Assign, Declare, For, If, Kernel, Let, Load, Prefetch, Store
from tengen.loops.verify import verify


def changed(body, f):
    """Statements with other expressions, written here once more."""
    out = []
    some = lambda e: None if e is None else f(e)
    for s in body:
        match s:
            case Let() | Declare() | Assign():
                s = replace(s, value=f(s.value))
            case Load():
                s = replace(s, index=f(s.index), count=some(s.count), other=some(s.other))
            case Store():
                s = replace(s, index=f(s.index), value=f(s.value), count=some(s.count))
            case Prefetch():
                s = replace(s, index=f(s.index))
            case For():
                s = replace(s, start=f(s.start), stop=f(s.stop), body=changed(s.body, f))
            case If():
                s = replace(s, cond=f(s.cond), body=changed(s.body, f), orelse=changed(s.orelse, f))
        out.append(s)
    return out


def with_leaves(kernel: Kernel, leaf) -> Kernel:
    """The kernel with other leaves in its expressions; nothing is folded."""

    def f(e: Expr) -> Expr:
        return expr(e.op, tuple(map(f, e.args)), e.dtype, e.lanes, e.attr) if e.args else leaf(e)

    return replace(kernel, body=changed(kernel.body, f))


def given_numbers(kernel: Kernel, numbers, as_is: Kernel) -> Kernel:
    """The kernel with literals in the place of its parameters, and what a caller says or does not see as it is in another."""
    values = dict(zip(kernel.ints, map(const, numbers)))
    bare = with_leaves(kernel, lambda e: values.get(e, e))
    return replace(bare, ints=[], pieces=as_is.pieces, scratch=as_is.scratch)


def copy_of(rows: int, columns: int, at: int = 0, taps: int = 1, scratch: int = 16) -> Kernel:
    """Copies a matrix by rows, a few times; `at`: where its first element lies."""
    k = Builder("copy")
    x, y = k.input("x", float32), k.output("y", float32)
    k.scratch("s", float32, scratch)
    row = k.split(rows)
    with k.loop(0, columns, LANES, name="column") as i:
        for t in range(taps):
            k.store(y, row * columns + i, k.load(x, at + t * columns + row * columns + i, LANES, columns - i), columns - i)
    return k.build()


def test_numbers_become_parameters():
    some = [copy_of(3, 20, scratch=32), copy_of(5, 36, scratch=48), copy_of(7, 20, scratch=16)]
    found = shared(some)
    one = {id(kernel) for kernel, _ in found.values()}
    assert set(found) == set(some) and len(one) == 1
    kernel = found[some[0]][0]
    verify(kernel)
    assert [numbers for _, numbers in found.values()] == [(20,), (36,), (20,)]
    assert [b.size for b in kernel.scratch] == [48]  # the largest holds for all
    for k in some:
        rows, columns = k.pieces.attr, found[k][1][0]
        x, results = np.arange(rows * columns, dtype="float32"), []
        for called, numbers in (found[k], (k, ())):
            y = np.zeros_like(x)
            interpret(replace(called, pieces=k.pieces), [x, y], numbers)
            results.append(y.tobytes())
        assert results == [x.tobytes()] * 2


def test_what_stays_a_kernel_of_its_own():
    assert not shared([copy_of(3, 20)])
    assert not shared([copy_of(3, 20), copy_of(3, 20, taps=2)])  # other statements
    assert not shared([copy_of(3, 20, at=0), copy_of(3, 20, at=1)])  # 0 and 1 decide how memory is read
    far = [copy_of(3, c, taps=MOST_NUMBERS + 2) for c in (20, 36)]  # t * columns are literals, too many of them
    assert not shared(far)


def divided(n: int, in_loop: bool) -> Kernel:
    k = Builder("divided")
    y = k.output("y", int64)
    piece = k.split(8)
    with k.loop(0, 3) as i:
        k.store(y, piece * 3 + i, (piece + i) // n if in_loop else i)
    if not in_loop:
        k.store(y, piece, piece // n)
    return k.build()


def test_divisors_in_loops_stay_literals():
    assert not shared([divided(5, True), divided(7, True)])
    assert len(shared([divided(5, False), divided(7, False)])) == 2


def strided(step: int) -> Kernel:
    k = Builder("strided")
    x, y = k.input("x", float32), k.output("y", float32)
    k.store(y, 0, k.load(x, ramp() * splat(const(step)), LANES))
    return k.build()


def test_strides_of_vectors_stay_literals():
    assert not shared([strided(2), strided(3)])


@given(kernels(), st.lists(st.integers(-9, 40), min_size=1, max_size=5))
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
def test_with_its_numbers_it_is_the_kernel_again(kernel, numbers):
    """Of kernels by chance, and what other literals make of them."""
    kernel.ints = []
    some = [kernel]
    for n in numbers:
        number = lambda e, n=n: const(e.attr + n) if e.op == "const" and e.dtype is int64 and e.lanes == 1 and abs(e.attr) < 99 else e
        some.append(with_leaves(kernel, number))
    for k, (one, values) in shared(some).items():
        assert len(values) == len(one.ints) <= MOST_NUMBERS
        assert form(given_numbers(one, values, k)) == form(k)


def test_a_program_calls_one_kernel_for_layers_of_other_sizes(monkeypatch):
    rng = np.random.default_rng(0)
    some = [Tensor(rng.normal(size=(n, m)).astype("float32")) for n, m in ((400, 56), (500, 72), (700, 104))]

    def f(xs):
        return [F.exp(x.T * 2 - 1) for x in xs]

    made = []
    plain = program_ir.shared
    monkeypatch.setattr(program_ir, "shared", lambda ks: made.append(plain(ks)) or made[-1])
    results = [r.numpy().tobytes() for r in trace(f)(some)]
    assert results == [r.numpy().tobytes() for r in f(some)]
    assert [(len({id(one) for one, _ in found.values()}), len(found)) for found in made if found] == [(1, 3)]
