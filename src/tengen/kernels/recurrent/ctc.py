"""Connectionist temporal classification: the likelihood of a labelling, summed over all its alignments, and its gradient.

The *states* of a labelling of L labels are 2 L + 1: blank, label, blank, label, ..., blank. An alignment stays, goes on to the next
state, or over a blank between two different labels. For each sample, which is a piece:

    alpha[0, first two states] = log_probs[0, label[s]]
    for t = 1 .. its steps: for vector s of its states:
        alpha[t, s] = log_probs[t, label[s]] + log(exp(alpha[t - 1, s]) + exp(alpha[t - 1, s - 1]) + exp(alpha[t - 1, s - 2]) if allowed)
    loss = -log(exp(alpha[last, 2 L]) + exp(alpha[last, 2 L - 1]))

The gradient goes back through the same states, with beta, the likelihood of what follows; a class gets the sums of its states in
ascending order. Logarithms of sums are taken relative to the largest term.

Source: Graves et al., "Connectionist temporal classification", ICML 2006
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tengen.base.dtype import DType, int64
from tengen.kernels.lowering import Array, KernelBuilder, Lowering
from tengen.kernels.pointwise import pointwise
from tengen.kernels.source import At, Elementwise, Leaf, Literal, broadcast
from tengen.loops.lang import (
    LANES,
    Expr,
    Index,
    as_int,
    call,
    cast,
    const,
    equal,
    maximum,
    minimum,
    not_equal,
    ramp,
    select,
    splat,
)

BORDER_COLUMNS = 2  # columns of -inf beside the states: before the first one in alpha, behind the last one in beta


class _Samples:
    """What both kernels read of a sample: its states and their log-probabilities."""

    def __init__(self, k: KernelBuilder, arrays: Sequence[Array], n: Expr, blank: int):
        self.k, self.n, self.blank = k, n, blank
        self.log_probs, self.labels, steps, lengths = arrays
        self.d: DType = self.log_probs.dtype.compute
        length = lambda a, most: k.let(maximum(minimum(cast(At((n,)).load(k, a), int64), most), 0))
        self.steps = length(steps, self.log_probs.shape[0])
        self.count = length(lengths, self.labels.shape[1])
        self.states = k.let(self.count * 2 + 1)

    def label(self, s: Expr, count: Expr | None, ahead: int = 0) -> tuple[Expr, Expr]:
        """The classes of LANES states from s + ahead on, and whether they may be entered from two states before."""
        most = self.labels.shape[1]
        blank = const(self.blank, int64, LANES)
        if as_int(most) == 0:
            return blank, not_equal(blank, blank)
        k, place = self.k, self.k.let(ramp() + (s + ahead))
        at = lambda j: cast(k.load(k.read(self.labels), self.labels.index((self.n, j)), LANES, count), int64)
        j = k.let(minimum(place >> 1, most - 1))
        found, before = at(j), at(k.let(maximum(j - 1, 0)))
        odd = equal(place & 1, 1)
        found = k.let(maximum(minimum(found, self.log_probs.shape[2] - 1), 0))
        skips = odd & (place >= 3) & not_equal(before, found) & not_equal(found, blank)
        return k.let(select(odd, found, blank)), k.let(skips)

    def emitted(self, t: Index, label: Expr, count: Expr | None) -> Expr:
        """The log-probabilities of classes at step t."""
        a = self.log_probs
        return cast(self.k.load(self.k.read(a), a.index((t, self.n, label)), LANES, count), self.d)

    def log_sum(self, terms: Sequence[Expr]) -> Expr:
        """log(sum of exp(terms)); -inf where all are."""
        k, low = self.k, const(-math.inf, self.d, terms[0].lanes)
        most = k.let(maximum(maximum(terms[0], terms[1]), terms[2]))
        each = [k.let(call("exp", x - most)) for x in terms]
        return select(equal(most, low), low, most + call("log", each[0] + each[1] + each[2]))


def _fill(lo: Lowering, a: Array, value: float, name: str) -> None:
    pointwise(lo, [broadcast(Literal(value, a.dtype), a.shape)], [a], name)


def ctc_forward(lo: Lowering, arrays: Sequence[Array], loss: Array, alpha: Array, blank: int) -> None:
    """Launches loss (N) and alpha (N, T, states + BORDER_COLUMNS) for log_probs (T, N, C), labels (N, S), steps (N) and label counts (N).

    A sample that has no alignment has the loss inf; one without steps has none unless it has no labels.
    """
    _fill(lo, alpha, -math.inf, "ctc_base")
    if as_int(loss.shape[0]) == 0:
        return
    k = lo.kernel("ctc")
    n = k.split(loss.shape[0])
    a, d = _Samples(k, arrays, n, blank), alpha.dtype
    y, out = k.write(alpha), k.write(loss)
    low = const(-math.inf, d)
    with k.if_(a.steps > 0):
        first = minimum(a.states, BORDER_COLUMNS)
        k.store(y, alpha.index((n, 0, BORDER_COLUMNS)), a.emitted(0, a.label(const(0), first)[0], first), first)
        with k.loop(1, a.steps, name="t") as t:
            for s, count in k.vector_loop(0, a.states, "s"):
                label, skips = a.label(s, count)
                one, two, three = (k.load(y, alpha.index((n, t - 1, s + BORDER_COLUMNS - o)), LANES, count) for o in range(3))
                total = a.log_sum([one, two, k.let(select(skips, three, splat(low)))])
                k.store(y, alpha.index((n, t, s + BORDER_COLUMNS)), total + a.emitted(t, label, count), count)
        ends = [k.load(y, alpha.index((n, a.steps - 1, a.states - 1 + BORDER_COLUMNS - o))) for o in range(2)]
        k.store(out, loss.index((n,)), cast(-a.log_sum([*ends, low]), loss.dtype))
    with k.else_():
        k.store(out, loss.index((n,)), select(equal(a.count, 0), const(0, loss.dtype), const(math.inf, loss.dtype)))
    lo.launch(k)


def ctc_backward(
    lo: Lowering, g: Array, arrays: Sequence[Array], loss: Array, alpha: Array, out: Array, blank: int
) -> None:
    """Launches out = the gradient of the losses, times g (N), with respect to log_probs; 0 for a sample without alignment."""
    d = out.dtype.compute
    target = out if out.dtype is d else lo.temp(d, out.shape)
    beta = lo.temp(d, (alpha.shape[0], 2, alpha.shape[2]))
    _fill(lo, target, 0.0, "ctc_grad_base")
    _fill(lo, beta, -math.inf, "ctc_beta_base")
    if all(as_int(n) != 0 for n in out.shape):
        _launch_backward(lo, g, arrays, loss, alpha, beta, target, blank)
    if target is not out:
        pointwise(lo, [Elementwise(lambda v: cast(v, out.dtype), [Leaf(target)], out.shape, out.dtype)], [out], "ctc_grad_round")


def _launch_backward(
    lo: Lowering, g: Array, arrays: Sequence[Array], loss: Array, alpha: Array, beta: Array, target: Array, blank: int
) -> None:
    """Launches the walk back. Row 0 of beta: beta and what is emitted, a step later; row 1: what each state gives its class."""
    k = lo.kernel("ctc_grad")
    n = k.split(g.shape[0])
    a, d = _Samples(k, arrays, n, blank), beta.dtype
    scale = k.let(-cast(At((n,)).load(k, g), d))
    total = k.let(cast(At((n,)).load(k, loss), d))
    z, y = k.write(beta), k.write(target)
    low = const(-math.inf, d, LANES)
    with k.if_((a.steps > 0) & (total < const(math.inf, d))), k.loop(0, a.steps, name="r") as r:
        t = k.let(a.steps - 1 - r)
        last = splat(k.let(r < 1))
        for s, count in k.vector_loop(0, a.states, "s"):
            one, two, three = (k.load(z, beta.index((n, 0, s + o)), LANES, count) for o in range(3))
            skips = a.label(s, count, 2)[1]
            after = a.log_sum([one, two, k.let(select(skips, three, low))])
            end = select(ramp() + s >= splat(a.states - 2), const(0, d, LANES), low)
            after = k.let(select(last, end, after))
            reached = cast(At((n, t, s + BORDER_COLUMNS), 2, count).load(k, alpha), d)
            share = call("exp", reached + after + splat(total)) * splat(scale)
            k.store(z, beta.index((n, 1, s)), share, count)
            k.store(z, beta.index((n, 0, s)), after + a.emitted(t, a.label(s, count)[0], count), count)
        with k.loop(0, a.states, name="state") as s:
            of = const(blank)
            if as_int(a.labels.shape[1]) != 0:
                j = k.let(minimum(s >> 1, a.labels.shape[1] - 1))
                found = cast(At((n, j)).load(k, a.labels), int64)
                found = maximum(minimum(found, target.shape[2] - 1), 0)
                of = k.let(select(equal(s & 1, 1), found, const(blank)))
            at = target.index((t, n, of))
            k.store(y, at, k.load(y, at) + k.load(z, beta.index((n, 1, s))))
    lo.launch(k)
