"""LSTMs of integers alone: activations of 8 bits, gates and cells of 16, rounded as TFLite's kernels round.

Gates have 12 bits after the point before their functions, and 15 behind them; a cell has a scale that is a power of 2.
"""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any

import numpy as np

import tengen.functional as F
from tengen.interop.networks.integers import factor, in_int32
from tengen.interop.networks.values import as_tensor
from tengen.interop.tflite.fixed import divided, multiplied, quantised_multiplier, sigmoid_16, tanh_16
from tengen.interop.tflite.ops.control import scoped
from tengen.interop.tflite.ops.elementwise import activation_of
from tengen.interop.tflite.ops.lookup import all_values, quant_of
from tengen.interop.tflite.ops.recurrent import kept, steps_back, steps_first
from tengen.interop.tflite.reader import OpOf, Quant
from tengen.interop.tflite.registry import quantised
from tengen.tensor import Tensor

if TYPE_CHECKING:
    from tengen.interop.tflite.network import Scope

BEFORE = 2.0**-12  # the scale of gates before their functions
FUNCTIONS = {"sigmoid": sigmoid_16, "tanh": tanh_16}


def within(t: Tensor, bits: int) -> Tensor:
    """Saturated in so many bits; int64."""
    return F.clip(t, -(1 << (bits - 1)), (1 << (bits - 1)) - 1)


@functools.lru_cache(16)
def table_of(function: str, integer_bits: int) -> np.ndarray:
    """A function of all 65,536 numbers of 16 bits with so many bits before the point: int16."""
    return FUNCTIONS[function](all_values(np.int16), integer_bits).astype(np.int16)


def through(t: Tensor, function: str, integer_bits: int) -> Tensor:
    """A function of numbers of 16 bits."""
    return F.take(as_tensor(table_of(function, integer_bits)), t.astype("int32") + (1 << 15), 0).astype("int64")


class Product:
    """A weight of 8 bits by which activations of 8 bits are multiplied.

    Attributes:
        data: their scale. bias: what is added to the sums. ratio: the factor from sums to the result, as (multiplier, shift).
    """

    def __init__(self, n: OpOf, i: int, weight: Any, data: Quant, to: float, bias: Any = None):
        q = quant_of(n.of(i))
        if q.zero:
            raise ValueError(f"weights {n.of(i).name!r} of an LSTM of integers have the zero point {q.zero}")
        self.weight, self.data = as_tensor(weight), data
        self.bias = None if bias is None else as_tensor(bias).astype("int64")
        self.ratio = quantised_multiplier(float(np.float32(q.scale) * np.float32(data.scale) / np.float32(to)))

    def __call__(self, t: Tensor) -> Tensor:
        """The scaled sums in int64. t: int8, (batch, features)."""
        a = factor(t, Tensor(np.int16(self.data.zero)) if self.data.zero else None)
        if in_int32(a, self.weight, self.weight.shape[1:]):
            total = F.matmul_int(a, self.weight, transpose_b=True).astype("int64")
        else:
            total = F.matmul(a.astype("int64"), self.weight.astype("int64"), transpose_b=True)
        return multiplied(total if self.bias is None else total + self.bias, *self.ratio)


class IntegerGates:
    """The weights of an LSTM of integers, and what it gives for a step."""

    def __init__(self, n: OpOf, x: list[Any]):
        if any(n.has(i) for i in (20, 21, 22, 23)):
            raise ValueError("an LSTM of integers with layer normalisation")
        if activation_of(n) != "TANH":
            raise ValueError(f"an LSTM of integers with {activation_of(n)}; known is one with TANH")
        get = lambda i: x[i] if i < len(x) else None
        if n.intermediates[4] < 0 or not (n.has(18) and n.has(19)):
            raise ValueError("an LSTM of integers without a state, a cell, or the scale of what it hides")
        data, self.state, cell = (quant_of(n.of(i)) for i in (0, 18, 19))
        hidden = quant_of(n.tensors[n.intermediates[4]])
        part, exponent = math.frexp(cell.scale)
        if part != 0.5 or not 0 <= exponent + 14 <= 6:
            raise ValueError(f"the cell of an LSTM of integers has the scale {cell.scale}, which is no power of 2 from 2^-15 to 2^-9")
        self.cell_bits = exponent + 14  # before the point
        self.hidden_zero = hidden.zero
        product = lambda i, q, bias=None: None if get(i) is None else Product(n, i, get(i), q, BEFORE, bias)
        self.of_input = [product(i, data, get(i + 11)) for i in (1, 2, 3, 4)]
        self.of_state = [product(i, self.state) for i in (5, 6, 7, 8)]
        if None in self.of_input[1:] or None in self.of_state[1:] or (self.of_input[0] is None) != (self.of_state[0] is None):
            raise ValueError("an LSTM without weights of a gate")
        ratio = lambda real: quantised_multiplier(float(np.float32(real)))
        seen = lambda i: (as_tensor(x[i]).astype("int64"), ratio(quant_of(n.of(i)).scale * cell.scale / BEFORE))
        self.of_cell = [None if i is None or get(i) is None else seen(i) for i in (9, 10, None, 11)]
        self.to_hidden = ratio(2.0**-30 / hidden.scale)
        self.projection = Product(n, 16, get(16), hidden, self.state.scale, get(17)) if get(16) is not None else None
        clipped = lambda name, q, most: int(min(max(n.get(name, 0.0) / q.scale, -most - 1), most)) if n.get(name, 0.0) > 0 else 0
        self.cell_clip, self.state_clip = clipped("CellClip", cell, 32767), clipped("ProjClip", quant_of(n.out()), 127)

    def gate(self, i: int, function: str, now: Tensor, h: Tensor, c: Tensor) -> Tensor:
        """A gate behind its function."""
        of_input, of_state, of_cell = self.of_input[i], self.of_state[i], self.of_cell[i]
        assert of_input is not None and of_state is not None
        total = within(within(of_input(now), 16) + of_state(h), 16)
        if of_cell is not None:
            total = within(total + multiplied(c * of_cell[0], *of_cell[1]), 16)
        return through(total, function, 3)

    def step(self, now: Tensor, h: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
        """The next state and cell. now: int8, (batch, features). h: int8, (batch, outputs). cell: int16, (batch, cells)."""
        c = cell.astype("int64")
        forget, new = self.gate(1, "sigmoid", now, h, c), self.gate(2, "tanh", now, h, c)
        into = 32767 - forget if self.of_input[0] is None else self.gate(0, "sigmoid", now, h, c)
        c = within(divided(forget * c, 15) + divided(into * new, 15 + self.cell_bits), 16)
        c = F.clip(c, -self.cell_clip, self.cell_clip) if self.cell_clip else c
        out = self.gate(3, "sigmoid", now, h, c) * through(c, "tanh", self.cell_bits)
        h = within(multiplied(out, *self.to_hidden) + self.hidden_zero, 8).astype("int8")
        if self.projection is not None:
            wide = within(self.projection(h) + self.state.zero, 8)
            h = (F.clip(wide, -self.state_clip, self.state_clip) if self.state_clip else wide).astype("int8")
        return h, c.astype("int16")


@quantised("UNIDIRECTIONAL_SEQUENCE_LSTM")
@scoped
def sequence_lstm(scope: Scope, n: OpOf, *x: Any) -> Tensor:
    """An LSTM of integers over a sequence, with peepholes, projection and coupled gates."""
    gates, t = IntegerGates(n, list(x)), steps_first(n, as_tensor(x[0]))
    (h, c), ys = F.scan(lambda s, now: ((made := gates.step(now, *s)), made[0]), (as_tensor(x[18]), as_tensor(x[19])), t)
    kept(scope, n, 18, h)
    kept(scope, n, 19, c)
    return steps_back(n, ys)
