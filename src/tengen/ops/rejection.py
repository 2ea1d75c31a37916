"""Random numbers by rejection and by search: gamma, Poisson and binomial. Each element tries again until it is accepted.

An element's numbers are a function of (seed, draw, position, round), as in `rng.py`: the round is in bits of the counter that
positions leave free. There is a fixed number of rounds, after which the probability that an element was never accepted is below
1e-30; it is then the distribution's centre. All is computed in float64 from words of 32 bits, and rounded to the
parameters' dtype.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from tengen.base.dtype import bool_, float64, uint32, uint64
from tengen.base.errors import DTypeError
from tengen.ir.types import TensorType
from tengen.kernels import numerics
from tengen.kernels.axes import store_at, unflatten
from tengen.kernels.lowering import KernelBuilder, Lowering, product
from tengen.kernels.source import At, Leaf, broadcast
from tengen.loops.builder import as_expr
from tengen.loops.lang import Expr, as_int, call, cast, cdiv, const, equal, maximum, minimum, select, unary
from tengen.ops.define import Case, Op, broadcast_shapes, check_floats, primitive
from tengen.ops.rng import philox

if TYPE_CHECKING:
    from tengen.tensor import Tensor

SAMPLED_PIECE_ELEMENTS = 256  # elements of a piece

Words = Callable[[Expr | int], list[Expr]]  # a round -> four uint32


def uniform(word: Expr) -> Expr:
    """A number in (0, 1): the middle of one of 2^32 equal parts."""
    return (cast(word, float64) + 0.5) * 2.0**-32


def fine_uniform(high: Expr, low: Expr) -> Expr:
    """A number in (0, 1) of 53 bits."""
    bits = (cast(high, uint64) << 20) | cast(low >> 12, uint64)
    return (cast(bits, float64) + 0.5) * 2.0**-52


def _sampler(op: Op, sample: Callable[[KernelBuilder, Words, Sequence[Expr]], Expr]) -> None:
    """Rules of an op (key, parameters ...): each element is sample(k, words, its parameters)."""

    @op.infer
    def _(key, *parameters):
        if key.ndim != 1 or as_int(key.shape[0]) not in (None, 2) or key.dtype is not uint64:
            raise DTypeError("the key must be u64[2]: seed and number of the draw")
        return TensorType(broadcast_shapes(*(p.shape for p in parameters)), check_floats(*parameters))

    @op.lower
    def _(lo: Lowering, ins, outs):
        (out,) = outs
        if any(as_int(d) == 0 for d in out.shape):
            return
        parameters = [broadcast(Leaf(a), out.shape) for a in ins[1:]]
        k = lo.kernel(op.name)
        n = as_expr(product(out.shape))
        piece = k.split(cdiv(n, SAMPLED_PIECE_ELEMENTS))
        seed, draw = (k.let(Leaf(ins[0]).at(k, At((j,)))) for j in (0, 1))
        with k.loop(piece * SAMPLED_PIECE_ELEMENTS, minimum(piece * SAMPLED_PIECE_ELEMENTS + SAMPLED_PIECE_ELEMENTS, n)) as i:
            at = At(tuple(unflatten(k, i, out.shape)))
            values = [k.let(cast(p.at(k, at), float64)) for p in parameters]
            flat = k.let(cast(i, uint64))

            def words(r: Expr | int) -> list[Expr]:
                turn = cast(as_expr(r) + 1, uint64) << (32 + numerics.COUNTER_FREE_BIT)
                halves = [cast(e, uint32) for w in (flat | turn, draw, seed) for e in (w, w >> 32)]
                return [k.let(w) for w in philox(halves[:4], halves[4:])]

            store_at(k, out, at, cast(sample(k, words, values), out.dtype))
        lo.launch(k)

    op.no_vjp("a sample of this kind is no smooth function of its parameters that is known here")


@primitive
def random_gamma(key: Tensor, shape: Tensor) -> Tensor:
    """Gamma distributed numbers of shape parameters > 0 and scale 1, by G. Marsaglia and W. Tsang's "A simple method for generating
    gamma variables" (2000); at least 2^-126. NaN where the parameter is not positive and finite. `key`: uint64 (seed, number of
    the draw)."""


def _gamma(k: KernelBuilder, words: Words, values: Sequence[Expr]) -> Expr:
    (a,) = values
    small = a < 1.0
    d = k.let(select(small, a + 1.0, a) - 1 / 3)
    c = k.let(1.0 / unary("sqrt", d * 9.0))
    found, open_ = k.var(d, float64), k.var(const(True, bool_), bool_)
    with k.loop(0, numerics.GAMMA_ROUNDS) as r, k.if_(open_.value):
        w = words(r)
        z = k.let(unary("sqrt", call("log", uniform(w[0])) * -2.0) * call("cos", uniform(w[1]) * (2 * math.pi)))
        root = k.let(z * c + 1.0)
        v = k.let(root * root * root)
        log_v = call("log", maximum(v, 1e-300))
        fits = (root > 0.0) & (call("log", uniform(w[2])) < z * z * 0.5 + d - d * v + d * log_v)
        with k.if_(fits):
            found.set(d * v)
            open_.set(const(False, bool_))
    power = call("exp", call("log", uniform(words(numerics.GAMMA_ROUNDS)[0])) / a)
    x = maximum(select(small, found.value * power, found.value), 2.0**-126)
    return select((a > 0.0) & (a < math.inf), x, const(math.nan, float64))


@primitive
def random_poisson(key: Tensor, rate: Tensor) -> Tensor:
    """Poisson distributed whole numbers, in the parameters' dtype: below a rate of 10 by search in the distribution function with a uniform
    number of 53 bits, beyond by W. Hormann's rejection PTRS (1993). NaN where the rate is negative or not finite. `key`: uint64
    (seed, number of the draw)."""


def _poisson(k: KernelBuilder, words: Words, values: Sequence[Expr]) -> Expr:
    (mean,) = values
    found, open_ = k.var(unary("floor", mean), float64), k.var(const(True, bool_), bool_)
    with k.if_(mean < numerics.SEARCHED_MEAN):
        first = call("exp", -mean)
        _search(k, words, found, first, lambda i: mean / i)
    with k.else_():
        log_mean = k.let(call("log", mean))
        b = k.let(unary("sqrt", mean) * 2.53 + 0.931)
        a = k.let(b * 0.02483 - 0.059)
        log_height = k.let(call("log", 1.1328 / (b - 3.4) + 1.1239))
        tight = k.let(0.9277 - 3.6224 / (b - 2.0))
        with k.loop(0, numerics.COUNT_ROUNDS) as r, k.if_(open_.value):
            u, v, edge = _pair(k, words(r))
            i = k.let(unary("floor", (a * 2.0 / edge + b) * u + mean + 0.43))
            log_density = i * log_mean - mean - call("lgamma", maximum(i, 0.0) + 1.0)
            inside = call("log", v) + log_height - call("log", a / (edge * edge) + b) <= log_density
            fits = ((edge >= 0.07) & (v <= tight)) | ((i >= 0.0) & ((edge >= 0.013) | (v <= edge)) & inside)
            with k.if_(fits):
                found.set(i)
                open_.set(const(False, bool_))
    return select((mean >= 0.0) & (mean < math.inf), found.value, const(math.nan, float64))


def _pair(k: KernelBuilder, w: Sequence[Expr]) -> tuple[Expr, Expr, Expr]:
    """u in (-1/2, 1/2), v in (0, 1), and how far u is from its ends."""
    u, v = k.let(uniform(w[0]) - 0.5), k.let(uniform(w[1]))
    return u, v, k.let(0.5 - abs(u))


def _search(k: KernelBuilder, words: Words, found, first: Expr, ratio: Callable[[Expr], Expr]) -> None:
    """The first outcome at which the distribution function is as large as a uniform number; ratio(i): of the probabilities of i and
    i - 1."""
    w = words(0)
    u = k.let(fine_uniform(w[0], w[1]))
    p = k.var(first, float64)
    below = k.var(p.value, float64)
    found.set(const(0.0, float64))
    with k.loop(1, numerics.SEARCHED_OUTCOMES) as n, k.if_(u > below.value):
        i = k.let(cast(n, float64))
        p.set(p.value * ratio(i))
        below.set(below.value + p.value)
        found.set(i)


@primitive
def random_binomial(key: Tensor, count: Tensor, probability: Tensor) -> Tensor:
    """Binomially distributed whole numbers, in the parameters' dtype: below a mean of 10 by search in the distribution function with a uniform
    number of 53 bits, beyond by W. Hormann's rejection BTRS (1993). NaN unless count >= 0 is whole and 0 <= probability <= 1.
    `key`: uint64 (seed, number of the draw)."""


def _binomial(k: KernelBuilder, words: Words, values: Sequence[Expr]) -> Expr:
    n, p_given = values
    p = k.let(minimum(p_given, 1.0 - p_given))  # the rarer of both outcomes is counted
    q = k.let(1.0 - p)
    mean, odds = k.let(n * p), k.let(p / q)
    found, open_ = k.var(unary("floor", mean), float64), k.var(const(True, bool_), bool_)
    with k.if_(mean < numerics.SEARCHED_MEAN):
        first = call("exp", n * call("log1p", -p))
        _search(k, words, found, first, lambda i: odds * maximum(n - i + 1.0, 0.0) / i)
    with k.else_():
        log_odds = k.let(call("log", odds))
        width = k.let(unary("sqrt", mean * q))
        b = k.let(width * 2.53 + 1.15)
        a = k.let(b * 0.0248 - 0.0873 + p * 0.01)
        tight, height = k.let(0.92 - 4.2 / b), k.let((5.1 / b + 2.83) * width)
        mode = k.let(unary("floor", (n + 1.0) * p))
        log_mode = k.let(call("lgamma", mode + 1.0) + call("lgamma", n - mode + 1.0))
        with k.loop(0, numerics.COUNT_ROUNDS) as r, k.if_(open_.value):
            u, v, edge = _pair(k, words(r))
            i = k.let(unary("floor", (a * 2.0 / edge + b) * u + mean + 0.5))
            there = k.let((i >= 0.0) & (i <= n))
            j = k.let(minimum(maximum(i, 0.0), n))
            log_density = log_mode - call("lgamma", j + 1.0) - call("lgamma", n - j + 1.0) + (j - mode) * log_odds
            inside = call("log", v * height / (a / (edge * edge) + b)) <= log_density
            with k.if_(there & (((edge >= 0.07) & (v <= tight)) | inside)):
                found.set(i)
                open_.set(const(False, bool_))
    counted = minimum(found.value, n)
    x = select(p_given > 0.5, n - counted, counted)
    valid = (n >= 0.0) & (n < math.inf) & equal(n, unary("floor", n)) & (p_given >= 0.0) & (p_given <= 1.0)
    return select(valid, x, const(math.nan, float64))


_sampler(random_gamma, _gamma)
_sampler(random_poisson, _poisson)
_sampler(random_binomial, _binomial)

# ---- the same in NumPy, for the tests: all elements at once, round by round ------------------------------------------------


def reference_words(key, n: int, r: int) -> list[np.ndarray]:
    """Philox in NumPy's integers: four words of each element in round r."""
    i = np.arange(n, dtype=np.uint64) | np.uint64((r + 1) << (32 + numerics.COUNTER_FREE_BIT))
    mask, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    seed, draw = (int(v) for v in key)
    c = [i & mask, i >> half, np.full(n, draw & 0xFFFFFFFF, np.uint64), np.full(n, draw >> 32, np.uint64)]
    for t in range(10):
        k = [np.uint64(((seed >> 32 * j) + t * numerics.PHILOX_KEY_STEPS[j]) & 0xFFFFFFFF) for j in (0, 1)]
        p, q = c[0] * np.uint64(numerics.PHILOX_MULTIPLIERS[0]), c[2] * np.uint64(numerics.PHILOX_MULTIPLIERS[1])
        c = [(q >> half) ^ c[1] ^ k[0], q & mask, (p >> half) ^ c[3] ^ k[1], p & mask]
    return c


def _np_uniform(w):
    return (w + 0.5) * 2.0**-32


def _np_accept(n, rounds, centre, propose):
    """propose(r) -> (values, whether they are accepted)."""
    found, open_ = np.array(centre, np.float64), np.ones(n, bool)
    for r in range(rounds):
        x, fits = propose(r)
        found[open_ & fits] = x[open_ & fits]
        open_ &= ~fits
    return found


def _np_gamma(key, shape):
    a = np.asarray(shape, np.float64).ravel()
    d = np.where(a < 1, a + 1, a) - 1 / 3

    def propose(r):
        w = [_np_uniform(x) for x in reference_words(key, a.size, r)]
        z = np.sqrt(-2 * np.log(w[0])) * np.cos(2 * np.pi * w[1])
        v = (1 + z / np.sqrt(9 * d)) ** 3
        return d * v, (v > 0) & (np.log(w[2]) < z**2 / 2 + d - d * v + d * np.log(np.maximum(v, 1e-300)))

    x = _np_accept(a.size, numerics.GAMMA_ROUNDS, d, propose)
    last = _np_uniform(reference_words(key, a.size, numerics.GAMMA_ROUNDS)[0])
    return np.where(a < 1, x * last ** (1 / a), x).reshape(np.shape(shape))


def _log_gamma(x):
    return np.vectorize(math.lgamma, otypes=[float])(x)


def _np_searched(key, probabilities):
    """The first outcome whose distribution function reaches a uniform number; probabilities: (outcomes, elements)."""
    w = reference_words(key, probabilities.shape[1], 0)
    u = (((w[0] << np.uint64(20)) | (w[1] >> np.uint64(12))) + 0.5) * 2.0**-52
    return (np.cumsum(probabilities, 0) < u).sum(0)


def _np_poisson(key, rate):
    mean = np.asarray(rate, np.float64).ravel()
    i = np.arange(numerics.SEARCHED_OUTCOMES)[:, None]
    searched = _np_searched(key, np.exp(i * np.log(np.maximum(mean, 1e-300)) - mean - _log_gamma(i + 1)))
    b = 0.931 + 2.53 * np.sqrt(mean)
    a = -0.059 + 0.02483 * b

    def propose(r):
        w = [_np_uniform(x) for x in reference_words(key, mean.size, r)]
        u, v = w[0] - 0.5, w[1]
        edge = 0.5 - np.abs(u)
        k = np.floor((2 * a / edge + b) * u + mean + 0.43)
        log_density = k * np.log(np.maximum(mean, 1e-300)) - mean - _log_gamma(np.maximum(k, 0) + 1)
        inside = np.log(v) + np.log(np.abs(1.1239 + 1.1328 / (b - 3.4))) - np.log(a / edge**2 + b) <= log_density
        quick = (edge >= 0.07) & (v <= 0.9277 - 3.6224 / (b - 2))
        return k, quick | ((k >= 0) & ~((edge < 0.013) & (v > edge)) & inside)

    with np.errstate(all="ignore"):
        found = _np_accept(mean.size, numerics.COUNT_ROUNDS, np.floor(mean), propose)
    return np.where(mean < numerics.SEARCHED_MEAN, searched, found).reshape(np.shape(rate))


def _np_binomial(key, count, probability):
    n, given = (x.astype(np.float64).ravel() for x in np.broadcast_arrays(count, probability))
    p = np.minimum(given, 1 - given)
    i = np.arange(numerics.SEARCHED_OUTCOMES)[:, None]

    def log_density(k):
        k = np.clip(k, 0, n)
        return _log_gamma(n + 1) - _log_gamma(k + 1) - _log_gamma(n - k + 1) + k * np.log(p) + (n - k) * np.log1p(-p)

    searched = _np_searched(key, np.where(i <= n, np.exp(log_density(np.minimum(i, n))), 0))
    width = np.sqrt(n * p * (1 - p))
    b = 1.15 + 2.53 * width
    a = -0.0873 + 0.0248 * b + 0.01 * p
    mode = np.floor((n + 1) * p)

    def propose(r):
        w = [_np_uniform(x) for x in reference_words(key, n.size, r)]
        u, v = w[0] - 0.5, w[1]
        edge = 0.5 - np.abs(u)
        k = np.floor((2 * a / edge + b) * u + n * p + 0.5)
        inside = np.log(v * (2.83 + 5.1 / b) * width / (a / edge**2 + b)) <= log_density(k) - log_density(mode)
        return k, (k >= 0) & (k <= n) & (((edge >= 0.07) & (v <= 0.92 - 4.2 / b)) | inside)

    with np.errstate(all="ignore"):
        found = _np_accept(n.size, numerics.COUNT_ROUNDS, np.floor(n * p), propose)
    found = np.where(n * p < numerics.SEARCHED_MEAN, searched, found)
    return np.where(given > 0.5, n - found, found).reshape(np.broadcast_shapes(np.shape(count), np.shape(probability)))


def _key(r):
    return np.array([r.integers(2**40), 3], np.uint64)


random_gamma.reference(_np_gamma)
random_gamma.cases(
    Case(lambda r: (_key(r), r.uniform(1, 9, (3, 7))), grad=False), Case(lambda r: (_key(r), r.uniform(0.25, 1, 9)), grad=False),
    Case(lambda r: (_key(r), np.array([0.5, 1000.0, 2.0**15])), grad=False), Case(lambda r: (_key(r), np.zeros((0, 3))), grad=False),
)  # fmt: skip
random_poisson.reference(_np_poisson)
random_poisson.cases(
    Case(lambda r: (_key(r), r.uniform(0.25, 10, (3, 7))), grad=False), Case(lambda r: (_key(r), r.uniform(10, 200, 9)), grad=False),
    Case(lambda r: (_key(r), np.array([0.0, 1000.0, 2.0**15])), grad=False),
)  # fmt: skip
random_binomial.reference(_np_binomial)
random_binomial.cases(
    Case(lambda r: (_key(r), np.floor(r.uniform(1, 20, (3, 7))), r.uniform(0.05, 0.95, 7)), grad=False),
    Case(lambda r: (_key(r), np.floor(r.uniform(60, 500, 9)), r.uniform(0.3, 0.7, 9)), grad=False),
    Case(lambda r: (_key(r), np.array(4.0), np.array([0.25, 0.5, 0.75])), grad=False),
)  # fmt: skip
