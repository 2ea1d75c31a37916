"""Recurrent networks: RNN, LSTM and GRU, cell by cell. Gates of an LSTM are ordered input, forget, cell, output; those of a GRU reset,
update, new, as in PyTorch."""

from __future__ import annotations

import math

import numpy as np

from tengen import functional as F
from tengen.module import init
from tengen.module.settings import Configured, counts, one_of
from tengen.ops.define import REGISTRY
from tengen.tensor import Parameter, Tensor


class _Cell(Configured):
    weights_decay = True
    gates = 1
    _fixed = ("input_size", "hidden_size", "bias")
    _checked = counts("input_size", "hidden_size")

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True):
        super().__init__()
        self.input_size, self.hidden_size, self.bias = input_size, hidden_size, bias
        rows, bound = self.gates * hidden_size, 1.0 / math.sqrt(hidden_size)
        self.weight_ih = Parameter(np.zeros((rows, input_size), np.float32))
        self.weight_hh = Parameter(np.zeros((rows, hidden_size), np.float32))
        self.bias_ih = Parameter(np.zeros(rows, np.float32)) if bias else None
        self.bias_hh = Parameter(np.zeros(rows, np.float32)) if bias else None
        for p in self.parameters():
            init.uniform_(p, -bound, bound)

    def _zeros(self, x: Tensor) -> Tensor:
        return F.zeros((x.shape[0], self.hidden_size), dtype=x.dtype)

    def _sum(self, projected: Tensor, h: Tensor) -> Tensor:
        return F.linear(h, self.weight_hh) + projected

    def project(self, x: Tensor) -> Tensor:
        """The input's part of the gates and the sum of both biases, for all steps at once: (..., input_size) -> (..., gates *
        hidden_size)."""
        bias = None if self.bias_ih is None or self.bias_hh is None else self.bias_ih + self.bias_hh
        return F.linear(x, self.weight_ih, bias)

    def run(self, projected: Tensor, state: tuple[Tensor, ...], reverse: bool) -> tuple[Tensor, tuple[Tensor, ...]]:
        """All steps from the projected input (T, N, ...): the outputs of all, and the state after the last."""
        outs: list[Tensor] = []
        for t in reversed(range(projected.shape[0])) if reverse else range(projected.shape[0]):
            state = self.step(projected[t], state)
            outs.append(state[0])
        return F.stack(outs[::-1] if reverse else outs, 0), state


class RNNCell(_Cell):
    """h' = tanh(W_ih x + b_ih + W_hh h + b_hh), or relu with nonlinearity="relu"."""

    _checked = _Cell._checked | {"nonlinearity": one_of("nonlinearity", "tanh", "relu")}

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True, nonlinearity: str = "tanh"):
        super().__init__(input_size, hidden_size, bias)
        self.nonlinearity = nonlinearity

    def step(self, projected: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """One step from the projected input."""
        return (REGISTRY[self.nonlinearity](self._sum(projected, state[0])),)

    def forward(self, x: Tensor, hx: Tensor | None = None) -> Tensor:
        return self.step(self.project(x), (self._zeros(x) if hx is None else hx,))[0]

    def start(self, x: Tensor) -> tuple[Tensor, ...]:
        """The state before the first step."""
        return (self._zeros(x),)


class LSTMCell(_Cell):
    """One step of an LSTM: (x, (h, c)) -> (h', c'). Source: Hochreiter and Schmidhuber, 1997."""

    gates = 4

    def step(self, projected: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """One step from the projected input."""
        h, c = state
        i, f, g, o = F.split(self._sum(projected, h), 4, axis=1)
        sigmoid, tanh = REGISTRY["sigmoid"], REGISTRY["tanh"]
        c = sigmoid(f) * c + sigmoid(i) * tanh(g)
        return sigmoid(o) * tanh(c), c

    def forward(self, x: Tensor, hx: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:
        return self.step(self.project(x), self.start(x) if hx is None else hx)

    def start(self, x: Tensor) -> tuple[Tensor, ...]:
        """The state before the first step."""
        return self._zeros(x), self._zeros(x)

    def run(self, projected: Tensor, state: tuple[Tensor, ...], reverse: bool) -> tuple[Tensor, tuple[Tensor, ...]]:
        """All steps, as one op: the same bits as step by step."""
        hs, cs, _ = REGISTRY["lstm"](projected, self.weight_hh, *state, reverse)
        return (hs[:-1], (hs[0], cs[0])) if reverse else (hs[1:], (hs[-1], cs[-1]))


class GRUCell(_Cell):
    """One step of a gated recurrent unit: (x, h) -> h'. Source: Cho et al., arXiv 1406.1078, with the reset gate applied to the
    product of the state, as in PyTorch and cuDNN:

        r = sigmoid(W_ir x + b_ir + W_hr h + b_hr)              z = sigmoid(W_iz x + b_iz + W_hz h + b_hz)
        n = tanh(W_in x + b_in + r (W_hn h + b_hn))             h' = (1 - z) n + z h

    >>> from tengen import functional as F, module as M
    >>> M.GRUCell(3, 4)(F.ones((2, 3))).shape
    (2, 4)
    """

    gates = 3

    def project(self, x: Tensor) -> Tensor:
        """The input's part of the gates with its bias; the state's bias is added in each step, since the reset gate scales it."""
        return F.linear(x, self.weight_ih, self.bias_ih)

    def step(self, projected: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """One step from the projected input."""
        (h,) = state
        n = self.hidden_size
        held = F.linear(h, self.weight_hh, self.bias_hh)
        sigmoid, tanh = REGISTRY["sigmoid"], REGISTRY["tanh"]
        r, z = sigmoid(projected[:, :n] + held[:, :n]), sigmoid(projected[:, n : 2 * n] + held[:, n : 2 * n])
        new = tanh(projected[:, 2 * n :] + r * held[:, 2 * n :])
        return (new + z * (h - new),)

    def forward(self, x: Tensor, hx: Tensor | None = None) -> Tensor:
        return self.step(self.project(x), (self._zeros(x) if hx is None else hx,))[0]

    def start(self, x: Tensor) -> tuple[Tensor, ...]:
        """The state before the first step."""
        return (self._zeros(x),)


class _Recurrent(Configured):
    _fixed = ("input_size", "hidden_size", "num_layers", "bias", "bidirectional", "proj_size", "nonlinearity")
    _checked = counts("input_size", "hidden_size", "num_layers")

    def __init__(
        self, make, input_size: int, hidden_size: int, num_layers: int, bias: bool, batch_first: bool, dropout: float,
        bidirectional: bool, proj_size: int,
    ):  # fmt: skip
        super().__init__()
        if proj_size:
            raise ValueError("proj_size must be 0")
        self.input_size, self.hidden_size, self.num_layers, self.bias = input_size, hidden_size, num_layers, bias
        self.batch_first, self.dropout, self.bidirectional, self.proj_size = batch_first, dropout, bidirectional, proj_size
        n = 2 if bidirectional else 1
        self.cells = [[make(layer, n) for _ in range(n)] for layer in range(num_layers)]

    def _run(self, x: Tensor, hx):
        """(output, list of final states) over (T, N, C)."""
        finals = []
        for layer, cells in enumerate(self.cells):
            outs = []
            for d, cell in enumerate(cells):
                i = layer * len(cells) + d
                state = cell.start(x[0]) if hx is None else tuple(h[i] for h in hx)
                y, state = cell.run(cell.project(x), state, d == 1)
                outs.append(y)
                finals.append(state)
            x = outs[0] if len(outs) == 1 else F.concat(outs, -1)
            if layer + 1 < self.num_layers:
                x = F.dropout(x, self.dropout, self.training)
        return x, finals

    def forward(self, x: Tensor, hx=None):
        x = x.transpose(1, 0, 2) if self.batch_first else x
        hx = (hx,) if isinstance(hx, Tensor) else hx
        y, finals = self._run(x, hx)
        last = tuple(F.stack([f[i] for f in finals], 0) for i in range(len(finals[0])))
        return (y.transpose(1, 0, 2) if self.batch_first else y), (last[0] if len(last) == 1 else last)


class RNN(_Recurrent):
    """Layers of `RNNCell` over a sequence (T, N, C), or (N, T, C) with batch_first. Returns (output, final hidden state)."""

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True, batch_first: bool = False,
        dropout: float = 0, bidirectional: bool = False, proj_size: int = 0, nonlinearity: str = "tanh",
    ):  # fmt: skip
        def make(layer, n):
            return RNNCell(input_size if layer == 0 else hidden_size * n, hidden_size, bias, nonlinearity)

        super().__init__(make, input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, proj_size)
        self.nonlinearity = nonlinearity


class LSTM(_Recurrent):
    """Layers of `LSTMCell` over a sequence (T, N, C), or (N, T, C) with batch_first. Returns (output, (h, c))."""

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True, batch_first: bool = False,
        dropout: float = 0, bidirectional: bool = False, proj_size: int = 0,
    ):  # fmt: skip
        def make(layer, n):
            return LSTMCell(input_size if layer == 0 else hidden_size * n, hidden_size, bias)

        super().__init__(make, input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, proj_size)


class GRU(_Recurrent):
    """Layers of `GRUCell` over a sequence (T, N, C), or (N, T, C) with batch_first. Returns (output, final hidden state)."""

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True, batch_first: bool = False,
        dropout: float = 0, bidirectional: bool = False, proj_size: int = 0,
    ):  # fmt: skip
        def make(layer, n):
            return GRUCell(input_size if layer == 0 else hidden_size * n, hidden_size, bias)

        super().__init__(make, input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, proj_size)
