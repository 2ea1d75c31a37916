"""Attention without a matrix of scores: softmax(q k^T) v, chunk by chunk of keys.

    for each piece = (group, some queries t):                               # a query is a lane of a vector
        for chunk of keys s:
            for tile of the piece's queries:
                score[s, t] = scale * (sum over d of k[s, d] * q[t, d]) + mask[t, s]
                M = max(largest[t], score[s, t] for s of the chunk);  ratio[t] = exp(largest[t] - M)
                p[s, t] = exp(score[s, t] - M);                       largest[t] = M
                total[t] = total[t] * ratio[t] + sum over s of p[s, t]
                result[t, e] = result[t, e] * ratio[t] + sum over s of p[s, t] * v[s, e]
        out[t, e] = result[t, e] / total[t];  lse[t] = largest[t] + log(total[t])

Whenever a chunk has a score above the largest so far, sums of earlier chunks are scaled down by `ratio`. So one pass over the
keys is enough. With queries in the lanes, all of softmax is vector arithmetic. A row of the result depends only on its query,
the keys and the values, so its bits do not depend on other rows.

In: queries, keys and values, perhaps a mask, and where the results go. Out: one launch. Sources: Milakov and Gimelshein, arXiv
1805.02867; Dao et al., arXiv 2205.14135.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from tengen.kernels import numerics
from tengen.kernels.attention.blocks import Block, Rows
from tengen.kernels.attention.one_query import one_query
from tengen.kernels.attention.sizes import choose, features_of
from tengen.kernels.attention.tiles import Tiles, weight
from tengen.kernels.lowering import Array, Lowering
from tengen.kernels.pointwise import pointwise
from tengen.kernels.source import Literal
from tengen.loops.builder import Variable
from tengen.loops.lang import LANES, Expr, Index, as_int, call, cast, const, equal, minimum, select

EXPONENTIALS_ABREAST = 8  # exponentials that are computed side by side


def attention(
    lo: Lowering, q: Array, k: Array, v: Array, mask: Array | None, out: Array, lse: Array, scale: float, offset: Index | None,
    name: str = "attention",
) -> None:  # fmt: skip
    """Launches out[g, t] = sum over s of softmax over s of (scale * (sum over d of q[g, t, d] * k[g, s, d]) + mask[g, t, s])
    times v[g, s], and lse[g, t] = the logarithm of the sum of exponentials that softmax divides by.

    Shapes:   q (*G, T, D), k (*G, S, D), v (*G, S, E), mask (*G, T, S), out (*G, T, E), lse (*G, T); D and E are known, strides
              are arbitrary
    Dtypes:   floats; the mask's may be another, or bool: true where a key is seen. Arithmetic is done in out's computing dtype,
              which is also lse's
    Args:
        offset: query t sees the keys 0 .. t + offset; None: all.
    Numerics: scores by fma in the order of d from zero, times scale, plus mask. Chunks of 64 keys in order: with M the largest
        score so far (at least the lowest finite number), p = exp(score - M), r = exp(M before - M), both by `weight`: the sum
        becomes the sum * r, to which the chunk's p, added in order from zero, are added; the result becomes the result * r,
        then fma by fma in order of s. At last it is multiplied by 1 / the sum. Keys that `offset` hides from 32 queries (0..31,
        32..63, and so on) are left out, other hidden ones have p = 0.
        Where no key is seen the result is 0 and lse is inf.
    """
    if any(as_int(d) == 0 for d in lse.shape):
        return
    dt = out.dtype.compute
    if as_int(v.shape[-1]) == 0:  # the log-sum-exp alone, beside one feature that nobody reads
        v, out = lo.temp(v.dtype, (*v.shape[:-1], 1)), lo.temp(out.dtype, (*out.shape[:-1], 1))
        pointwise(lo, [Literal(0, v.dtype)], [v], f"{name}_zero")
    if as_int(q.shape[-2]) == 1:
        return one_query(lo, q, k, v, mask, out, lse, scale, offset, name)
    z = choose(lo, name, q, k, features_of(q, v), dt.size)
    t = Tiles(lo, name, q.shape[:-2], q.shape[-2], z, dt, mask, offset, False)
    w = _Forward(t, t.transposed("queries", q), t.rows("keys", k), t.rows("values", v), scale)
    start, stop = t.rows_seen(k.shape[-2])
    with t.k.loop(start, stop, numerics.CHUNK_ROWS, name="chunk") as c:
        w.chunk(c, t.k.let(minimum(k.shape[-2] - c, numerics.CHUNK_ROWS)))
    w.finish(out, lse)
    lo.launch(t.k)


class _Forward:
    """Writes the forward kernel.

    Attributes:
        queries: the piece's queries, one in each lane. keys, values: the current chunk.
        scores: score[s, t], later p[s, t], of one tile. result: result[t, e]. largest, total: one number for each query.
        ratios: one for each query of a tile.
    """

    def __init__(self, t: Tiles, queries: Block, keys: Rows, values: Rows, scale: float):
        self.t, self.queries, self.keys, self.values, self.scale = t, queries, keys, values, scale
        self.scores, self.result = t.numbers("scores"), t.results("result", values.features)
        self.largest, self.total = t.line("largest", numerics.LEAST_SCORE[t.compute.size]), t.line("total", 0.0)
        self.ratios = t.k.scratch("ratios", t.compute, t.z.wide)

    def chunk(self, start: Expr, n: Expr) -> None:
        """Adds the chunk of n keys from key `start` on to `result` and `total` of each query."""
        t, k = self.t, self.t.k
        t.copy(self.keys, start, n)
        t.copy(self.values, start, n)
        with k.loop(0, t.n, t.z.wide, name="tile") as at:
            first = k.let(t.first + at)
            with k.if_(t.seen(first, start, n)):
                rows = t.rows_of(first, start, n)
                t.by_width(self.score, at, first, start, rows)
                t.accumulate(self.result, self.values, self.scores, at, rows, self.ratios)

    def score(self, tile: tuple[Expr, int], first: Expr, start: Expr, n: Expr) -> None:
        """scores[s, t] = exp(score of key s and query t, less the largest so far), for a tile of queries and n keys.

        Args:
            tile: (its first lane, counted from the block's first; how many vectors it has). first: its first query, counted
                from the group's first. start: the first key.
        """
        t, k, (at, vectors) = self.t, self.t.k, tile
        before = [k.load(self.largest, at + v * LANES, LANES) for v in range(vectors)]
        largest = [k.var(x, name="largest") for x in before]
        t.product(self.keys, self.queries, tile, n, self.scores, self.scale, largest if t.mask is None else ())
        with k.if_(t.hide(self.scores, first, vectors, start, n)):
            for m, x in zip(largest, before):
                m.set(x)
            t.largest(self.scores, 0, n, largest)
        self.weigh(at, n, before, largest)

    def weigh(self, at: Expr, n: Expr, before: Sequence[Expr], largest: Sequence[Variable]) -> None:
        """Replaces the scores of a tile by p = exp(score - largest), and adds them to the totals. ratios = exp(before -
        largest) are the factors by which the sums of earlier chunks are scaled down.

        Args:
            at: the tile's first lane. before, largest: for each of its vectors, the largest scores without and with this chunk.
        """
        t, k, z = self.t, self.t.k, self.t.z
        sums = [k.var(t.zero(), name="sum") for _ in largest]

        def score(at: Expr, v: int) -> Expr:
            return k.let(weight(k.load(self.scores, at, LANES) - largest[v].value))

        def weigh_rows(first: Expr, rows: int) -> None:
            places = [(k.let((first + i) * z.wide + v * LANES), v) for i in range(rows) for v in range(len(largest))]
            ps = k.abreast([partial(score, *place) for place in places])
            for (at, v), p in zip(places, ps):  # scores[row, vector v] = p; sums[v] += p
                k.store(self.scores, at, p)
                sums[v].set(sums[v].value + p)

        abreast = EXPONENTIALS_ABREAST // len(largest)
        whole = k.let(n // abreast * abreast)
        with k.loop(0, whole, abreast, name="row") as j:
            weigh_rows(j, abreast)
        with k.loop(whole, n, name="row") as j:
            weigh_rows(j, 1)
        for v, (x, m, s) in enumerate(zip(before, largest, sums)):  # total[t] = total[t] * ratio[t] + sum of p
            place, r = k.let(at + v * LANES), k.let(weight(x - m.value))
            k.store(self.ratios, v * LANES, r)
            k.store(self.total, place, k.load(self.total, place, LANES) * r + s.value)
            k.store(self.largest, place, m.value)

    def finish(self, out: Array, lse: Array) -> None:
        """Stores out = result / total and lse = largest + log(total) for the piece's queries; 0 and inf where total is 0, that
        is where no key is seen."""
        t, k, z = self.t, self.t.k, self.t.z
        with k.loop(0, z.lanes, LANES) as i:
            total, m = k.load(self.total, i, LANES), k.load(self.largest, i, LANES)
            none = k.let(equal(total, t.zero()))
            k.store(self.largest, i, select(none, const(float("inf"), t.compute, LANES), m + call("log", total)))
            k.store(self.total, i, select(none, t.zero(), const(1, t.compute, LANES) / total))
        t.finish(self.result, out, lambda lane: k.load(self.total, lane))
        dst, there = k.write(lse), t.base(lse, t.first)
        with k.loop(0, t.n, name="lane") as i:
            k.store(dst, there + i * lse.strides[-1], cast(k.load(self.largest, i), lse.dtype))
