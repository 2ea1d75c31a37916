"""Attention of integers of 8 bits: both products by dot products of groups, softmax in float32 between them.

    for each piece = (group, a tile of queries t):                          # a query is a lane of a vector
        for chunk of keys s:
            score[s, t] = sum over d of k[s, d] * q[t, d]                   # int32, exact
            largest[t] = max(largest[t], score[s, t] for s of the chunk)
        for chunk of keys s:
            p[s, t] = rint(255 exp(float32(score[s, t] - largest[t]) * multiplier))      # uint8
            total[t] += sum over s of p[s, t]
            result[t, e] += sum over s of p[s, t] * v[s, e]                 # int32, exact
        out[t, e] = float32(result[t, e]) * (value_scale / float32(total[t]))

The largest score is known before the first p, so all sums are of integers and no order shows in the bits. Scores of as many keys as
scratch memory holds are kept between the two loops; of more keys they are computed twice, chunk by chunk.

Where an instruction multiplies bytes without a sign by bytes with one, keys have 128 added: all scores of a query grow by as much, which
their differences from the largest do not show. Where it multiplies bytes with a sign alone, 128 is taken off each p, and results
begin with 128 times the sum of the values.

In: queries, keys and values as int8. Out: two launches, of which the first packs keys and values into groups of terms.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import or_

from tengen.base.dtype import float32, int32, uint8, uint32
from tengen.kernels import numerics
from tengen.kernels.attention.blocks import vector_index
from tengen.kernels.attention.sizes import MOST_LANE_BLOCK_BYTES, rule
from tengen.kernels.attention.tiles import weight
from tengen.kernels.axes import unflatten
from tengen.kernels.contraction.formats import BIAS_IN_BYTES, DotFormat, dot_format
from tengen.kernels.contraction.groups import widened
from tengen.kernels.lowering import Array, Lowering, product
from tengen.kernels.machine import registers_of
from tengen.kernels.squares import transpose_square
from tengen.loops.builder import as_expr
from tengen.loops.floats import nearest_integer
from tengen.loops.lang import LANES, Expr, Index, as_int, bitcast, cast, cdiv, const, maximum, minimum, select, splat
from tengen.loops.statements import Buffer

CHUNK_KEYS = 256  # keys of a chunk where not all scores are kept
PACKED_KEYS = 64  # keys that a piece of the packing kernel has
MOST_FEATURE_REGISTERS = 4  # registers of features that a tile of results is wide, at most


def attention_int(
    lo: Lowering, q: Array, k: Array, v: Array, multiplier: Array, value_scale: Array, out: Array, name: str = "attention_int"
) -> None:  # fmt: skip
    """Launches out[g, t] = value_scale * (sum over s of p[g, t, s] v[g, s]) / (sum over s of p[g, t, s]); p: see above.

    Shapes:   q (*G, T, D), k (*G, S, D), v (*G, S, E), multiplier and value_scale (), out (*G, T, E); D and E are known, strides are
              arbitrary
    Dtypes:   q, k and v int8; multiplier and value_scale floats, out float32
    Numerics: docs/numerics.md, "Integers that stand for numbers"; without keys the result is 0, and NaN with a multiplier below 0, inf or NaN
    """
    if any(as_int(d) == 0 for d in out.shape):
        return
    scores, results = (dot_format(a, "int32", k.dtype, lo.target) for a in (k.dtype, uint8))
    words = _packed(lo, k, v, scores, results, name)
    _Kernel(lo, name, q, k.shape[-2], words, (scores, results), out).write(multiplier, value_scale)


def _whole(features: int, step: int = LANES) -> int:
    """A number that is rounded up to steps, at least one."""
    return max(-(-features // step), 1) * step


def _packed(lo: Lowering, k: Array, v: Array, scores: DotFormat, results: DotFormat, name: str) -> tuple[Array, Array]:
    """(keys (*G, S, D rounded up to vectors) as the products of scores store them, values as groups of keys (*G, S / group, E rounded up))."""
    groups, keys, (d, e) = k.shape[:-2], k.shape[-2], (as_int(a.shape[-1]) or 0 for a in (k, v))
    group, bits = results.group, results.second.bits
    rows, words = lo.temp(scores.storage, (*groups, keys, _whole(d))), lo.temp(uint32, (*groups, cdiv(keys, group), _whole(e)))
    w = lo.kernel(f"{name}_pack")
    blocks = as_expr(cdiv(keys, PACKED_KEYS))
    piece = w.split(product(groups) * blocks)
    g, first = unflatten(w, w.let(piece // blocks), groups), w.let(piece % blocks * PACKED_KEYS)
    last = w.let(minimum(as_expr(keys), first + PACKED_KEYS))
    at = lambda a, *coords: w.let(as_expr(a.index([*g, *coords])))
    with w.loop(first, last, name="key") as s:
        here, there = at(k, s, 0), at(rows, s, 0)
        for i, count in w.vector_loop(0, d, "d"):
            x = w.load(w.read(k), vector_index(here, i, k.strides[-1]), LANES, count)
            w.store(w.write(rows), there + i, scores.stored(x, k.dtype))
    with w.loop(first, last, group, name="keys") as s:
        there = at(words, s // group, 0)
        some = [at(v, minimum(s + j, last - 1), 0) for j in range(group)]
        for i, count in w.vector_loop(0, e, "e"):
            parts = []
            for j, here in enumerate(some):  # zeros behind the last key
                x = w.load(w.read(v), vector_index(here, i, v.strides[-1]), LANES, count)
                part = widened(cast(x, results.second)) << const(j * bits, uint32)
                parts.append(part if j == 0 else select(splat(s + j < last), part, const(0, uint32, LANES)))
            w.store(w.write(words), there + i, reduce(or_, parts))
    lo.launch(w)
    return rows, words


class _Kernel:
    """Writes the kernel of the products.

    Attributes:
        keys: how many there are. rows, wide, vectors: a register tile of scores has `rows` keys by `wide` queries, which are `vectors` vectors.
        chunk: keys whose scores are kept. held: whether these are all keys.
        queries: the piece's, [group of features, lane]. scores: [key of the chunk, lane]. weights: p in groups, [group of keys, lane].
        result: [lane, feature].
    """

    def __init__(
        self, lo: Lowering, name: str, q: Array, keys: Index, words: tuple[Array, Array], formats: tuple[DotFormat, DotFormat], out: Array
    ):  # fmt: skip
        self.lo, self.out, self.keys = lo, out, as_expr(keys)
        self.key_rows, self.values = words
        self.of_scores, self.of_results = formats
        sizes = rule(as_int(q.shape[-2]), None, 1, int32.size, lo.target)
        # Tiles are whole groups, so that every score of the last group has been written: behind the last key it is that key's.
        self.rows = max(sizes.rows // self.of_results.group, 1) * self.of_results.group
        self.vectors, self.wide = sizes.vectors, sizes.wide
        known = as_int(keys)
        self.held = known is not None and _whole(known, self.rows) * self.wide * int32.size <= MOST_LANE_BLOCK_BYTES
        self.chunk = known or 1 if self.held and known is not None else CHUNK_KEYS
        self.features, self.results = as_int(q.shape[-1]) or 0, _whole(as_int(out.shape[-1]) or 0)
        self.k = k = lo.kernel(name)
        groups, blocks = q.shape[:-2], as_expr(cdiv(q.shape[-2], self.wide))
        piece = k.split(product(groups) * blocks)
        self.g, self.first = unflatten(k, k.let(piece // blocks), groups), k.let(piece % blocks * self.wide)
        self.n = k.let(minimum(as_expr(q.shape[-2]) - self.first, self.wide))
        self.queries = self._queries(q)
        rows = _whole(self.chunk, self.rows)
        self.scores = k.scratch("scores", int32, rows * self.wide)
        self.weights = k.scratch("weights", uint32, rows // self.of_results.group * self.wide)
        self.result = k.scratch("result", int32, self.wide * self.results)

    def write(self, multiplier: Array, value_scale: Array) -> None:
        """Writes the loops, and launches the kernel."""
        k = self.k
        m, by = (k.let(cast(k.load(k.read(a), as_expr(a.index(()))), float32)) for a in (multiplier, value_scale))
        valid = k.let((m >= 0.0) & (m < float("inf")))
        m, by = k.let(select(valid, m, 0.0)), k.let(select(valid, by, float("nan")))
        largest = [k.var(const(-(1 << 31), int32, LANES), name="largest") for _ in range(self.vectors)]
        totals = [k.var(const(0, int32, LANES), name="total") for _ in largest]
        self.begin()
        with k.loop(0, self.keys, self.chunk, name="chunk") as c:
            self.score(c, self._left(c), largest)
        with k.loop(0, self.keys, self.chunk, name="chunk") as c:
            n = self._left(c)
            if not self.held:
                self.score(c, n, [])
            self.weigh(n, [x.value for x in largest], m, totals)
            self.accumulate(c, n)
        self.finish([x.value for x in totals], by)
        self.lo.launch(k)

    def _left(self, chunk: Expr) -> Expr:
        return self.k.let(minimum(self.keys - chunk, self.chunk))

    def _queries(self, q: Array) -> Buffer:
        """The piece's queries, in groups of features; zeros behind the last feature. Lanes behind the last query repeat that."""
        k, f = self.k, self.of_scores
        groups = _whole(self.features, LANES * f.group) // f.group
        rows = k.scratch("query_rows", f.second, LANES * groups * f.group)
        block, src = k.scratch("queries", uint32, groups * self.wide), k.read(q)
        for v in range(self.vectors):
            for i in range(LANES):
                here = k.let(as_expr(q.index([*self.g, self.first + minimum(v * LANES + i, self.n - 1), 0])))
                with k.loop(0, self.features // LANES * LANES, LANES, name="d") as d:
                    k.store(rows, d + i * groups * f.group, cast(k.load(src, vector_index(here, d, q.strides[-1]), LANES), f.second))
                for d in range(self.features // LANES * LANES, groups * f.group, LANES):
                    count = max(self.features - d, 0)
                    x = k.load(src, vector_index(here, d, q.strides[-1]), LANES, const(count)) if count else const(0, q.dtype, LANES)
                    k.store(rows, d + i * groups * f.group, cast(x, f.second))
            with k.loop(0, groups, LANES, name="d") as d:
                read = lambda i, d=d: k.load_group(rows, (d + i * groups) * f.group, LANES)
                write = lambda i, x, d=d, v=v: k.store(block, (d + i) * self.wide + v * LANES, x)
                transpose_square(k, uint32, read, write)
        return block

    def score(self, start: Expr, n: Expr, largest: Sequence) -> None:
        """scores[s, t] = the products of key start + s and query t, for n keys; those behind the last repeat it. largest: variables, which
        become the largest of themselves and the scores."""
        k, f, src = self.k, self.of_scores, self.k.read(self.key_rows)
        pitch, base = self.key_rows.shape[-1], k.let(as_expr(self.key_rows.index([*self.g, start, 0])))
        with k.loop(0, n, self.rows, name="key") as j:
            at = [k.let(base + minimum(j + i, n - 1) * pitch) for i in range(self.rows)]
            acc = [[k.var(const(0, int32, LANES), name="acc") for _ in range(self.vectors)] for _ in at]
            with k.loop(0, -(-self.features // f.group), name="d") as d:
                xs = [k.load(self.queries, d * self.wide + v * LANES, LANES) for v in range(self.vectors)]
                for line, here in zip(acc, at):
                    y = splat(k.load_group(src, here + d * f.group))
                    for a, x in zip(line, xs):
                        a.set(f.multiply_add(y, x, a.value))
            for i, line in enumerate(acc):
                for v, a in enumerate(line):
                    k.store(self.scores, (j + i) * self.wide + v * LANES, a.value)
            for v, m in enumerate(largest):
                m.set(reduce(maximum, [line[v].value for line in acc], m.value))

    def weigh(self, n: Expr, largest: Sequence[Expr], multiplier: Expr, totals: Sequence) -> None:
        """weights = p of the chunk's n keys, in groups, and totals += the sums of what these hold."""
        k, f = self.k, self.of_results
        bits, m = 32 // f.group, splat(multiplier)
        biased, bias = f.biases(uint8), const(BIAS_IN_BYTES, uint32, LANES)

        def p(at: Expr, v: int) -> Expr:
            x = cast(k.load(self.scores, at, LANES) - largest[v], float32) * m
            q = bitcast(nearest_integer(weight(x) * numerics.LARGEST_WEIGHT), uint32)
            return k.let(q)

        with k.loop(0, cdiv(n, f.group), name="keys") as j:
            places = [k.let((j * f.group + i) * self.wide + v * LANES) for v in range(self.vectors) for i in range(f.group)]
            ps = k.abreast([lambda i=i, at=at: p(at, i // f.group) for i, at in enumerate(places)])
            behind = k.let(maximum((j + 1) * f.group - n, 0))  # elements of the group behind the last key
            ones = sum(1 << i * bits for i in range(f.group))
            there = splat(k.let(const(ones, uint32) >> cast(behind * bits, uint32)))
            for v, total in enumerate(totals):
                parts = [x << const(i * bits, uint32) for i, x in enumerate(ps[v * f.group : (v + 1) * f.group])]
                word = k.let(reduce(or_, parts) ^ bias if biased else reduce(or_, parts))
                total.set(f.multiply_add(word, there, total.value))
                k.store(self.weights, j * self.wide + v * LANES, word)

    def begin(self) -> None:
        """result = 0; or 128 times the sum of the values, where 128 is taken off each p."""
        k, f = self.k, self.of_results
        src, base = k.read(self.values), k.let(as_expr(self.values.index([*self.g, 0, 0])))
        with k.loop(0, self.results, LANES, name="e") as e:
            x = k.var(const(0, int32, LANES), name="begin")
            if f.biases(uint8):
                with k.loop(0, cdiv(self.keys, f.group), name="keys") as j:
                    y = k.load(src, base + j * self.results + e, LANES)
                    x.set(f.multiply_add(const(BIAS_IN_BYTES, uint32, LANES), y, x.value))
            with k.loop(0, self.n, name="lane") as i:
                k.store(self.result, i * self.results + e, const(0, int32, LANES) - x.value)

    def accumulate(self, start: Expr, n: Expr) -> None:
        """result[t, e] += the sum over the chunk's keys of p[s, t] * v[s, e]."""
        k, f, src = self.k, self.of_results, self.k.read(self.values)
        base = k.let(as_expr(self.values.index([*self.g, start // f.group, 0])))
        whole = self.results // LANES
        most = min(whole, max(MOST_FEATURE_REGISTERS // registers_of(int32.size, k.target), 1))
        high = 1 << (max(self.rows * self.vectors // most, 1).bit_length() - 1)

        def tile(lane: Expr, e: Expr, across: int) -> None:
            places = [[k.let((lane + i) * self.results + e + v * LANES) for v in range(across)] for i in range(high)]
            acc = [[k.var(k.load(self.result, at, LANES), name="acc") for at in line] for line in places]
            with k.loop(0, cdiv(n, f.group), name="keys") as j:
                there = k.let(base + j * self.results + e)
                xs = [k.load(src, there + v * LANES, LANES) for v in range(across)]
                for i, line in enumerate(acc):
                    y = splat(k.load(self.weights, j * self.wide + lane + i))
                    for a, x in zip(line, xs):
                        a.set(f.multiply_add(y, x, a.value))
            for line, values in zip(places, acc):
                for at, a in zip(line, values):
                    k.store(self.result, at, a.value)

        with k.loop(0, self.n, high, name="lane") as lane:
            with k.loop(0, whole // most * most * LANES, most * LANES, name="e") as e:
                tile(lane, e, most)
            if whole % most:
                tile(lane, const(whole // most * most * LANES), whole % most)

    def finish(self, totals: Sequence[Expr], value_scale: Expr) -> None:
        """Stores the piece's results."""
        k, out = self.k, self.out
        factors = k.scratch("factors", float32, self.wide)
        added = cast(self.keys * 128, int32) if self.of_results.biases(uint8) else 0
        for v, total in enumerate(totals):
            k.store(factors, v * LANES, splat(value_scale) / cast(maximum(total + added, 1), float32))
        dst, start = k.write(out), k.let(as_expr(out.index([*self.g, self.first, 0])))
        with k.loop(0, self.n, name="lane") as i:
            there, by = k.let(start + i * out.strides[-2]), splat(k.load(factors, i))
            for e, count in k.vector_loop(0, as_int(out.shape[-1]) or 0, "e"):
                x = cast(k.load(self.result, i * self.results + e, LANES), float32) * by
                k.store(dst, vector_index(there, e, out.strides[-1]), x, count)
