"""The gradients of attention: the softmax is computed again from the saved log-sum-exp, chunk by chunk.

    for each piece = (group, some queries, or some keys, in the lanes):
        for chunk of the others, the rows:
            p = exp(scale * q k^T + mask - lse)
            slope = p * (grad v^T - grad_dot_result)                        # grad_dot_result[t]: the sum over e of grad * out
            with queries in the lanes:  dq += slope * k
            with keys in the lanes:     dk += slope * q;  dv += p * grad

There are two kernels, one with queries and one with keys in the lanes. Where there are groups enough for all threads it is one
kernel
with keys in the lanes, whose pieces are whole groups: it goes through all keys of the group in order, and adds up dq in memory
(`sums`). That is five products instead of seven.
"""

from __future__ import annotations

from collections.abc import Sequence

from tengen.base.dtype import DType
from tengen.kernels import numerics
from tengen.kernels.attention.tiles import Tiles, choose, features_of, in_one_pass, weight
from tengen.kernels.lowering import Array, Lowering
from tengen.kernels.pointwise import pointwise
from tengen.kernels.reduction.reduce import reduce
from tengen.kernels.source import Elementwise, Leaf
from tengen.loops.lang import LANES, Expr, Index, as_int, cast, const, minimum, splat


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
        sum over t of c * q, that of v the sum over t of p * grad, by fma in order from zero. One kernel of whole groups makes
        all three from the same p and c, where there are enough groups; else queries have a kernel, and keys and values another.
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
    """Launches one kernel, with keys or queries in the lanes. whole: whether it makes all gradients. found: where they go. With
    keys in
    the lanes and a causal mask, chunks of queries are as short as the groups that are skipped together: longer ones would
        compute
    more of what is hidden."""
    q, k, v, grad = arrays
    lanes, rows = (k, q) if keys else (q, k)
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
    """For each query the sum over e of grad * out, minus the gradient of its log-sum-exp."""
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
    """Writes the kernel of the gradient of queries, or of keys and values, or of all three; then `sums` adds up that of
    queries.

    Attributes:
        lanes: what lies in the lanes, (q, grad) or (k, v), transposed. rows: what lies in the rows, the other two.
        scores, slopes: p and slope, as [row, lane]. grads: the results, as [lane, feature].
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
        """Adds the chunk of `n` rows from `start` on to the gradients of every lane."""
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
        """Computes p and slope of a tile, whose first lane is the query or key `first`, for `n` rows."""
        t, k, (at, vectors) = self.t, self.t.k, tile
        t.product(self.rows[0], self.lanes[0], tile, n, self.scores, self.scale)
        t.hide(self.scores, first, vectors, start, n)
        t.product(self.rows[1], self.lanes[1], tile, n, self.slopes)
        with k.loop(0, n, name="row") as j:
            for v in range(vectors):
                here, place = k.let(j * t.z.wide + v * LANES), k.let(at + v * LANES)
                lse, grad_dot_result = (
                    self.number(i, a, place, start + j) for i, a in enumerate((self.lse, self.grad_dot_result))
                )
                p = k.let(weight(k.load(self.scores, here, LANES) - lse))
                k.store(self.scores, here, p)
                k.store(self.slopes, here, p * (k.load(self.slopes, here, LANES) - grad_dot_result))

    def number(self, i: int, a: Array, place: Expr, row: Expr) -> Expr:
        """Number i (lse or grad_dot_result) of each query: a vector where queries are in the lanes, else that of the row in all
        lanes."""
        t = self.t
        if t.keys:
            return splat(cast(t.k.load(t.k.read(a), t.base(a, row)), t.compute))
        return t.k.load(self.lines[i], place, LANES)

    def finish(self, grads: Sequence[Array]) -> None:
        """Multiplies by the scale and stores."""
        for i, (b, a) in enumerate(zip(self.grads, grads)):
            self.t.finish(b, a, lambda _, by=1.0 if i else self.scale: const(by, self.t.compute))
