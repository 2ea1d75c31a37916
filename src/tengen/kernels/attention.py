"""Attention without a matrix of scores: softmax(q k^T) v and its gradients, chunk by chunk.

In: queries, keys and values, perhaps a mask, and where the results go. Out: one launch, or three for the gradients. The forward
kernel has queries along the lanes, so that all of softmax is arithmetic of vectors; for each chunk of keys it makes the scores,
takes them to the running maximum, rescales what it has and adds the chunk's part: Milakov and Gimelshein, arXiv 1805.02867;
Dao et al., arXiv 2205.14135. Gradients make the softmax again from the saved log-sum-exp: one kernel with queries along the lanes, one
with keys; or, where there are groups enough for all threads, one kernel with keys along the lanes, that goes through all keys of a
group in order and keeps the gradient of its queries in memory. That is five products instead of seven. Nothing but the query, the
keys and their values enters a row of the result: its bits do not depend on other rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from tengen.base.dtype import DType
from tengen.kernels.attention_tiles import GROUP, ROWS, Block, Rows, Tiles, choose, in_one_pass, weight
from tengen.kernels.lowering import Array, Lowering
from tengen.kernels.pointwise import pointwise
from tengen.kernels.reduce import reduce
from tengen.kernels.source import Elementwise, Leaf, Literal
from tengen.loops.builder import Variable
from tengen.loops.lang import LANES, Expr, Index, as_int, call, cast, const, equal, minimum, select, splat

MOST_FEATURES = 1024  # of keys and values together: a piece's memory lies on a thread's stack
ABREAST = 8  # exponentials that are made side by side
LEAST = {2: -65504.0, 4: -3.4028234663852886e38, 8: -1.7976931348623157e308}  # finite numbers, by size of the dtype


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
    Numerics: scores by fma in the order of d from zero, times scale, plus mask. Chunks of 64 keys in order: with M the largest
        score so far (at least the lowest finite number), p = exp(score - M), r = exp(M before - M), both by `weight`: the sum
        becomes the sum * r, to which the chunk's p, added in order from zero, are added; the result becomes the result * r, then
        fma by fma in order of s. At last it is multiplied by 1 / the sum. Keys that `offset` hides from 32 queries (0..31, 32..63,
        and so on) are left out, other hidden ones have p = 0.
        Where no key is seen the result is 0 and lse is inf.
    """
    if any(as_int(d) == 0 for d in lse.shape):
        return
    dt = out.dtype.compute
    if as_int(v.shape[-1]) == 0:  # the log-sum-exp alone, beside one feature that nobody reads
        v, out = lo.temp(v.dtype, (*v.shape[:-1], 1)), lo.temp(out.dtype, (*out.shape[:-1], 1))
        pointwise(lo, [Literal(0, v.dtype)], [v], f"{name}_zero")
    z = choose(lo, name, q, k, _features(q, v), dt.size)
    t = Tiles(lo, name, q.shape[:-2], q.shape[-2], z, dt, mask, offset, False)
    w = _Forward(t, t.turned("queries", q), t.rows("keys", k), t.rows("values", v), scale)
    start, stop = t.rows_seen(k.shape[-2])
    with t.k.loop(start, stop, ROWS, name="chunk") as c:
        w.chunk(c, t.k.let(minimum(k.shape[-2] - c, ROWS)))
    w.finish(out, lse)
    lo.launch(t.k)


def _features(*arrays: Array) -> int:
    return sum(as_int(a.shape[-1]) or 0 for a in arrays)


class _Forward:
    """Writes the forward kernel."""

    def __init__(self, t: Tiles, queries: Block, keys: Rows, values: Rows, scale: float):
        self.t, self.queries, self.keys, self.values, self.scale = t, queries, keys, values, scale
        self.scores, self.result = t.numbers("scores"), t.results("result", values.features)
        self.largest, self.total = t.line("largest", LEAST[t.compute.size]), t.line("total", 0.0)
        self.ratios = t.k.scratch("ratios", t.compute, t.z.wide)

    def chunk(self, start: Expr, n: Expr) -> None:
        """Adds `n` keys from `start` on to the state of every query."""
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
        """The exponentials of a tile, whose first lane is the query `first`, and `n` keys."""
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
        """Makes the scores exponentials, and `ratios` by what the earlier ones are too large."""
        t, k, z = self.t, self.t.k, self.t.z
        sums = [k.var(t.zero(), name="sum") for _ in largest]

        def score(at: Expr, v: int) -> Expr:
            return k.let(weight(k.load(self.scores, at, LANES) - largest[v].value))

        def make(first: Expr, rows: int) -> None:
            places = [(k.let((first + i) * z.wide + v * LANES), v) for i in range(rows) for v in range(len(largest))]
            ps = k.abreast([partial(score, *place) for place in places])
            for (at, v), p in zip(places, ps):
                k.store(self.scores, at, p)
                sums[v].set(sums[v].value + p)

        abreast = ABREAST // len(largest)
        whole = k.let(n // abreast * abreast)
        with k.loop(0, whole, abreast, name="row") as j:
            make(j, abreast)
        with k.loop(whole, n, name="row") as j:
            make(j, 1)
        for v, (x, m, s) in enumerate(zip(before, largest, sums)):
            place, r = k.let(at + v * LANES), k.let(weight(x - m.value))
            k.store(self.ratios, v * LANES, r)
            k.store(self.total, place, k.load(self.total, place, LANES) * r + s.value)
            k.store(self.largest, place, m.value)

    def finish(self, out: Array, lse: Array) -> None:
        """Divides by the sums, and stores the results of the piece's queries."""
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


# ---- gradients --------------------------------------------------------------------------------------------------------------


def attention_grad(
    lo: Lowering, grad: Array, grad_lse: Array | None, inputs: Sequence[Array], mask: Array | None, out: Array, lse: Array,
    grads: Sequence[Array], scale: float, offset: Index | None, name: str = "attention_grad",
) -> None:  # fmt: skip
    """The gradients of `attention`.

    Args:
        grad, grad_lse: of out and lse. inputs: q, k, v. grads: where theirs go, (*G, T, D), (*G, S, D) and (*G, S, E).
        out, lse: what `attention` gave. mask, scale, offset: its.
    Numerics: with p = exp(score - lse), w = the sum over e of grad * out, less grad_lse, c = p * (the sum over e of grad * v,
        by fma in order from zero, less w): the gradient of q is scale times the sum over s of c * k, that of k scale times the
        sum over t of c * q, that of v the sum over t of p * grad, by fma in order from zero. One kernel of whole groups makes all
        three from the same p and c, where there are enough groups; else queries have a kernel, and keys and values another.
    """
    q, k, v = inputs
    dq, dk, dv = grads
    along = _along_result(lo, grad, grad_lse, out, lse, out.dtype.compute, name)
    how = lo, (q, k, v, grad), mask, lse, along, scale, offset, name
    if in_one_pass(q.shape[:-2]) and not any(as_int(d) == 0 for d in (*q.shape, *k.shape[:-1])):
        return _launch_backward(*how, (dk, dv, dq), True, True)
    for keys, found in ((False, (dq,)), (True, (dk, dv))):
        if not any(as_int(d) == 0 for d in found[0].shape[:-1]):
            _launch_backward(*how, found, keys, False)


def _launch_backward(
    lo: Lowering, arrays: Sequence[Array], mask: Array | None, lse: Array, along: Array, scale: float, offset: Index | None,
    name: str, found: Sequence[Array], keys: bool, whole: bool,
) -> None:  # fmt: skip
    """One kernel: with keys or queries along the lanes; `whole`: of all gradients. found: where they go. Where keys hide queries, chunks
    of these are as long as the groups that are left out together: longer ones would compute more of what is hidden."""
    q, k, v, grad = arrays
    lanes, rows = (k, q) if keys else (q, k)
    step = GROUP if keys and offset is not None else ROWS
    kernel = name if whole else f"{name}_{'keys' if keys else 'queries'}"
    dt = q.dtype.compute
    z = choose(lo, kernel, lanes, rows, _features(k, v, *found[: 1 + keys]), dt.size)
    t = Tiles(lo, kernel, q.shape[:-2], lanes.shape[-2], z, dt, mask, offset, keys, whole)
    sums = t.sums(q.shape[-2], _features(q)) if whole else None
    with t.blocks():
        w = _Backward(t, arrays, lse, along, scale, sums)
        start, stop = t.rows_seen(rows.shape[-2])
        with t.k.loop(start, stop, step, name="chunk") as c:
            w.chunk(c, t.k.let(minimum(rows.shape[-2] - c, step)))
        w.finish(found)
    if sums is not None:
        t.finish_sums(sums, found[-1], const(scale, dt))
    lo.launch(t.k)


def _along_result(lo: Lowering, grad: Array, grad_lse: Array | None, out: Array, lse: Array, dt: DType, name: str) -> Array:
    """w: for each query the sum of grad * out, less the gradient of its log-sum-exp."""
    source = Elementwise(lambda x, y: cast(x, dt) * cast(y, dt), [Leaf(grad), Leaf(out)], out.shape, dt)
    along = lo.temp(dt, lse.shape)
    reduce(lo, "add", source, along, (out.ndim - 1,), name=f"{name}_along")
    if grad_lse is None:
        return along
    less = lo.temp(dt, lse.shape)
    source = Elementwise(lambda x, y: x - cast(y, dt), [Leaf(along), Leaf(grad_lse)], lse.shape, dt)
    pointwise(lo, [source], [less], f"{name}_less")
    return less


class _Backward:
    """Writes the kernel of the gradient of queries, or of keys and values, or of all: then those of queries are added up in
    `sums`."""

    def __init__(self, t: Tiles, arrays: Sequence[Array], lse: Array, along: Array, scale: float, sums: Array | None):
        self.t, self.scale, self.lse, self.along, self.sums = t, scale, lse, along, sums
        q, k, v, grad = arrays
        lanes, rows = ((k, v), (q, grad)) if t.keys else ((q, grad), (k, v))
        self.lanes = [t.turned(name, a) for name, a in zip(("lanes", "lane_values"), lanes)]
        self.rows = [t.rows(name, a) for name, a in zip(("rows", "row_values"), rows)]
        self.scores, self.slopes = t.numbers("scores"), t.numbers("slopes")
        self.grads = [t.results("grads", self.rows[0].features)]
        if t.keys:
            self.grads.append(t.results("value_grads", self.rows[1].features))
        if sums is not None:
            self.keys = t.rows("keys", k, t.z.lanes)
            t.copy(self.keys, t.first, t.n)
        if not t.keys:
            self.lines = [t.line(name, 0.0) for name in ("lse", "along")]
            for line, a in zip(self.lines, (lse, along)):
                src, base = t.k.read(a), t.base(a, t.first)
                with t.k.loop(0, t.n, name="lane") as i:
                    t.k.store(line, i, cast(t.k.load(src, base + i * a.strides[-1]), t.compute))

    def chunk(self, start: Expr, n: Expr) -> None:
        """Adds what `n` rows from `start` on give."""
        t, k = self.t, self.t.k
        for r in self.rows:
            t.copy(r, start, n)
        with k.loop(0, t.n, t.z.wide, name="tile") as at:
            first = k.let(t.first + at)
            with k.if_(t.seen(first, start, n)):
                rows = t.rows_of(first, start, n)
                t.by_width(self.weigh, at, first, start, rows)
                if t.keys:
                    t.accumulate(self.grads[1], self.rows[1], self.scores, at, rows)
                t.accumulate(self.grads[0], self.rows[0], self.slopes, at, rows)
                if self.sums is not None:
                    t.accumulate_rows(self.sums, start, rows, self.slopes, self.keys, (at, first))

    def weigh(self, tile: tuple[Expr, int], first: Expr, start: Expr, n: Expr) -> None:
        """Makes p and c of a tile, whose first lane is the query or key `first`, and `n` rows."""
        t, k, (at, vectors) = self.t, self.t.k, tile
        t.product(self.rows[0], self.lanes[0], tile, n, self.scores, self.scale)
        t.hide(self.scores, first, vectors, start, n)
        t.product(self.rows[1], self.lanes[1], tile, n, self.slopes)
        with k.loop(0, n, name="row") as j:
            for v in range(vectors):
                here, place = k.let(j * t.z.wide + v * LANES), k.let(at + v * LANES)
                lse, along = (self.number(i, a, place, start + j) for i, a in enumerate((self.lse, self.along)))
                p = k.let(weight(k.load(self.scores, here, LANES) - lse))
                k.store(self.scores, here, p)
                k.store(self.slopes, here, p * (k.load(self.slopes, here, LANES) - along))

    def number(self, i: int, a: Array, place: Expr, row: Expr) -> Expr:
        """A number of each query, where queries are the lanes; of the row, where they are the rows."""
        t = self.t
        if t.keys:
            return splat(cast(t.k.load(t.k.read(a), t.base(a, row)), t.compute))
        return t.k.load(self.lines[i], place, LANES)

    def finish(self, grads: Sequence[Array]) -> None:
        """Multiplies by the scale and stores."""
        for i, (b, a) in enumerate(zip(self.grads, grads)):
            self.t.finish(b, a, lambda _, by=1.0 if i else self.scale: const(by, self.t.compute))
