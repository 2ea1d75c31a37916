"""The gradients of attention. The softmax is computed again from the saved log-sum-exp, chunk by chunk.

    for each piece = (group, some queries t) or (group, some keys s):        # they are the lanes of vectors
        for chunk of the others, the rows:
            p[s, t] = exp(scale * (sum over d of q[t, d] * k[s, d]) + mask[t, s] - lse[t])
            slope[s, t] = p[s, t] * (sum over e of grad[t, e] * v[s, e] - grad_dot_result[t])
            with queries in the lanes:  dq[t] += sum over s of slope[s, t] * k[s]
            with keys in the lanes:     dk[s] += sum over t of slope[s, t] * q[t]
                                        dv[s] += sum over t of p[s, t] * grad[t]
        dq *= scale;  dk *= scale

Here grad_dot_result[t] is the sum over e of grad[t, e] * out[t, e]. There are two kernels, one with queries in the lanes and
one with keys. Where there are groups enough for all threads there is one kernel with keys in the lanes, whose pieces are whole
groups: a piece goes through all keys of its group in order, and adds up dq in memory (`sums`). That takes five products
instead of seven.
"""

from __future__ import annotations

from collections.abc import Sequence

from tengen.base.dtype import DType
from tengen.kernels import numerics
from tengen.kernels.attention.sizes import choose, features_of, in_one_pass
from tengen.kernels.attention.tiles import Tiles, weight
from tengen.kernels.lowering import Array, Lowering
from tengen.kernels.pointwise import pointwise
from tengen.kernels.reduction.reduce import reduce
from tengen.kernels.source import Elementwise, Leaf
from tengen.loops.lang import LANES, Expr, Index, as_int, cast, const, minimum, splat


def attention_grad(
    lo: Lowering, grad: Array, grad_lse: Array | None, inputs: Sequence[Array], mask: Array | None, out: Array, lse: Array,
    grads: Sequence[Array], scale: float, offset: Index | None, name: str = "attention_grad",
) -> None:  # fmt: skip
    """Launches the gradients of `attention`.

    Args:
        grad, grad_lse: the gradients with respect to out and lse. inputs: q, k and v.
        out, lse: the results of `attention`. mask, scale, offset: its arguments.
        grads: where the gradients of q, k and v are stored, (*G, T, D), (*G, S, D) and (*G, S, E).
    Numerics: with p = exp(score - lse), w = (sum over e of grad * out) - grad_lse, c = p * ((sum over e of grad * v) - w): the
        gradient of q is scale times the sum over s of c * k, that of k is scale times the sum over t of c * q, that of v is the
        sum over t of p * grad. Sums over e, s and t are by fma in order from zero; only the one in w is a `reduce`. Where there
        are enough groups, one kernel of whole groups computes all three from the same p and c; else there is one kernel for
        queries, and one for keys and values.
    """
    q, k, v = inputs
    dq, dk, dv = grads
    grad_dot_result = _grad_dot_result(lo, grad, grad_lse, out, lse, out.dtype.compute, name)
    how = lo, (q, k, v, grad), mask, lse, grad_dot_result, scale, offset, name
    if in_one_pass(q.shape[:-2]) and not any(as_int(d) == 0 for d in (*q.shape, *k.shape[:-1])):
        return _launch_backward(*how, (dk, dv, dq), True, True)
    for keys, found in ((False, (dq,)), (True, (dk, dv))):
        if not any(as_int(d) == 0 for d in found[0].shape[:-1]):
            _launch_backward(*how, found, keys, False)


def _launch_backward(
    lo: Lowering, arrays: Sequence[Array], mask: Array | None, lse: Array, grad_dot_result: Array, scale: float,
    offset: Index | None, name: str, found: Sequence[Array], keys: bool, whole: bool,
) -> None:  # fmt: skip
    """Launches one kernel.

    Args:
        arrays: q, k, v and grad. found: where the gradients are stored that this kernel computes.
        keys: whether keys are in the lanes, or queries. whole: whether pieces are whole groups, and it computes all gradients.
    """
    q, k, v, grad = arrays
    lanes, rows = (k, q) if keys else (q, k)
    # With a causal mask, a chunk of queries is no longer than a group: of a longer one, more would be computed and hidden.
    step = numerics.GROUP_LANES if keys and offset is not None else numerics.CHUNK_ROWS
    kernel = name if whole else f"{name}_{'keys' if keys else 'queries'}"
    dt = q.dtype.compute
    z = choose(lo, kernel, lanes, rows, features_of(k, v, *found[: 1 + keys]), dt.size)
    t = Tiles(lo, kernel, q.shape[:-2], lanes.shape[-2], z, dt, mask, offset, keys, whole)
    sums = t.sums(q.shape[-2], features_of(q)) if whole else None
    with t.blocks():
        w = _Backward(t, arrays, lse, grad_dot_result, scale, sums)
        start, stop = t.rows_seen(rows.shape[-2])
        with t.k.loop(start, stop, step, name="chunk") as c:
            w.chunk(c, t.k.let(minimum(rows.shape[-2] - c, step)))
        w.finish(found)
    if sums is not None:
        t.finish_sums(sums, found[-1], const(scale, dt))
    lo.launch(t.k)


def _grad_dot_result(lo: Lowering, grad: Array, grad_lse: Array | None, out: Array, lse: Array, dt: DType, name: str) -> Array:
    """For each query, the sum over e of grad * out, less the gradient of its log-sum-exp."""
    source = Elementwise(lambda x, y: cast(x, dt) * cast(y, dt), [Leaf(grad), Leaf(out)], out.shape, dt)
    grad_dot_result = lo.temp(dt, lse.shape)
    reduce(lo, "add", source, grad_dot_result, (out.ndim - 1,), name=f"{name}_along")
    if grad_lse is None:
        return grad_dot_result
    less = lo.temp(dt, lse.shape)
    source = Elementwise(lambda x, y: x - cast(y, dt), [Leaf(grad_dot_result), Leaf(grad_lse)], lse.shape, dt)
    pointwise(lo, [source], [less], f"{name}_less")
    return less


class _Backward:
    """Writes the kernel of the gradient of queries, or of those of keys and values, or of all three. In the last case the
    gradient of queries is added up in `sums`.

    Attributes:
        lanes: blocks of what is in the lanes, (q, grad) or (k, v). rows: chunks of what is in the rows, the other two.
        scores, slopes: p and slope as [row, lane], of one tile. grads: the results, as [lane, feature].
        lines: with queries in the lanes, their lse and grad_dot_result.
    """

    def __init__(self, t: Tiles, arrays: Sequence[Array], lse: Array, grad_dot_result: Array, scale: float, sums: Array | None):
        self.t, self.scale, self.lse, self.grad_dot_result, self.sums = t, scale, lse, grad_dot_result, sums
        q, k, v, grad = arrays
        lanes, rows = ((k, v), (q, grad)) if t.keys else ((q, grad), (k, v))
        self.lanes = [t.transposed(name, a) for name, a in zip(("lanes", "lane_values"), lanes)]
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
            for line, a in zip(self.lines, (lse, grad_dot_result)):
                src, base = t.k.read(a), t.base(a, t.first)
                with t.k.loop(0, t.n, name="lane") as i:
                    t.k.store(line, i, cast(t.k.load(src, base + i * a.strides[-1]), t.compute))

    def chunk(self, start: Expr, n: Expr) -> None:
        """Adds the terms of the n rows from row `start` on to the gradients of each lane."""
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
        """Computes p and slope of n rows from `start` on and the lanes of a tile.

        Args:
            tile: (its first lane, counted from the block's first; how many vectors it has). first: its first query or key,
                counted from the group's first.
        """
        t, k, (at, vectors) = self.t, self.t.k, tile
        t.product(self.rows[0], self.lanes[0], tile, n, self.scores, self.scale)
        t.hide(self.scores, first, vectors, start, n)
        t.product(self.rows[1], self.lanes[1], tile, n, self.slopes)
        with k.loop(0, n, name="row") as j:
            for v in range(vectors):  # p[row, v] = exp(score - lse); slope[row, v] = p[row, v] * (grad v^T - grad_dot_result)
                here, place = k.let(j * t.z.wide + v * LANES), k.let(at + v * LANES)
                lse, grad_dot_result = (
                    self.number(i, a, place, start + j) for i, a in enumerate((self.lse, self.grad_dot_result))
                )
                p = k.let(weight(k.load(self.scores, here, LANES) - lse))
                k.store(self.scores, here, p)
                k.store(self.slopes, here, p * (k.load(self.slopes, here, LANES) - grad_dot_result))

    def number(self, i: int, a: Array, place: Expr, row: Expr) -> Expr:
        """One number of each query: its lse (i = 0) or grad_dot_result (i = 1). With queries in the lanes that is a vector,
        from `lines`; with keys it is the number of the query `row`, in all lanes."""
        t = self.t
        if t.keys:
            return splat(cast(t.k.load(t.k.read(a), t.base(a, row)), t.compute))
        return t.k.load(self.lines[i], place, LANES)

    def finish(self, grads: Sequence[Array]) -> None:
        """Stores the gradients; those of queries and keys are multiplied by the scale."""
        for i, (b, a) in enumerate(zip(self.grads, grads)):
            self.t.finish(b, a, lambda _, by=1.0 if i else self.scale: const(by, self.t.compute))
