"""Recurrent layers, as one operator of PyTorch's each: an LSTM is one of Tengen's, GRU and RNN are loops of the program."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import tengen.functional as F
from tengen.base.errors import ArgumentError
from tengen.interop.torch.registry import op
from tengen.ops.define import REGISTRY
from tengen.tensor import Tensor

State = tuple[Tensor, ...]
# (the steps (T, N, features), the state before, the weights of a direction, whether the last step is the first) -> (outputs, the state after)
Layer = Callable[[Tensor, State, Sequence[Tensor], bool], tuple[Tensor, State]]


def _scanned(step: Callable[[Tensor, State], State], projected: Tensor, state: State, reverse: bool) -> tuple[Tensor, State]:
    """All steps as a loop of the program, from the input's part of the gates."""

    def one(state: State, x: Tensor) -> tuple[State, Tensor]:
        state = step(x, state)
        return state, state[0]

    state, outputs = F.scan(one, state, projected, reverse=reverse)
    return outputs, state


def _lstm(x: Tensor, state: State, weights: Sequence[Tensor], reverse: bool) -> tuple[Tensor, State]:
    w, u, *biases = weights
    hs, cs, _ = REGISTRY["lstm"](F.linear(x, w, biases[0] + biases[1] if biases else None), u, *state, reverse)
    return (hs[:-1], (hs[0], cs[0])) if reverse else (hs[1:], (hs[-1], cs[-1]))


def _gru(x: Tensor, state: State, weights: Sequence[Tensor], reverse: bool) -> tuple[Tensor, State]:
    w, u, *biases = weights
    bias, held_bias = biases or (None, None)

    def step(part: Tensor, state: State) -> State:
        (h,) = state
        n, held = h.shape[-1], F.linear(h, u, held_bias)
        r, z = (F.sigmoid(part[:, i : i + n] + held[:, i : i + n]) for i in (0, n))
        new = F.tanh(part[:, 2 * n :] + r * held[:, 2 * n :])
        return (new + z * (h - new),)

    return _scanned(step, F.linear(x, w, bias), state, reverse)


def _rnn(activation: Callable[[Tensor], Tensor]) -> Layer:
    def layer(x: Tensor, state: State, weights: Sequence[Tensor], reverse: bool) -> tuple[Tensor, State]:
        w, u, *biases = weights
        projected = F.linear(x, w, biases[0] + biases[1] if biases else None)
        return _scanned(lambda part, state: (activation(F.linear(state[0], u) + part),), projected, state, reverse)

    return layer


def _layers(
    layer: Layer, x: Tensor, hx: Sequence[Tensor], params: Sequence[Tensor], has_biases: bool, num_layers: int, dropout: float, train: bool,
    bidirectional: bool, batch_first: bool,
) -> tuple[Tensor, ...]:  # fmt: skip
    """(The outputs of the last layer, the states after all steps, for each layer and direction)."""
    directions, each = 1 + bidirectional, 4 if has_biases else 2
    if len(params) != directions * num_layers * each:
        raise ArgumentError("a recurrent layer with a projection of its state (proj_size) has no meaning here")
    x = F.swapaxes(x, 0, 1) if batch_first else x
    ends: list[State] = []
    for i in range(num_layers):
        outs = []
        for d in range(directions):
            k = i * directions + d
            y, state = layer(x, tuple(h[k] for h in hx), params[k * each : (k + 1) * each], d == 1)
            outs.append(y)
            ends.append(state)
        x = F.concat(outs, -1) if bidirectional else outs[0]
        if i + 1 < num_layers:
            x = F.dropout(x, float(dropout), bool(train))
    states = (F.stack([s[j] for s in ends], 0) for j in range(len(hx)))
    return (F.swapaxes(x, 0, 1) if batch_first else x), *states


@op("lstm.input")
def lstm(x: Tensor, hx: Sequence[Tensor], *rest) -> tuple[Tensor, ...]:
    """(Outputs, hidden states, cell states)."""
    return _layers(_lstm, x, hx, *rest)


for name, one in {"gru.input": _gru, "rnn_tanh.input": _rnn(F.tanh), "rnn_relu.input": _rnn(F.relu)}.items():
    op(name)(lambda x, h, *rest, one=one: _layers(one, x, (h,), *rest))
