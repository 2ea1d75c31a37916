"""Recurrent layers: a loop over steps that stays a loop, with a state that the network keeps from call to call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

import tengen.functional as F
from tengen.interop.networks.values import as_tensor
from tengen.interop.tflite.fixed import multiplied, quantised_multiplier
from tengen.interop.tflite.ops.control import scoped
from tengen.interop.tflite.ops.elementwise import ACTIVATIONS, activation_of
from tengen.interop.tflite.ops.lookup import limits, quant_of
from tengen.interop.tflite.ops.mixed import quant_for, rows
from tengen.interop.tflite.reader import OpOf
from tengen.interop.tflite.registry import hybrid, is_quantised, op, quantised
from tengen.tensor import Tensor

if TYPE_CHECKING:
    from tengen.interop.tflite.network import Scope

BOTH_WAYS = "BIDIRECTIONAL_SEQUENCE_LSTM"


def steps_first(n: OpOf, t: Tensor) -> Tensor:
    """(steps, batch, features)."""
    return t if n.get("TimeMajor", False) else F.transpose(t, [1, 0, 2])


def steps_back(n: OpOf, t: Tensor) -> Tensor:
    """As the operator gives its result."""
    return t if n.get("TimeMajor", False) else F.transpose(t, [1, 0, 2])


def kept(scope: Scope, n: OpOf, i: int, value: Tensor) -> None:
    """The state in an input gets its next value, where it is one that is kept."""
    if n.has(i) and n.of(i).variable:
        scope.keep(n.inputs[i], value)


def bounded(t: Tensor, bound: float) -> Tensor:
    """Within -bound and bound; 0 is no bound."""
    return F.clip(t, -bound, bound) if bound > 0 else t


class Weight:
    """A weight: floats, or integers with a scale, by which floats are multiplied as in `mixed.py`."""

    def __init__(self, n: OpOf, i: int, x: Any):
        self.n, self.tensor = n, as_tensor(x)
        self.quant = quant_for(n, i) if is_quantised(n.of(i)) else None

    def product(self, t: Tensor) -> Tensor:
        """t W.T."""
        if self.quant is None:
            return F.matmul(t, self.tensor, transpose_b=True)
        q, scale = rows(self.n, t, [1])
        return F.matmul(q, self.tensor.astype("int32"), transpose_b=True).astype("float32") * (scale * self.quant.scale)

    def floats(self) -> Tensor:
        """What it stands for."""
        return self.tensor if self.quant is None else self.tensor.astype("float32") * self.quant.scale


class Gates:
    """The weights of an LSTM by gate: of the input, of the state, of the cell, biases, and those of layer normalisation; and what it
    gives for a step.

    Attributes:
        more: by gate, weights of a second input.
    """

    NAMES = ("input", "forget", "cell", "output")

    def __init__(self, n: OpOf, x: list[Any], act: Callable[[Tensor], Tensor], start: int = 0, more: Sequence[int] = ()):
        """start: how far weights stand behind their usual place in `x`. more: the places of weights of a second input."""
        at = lambda i: Weight(n, i, x[i]) if i < len(x) and x[i] is not None else None
        weight = lambda i: at(i + start)
        get = lambda i: None if (found := weight(i)) is None else found.floats()
        self.act, self.cell_clip, self.proj_clip = act, float(n.get("CellClip", 0)), float(n.get("ProjClip", 0))
        self.more = [at(i) for i in more]
        self.of_input = [weight(i) for i in (1, 2, 3, 4)]
        self.of_state = [weight(i) for i in (5, 6, 7, 8)]
        self.of_cell = [get(9), get(10), None, get(11)]
        self.bias = [get(i) for i in (12, 13, 14, 15)]
        self.projection, self.projection_bias = weight(16), get(17)
        self.norm = [None] * 4 if n.op == BOTH_WAYS else [get(i) for i in (20, 21, 22, 23)]

    def gate(self, i: int, now: Tensor, h: Tensor, c: Tensor, aside: Tensor | None) -> Tensor:
        """A gate before its function. aside: a second input."""
        of_input, of_state = self.of_input[i], self.of_state[i]
        if of_input is None or of_state is None:
            raise ValueError(f"an LSTM without weights of its gate {self.NAMES[i]}")
        total = of_input.product(now) + of_state.product(h)
        if aside is not None and self.more and (more := self.more[i]) is not None:
            total = total + more.product(aside)
        if self.of_cell[i] is not None:
            total = total + c * self.of_cell[i]
        if self.norm[i] is not None:
            mean = F.mean(total, -1, keepdims=True)
            off = total - mean
            total = off * F.rsqrt(F.mean(off * off, -1, keepdims=True) + 1e-8) * self.norm[i]
        return total if self.bias[i] is None else total + self.bias[i]

    def step(self, now: Tensor, h: Tensor, c: Tensor, aside: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The next state and cell."""
        forget = F.sigmoid(self.gate(1, now, h, c, aside))
        into = 1 - forget if self.of_input[0] is None else F.sigmoid(self.gate(0, now, h, c, aside))
        c = bounded(forget * c + into * self.act(self.gate(2, now, h, c, aside)), self.cell_clip)
        h = F.sigmoid(self.gate(3, now, h, c, aside)) * self.act(c)
        if self.projection is not None:
            h = self.projection.product(h)
            h = bounded(h if self.projection_bias is None else h + self.projection_bias, self.proj_clip)
        return h, c


def act_of(n: OpOf) -> Callable[[Tensor], Tensor]:
    """The function of a recurrent layer."""
    return ACTIVATIONS[activation_of(n)]


@hybrid("UNIDIRECTIONAL_SEQUENCE_LSTM")
@op("UNIDIRECTIONAL_SEQUENCE_LSTM")
@scoped
def sequence_lstm(scope: Scope, n: OpOf, *x: Any) -> Tensor:
    """An LSTM over a sequence, with all that the operator may have: peepholes, projection, coupled gates, layer normalisation."""
    gates, t = Gates(n, list(x), act_of(n)), steps_first(n, as_tensor(x[0]))
    (h, c), ys = F.scan(lambda s, now: ((made := gates.step(now, *s)), made[0]), (as_tensor(x[18]), as_tensor(x[19])), t)
    kept(scope, n, 18, h)
    kept(scope, n, 19, c)
    return steps_back(n, ys)


@hybrid("LSTM")
@op("LSTM")
@scoped
def lstm(scope: Scope, n: OpOf, *x: Any) -> Any:
    """One step of an LSTM: the full one, whose state is kept, or the basic one, whose weights are one matrix."""
    if n.get("KernelType", 0) == 0:
        h, c = Gates(n, list(x), act_of(n)).step(as_tensor(x[0]), as_tensor(x[18]), as_tensor(x[19]))
        kept(scope, n, 18, h)
        kept(scope, n, 19, c)
        return h
    now, h, weight, bias, c = (as_tensor(v) for v in x[:5])
    joined = F.concat([now, h], 1)
    total = F.matmul(joined, weight, transpose_b=True) + bias
    k = int(c.shape[-1])
    into, new, forget, out = (total[:, i * k : (i + 1) * k] for i in range(4))
    c = F.sigmoid(into) * F.tanh(new) + F.sigmoid(forget) * c
    return F.sigmoid(out) * F.tanh(c), c, joined, total


@hybrid("RNN")
@op("RNN")
@scoped
def rnn(scope: Scope, n: OpOf, x: Any, w: Any, r: Any, b: Any, h: Any) -> Tensor:
    """One step: f(x W.T + h R.T + b)."""
    made = rnn_step(n, as_tensor(x), as_tensor(h), Weight(n, 1, w), Weight(n, 2, r), as_tensor(b))
    kept(scope, n, 4, made)
    return made


def rnn_step(n: OpOf, now: Tensor, h: Tensor, w: Weight, r: Weight, b: Tensor) -> Tensor:
    """The next state."""
    return act_of(n)(w.product(now) + r.product(h) + b)


@hybrid("UNIDIRECTIONAL_SEQUENCE_RNN")
@op("UNIDIRECTIONAL_SEQUENCE_RNN")
@scoped
def sequence_rnn(scope: Scope, n: OpOf, x: Any, w: Any, r: Any, b: Any, h: Any) -> Tensor:
    """The same over a sequence."""
    weights = Weight(n, 1, w), Weight(n, 2, r), as_tensor(b)
    last, ys = F.scan(
        lambda s, now: ((made := rnn_step(n, now, s, *weights)), made), as_tensor(h), steps_first(n, as_tensor(x))
    )
    kept(scope, n, 4, last)
    return steps_back(n, ys)


# -- both directions ---------------------------------------------------------------------------------------------------------
def both_ways(
    scope: Scope, n: OpOf, x: Sequence[Any], aside: Any, linked: bool, states: Sequence[tuple[int, ...]], step: Callable[..., Any]
) -> Any:
    """A layer that reads a sequence forwards and one that reads it backwards, as one tensor or as two.

    Args:
        x: what the operator reads.
        aside: a second sequence: with weights of its own where it is `linked`, else what the second layer reads in place of the first.
        states: the numbers of the inputs that are the states of each layer. step: (layer, now, aside now, *state) -> the next state, whose
            first part is the result.
    """
    first = steps_first(n, as_tensor(x[0]))
    second = None if aside is None else steps_first(n, as_tensor(aside))
    made = []
    for d in range(2):
        t = second if d and second is not None and not linked else first
        xs = (t, second) if linked and second is not None else (t,)
        begin = tuple(as_tensor(x[i]) for i in states[d])

        def body(state: Any, now: Any, d: int = d) -> tuple[Any, Tensor]:
            new = step(d, now[0], now[1] if len(now) > 1 else None, *state)
            return new, new[0]

        last, ys = F.scan(body, begin, xs, reverse=bool(d))
        for i, v in zip(states[d], last):
            kept(scope, n, i, v)
        made.append(steps_back(n, ys))
    return F.concat(made, 2) if n.get("MergeOutputs", False) else tuple(made)


@hybrid(BOTH_WAYS)
@op(BOTH_WAYS)
@scoped
def bidirectional_lstm(scope: Scope, n: OpOf, *x: Any) -> Any:
    """Two LSTMs, with peepholes, projections and coupled gates."""
    get = lambda i: x[i] if i < len(x) else None
    linked = get(41) is not None
    layers = [Gates(n, list(x), act_of(n), 17 * d, range(40 + 4 * d, 44 + 4 * d) if linked else ()) for d in range(2)]
    step = lambda d, now, aside, h, c: layers[d].step(now, h, c, aside)
    return both_ways(scope, n, x, get(39), linked, ((35, 36), (37, 38)), step)


@hybrid("BIDIRECTIONAL_SEQUENCE_RNN")
@op("BIDIRECTIONAL_SEQUENCE_RNN")
@scoped
def bidirectional_rnn(scope: Scope, n: OpOf, *x: Any) -> Any:
    """Two layers, each f(x W.T + h R.T + b)."""
    get = lambda i: x[i] if i < len(x) else None
    layers = [(Weight(n, i, x[i]), Weight(n, i + 1, x[i + 1]), as_tensor(x[i + 2])) for i in (1, 5)]
    linked = get(10) is not None
    more = [Weight(n, i, x[i]) for i in (10, 11)] if linked else []

    def step(d: int, now: Tensor, aside: Tensor | None, h: Tensor) -> tuple[Tensor, ...]:
        w, r, b = layers[d]
        total = w.product(now) + r.product(h) + b
        return (act_of(n)(total if aside is None else total + more[d].product(aside)),)

    return both_ways(scope, n, x, get(9), linked, ((4,), (8,)), step)


@hybrid("SVDF")
@op("SVDF")
@scoped
def svdf(scope: Scope, n: OpOf, x: Any, feature: Any, time: Any, b: Any, state: Any) -> Tensor:
    """A filter over features, and one over the last steps of what that gives; `rank` of them make a unit."""
    t, f, w, s = as_tensor(x), Weight(n, 1, feature), Weight(n, 2, time).floats(), as_tensor(state)
    filters, memory = (int(e) for e in w.shape)
    batch = t.shape[0]
    now = f.product(t).reshape(batch, filters, 1)
    s = F.concat([s.reshape(batch, filters, memory)[:, :, 1:], now], 2)
    kept(scope, n, 4, s.reshape(batch, filters * memory))
    rank = n["Rank"]
    y = F.sum((s * w).reshape(batch, filters // rank, rank, memory), [2, 3])
    return act_of(n)(y if b is None else y + as_tensor(b))


@quantised("SVDF")
@scoped
def integer_svdf(scope: Scope, n: OpOf, x: Any, feature: Any, time: Any, b: Any, state: Any) -> Tensor:
    """The same in integers: the state and the filter over it have 16 bits."""
    data, features, times, kept_in, out = (quant_of(t) for t in (n.of(0), n.of(1), n.of(2), n.of(4), n.out()))
    t, w, s = as_tensor(x).astype("int32") - data.zero, as_tensor(time).astype("int64"), as_tensor(state)
    filters, memory = (int(e) for e in w.shape)
    batch, rank = t.shape[0], n["Rank"]
    ratio = lambda a, b, c: quantised_multiplier(float(np.float32(a.scale) * np.float32(b.scale) / np.float32(c.scale)))
    into = ratio(data, features, kept_in)
    total = F.matmul(t, as_tensor(feature).astype("int32"), transpose_b=True).astype("int64")
    now = F.clip(multiplied(total, *into), -(1 << 15), (1 << 15) - 1).astype("int16").reshape(batch, filters, 1)
    s = F.concat([s.reshape(batch, filters, memory)[:, :, 1:], now], 2)
    kept(scope, n, 4, s.reshape(batch, filters * memory))
    y = F.sum((s.astype("int64") * w).reshape(batch, filters // rank, rank, memory), [2, 3])
    y = y if b is None else y + as_tensor(b).astype("int64")
    low, high = limits(n.out().dtype)
    y = multiplied(y, *ratio(kept_in, times, out)) + out.zero
    return F.clip(y, low, high).astype(n.out().dtype)
