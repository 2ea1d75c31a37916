"""Ranges of expressions: each value that a kernel computes lies in them, and those that code is chosen by are known."""

from __future__ import annotations

import itertools
import random
from math import inf

import pytest

from tengen.base.dtype import int8, int32, int64, uint8, uint32
from tengen.loops.builder import Builder
from tengen.loops.interp import evaluate
from tengen.loops.lang import LANES, cast, const, equal, maximum, minimum, ramp, select, splat, var
from tengen.loops.ranges import ANY, Ranges
from tengen.loops.rewriting import map_expr


def expression(rng: random.Random, leaves: list, depth: int):
    """A random expression of int64 numbers, whose divisors are above 0."""
    if not depth or rng.random() < 0.1:
        return rng.choice([*leaves, *leaves, const(rng.randint(-9, 9))])
    a, b = (expression(rng, leaves, depth - 1) for _ in range(2))
    positive = maximum(b, 1)
    kind = rng.choice([int8, uint8, int32, uint32])
    return rng.choice([
        lambda: a + b, lambda: a - b, lambda: a * b, lambda: -a, lambda: minimum(a, b), lambda: maximum(a, b), lambda: a // positive,
        lambda: a % positive, lambda: a & 7, lambda: a >> 1, lambda: select(a < b, a, b + a), lambda: cast(cast(a, kind), int64),
        lambda: cast(a < b, int64), lambda: abs(a),
    ])()  # fmt: skip


@pytest.mark.parametrize("seed", range(8))
def test_values_lie_in_their_ranges(seed):
    """Of every part of random expressions, for every number of the loops, and for parameters of both signs."""
    rng = random.Random(seed)
    for _ in range(40):
        k = Builder("k")
        n, piece = k.int("n"), k.split(3)
        with k.loop(rng.randint(-5, 2), rng.randint(3, 8), rng.randint(1, 3)) as i:
            with k.loop(i - 2, i + 2) as j:
                t = k.let(expression(rng, [i, j, piece], 2))
                e = expression(rng, [i, j, piece, n, t], 4)
        ranges = Ranges(k.build())
        outer, lets = k._body[0], k._body[0].body[0].body
        parts: dict = {}
        map_expr(e, lambda x, _: None, parts)
        for p, m, at in itertools.product(range(3), (-1000, -3, 0, 70), range(outer.start.attr, outer.stop.attr, outer.step)):
            for of in range(at - 2, at + 2):
                known = {piece: p, n: m, i: at, j: of}
                known |= {s.var: int(evaluate(s.value, known)) for s in lets}
                for x in parts:
                    low, high = ranges(x)
                    if x.dtype.is_int:
                        assert low <= int(evaluate(x, known)) <= high, (x, known)


def test_what_is_known():
    k = Builder("k")
    n, piece = k.int("n"), k.split(k.int("m"))
    assigned = k.var(0)
    with k.loop(4, n, 4) as i:
        assigned.set(assigned.value + 1)
        t = k.let(minimum(i + 1, 9))
        loaded = k.load(k.input("x", int32), i)
        ranges = Ranges(k.build())
    assert ranges(n) == ANY and ranges(piece) == (0, inf) and ranges(i) == (4, inf) and ranges(t) == (5, 9)
    assert ranges(piece * 1024 + i) == (4, inf) and ranges(n - 1) == ANY and ranges(t - 10) == (-5, -1)
    assert ranges(loaded) == (-(2**31), 2**31 - 1) == ranges(loaded + 1), "it may wrap"
    assert ranges(assigned.value) == (-(2**63), 2**63 - 1) and ranges(var("elsewhere", uint8)) == (0, 255)
    assert ranges(n % 16) == (0, 15) and ranges(t // 2) == (2, 4) and ranges((t - 10) // 2) == (-3, -1)
    assert ranges(splat(i) + ramp()) == (4, inf) and ranges(ramp() % 5) == (0, 4) and ranges(ramp()) == (0, LANES - 1)
    assert ranges(i - 4) == (0, inf) and ranges(i - n) == ANY
    with k.loop(n, n + 9) as j:
        ranges = Ranges(k.build())
    assert ranges(j - n) == (0, inf) and ranges(n - j) == ANY and ranges(j) == ANY
    assert ranges(equal(i, 4)) == (0, 1) and ranges(select(i < n, t, i * 0 - 7)) == (-7, 9)
