"""Recurrent networks: RNN, LSTM and GRU, cell by cell. Gates of an LSTM are ordered input, forget, cell, output; those of a GRU reset,
update, new, as in PyTorch."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tengen import functional as F
from tengen.base.errors import ShapeError
from tengen.module import init
from tengen.module.packed import PackedSequence, padded_in_order, places, reversal
from tengen.module.settings import Configured, counts, one_of
from tengen.ops.define import REGISTRY
from tengen.tensor import Parameter, Tensor


class _Cell(Configured):
    weights_decay = True
    gates = 1
    two_states = False
    _fixed = ("input_size", "hidden_size", "bias")
    _checked = counts("input_size", "hidden_size")

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True):
        super().__init__()
        self.input_size, self.hidden_size, self.bias = input_size, hidden_size, bias
        rows = self.gates * hidden_size
        self.weight_ih = init.blank(rows, input_size)
        self.weight_hh = init.blank(rows, hidden_size)
        self.bias_ih = Parameter(np.zeros(rows, np.float32)) if bias else None
        self.bias_hh = Parameter(np.zeros(rows, np.float32)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws all parameters anew."""
        bound = 1.0 / math.sqrt(self.hidden_size)
        for p in self.parameters():
            init.uniform_(p, -bound, bound)

    def _module_info_string(self) -> str:
        return f"{self.input_size}, {self.hidden_size}" + ("" if self.bias else ", bias=False")

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
        """All steps from the projected input (T, N, ...): the outputs of all, and the state after the last. A loop of the program where T is
        open, with the same bits."""
        if not isinstance(projected.shape[0], int):
            return self._loop(projected, state, reverse)
        outs: list[Tensor] = []
        for t in reversed(range(projected.shape[0])) if reverse else range(projected.shape[0]):
            state = self.step(projected[t], state)
            outs.append(state[0])
        return F.stack(outs[::-1] if reverse else outs, 0), state

    def _loop(self, projected: Tensor, state: tuple[Tensor, ...], reverse: bool) -> tuple[Tensor, tuple[Tensor, ...]]:
        """`run` as a loop. The first step stands before it, and an iteration gives the output that it was given: so a gradient is added up in
        the order of the steps one after another, first that of the output, then those of the next step."""
        first, rest = (projected[-1], projected[:-1]) if reverse else (projected[0], projected[1:])
        state, outputs = F.scan(lambda state, x: (self.step(x, state), state[0]), self.step(first, state), rest, reverse=reverse)
        last = F.expand_dims(state[0], 0)
        return F.concat([last, outputs] if reverse else [outputs, last], 0), state

    def states(self, projected: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """The states after each step from the projected input (T, N, ...), (T, N, hidden_size) each; the first ones are the outputs."""
        return (self.run(projected, state, False)[0],)


class RNNCell(_Cell):
    """h' = tanh(W_ih x + b_ih + W_hh h + b_hh), or relu with nonlinearity="relu"."""

    _checked = _Cell._checked | {"nonlinearity": one_of("nonlinearity", "tanh", "relu")}

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True, nonlinearity: str = "tanh"):
        super().__init__(input_size, hidden_size, bias)
        self.nonlinearity = nonlinearity

    def step(self, projected: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """One step from the projected input."""
        return (REGISTRY[self.nonlinearity](self._sum(projected, state[0])),)

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        return self.step(self.project(input), (self._zeros(input) if hx is None else hx,))[0]

    def start(self, x: Tensor) -> tuple[Tensor, ...]:
        """The state before the first step."""
        return (self._zeros(x),)


class LSTMCell(_Cell):
    """One step of an LSTM: (x, (h, c)) -> (h', c'). Source: Hochreiter and Schmidhuber, 1997."""

    gates, two_states = 4, True

    def step(self, projected: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """One step from the projected input."""
        h, c = state
        i, f, g, o = F.split(self._sum(projected, h), 4, axis=1)
        sigmoid, tanh = REGISTRY["sigmoid"], REGISTRY["tanh"]
        c = sigmoid(f) * c + sigmoid(i) * tanh(g)
        return sigmoid(o) * tanh(c), c

    def forward(self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:
        return self.step(self.project(input), self.start(input) if hx is None else hx)

    def start(self, x: Tensor) -> tuple[Tensor, ...]:
        """The state before the first step."""
        return self._zeros(x), self._zeros(x)

    def run(self, projected: Tensor, state: tuple[Tensor, ...], reverse: bool) -> tuple[Tensor, tuple[Tensor, ...]]:
        """All steps, as one op: the same bits as step by step."""
        hs, cs, _ = REGISTRY["lstm"](projected, self.weight_hh, *state, reverse)
        return (hs[:-1], (hs[0], cs[0])) if reverse else (hs[1:], (hs[-1], cs[-1]))

    def states(self, projected: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """The states after each step."""
        hs, cs, _ = REGISTRY["lstm"](projected, self.weight_hh, *state, False)
        return hs[1:], cs[1:]


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

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        return self.step(self.project(input), (self._zeros(input) if hx is None else hx,))[0]

    def start(self, x: Tensor) -> tuple[Tensor, ...]:
        """The state before the first step."""
        return (self._zeros(x),)


class _Recurrent(Configured):
    """Layers of cells. Subclasses say in `create_cell` which; those of a user's may say another."""

    _fixed = ("input_size", "hidden_size", "num_layers", "bias", "bidirectional", "proj_size", "nonlinearity")
    _checked = counts("input_size", "hidden_size", "num_layers")
    cell: type[_Cell]
    projects = False  # whether there are cells that make a state smaller, of proj_size elements

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True, batch_first: bool = False, dropout: float = 0,
        bidirectional: bool = False, proj_size: int = 0, **kwargs,
    ):  # fmt: skip
        super().__init__(**kwargs)
        if proj_size and not self.projects:
            raise ValueError(f"{type(self).__name__}: proj_size={proj_size} must be 0; help: tengen.pytorch.nn.LSTM has it")
        self.input_size, self.hidden_size, self.num_layers, self.bias = input_size, hidden_size, num_layers, bias
        self.batch_first, self.dropout, self.bidirectional, self.proj_size = batch_first, dropout, bidirectional, proj_size
        self.cells = [[self.create_cell(layer) for _ in range(self.num_directions)] for layer in range(num_layers)]

    def _module_info_string(self) -> str:
        usual = {"num_layers": 1, "bias": True, "batch_first": False, "dropout": 0, "bidirectional": False}
        more = [f"{name}={value}" for name, default in usual.items() if (value := getattr(self, name)) != default]
        return ", ".join([f"{self.input_size}, {self.hidden_size}", *more])

    @property
    def num_directions(self) -> int:
        """2 for a bidirectional network, else 1."""
        return 2 if self.bidirectional else 1

    def create_cell(self, layer: int) -> _Cell:
        """A cell for a layer, which takes the input, or what all directions of the layer before give. MegEngine's name for subclasses."""
        return self.cell(self.input_size if layer == 0 else self.hidden_size * self.num_directions, self.hidden_size, self.bias)

    def init_hidden(self, batch_size: int) -> Tensor | tuple[Tensor, ...]:
        """The states before the first step, zeros: (num_layers * num_directions, batch_size, hidden_size); of an LSTM two."""
        one = F.zeros((self.num_layers * self.num_directions, batch_size, self.hidden_size), dtype=self.cells[0][0].weight_hh.dtype)
        return (one, one * 1) if self.cells[0][0].two_states else one

    def get_output_from_hidden(self, hx: Tensor | tuple[Tensor, ...]) -> Tensor:
        """The part of a state that a layer gives as its output."""
        return hx if isinstance(hx, Tensor) else hx[0]

    def _respell(self, prefix: str, values: dict[str, Any]) -> None:
        """MegEngine computes with one parameter, which holds those of all cells one behind the other; its cells' own are not read there."""
        given = values.pop(f"{prefix}_flatten_weights", None)
        if given is None:
            return
        flat, at = np.asarray(given.numpy() if isinstance(given, Tensor) else given).reshape(-1), 0
        owned = [(f"{prefix}cells.{i}.{d}.{name}", p) for i, cells in enumerate(self.cells) for d, cell in enumerate(cells)
                 for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh") if (p := getattr(cell, name)) is not None]  # fmt: skip
        if flat.size != sum(p.size for _, p in owned):
            raise ShapeError(f"{prefix}_flatten_weights has {flat.size} elements, and the cells have {sum(p.size for _, p in owned)}")
        for name, p in owned:
            values[name] = flat[at : at + p.size].reshape(p.shape)
            at += p.size

    def reset_parameters(self) -> None:
        """Draws all parameters anew."""
        for cells in self.cells:
            for cell in cells:
                cell.reset_parameters()

    def _run(self, x: Tensor, hx, lengths: np.ndarray | None = None):
        """(output, list of final states) over (T, N, C). Of sequences of different lengths, the longest first, what lies behind an end
        is computed and never used, so that each gets the bits that it gets alone."""
        turn = None if lengths is None else reversal(lengths)
        last = None if lengths is None else (Tensor(lengths - 1), Tensor(np.arange(len(lengths))))
        finals = []
        for layer, cells in enumerate(self.cells):
            outs = []
            for d, cell in enumerate(cells):
                i = layer * len(cells) + d
                state = cell.start(x[0]) if hx is None else tuple(h[i] for h in hx)
                if last is None:
                    y, state = cell.run(cell.project(x), state, d == 1)
                else:
                    every = cell.states(cell.project(x[turn] if d == 1 else x), state)
                    y, state = every[0][turn] if d == 1 else every[0], tuple(s[last] for s in every)
                outs.append(y)
                finals.append(state)
            x = outs[0] if len(outs) == 1 else F.concat(outs, -1)
            if layer + 1 < self.num_layers:
                x = F.dropout(x, self.dropout, self.training)
        return x, finals

    def _over_packed(self, x: PackedSequence, hx):
        into, back = x.sorted_indices, x.unsorted_indices
        if hx is not None and into is not None:
            hx = tuple(F.take(h, into, 1) for h in hx)
        y, finals = self._run(padded_in_order(x), hx, x.lengths)
        steps, rows = places(x.lengths)
        ends = [F.stack([f[i] for f in finals], 0) for i in range(len(finals[0]))]
        return x.with_data(y[Tensor(steps), Tensor(rows)]), ends if back is None else [F.take(h, back, 1) for h in ends]

    def forward(self, input: Tensor | PackedSequence, hx=None):
        if isinstance(input, PackedSequence):
            packed, ends = self._over_packed(input, (hx,) if isinstance(hx, Tensor) else hx)
            return packed, ends[0] if len(ends) == 1 else tuple(ends)
        x = input.transpose(1, 0, 2) if self.batch_first else input
        hx = (hx,) if isinstance(hx, Tensor) else hx
        y, finals = self._run(x, hx)
        last = tuple(F.stack([f[i] for f in finals], 0) for i in range(len(finals[0])))
        return (y.transpose(1, 0, 2) if self.batch_first else y), (last[0] if len(last) == 1 else last)


class RNN(_Recurrent):
    """Layers of `RNNCell` over a sequence (T, N, C), or (N, T, C) with batch_first. Returns (output, final hidden state).
    A `PackedSequence` gives one."""

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True, batch_first: bool = False,
        dropout: float = 0, bidirectional: bool = False, proj_size: int = 0, nonlinearity: str = "tanh", **kwargs,
    ):  # fmt: skip
        self.nonlinearity = nonlinearity
        super().__init__(input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, proj_size, **kwargs)

    def create_cell(self, layer: int) -> RNNCell:
        """A cell for a layer."""
        size = self.input_size if layer == 0 else self.hidden_size * self.num_directions
        return RNNCell(size, self.hidden_size, self.bias, self.nonlinearity)


class LSTM(_Recurrent):
    """Layers of `LSTMCell` over a sequence (T, N, C), or (N, T, C) with batch_first. Returns (output, (h, c)). A
    `PackedSequence` gives one."""

    cell = LSTMCell


class GRU(_Recurrent):
    """Layers of `GRUCell` over a sequence (T, N, C), or (N, T, C) with batch_first. Returns (output, final hidden state).
    A `PackedSequence` gives one."""

    cell = GRUCell
