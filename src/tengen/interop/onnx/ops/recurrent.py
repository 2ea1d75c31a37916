"""RNN, GRU and LSTM: a loop over steps that stays a loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tengen.functional as F
from tengen.interop.onnx.reader import NodeOf
from tengen.interop.onnx.registry import op
from tengen.interop.onnx.values import Value, as_tensor
from tengen.tensor import Tensor

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

    def run(self, x: Value, lengths: Value, states: list[Value], step: Callable[..., tuple[Tensor, ...]]) -> tuple[Value, ...]:
        """All steps in all directions. step(d, x_t, *state) -> the next state, whose first part is the output."""
        t = as_tensor(x)
        t = F.transpose(t, [1, 0, 2]) if self.n.get("layout", 0) else t
        steps, batch = t.shape[:2]
        firsts = []
        for s in states:
            s = F.zeros((self.directions, batch, self.hidden), t.dtype) if s is None else as_tensor(s)
            firsts.append(F.transpose(s, [1, 0, 2]) if self.n.get("layout", 0) and s.shape[0] != self.directions else s)
        much = None if lengths is None else as_tensor(lengths).astype("int32").reshape(-1, 1)
        outs, lasts = [], []
        for d in range(self.directions):
            back = self.direction == "reverse" or d == 1
            place = F.arange(steps, dtype="int32")

            def body(state, now, d=d):
                made = step(d, now[0], *state)
                if much is None:
                    return made, made[0]
                valid = F.less(now[1], much)
                kept = tuple(F.where(valid, new, old) for new, old in zip(made, state))
                return kept, F.where(valid, made[0], F.zeros_like(made[0]))

            last, ys = F.scan(body, tuple(f[d] for f in firsts), (t, place), reverse=back)
            outs.append(ys)
            lasts.append(last)
        y = F.stack(outs, 1)  # (steps, directions, batch, hidden)
        ends = [F.stack([one[i] for one in lasts], 0) for i in range(len(states))]
        if self.n.get("layout", 0):
            y, ends = F.transpose(y, [2, 0, 1, 3]), [F.transpose(e, [1, 0, 2]) for e in ends]
        return (y, *ends)

    def clipped(self, v: Tensor) -> Tensor:
        """Within the node's `clip`."""
        c = self.n.get("clip")
        return v if not c else F.clip(v, -c, c)

    def biases(self, b: Value, dtype: Any) -> list[tuple[Tensor, Tensor]]:
        """Of the input's part and of the state's, for each direction."""
        size = self.count * self.hidden
        if b is None:
            zero = F.zeros((size,), dtype)
            return [(zero, zero)] * self.directions
        t = as_tensor(b)
        return [(t[d, :size], t[d, size:]) for d in range(self.directions)]


@op("RNN")
def rnn(n: NodeOf, x: Value, w: Value, r: Value, b: Value = None, lengths: Value = None, h: Value = None) -> tuple[Value, ...]:
    """h = f(x W + h R + b)."""
    layer, wt, rt = Layer(n, ["Tanh"], 1), as_tensor(w), as_tensor(r)
    bias = layer.biases(b, wt.dtype)

    def step(d: int, now: Tensor, h: Tensor) -> tuple[Tensor, ...]:
        total = F.matmul(now, wt[d], transpose_b=True) + F.matmul(h, rt[d], transpose_b=True) + bias[d][0] + bias[d][1]
        return (layer.acts[d][0](layer.clipped(total)),)

    return layer.run(x, lengths, [h], step)


@op("GRU")
def gru(n: NodeOf, x: Value, w: Value, r: Value, b: Value = None, lengths: Value = None, h: Value = None) -> tuple[Value, ...]:
    """Gates z, r, h; `linear_before_reset` multiplies by r after the product."""
    layer, wt, rt, k = Layer(n, ["Sigmoid", "Tanh"], 3), as_tensor(w), as_tensor(r), n["hidden_size"]
    bias = layer.biases(b, wt.dtype)

    def step(d: int, now: Tensor, h: Tensor) -> tuple[Tensor, ...]:
        f, g = layer.acts[d]
        xs = F.matmul(now, wt[d], transpose_b=True) + bias[d][0]
        hs = F.matmul(h, rt[d][: 2 * k], transpose_b=True) + bias[d][1][: 2 * k]
        z = f(layer.clipped(xs[:, :k] + hs[:, :k]))
        reset = f(layer.clipped(xs[:, k : 2 * k] + hs[:, k:]))
        if n.get("linear_before_reset", 0):
            inner = reset * (F.matmul(h, rt[d][2 * k :], transpose_b=True) + bias[d][1][2 * k :])
        else:
            inner = F.matmul(reset * h, rt[d][2 * k :], transpose_b=True) + bias[d][1][2 * k :]
        new = g(layer.clipped(xs[:, 2 * k :] + inner))
        return ((1 - z) * new + z * h,)

    return layer.run(x, lengths, [h], step)


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
    """Gates i, o, f, c; `p` lets the gates see the cell; `input_forget` couples f to i."""
    layer, wt, rt, k = Layer(n, ["Sigmoid", "Tanh", "Tanh"], 4), as_tensor(w), as_tensor(r), n["hidden_size"]
    bias = layer.biases(b, wt.dtype)
    peep = None if p is None else as_tensor(p)

    def step(d: int, now: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, ...]:
        f, g, out = layer.acts[d]
        total = F.matmul(now, wt[d], transpose_b=True) + F.matmul(h, rt[d], transpose_b=True) + (bias[d][0] + bias[d][1])
        i, o, forget, cell = (total[:, j * k : (j + 1) * k] for j in range(4))
        sees = (
            (lambda gate, part: gate)
            if peep is None
            else (lambda gate, part, v=c: gate + peep[d, part * k : (part + 1) * k] * v)
        )
        i = f(layer.clipped(sees(i, 0)))
        forget = 1 - i if n.get("input_forget", 0) else f(layer.clipped(sees(forget, 2)))
        cell = forget * c + i * g(layer.clipped(cell))
        o = o if peep is None else o + peep[d, k : 2 * k] * cell
        return f(layer.clipped(o)) * out(cell), cell

    return layer.run(x, lengths, [h, c], step)
