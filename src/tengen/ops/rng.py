"""Counter-based random numbers: element i of draw n under a seed is a function of (seed, n, i) and of nothing else.

So eager and traced programs, any number of threads and any order of evaluation give the same numbers. The generator is
Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from tengen.base.dtype import float32, uint32, uint64
from tengen.base.errors import DTypeError
from tengen.ir.types import TensorType
from tengen.kernels import numerics
from tengen.kernels.source import At, Source
from tengen.loops.lang import Expr, as_int, call, cast, const, unary
from tengen.ops.attributes import Shape
from tengen.ops.define import Case, primitive

if TYPE_CHECKING:
    from tengen.tensor import Tensor



def _mulhilo(a: int, b: Expr) -> tuple[Expr, Expr]:
    p = cast(b, uint64) * a
    return cast(p >> 32, uint32), cast(p, uint32)


def philox(counter: Sequence[Expr], key: Sequence[Expr]) -> list[Expr]:
    """Four uint32 words of ten rounds; `counter` has four words, `key` two."""
    c, k = list(counter), list(key)
    for r in range(numerics.PHILOX_ROUNDS):
        if r:
            k = [k[0] + numerics.PHILOX_KEY_STEPS[0], k[1] + numerics.PHILOX_KEY_STEPS[1]]
        h0, l0 = _mulhilo(numerics.PHILOX_MULTIPLIERS[0], c[0])
        h1, l1 = _mulhilo(numerics.PHILOX_MULTIPLIERS[1], c[2])
        c = [h1 ^ c[1] ^ k[0], l1, h0 ^ c[3] ^ k[1], l0]
    return c


class Bits(Source):
    """Words 0 and 1 of the block of each element; `combine` makes a value of them."""

    def __init__(self, key: Source, shape, dt, combine):
        self.key, self.shape, self.dtype, self.combine = key, tuple(shape), dt, combine

    def value(self, k, at):
        flat: Expr = const(0)
        for axis, d in enumerate(self.shape):
            flat = flat * d + at.coord(axis)
        i = cast(flat, uint64)
        seed, draw = self.key.at(k, At((0,))), self.key.at(k, At((1,)))

        def low(e):
            return cast(e, uint32)

        def high(e):
            return cast(e >> 32, uint32)

        return self.combine(philox([low(i), high(i), low(draw), high(draw)], [low(seed), high(seed)]))


def _uniform(words: Sequence[Expr]) -> Expr:
    """[0, 1) from the top 24 bits: every multiple of 2^-24 is equally likely."""
    return cast(words[0] >> 8, float32) * (2.0**-24)


def _normal(words: Sequence[Expr]) -> Expr:
    """Box-Muller: u in (0, 1], an angle in [0, 2 pi)."""
    u = (cast(words[0] >> 8, float32) + 1.0) * (2.0**-24)
    angle = cast(words[1] >> 8, float32) * (2.0**-24 * 2 * np.pi)
    return unary("sqrt", call("log", u) * -2.0) * call("cos", angle)


def _random(op, combine, dt):
    @op.infer
    def _(key, shape):
        if key.ndim != 1 or as_int(key.shape[0]) not in (None, 2) or key.dtype is not uint64:
            raise DTypeError("the key must be u64[2]: seed and number of the draw")
        return TensorType(shape, dt)

    @op.source
    def _(ins, out, shape):
        return Bits(ins[0], shape, dt, combine)

    op.no_vjp("a random number does not depend on its key smoothly")


@primitive
def random_uniform(key: Tensor, shape: Shape) -> Tensor:
    """float32 in [0, 1). `key`: uint64 (seed, number of the draw)."""


@primitive
def random_normal(key: Tensor, shape: Shape) -> Tensor:
    """Standard normal float32, by Box-Muller. `key`: uint64 (seed, number of the draw)."""


@primitive
def random_bits(key: Tensor, shape: Shape) -> Tensor:
    """Uniform uint32. `key`: uint64 (seed, number of the draw)."""


_random(random_uniform, _uniform, float32)
_random(random_normal, _normal, float32)
_random(random_bits, lambda words: words[0], uint32)


def philox_reference(key, shape):
    """The generator in NumPy's integers, for the tests: words 0 and 1 of each element's block."""
    n = int(np.prod(shape))
    i = np.arange(n, dtype=np.uint64)
    seed, draw = (int(v) for v in key)
    mask = np.uint64(0xFFFFFFFF)
    c = [i & mask, i >> np.uint64(32), np.full(n, draw & 0xFFFFFFFF, np.uint64), np.full(n, draw >> 32, np.uint64)]
    k = [seed & 0xFFFFFFFF, seed >> 32]
    for r in range(numerics.PHILOX_ROUNDS):
        if r:
            k = [(k[0] + numerics.PHILOX_KEY_STEPS[0]) & 0xFFFFFFFF, (k[1] + numerics.PHILOX_KEY_STEPS[1]) & 0xFFFFFFFF]
        p0, p1 = c[0] * np.uint64(numerics.PHILOX_MULTIPLIERS[0]), c[2] * np.uint64(numerics.PHILOX_MULTIPLIERS[1])
        c = [
            (p1 >> np.uint64(32)) ^ c[1] ^ np.uint64(k[0]),
            p1 & mask,
            (p0 >> np.uint64(32)) ^ c[3] ^ np.uint64(k[1]),
            p0 & mask,
        ]
    return c[0].reshape(shape), c[1].reshape(shape)


random_bits.reference(lambda key, shape: philox_reference(key, shape)[0].astype(np.uint32))
random_uniform.reference(lambda key, shape: (philox_reference(key, shape)[0] >> np.uint64(8)).astype(np.float64) * 2.0**-24)
_key = Case(lambda r: (np.array([7, 3], np.uint64),), {"shape": (3, 17)}, grad=False)
random_bits.cases(_key)
random_uniform.cases(_key)


def _np_normal(key, shape):
    a, b = (w >> np.uint64(8) for w in philox_reference(key, shape))
    return np.sqrt(-2 * np.log((a + 1.0) * 2.0**-24)) * np.cos(b * np.float64(np.float32(2.0**-24 * 2 * np.pi)))


random_normal.reference(_np_normal)
random_normal.cases(_key)
for _op in (random_bits, random_uniform, random_normal):
    _op.cases(Case(lambda r: (np.array([2**63 + 5, 2**40], np.uint64),), {"shape": (5,)}, grad=False))
    _op.cases(Case(lambda r: (np.array([1, 0], np.uint64),), {"shape": (0, 2)}, grad=False))
