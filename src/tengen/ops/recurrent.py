"""Recurrences over a sequence as one op each: the LSTM, and its gradient.

A program runs their steps in a loop (`kernels/recurrent/lstm.py`): sequences of any length are one compiled program. The input's
part of the gates is a product over all steps at once, before; the gradient of the recurrent weights is one after.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tengen import kernels
from tengen.base.errors import ShapeError
from tengen.ir.types import TensorType
from tengen.ops.contract import in_dtype, matmul
from tengen.ops.define import Case, check_floats, check_shape, composite, lookup, primitive
from tengen.ops.elementwise import add, mul, sub, tanh
from tengen.ops.shape import reshape

if TYPE_CHECKING:
    from tengen.tensor import Tensor


@primitive
def lstm(projected: Tensor, weight: Tensor, h0: Tensor, c0: Tensor, reverse: bool = False) -> Tensor:
    """An LSTM over a sequence, from the input's part of its gates: z = projected[t] + h weight.T; gates i, f, o are sigmoids of
    their parts of z, g is its tanh; c = f c + i g; h = o tanh(c). Returns (hidden states, cell states, gates).

    Shapes:   projected (T, N, 4 H), weight (4 H, H), h0, c0 (N, H) -> (T + 1, N, H), (T + 1, N, H), (T, N, 4 H), the first states
              being h0 and c0; the four parts are in the order i, f, g, o
    Dtypes:   floats, promoted; float16 and bfloat16 are computed in float32
    Args:
        reverse: the last step is the first; then states have h0 and c0 at index T.
    Numerics: h weight.T is a contraction (`kernels/contraction/`), to which projected is added; the bits of a sequence are not a
        function of others in the batch, nor of what comes after
    Source:   Hochreiter and Schmidhuber, Long short-term memory, 1997; with the forget gate of Gers et al., 2000
    """


@lstm.infer
def _(projected, weight, h0, c0, reverse):
    if projected.ndim != 3 or weight.ndim != 2:
        raise ShapeError("takes a projected input (steps, batch, 4 hidden) and weights (4 hidden, hidden)")
    (t, n, rows), h = projected.shape, weight.shape[1]
    check_shape("the weight", weight.shape, (4 * h, h))
    check_shape("the projected input", projected.shape, (t, n, 4 * h))
    check_shape("h0", h0.shape, (n, h))
    check_shape("c0", c0.shape, (n, h))
    d = check_floats(projected, weight, h0, c0)
    return TensorType((t + 1, n, h), d), TensorType((t + 1, n, h), d), TensorType((t, n, rows), d)


lstm.over({2: 0})  # a step reads its input's part of a gate where it writes the gate


@lstm.lower
def _(lo, ins, outs, reverse):
    kernels.recurrent.lstm.lstm(lo, *(in_dtype(lo, a, outs[0].dtype) for a in ins), *outs, reverse)


@lstm.vjp
def _(g, projected, weight, h0, c0, *, out, reverse):
    gh, gc, gg = g if isinstance(g, tuple) else (g, None, None)
    hs, cs, gates = out
    dz, dh0, dc0 = lstm_grad(gh, gc, gg, weight, cs, gates, reverse)

    def weights():
        before = _without(hs, not reverse)
        rows = lambda x: reshape(x, (-1, x.shape[2]))
        return matmul(rows(dz), rows(before), True)  # one sum over all steps

    return dz, weights, dh0, dc0


def _without(states, last: bool):
    """States without the last, or the first."""
    return states[:-1] if last else states[1:]


@primitive
def lstm_grad(
    grad_h: Tensor | None, grad_c: Tensor | None, grad_gates: Tensor | None, weight: Tensor, cs: Tensor, gates: Tensor,
    reverse: bool = False,
) -> Tensor:  # fmt: skip
    """The gradients of `lstm` with respect to projected, h0 and c0, from those of its results (None: zero), the cell states and
    the gates."""


@lstm_grad.infer
def _(grad_h, grad_c, grad_gates, weight, cs, gates, reverse):
    d = check_floats(weight, cs, gates)
    check_floats(weight, grad_h, grad_c, grad_gates)
    if gates.ndim != 3 or weight.ndim != 2:
        raise ShapeError("takes gates (steps, batch, 4 hidden) and weights (4 hidden, hidden)")
    (t, n, _), h = gates.shape, weight.shape[1]
    check_shape("the weight", weight.shape, (4 * h, h))
    states, parts = (t + 1, n, h), (t, n, 4 * h)
    for what, x, wanted in (
        ("the cell states", cs, states), ("the gates", gates, parts), ("the gradient of the hidden states", grad_h, states),
        ("the gradient of the cell states", grad_c, states), ("the gradient of the gates", grad_gates, parts),
    ):  # fmt: skip
        if x is not None:
            check_shape(what, x.shape, wanted)
    return TensorType(gates.shape, d), TensorType(cs.shape[1:], d), TensorType(cs.shape[1:], d)


lstm_grad.over({0: 5})  # a step back reads a gate where it writes the gradient of its sum


@lstm_grad.lower
def _(lo, ins, outs, reverse):
    kernels.recurrent.lstm.lstm_grad(lo, *(None if a is None else in_dtype(lo, a, outs[0].dtype) for a in ins), *outs, reverse)


@composite
def lstm_grad_by_steps(
    grad_h: Tensor | None, grad_c: Tensor | None, grad_gates: Tensor | None, weight: Tensor, cs: Tensor, gates: Tensor,
    reverse: bool = False,
) -> Tensor:  # fmt: skip
    """What `lstm_grad` gives, written step by step: gradients of gradients are those of this."""
    steps = int(gates.shape[0])
    zero = mul(cs[0], 0.0)
    dh, dc, dz = zero, zero, [None] * steps
    for t in range(steps) if reverse else reversed(range(steps)):
        old, new = (t + 1, t) if reverse else (t, t + 1)
        i, f, g, o = lookup("split")(gates[t], 4, 1)
        dh = dh if grad_h is None else add(dh, grad_h[new])
        dc = dc if grad_c is None else add(dc, grad_c[new])
        y = tanh(cs[new])
        dc = add(dc, mul(mul(dh, o), sub(1.0, mul(y, y))))
        by_gate = lookup("concat")([mul(dc, g), mul(dc, cs[old]), mul(dc, i), mul(dh, y)], 1)
        by_gate = by_gate if grad_gates is None else add(by_gate, grad_gates[t])
        slope = lookup("concat")([mul(i, sub(1.0, i)), mul(f, sub(1.0, f)), sub(1.0, mul(g, g)), mul(o, sub(1.0, o))], 1)
        dz[t] = mul(by_gate, slope)
        dh, dc = matmul(dz[t], weight), mul(dc, f)
    first = steps if reverse else 0
    dh = dh if grad_h is None else add(dh, grad_h[first])
    dc = dc if grad_c is None else add(dc, grad_c[first])
    return (lookup("stack")(dz, 0) if steps else mul(gates, 0.0)), dh, dc


lstm_grad.same(lstm_grad_by_steps)


def _sigmoid(x):
    return 0.5 * (1 + np.tanh(0.5 * x))


def _np_lstm(projected, weight, h0, c0, reverse=False):
    steps = len(projected)
    h, c, gates = [h0], [c0], []
    for t in range(steps)[::-1] if reverse else range(steps):
        i, f, g, o = np.split(projected[t] + h[-1] @ weight.T, 4, 1)
        i, f, g, o = _sigmoid(i), _sigmoid(f), np.tanh(g), _sigmoid(o)
        c.append(f * c[-1] + i * g)
        h.append(o * np.tanh(c[-1]))
        gates.append(np.concatenate([i, f, g, o], 1))
    turn = slice(None, None, -1 if reverse else 1)
    return np.stack(h[turn]), np.stack(c[turn]), (np.stack(gates[turn]) if gates else np.zeros_like(projected))


def _np_lstm_grad(gh, gc, gg, weight, cs, gates, reverse=False):
    steps, turn = len(gates), slice(None, None, -1 if reverse else 1)
    gh, gc, gg = (np.zeros_like(a) if g is None else g for g, a in ((gh, cs), (gc, cs), (gg, gates)))
    gh, gc, gg, cs, gates = (a[turn] for a in (gh, gc, gg, cs, gates))
    dh, dc, dz = gh[steps], gc[steps], np.zeros_like(gates)
    for t in range(steps)[::-1]:
        i, f, g, o = np.split(gates[t], 4, 1)
        u = np.tanh(cs[t + 1])
        dc = dc + dh * o * (1 - u**2)
        d = np.concatenate([dc * g, dc * cs[t], dc * i, dh * u], 1) + gg[t]
        dz[t] = d * np.concatenate([i * (1 - i), f * (1 - f), 1 - g**2, o * (1 - o)], 1)
        dh, dc = dz[t] @ weight + gh[t], dc * f + gc[t]
    return dz[turn], dh, dc


def _sample(*shapes):
    return lambda r: tuple(None if s is None else r.uniform(-1, 1, s) for s in shapes)


lstm.reference(_np_lstm)
lstm.cases(
    Case(_sample((3, 2, 20), (20, 5), (2, 5), (2, 5))),
    Case(_sample((4, 1, 8), (8, 2), (1, 2), (1, 2)), {"reverse": True}),
    Case(_sample((2, 3, 68), (68, 17), (3, 17), (3, 17))),
    Case(_sample((2, 6, 8), (8, 2), (6, 2), (6, 2))),
    Case(_sample((0, 2, 4), (4, 1), (2, 1), (2, 1)), grad=False),
    Case(_sample((2, 0, 4), (4, 1), (0, 1), (0, 1)), grad=False),
)
for _op in (lstm_grad, lstm_grad_by_steps):
    _op.reference(_np_lstm_grad)
    _op.cases(
        Case(_sample((4, 2, 5), (4, 2, 5), (3, 2, 20), (20, 5), (4, 2, 5), (3, 2, 20))),
        Case(_sample((3, 1, 2), None, None, (8, 2), (3, 1, 2), (2, 1, 8)), {"reverse": True}),
        Case(_sample(None, (3, 1, 2), None, (8, 2), (3, 1, 2), (2, 1, 8))),
    )
