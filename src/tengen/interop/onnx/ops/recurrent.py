"""RNN, GRU and LSTM: a loop over steps that stays a loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tengen.functional as F
from tengen.base.errors import ShapeError
from tengen.interop.onnx.reader import NodeOf
from tengen.interop.onnx.registry import op
from tengen.interop.onnx.values import Value, as_tensor
from tengen.loops.lang import as_int
from tengen.ops.define import REGISTRY
from tengen.tensor import Tensor

Over = Callable[..., tuple[Tensor, ...]]
SCALED = {"LeakyRelu": 0.01, "ThresholdedRelu": 1.0, "Elu": 1.0, "Affine": 1.0, "ScaledTanh": 1.0, "HardSigmoid": 0.2}


def activation(name: str, alpha: float | None, beta: float | None) -> Callable[[Tensor], Tensor]:
    """A function between gates; its name may be written in any case."""
    a = SCALED.get(name, 0.0) if alpha is None else alpha
    b = {"HardSigmoid": 0.5, "ScaledTanh": 1.0}.get(name, 0.0) if beta is None else beta
    table: dict[str, Callable] = {
        "sigmoid": F.sigmoid, "tanh": F.tanh, "relu": F.relu, "softsign": lambda x: x / (1 + F.abs(x)), "softplus": F.softplus,
        "leakyrelu": lambda x: F.leaky_relu(x, a), "elu": lambda x: F.elu(x, a), "affine": lambda x: x * a + b,
        "thresholdedrelu": lambda x: F.where(F.greater(x, a), x, F.zeros_like(x)), "scaledtanh": lambda x: F.tanh(x * b) * a,
        "hardsigmoid": lambda x: F.clip(x * a + b, 0, 1),
    }  # fmt: skip
    if name.lower() not in table:
        raise ValueError(f"activation {name!r} is unknown; there are {', '.join(sorted(table))}")
    return table[name.lower()]


class Layer:
    """What the three have in common: directions, layouts, lengths, activations.

    Attributes:
        count: of gates. acts: the functions of a direction, in order.
    """

    def __init__(self, n: NodeOf, names: list[str], count: int):
        self.n, self.count = n, count
        self.hidden, self.direction = n["hidden_size"], n.get("direction", "forward")
        self.directions = 2 if self.direction == "bidirectional" else 1
        given = n.get("activations") or names * self.directions
        alphas, betas = list(n.get("activation_alpha") or []), list(n.get("activation_beta") or [])
        take = lambda values: values.pop(0) if values else None
        per = len(names)
        wants = [
            (take(alphas) if g in SCALED else None, take(betas) if g in ("HardSigmoid", "Affine", "ScaledTanh") else None)
            for g in given
        ]
        self.acts = [
            [activation(g, *w) for g, w in zip(given[d * per : (d + 1) * per], wants[d * per : (d + 1) * per])]
            for d in range(self.directions)
        ]

    def run(self, x: Value, part: Callable[[int, Tensor], Tensor], states: list[Value], over: Over) -> tuple[Value, ...]:
        """All directions.

        Args:
            part: (d, the inputs (steps batch, features)) -> the input's part of the gates, (steps batch, gates): one product over all steps.
            over: (d, the input's part of all steps, whether they go backwards, *state) -> (the outputs of all steps, *last state).
        """
        t = as_tensor(x)
        t = F.transpose(t, [1, 0, 2]) if self.n.get("layout", 0) else t
        steps, batch = t.shape[:2]
        firsts = []
        for s in states:
            s = F.zeros((self.directions, batch, self.hidden), t.dtype) if s is None else as_tensor(s)
            firsts.append(F.transpose(s, [1, 0, 2]) if self.n.get("layout", 0) and s.shape[0] != self.directions else s)
        outs, lasts = [], []
        for d in range(self.directions):
            parts = part(d, t.reshape(steps * batch, t.shape[2])).reshape(steps, batch, self.count * self.hidden)
            ys, *last = over(d, parts, self.direction == "reverse" or d == 1, *(f[d] for f in firsts))
            outs.append(ys)
            lasts.append(last)
        y = F.stack(outs, 1)  # (steps, directions, batch, hidden)
        ends = [F.stack([one[i] for one in lasts], 0) for i in range(len(states))]
        if self.n.get("layout", 0):
            y, ends = F.transpose(y, [2, 0, 1, 3]), [F.transpose(e, [1, 0, 2]) for e in ends]
        return (y, *ends)

    def by_steps(self, step: Callable[..., tuple[Tensor, ...]], lengths: Value) -> Over:
        """A loop over steps. step(d, the input's part, *state) -> the next state, whose first part is the output.

        Examples whose length is reached keep their state, and give zeros."""
        much = None if lengths is None else as_tensor(lengths).astype("int32").reshape(-1, 1)

        def over(d: int, parts: Tensor, back: bool, *state: Tensor) -> tuple[Tensor, ...]:
            def body(state: Any, now: Any) -> tuple[Any, Tensor]:
                made = step(d, now[0], *state)
                if much is None:
                    return made, made[0]
                valid = F.less(now[1], much)
                kept = tuple(F.where(valid, new, old) for new, old in zip(made, state))
                return kept, F.where(valid, made[0], F.zeros_like(made[0]))

            last, ys = F.scan(body, state, (parts, F.arange(parts.shape[0], dtype="int32")), reverse=back)
            return (ys, *last)

        return over

    def clipped(self, v: Tensor) -> Tensor:
        """Within the node's `clip`."""
        c = self.n.get("clip")
        return v if not c else F.clip(v, -c, c)

    def projection(self, w: Value, bias: Callable[[int], Tensor | None]) -> Callable[[int, Tensor], Tensor]:
        """x w.T + bias(d), as `run` takes it."""

        def part(d: int, t: Tensor) -> Tensor:
            made, b = F.matmul(t, as_tensor(w)[d], transpose_b=True), bias(d)
            return made if b is None else made + b

        return part

    def biases(self, b: Value) -> Callable[[int], Tensor | None]:
        """The sum of a direction's biases, of the input's part and of the state's; None where there are none."""
        size = self.count * self.hidden
        t = None if b is None else as_tensor(b)
        return lambda d: None if t is None else t[d, :size] + t[d, size:]


@op("RNN")
def rnn(n: NodeOf, x: Value, w: Value, r: Value, b: Value = None, lengths: Value = None, h: Value = None) -> tuple[Value, ...]:
    """h = f(x W + h R + b)."""
    layer, rt = Layer(n, ["Tanh"], 1), as_tensor(r)

    def step(d: int, xs: Tensor, h: Tensor) -> tuple[Tensor, ...]:
        return (layer.acts[d][0](layer.clipped(xs + F.matmul(h, rt[d], transpose_b=True))),)

    return layer.run(x, layer.projection(w, layer.biases(b)), [h], layer.by_steps(step, lengths))


@op("GRU")
def gru(n: NodeOf, x: Value, w: Value, r: Value, b: Value = None, lengths: Value = None, h: Value = None) -> tuple[Value, ...]:
    """Gates z, r, h; `linear_before_reset` multiplies by r after the product."""
    layer, rt, k, before = Layer(n, ["Sigmoid", "Tanh"], 3), as_tensor(r), n["hidden_size"], bool(n.get("linear_before_reset", 0))
    biases = None if b is None else as_tensor(b)

    def bias(d: int) -> Tensor | None:
        """What may be added before the steps: all but the last of the state's, which `reset` multiplies."""
        if biases is None or not before:
            return layer.biases(b)(d)
        return F.concat([biases[d, : 2 * k] + biases[d, 3 * k : 5 * k], biases[d, 2 * k : 3 * k]])

    def step(d: int, xs: Tensor, h: Tensor) -> tuple[Tensor, ...]:
        f, g = layer.acts[d]
        if before:  # one product for all three
            hs = F.matmul(h, rt[d], transpose_b=True)
            inner = hs[:, 2 * k :] if biases is None else hs[:, 2 * k :] + biases[d, 5 * k :]
        else:
            hs = F.matmul(h, rt[d][: 2 * k], transpose_b=True)
        z = f(layer.clipped(xs[:, :k] + hs[:, :k]))
        reset = f(layer.clipped(xs[:, k : 2 * k] + hs[:, k : 2 * k]))
        inner = reset * inner if before else F.matmul(reset * h, rt[d][2 * k :], transpose_b=True)
        new = g(layer.clipped(xs[:, 2 * k :] + inner))
        return ((1 - z) * new + z * h,)

    return layer.run(x, layer.projection(w, bias), [h], layer.by_steps(step, lengths))


@op("LSTM")
def lstm(
    n: NodeOf,
    x: Value,
    w: Value,
    r: Value,
    b: Value = None,
    lengths: Value = None,
    h: Value = None,
    c: Value = None,
    p: Value = None,
) -> tuple[Value, ...]:
    """Gates i, o, f, c; `p` lets the gates see the cell; `input_forget` couples f to i. One with none of these is the op `lstm`."""
    layer, rt = Layer(n, ["Sigmoid", "Tanh", "Tanh"], 4), as_tensor(r)
    names = [name.lower() for name in n.get("activations") or []]
    plain = names in ([], ["sigmoid", "tanh", "tanh"] * layer.directions)
    if plain and p is None and not n.get("clip") and not n.get("input_forget", 0) and lengths is None:
        return whole_lstm(layer, x, w, r, b, h, c)
    step = lstm_step(layer, lambda d, h: F.matmul(h, rt[d], transpose_b=True), p)
    return layer.run(x, layer.projection(w, layer.biases(b)), [h, c], layer.by_steps(step, lengths))


def lstm_step(layer: Layer, recurrent: Callable[[int, Tensor], Tensor], p: Value) -> Callable[..., tuple[Tensor, ...]]:
    """A step of any LSTM. recurrent: (d, the state) -> its part of the gates. p: what the gates see of the cell, or None."""
    k, peep = layer.hidden, None if p is None else as_tensor(p)

    def step(d: int, xs: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, ...]:
        f, g, out = layer.acts[d]
        total = xs + recurrent(d, h)
        i, o, forget, cell = (total[:, j * k : (j + 1) * k] for j in range(4))
        sees = lambda gate, part, v: gate if peep is None else gate + peep[d, part * k : (part + 1) * k] * v
        i = f(layer.clipped(sees(i, 0, c)))
        forget = 1 - i if layer.n.get("input_forget", 0) else f(layer.clipped(sees(forget, 2, c)))
        cell = forget * c + i * g(layer.clipped(cell))
        return f(layer.clipped(sees(o, 1, cell))) * out(cell), cell

    return step


def whole_lstm(layer: Layer, x: Value, w: Value, r: Value, b: Value, h: Value, c: Value) -> tuple[Value, ...]:
    """By the op `lstm`, whose gates stand in the order i, f, c, o."""
    def ordered(v: Value, axis: int, count: int = 4) -> Tensor:
        """Gates i, o, f, c along an axis, in the op's order; count: how many it holds."""
        k, t = layer.hidden, as_tensor(v)
        if as_int(t.shape[axis]) not in (None, count * k):
            raise ShapeError(f"{count} gates of {k} numbers along axis {axis} are needed, the shape is {tuple(t.shape)}")
        order = [at + g for at in range(0, count, 4) for g in (0, 2, 3, 1)]
        return F.concat([t[(slice(None),) * axis + (slice(g * k, (g + 1) * k),)] for g in order], axis)

    weights = ordered(r, 1)

    def over(d: int, parts: Tensor, back: bool, h: Tensor, c: Tensor) -> tuple[Tensor, ...]:
        hs, cs, _ = REGISTRY["lstm"](parts, weights[d], h, c, back)
        last = 0 if back else -1
        return hs[:-1] if back else hs[1:], hs[last], cs[last]

    return layer.run(x, layer.projection(ordered(w, 1), layer.biases(None if b is None else ordered(b, 1, 8))), [h, c], over)
