"""Attention of one query, as when a text is continued from a cache of keys and values: the lanes of vectors are keys.

    for each piece = group:
        for chunk of keys s:
            for LANES keys:                                                        # squares of them are transposed in registers
                score[s] = scale * (sum over d of q[d] * block[s, d]) + mask[s];   other block = the next LANES keys
            M = max(largest, score[s] for s of the chunk);  ratio = exp(largest - M)
            p[s] = exp(score[s] - M);                       largest = M
            total = total * ratio + sum over s of p[s]
            result[e] = result[e] * ratio + sum over s of p[s] * v[s, e]
        out[e] = result[e] / total;  lse = largest + log(total)

The kernel in `forward.py` has a query in each lane, of which one query would fill a single one. The sums are the same, term by term in
the same order, and so are all bits. Keys and values are read once, so the time is that of reading them, and a processor reads ahead
where addresses follow each other. Values are read so; a square of keys has a part of each row. So the next keys are copied row by row
while those that are there are transposed. (Requests by `prefetch` instead are as few at a time as a core has buffers for: slower.) The values
of the same keys are requested meanwhile: those of a head are too few for the processor to be ahead of the sums that they are added to.
"""

from __future__ import annotations

from tengen.base.dtype import DType, bool_
from tengen.kernels import numerics
from tengen.kernels.attention.blocks import vector_index
from tengen.kernels.attention.tiles import larger, weight
from tengen.kernels.axes import unflatten
from tengen.kernels.contraction.problem import multiply_add
from tengen.kernels.lowering import Array, Lowering, product
from tengen.kernels.machine import machine, registers_of
from tengen.kernels.source import At
from tengen.kernels.squares import transpose_square
from tengen.loops.builder import as_expr
from tengen.loops.lang import (
    LANES,
    Expr,
    Index,
    as_int,
    call,
    cast,
    const,
    equal,
    fold,
    lane,
    maximum,
    minimum,
    ramp,
    select,
    splat,
)

CHUNK = numerics.CHUNK_ROWS
MOST_VECTORS = 8  # vectors of features whose sums are kept in registers together, at most


def one_query(
    lo: Lowering, q: Array, k: Array, v: Array, mask: Array | None, out: Array, lse: Array, scale: float, offset: Index | None, name: str
) -> None:  # fmt: skip
    """Launches `forward.attention` of one query; arguments and numerics as there."""
    w = _OneQuery(lo, (q, k, v), mask, scale, offset, out.dtype.compute, name)
    keys = as_expr(k.shape[-2])
    # of keys that the offset hides, those that a group of queries beside this one would see have weight 0; others are left out
    stop = keys if offset is None else w.k.let(minimum(keys, maximum(as_expr(numerics.GROUP_LANES + offset), 0)))
    w.first_block(stop)
    with w.k.loop(0, stop, CHUNK, name="chunk") as c:
        w.chunk(c, w.k.let(minimum(stop - c, CHUNK)), stop)
    w.finish(out, lse)
    lo.launch(w.k)


class _OneQuery:
    """Writes the kernel.

    Attributes:
        query: its features. scores: score[s], later p[s], of the chunk. result: result[e]; all in scratch memory, rounded up to whole vectors.
        blocks: LANES keys that are transposed, and the next ones, which are copied meanwhile. block: where in there the former lie.
        largest, total: the same number in all lanes.
    """

    def __init__(
        self,
        lo: Lowering,
        qkv: tuple[Array, Array, Array],
        mask: Array | None,
        scale: float,
        offset: Index | None,
        dt: DType,
        name: str,
    ):
        self.k, self.keys, self.values, self.mask = lo.kernel(name), qkv[1], qkv[2], mask
        self.scale, self.offset, self.dt = scale, offset, dt
        k, groups = self.k, qkv[0].shape[:-2]
        self.g = unflatten(k, k.split(product(groups)), groups)
        self.features, self.results = (as_int(a.shape[-1]) or 0 for a in qkv[1:])
        self.query = k.scratch("query", dt, self._whole(self.features))
        self.scores = k.scratch("scores", dt, CHUNK)
        self.result = k.scratch("result", dt, self._whole(self.results))
        self.wide = self._whole(self.features)  # numbers from a row of a block to the next
        self.blocks, self.block = k.scratch("blocks", dt, 2 * LANES * self.wide), k.var(const(0), name="block")
        src, at = k.read(qkv[0]), self._base(qkv[0], 0)
        for i, count in k.vector_loop(0, self.features, "d"):
            x = k.load(src, vector_index(at, i, qkv[0].strides[-1]), LANES, count)
            k.store(self.query, i, cast(x, dt))
        with k.loop(0, self._whole(self.results), LANES) as i:
            k.store(self.result, i, self._all(0.0))
        self.largest, self.total = (
            k.var(self._all(x), name=n) for x, n in ((numerics.LEAST_SCORE[dt.size], "largest"), (0.0, "total"))
        )

    def _whole(self, features: int) -> int:
        return max(-(-features // LANES), 1) * LANES

    def _all(self, x: float) -> Expr:
        return const(x, self.dt, LANES)

    def _base(self, a: Array, row: Index) -> Expr:
        """The index of the first feature of a row in the piece's group."""
        return self.k.let(as_expr(a.index([*self.g, row, 0])))

    def first_block(self, stop: Expr) -> None:
        """Copies the first keys of those before `stop`, if there are any; past the last of them, that one again."""
        k, a = self.k, self.keys
        base = self._base(a, 0)
        with k.loop(0, select(stop > 0, const(LANES), const(0)), name="row") as i:
            row = k.let(base + minimum(i, stop - 1) * a.strides[-2])
            for d, count in k.vector_loop(0, self.features, "d"):
                self._copy(i * self.wide + d, row, d, count)

    def _copy(self, to: Index, row: Expr, d: Index, count: Expr | None) -> None:
        """Copies LANES features from feature d on of the row that lies at index `row`."""
        x = self.k.load(self.k.read(self.keys), vector_index(row, d, self.keys.strides[-1]), LANES, count)
        self.k.store(self.blocks, to, cast(x, self.dt))

    def chunk(self, start: Expr, n: Expr, stop: Expr) -> None:
        """Adds the chunk of n keys from key `start` on, of those before `stop`, to the result and the total."""
        k = self.k
        hidden = self._all(float("-inf"))
        largest = k.var(self.largest.value, name="most")
        with k.loop(0, n, LANES, name="row") as i:
            x = self._masked(k.let(self._score(k.let(start + i + LANES), stop) * self.scale), k.let(start + i))
            x = k.let(select(ramp() + i < splat(n), x, hidden))
            k.store(self.scores, i, x)
            largest.set(larger(largest.value, x))
        m = k.let(splat(fold("max", largest.value)))
        ratio = k.let(weight(self.largest.value - m))
        self.largest.set(m)
        with k.loop(0, n, LANES, name="row") as i:
            k.store(self.scores, i, weight(k.load(self.scores, i, LANES) - m))
        total = k.var(const(0.0, self.dt), name="sum")
        with k.loop(0, n, name="row") as i:
            total.set(total.value + k.load(self.scores, i))
        self.total.set(self.total.value * ratio + splat(total.value))
        self._accumulate(start, n, ratio)

    def _score(self, following: Expr, stop: Expr) -> Expr:
        """The sums over d of q[d] * k[s, d] for the keys of the block, while the next one gets those from `following` on; past the last
        of those before `stop`, that one again."""
        k, a, here = self.k, self.keys, self.block.value
        score, there = k.var(self._all(0.0), name="score"), k.let(LANES * self.wide - here)
        base, vectors, values = self._base(a, 0), self.wide // LANES, self._base(self.values, 0)
        by_rows = self.features == self.wide and LANES % vectors == 0  # whole rows are copied while a square is transposed

        def squares(d: Index, count: Expr | None) -> None:
            def read(i: Index) -> Expr:
                """Row i of the square; and LANES numbers are copied, of all that a block has one after the other if that is possible."""
                row, to = (d // vectors + i // vectors, i % vectors * LANES) if by_rows else (i, d)
                self._copy(there + row * self.wide + to, k.let(base + minimum(following + row, stop - 1) * a.strides[-2]), to, count)
                if by_rows and self.results == self.features:
                    k.prefetch(k.read(self.values), k.let(values + (following - LANES + row) * self.values.strides[-2] + to))
                return k.load(self.blocks, here + i * self.wide + d, LANES)

            def add(j: Index, column: Expr) -> None:
                score.set(multiply_add(column, splat(k.load(self.query, d + j)), score.value))

            transpose_square(k, self.dt, read, add)

        for d, count in k.vector_loop(0, self.features, "d"):
            squares(d, count)
        self.block.set(there)
        return score.value

    def _masked(self, score: Expr, key: Expr) -> Expr:
        """The scores of the LANES keys from `key` on with the mask, -inf for those that are not seen."""
        hidden = self._all(float("-inf"))
        if self.mask is not None:
            left = self.k.let(minimum(self.keys.shape[-2] - key, LANES))
            x = splat(At((*self.g, const(0), key), len(self.g) + 1, left).load(self.k, self.mask))
            score = select(x, score, hidden) if self.mask.dtype is bool_ else score + cast(x, self.dt)
        if self.offset is not None:
            score = select(ramp() + key <= splat(as_expr(self.offset)), score, hidden)
        return score

    def _accumulate(self, start: Expr, n: Expr, ratio: Expr) -> None:
        """result[e] = result[e] * ratio + sum over the chunk's keys of p[s] * v[s, e]."""
        k, a = self.k, self.values
        src, base = k.read(a), self._base(a, start)
        registers = machine(k.target)[1] // registers_of(self.dt.size, k.target)
        most = max(1, min(MOST_VECTORS, registers // 2))
        whole, rest = divmod(self.results, LANES)

        def add(first: Index, counts: list[Expr | None]) -> None:
            sums = [k.var(k.load(self.result, first + e * LANES, LANES) * ratio, name="acc") for e in range(len(counts))]
            with k.loop(0, n, name="row") as i:
                p, at = k.let(splat(k.load(self.scores, i))), k.let(base + i * a.strides[-2])
                for e, (acc, count) in enumerate(zip(sums, counts)):
                    x = k.load(src, vector_index(at, first + e * LANES, a.strides[-1]), LANES, count)
                    acc.set(multiply_add(p, cast(x, self.dt), acc.value))
            for e, acc in enumerate(sums):
                k.store(self.result, first + e * LANES, acc.value)

        with k.loop(0, whole // most * most * LANES, most * LANES, name="e") as e:
            add(e, [None] * most)
        if left := [None] * (whole % most) + ([const(rest)] if rest else []):
            add(const(whole // most * most * LANES), left)

    def finish(self, out: Array, lse: Array) -> None:
        """Stores result / total and largest + log(total); 0 and inf where total is 0, that is where no key is seen."""
        k, total = self.k, self.total.value
        none = k.let(equal(total, self._all(0.0)))
        sums = k.let(select(none, self._all(float("inf")), self.largest.value + call("log", total)))
        by = k.let(select(none, self._all(0.0), self._all(1.0) / total))
        dst, at = k.write(out), self._base(out, 0)
        for e, count in k.vector_loop(0, self.results, "e"):
            k.store(dst, vector_index(at, e, out.strides[-1]), cast(k.load(self.result, e, LANES) * by, out.dtype), count)
        k.store(k.write(lse), k.let(as_expr(lse.index([*self.g, 0]))), cast(lane(sums, 0), lse.dtype))
