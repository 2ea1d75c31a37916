"""Attention without a matrix of scores: softmax(q k^T) v, chunk of keys by chunk of keys.

In: queries, keys and values, perhaps a mask, and where the result goes. Out: one launch. A piece is some queries of one group. It
turns its queries so that they lie along the lanes; then all of softmax is arithmetic of vectors, and both products are the
register tile of `microkernel.py` with keys (or features of values) as its rows. For each chunk of keys it makes the scores, takes
them to the running maximum, rescales what it has and adds the chunk's part: Milakov and Gimelshein, arXiv 1805.02867; Dao et al.,
arXiv 2205.14135. Nothing but the query, the keys it sees and their values enters a row, so its bits do not depend on other rows.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

from tengen.base.dtype import bool_
from tengen.kernels.axes import unflatten
from tengen.kernels.lowering import Array, Lowering, product
from tengen.kernels.problem import multiply_add
from tengen.kernels.source import At
from tengen.kernels.tile import Machine, machine
from tengen.loops.builder import as_expr
from tengen.loops.lang import (
    LANES,
    Buffer,
    Expr,
    Index,
    as_int,
    call,
    cast,
    cdiv,
    const,
    equal,
    maximum,
    minimum,
    ramp,
    select,
    splat,
)

KEYS = 64  # of a chunk. Part of the numerics contract: changing it changes bits.
MOST_FEATURES = 1024  # of keys and values together: a piece's memory lies on a thread's stack
BLOCK_BYTES = 48 << 10  # of a piece's queries and results
MOST_QUERIES = 8 * LANES  # of a piece
PIECES = 6  # as many as this are enough to share
LEAST = {2: -65504.0, 4: -3.4028234663852886e38, 8: -1.7976931348623157e308}  # finite numbers, by size of the dtype


@dataclass(frozen=True)
class Sizes:
    """Sizes that change no bit.

    Attributes:
        rows, vectors: of the register tile: keys or features, by vectors of queries. queries: of a piece, whole tiles.
    """

    rows: int
    vectors: int
    queries: int

    @property
    def wide(self) -> int:
        """Queries of a tile."""
        return self.vectors * LANES


def choose(queries: int | None, groups: int | None, features: int, size: int, target: Machine | None) -> Sizes:
    """The sizes for so many queries and groups, where they are known, and elements of `size` bytes."""
    width, registers, _ = machine(target)
    each = max(1, LANES * size // width)
    vectors = 1 if each > 1 or (queries is not None and queries <= LANES) else 2
    most = (registers - vectors * each - 1) // (vectors * each)
    rows = next(r for r in (8, 4, 2, 1) if r <= most or r == 1)  # they divide KEYS
    wide = vectors * LANES
    tiles = max(1, min(MOST_QUERIES, BLOCK_BYTES // (size * max(features, 1))) // wide)
    if queries is not None:
        there = -(-queries // wide)
        blocks = max(-(-there // tiles), min(there, 1 if groups is None else -(-PIECES // max(groups, 1))), 1)
        tiles = -(-there // blocks)
    return Sizes(rows, vectors, max(1, tiles) * wide)


def attention(
    lo: Lowering, q: Array, k: Array, v: Array, mask: Array | None, out: Array, lse: Array, scale: float, offset: Index | None,
    name: str = "attention",
) -> None:  # fmt: skip
    """out[g, t] = the sum over s of softmax over s of (scale * the sum over d of q[g, t, d] * k[g, s, d] + mask[g, t, s]) times
    v[g, s]; lse = the logarithm of the sum that softmax divides by.

    Shapes:   q (*G, T, D), k (*G, S, D), v (*G, S, E), mask (*G, T, S), out (*G, T, E), lse (*G, T); D and E are known, strides
              are arbitrary
    Dtypes:   floats; the mask's may be another, or bool: true where a key is seen. Computed in out's computing dtype, lse too
    Args:
        offset: query t sees keys 0 .. t + offset; None: all.
    Numerics: scores by fma in the order of d from zero, times scale, plus mask. Chunks of 64 keys in order: with M the largest score
        so far (at least the lowest finite number), p = exp(score - M), r = exp(M before - M): the sum becomes the sum * r, to which
        the chunk's p, added in order from zero, are added; the result becomes the result * r, then fma by fma in order of s. At
        last it is multiplied by 1 / the sum. Where no key is seen the result is 0 and lse is inf.
    """
    if any(as_int(d) == 0 for d in out.shape):
        return
    _Attention(lo, q, k, v, mask, out, lse, scale, offset, name).launch()


class _Attention:
    """Writes the kernel."""

    def __init__(self, lo, q: Array, k: Array, v: Array, mask: Array | None, out: Array, lse: Array, scale, offset, name: str):
        self.lo, self.q, self.keys, self.values, self.mask = lo, q, k, v, mask
        self.out, self.lse, self.scale, self.offset, self.name = out, lse, scale, offset, name
        d, e = as_int(q.shape[-1]), as_int(v.shape[-1])
        assert d is not None and e is not None
        self.d, self.e, self.compute = d, e, out.dtype.compute
        self.groups, self.t, self.s = q.shape[:-2], as_expr(q.shape[-2]), as_expr(k.shape[-2])
        size, groups = self.compute.size, as_int(product(self.groups))
        self.z = choose(as_int(self.t), groups, d + e, size, lo.target)
        self.key_pitch, self.value_pitch = (-(-n // LANES) * LANES for n in (d, e))

    def launch(self) -> None:
        """Writes and launches it."""
        z, dt = self.z, self.compute
        k = self.b = self.lo.kernel(self.name)
        self.query_block = k.scratch("queries", dt, max(self.d, 1) * z.queries)
        self.key_block = k.scratch("keys", dt, KEYS * self.key_pitch + LANES)
        self.value_block = k.scratch("values", dt, KEYS * self.value_pitch + LANES)
        self.scores = k.scratch("scores", dt, KEYS * z.wide)
        self.result = k.scratch("result", dt, -(-self.e // z.rows) * z.rows * z.queries)
        self.largest, self.total = k.scratch("largest", dt, z.queries), k.scratch("total", dt, z.queries)
        blocks = as_expr(cdiv(self.t, z.queries))
        piece = k.split(product(self.groups) * blocks)
        self.g = unflatten(k, k.let(piece // blocks), self.groups)
        self.first = k.let(piece % blocks * z.queries)
        self.n = k.let(minimum(self.t - self.first, z.queries))
        self.turn_queries()
        self.begin()
        stop = self.s if self.offset is None else minimum(self.s, maximum(self.first + self.n + self.offset, 0))
        with k.loop(0, k.let(stop), KEYS, name="chunk") as start:
            self.chunk(start, k.let(minimum(self.s - start, KEYS)))
        self.finish()
        self.lo.launch(k)

    # ---- copies

    def base(self, a: Array, coords: list[Index]) -> Expr:
        """Where the rows of `a` begin for this piece's group."""
        return self.b.let(as_expr(a.index([*self.g, *coords])))

    def turn_queries(self) -> None:
        """The piece's queries as [feature, query]; zeros for those that there are not."""
        k, q, z = self.b, self.q, self.z
        src, base = k.read(q), self.base(q, [self.first, 0])
        with k.if_(self.n < z.queries), k.loop(0, self.d * z.queries, LANES) as i:
            k.store(self.query_block, i, const(0, self.compute, LANES))
        with k.loop(0, self.n, name="query") as i:
            here = k.let(base + i * q.strides[-2])
            for d, count in k.vector_loop(0, self.d, "d"):
                if count is None:
                    x = k.load(src, _along(here, d, q.strides[-1]), LANES)
                    k.store(self.query_block, ramp() * z.queries + (d * z.queries + i), cast(x, self.compute))
                else:
                    with k.loop(d, self.d, name="d") as e:
                        x = k.load(src, here + e * q.strides[-1])
                        k.store(self.query_block, e * z.queries + i, cast(x, self.compute))

    def copy_rows(self, a: Array, start: Expr, n: Expr, pitch: int, dst: Buffer) -> None:
        """Rows of keys or values, zeros after the last one."""
        k, width = self.b, as_int(a.shape[-1])
        src, base = k.read(a), self.base(a, [start, 0])
        with k.loop(0, n, name="row") as i:
            here, there = k.let(base + i * a.strides[-2]), k.let(i * pitch)
            for d, count in k.vector_loop(0, width, "d"):
                k.store(dst, there + d, cast(k.load(src, _along(here, d, a.strides[-1]), LANES, count), self.compute))
        with k.if_(n < KEYS), k.loop(n * pitch, KEYS * pitch, LANES) as i:
            k.store(dst, i, const(0, self.compute, LANES))

    # ---- the chunks

    def begin(self) -> None:
        """The state before the first chunk."""
        k, zero = self.b, const(0, self.compute, LANES)
        with k.loop(0, self.result.size, LANES) as i:
            k.store(self.result, i, zero)
        with k.loop(0, self.z.queries, LANES) as i:
            k.store(self.largest, i, const(LEAST[self.compute.size], self.compute, LANES))
            k.store(self.total, i, zero)

    def chunk(self, start: Expr, n: Expr) -> None:
        """Adds `n` keys from `start` on to the state of every query."""
        k, z = self.b, self.z
        self.copy_rows(self.keys, start, n, self.key_pitch, self.key_block)
        self.copy_rows(self.values, start, n, self.value_pitch, self.value_block)
        with k.loop(0, self.n, z.wide, name="query") as at:
            first = k.let(self.first + at)
            with self.seen(first, start):
                self.score(at, n)
                self.hide(first, start, n)
                self.add(at, n, self.weigh(at, n))

    @contextlib.contextmanager
    def seen(self, first: Expr, start: Expr):
        """Runs the block if any of the queries of a tile sees the chunk."""
        if self.offset is None:
            yield
        else:
            with self.b.if_(first + (self.z.wide - 1) + self.offset >= start):
                yield

    def score(self, at: Expr, n: Expr) -> None:
        """The scores of a tile's queries, as [key, query]."""
        k, z = self.b, self.z
        with k.loop(0, n, z.rows, name="key") as j:
            base = k.let(j * self.key_pitch)
            acc = [[k.var(const(0, self.compute, LANES), name="acc") for _ in range(z.vectors)] for _ in range(z.rows)]
            with k.loop(0, self.d, name="d") as d:
                self.multiply(acc, (self.key_block, base + d, self.key_pitch), (self.query_block, d * z.queries + at))
            for r, row in enumerate(acc):
                for v, a in enumerate(row):
                    k.store(self.scores, (j + r) * z.wide + v * LANES, a.value * self.scale)

    def multiply(self, acc: list, rows: tuple[Buffer, Expr, int], vectors: tuple[Buffer, Expr]) -> None:
        """One term of every sum of a tile. `rows`: the buffer, where the first row's number lies, the distance of the others'."""
        k, (buffer, at, pitch) = self.b, rows
        at, there = k.let(at), k.let(vectors[1])
        xs = [k.load(vectors[0], there + v * LANES, LANES) for v in range(self.z.vectors)]
        for r, row in enumerate(acc):
            y = splat(k.load(buffer, at + r * pitch))
            for v, a in enumerate(row):
                a.set(multiply_add(y, xs[v], a.value))

    def hide(self, first: Expr, start: Expr, n: Expr) -> None:
        """Adds the mask, and makes scores of keys that are not seen -inf."""
        k, z, hidden = self.b, self.z, const(float("-inf"), self.compute, LANES)
        if self.mask is not None:
            with k.loop(0, n, name="key") as j:
                for v in range(z.vectors):
                    at, x = k.let(j * z.wide + v * LANES), self.masked(first + v * LANES, start + j)
                    s = k.load(self.scores, at, LANES)
                    k.store(self.scores, at, select(x, s, hidden) if self.mask.dtype is bool_ else s + cast(x, self.compute))
        if self.offset is not None:
            with k.if_(start + n - 1 > first + self.offset), k.loop(0, n, name="key") as j:
                for v in range(z.vectors):
                    at, last = k.let(j * z.wide + v * LANES), k.let(first + self.offset + v * LANES)
                    s = k.load(self.scores, at, LANES)
                    k.store(self.scores, at, select(ramp() + last >= splat(k.let(start + j)), s, hidden))

    def masked(self, first: Index, key: Index) -> Expr:
        """The mask of a vector of queries and one key."""
        k, mask = self.b, self.mask
        assert mask is not None
        first = k.let(as_expr(first))
        left = k.let(maximum(minimum(self.t - first, LANES), 0))
        return splat(At((*self.g, first, key), len(self.g), left).load(k, mask))

    def weigh(self, at: Expr, n: Expr) -> list[Expr]:
        """Makes the scores exponentials, and returns by what the earlier ones are too large."""
        k, z = self.b, self.z
        places = [k.let(at + v * LANES) for v in range(z.vectors)]
        before = [k.load(self.largest, p, LANES) for p in places]
        largest = [k.var(x, name="largest") for x in before]
        with k.loop(0, n, name="key") as j:
            for v, m in enumerate(largest):
                m.set(maximum(m.value, k.load(self.scores, j * z.wide + v * LANES, LANES)))
        ratios = [k.let(call("exp", x - m.value)) for x, m in zip(before, largest)]
        sums = [k.var(const(0, self.compute, LANES), name="sum") for _ in largest]
        with k.loop(0, n, name="key") as j:
            for v, (m, s) in enumerate(zip(largest, sums)):
                here = k.let(j * z.wide + v * LANES)
                p = k.let(call("exp", k.load(self.scores, here, LANES) - m.value))
                k.store(self.scores, here, p)
                s.set(s.value + p)
        for p, m, s, r in zip(places, largest, sums, ratios):
            k.store(self.total, p, k.load(self.total, p, LANES) * r + s.value)
            k.store(self.largest, p, m.value)
        return ratios

    def add(self, at: Expr, n: Expr, ratios: list[Expr]) -> None:
        """Adds the chunk's values, times the exponentials, to the result."""
        k, z = self.b, self.z
        with k.loop(0, self.e, z.rows, name="e") as e:
            places = [[k.let((e + r) * z.queries + at + v * LANES) for v in range(z.vectors)] for r in range(z.rows)]
            acc = [[k.var(k.load(self.result, p, LANES) * x, name="acc") for p, x in zip(row, ratios)] for row in places]
            with k.loop(0, n, name="key") as j:
                self.multiply(acc, (self.value_block, j * self.value_pitch + e, 1), (self.scores, j * z.wide))
            for row, values in zip(places, acc):
                for p, a in zip(row, values):
                    k.store(self.result, p, a.value)

    # ---- the end

    def finish(self) -> None:
        """Divides by the sums, and stores the results of the piece's queries."""
        k, z, zero, one = self.b, self.z, const(0, self.compute, LANES), const(1, self.compute, LANES)
        with k.loop(0, z.queries, LANES) as i:
            total, m = k.load(self.total, i, LANES), k.load(self.largest, i, LANES)
            none = k.let(equal(total, zero))
            k.store(self.largest, i, select(none, const(float("inf"), self.compute, LANES), m + call("log", total)))
            inverse = k.let(select(none, zero, one / total))
            with k.loop(0, self.e, name="e") as e:
                at = k.let(e * z.queries + i)
                k.store(self.result, at, k.load(self.result, at, LANES) * inverse)
        out, lse = k.write(self.out), k.write(self.lse)
        base, there = self.base(self.out, [self.first, 0]), self.base(self.lse, [self.first])
        with k.loop(0, self.n, name="query") as i:
            k.store(lse, there + i * self.lse.strides[-1], cast(k.load(self.largest, i), self.lse.dtype))
            here = k.let(base + i * self.out.strides[-2])
            for e, count in k.vector_loop(0, self.e, "e"):
                if count is None:
                    x = k.load(self.result, ramp() * z.queries + (e * z.queries + i), LANES)
                    k.store(out, _along(here, e, self.out.strides[-1]), cast(x, self.out.dtype))
                else:
                    with k.loop(e, self.e, name="e") as j:
                        x = k.load(self.result, j * z.queries + i)
                        k.store(out, here + j * self.out.strides[-1], cast(x, self.out.dtype))


def _along(base: Expr, i: Index, stride: Index) -> Expr:
    """The index of LANES elements, from the i-th on."""
    return base + i if as_int(stride) == 1 else ramp() * stride + (base + i * stride)
